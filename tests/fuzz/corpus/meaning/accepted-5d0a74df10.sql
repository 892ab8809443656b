{"world": "loose", "seed": 1}
SELECT STDDEV_POP(p.income) FILTER (WHERE v.seen IS NOT NULL) AS x0, VAR_SAMP(p.age) FROM patients p RIGHT JOIN visits v ON p.patient_id = v.patient_id