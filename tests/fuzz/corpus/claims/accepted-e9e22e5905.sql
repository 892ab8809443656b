{"world": "tight", "seed": 0, "epsilon": 1, "groups_per_unit": 1}
SELECT (COUNT(*)) AS x0, SQRT(MIN(v.cost) FILTER (WHERE c.code < 'north')) AS x1 FROM visits v JOIN codes c USING (code)