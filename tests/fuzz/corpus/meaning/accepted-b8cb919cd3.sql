{"world": "loose", "seed": 0}
SELECT VARIANCE(LEAST(GREATEST(1_000, -3), 20)) AS x0 FROM patients p LEFT JOIN visits v USING (patient_id)