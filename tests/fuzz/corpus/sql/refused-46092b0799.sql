{"world": "loose", "seed": 0, "epsilon": 300}
SELECT (COUNT(*)) AS x0, MIN(p.age) FILTER (WHERE p.smoker) AS x1 FROM (SELECT DISTINCT * FROM patients) p