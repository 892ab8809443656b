{"world": "tight-zcdp", "seed": 0}
SELECT 1 / x0 FROM (SELECT (COUNT(DISTINCT p.patient_id)) AS x0 FROM patients p WHERE smoker IS TRUE AND smoker AND (CAST(town AS BIGINT)) = (SELECT 7)) q