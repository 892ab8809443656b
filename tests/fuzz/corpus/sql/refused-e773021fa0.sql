{"world": "loose", "seed": 0, "epsilon": 30000}
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(FALSE <> TRUE)rows=500) COUNT}