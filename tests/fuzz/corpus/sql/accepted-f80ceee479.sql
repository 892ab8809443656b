{"world": "tight-rows", "seed": 0, "epsilon": 0.5}
SELECT COUNT(*) AS n FROM patients /* noisegate: within=40 confidence=0.99 */