{"world": "tight", "seed": 0, "epsilon": 1}
SELECT VAR_SAMP(age) AS a, VAR_POP(age) AS b, STDDEV(age) AS c, STDDEV_POP(age) AS d, VARIANCE(weight) AS e, STDDEV_SAMP(weight) AS f FROM patients