{"world": "tight-zcdp", "seed": 0, "epsilon": 0.5}
SELECT r FROM range(100) t(r), visits