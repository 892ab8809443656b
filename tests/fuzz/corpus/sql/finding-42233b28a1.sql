{"world": "tight", "seed": 0, "epsilon": 0.5}
WITH q(SELECT(COUNT())(ORDER)FROM patients JOIN visits USING(patient_id))SELECT*