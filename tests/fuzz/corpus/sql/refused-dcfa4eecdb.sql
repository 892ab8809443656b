{"world": "loose", "seed": 0, "epsilon": 300}
