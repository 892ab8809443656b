{"world": "loose-rows", "seed": 0, "epsilon": 300}
SELECT COVAR_POP(p.weight, p.weight) || 'x' AS x0 FROM (SELECT p.*, 1 AS one FROM patients p WHERE smoker) p