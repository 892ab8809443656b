{"world": "loose", "seed": 1}
SELECT SUM(age ORDER BY weight) FROM patients