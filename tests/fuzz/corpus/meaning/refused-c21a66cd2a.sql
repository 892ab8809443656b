{"world": "loose-rows", "seed": 4}
SELECT COUNT(*) FROM patients GROUP BY GROUPING SETS ((region), (region))