{"world": "loose", "seed": 2}
SELECT DISTINCT patient_id FROM patients