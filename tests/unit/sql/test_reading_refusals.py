"""What has no meaning here is refused in words that help."""

from dataclasses import replace

import pytest
from reading_oracle import TABLES

from noisegate.errors import UserError
from noisegate.privacy.domain import Column, Kind
from noisegate.sql.reading.reader import read
from refusals import about, listed

ROWS_LEAVE = "rows"
INSIDE = "function|clause"
REFUSED = {
    "SELECT SPLIT_PART(name) AS c, COUNT(*) FROM patients GROUP BY c": "argument",
    "SELECT COUNT(DATE_TRUNC('year', DATE '0001-01-01') - INTERVAL 1 YEAR) FROM patients": "years 9999",
    "SELECT COUNT(*) FROM codes c WHERE NOT EXISTS (SELECT 1 FROM visits v WHERE v.code = c.code)": "match",
    "SELECT code FROM codes EXCEPT SELECT code FROM visits": "match",
    "SELECT COUNT(*) FROM (SELECT code FROM visits INTERSECT SELECT name FROM patients)": "units",
    "SELECT COUNT(*) FROM (SELECT patient_id FROM visits INTERSECT ALL SELECT patient_id FROM patients)": "function INTERSECT",
    "SELECT c.chapter, COUNT(*) FROM codes c LEFT JOIN visits v ON v.code = c.code GROUP BY c.chapter": "outer-join",
    "SELECT c.chapter, COUNT(v.cost) FROM codes c LEFT JOIN visits v ON v.code = c.code WHERE v.code IS NULL GROUP BY c.chapter": "outer-join",
    "SELECT COUNT(v.cost IS NULL) FROM codes c LEFT JOIN visits v ON v.code = c.code": "outer-join",
    "SELECT COUNT(*) FROM visits JOIN (VALUES ('A1'), ('B2')) x(code) USING (code)": "values",
    "SELECT COUNT(*) FROM (SELECT NTILE(0) OVER (PARTITION BY patient_id ORDER BY cost) AS t FROM visits)": "ntile",
    "": "statements",
    "SELECT": "select-list",
    "SELEC COUNT(*) FROM patients": "syntax",
    "SELECT COUNT(*) FROM patients; SELECT 1": "statements",
    "DROP TABLE patients": "select SELECT",
    "INSERT INTO patients VALUES (1)": "select SELECT",
    "PRAGMA version": "select SELECT",
    "DESCRIBE patients": "select SELECT",
    "EXPLAIN ANALYZE SELECT 1": "explain EXPLAIN ANALYZE",
    "SELECT * FROM patients": ROWS_LEAVE,
    "FROM patients": ROWS_LEAVE,
    "TABLE patients": ROWS_LEAVE,
    "SELECT age FROM patients": ROWS_LEAVE,
    "SELECT 1 FROM patients": ROWS_LEAVE,
    "SELECT patient_id, COUNT(*) FROM visits GROUP BY patient_id": ROWS_LEAVE,
    "SELECT DISTINCT patient_id FROM patients": ROWS_LEAVE,
    "SELECT (SELECT age FROM patients)": ROWS_LEAVE,
    "SELECT region FROM regions WHERE region IN (SELECT region FROM patients)": "match",
    "SELECT age, COUNT(*) FROM patients GROUP BY region": ROWS_LEAVE,
    "SELECT age, COUNT(*) FROM patients": ROWS_LEAVE,
    "SELECT *, COUNT(*) FROM patients": ROWS_LEAVE,
    "SELECT COUNT(*) FROM patients ORDER BY age": ROWS_LEAVE,
    "SELECT COUNT(*) FROM (SELECT * FROM patients LIMIT 10)": INSIDE,
    "SELECT COUNT(*) FROM (SELECT * FROM patients ORDER BY age)": INSIDE,
    "SELECT COUNT(*) FROM (SELECT * FROM patients OFFSET 3)": INSIDE,
    "SELECT COUNT(*) FROM (SELECT age FROM patients QUALIFY 1 = 1)": "qualify QUALIFY",
    "SELECT COUNT(*) FROM (SELECT RANK() OVER (ORDER BY age) AS r FROM patients) WHERE r = 1": "units PARTITION.*patient_id",
    "SELECT COUNT(*) FROM (SELECT RANK() OVER (PARTITION BY region ORDER BY age) AS r FROM patients) WHERE r = 1": "units",
    "SELECT COUNT(*) FROM (SELECT score - LAG(score) OVER (PARTITION BY code ORDER BY score) AS d FROM survey) WHERE d > 1": "units",
    "SELECT COUNT(*) FROM (SELECT age FROM patients QUALIFY ROW_NUMBER() OVER (ORDER BY age) <= 10)": "units",
    "SELECT COUNT(*) FROM (SELECT cost FROM visits QUALIFY ROW_NUMBER() OVER (PARTITION BY code ORDER BY seen) = 1)": "units",
    "SELECT COUNT(*) FROM (SELECT LAST_VALUE(cost) OVER (PARTITION BY patient_id ORDER BY seen) AS x FROM visits) WHERE x > 3": "frame UNBOUNDED.*FOLLOWING",
    "SELECT COUNT(*) FROM (SELECT LAG(cost IGNORE NULLS) OVER (PARTITION BY patient_id ORDER BY seen) AS x FROM visits) WHERE x > 3": "function IGNORE NULLS",
    "SELECT COUNT(*) FROM (SELECT LAG(visit_id, 1, 0.5) OVER (PARTITION BY patient_id ORDER BY seen) AS x FROM visits) WHERE x > 3": "default",
    "SELECT COUNT(*) FROM (SELECT SUM(cost) OVER (PARTITION BY patient_id ORDER BY visit_id RANGE BETWEEN 3 PRECEDING AND CURRENT ROW) AS x FROM visits) WHERE x > 3": "frame ROWS BETWEEN",
    "SELECT COUNT(*) FROM (SELECT MEDIAN(cost) OVER (PARTITION BY patient_id) AS x FROM visits) WHERE x > 3": "fold",
    "SELECT COUNT(*) FROM visits WHERE ROW_NUMBER() OVER (PARTITION BY patient_id) = 1": "window SELECT.*QUALIFY",
    "SELECT COUNT(*) FROM (SELECT patient_id, ROW_NUMBER() OVER (PARTITION BY patient_id) AS r, COUNT(*) AS n FROM visits GROUP BY patient_id) WHERE r = 1": "window GROUP",
    "SELECT COUNT(*) FROM (SELECT DISTINCT ON (region) * FROM patients)": INSIDE,
    "SELECT COUNT(*) FROM patients TABLESAMPLE 10%": "function",
    "SELECT COUNT(*) FROM patients USING SAMPLE 3": "function SAMPLE",
    "SELECT COUNT(*) OVER () FROM patients": "units",
    "SELECT COUNT(*) FROM other": "table 'other'",
    "SELECT COUNT(*) FROM x.patients": "schema",
    "SELECT COUNT(*) FROM 'x.csv'": "table",
    "SELECT COUNT(*) FROM read_csv('x')": "function",
    "SELECT COUNT(*) FROM glob('*')": "function GLOB",
    "SELECT COUNT(*) FROM duckdb_tables()": "function DUCKDB_TABLES",
    "SELECT COUNT(*) FROM pat\N{LATIN SMALL LETTER DOTLESS I}ents": "table",
    "SELECT COUNT(*) FROM \N{CYRILLIC SMALL LETTER ER}atients": "table",
    "SELECT COUNT(*) FROM patients WHERE \N{CYRILLIC SMALL LETTER A}ge > 3": "column",
    "SELECT COUNT(*) FROM patients WHERE smo\N{KELVIN SIGN}er": "column",
    "SELECT COUNT(*) FROM patients WHERE nope = 1": "column 'nope'",
    "SELECT COUNT(*) FROM patients WHERE rowid < 3": "column 'rowid'",
    "SELECT COUNT(*) FROM visits WHERE patient_id = 3": "unit",
    "SELECT COUNT(*) FROM patients p JOIN patients q USING (patient_id) WHERE age > 3": "ambiguous",
    "SELECT COUNT(*) FROM patients WHERE age": "boolean",
    "SELECT COUNT(*) FROM patients WHERE region = 3": "types",
    "SELECT COUNT(*) FROM patients WHERE age = 'old'": "literal 'old'",
    "SELECT COUNT(*) FROM patients WHERE REGEXP_MATCHES(name, '(a')": "pattern",
    "SELECT COUNT(*) FROM patients WHERE REGEXP_MATCHES(name, region)": "argument",
    "SELECT COUNT(*) FROM patients WHERE name ~ 'a' || region": "argument",
    "SELECT COUNT(*) FROM patients WHERE REGEXP_EXTRACT(name, 'a', 1) = 'b'": "pattern group 1",
    "SELECT COUNT(*) FROM patients WHERE REGEXP_REPLACE(name, 'a', '\\1') = 'b'": "pattern",
    "SELECT COUNT(*) FROM patients WHERE REGEXP_MATCHES(name, 'a', 'x')": "options",
    "SELECT COUNT(*) FROM patients WHERE name // 2 = 3": "types",
    "SELECT COUNT(*) FROM patients WHERE STRFTIME(born, '%c') = 'b'": "format STRFTIME",
    "SELECT COUNT(*) FROM patients WHERE STRFTIME(born, name) = 'b'": "argument STRFTIME",
    "SELECT COUNT(*) FROM patients WHERE LPAD(name, 5, '') = 'b'": "length",
    "SELECT COUNT(*) FROM patients WHERE REPEAT(name, 1000) = 'b'": "length REPEAT",
    "SELECT COUNT(*) FROM patients WHERE TO_CHAR(born, 'Month') = 'May'": "function STRFTIME",
    "SELECT COUNT(*) FROM patients WHERE TO_CHAR(age, '999') = '1'": "function STRFTIME",
    "SELECT COUNT(*) FROM patients WHERE TO_CHAR(age, 'YYYY') = '1'": "argument",
    "SELECT COUNT(*) FROM patients WHERE DATE_TRUNC('minute', born) = born": "unit",
    "SELECT COUNT(*) FROM patients WHERE name GLOB 'a*'": "function GLOB.*LIKE",
    "SELECT COUNT(*) FROM patients WHERE RANDOM() < 0.5": "function",
    "SELECT COUNT(*) FROM patients WHERE born < CURRENT_DATE": "function",
    "SELECT COUNT(*) FROM patients WHERE born < NOW()": "function",
    "SELECT COUNT(*) FROM patients WHERE name = GETENV('HOME')": "function",
    "SELECT COUNT(*) FROM patients WHERE NEXTVAL('s') > 1": "function",
    "SELECT COUNT(*) FROM patients WHERE LOWWER(name) = 'a'": "function LOWER",
    "SELECT COUNT(*) FROM patients WHERE age > (SELECT AVG(age) FROM patients)": "sub-query",
    "SELECT p.region, (SELECT COUNT(*) FROM patients q WHERE q.region = p.region) FROM patients p GROUP BY 1": "scope",
    "SELECT visit_id, COUNT(*) FROM bills GROUP BY visit_id": "rows visit_id",
    "SELECT DISTINCT visit_id FROM visits": "rows visit_id",
    "SELECT COUNT(*) FROM (SELECT b.visit_id, COUNT(*) FROM visits v LEFT JOIN bills b USING (visit_id) GROUP BY 1)": "unmatched",
    "SELECT COUNT(*) FROM patients WHERE smoker OR EXISTS (SELECT 1 FROM visits)": "unit patient_id",
    "SELECT COUNT(*) FROM patients p WHERE smoker OR EXISTS (SELECT 1 FROM visits v WHERE v.cost > p.age)": "unit patient_id",
    "SELECT COUNT(*) FROM patients p WHERE (SELECT COUNT(*) FROM visits v WHERE v.cost > p.age) > 3": "unit patient_id",
    "SELECT COUNT(*) FROM patients p WHERE (SELECT cost FROM visits v WHERE v.patient_id = p.patient_id) > 3": "scalar",
    "SELECT COUNT(*) FROM survey s WHERE s.score > 3 OR EXISTS (SELECT 1 FROM visits v WHERE v.code = s.code)": "unit",
    "SELECT COUNT(*) FROM patients p WHERE smoker OR EXISTS (SELECT 1 FROM doctors d WHERE d.doctor_id = p.patient_id)": "id-space",
    "SELECT COUNT(*) FROM patients p WHERE (SELECT COUNT(*) FROM doctors d WHERE d.doctor_id = p.patient_id) > 1": "id-space",
    "SELECT COUNT(*) FROM patients WHERE COUNT(*) > 3": "aggregate",
    "SELECT COUNT(*) FROM patients WHERE age < 3 = smoker": "nested",
    "SELECT COUNT(*) FROM patients WHERE age = '5/1'": "literal",
    "SELECT COUNT(*) FROM patients WHERE born + INTERVAL 1 HOUR > '2020-01-01'": "interval INTERVAL",
    "SELECT COUNT(*) FROM visits WHERE seen + INTERVAL 1 MONTH > '2020-01-01'": "timestamp CAST.*DATE",
    "SELECT COUNT(*) FROM patients WHERE born > DATE '9999-12-01' + INTERVAL 1 MONTH": "years",
    "SELECT COUNT(*) FROM patients WHERE CAST(age AS BLOB) = 'a'": "function CAST AS",
    "SELECT COUNT(*) FROM patients WHERE age = ?": "function PLACEHOLDER",
    "SELECT SUM(SUM(age)) FROM patients": "aggregate",
    "SELECT SUM(region) FROM patients": "type SUM",
    "SELECT MAX(region) FROM patients": "type MAX",
    "SELECT SUM(DISTINCT age) FROM patients": "distinct DISTINCT",
    "SELECT COUNT(DISTINCT (age, region)) FROM patients": "function",
    "SELECT COUNT(DISTINCT age, region) FROM patients": "distinct",
    "SELECT STRING_AGG(name, ',') FROM patients": "function",
    "SELECT LIST(name) FROM patients": "function",
    "SELECT ANY_VALUE(name) FROM patients": "function",
    "SELECT FIRST(name) FROM patients": "function",
    "SELECT BOOL_OR(smoker) FROM patients": "function",
    "SELECT ARG_MAX(name, age) FROM patients": "function",
    "SELECT MIN(age, 3) FROM patients": "clause COUNT",
    "SELECT SUM(age ORDER BY weight) FROM patients": INSIDE,
    "SELECT QUANTILE_CONT(age, 1.5) FROM patients": "level",
    "SELECT weight, COUNT(*) FROM patients GROUP BY weight": "groups",
    "SELECT seen, COUNT(*) FROM visits GROUP BY seen": "groups DATE_TRUNC",
    "SELECT region, COUNT(*) FROM patients GROUP BY 3": "position",
    "SELECT COUNT(*) FROM patients GROUP BY GROUPING SETS ((region), (region))": "grouping-set",
    "SELECT COUNT(*) FROM patients GROUP BY ROLLUP (patient_id, region)": "grouping-set",
    "SELECT COUNT(*) AS n, SUM(age) AS N FROM patients": "name",
    "SELECT SUM(age) AS age FROM patients HAVING age > 3": "name",
    "SELECT COUNT(*) FROM patients FULL JOIN visits USING (patient_id)": "function FULL JOIN",
    "SELECT COUNT(*) FROM patients NATURAL JOIN visits": "function NATURAL JOIN.*USING",
    "SELECT COUNT(*) FROM patients ASOF JOIN visits ON patients.age >= visits.cost": "function ASOF JOIN",
    "SELECT COUNT(*) FROM patients POSITIONAL JOIN visits": "function POSITIONAL JOIN",
    "SELECT COUNT(*) FROM patients p JOIN visits v ON p.age = v.visit_id": "unit patient_id",
    "SELECT COUNT(*) FROM patients, visits": "unit patient_id",
    "SELECT COUNT(*) FROM patients p JOIN visits v ON p.patient_id < v.visit_id": "unit patient_id",
    "SELECT COUNT(*) FROM codes LEFT JOIN visits USING (code)": "outer-join",
    "SELECT COUNT(*) FROM visits RIGHT JOIN codes USING (code)": "outer-join",
    # with JOIN instead, groups without rows would be left out
    "SELECT c.code, COUNT(v.cost) AS n FROM codes c LEFT JOIN visits v ON v.code = c.code AND c.chapter = 'A' GROUP BY c.code": "join",
    "SELECT c.code, COUNT(v.cost) AS n FROM codes c LEFT JOIN visits v ON v.code = c.code AND v.code = 'A1' GROUP BY c.code": "outer-join",
    "SELECT c.code, COUNT(v.cost) AS n FROM codes c LEFT JOIN (SELECT * FROM visits WHERE code = 'A1') v ON v.code = c.code GROUP BY c.code": "outer-join",
    "SELECT c.code, COUNT(p.age) AS n FROM codes c LEFT JOIN patients p ON p.age = LENGTH(c.code) GROUP BY c.code": "outer-join",
    "SELECT COUNT(*) FROM visits v LEFT JOIN codes c ON v.code = c.code AND v.cost > 3": "join",
    "SELECT COUNT(*) FROM patients p LEFT JOIN visits v USING (patient_id) JOIN notes n ON v.patient_id = n.pid": "unit",
    "SELECT COUNT(*) FROM survey a JOIN survey b USING (code)": "unit",
    "SELECT COUNT(*) FROM survey JOIN regions ON code = region AND country = 'X' JOIN codes ON chapter = country": "key",
    "SELECT COUNT(*) FROM survey s JOIN codes c ON s.code = c.chapter": "key",
    "SELECT COUNT(*) FROM patients p JOIN doctors d ON p.patient_id = d.doctor_id": "id-space",
    "SELECT COUNT(*) FROM patients, patients": "name",
    "SELECT COUNT(*) FROM visits v(a, b) WHERE b > 3": "renamed",
    "SELECT COUNT(*) FROM (patients JOIN visits USING (patient_id))": "join",
    "SELECT COUNT(*) FROM patients, LATERAL (SELECT 1) l": "values",
    "SELECT COUNT(*) FROM patients, UNNEST([1, 2]) u": "values",
    "SELECT COUNT(*) FROM patients PIVOT (SUM(age) FOR region IN ('north'))": "pivot PIVOT",
    "SELECT COUNT(*) FROM (SELECT age FROM patients UNION SELECT cost FROM visits)": "units",
    "SELECT COUNT(*) FROM (SELECT age FROM patients EXCEPT SELECT cost FROM visits)": "units",
    "SELECT COUNT(*) FROM (SELECT age FROM patients UNION ALL BY NAME SELECT cost FROM visits)": "clause BY NAME",
    "SELECT COUNT(*) FROM (SELECT region FROM patients UNION ALL SELECT cost FROM visits)": "type",
    "SELECT COUNT(*) FROM (SELECT region FROM patients UNION ALL SELECT region FROM regions)": "union",
    "SELECT COUNT(*) FROM patients JOIN (SELECT region, COUNT(*) AS n FROM patients GROUP BY region) USING (region)": "released",
    "SELECT smoker, COUNT(*) FROM patients JOIN (SELECT region AS r, COUNT(*) AS n FROM patients GROUP BY r ORDER BY n LIMIT 1) s ON r = region GROUP BY smoker": "released",
    "SELECT region, n, COUNT(*) FROM patients JOIN (SELECT region AS r, COUNT(*) AS n FROM patients GROUP BY r ORDER BY n LIMIT 1) s ON r = region GROUP BY region, n": "released",
    "SELECT region, COUNT(*) FROM patients LEFT JOIN (SELECT region AS r, COUNT(*) AS n FROM patients GROUP BY r ORDER BY n LIMIT 1) s ON r = region GROUP BY region": "released",
    "SELECT region, COUNT(*) FROM patients JOIN (SELECT region AS r, COUNT(*) AS n FROM patients GROUP BY r ORDER BY n LIMIT 1) s ON r > region GROUP BY region": "released",
    "SELECT c.code, COUNT(*) FROM codes c JOIN (SELECT code AS y, COUNT(*) AS n FROM visits GROUP BY y ORDER BY n LIMIT 1) s ON c.code = y RIGHT JOIN visits v ON v.code = c.code GROUP BY c.code": "released",
    "SELECT region, COUNT(*) FROM patients JOIN (SELECT region AS r, COUNT(*) AS n FROM patients GROUP BY r, smoker ORDER BY n LIMIT 1) s ON r = region GROUP BY region": "released",
    "SELECT COUNT(*) FROM patients JOIN (SELECT country, COUNT(*) AS n FROM regions GROUP BY 1) c ON c.country = region": "public-aggregate",
    "SELECT COUNT(*) FROM patients WHERE (region, name) NOT IN (SELECT region, country FROM regions)": "null EXISTS",
    "SELECT COUNT(*) FROM patients WHERE age IN (SELECT visit_id FROM visits)": "unit patient_id",
    "SELECT COUNT(*) FROM patients p WHERE EXISTS (SELECT 1 FROM visits v WHERE v.visit_id > p.age)": "unit patient_id",
    "SELECT COUNT(*) FROM patients p WHERE EXISTS (SELECT 1 FROM visits)": "unit patient_id",
    "SELECT COUNT(*) FROM patients p WHERE EXISTS (SELECT 1 FROM codes)": "uncorrelated",
    "SELECT COUNT(*) FROM survey WHERE code IN (SELECT code FROM visits)": "unit",
    "SELECT COUNT(*) FROM (SELECT patient_id, MEDIAN(cost) AS m FROM visits GROUP BY 1)": "fold",
    "SELECT COUNT(*) FROM (SELECT patient_id, cost FROM visits GROUP BY patient_id)": "rows",
    "SELECT COUNT(*) FROM (SELECT patient_id, COUNT(*) n FROM visits GROUP BY 1) WHERE patient_id > 3": "unit",
    "SELECT COUNT(*) FROM noisegate_0": "name",
    "WITH noisegate_0 AS (SELECT 1) SELECT COUNT(*) FROM patients": "name",
    "WITH a AS (SELECT 1), A AS (SELECT 2) SELECT COUNT(*) FROM patients": "name",
    "SELECT 0x1f, COUNT(*) FROM patients": "number",
    "SELECT COUNT(*) FROM patients FOR UPDATE": "clause LOCKS",
    "SELECT COUNT(*) FROM patients WHERE " + "(" * 300 + "smoker" + ")" * 300: "syntax",
    "SELECT COUNT(*) FROM patients WHERE " + " OR ".join(["smoker"] * 300): "depth",
    "SELECT COUNT(*) FROM patients WHERE name = '" + "x" * 20_000 + "'": "text",
}  # fmt: skip


@pytest.mark.parametrize("sql", REFUSED, ids=lambda sql: sql[:80])
def test_what_cannot_be_asked_is_refused_with_a_next_step(sql):
    with pytest.raises(UserError, check=listed(REFUSED[sql])) as refusal:
        read(sql, TABLES)
    assert refusal.value.fix
    assert refusal.value.__cause__ is None


@pytest.mark.parametrize("sql", ["SELECT DISTINCT FALSE FROM patients", "SELECT 1 AS a FROM patients GROUP BY a"])  # fmt: skip
def test_whether_there_is_any_row_is_no_question(sql):
    with pytest.raises(UserError, check=about("constants")):
        read(sql, TABLES, lines=True)


def test_tables_of_tables_do_not_grow_without_end():
    doubling = ["a0 AS (SELECT patient_id, age FROM patients)"]
    doubling += [
        f"a{i} AS (SELECT l.patient_id, l.age FROM a{i - 1} l JOIN a{i - 1} r USING (patient_id))"
        for i in range(1, 40)
    ]
    with pytest.raises(UserError, check=about("steps")):
        read(f"WITH {', '.join(doubling)} SELECT COUNT(*) FROM a39", TABLES)


@pytest.mark.parametrize("tail", ["COUNT(*) FROM patients", "1 FROM patients"])
def test_names_of_items_do_not_grow_without_end(tail):
    doubling = ["age AS a0", *(f"a{i - 1} + a{i - 1} AS a{i}" for i in range(1, 40))]
    sql = f"SELECT {', '.join(doubling)}, {tail}"
    with pytest.raises(UserError, check=about("aliases")):
        read(sql + " GROUP BY ALL" if "COUNT" in tail else sql, TABLES)


@pytest.mark.parametrize("sql", [None, 3, b"SELECT 1"])
def test_what_is_no_text_is_refused(sql):
    with pytest.raises(UserError, check=about("text")):
        read(sql, TABLES)


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("SELECT COUNT(*) FROM patients\nWHERE age > 3 AND\n  agee < 4", "column 3,.*'agee'.*'age'"),
        ("SELECT '\N{ROCKET}é', SUM(b) FROM patients", "column Line 1, column 18.*'b'"),
        ("SELECT COUNT(*) FROM patint", "table Line 1, column 22.*'patint'.*'patients'"),
        ("EXPLAIN SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1) COUNT(*) FROM y", "table Line 1, column 75.*'y'"),
        ("SELECT COUNT(*) FROM patients WHERE age > 3 OR (region = 'x' AND LOWER(age) = 'b')", "argument Line 1, column 66.*LOWER"),
        ("SELECT SUM(age), SUM(name) FROM patients", "type Line 1, column 18.*SUM"),
        ("SELECT region, age FROM patients GROUP BY region", "rows Line 1, column 16.*'age'"),
        ("SELECT weight, COUNT(*) FROM patients GROUP BY weight", "groups Line 1, column 48"),
        ("SELECT COUNT(*) FROM (SELECT * FROM patients LIMIT 3)", "function Line 1, column 52.*LIMIT"),
        ("SELECT COUNT(*) FROM visits v JOIN doctors d ON v.cost = d.doctor_id", "id-space Line 1, column 36"),
        ("SELECT COUNT(*) FROM patients p JOIN visits v USING (patientid)", "column 'patient_id'"),
        ("SELECT COUNT(*) FROM patients WHERE DATE_FORMAT(born, '%Y') = '3'", "function Line 1, column 37.*STRFTIME"),
        ("SELECT COUNT(*) FROM patients WHERE TO_CHAR(born, 'Day') = '3'", "function STRFTIME"),
        ("SELECT STRING_AGG(name, ',') FROM patients", "function"),
        ("SELECT ANY_VALUE(name) FROM patients", "function Line 1, column"),
        ("SELECT MODE(region) FROM patients", "function MODE .* GROUP BY x ORDER BY n DESC"),
        ("SELECT BOOL_AND(smoker) FROM patients", "function BOOL_AND .* COUNT_IF"),
        ("SELECT COUNT(*) FROM patients WHERE SIN(age) > 0", "function SIN"),
        ("SELECT secret FROM patients", "column 'secret'"),
    ],
)  # fmt: skip
def test_a_refusal_points_at_the_token_and_says_what_may_be_meant(sql, words):
    with pytest.raises(UserError, check=listed(words)):
        read(sql, TABLES)


def test_a_hidden_column_is_called_hidden_and_never_suggested():
    one = TABLES["patients"]
    secret = Column(name="salary", kind=Kind.NUMBER, hidden=True)
    tables = {**TABLES, "patients": replace(one, columns={**one.columns, "salary": secret})}
    for sql in (
        "SELECT AVG(salary) FROM patients",
        "SELECT COUNT(*) FROM visits v JOIN patients p ON v.patient_id = p.patient_id WHERE p.Salary > 1",
        "SELECT COUNT(*) FROM visits v JOIN patients p ON v.patient_id = p.patient_id AND salary > 1",
    ):
        with pytest.raises(UserError, check=about("hidden")) as told:
            read(sql, tables)
        assert "salary" not in str(told.value).partition("There are")[2]
    with pytest.raises(UserError, check=about("column"), match="'salry'"):
        read("SELECT AVG(salry) FROM patients", tables)
