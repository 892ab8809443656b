{"world": "loose", "seed": 2}
SELECT (p.age > 5) AS x0, (AVG(LEAST(GREATEST(p.weight, 0), 100))) AS x1 FROM (SELECT DISTINCT * FROM patients) p GROUP BY (p.age > 5)