{"world": "tight-zcdp", "seed": 0}
SELECT COUNT(DISTINCT p.patient_id) AS x0 FROM patients p LEFT JOIN visits v ON p.patient_id = v.patient_id WHERE p.birth_year < v.patient_id - 1_000