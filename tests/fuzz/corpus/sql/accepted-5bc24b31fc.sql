{"world": "loose", "seed": 0, "epsilon": 300}
SELECT (SELECT COUNT(*) FROM patients) + 1 AS a, 1 AS b