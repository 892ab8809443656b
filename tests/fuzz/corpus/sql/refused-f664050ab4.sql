{"world": "tight-many", "seed": 0, "epsilon": 1, "choose": ["bounds", "caps"]}
SELECT region AS x0, MEDIAN(9223372036854775807) FILTER (WHERE 'é' = 'Lund') AS x1,FROM patients p GROUP BY 1