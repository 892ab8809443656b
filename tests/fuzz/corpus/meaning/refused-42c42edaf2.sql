{"world": "loose", "seed": 1}
 AS SELECT spent_amount FROM accounts