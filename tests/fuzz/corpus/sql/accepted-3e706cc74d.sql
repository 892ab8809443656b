{"world": "loose", "seed": 2, "epsilon": 300}
SELECT WIDTH_BUCKET(v.cost, 0, 100, 5) AS x0, AVG(v.cost) AS x1 FROM visits v INNER JOIN codes c ON v.code = c.code AND c.chapter = 'A' GROUP BY ALL