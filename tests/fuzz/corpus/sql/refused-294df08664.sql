{"world": "tight", "seed": 0, "epsilon": 0.5}
SELECT COUNT(*) AS n FROM visits a CROSS JOIN visits b