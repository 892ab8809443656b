{"world": "tight-rows", "seed": 0, "epsilon": 0.5}
SELECT "".sex AS x0, YEAR("".born), SUM("".income) FILTER (WHERE "".smoker) AS x2 FROM patients "" GROUP BY ALL