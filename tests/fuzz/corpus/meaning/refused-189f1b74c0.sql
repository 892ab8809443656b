{"world": "loose", "seed": 1}
SELECT v.cost % 3 AS x0, COUNT(*) AS x1 FROM visits v LEFT JOIN patients p ON v.patient_id = p.patient_id AND v.cost > 5 GROUP BY ALL