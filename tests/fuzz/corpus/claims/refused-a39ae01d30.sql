{"world": "tight-rows", "seed": 1, "epsilon": 1, "rows_per_unit": 1}
SELECT p.weight > 5 AS x0, MEDIAN(p.income) * 1e308 AS x1, (MAX(p.patient_id)) AS x2 FROM patients p GROUP BY p.weight > 5