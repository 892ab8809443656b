{"world": "tight-zcdp", "seed": 0, "epsilon": 1, "rows_per_unit": 50, "groups_per_unit": 7}
SELECT COUNT(*) AS n FROM (SELECT * FROM visits UNION ALL SELECT * FROM visits)