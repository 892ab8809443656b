{"world": "loose", "seed": 0, "epsilon": 3000}
SELECT MIN(p.age) FILTER (WHERE (smoker OR FALSE)) AS x0 FROM patients p ANTI JOIN visits v USING (patient_id) WHERE (('%' = '12')) IS NULL