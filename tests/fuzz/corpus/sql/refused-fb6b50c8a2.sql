{"world": "tight-zcdp", "seed": 0, "epsilon": 0.5}
SELECT p.income AS x0, income AS x1, region AS x2, COUNT(DISTINCT p.patient_id) FROM patients p WHERE p.birth_year::DOUBLE <= 10 GROUP BY ALL