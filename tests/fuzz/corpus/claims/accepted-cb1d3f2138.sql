{"world": "tight-many", "seed": 0, "epsilon": 1, "rows_per_unit": 1}
SELECT STDDEV(r.days) FILTER (WHERE FALSE) AS x0 FROM prescriptions r WHERE 'é' NOT IN ('12', NULL) AND FALSE