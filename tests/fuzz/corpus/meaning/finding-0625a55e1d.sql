{"world": "loose-rows", "seed": 1}
SELECT((p.town)),QUANTILE_CONT(income,.9)FROM patients p GROUP BY ALL