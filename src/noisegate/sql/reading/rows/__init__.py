"""FROM: relations, joins, sub-queries, set operations, windows within a unit, PIVOT."""
