{"world": "loose-rows", "seed": 0}
SELECT MAX(p.age) FILTER (WHERE town LIKE 'a%') AS x0 FROM patients p WHERE CASE WHEN TRUE THEN p.smoker ELSE town LIKE '%!%' ESCAPE '!' END