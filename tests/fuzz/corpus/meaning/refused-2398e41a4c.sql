{"world": "loose", "seed": 0}
SELECT (MAX(p.patient_id)) AS x0 FROM (SELECT * EXCLUDE (name) FROM patients) p