{"world": "tight-zcdp", "seed": 1, "epsilon": 1, "delta": 0}
SELECT COUNT(*) FROM patients GROUP BY GROUPING SETS ((region), (region))