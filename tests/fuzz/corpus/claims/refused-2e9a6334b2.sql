{"world": "tight-rows", "seed": 1, "epsilon": 1, "rows_per_unit": 1}
SELECT COUNT(*) FROM read_csv('x')