{"world": "loose", "seed": 0}
SELECT (MEDIAN(r.days)) AS x0 FROM prescriptions r WHERE SUBSTR(drug, 10) < '12' AND TRUE HAVING (MEDIAN(r.days)) > 1