{"world": "loose", "seed": 1}
SELECT SUM(DISTINCT age) FROM patients