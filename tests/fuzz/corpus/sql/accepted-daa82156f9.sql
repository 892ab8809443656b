{"world": "tight", "seed": 0, "epsilon": 0.5}
SELECT SUM(cost) AS x0, VARIANCE(v."odd name") AS x1 FROM visits v WHERE (1_000 IS NULL = "select" OR (v."odd name" < visit_id))