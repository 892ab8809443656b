{"world": "tight-rows", "seed": 0, "epsilon": 1, "delta": 0}
SELECT (SUM(p.weight * p.weight)) FROM patients p