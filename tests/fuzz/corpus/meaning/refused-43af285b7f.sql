{"world": "loose-rows", "seed": 1}
SELECT COVAR_POP(p.income, 51) AS x0, SUM((CEIL(income)) * EXTRACT(hour FROM '2024-01-01 00:00:00') + 0.5) AS x1 FROM patients p