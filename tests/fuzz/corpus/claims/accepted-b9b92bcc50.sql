{"world": "tight-rows", "seed": 0, "epsilon": 1}
SELECT STDDEV(p.weight) AS x0 FROM patients p WHERE sex = ''