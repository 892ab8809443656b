"""What is read means what DuckDB means: both are run on the same rows, exactly."""

import pytest
import sqlglot
from reading_oracle import TABLES, alike, answer, database, same_rows, sql_of

from noisegate.sql.reading.reader import read
from noisegate.sql.reading.sight import SelectReader, rows_of_table

QUESTIONS = """
SELECT COUNT(*) AS n FROM patients
SELECT COUNT(*) AS n, COUNT(age) AS a, COUNT(DISTINCT patient_id) AS u, COUNT(DISTINCT region) AS r, COUNT(patient_id) p, COUNT(1) o FROM patients
SELECT region, COUNT(*) AS n, AVG(age) AS a FROM patients p WHERE age > 10 AND smoker GROUP BY region ORDER BY n DESC, region
SELECT region AS r, MEAN(weight) AS w FROM Patients AS P GROUP BY r HAVING w > 70
SELECT p.region AS r, SUM(p.weight) AS s FROM patients p GROUP BY p.region HAVING COUNT(*) > 1 ORDER BY SUM(p.weight)
SELECT region, smoker, COUNT(*) AS n FROM patients GROUP BY ALL ORDER BY ALL
SELECT region, smoker, COUNT(*) AS n, GROUPING(region, smoker) AS g, GROUPING(smoker) AS h FROM patients GROUP BY CUBE (region, smoker)
SELECT region, smoker, COUNT(*) AS n FROM patients GROUP BY ROLLUP (region, smoker)
SELECT region, smoker, COUNT(*) AS n FROM patients GROUP BY GROUPING SETS ((region), (smoker), ())
SELECT region, smoker, age > 50 AS old, COUNT(*) AS n FROM patients GROUP BY region, ROLLUP (smoker, old)
SELECT region, 'all' AS a, COUNT(*) AS n FROM patients GROUP BY GROUPING SETS ((region, a), (a), (region), ())
SELECT TRUE AS t, COUNT(*) AS n FROM patients GROUP BY ROLLUP (t)
SELECT CAST(SUM(age + 0.5) AS INTEGER) AS a, CAST(SUM(age - 3.5) AS BIGINT) AS b, SUM(0.5) AS c, CAST(MAX(age * 0.5) AS INTEGER) AS d, CAST(AVG(age + 0.5) AS INTEGER) AS e FROM patients
SELECT MEDIAN(age * 0.1) AS a, QUANTILE_CONT(age * 0.01, 0.3) AS b, QUANTILE_CONT(-0.1 * age, [0.3, 0.9]) AS c FROM patients
SELECT QUANTILE_CONT(weight, [0.1, 0.9])[1] AS a, QUANTILE_CONT(weight, [0.1, 0.9])[2] - MEDIAN(weight) AS b, [COUNT(*), 7][2] AS c, [COUNT(*), 7][-2] AS d FROM patients
SELECT REGR_SLOPE(weight, age) AS a, REGR_INTERCEPT(weight, age) AS b, REGR_COUNT(weight, age) AS n FROM patients
SELECT REGR_R2(weight, age) AS a, REGR_AVGX(weight, age) AS b, REGR_AVGY(weight, age) AS c, REGR_SXX(weight, age) AS d, REGR_SYY(weight, age) AS e, REGR_SXY(weight, age) FILTER (WHERE smoker) AS f FROM patients
SELECT COUNT(*) AS n FROM (SELECT patient_id FROM patients INTERSECT SELECT patient_id FROM visits)
SELECT COUNT(*) AS n FROM (SELECT patient_id FROM patients WHERE age > 30 EXCEPT (SELECT patient_id FROM visits WHERE cost > 10))
SELECT COUNT(*) AS n, COUNT(DISTINCT code) AS c FROM (SELECT patient_id, code FROM visits WHERE cost > 6 UNION SELECT patient_id, 'A1' FROM patients)
SELECT COUNT(*) AS n FROM (SELECT patient_id, cost FROM visits INTERSECT SELECT patient_id, cost FROM visits WHERE cost IS NULL OR cost = 50)
WITH a AS (SELECT patient_id FROM visits EXCEPT SELECT patient_id FROM patients WHERE smoker) SELECT COUNT(*) AS n FROM a JOIN patients USING (patient_id)
SELECT c.chapter, COUNT(v.visit_id) AS n, COALESCE(SUM(v.cost), 0) AS s FROM codes c JOIN visits v ON v.code = c.code GROUP BY c.chapter
SELECT COUNT(v.cost) AS n, SUM(v.cost) AS s, AVG(v.cost) AS a FROM codes c LEFT JOIN visits v ON v.code = c.code AND v.cost > 6
SELECT SUM(m) AS s, COUNT(m) AS n FROM (SELECT AVG(cost) OVER (PARTITION BY patient_id ORDER BY visit_id ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) AS m FROM visits)
SELECT t, COUNT(*) AS n, SUM(t) AS s FROM (SELECT NTILE(2) OVER (PARTITION BY patient_id ORDER BY visit_id) AS t FROM visits) GROUP BY t
SELECT SUM(t) AS s, SUM(u) AS u FROM (SELECT NTILE(5) OVER (PARTITION BY patient_id ORDER BY visit_id DESC) AS t, NTILE(1) OVER (PARTITION BY patient_id ORDER BY visit_id) AS u FROM visits)
SELECT NULLIF(region, 'north') AS r, COUNT(*) AS n FROM patients GROUP BY r
SELECT NULLIF(age % 3, 0) AS r, COUNT(*) AS n FROM patients GROUP BY r
SELECT region, country, COUNT(*) AS n FROM patients JOIN regions USING (region) GROUP BY region, country
SELECT SUM(EPOCH(seen - TIMESTAMP '2024-01-01 00:00:00') / 60) AS m, SUM(EXTRACT(epoch FROM (seen - DATE '2024-02-01'))) AS s FROM visits WHERE seen BETWEEN '2023-01-01' AND '2025-01-01'
SELECT AVG(CASE WHEN EXISTS (SELECT 1 FROM visits w WHERE w.patient_id = v.patient_id AND w.seen > v.seen) THEN 1 ELSE 0 END) AS a, AVG(CAST(EXISTS (SELECT 1 FROM visits w WHERE w.patient_id = v.patient_id AND w.visit_id <> v.visit_id) AS INT)) FILTER (WHERE v.cost > 6) AS b FROM visits v
SELECT DISTINCT region FROM patients
SELECT DISTINCT region, smoker FROM patients WHERE age > 10
SELECT COUNT(*) AS n FROM (SELECT DISTINCT region FROM patients)
SELECT region FROM patients GROUP BY region
SELECT VAR_SAMP(age) AS a, VAR_POP(age) AS b, STDDEV(age) AS c, STDDEV_POP(age) AS d, VARIANCE(weight) AS e, STDDEV_SAMP(weight) AS f FROM patients
SELECT COVAR_SAMP(age, weight) AS a, COVAR_POP(age, weight) AS b, CORR(age, weight) AS c FROM patients
SELECT MEDIAN(age) AS a, QUANTILE_CONT(age, 0.25) AS b, PERCENTILE_CONT(0.75) WITHIN GROUP (ORDER BY age) AS c, PERCENTILE_CONT(0.75) WITHIN GROUP (ORDER BY age DESC) AS d FROM patients
SELECT QUANTILE_CONT(weight, [0.1, 0.5]) AS q FROM patients
SELECT MIN(age) AS a, MAX(weight) AS b, MIN(born) AS c FROM patients
SELECT COUNT_IF(age > 40) AS a, SUM(CASE WHEN smoker THEN 1 ELSE 0 END) AS b, COUNT(CASE WHEN age > 40 THEN 1 END) AS c, COUNT(*) FILTER (WHERE smoker) AS d, SUM(age) FILTER (WHERE smoker AND age < 80) AS e, COUNT_IF(smoker) FILTER (WHERE age > 50) AS f FROM patients
SELECT SUM(age) / COUNT(*) AS ratio, SUM(smoker) AS s, AVG(age + weight * 2) AS m FROM patients
SELECT region, 100.0 * COUNT(*) / SUM(COUNT(*)) OVER () AS share, RANK() OVER (ORDER BY COUNT(*) DESC, region) AS r FROM patients GROUP BY region
SELECT region, COUNT(*) AS n, n * 2 AS m FROM patients GROUP BY region QUALIFY ROW_NUMBER() OVER (ORDER BY n DESC, region) = 1
SELECT region, COUNT(*) AS n, SUM(COUNT(*)) OVER w AS s FROM patients GROUP BY region WINDOW w AS (ORDER BY region)
SELECT region || '!' AS loud, COUNT(*) AS n FROM patients GROUP BY region
SELECT FLOOR(age / 10) * 10 AS decade, COUNT(*) AS n FROM patients GROUP BY decade
SELECT ROUND(weight, 0) AS w, COUNT(*) AS n FROM patients GROUP BY ROUND(weight, 0) ORDER BY ROUND(weight, 0)
SELECT ROUND(weight, 1) AS w, ROUND(-weight, -1) AS v, COUNT(*) AS n FROM patients GROUP BY 1, 2 HAVING ROUND(weight, 1) > 60
SELECT FLOOR((weight / 2.5)) * 2.5 AS w, COUNT(*) AS n FROM patients GROUP BY FLOOR((weight / 2.5)) * 2.5
SELECT ((FLOOR(((weight - -0.7) / 0.3)) * 0.3) + -0.7) AS w, COUNT(*) AS n FROM patients GROUP BY ((FLOOR(((weight - -0.7) / 0.3)) * 0.3) + -0.7)
SELECT FLOOR(weight / 0.1) * 0.1 AS w, CAST(weight / 10 AS INTEGER) * 10 AS v, COUNT(*) AS n FROM patients GROUP BY 1, 2
SELECT age / 4 AS a, TRUNC(weight * 10) / 10 AS w, COUNT(*) AS n FROM patients GROUP BY 1, 2
SELECT ROUND(CAST(weight AS DECIMAL(9, 3)), 1) AS a, CAST(weight AS DECIMAL(9, 1)) AS b, CAST(FLOOR(weight) * 0.25 AS DECIMAL(9, 1)) AS c, COUNT(*) AS n FROM patients GROUP BY ALL
SELECT w, ROUND(w, 0) AS v, COUNT(*) AS n FROM (SELECT FLOOR(weight / 2.5) * 2.5 + 0.5 AS w FROM patients) WHERE w > 3 GROUP BY w, ROUND(w, 0)
SELECT ROUND(weight, 1) AS w, GROUPING(ROUND(weight, 1)) AS g, COUNT(*) AS n FROM patients GROUP BY ROLLUP (ROUND(weight, 1))
SELECT age // 10 AS decade, COUNT(*) AS n FROM patients GROUP BY 1 ORDER BY 1 LIMIT 2 OFFSET 1
SELECT YEAR(born) AS y, COUNT(*) AS n FROM patients GROUP BY y
SELECT STRFTIME(born, '%Y') AS y, COUNT(*) AS n FROM patients GROUP BY y
SELECT STRFTIME(born, '%B') AS m, COUNT(*) AS n FROM patients WHERE born > '1973-01-01' GROUP BY m ORDER BY m
SELECT STRFTIME(seen, '%H') AS h, COUNT(*) AS n FROM visits WHERE seen >= '2024-01-01' GROUP BY h
SELECT DATE_TRUNC('minute', seen) AS m, COUNT(*) AS n FROM visits WHERE seen BETWEEN '2024-06-06 06:00:00' AND '2024-06-06 06:10:00' GROUP BY m
SELECT SPLIT_PART(code, '1', 1) AS c, COUNT(*) AS n FROM visits GROUP BY c
SELECT REGEXP_EXTRACT(code, '[A-Z]') AS c, COUNT(*) AS n FROM visits WHERE code ~ '[12]$' GROUP BY c
SELECT visit_id // 5 AS v, visit_id % 3 AS r, COUNT(*) AS n FROM visits GROUP BY v, r
SELECT LENGTH(name) + 1 AS l, COUNT(*) AS n FROM patients GROUP BY l
SELECT LENGTH(name) // 2 AS l, COUNT(*) AS n FROM patients GROUP BY l
SELECT LENGTH(name) * 2 + 1 AS l, COUNT(*) AS n FROM patients GROUP BY l ORDER BY l
SELECT visit_id // 5 * 5 AS v, COUNT(*) AS n FROM visits GROUP BY v HAVING v > 10
SELECT 3 - 2 * age AS a, COUNT(*) AS n FROM patients GROUP BY a
SELECT DATE_TRUNC('month', seen) AS m, COUNT(*) AS n FROM visits GROUP BY m
SELECT CASE WHEN age < 18 THEN 'child' WHEN age < 65 THEN 'adult' ELSE 'old' END AS g, COUNT(*) AS n FROM patients GROUP BY g
SELECT chapter, SUM(cost) AS s, COUNT(*) AS n FROM visits v JOIN codes c ON v.code = c.code GROUP BY chapter
SELECT chapter, COUNT(*) AS n FROM codes c JOIN visits v USING (code) WHERE cost > 6 GROUP BY chapter
SELECT chapter, COUNT(*) AS n FROM visits v LEFT JOIN codes c ON v.code = c.code AND c.chapter = 'A' GROUP BY chapter
SELECT chapter, COUNT(*) AS n FROM codes c RIGHT JOIN visits v ON v.code = c.code GROUP BY chapter
SELECT COUNT(*) AS n FROM visits v, codes c WHERE v.code = c.code AND cost > 6 AND chapter = 'A'
SELECT COUNT(*) AS n FROM visits v CROSS JOIN codes c WHERE c.code = v.code
SELECT COUNT(*) AS n FROM visits v JOIN codes c ON v.code = c.code AND v.cost > 6 AND c.chapter < v.code
SELECT country, COUNT(*) AS n FROM patients JOIN visits USING (patient_id) JOIN regions USING (region) GROUP BY country
SELECT region, COUNT(*) AS n, COUNT(DISTINCT p.patient_id) AS u FROM patients p JOIN visits v ON p.patient_id = v.patient_id GROUP BY region
SELECT region, COUNT(*) AS n, COUNT(v.cost) AS c FROM patients p LEFT JOIN visits v ON p.patient_id = v.patient_id AND v.cost > 6 GROUP BY region
SELECT region, COUNT(*) AS n FROM visits v RIGHT JOIN patients p ON p.patient_id = v.patient_id GROUP BY region
SELECT COUNT(*) AS n FROM patients a JOIN patients b ON a.patient_id = b.patient_id AND a.age = b.age
SELECT COUNT(*) AS n, SUM(amount) AS s FROM bills b JOIN visits v ON b.visit_id = v.visit_id WHERE v.cost > 6
SELECT COUNT(*) AS n, COUNT(DISTINCT v.patient_id) AS u FROM bills b JOIN visits v USING (visit_id)
SELECT region, SUM(words) AS s FROM notes JOIN patients ON pid = patient_id GROUP BY region
SELECT n, COUNT(*) AS people FROM (SELECT patient_id, COUNT(*) AS n FROM visits GROUP BY patient_id) GROUP BY n
SELECT AVG(n) AS a, AVG(t) AS b, SUM(m) AS c, MAX(x) AS d FROM (SELECT patient_id, COUNT(*) AS n, SUM(cost) AS t, AVG(cost) AS m, MAX(cost) - MIN(cost) AS x FROM visits GROUP BY 1) v
SELECT COUNT(*) AS n, SUM(s) AS s FROM (SELECT patient_id, SUM(cost) FILTER (WHERE code = 'A1') AS s FROM visits GROUP BY patient_id HAVING COUNT(*) > 1 AND SUM(cost) > 20)
SELECT code, COUNT(*) AS n, AVG(k) AS a FROM (SELECT patient_id, code, COUNT(*) AS k FROM visits GROUP BY patient_id, code) GROUP BY code
SELECT COUNT(*) AS n, SUM(d) AS s FROM (SELECT patient_id, COUNT(DISTINCT code) AS d FROM visits GROUP BY patient_id)
SELECT COUNT(*) AS n FROM (SELECT DISTINCT patient_id, code FROM visits)
SELECT region, AVG(COALESCE(n, 0)) AS a FROM patients p LEFT JOIN (SELECT patient_id, COUNT(*) AS n FROM visits GROUP BY patient_id) v ON p.patient_id = v.patient_id GROUP BY region
SELECT COUNT(*) AS n FROM patients LEFT JOIN (SELECT patient_id, COUNT(*) AS k FROM visits GROUP BY 1) USING (patient_id) WHERE k IS NULL
WITH v AS (SELECT patient_id, COUNT(*) AS n FROM visits GROUP BY patient_id), w AS (SELECT patient_id, n FROM v WHERE n > 1) SELECT COUNT(*) AS a FROM v JOIN w USING (patient_id)
WITH old AS (SELECT * FROM patients WHERE age > 40) SELECT region, COUNT(*) AS n FROM old GROUP BY region
WITH r AS (SELECT region, COUNT(*) AS n FROM patients GROUP BY region) SELECT region, n, n / (SELECT SUM(n) FROM r) AS share FROM r ORDER BY share
WITH r AS (SELECT region, COUNT(*) AS n FROM patients GROUP BY region) SELECT country, SUM(n) AS n FROM r JOIN regions USING (region) GROUP BY country
WITH c(a, b) AS (SELECT region, age FROM patients) SELECT a, AVG(b) AS m FROM c GROUP BY a
WITH big AS (SELECT code FROM codes WHERE chapter = 'A') SELECT COUNT(*) AS n FROM visits JOIN big USING (code)
SELECT * FROM (SELECT region, COUNT(*) AS n FROM patients GROUP BY region) WHERE n > 1
SELECT a.region, a.n, b.m FROM (SELECT region, COUNT(*) AS n FROM patients GROUP BY region) a JOIN (SELECT region, AVG(age) AS m FROM patients GROUP BY region) b USING (region)
SELECT COUNT(*) AS n FROM patients UNION ALL SELECT COUNT(*) FROM visits
SELECT COUNT(*) AS n FROM patients EXCEPT SELECT 5
SELECT COUNT(*) AS n, SUM(x) AS s FROM (SELECT age AS x FROM patients UNION ALL SELECT cost FROM visits)
SELECT COUNT(*) AS n, COUNT(DISTINCT patient_id) AS u FROM (SELECT patient_id, age FROM patients UNION ALL SELECT patient_id, visit_id FROM visits)
SELECT COUNT(*) AS n FROM patients WHERE patient_id IN (SELECT patient_id FROM visits WHERE cost > 10)
SELECT COUNT(*) AS n FROM patients WHERE patient_id NOT IN (SELECT patient_id FROM visits)
SELECT COUNT(*) AS n FROM patients WHERE patient_id IN (SELECT patient_id FROM visits GROUP BY patient_id HAVING COUNT(*) > 1) AND age > 30
SELECT COUNT(*) AS n FROM patients p WHERE EXISTS (SELECT 1 FROM visits v WHERE v.patient_id = p.patient_id AND cost > 10)
SELECT COUNT(*) AS n FROM patients p WHERE NOT EXISTS (SELECT 1 FROM visits v WHERE v.patient_id = p.patient_id)
SELECT COUNT(*) AS n FROM patients WHERE region IN (SELECT region FROM regions WHERE country = 'Y')
SELECT COUNT(*) AS n FROM visits WHERE code NOT IN (SELECT code FROM codes WHERE chapter = 'A')
SELECT COUNT(*) AS n FROM visits v WHERE NOT EXISTS (SELECT * FROM codes c WHERE c.code = v.code)
SELECT COUNT(*) AS n FROM visits v SEMI JOIN codes c ON v.code = c.code
SELECT COUNT(*) AS n FROM patients p ANTI JOIN visits v ON v.patient_id = p.patient_id
SELECT COUNT(*) AS n FROM visits WHERE (code, 'A') IN (SELECT code, chapter FROM codes)
SELECT COUNT(*) AS n FROM visits WHERE visit_id IN (SELECT visit_id FROM bills)
SELECT score, COUNT(*) AS n FROM survey JOIN codes USING (code) GROUP BY score
SELECT chapter, COUNT(*) AS n FROM survey s LEFT JOIN codes c ON s.code = c.code GROUP BY chapter
SELECT age + 1 AS next, COUNT(*) AS n FROM patients WHERE next > 10 GROUP BY next
SELECT COUNT(*) AS n FROM (SELECT age + 1 AS x, x * 2 AS y FROM patients) WHERE y > 100
SELECT COUNT(*) AS n FROM (SELECT * FROM patients JOIN visits USING (patient_id)) WHERE cost > 6
SELECT COUNT(*) AS n FROM (SELECT * FROM visits v JOIN codes c ON v.code = c.code) WHERE code_1 = 'A1'
SELECT COUNT(*) AS n FROM (SELECT p.*, cost FROM patients p JOIN visits v USING (patient_id)) WHERE age > 40
SELECT (SELECT COUNT(*) FROM patients) AS a, (SELECT COUNT(*) FROM visits) AS b
SELECT country, COUNT(*) AS n FROM regions GROUP BY country
SELECT COUNT(*) AS n FROM patients HAVING COUNT(*) > (SELECT COUNT(*) FROM regions)
FROM patients SELECT COUNT(*) AS n WHERE age > 50
SELECT n FROM (SELECT COUNT(*) FROM patients) t(n)
SELECT region, n FROM (SELECT region, COUNT(*) AS n FROM patients GROUP BY region) ORDER BY n DESC, region LIMIT 1
(SELECT COUNT(*) AS n FROM patients) ORDER BY 1
SELECT CASE WHEN COUNT(*) > 3 THEN 'many' ELSE 'few' END AS w FROM patients
SELECT age // 10 AS age, COUNT(*) AS n FROM patients GROUP BY age ORDER BY age, n
SELECT COUNT(*) AS n FROM patients WHERE FALSE
WITH visits AS (SELECT * FROM visits WHERE cost > 6) SELECT COUNT(*) AS n FROM visits
WITH patients AS (SELECT 1 AS x) SELECT COUNT(*) AS n FROM patients
WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t WHERE n < 3) SELECT SUM(n) AS s, (SELECT COUNT(*) FROM patients) AS p FROM t
SELECT age + 1 AS age, COUNT(*) AS n FROM patients WHERE age > 50 GROUP BY ALL
SELECT region AS smoker, COUNT(*) AS n FROM patients GROUP BY region, patients.smoker ORDER BY smoker
SELECT code, COUNT(*) AS n FROM codes RIGHT JOIN visits USING (code) GROUP BY code
SELECT code, COUNT(*) AS n FROM visits LEFT JOIN codes USING (code) GROUP BY code
SELECT visits.code AS a, codes.code AS b, COUNT(*) AS n FROM visits LEFT JOIN codes USING (code) GROUP BY ALL
SELECT DISTINCT COUNT(*) AS n FROM patients GROUP BY region
SELECT SUM(COUNT(*)) FILTER (WHERE COUNT(*) > 1) OVER () AS s, region FROM patients GROUP BY region
SELECT COUNT(*) AS n FROM (SELECT patient_id AS pid, COUNT(*) AS k FROM visits GROUP BY pid) v JOIN patients ON pid = patients.patient_id WHERE k > 1
SELECT y, COUNT(*) AS n FROM (SELECT patient_id, YEAR(seen) AS y, COUNT(*) AS k FROM visits GROUP BY patient_id, YEAR(seen)) GROUP BY y
SELECT SUM(t) AS s FROM (SELECT patient_id, SUM(k) AS t FROM (SELECT patient_id, code, COUNT(*) AS k FROM visits GROUP BY patient_id, code) GROUP BY patient_id HAVING t > 1)
SELECT COUNT(*) AS n FROM (SELECT patient_id, COUNT(*) FILTER (WHERE cost > 15) AS big FROM visits GROUP BY patient_id) WHERE big >= 1
SELECT COUNT(*) AS n FROM visits v, codes c, patients p WHERE v.code = c.code AND p.patient_id = v.patient_id AND p.age > 40
SELECT region, COUNT(*) AS n FROM patients p WHERE NOT (NOT EXISTS (SELECT 1 FROM visits v WHERE v.patient_id = p.patient_id)) GROUP BY region
SELECT COUNT(*) AS n FROM patients WHERE patient_id IN (SELECT patient_id FROM visits WHERE code IN (SELECT code FROM codes WHERE chapter = 'B'))
SELECT COUNT(*) AS n FROM bills b LEFT JOIN visits v ON b.visit_id = v.visit_id AND v.cost > 20 WHERE v.code IS NULL
SELECT region, (SELECT COUNT(*) FROM codes) AS c, COUNT(*) AS n FROM patients GROUP BY region
SELECT region, COUNT(*) AS n FROM patients GROUP BY region HAVING region IN (SELECT region FROM regions WHERE country = 'Y')
SELECT COUNT(*) AS n FROM (SELECT score FROM survey UNION ALL SELECT score FROM survey WHERE score > 3)
WITH a AS (SELECT patient_id, COUNT(*) AS n FROM visits GROUP BY 1), b(q, m) AS (SELECT patient_id, SUM(amount) FROM bills JOIN visits USING (visit_id) GROUP BY 1) SELECT COUNT(*) AS c, SUM(n * m) AS s FROM a JOIN b ON a.patient_id = b.q
SELECT COUNT(*) AS n FROM patients p LEFT JOIN notes n ON n.pid = p.patient_id LEFT JOIN visits v ON v.patient_id = p.patient_id
SELECT region, COUNT(v.code) AS n FROM patients p LEFT JOIN visits v USING (patient_id) LEFT JOIN codes c ON c.code = v.code AND c.chapter = 'A' WHERE c.code IS NULL GROUP BY region
SELECT chapter, COUNT(DISTINCT v.patient_id) AS u FROM visits v JOIN codes c USING (code) GROUP BY ROLLUP (chapter)
SELECT COUNT(*) AS n FROM patients WHERE region IN ('north', 'south') AND NOT smoker IS NULL
SELECT region, COUNT(*) AS n FROM patients GROUP BY region ORDER BY COUNT(*) DESC, region NULLS FIRST LIMIT 1 + 1
SELECT CASE WHEN GROUPING(region) = 1 THEN 'all' ELSE region END AS r, COUNT(*) AS n FROM patients GROUP BY ROLLUP (region)
SELECT region, n FROM (SELECT region, COUNT(*) AS n FROM patients GROUP BY region UNION ALL SELECT 'x', 0) ORDER BY n
SELECT upper(region) AS r, COUNT(*) AS n FROM patients GROUP BY upper(region) HAVING upper(region) = 'NORTH'
SELECT COUNT(*) AS n, AVG(n2) AS a FROM (SELECT patient_id, COUNT(*) n2 FROM visits GROUP BY patient_id UNION ALL SELECT patient_id, age FROM patients)
SELECT COUNT(*) AS n FROM (SELECT p.patient_id FROM patients p JOIN visits v ON v.patient_id = p.patient_id GROUP BY p.patient_id HAVING SUM(v.cost) > 20 AND MAX(p.age) > 20)
SELECT COUNT(*) n FROM (SELECT a.patient_id FROM visits a JOIN visits b ON a.patient_id = b.patient_id AND a.code = b.code WHERE a.visit_id < b.visit_id)
SELECT COUNT(*) AS n FROM patients p JOIN visits v ON p.patient_id = v.patient_id JOIN bills b ON b.visit_id = v.visit_id
SELECT region FROM patients GROUP BY region ORDER BY AVG(age) DESC LIMIT 1
SELECT COUNT(*) AS n FROM (SELECT x + 1 AS y FROM (SELECT age AS x FROM patients) WHERE x > 10) WHERE y < 60
SELECT COUNT(*) AS n FROM (SELECT age x FROM patients) t WHERE t.x > 10
SELECT t.n, u.n FROM (SELECT COUNT(*) AS n FROM patients) t, (SELECT COUNT(*) AS n FROM visits) u
SELECT region AS "Region", COUNT(*) AS "N of" FROM patients GROUP BY "region" ORDER BY "N of"
SELECT country, COUNT(*) AS n FROM (SELECT * FROM patients p LEFT JOIN regions r ON p.region = r.region) GROUP BY country
SELECT COUNT(*) AS n FROM patients WHERE born IN ('1990-02-03', '1973-07-31')
SELECT COUNT(*) AS n FROM (SELECT count(*) FROM patients GROUP BY region)
SELECT COUNT(*) AS n FROM (SELECT DISTINCT region, patient_id FROM patients) WHERE region = 'south'
SELECT k, count(*) n FROM (SELECT patient_id, least(count(*), 2) k FROM visits GROUP BY patient_id) GROUP BY k
SELECT avg(m) a FROM (SELECT patient_id, max(cost) m FROM visits GROUP BY all)
SELECT COUNT(*) n FROM visits WHERE code IN (SELECT DISTINCT code FROM codes)
SELECT COUNT(*) n FROM patients ANTI JOIN visits USING (patient_id)
SELECT smoker, region, COUNT(*) AS n, GROUPING_ID(smoker, region) AS g FROM patients GROUP BY GROUPING SETS ((region, smoker), (smoker))
SELECT COUNT(*) + 0 * COUNT(*) AS n FROM patients ORDER BY n
SELECT (SELECT COUNT(*) FROM patients) + 1 AS a, 1 AS b
SELECT -COUNT(*) AS n, ROUND(AVG(weight), 1) AS w FROM patients
SELECT COUNT(*) AS v, (SELECT COUNT(*) FROM patients) AS p FROM visits
SELECT COUNT(*) AS v, (SELECT COUNT(*) FROM patients) AS p, v / (SELECT COUNT(*) FROM patients) AS q, (SELECT SUM(cost) FROM visits) AS s FROM visits
SELECT region, COUNT(*) / (SELECT COUNT(*) FROM patients) AS share FROM patients GROUP BY region
SELECT region, COUNT(*) AS n FROM patients GROUP BY region HAVING COUNT(*) >= (SELECT COUNT(*) / 3 FROM visits) ORDER BY n - (SELECT COUNT(*) FROM bills), region
SELECT COUNT(*) AS a, (SELECT COUNT(*) FROM visits HAVING COUNT(*) > (SELECT COUNT(*) FROM notes)) AS b, COUNT(*) IN (SELECT COUNT(*) FROM visits) AS c FROM patients
SELECT (SELECT COUNT(*) FROM patients) - (SELECT COUNT(DISTINCT patient_id) FROM visits) AS d, 6 IN (SELECT COUNT(*) FROM patients) AS e, (SELECT MAX(country) FROM regions) AS f
WITH t AS (SELECT COUNT(*) AS n FROM visits) SELECT region, COUNT(*) / (SELECT n FROM t) AS r, (SELECT COUNT(*) FROM codes) AS c FROM patients GROUP BY region
SELECT region, n FROM (SELECT region, COUNT(*) AS n FROM patients GROUP BY region) WHERE n > (SELECT COUNT(*) / 4 FROM visits)
SELECT n, COUNT(*) AS visits FROM (SELECT visit_id, COUNT(*) AS n FROM bills GROUP BY visit_id) GROUP BY n
SELECT code, AVG(t) AS a FROM visits v JOIN (SELECT visit_id, SUM(amount) AS t FROM bills GROUP BY 1) b ON b.visit_id = v.visit_id GROUP BY code
SELECT COUNT(*) AS n FROM (SELECT DISTINCT visit_id FROM bills)
SELECT COUNT(*) AS n FROM visits WHERE visit_id IN (SELECT visit_id FROM bills GROUP BY visit_id HAVING SUM(amount) > 2)
SELECT k, COUNT(*) AS n FROM (SELECT v.visit_id, COUNT(amount) AS k FROM visits v LEFT JOIN bills b USING (visit_id) GROUP BY v.visit_id) GROUP BY k
SELECT COUNT(*) AS n, COUNT(DISTINCT patient_id) AS u FROM (SELECT patient_id, v.visit_id, MAX(amount) AS m FROM visits v JOIN bills b USING (visit_id) GROUP BY ALL) WHERE m > 1
SELECT AVG(b) AS a FROM (SELECT patient_id, COUNT(*) AS b FROM (SELECT v.patient_id, v.visit_id, COUNT(*) AS k FROM visits v JOIN bills USING (visit_id) GROUP BY 1, 2) GROUP BY patient_id)
SELECT COUNT(*) AS n, COUNT(r) AS m FROM (SELECT DISTINCT region AS r FROM patients)
WITH c AS (SELECT DISTINCT code FROM visits) SELECT COUNT(*) AS n FROM c
SELECT SUM(age), SUM(age + 1) AS a, SUM(age - 1.5) AS b, SUM(2 * age + 1) AS c, AVG(age * 3) AS d, AVG(1 - age) AS e, SUM(age + 1) FILTER (WHERE smoker) AS f FROM patients
SELECT region, SUM(weight + 1) - SUM(weight) AS n, SUM(-weight) AS m FROM patients GROUP BY region HAVING SUM(weight + 2) > 100 ORDER BY SUM(weight * 0.1)
SELECT age + 1 AS a, age AS b, 3 - age AS c, 'x' AS d, COUNT(*) AS n FROM patients GROUP BY ALL
SELECT age - 1 AS k, GROUPING(age - 1) AS g, COUNT(*) AS n FROM patients GROUP BY ROLLUP (age - 1)
SELECT visit_id % 3 + 1 AS k, COUNT(*) AS n FROM visits GROUP BY k HAVING k > 1 ORDER BY k
SELECT 1 AS one, COUNT(*) AS n FROM patients GROUP BY one
SELECT COUNT(*) AS n FROM codes c, patients p, visits v WHERE v.code = c.code AND p.patient_id = v.patient_id AND p.age > 20
SELECT chapter, COUNT(*) AS n FROM codes c, regions r, bills b, patients p, visits v WHERE v.code = c.code AND r.region = p.region AND p.patient_id = v.patient_id AND b.visit_id = v.visit_id GROUP BY chapter
SELECT COUNT(*) AS n FROM visits v, codes c WHERE (v.code = c.code AND chapter = 'A' AND cost > 10) OR (chapter = 'B' AND v.code = c.code)
SELECT COUNT(*) AS n FROM visits v JOIN codes c ON (v.code = c.code AND chapter = 'A') OR (v.code = c.code AND cost > 10)
SELECT COUNT(*) AS n FROM patients WHERE (age > 20 AND smoker) OR (age > 20 AND region = 'north') OR age > 20 AND weight < 60
SELECT COUNT(*) AS n FROM patients WHERE (age > 20 AND smoker) OR age > 20
SELECT COUNT(*) AS n FROM (SELECT * FROM codes, regions, visits v, patients p WHERE v.code = codes.code AND p.region = regions.region AND p.patient_id = v.patient_id) WHERE code_1 = 'A1' AND country = 'X'
SELECT COUNT(*) AS n FROM patients p WHERE EXISTS (SELECT 1 FROM codes c, bills b, visits v WHERE v.patient_id = p.patient_id AND b.visit_id = v.visit_id AND c.code = v.code)
SELECT COUNT(*) AS n FROM (SELECT ROW_NUMBER() OVER (PARTITION BY patient_id ORDER BY visit_id) AS r FROM visits) WHERE r = 1
SELECT AVG(cost) AS m, COUNT(*) AS n FROM (SELECT * FROM visits QUALIFY ROW_NUMBER() OVER (PARTITION BY patient_id ORDER BY visit_id DESC) = 1)
SELECT code, COUNT(*) AS n FROM (SELECT code, ROW_NUMBER() OVER w AS place FROM visits WHERE cost IS NOT NULL WINDOW w AS (PARTITION BY patient_id ORDER BY seen DESC NULLS LAST) QUALIFY place <= 2) GROUP BY code
SELECT AVG(gap) AS g, COUNT(gap) AS n, MAX(gap) AS x FROM (SELECT DATE_DIFF('day', LAG(seen) OVER (PARTITION BY patient_id ORDER BY seen), seen) AS gap FROM visits)
SELECT SUM(d) AS s FROM (SELECT LAG(cost, 1, 5) OVER w AS d, LEAD(code, 2, 'x') OVER w AS e FROM visits WINDOW w AS (PARTITION BY patient_id ORDER BY visit_id)) WHERE e = 'x'
SELECT SUM(a) AS a, SUM(b) AS b, SUM(c) AS c, SUM(d) AS d FROM (SELECT COUNT(*) OVER (PARTITION BY patient_id) AS a, COUNT(cost) OVER (PARTITION BY patient_id ORDER BY code) AS b, RANK() OVER (PARTITION BY patient_id ORDER BY code) AS c, DENSE_RANK() OVER (PARTITION BY patient_id ORDER BY code DESC) AS d FROM visits)
SELECT SUM(a) AS a, SUM(b) AS b, SUM(c) AS c, COUNT(d) AS d, SUM(e) AS e FROM (SELECT SUM(cost) OVER w AS a, AVG(cost) OVER w AS b, MIN(cost) OVER (w ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING) AS c, SUM(cost) OVER (w ROWS BETWEEN 2 PRECEDING AND 1 PRECEDING) AS d, MAX(visit_id) OVER (w ROWS 1 PRECEDING) - visit_id AS e FROM visits WINDOW w AS (PARTITION BY patient_id ORDER BY visit_id))
SELECT SUM(a) AS a, COUNT(b) AS b, COUNT(c) AS c FROM (SELECT COUNT(DISTINCT code) OVER (PARTITION BY patient_id) AS a, FIRST_VALUE(cost) OVER (PARTITION BY patient_id ORDER BY visit_id DESC) AS b, LAST_VALUE(cost) OVER (PARTITION BY patient_id ORDER BY visit_id ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) AS c FROM visits)
SELECT SUM(s) AS s, COUNT(*) AS n FROM (SELECT SUM(cost) FILTER (WHERE code = 'A1') OVER (PARTITION BY patient_id, code) AS s FROM visits WHERE cost > 6)
SELECT COUNT(*) AS n, SUM(amount) AS s FROM (SELECT amount, ROW_NUMBER() OVER (PARTITION BY visit_id ORDER BY amount) AS r FROM bills) WHERE r = 1
SELECT region, COUNT(*) AS n FROM (SELECT p.region, v.cost, ROW_NUMBER() OVER (PARTITION BY p.patient_id ORDER BY v.visit_id) AS r FROM patients p JOIN visits v USING (patient_id)) WHERE r = 1 GROUP BY region
WITH t AS (SELECT patient_id, code, LAG(code) OVER (PARTITION BY patient_id ORDER BY visit_id) AS before FROM visits) SELECT code, COUNT(*) AS n FROM t WHERE before <> code GROUP BY code
WITH t AS (SELECT patient_id, code, COUNT(*) AS n FROM visits GROUP BY 1, 2) SELECT SUM(n) AS s, COUNT(*) AS k FROM (SELECT n, RANK() OVER (PARTITION BY patient_id ORDER BY n DESC) AS r FROM t) WHERE r = 1
SELECT COUNT(*) AS n, AVG(last) AS a FROM (SELECT patient_id, MAX(running) AS last FROM (SELECT patient_id, SUM(cost) OVER (PARTITION BY patient_id ORDER BY visit_id) AS running FROM visits) GROUP BY patient_id)
SELECT COUNT(*) AS n FROM visits v WHERE EXISTS (SELECT 1 FROM visits w WHERE w.patient_id = v.patient_id AND w.seen > v.seen AND CAST(w.seen AS DATE) <= CAST(v.seen AS DATE) + 30)
SELECT COUNT(*) AS n FROM visits v WHERE NOT EXISTS (SELECT 1 FROM visits w WHERE w.patient_id = v.patient_id AND w.cost > v.cost)
SELECT COUNT(*) AS n FROM visits v WHERE EXISTS (SELECT 1 FROM visits w WHERE w.patient_id = v.patient_id AND (w.cost > v.cost OR w.code < v.code)) OR cost > 40
SELECT COUNT(*) AS n FROM patients p WHERE NOT (smoker OR EXISTS (SELECT 1 FROM visits v WHERE v.patient_id = p.patient_id AND v.cost > p.age))
SELECT SUM(CASE WHEN EXISTS (SELECT 1 FROM visits w WHERE w.patient_id = p.patient_id AND w.cost > p.age) THEN age ELSE 1 END) AS s FROM patients p
SELECT COUNT(*) FILTER (WHERE code IN (SELECT code FROM codes WHERE chapter = 'A') OR cost > 40) AS n, SUM(CASE WHEN code NOT IN (SELECT code FROM codes) THEN cost END) AS s FROM visits
SELECT COUNT(*) AS n FROM patients WHERE region NOT IN (SELECT region FROM regions WHERE country = 'X') OR age IN (SELECT LENGTH(chapter) FROM codes)
SELECT COUNT(*) AS n FROM patients WHERE region NOT IN (SELECT chapter FROM codes)
SELECT COUNT(*) AS n FROM patients p WHERE (region IN (SELECT chapter FROM codes)) IS NULL
SELECT COUNT(*) AS n FROM visits v WHERE v.code NOT IN (SELECT w.code FROM visits w WHERE w.patient_id = v.patient_id AND w.visit_id <> v.visit_id)
SELECT AVG(LEAST((SELECT COUNT(*) FROM visits v WHERE v.patient_id = p.patient_id), 10)) AS a FROM patients p
SELECT COUNT(*) AS n FROM patients p WHERE (SELECT SUM(cost) FROM visits v WHERE v.patient_id = p.patient_id AND v.code <> 'Z9') > 30
SELECT COUNT(*) AS n, AVG(k) AS k FROM (SELECT p.age, (SELECT MAX(cost) - MIN(cost) FROM visits v WHERE v.patient_id = p.patient_id) AS k FROM patients p)
SELECT SUM(LEAST((SELECT COUNT(*) FROM visits w WHERE w.patient_id = v.patient_id AND w.visit_id < v.visit_id), 5)) AS s FROM visits v
SELECT COUNT(*) AS n FROM visits v WHERE cost = (SELECT MAX(cost) FROM visits w WHERE w.patient_id = v.patient_id)
SELECT COUNT(*) AS n FROM visits v WHERE cost > (SELECT AVG(w.cost) FROM visits w WHERE w.patient_id = v.patient_id) AND code <> 'Z9'
SELECT SUM((SELECT COUNT(*) FROM codes c WHERE c.code > v.code)) AS s FROM visits v
SELECT LEAST((SELECT COUNT(DISTINCT code) FROM visits v WHERE v.patient_id = p.patient_id), 2) AS codes, COUNT(*) AS n FROM patients p GROUP BY codes
SELECT EXISTS (SELECT 1 FROM visits v WHERE v.patient_id = p.patient_id) AS seen, COUNT(*) AS n FROM patients p GROUP BY seen
SELECT COUNT(*) AS n FROM survey s WHERE s.score > 3 OR EXISTS (SELECT 1 FROM codes c WHERE c.code >= s.code AND c.chapter = 'A')
SELECT COUNT(*) AS n FROM bills b WHERE (SELECT COUNT(*) FROM bills c WHERE c.visit_id = b.visit_id AND c.amount >= b.amount) = 1
SELECT region, COUNT(*) AS n FROM patients p LEFT JOIN (SELECT DISTINCT patient_id FROM visits) v ON v.patient_id = p.patient_id WHERE v.patient_id IS NULL GROUP BY region
SELECT COUNT(*) AS n, COUNT_IF(v.patient_id IS NOT NULL AND k.patient_id IS NULL) AS m FROM patients p LEFT JOIN visits v ON v.patient_id = p.patient_id LEFT JOIN (SELECT patient_id, COUNT(*) AS n FROM visits WHERE cost > 20 GROUP BY patient_id) k ON k.patient_id = p.patient_id
SELECT COUNT(*) AS n FROM (SELECT p.age, v.patient_id IS NULL AS alone FROM patients p LEFT JOIN (SELECT patient_id FROM visits GROUP BY patient_id HAVING COUNT(*) > 1) v USING (patient_id)) WHERE alone AND age > 5
SELECT ISODOW(born) AS d, ISODOW(born) - 1 AS e, COUNT(*) AS n FROM patients GROUP BY d ORDER BY d
SELECT 10 - age AS k, COUNT(*) AS n FROM patients GROUP BY 10 - age HAVING 10 - age < 0 ORDER BY 10 - age
SELECT COUNT(DISTINCT CASE WHEN cost > 10 THEN patient_id END) AS a, COUNT(DISTINCT CASE WHEN cost > 10 THEN patient_id ELSE NULL END) FILTER (WHERE code = 'A1') AS b, COUNT(DISTINCT IF(cost > 10, patient_id, NULL)) AS c FROM visits
SELECT COUNT(DISTINCT CASE WHEN age > 10 THEN patient_id ELSE 1 END) AS a, COUNT(DISTINCT CASE age WHEN 51 THEN patient_id END) AS b FROM patients
SELECT c.code, SUM(CASE WHEN v.code = c.code THEN 1 ELSE 0 END) AS here, COUNT(*) AS n FROM visits v CROSS JOIN codes c GROUP BY c.code
SELECT COUNT(*) AS n FROM visits, codes, regions WHERE chapter = 'A'
PIVOT (SELECT region, smoker, COUNT(*) AS n FROM patients GROUP BY ALL) ON region IN ('north', 'south') USING SUM(n) GROUP BY smoker
PIVOT (SELECT region, smoker, COUNT(*) AS n FROM patients GROUP BY ALL) ON region IN ('north', 'south') USING SUM(n)
PIVOT (SELECT region, COUNT(*) AS n FROM patients GROUP BY ALL) ON region IN ('north', 'south') USING SUM(n)
PIVOT patients ON region IN ('north') USING COUNT(*) GROUP BY smoker
PIVOT patients ON region IN ('north', 'south') USING COUNT(*) AS c, AVG(age) AS a GROUP BY smoker
FROM (PIVOT patients ON smoker IN (true, false) USING COUNT(*) GROUP BY region)
SELECT * FROM patients PIVOT (AVG(age) AS x FOR age IN (51, -1) GROUP BY smoker, region) AS t WHERE "51_x" > 0
WITH t AS (SELECT smoker, region FROM patients WHERE age > 10) SELECT * FROM t PIVOT (COUNT(*) FOR region IN ('north', 'south') GROUP BY smoker) ORDER BY north
SELECT smoker, region, COUNT(*) AS n FROM patients JOIN (SELECT region AS region__, SUM(age) AS s FROM patients WHERE age > 3 GROUP BY region ORDER BY s DESC LIMIT 1) AS series_limit ON region = region__ WHERE age > 1 GROUP BY smoker, region ORDER BY n DESC LIMIT 100
SELECT "v"."code" AS "code", SUM("v"."cost") AS "s" FROM "visits" "v" INNER JOIN (SELECT "w"."code" AS "code", COUNT(*) AS "x" FROM "visits" "w" GROUP BY 1 ORDER BY 2, 1 LIMIT 3) "t0" ON ("v"."code" IS NOT DISTINCT FROM "t0"."code") GROUP BY 1
SELECT COUNT(*) AS n FROM visits v JOIN (SELECT code, COUNT(*) AS x FROM visits GROUP BY code ORDER BY x, code LIMIT 3) t ON v.code = t.code GROUP BY v.code
SELECT COUNT(*) AS n FROM patients JOIN (SELECT region AS r, age // 10 AS a, COUNT(*) AS n FROM patients GROUP BY r, a ORDER BY n DESC, r, a LIMIT 2) AS s ON r = region AND a = age // 10 GROUP BY region, age // 10
SELECT CASE WHEN COUNT(*) > (SELECT COUNT(*) FROM patients) THEN 'more' ELSE 'fewer' END AS w, GREATEST(COUNT(*), (SELECT COUNT(*) FROM patients)) AS g FROM visits
""".strip().splitlines()


@pytest.fixture(scope="module")
def con():
    with database() as connection:
        yield connection


@pytest.mark.parametrize("sql", QUESTIONS)
def test_a_question_means_what_its_sql_means(con, sql):
    expected = con.execute(sql)
    names = [one[0] for one in expected.description]
    rows = expected.fetchall()
    found, exact = answer(con, sql)
    assert [name.lower() for name in found] == [name.lower() for name in names]
    assert same_rows(exact, rows), (exact, rows)


def test_the_interpreter_tells_rows_apart():
    assert same_rows([(1, "a"), (None, "b")], [(None, "b"), (1.0, "a")])
    assert not same_rows([(1, "a")], [(1, "b")])
    assert not same_rows([(1,)], [(1,), (1,)])
    assert not alike(None, 1)


EXPRESSIONS = """
age + 1; age - 1; 1 - age; age * 2; age / 7; age // 7; age % 7; -age; - age + 3; age ** 2; age ^ 2; -age ^ 2; 2 * (age + 1) - 3
ABS(age - 50); SIGN(age - 51); FLOOR(weight); CEIL(weight); CEILING(weight); ROUND(weight); ROUND(weight, 1); TRUNC(weight); MOD(age, 5)
LEAST(age, 50); GREATEST(age, weight); SQRT(weight); LN(weight); LOG(weight); LOG10(weight); LOG2(weight); LOG(2, weight); EXP(age / 100); POW(weight, 2)
age = 51; age <> 51; age != 51; age == 51; age < 51; age <= 51; age > 51; age >= 51; NOT age = 51; NOT smoker; smoker; smoker AND age > 30; smoker OR age > 30
smoker AND age > 30 OR weight > 80 AND NOT smoker; (smoker OR age > 30) AND weight > 60; age BETWEEN 10 AND 60; age NOT BETWEEN 10 AND 60; age IN (51, 7); age NOT IN (51, 7); age IN (51, NULL)
region IN ('north'); region = 'north'; region IS NULL; region IS NOT NULL; smoker IS TRUE; smoker IS NOT TRUE; smoker IS FALSE; smoker IS NOT FALSE; smoker IS NULL; region IS DISTINCT FROM 'north'; region IS NOT DISTINCT FROM NULL
age = 1.5; age > 33.5; weight = 70.5; age = '51'; born > '1980-01-01'; born = DATE '1990-02-03'; born BETWEEN '1970-01-01' AND '1980-01-01'; born < TIMESTAMP '1990-02-03 12:00:00'
CASE WHEN age > 50 THEN 'old' WHEN age > 20 THEN 'young' END; CASE region WHEN 'north' THEN 1 WHEN 'south' THEN 2 ELSE 3 END; IF(smoker, 1, 0); COALESCE(age, 0); IFNULL(age, -1); NULLIF(age, 51); COALESCE(region, 'none'); CASE WHEN smoker THEN 1 ELSE 0.5 END
LOWER(name); UPPER(region); LENGTH(name); TRIM(name); LTRIM(name); RTRIM(name); SUBSTRING(name, 2, 3); SUBSTR(name, 2); SUBSTRING(name FROM 1 FOR 2); LEFT(name, 2); RIGHT(name, 2); name || '!'; name || age; CONCAT(name, '-', region); CONCAT(region, age)
REPLACE(name, 'n', 'm'); STARTS_WITH(name, 'A'); PREFIX(name, 'A'); ENDS_WITH(name, 'e'); SUFFIX(name, 'e'); CONTAINS(name, 'e'); name LIKE 'A%'; name NOT LIKE 'A%'; name ILIKE 'a%'; name NOT ILIKE 'a%'; name LIKE '%!%' ESCAPE '!'; POSITION('e' IN name); STRPOS(name, 'e'); INSTR(name, 'n')
YEAR(born); QUARTER(born); MONTH(born); DAY(born); DAYOFWEEK(born); DAYOFYEAR(born); WEEK(born); EXTRACT(year FROM born); EXTRACT(dow FROM born); DATE_PART('month', born); DATE_TRUNC('month', born); DATE_TRUNC('week', born); WEEKDAY(born)
born + INTERVAL 1 MONTH; born - INTERVAL '13 months'; born + INTERVAL 2 YEAR; born - INTERVAL 1 QUARTER; born > DATE '1973-08-31' - INTERVAL 1 MONTH; born = DATE '1991-02-28' - INTERVAL '1' YEAR - INTERVAL 25 DAY; DATE_ADD(born, INTERVAL 1 MONTH)
weight // 7; age // 0.5; (patient_id + 1) // 2; patient_id * 3 // 2; -patient_id // 4; (patient_id + weight) // 2; 7 // (patient_id + 1); CASE WHEN smoker THEN patient_id + 1 END // 2; COALESCE(patient_id + age, 7) // 3; LEAST(patient_id * 2, 9.5) // 2; CASE WHEN smoker THEN patient_id + 1 ELSE NULL END || 'x'; (patient_id + 1) || ''; (patient_id + age) % 4 // 2; patient_id // 4 * 4; CAST(weight AS BIGINT) // 7; FLOOR(weight) // 2; (age + 1) // 2; 7.5 // 2 + age; SPLIT_PART(name, 'e', 1); SPLIT_PART(name, ' ', -1); SPLIT_PART(name, 'n', 9); LPAD(name, 5, '*'); RPAD(region, 3, 'xy'); REVERSE(region); REPEAT(region, 2); STRLEN(name); LPAD(CAST(age AS VARCHAR), 3, '0')
REGEXP_MATCHES(name, '^[A-Z]'); REGEXP_MATCHES(name, 'ANN', 'i'); name ~ 'e+'; name !~ 'e+'; NOT name ~ 'n{2}'; region SIMILAR TO 'n.*'; region NOT SIMILAR TO 'n.*'; REGEXP_FULL_MATCH(region, 'no'); REGEXP_EXTRACT(name, '[a-z]+'); REGEXP_EXTRACT(name, '(\\w)(\\w)', 2); REGEXP_REPLACE(name, '[aeiou]', '<\\0>'); REGEXP_REPLACE(name, '[aeiou]', '', 'g'); REGEXP_EXTRACT(name, 'zz')
STRFTIME(born, '%Y-%m'); STRFTIME('%d.%m.%y', born); STRFTIME(born, '%A %-d %B'); STRFTIME(born, '%G-W%V-%u'); EPOCH(born); EPOCH_MS(born); EXTRACT(epoch FROM born); DATE_PART('epoch', born)
LAST_DAY(born); ISODOW(born); EXTRACT(isodow FROM born); DATE_PART('isodow', born); DAYNAME(born); MONTHNAME(born)
born + 3; born - 3; 3 + born; born + INTERVAL 3 DAY; born - INTERVAL '2 weeks'; born + INTERVAL (age) DAY; DATE_ADD(born, INTERVAL 1 DAY); born - DATE '1970-01-01'; DATE_DIFF('day', DATE '1970-01-01', born); DATEDIFF('month', born, DATE '2020-01-01'); DATE_DIFF('year', born, DATE '2020-01-01'); MAKE_DATE(2020, 1, age % 28 + 1)
CAST(weight AS INTEGER); weight::BIGINT; CAST(age AS DOUBLE); CAST(age AS VARCHAR); TRY_CAST(name AS INTEGER); CAST(smoker AS INTEGER); CAST(born AS TIMESTAMP); CAST('1990-02-03' AS DATE) = born; CAST(weight AS DECIMAL(10, 1)); weight::DECIMAL; CAST(age AS BOOLEAN); CAST(CAST(age AS VARCHAR) AS INT)
FLOOR(age / 10) * 10; FLOOR(weight / 2.5) * 2.5; age - age % 10; 1e2 + age; .5 * age; 1_000 + age; TRUE; NULL IS NULL; (age > 3) = smoker; age IS NULL = smoker; FLOOR(weight) || 'x'; CAST(ROUND(weight) AS VARCHAR); (age + 1) || ''; (age IS NULL) = (smoker IS NULL); NOT (age > 3 AND smoker)
"""  # fmt: skip


@pytest.mark.parametrize("line", [line for line in EXPRESSIONS.strip().splitlines()])  # noqa: C416
def test_an_expression_means_what_its_sql_means(con, line):
    rows = rows_of_table(TABLES["patients"])
    for text in map(str.strip, line.split("; ")):
        select = sqlglot.parse_one(f"SELECT {text} FROM patients", dialect="duckdb")
        read = SelectReader(rows).reading.read(select.expressions[0])
        ours = sql_of(read, rows.schema, "patients")
        pairs = con.execute(f"SELECT {ours}, {text} FROM patients").fetchall()
        assert all(alike(one, other) for one, other in pairs), (text, ours, pairs)


@pytest.mark.parametrize(
    "text", [f"born + INTERVAL '{n} months'" for n in (-13, -1, 1, 2, 11, 14)]
    + ["LAST_DAY(born)", "ISODOW(born)", "DAYNAME(born)", "MONTHNAME(born)", "born - INTERVAL 1 YEAR"]
    + [f"EXTRACT(year FROM AGE(DATE '{day}', born))" for day in ("2019-02-28", "2020-02-29", "2024-12-31", "2016-02-29")]
    + ["DATE_PART('year', (AGE(born, DATE '2016-02-29')))"],
)  # fmt: skip
def test_calendar_arithmetic_is_that_of_duckdb_on_every_day_of_three_years(con, text):
    rows = rows_of_table(TABLES["patients"])
    select = sqlglot.parse_one(f"SELECT {text}", dialect="duckdb")
    ours = sql_of(SelectReader(rows).reading.read(select.expressions[0]), rows.schema, "t")
    days = "(SELECT DATE '2018-12-25' + i::INT AS born FROM range(1100) AS r(i))"
    pairs = con.execute(f"SELECT {ours}, {text} FROM {days} t").fetchall()
    assert all(alike(one, other) for one, other in pairs)


@pytest.mark.parametrize(
    "text",
    [
        *(f"DATE_TRUNC('{unit}', seen)" for unit in ("second", "minute", "hour", "day")),
        *(f"DATE_DIFF('{unit}', TIMESTAMP '1970-01-01 12:00:30', seen)" for unit in ("second", "minute", "hour")),
        *(f"seen - TIMESTAMP '1970-01-01 12:00:30' {sign} INTERVAL {span}" for sign, span in (
            (">", "7 DAY"), ("<=", "'-12' HOUR"), ("=", "'1' WEEK"), ("<>", "90 MINUTE"), (">=", "'-3 seconds'"),
        )),
        "INTERVAL '36 hours' > (DATE '1970-01-02' - seen)", "EXTRACT(day FROM seen - TIMESTAMP '1970-01-01 12:00:30')",
        "SECOND(seen)", "EXTRACT(second FROM seen)", "EPOCH(seen)", "EPOCH_MS(seen)", "STRFTIME(seen, '%H:%M:%S %I %p %j')",
    ],
)  # fmt: skip
def test_times_of_day_are_those_of_duckdb_around_1970(con, text):
    rows = rows_of_table(TABLES["visits"])
    select = sqlglot.parse_one(f"SELECT {text}", dialect="duckdb")
    ours = sql_of(SelectReader(rows).reading.read(select.expressions[0]), rows.schema, "t")
    times = "(SELECT TIMESTAMP '1969-12-30 12:34:56.789' + i::INT * INTERVAL '1234567 milliseconds' AS seen FROM range(300) AS r(i))"
    pairs = con.execute(f"SELECT {ours}, {text} FROM {times} t").fetchall()
    assert all(alike(one, other) for one, other in pairs)


def test_width_bucket_counts_from_one_and_keeps_the_ends_apart(con):
    sql = "SELECT WIDTH_BUCKET(age, 10, 60, 5) AS b, COUNT(*) AS n FROM patients GROUP BY b"
    _, rows = answer(con, sql)
    assert sorted(rows, key=str) == [(0, 1), (3, 1), (5, 2), (6, 1), (None, 1)]


def test_to_char_writes_what_strftime_does(con):
    for form, ours in (("YYYY-MM", "%Y-%m"), ("DD.MM.YYYY HH24:MI:SS", "%d.%m.%Y %H:%M:%S")):
        sql = "SELECT COUNT(*) AS n, MAX(LENGTH({})) AS l FROM visits WHERE {} >= '2'"
        said, written = f"TO_CHAR(seen, '{form}')", f"STRFTIME(seen, '{ours}')"
        found = read(sql.format(said, said), TABLES).blocks
        assert found == read(sql.format(written, written), TABLES).blocks
