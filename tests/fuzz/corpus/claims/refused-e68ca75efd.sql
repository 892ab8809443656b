{"world": "tight-rows", "seed": 3, "epsilon": 1, "rows_per_unit": 50, "groups_per_unit": 7}
SELECT COUNT_IF(FALSE) AS x0, STDDEV((AVG(1e-300))) AS x1 FROM drugs g HAVING COUNT(*) > 2