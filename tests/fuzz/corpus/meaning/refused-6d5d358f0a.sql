{"world": "loose-rows", "seed": 0}
SELECT QUANTILE_CONT(weight, 2) AS x0, (COUNT_IF(smoker)) FROM (SELECT p.*, 1 AS one FROM patients p WHERE ((smoker) IS NULL)) p