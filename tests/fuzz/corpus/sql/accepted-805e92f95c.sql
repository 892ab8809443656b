{"world": "tight-zcdp", "seed": 3, "epsilon": 0.5}
SELECT day AS x0, TIMESTAMP '2024-06-06 06:06:06' AS x1, COUNT(DISTINCT 1) FROM visits v GROUP BY 1, 2 ORDER BY x0