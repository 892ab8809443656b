-- answered
SELECT COUNT(*) AS patients, AVG(weight) AS mean_weight FROM patients;

-- answered
SELECT sex, COUNT(*) AS n, 100 * COUNT(*) / SUM(COUNT(*)) OVER () AS share FROM patients GROUP BY sex;

-- answered
SELECT ward, COUNT(*) AS visits, SUM(cost) AS cost, AVG(cost) AS mean FROM visits GROUP BY ward ORDER BY cost DESC;

-- answered
SELECT w.building, SUM(v.nights) AS nights, SUM(w.beds) AS beds FROM visits v JOIN wards w ON w.ward = v.ward GROUP BY w.building;

-- answered
SELECT FLOOR((DATE '2025-01-01' - born) / 365.25 / 10) * 10 AS age_band, COUNT(*) AS n FROM patients
WHERE born IS NOT NULL AND born < DATE '2021-01-01' GROUP BY age_band ORDER BY age_band;

-- answered
SELECT CASE WHEN YEAR(born) < 1960 THEN 'before 1960' WHEN YEAR(born) < 1990 THEN '1960-1989' ELSE '1990 or later' END AS generation,
       COUNT(*) AS n, AVG(weight) AS weight
FROM patients WHERE born IS NOT NULL GROUP BY 1 ORDER BY 1;

-- answered
SELECT smoker, COUNT(*) AS n FROM patients GROUP BY smoker;

-- answered
SELECT town, COUNT(*) AS n FROM patients GROUP BY town HAVING COUNT(*) >= 100 ORDER BY n DESC;

-- answered
SELECT COUNT(DISTINCT patient_id) AS seen FROM visits WHERE day BETWEEN '2025-01-01' AND '2025-03-31';

-- answered
SELECT DATE_TRUNC('quarter', day) AS q, kind, COUNT(*) AS n FROM visits GROUP BY q, kind ORDER BY q, kind;

-- answered
SELECT YEAR(day) AS y, COUNT(*) AS n, COUNT(*) - LAG(COUNT(*)) OVER (ORDER BY YEAR(day)) AS more FROM visits GROUP BY y ORDER BY y;

-- answered
SELECT d.class, COUNT(*) AS prescriptions, SUM(p.days * d.price) AS cost
FROM prescriptions p JOIN drugs d ON d.drug = p.drug GROUP BY d.class ORDER BY cost DESC;

-- answered
SELECT d.drug, COUNT(*) AS n FROM prescriptions p INNER JOIN drugs d USING (drug) WHERE d.class = 'painkiller' GROUP BY d.drug;

-- answered
SELECT v.ward, p.drug, COUNT(*) AS n FROM prescriptions p JOIN visits v ON v.visit_id = p.visit_id GROUP BY v.ward, p.drug
QUALIFY ROW_NUMBER() OVER (PARTITION BY v.ward ORDER BY COUNT(*) DESC) = 1;

-- answered
SELECT COUNT(*) AS never FROM patients p WHERE NOT EXISTS (SELECT 1 FROM visits v WHERE v.patient_id = p.patient_id AND v.kind = 'urgent');

-- answered
SELECT COUNT(*) AS smokers_in_cardiology FROM patients WHERE smoker AND patient_id IN (SELECT patient_id FROM visits WHERE ward = 'cardiology');

-- answered
SELECT p.sex, AVG(v.cost) AS mean, COUNT(*) AS visits, COUNT(DISTINCT v.patient_id) AS patients
FROM visits v, patients p WHERE p.patient_id = v.patient_id GROUP BY p.sex;

-- answered
SELECT ward, COUNT(*) FILTER (WHERE nights = 0) AS day_cases, COUNT(*) FILTER (WHERE nights >= 3) AS long_stays, COUNT(nights) AS known
FROM visits GROUP BY ward;

-- answered, within 2 %
SELECT ward, MEDIAN(cost) AS median FROM visits GROUP BY ward ORDER BY ward;

-- answered, within 2 %
SELECT QUANTILE_CONT(cost, 0.25) AS q1, QUANTILE_CONT(cost, 0.5) AS q2, QUANTILE_CONT(cost, 0.75) AS q3 FROM visits WHERE kind = 'planned';

-- answered
SELECT AVG(LEAST(visits, 40)) AS mean FROM (SELECT patient_id, COUNT(*) AS visits FROM visits GROUP BY patient_id) AS x;

-- answered
SELECT COALESCE(v.n, 0) AS visits, COUNT(*) AS patients
FROM patients p LEFT JOIN (SELECT patient_id, LEAST(COUNT(*), 5) AS n FROM visits GROUP BY patient_id) v ON v.patient_id = p.patient_id
GROUP BY 1 ORDER BY 1;

-- answered
WITH firsts AS (SELECT patient_id, MIN(day) AS first_day FROM visits GROUP BY patient_id)
SELECT COUNT(*) AS back_within_90_days FROM firsts f
WHERE EXISTS (SELECT 1 FROM visits v WHERE v.patient_id = f.patient_id AND v.day BETWEEN f.first_day + 1 AND f.first_day + 90);

-- answered
SELECT ward, COUNT(*) AS readmitted FROM visits v
WHERE EXISTS (SELECT 1 FROM visits n WHERE n.patient_id = v.patient_id AND n.day > v.day AND n.day <= v.day + INTERVAL 30 DAY)
GROUP BY ward;

-- answered
SELECT AVG(nights) AS nights_of_last_visit FROM (
  SELECT nights, ROW_NUMBER() OVER (PARTITION BY patient_id ORDER BY day DESC, visit_id) AS k FROM visits) WHERE k = 1;

-- answered
SELECT COUNT(*) AS dearest FROM visits v WHERE cost = (SELECT MAX(cost) FROM visits i WHERE i.patient_id = v.patient_id);

-- answered, within 2 %
SELECT ward, COUNT(*) AS dear FROM visits WHERE cost > (SELECT QUANTILE_CONT(cost, 0.9) FROM visits) GROUP BY ward;

-- answered
SELECT w.ward, w.beds, COUNT(*) AS visits, COUNT(*) / NULLIF(w.beds, 0) AS per_bed
FROM visits v JOIN wards w USING (ward) GROUP BY w.ward, w.beds ORDER BY per_bed DESC NULLS LAST;

-- answered
SELECT ward, beds FROM wards WHERE beds > 0 ORDER BY beds DESC;

-- answered
SELECT class, AVG(price) AS price FROM drugs GROUP BY class ORDER BY class;

-- answered
SELECT COUNT(*) AS expensive FROM prescriptions WHERE drug IN (SELECT drug FROM drugs WHERE price > (SELECT AVG(price) FROM drugs));

-- answered
SELECT building, SUM(n) AS visits FROM (SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward) v JOIN wards USING (ward) GROUP BY building;

-- answered
-- means SELECT ward, kind, COUNT(*) AS n FROM visits WHERE kind <> 'tele' GROUP BY GROUPING SETS ((ward, kind), (ward), ())
SELECT ward, kind, COUNT(*) AS n FROM visits GROUP BY GROUPING SETS ((ward, kind), (ward), ());

-- answered
SELECT ISODOW(day) AS dow, COUNT(*) AS n FROM visits WHERE day >= '2025-01-01' GROUP BY dow ORDER BY dow;

-- answered
SELECT LAST_DAY(day) AS month_end, SUM(cost) AS cost FROM visits WHERE YEAR(day) = 2025 GROUP BY month_end ORDER BY month_end;

-- answered
SELECT cost >= 100 AND cost < 300 AS middling, COUNT(*) AS n, SUM(cost) AS total FROM visits GROUP BY middling;

-- answered
SELECT COUNT(*) AS n FROM visits WHERE cost BETWEEN 120.00 - 0.01 AND 120.00 + 0.01;

-- answered
SELECT SUM(CASE WHEN kind = 'urgent' THEN cost ELSE 0 END) / SUM(cost) AS urgent_share FROM visits;

-- answered
SELECT a.n AS patients, b.n AS visits, b.n * 1.0 / a.n AS per_patient
FROM (SELECT COUNT(*) AS n FROM patients) a, (SELECT COUNT(*) AS n FROM visits) b;

-- answered
SELECT COUNT(*) AS referred FROM visits WHERE note ILIKE 'refer:%';

-- answered
SELECT TRIM(LOWER(note)) AS note, COUNT(*) AS n FROM visits WHERE note IS NOT NULL GROUP BY 1 ORDER BY n DESC;

-- answered
SELECT LPAD(CAST(MONTH(day) AS VARCHAR), 2, '0') AS mm, COUNT(*) AS n FROM visits GROUP BY mm ORDER BY mm;

-- refused: rows
SELECT p.town, v.day, v.cost FROM patients p JOIN visits v USING (patient_id) WHERE v.cost > 700;

-- refused: hidden
SELECT name FROM patients WHERE smoker;

-- refused: function
SELECT COUNT(*) FROM patients USING SAMPLE 10%;

-- refused: function STRING_AGG
SELECT ward, STRING_AGG(note, ', ') AS notes FROM visits GROUP BY ward;

-- refused: rows
SELECT patient_id, COUNT(*) OVER (PARTITION BY patient_id) AS visits FROM visits;

-- refused: values
SELECT w.ward, m.month, COUNT(*) AS n FROM visits v JOIN wards w USING (ward)
CROSS JOIN (SELECT UNNEST([1, 2, 3]) AS month) m WHERE MONTH(v.day) = m.month GROUP BY ALL;

-- answered
SELECT ward, MAX(n) AS busiest FROM (SELECT ward, DATE_TRUNC('month', day) AS m, COUNT(*) AS n FROM visits GROUP BY ward, m) GROUP BY ward;

-- answered
SELECT sex, REGR_SLOPE(weight, YEAR(born)) AS slope FROM patients GROUP BY sex;

-- answered
SELECT w.ward, SUM(CASE WHEN v.ward = w.ward THEN 1 ELSE 0 END) AS here, COUNT(*) AS all_visits
FROM visits v CROSS JOIN wards w GROUP BY w.ward;

-- answered
SELECT sex, VAR_SAMP(weight) AS v, STDDEV_POP(weight) AS s, MIN(YEAR(born)) < 2000 AS old FROM patients GROUP BY sex;

-- answered
SELECT d.class, d.drug, COUNT(p.visit_id) AS n, COALESCE(SUM(p.days), 0) AS days FROM drugs d LEFT JOIN prescriptions p ON p.drug = d.drug GROUP BY ALL;

-- refused: match
SELECT drug FROM drugs WHERE drug NOT IN (SELECT drug FROM prescriptions);

-- refused: units
SELECT COUNT(*) AS shared FROM (SELECT note FROM visits WHERE kind = 'urgent' INTERSECT SELECT note FROM visits WHERE kind = 'planned');

-- answered
SELECT DATE_DIFF('year', born, DATE '2025-12-31') AS age, COUNT(*) AS n FROM patients WHERE born IS NOT NULL GROUP BY age ORDER BY age;
