{"world": "loose", "seed": 0, "epsilon": 300}
SELECT * FROM prescriptions r INNER JOIN drugs g USING (drug) GROUP BY LOWER('') || '!', ()