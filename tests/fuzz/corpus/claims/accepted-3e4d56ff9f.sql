{"world": "tight", "seed": 0, "epsilon": 1, "rows_per_unit": 1}
SELECT MAX(v."odd name") FILTER (WHERE v."select") AS x0 FROM visits v WHERE ward < '2020-02-30'