{"world": "loose-rows", "seed": 0}
SELECT REGR_SLOPE(weight, age) AS a, REGR_INTERCEPT(weight, age) AS b, REGR_COUNT(weight, age) AS n FROM patients