{"world": "tight", "seed": 0, "epsilon": "1/1000"}
SELECT PG_SLEEP(1)