{"world": "tight", "seed": 0, "epsilon": 0.5}
SELECT AVG(LEAST(GREATEST(v.cost, 0), 100)) FROM visits v JOIN patients p ON v.patient_id = p.patient_id AND v.cost > 5 ORDER BY ALL