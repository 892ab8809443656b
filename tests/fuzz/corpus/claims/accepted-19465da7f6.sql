{"world": "tight-zcdp", "seed": 0, "epsilon": 1}
SELECT MIN(v."odd name") AS x0 FROM visits v JOIN codes c USING (code)