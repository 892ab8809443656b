{"world": "tight-zcdp", "seed": 1, "epsilon": 0.5}
T6TL(8EE👨2_,#'!
5C5;@{[E!-	8S'2TE; 3%]]