{"world": "tight-rows", "seed": 0, "epsilon": 0.5}
SELECT COUNT(*) AS s FROM visits a JOIN visits b USING (who)