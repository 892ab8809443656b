"""GROUP BY and aggregates: which sums a block needs, and what is computed of them."""
