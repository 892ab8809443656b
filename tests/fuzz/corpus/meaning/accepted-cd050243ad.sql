{"world": "loose", "seed": 0}
SELECT smoker, region, COUNT(*) AS n, GROUPING_ID(smoker, region) AS g FROM patients GROUP BY GROUPING SETS ((region, smoker), (smoker))