{"world": "tight", "seed": 0, "epsilon": 0.5}
SELECT SUM(r.visit_id) AS x0, CORR(v."odd name", r.days) AS x1 FROM visits v JOIN prescriptions r ON v.visit_id = r.visit_id WHERE (v.code LIKE 'a%')