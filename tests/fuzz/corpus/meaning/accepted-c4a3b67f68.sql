{"world": "loose", "seed": 0}
SELECT CASE WHEN STDDEV(p.birth_year) > 1 THEN 1 END AS x0 FROM patients p INNER JOIN visits v USING (patient_id)