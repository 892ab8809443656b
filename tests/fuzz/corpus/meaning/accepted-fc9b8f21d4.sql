{"world": "loose", "seed": 0}
SELECT MAX(g.price) AS x0 FROM prescriptions r JOIN drugs g USING (drug)