{"world": "loose-rows", "seed": 0, "epsilon": 300}
SELECT MEDIAN(p.weight) AS x0 FROM patients p WHERE smoker AND p.smoker = p.smoker IS NOT FALSE