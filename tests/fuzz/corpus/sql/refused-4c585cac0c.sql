{"world": "tight", "seed": 3, "epsilon": "1/1000"}
SELECT PG_SLEEP(1)