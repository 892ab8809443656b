{"world": "loose-rows", "seed": 0}
SELECT TRUE, CASE WHEN SUM(CASE WHEN FALSE THEN weight END) > 1 THEN 1 END AS x FROM patients GROUP BY ALL