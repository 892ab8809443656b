{"world": "tight", "seed": 3, "epsilon": 1}
 AS SELECT count(*) FROM orders WHERE country IN (SELECT code FROM countries)