{"world": "tight", "seed": 0, "epsilon": 1}
SELECT COUNT(DISTINCT p.patient_id) FILTER (WHERE p.smoker) AS x0 FROM patients p LEFT JOIN visits v USING (patient_id)