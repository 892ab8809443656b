{"world": "loose", "seed": 1}
SELECT(SUM(DATE_DIFF('month',born,DATE'0001-01-01'-INTERVAL'2 weeks'))),SUM(v."odd name")FROM patients p JOIN visits v ON p.patient_id=v.patient_id