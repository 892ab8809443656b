{"world": "loose-rows", "seed": 5}
SELECT COUNT(*) ;  FROM visits TABLESAMPLE 1 ROWS