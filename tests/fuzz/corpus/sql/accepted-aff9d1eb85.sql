{"world": "loose", "seed": 0, "epsilon": 3000}
SELECT QUANTILE_CONT(v.cost, 0.9) FILTER (WHERE TRUE) AS x0 FROM visits v JOIN prescriptions r ON v.visit_id = r.visit_id