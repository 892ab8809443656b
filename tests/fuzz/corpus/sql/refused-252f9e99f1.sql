{"world": "tight", "seed": 0, "epsilon": 0.5}
SELECT COUNT(*) FROM (SELECT RANK() OVER (PARTITION BY region ORDER BY age) AS r FROM patients)  WHERE r = 1