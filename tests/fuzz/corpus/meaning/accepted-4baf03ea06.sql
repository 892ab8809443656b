{"world": "loose", "seed": 0}
SELECT CORR(2, g.price) FILTER (WHERE (FALSE) IS NULL) AS x0, STDDEV(r.days) AS x1 FROM prescriptions r INNER JOIN drugs g USING (drug)