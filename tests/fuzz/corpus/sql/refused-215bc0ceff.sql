{"world": "loose-rows", "seed": 0, "epsilon": 300}
SELECT p.town AS x0, SUM(LENGTH('12') + 0.5) FILTER (WHERE p.weight <> p.weight) OVER () AS x1 FROM patients p CROSS JOIN drugs g GROUP BY 1