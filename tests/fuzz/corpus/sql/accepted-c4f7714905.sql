{"world": "loose", "seed": 0, "epsilon": 3000}
SELECT MIN(p.age) AS x0 FROM patients p JOIN visits v ON p.patient_id = v.patient_id WHERE FALSE