{"world": "tight-rows", "seed": 0, "epsilon": 0.5}
SELECT MEDIAN(p.age) AS x0 FROM patients p WHERE p.smoker AND p.smoker QUALIFY ROW_NUMBER() OVER (ORDER BY COUNT(*)) < 3 ORDER BY COUNT(*) DESC