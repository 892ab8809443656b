{"world": "loose-rows", "seed": 3, "epsilon": 300}
SELECT MEDIAN(p.weight) FROM patients p