{"world": "tight", "seed": 0, "epsilon": 1, "rows_per_unit": 50, "groups_per_unit": 7}
SELECT (COUNT_IF((p.sex < 'm') > FALSE)) AS x0 FROM patients p WHERE TRUE AND smoker