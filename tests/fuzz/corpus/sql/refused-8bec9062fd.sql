{"world": "tight-zcdp", "seed": 0, "epsilon": 1, "rows_per_unit": 1}
SELECT (LEAST(g.price // 10, 3)) AS x0, MAX(g.price) AS x1 FROM prescriptions r LEFT JOIN drugs g ON r.drug = g.drug GROUP BY ALL