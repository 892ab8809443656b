"""Running totals of a table that grows."""
