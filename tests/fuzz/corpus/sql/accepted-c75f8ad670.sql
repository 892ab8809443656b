{"world": "tight-rows", "seed": 0, "epsilon": 0.5}
SELECT DISTINCT COUNT(CAST( TIMESTAMP'2024-06-06 06:06:06' AS DATE)) AS x0 FROM patients p