{"world": "tight-rows", "seed": 0, "epsilon": 0.5}
SELECT COALESCE(name, 'none') AS x0, (COUNT(p.sex)) FROM patients p GROUP BY 1 ORDER BY COUNT(*) DESC