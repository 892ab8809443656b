"""What has no meaning here is refused in words that help."""

from dataclasses import replace

import pytest
from reading_oracle import TABLES

from noisegate.errors import UserError
from noisegate.privacy.domain import Column, Kind
from noisegate.sql.reading.reader import read

ROWS_LEAVE = "rows do not leave"
INSIDE = "put it outside"
REFUSED = {
    "SELECT SPLIT_PART(name) AS c, COUNT(*) FROM patients GROUP BY c": "too few arguments",
    "SELECT COUNT(DATE_TRUNC('year', DATE '0001-01-01') - INTERVAL 1 YEAR) FROM patients": "years 1 to 9999",
    "SELECT COUNT(*) FROM codes c WHERE NOT EXISTS (SELECT 1 FROM visits v WHERE v.code = c.code)": "one person's row may decide",
    "SELECT code FROM codes EXCEPT SELECT code FROM visits": "one person's row may decide",
    "SELECT COUNT(*) FROM (SELECT code FROM visits INTERSECT SELECT name FROM patients)": "several units",
    "SELECT COUNT(*) FROM (SELECT patient_id FROM visits INTERSECT ALL SELECT patient_id FROM patients)": "INTERSECT is not offered",
    "SELECT c.chapter, COUNT(*) FROM codes c LEFT JOIN visits v ON v.code = c.code GROUP BY c.chapter": "keeps rows of a public table",
    "SELECT c.chapter, COUNT(v.cost) FROM codes c LEFT JOIN visits v ON v.code = c.code WHERE v.code IS NULL GROUP BY c.chapter": "keeps rows of a public table",
    "SELECT COUNT(v.cost IS NULL) FROM codes c LEFT JOIN visits v ON v.code = c.code": "keeps rows of a public table",
    "SELECT COUNT(*) FROM visits JOIN (VALUES ('A1'), ('B2')) x(code) USING (code)": "A list of values",
    "SELECT COUNT(*) FROM (SELECT NTILE(0) OVER (PARTITION BY patient_id ORDER BY cost) AS t FROM visits)": "no such number of parts",
    "": "0 statements",
    "SELECT": "names nothing",
    "SELEC COUNT(*) FROM patients": "cannot be read|Only SELECT",
    "SELECT COUNT(*) FROM patients; SELECT 1": "2 statements",
    "DROP TABLE patients": "Only SELECT is answered",
    "INSERT INTO patients VALUES (1)": "Only SELECT is answered",
    "PRAGMA version": "Only SELECT is answered",
    "DESCRIBE patients": "Only SELECT is answered",
    "EXPLAIN ANALYZE SELECT 1": "EXPLAIN ANALYZE",
    "SELECT * FROM patients": ROWS_LEAVE,
    "FROM patients": ROWS_LEAVE,
    "TABLE patients": ROWS_LEAVE,
    "SELECT age FROM patients": ROWS_LEAVE,
    "SELECT 1 FROM patients": ROWS_LEAVE,
    "SELECT patient_id, COUNT(*) FROM visits GROUP BY patient_id": ROWS_LEAVE,
    "SELECT DISTINCT patient_id FROM patients": ROWS_LEAVE,
    "SELECT (SELECT age FROM patients)": ROWS_LEAVE,
    "SELECT region FROM regions WHERE region IN (SELECT region FROM patients)": "one person's row may decide",
    "SELECT age, COUNT(*) FROM patients GROUP BY region": ROWS_LEAVE,
    "SELECT age, COUNT(*) FROM patients": ROWS_LEAVE,
    "SELECT *, COUNT(*) FROM patients": ROWS_LEAVE,
    "SELECT COUNT(*) FROM patients ORDER BY age": ROWS_LEAVE,
    "SELECT COUNT(*) FROM (SELECT * FROM patients LIMIT 10)": INSIDE,
    "SELECT COUNT(*) FROM (SELECT * FROM patients ORDER BY age)": INSIDE,
    "SELECT COUNT(*) FROM (SELECT * FROM patients OFFSET 3)": INSIDE,
    "SELECT COUNT(*) FROM (SELECT age FROM patients QUALIFY 1 = 1)": "QUALIFY has no window",
    "SELECT COUNT(*) FROM (SELECT RANK() OVER (ORDER BY age) AS r FROM patients) WHERE r = 1": "mix the rows of several units.*PARTITION BY patient_id",
    "SELECT COUNT(*) FROM (SELECT RANK() OVER (PARTITION BY region ORDER BY age) AS r FROM patients) WHERE r = 1": "mix the rows of several units",
    "SELECT COUNT(*) FROM (SELECT score - LAG(score) OVER (PARTITION BY code ORDER BY score) AS d FROM survey) WHERE d > 1": "every row is one unit",
    "SELECT COUNT(*) FROM (SELECT age FROM patients QUALIFY ROW_NUMBER() OVER (ORDER BY age) <= 10)": "mix the rows of several units",
    "SELECT COUNT(*) FROM (SELECT cost FROM visits QUALIFY ROW_NUMBER() OVER (PARTITION BY code ORDER BY seen) = 1)": "mix the rows of several units",
    "SELECT COUNT(*) FROM (SELECT LAST_VALUE(cost) OVER (PARTITION BY patient_id ORDER BY seen) AS x FROM visits) WHERE x > 3": "no further.*UNBOUNDED FOLLOWING",
    "SELECT COUNT(*) FROM (SELECT LAG(cost IGNORE NULLS) OVER (PARTITION BY patient_id ORDER BY seen) AS x FROM visits) WHERE x > 3": "IGNORE NULLS",
    "SELECT COUNT(*) FROM (SELECT LAG(visit_id, 1, 0.5) OVER (PARTITION BY patient_id ORDER BY seen) AS x FROM visits) WHERE x > 3": "cast to the type",
    "SELECT COUNT(*) FROM (SELECT SUM(cost) OVER (PARTITION BY patient_id ORDER BY visit_id RANGE BETWEEN 3 PRECEDING AND CURRENT ROW) AS x FROM visits) WHERE x > 3": "ROWS BETWEEN",
    "SELECT COUNT(*) FROM (SELECT MEDIAN(cost) OVER (PARTITION BY patient_id) AS x FROM visits) WHERE x > 3": "within one unit",
    "SELECT COUNT(*) FROM visits WHERE ROW_NUMBER() OVER (PARTITION BY patient_id) = 1": "sub-query's SELECT or QUALIFY",
    "SELECT COUNT(*) FROM (SELECT patient_id, ROW_NUMBER() OVER (PARTITION BY patient_id) AS r, COUNT(*) AS n FROM visits GROUP BY patient_id) WHERE r = 1": "stands beside GROUP BY",
    "SELECT COUNT(*) FROM (SELECT DISTINCT ON (region) * FROM patients)": INSIDE,
    "SELECT COUNT(*) FROM patients TABLESAMPLE 10%": "would not be one question",
    "SELECT COUNT(*) FROM patients USING SAMPLE 3": "SAMPLE",
    "SELECT COUNT(*) OVER () FROM patients": INSIDE,
    "SELECT COUNT(*) FROM other": "There is no table 'other'",
    "SELECT COUNT(*) FROM x.patients": "names a schema",
    "SELECT COUNT(*) FROM 'x.csv'": "There is no table",
    "SELECT COUNT(*) FROM read_csv('x')": "READ_CSV.*out of reach",
    "SELECT COUNT(*) FROM glob('*')": "GLOB",
    "SELECT COUNT(*) FROM duckdb_tables()": "DUCKDB_TABLES",
    "SELECT COUNT(*) FROM pat\N{LATIN SMALL LETTER DOTLESS I}ents": "There is no table",
    "SELECT COUNT(*) FROM \N{CYRILLIC SMALL LETTER ER}atients": "There is no table",
    "SELECT COUNT(*) FROM patients WHERE \N{CYRILLIC SMALL LETTER A}ge > 3": "There is no column",
    "SELECT COUNT(*) FROM patients WHERE smo\N{KELVIN SIGN}er": "There is no column",
    "SELECT COUNT(*) FROM patients WHERE nope = 1": "There is no column 'nope'.*age",
    "SELECT COUNT(*) FROM patients WHERE rowid < 3": "There is no column 'rowid'",
    "SELECT COUNT(*) FROM visits WHERE patient_id = 3": "cannot be computed with",
    "SELECT COUNT(*) FROM patients p JOIN patients q USING (patient_id) WHERE age > 3": "ambiguous",
    "SELECT COUNT(*) FROM patients WHERE age": "not true or false",
    "SELECT COUNT(*) FROM patients WHERE region = 3": "do not go together",
    "SELECT COUNT(*) FROM patients WHERE age = 'old'": "'old' is no integer",
    "SELECT COUNT(*) FROM patients WHERE REGEXP_MATCHES(name, '(a')": "regular expression has a bracket that is not closed",
    "SELECT COUNT(*) FROM patients WHERE REGEXP_MATCHES(name, region)": "REGEXP_MATCHES needs a constant text",
    "SELECT COUNT(*) FROM patients WHERE name ~ 'a' || region": "REGEXP_MATCHES needs a constant text",
    "SELECT COUNT(*) FROM patients WHERE REGEXP_EXTRACT(name, 'a', 1) = 'b'": "asks for group 1, and the pattern has 0",
    "SELECT COUNT(*) FROM patients WHERE REGEXP_REPLACE(name, 'a', '\\1') = 'b'": "the pattern has 0 groups",
    "SELECT COUNT(*) FROM patients WHERE REGEXP_MATCHES(name, 'a', 'x')": "options that are not on the list",
    "SELECT COUNT(*) FROM patients WHERE name // 2 = 3": "// divides what is no number",
    "SELECT COUNT(*) FROM patients WHERE STRFTIME(born, '%c') = 'b'": "STRFTIME does not know %c",
    "SELECT COUNT(*) FROM patients WHERE STRFTIME(born, name) = 'b'": "STRFTIME needs a constant text",
    "SELECT COUNT(*) FROM patients WHERE LPAD(name, 5, '') = 'b'": "filled .* with nothing",
    "SELECT COUNT(*) FROM patients WHERE REPEAT(name, 1000) = 'b'": "REPEAT would make a long text",
    "SELECT COUNT(*) FROM patients WHERE DATE_TRUNC('minute', born) = born": "A date has no minutes",
    "SELECT COUNT(*) FROM patients WHERE name GLOB 'a*'": "GLOB.*LIKE",
    "SELECT COUNT(*) FROM patients WHERE RANDOM() < 0.5": "another value each time",
    "SELECT COUNT(*) FROM patients WHERE born < CURRENT_DATE": "Write the date itself",
    "SELECT COUNT(*) FROM patients WHERE born < NOW()": "Write the date itself",
    "SELECT COUNT(*) FROM patients WHERE name = GETENV('HOME')": "out of reach",
    "SELECT COUNT(*) FROM patients WHERE NEXTVAL('s') > 1": "another value each time",
    "SELECT COUNT(*) FROM patients WHERE LOWWER(name) = 'a'": "nearest that is offered is LOWER",
    "SELECT COUNT(*) FROM patients WHERE age > (SELECT AVG(age) FROM patients)": "measured first.*then write the number",
    "SELECT p.region, (SELECT COUNT(*) FROM patients q WHERE q.region = p.region) FROM patients p GROUP BY 1": "sees those alone.*join what both give",
    "SELECT visit_id, COUNT(*) FROM bills GROUP BY visit_id": "one row per visit_id, and rows do not leave",
    "SELECT DISTINCT visit_id FROM visits": "one row per visit_id, and rows do not leave",
    "SELECT COUNT(*) FROM (SELECT b.visit_id, COUNT(*) FROM visits v LEFT JOIN bills b USING (visit_id) GROUP BY 1)": "rows of one unit each",
    "SELECT COUNT(*) FROM patients WHERE smoker OR EXISTS (SELECT 1 FROM visits)": "Join on patient_id",
    "SELECT COUNT(*) FROM patients p WHERE smoker OR EXISTS (SELECT 1 FROM visits v WHERE v.cost > p.age)": "Join on patient_id",
    "SELECT COUNT(*) FROM patients p WHERE (SELECT COUNT(*) FROM visits v WHERE v.cost > p.age) > 3": "Join on patient_id",
    "SELECT COUNT(*) FROM patients p WHERE (SELECT cost FROM visits v WHERE v.patient_id = p.patient_id) > 3": "more than one value",
    "SELECT COUNT(*) FROM survey s WHERE s.score > 3 OR EXISTS (SELECT 1 FROM visits v WHERE v.code = s.code)": "unit of its own",
    "SELECT COUNT(*) FROM patients p WHERE smoker OR EXISTS (SELECT 1 FROM doctors d WHERE d.doctor_id = p.patient_id)": "different id spaces",
    "SELECT COUNT(*) FROM patients p WHERE (SELECT COUNT(*) FROM doctors d WHERE d.doctor_id = p.patient_id) > 1": "different id spaces",
    "SELECT COUNT(*) FROM patients WHERE COUNT(*) > 3": "Aggregates belong",
    "SELECT COUNT(*) FROM patients WHERE age < 3 = smoker": "parentheses|cannot be read",
    "SELECT COUNT(*) FROM patients WHERE age = '5/1'": "is no integer",
    "SELECT COUNT(*) FROM patients WHERE born + INTERVAL 1 HOUR > '2020-01-01'": "INTERVAL",
    "SELECT COUNT(*) FROM visits WHERE seen + INTERVAL 1 MONTH > '2020-01-01'": "CAST.*DATE",
    "SELECT COUNT(*) FROM patients WHERE born > DATE '9999-12-01' + INTERVAL 1 MONTH": "outside the years",
    "SELECT COUNT(*) FROM patients WHERE CAST(age AS BLOB) = 'a'": "CAST AS",
    "SELECT COUNT(*) FROM patients WHERE age = ?": "PLACEHOLDER",
    "SELECT SUM(SUM(age)) FROM patients": "Aggregates belong",
    "SELECT SUM(region) FROM patients": "SUM of text",
    "SELECT MAX(region) FROM patients": "MAX of text",
    "SELECT SUM(DISTINCT age) FROM patients": "DISTINCT",
    "SELECT COUNT(DISTINCT (age, region)) FROM patients": "TUPLE|several columns",
    "SELECT COUNT(DISTINCT age, region) FROM patients": "several columns",
    "SELECT STRING_AGG(name, ',') FROM patients": "not offered",
    "SELECT LIST(name) FROM patients": "not offered",
    "SELECT ANY_VALUE(name) FROM patients": "not offered",
    "SELECT FIRST(name) FROM patients": "not offered",
    "SELECT BOOL_OR(smoker) FROM patients": "not offered",
    "SELECT ARG_MAX(name, age) FROM patients": "not offered",
    "SELECT MIN(age, 3) FROM patients": "COUNT is not offered",
    "SELECT SUM(age ORDER BY weight) FROM patients": INSIDE,
    "SELECT QUANTILE_CONT(age, 1.5) FROM patients": "from 0 to 1",
    "SELECT weight, COUNT(*) FROM patients GROUP BY weight": "bins",
    "SELECT seen, COUNT(*) FROM visits GROUP BY seen": "DATE_TRUNC",
    "SELECT region, COUNT(*) FROM patients GROUP BY 3": "no position",
    "SELECT COUNT(*) FROM patients GROUP BY GROUPING SETS ((region), (region))": "stands twice",
    "SELECT COUNT(*) FROM patients GROUP BY ROLLUP (patient_id, region)": "contain the unit",
    "SELECT COUNT(*) AS n, SUM(age) AS N FROM patients": "Two columns are called",
    "SELECT SUM(age) AS age FROM patients HAVING age > 3": "both a column and the name",
    "SELECT COUNT(*) FROM patients FULL JOIN visits USING (patient_id)": "FULL JOIN",
    "SELECT COUNT(*) FROM patients NATURAL JOIN visits": "NATURAL JOIN.*USING",
    "SELECT COUNT(*) FROM patients ASOF JOIN visits ON patients.age >= visits.cost": "ASOF JOIN",
    "SELECT COUNT(*) FROM patients POSITIONAL JOIN visits": "POSITIONAL JOIN",
    "SELECT COUNT(*) FROM patients p JOIN visits v ON p.age = v.visit_id": "Join on patient_id",
    "SELECT COUNT(*) FROM patients, visits": "Join on patient_id",
    "SELECT COUNT(*) FROM patients p JOIN visits v ON p.patient_id < v.visit_id": "Join on patient_id",
    "SELECT COUNT(*) FROM codes LEFT JOIN visits USING (code)": "nobody's",
    "SELECT COUNT(*) FROM visits RIGHT JOIN codes USING (code)": "nobody's",
    # with JOIN instead, groups without rows would be left out
    "SELECT c.code, COUNT(v.cost) AS n FROM codes c LEFT JOIN visits v ON v.code = c.code AND c.chapter = 'A' GROUP BY c.code": "kept side",
    "SELECT c.code, COUNT(v.cost) AS n FROM codes c LEFT JOIN visits v ON v.code = c.code AND v.code = 'A1' GROUP BY c.code": "nobody's",
    "SELECT c.code, COUNT(v.cost) AS n FROM codes c LEFT JOIN (SELECT * FROM visits WHERE code = 'A1') v ON v.code = c.code GROUP BY c.code": "nobody's",
    "SELECT c.code, COUNT(p.age) AS n FROM codes c LEFT JOIN patients p ON p.age = LENGTH(c.code) GROUP BY c.code": "nobody's",
    "SELECT COUNT(*) FROM visits v LEFT JOIN codes c ON v.code = c.code AND v.cost > 3": "kept side",
    "SELECT COUNT(*) FROM patients p LEFT JOIN visits v USING (patient_id) JOIN notes n ON v.patient_id = n.pid": "cannot be computed with",
    "SELECT COUNT(*) FROM survey a JOIN survey b USING (code)": "unit of its own",
    "SELECT COUNT(*) FROM survey JOIN regions ON code = region AND country = 'X' JOIN codes ON chapter = country": "whole key",
    "SELECT COUNT(*) FROM survey s JOIN codes c ON s.code = c.chapter": "whole key of the public table .code",
    "SELECT COUNT(*) FROM patients p JOIN doctors d ON p.patient_id = d.doctor_id": "different id spaces",
    "SELECT COUNT(*) FROM patients, patients": "same name",
    "SELECT COUNT(*) FROM visits v(a, b) WHERE b > 3": "renamed by position",
    "SELECT COUNT(*) FROM (patients JOIN visits USING (patient_id))": "brackets",
    "SELECT COUNT(*) FROM patients, LATERAL (SELECT 1) l": "A list of values",
    "SELECT COUNT(*) FROM patients, UNNEST([1, 2]) u": "A list of values",
    "SELECT COUNT(*) FROM patients PIVOT (SUM(age) FOR region IN ('north'))": "PIVOT",
    "SELECT COUNT(*) FROM (SELECT age FROM patients UNION SELECT cost FROM visits)": "several units",
    "SELECT COUNT(*) FROM (SELECT age FROM patients EXCEPT SELECT cost FROM visits)": "several units",
    "SELECT COUNT(*) FROM (SELECT age FROM patients UNION ALL BY NAME SELECT cost FROM visits)": "BY NAME",
    "SELECT COUNT(*) FROM (SELECT region FROM patients UNION ALL SELECT cost FROM visits)": "differ in a column",
    "SELECT COUNT(*) FROM (SELECT region FROM patients UNION ALL SELECT region FROM regions)": "mixes",
    "SELECT COUNT(*) FROM patients JOIN (SELECT region, COUNT(*) AS n FROM patients GROUP BY region) USING (region)": "released table",
    "SELECT COUNT(*) FROM patients JOIN (SELECT country, COUNT(*) AS n FROM regions GROUP BY 1) c ON c.country = region": "public table is aggregated",
    "SELECT COUNT(*) FROM patients WHERE (region, name) NOT IN (SELECT region, country FROM regions)": "EXISTS",
    "SELECT COUNT(*) FROM patients WHERE age IN (SELECT visit_id FROM visits)": "Join on patient_id",
    "SELECT COUNT(*) FROM patients p WHERE EXISTS (SELECT 1 FROM visits v WHERE v.visit_id > p.age)": "Join on patient_id",
    "SELECT COUNT(*) FROM patients p WHERE EXISTS (SELECT 1 FROM visits)": "Join on patient_id",
    "SELECT COUNT(*) FROM patients p WHERE EXISTS (SELECT 1 FROM codes)": "not tied",
    "SELECT COUNT(*) FROM survey WHERE code IN (SELECT code FROM visits)": "unit of its own",
    "SELECT COUNT(*) FROM (SELECT patient_id, MEDIAN(cost) AS m FROM visits GROUP BY 1)": "within one unit",
    "SELECT COUNT(*) FROM (SELECT patient_id, cost FROM visits GROUP BY patient_id)": "neither grouped",
    "SELECT COUNT(*) FROM (SELECT patient_id, COUNT(*) n FROM visits GROUP BY 1) WHERE patient_id > 3": "cannot be computed with",
    "SELECT COUNT(*) FROM noisegate_0": "reserved",
    "WITH noisegate_0 AS (SELECT 1) SELECT COUNT(*) FROM patients": "reserved",
    "WITH a AS (SELECT 1), A AS (SELECT 2) SELECT COUNT(*) FROM patients": "Two CTEs",
    "SELECT 0x1f, COUNT(*) FROM patients": "no number",
    "SELECT COUNT(*) FROM patients FOR UPDATE": "LOCKS",
    "SELECT COUNT(*) FROM patients WHERE " + "(" * 300 + "smoker" + ")" * 300: "deeply|cannot be read",
    "SELECT COUNT(*) FROM patients WHERE " + " OR ".join(["smoker"] * 300): "Use IN",
    "SELECT COUNT(*) FROM patients WHERE name = '" + "x" * 20_000 + "'": "readable length",
}  # fmt: skip


@pytest.mark.parametrize("sql", REFUSED, ids=lambda sql: sql[:80])
def test_what_cannot_be_asked_is_refused_with_a_next_step(sql):
    with pytest.raises(UserError, match=f"(?s){REFUSED[sql]}") as refusal:
        read(sql, TABLES)
    assert refusal.value.fix
    assert refusal.value.__cause__ is None


@pytest.mark.parametrize("sql", ["SELECT DISTINCT FALSE FROM patients", "SELECT 1 AS a FROM patients GROUP BY a"])  # fmt: skip
def test_whether_there_is_any_row_is_no_question(sql):
    with pytest.raises(UserError, match="Only constants"):
        read(sql, TABLES, lines=True)


def test_tables_of_tables_do_not_grow_without_end():
    doubling = ["a0 AS (SELECT patient_id, age FROM patients)"]
    doubling += [
        f"a{i} AS (SELECT l.patient_id, l.age FROM a{i - 1} l JOIN a{i - 1} r USING (patient_id))"
        for i in range(1, 40)
    ]
    with pytest.raises(UserError, match="too many steps"):
        read(f"WITH {', '.join(doubling)} SELECT COUNT(*) FROM a39", TABLES)


@pytest.mark.parametrize("tail", ["COUNT(*) FROM patients", "1 FROM patients"])
def test_names_of_items_do_not_grow_without_end(tail):
    doubling = ["age AS a0", *(f"a{i - 1} + a{i - 1} AS a{i}" for i in range(1, 40))]
    sql = f"SELECT {', '.join(doubling)}, {tail}"
    with pytest.raises(UserError, match="use each other too often"):
        read(sql + " GROUP BY ALL" if "COUNT" in tail else sql, TABLES)


@pytest.mark.parametrize("sql", [None, 3, b"SELECT 1"])
def test_what_is_no_text_is_refused(sql):
    with pytest.raises(UserError, match="not text"):
        read(sql, TABLES)


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("SELECT COUNT(*) FROM patients\nWHERE age > 3 AND\n  agee < 4", "Line 3, column 3: There is no column 'agee'. Did you mean 'age'"),
        ("SELECT '\N{ROCKET}é', SUM(b) FROM patients", "Line 1, column 18: There is no column 'b'. There are"),
        ("SELECT COUNT(*) FROM patint", "Line 1, column 22: There is no table 'patint'. Did you mean 'patients'"),
        ("EXPLAIN SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1) COUNT(*) FROM y", "Line 1, column 75: There is no table 'y'. There are"),
        ("SELECT COUNT(*) FROM patients WHERE age > 3 OR (region = 'x' AND LOWER(age) = 'b')", "Line 1, column 66: LOWER needs text"),
        ("SELECT SUM(age), SUM(name) FROM patients", "Line 1, column 18: SUM of text"),
        ("SELECT region, age FROM patients GROUP BY region", "Line 1, column 16: Column 'age' is neither"),
        ("SELECT weight, COUNT(*) FROM patients GROUP BY weight", "Line 1, column 48: GROUP BY a number"),
        ("SELECT COUNT(*) FROM (SELECT * FROM patients LIMIT 3)", "Line 1, column 52: LIMIT"),
        ("SELECT COUNT(*) FROM visits v JOIN doctors d ON v.cost = d.doctor_id", "Line 1, column 36: "),
        ("SELECT COUNT(*) FROM patients p JOIN visits v USING (patientid)", "Did you mean 'patient_id'"),
        ("SELECT COUNT(*) FROM patients WHERE DATE_FORMAT(born, '%Y') = '3'", "Line 1, column 37: DATE_FORMAT .* Use STRFTIME"),
        ("SELECT COUNT(*) FROM patients WHERE TO_CHAR(born, 'YYYY') = '3'", "TO_CHAR .* Use STRFTIME"),
        ("SELECT STRING_AGG(name, ',') FROM patients", "STRING_AGG .* rows do not leave"),
        ("SELECT ANY_VALUE(name) FROM patients", "Line 1, column 8: ANY_VALUE .* a value of one row"),
        ("SELECT MODE(region) FROM patients", "MODE .* GROUP BY x ORDER BY n DESC"),
        ("SELECT BOOL_AND(smoker) FROM patients", "BOOL_AND .* COUNT_IF"),
        ("SELECT COUNT(*) FROM patients WHERE SIN(age) > 0", "SIN is not offered over private rows. Leave it out"),
        ("SELECT secret FROM patients", "There is no column 'secret'. There are"),
    ],
)  # fmt: skip
def test_a_refusal_points_at_the_token_and_says_what_may_be_meant(sql, words):
    with pytest.raises(UserError, match=f"(?s){words}"):
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
        with pytest.raises(
            UserError, match="is hidden: the policy keeps it from questions"
        ) as told:
            read(sql, tables)
        assert "salary" not in str(told.value).partition("There are")[2]
    with pytest.raises(UserError, match=r"There is no column 'salry'\. There are"):
        read("SELECT AVG(salry) FROM patients", tables)
