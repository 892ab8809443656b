{"world": "tight", "seed": 0, "epsilon": 1}
SELECT VAR_SAMP(v.cost) FILTER (WHERE 'a''b' LIKE 'a%') AS x0 FROM patients p JOIN visits v ON p.patient_id = v.patient_id AND p.region = v.ward ORDER BY x0