{"world": "tight-rows", "seed": 1, "epsilon": 1, "sample": "1/2"}
SELECT SUM(((age)))FROM patients