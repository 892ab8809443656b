{"world": "loose-rows", "seed": 5}
SELECT (LEAST(p.weight // 10, 3)) AS x0, COUNT(*) AS x1 FROM patients p WHERE smoker AND smoker GROUP BY 1