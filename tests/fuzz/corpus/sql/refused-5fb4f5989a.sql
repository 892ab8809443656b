{"world": "tight-rows", "seed": 0, "relative": 0.2}
SELECT born AS x0, (SUM(CASE WHEN smoker THEN p.weight END)) AS x1, (COUNT(*)) AS x2 FROM patients p GROUP BY born