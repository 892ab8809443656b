{"world": "tight-rows", "seed": 0, "epsilon": 1, "groups_per_unit": 3, "rows_per_unit": 10}
SELECT (COUNT(*)), (COUNT(DISTINCT weight)) AS x1 FROM patients p WHERE p.smoker <> name NOT IN ('é', NULL)