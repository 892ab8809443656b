{"world": "loose-rows", "seed": 4}
SELECT QUANTILE_CONT(cost , 0.x -> x) AS q, QUANTILE_CONT(cost, 0.5)  AS r FROM visits