{"world": "tight", "seed": 0, "epsilon": 1, "choose": ["caps"]}
SELECT town, COUNT(*) AS n FROM visits JOIN patients USING (patient_id) WHERE smoker GROUP BY town