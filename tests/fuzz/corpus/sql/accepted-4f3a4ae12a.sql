{"world": "loose", "seed": 0, "epsilon": 300}
SELECT v.code AS x0, v."select" AS x1, CORR(v.cost, v.cost) AS x2 FROM visits v JOIN codes c ON v.code = c.code AND c.chapter = 'A' GROUP BY 1, 2