{"world": "loose", "seed": 0, "epsilon": 30000}
SELECT COUNT(*) FROM  SELECT age FROM patients EXCEPT(SELECT cost FROM visits)