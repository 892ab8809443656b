{"world": "loose-rows", "seed": 0, "epsilon": 300}
SELECT MEDIAN(p.weight) FROM patients p