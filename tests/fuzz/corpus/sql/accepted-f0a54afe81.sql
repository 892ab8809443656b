{"world": "tight", "seed": 0, "epsilon": 0.5}
SELECT r.days IS NULL, LENGTH('12') AS x1, COUNT(DISTINCT drug) AS x2 FROM prescriptions r GROUP BY ALL ORDER BY ALL