{"world": "tight-rows", "seed": 2, "epsilon": 1}
