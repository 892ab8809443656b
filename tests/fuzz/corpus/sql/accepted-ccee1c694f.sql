{"world": "tight-rows", "seed": 1, "epsilon": 0.5}
SELECT MIN(g.price) AS x0 FROM drugs g HAVING MIN(g.price) > 1