{"world": "loose-zcdp", "seed": 0, "epsilon": 300}
SELECT VAR_SAMP(v."odd name") AS x0, MEDIAN(v."odd name") AS x1 FROM visits v INNER JOIN codes c USING (code)