{"world": "loose", "seed": 0, "epsilon": 300}
SELECT é.smoker AS x0, CORR(birth_year, income) AS x1 FROM patients é ANTI JOIN visits v USING (patient_id) GROUP BY ALL