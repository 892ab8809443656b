"""Columns of CSV files: the question says what they are read as, totally, and the answer says so."""

import json

import duckdb
import pytest
from command_line import run
from reading_oracle import OWNERS, exact_answer, same_rows

import noisegate
from noisegate.errors import Unsupported
from noisegate.root.hosting import tables_of
from noisegate.sources.policy.policy import read_policy
from noisegate.sql.reading.reader import read
from refusals import about, listed

PEOPLE = """id,age,day,smoker,city,note
a,34,2024-01-05,true,Paris,x
a,51,2023-12-31,no,Rome,y
b,n/a,2024-02-29,,Paris,
c,7.5,bad,true,Oslo,x
d,,2024-03-01 12:00:00,false,Rome,10
d,49,2024-01-31,yes,Paris,9
e,-3,2024-01-31,maybe,,z
f,nan,1969-12-31,f,Rome,12
g, 8 ,2024-01-05,t,Lima,01
"""
POLICY = """
name = "town"

[budget]
epsilon = 1000000

[tables.people]
source = "people.csv"
unit = "id"
[tables.people.columns]
age = {}
day = {}
smoker = {}
city = {}
note = {type = "text"}
id = {}

[tables.towns]
source = "towns.csv"
public = true
key = ["city"]
"""
TOWNS = "city,size\nParis,2000\nRome,900\nOslo,n/a\n"
TYPED = """
SET disabled_optimizers = 'type_pushdown';
CREATE TABLE raw AS FROM read_csv('{people}', all_varchar = true);
CREATE TABLE people AS SELECT id, CASE WHEN ISFINITE(n) THEN n END AS age, day, smoker, city, note FROM
  (SELECT * REPLACE (TRY_CAST(day AS TIMESTAMP) AS day, TRY_CAST(smoker AS BOOLEAN) AS smoker), TRY_CAST(age AS DOUBLE) AS n FROM raw);
CREATE TABLE towns AS SELECT city, TRY_CAST(size AS DOUBLE) AS size FROM read_csv('{towns}', all_varchar = true)
"""


def written(folder):
    (folder / "people.csv").write_text(PEOPLE)
    (folder / "towns.csv").write_text(TOWNS)
    (folder / "town.toml").write_text(POLICY)
    return folder


@pytest.fixture
def town(tmp_path):
    return written(tmp_path)


@pytest.fixture(scope="module")
def everyones(tmp_path_factory):
    """A town that nobody changes."""
    return written(tmp_path_factory.mktemp("town"))


@pytest.fixture(scope="module")
def tables(everyones):
    return tables_of(read_policy(everyones / "town.toml"))[1]


def typed(town):
    """The rows as DuckDB would hold them with the types that questions say."""
    con = duckdb.connect()
    con.execute(TYPED.format(people=town / "people.csv", towns=town / "towns.csv"))
    return con


@pytest.fixture(scope="module")
def meant(everyones):
    return typed(everyones)


@pytest.fixture(scope="module")
def texts(everyones):
    con = duckdb.connect()
    for name in ("people", "towns"):
        con.execute(
            f"CREATE TABLE {name} AS FROM read_csv('{everyones / name}.csv', all_varchar = true)"
        )
    return con


@pytest.fixture
def untyped(texts, monkeypatch):
    monkeypatch.setitem(OWNERS, "people", "SELECT *, id AS _owner FROM people")
    texts.begin()
    yield texts
    texts.rollback()  # whatever a test that failed has left


ASKED = [
    "SELECT COUNT(*) FROM people WHERE age < 50",
    "SELECT COUNT(*) FROM people WHERE 50 > age OR NOT age >= 7.5",
    "SELECT COUNT(*), COUNT(age), SUM(age), AVG(age + 1) FROM people",
    "SELECT MAX(age), MEDIAN(age) FROM people WHERE age IN (34, 49, 51)",
    "SELECT SUM(CASE WHEN age IS NULL THEN 0 ELSE age END) FROM people",
    "SELECT SUM(COALESCE(age, 5)), SUM(LEAST(age, 40)), SUM(-age), SUM(ABS(age) * 2) FROM people",
    "SELECT COUNT(*) FROM people WHERE age BETWEEN 8 AND 49 AND age = '49'",
    "SELECT COUNT(*) FROM people WHERE age IS NOT DISTINCT FROM 8",
    "SELECT COUNT(*) FROM people WHERE COALESCE(NULLIF(age, 8), 99) > 50",
    "SELECT COUNT(*) FROM people p JOIN towns t USING (city) WHERE GREATEST(age, size) > 900",
    "SELECT SUM(COALESCE(age, size)) FROM people p JOIN towns t USING (city)",
    "SELECT LEAST(size, 900) % 7 AS r, COUNT(*) FROM people p JOIN towns t USING (city) GROUP BY r",
    "SELECT COUNT(*) FROM people WHERE day >= DATE '2024-01-01'",
    "SELECT COUNT(*) FROM people WHERE day >= '2024-01-01' AND day < '2024-03-01'",
    "SELECT COUNT(*) FROM people WHERE day BETWEEN '2024-01-01' AND '2024-01-31'",
    "SELECT COUNT(*) FROM people WHERE day > TIMESTAMP '2024-03-01 11:00:00'",
    "SELECT COUNT(*) FROM people WHERE EXTRACT(year FROM day) = 2024 AND MONTH(day) = 1",
    "SELECT DATE_TRUNC('month', day) AS m, COUNT(*) FROM people GROUP BY m",
    "SELECT COUNT(*) FROM people WHERE DATE_DIFF('day', day, DATE '2024-02-01') > 2",
    "SELECT COUNT(*) FROM people WHERE day + INTERVAL 3 DAY > DATE '2024-01-31'",
    "SELECT COUNT(*) FROM people WHERE smoker",
    "SELECT COUNT(*) FILTER (WHERE NOT smoker), COUNT_IF(smoker AND age > 40) FROM people",
    "SELECT COUNT(*) FROM people WHERE smoker = false OR smoker IS TRUE",
    "SELECT SUM(CASE WHEN smoker THEN 1 ELSE 2 END) FROM people",
    "SELECT city, COUNT(*) FILTER (WHERE age >= 18) AS n FROM people GROUP BY city HAVING n > 0",
    "SELECT COUNT(*) FROM (SELECT age AS a, city FROM people WHERE city <> 'Rome') WHERE a > 10",
    "WITH old AS (SELECT * FROM people WHERE age > 40) SELECT COUNT(DISTINCT id) FROM old",
    "SELECT COUNT(*) FROM people p JOIN towns t ON p.city = t.city WHERE t.size > 1000 AND p.age > 0",
    "SELECT COUNT(*) FROM people p JOIN towns t USING (city) WHERE p.age * 100 > t.size",
    "SELECT COUNT(*) FROM people p JOIN people q ON p.id = q.id AND p.city = q.city WHERE p.age > 1",
    "SELECT COUNT(*) FROM people WHERE city IN (SELECT city FROM towns WHERE size > 1000) AND age > 0",
    "SELECT COUNT(*) FROM people p WHERE EXISTS (SELECT 1 FROM people q WHERE q.id = p.id AND q.age > 40)",
    "SELECT AVG(m) FROM (SELECT id, MAX(age) AS m FROM people WHERE age > 0 GROUP BY id)",
    "SELECT COUNT(*) FROM (SELECT id, SUM(LEAST(GREATEST(age, 0), 99)) AS m FROM people GROUP BY id) WHERE m > 40",
    "SELECT COUNT(*) FROM (SELECT age FROM people UNION ALL SELECT age FROM people) WHERE age > 40",
    "SELECT COUNT(*) FROM people WHERE note LIKE '1%' AND note < '11'",
    "SELECT COUNT(*) FROM people WHERE city = 'Rome' AND LOWER(city) < 's' AND city < 'S'",
    "SELECT COUNT(*) FROM people WHERE age // 10 = 3",
    "SELECT COUNT(*) FROM people WHERE day + INTERVAL 1 MONTH > DATE '2024-02-10' AND MONTH(day) <> 3",
]  # fmt: skip


@pytest.mark.parametrize("sql", ASKED)
def test_a_column_without_a_type_is_read_as_the_question_takes_it(
    everyones, meant, untyped, tables, sql
):
    if "//" in sql:
        meant = typed(everyones)
        meant.execute("UPDATE people SET age = NULL WHERE age <> FLOOR(age)")
        meant.execute("ALTER TABLE people ALTER age TYPE BIGINT")
    _, rows = exact_answer(untyped, sql, tables)
    assert same_rows(rows, meant.execute(sql).fetchall()), rows


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        (
            "age < 50",
            ["'age' is read as a number, because its file declares no types; other values"],
        ),
        ("age // 10 = 4 AND age < 50", ["'age' is read as a whole number"]),
        ("day > '2024-01-01'", ["'day' is read as a date or time"]),
        ("day + INTERVAL 1 YEAR > '2024-01-01'", ["'day' is read as a date, because"]),
        ("smoker AND age > 1", ["'age' is read as a number", "'smoker' is read as true or false"]),
        ("city > 'M'", ["'city' is compared as text, letter by letter"]),
        ("NULLIF(age, city) IS NULL", ["'age' is compared as text", "'city' is compared as text"]),
        ("GREATEST(age, day) > 3", ["'age' is read as a number", "'day' is read as a number"]),
        ("city = 'Rome' AND note < '2'", []),
        ("CAST(age AS DOUBLE) > 5 AND LENGTH(age) > 1 AND age || '' <> 'x'", []),
    ],
)
def test_the_answer_says_how_columns_were_read(tables, sql, words):
    caveats = sorted(read(f"SELECT COUNT(*) FROM people WHERE {sql}", tables).caveats)
    assert len(caveats) == len(words)
    assert all(word in caveat for word, caveat in zip(words, caveats, strict=True))


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("SELECT COUNT(*) FROM people WHERE age < 50 AND LOWER(age) = 'x'", "types"),
        ("SELECT COUNT(*) FROM people WHERE age < 50 AND age > DATE '2024-01-01'", "types"),
        ("SELECT COUNT(*) FILTER (WHERE age) FROM people WHERE age > 1", "types"),
        ("SELECT SUM(day) FROM people WHERE YEAR(day) = 2024", "types"),
        ("SELECT COUNT(*) FROM (SELECT age AS a FROM people) WHERE a LIKE '1%' AND a > 3", "types 'age'"),
        ("SELECT COUNT(*) FROM people WHERE age < 50 AND age <> ''", "literal"),
        ("SELECT MAX(age) FROM people", "type MAX"),
        ("SELECT COUNT(*) FROM people WHERE note < 50", "types"),
        ("SELECT SUM(note) FROM people", "type SUM"),
    ],
)  # fmt: skip
def test_two_ways_that_do_not_agree_are_refused(tables, sql, words):
    with pytest.raises(Unsupported, check=listed(words)):
        read(sql, tables)


def test_groups_of_such_a_column_are_its_texts(untyped, tables):
    sql = "SELECT age, COUNT(*) AS n FROM people WHERE age > 7 GROUP BY age HAVING age < 50 ORDER BY age"
    _, rows = exact_answer(untyped, sql, tables)
    assert rows == [("7.5", 1), (" 8 ", 1), ("34", 1), ("49", 1)]
    for asked in (sql, "SELECT COUNT(DISTINCT age) AS n FROM people WHERE age > 7"):
        assert "distinct values of 'age' are its texts" in read(asked, tables).caveats[1]


def test_files_with_types_and_declared_columns_stay_as_they_are(town):
    con = typed(town)
    con.execute(f"COPY raw TO '{town / 'p.parquet'}'")
    gate = noisegate.open(town / "p.parquet", epsilon=1)
    with pytest.raises(Unsupported, check=about("types")):
        gate.plan("SELECT COUNT(*) FROM p WHERE age < 50", epsilon=1)
    gate = noisegate.open(town / "people.csv", epsilon=1, columns={"age": {"type": "text"}})
    with pytest.raises(Unsupported, check=about("types")):
        gate.plan("SELECT COUNT(*) FROM people WHERE age < 50", epsilon=1)
    gate = noisegate.open(town / "towns.csv", epsilon=1, columns={"size": {"between": [0, 9]}})
    assert not gate.plan("SELECT COUNT(*) FROM towns WHERE size < 5", epsilon=1).notes


def test_large_whole_numbers_are_told_apart(tmp_path):
    (tmp_path / "x.csv").write_text("n\n9007199254740993\n9007199254740992\n")
    gate = noisegate.open(tmp_path / "x.csv", epsilon=10**6)
    answer = gate.sql("SELECT COUNT(*) AS n FROM x WHERE n = 9007199254740993", epsilon=900)
    assert answer.rows[0][0] == 1


def test_sums_of_such_a_column_find_their_bounds(tmp_path):
    lines = "".join(f"{i % 60},k{i % 3}\n" for i in range(6000)) + "many,k1\n"
    (tmp_path / "people.csv").write_text("age,k\n" + lines)
    gate = noisegate.open(tmp_path / "people.csv", epsilon=100)
    sql = "SELECT SUM(age) AS s, AVG(age) AS m FROM people WHERE age < 50"
    answer = gate.sql(sql, epsilon=20, choose="bounds")
    total, mean = answer.rows[0]
    assert abs(total - 100 * sum(range(50))) < 2000
    assert abs(mean - 24.5) < 1
    assert any("'age' is read as a number" in words for words in answer.caveats)
    low, high = gate.bounds("people", "age", epsilon=20)
    assert low <= 0
    assert 59 <= high <= 64


def test_a_policy_with_units_and_the_command_line_answer_the_same(town):
    gate = noisegate.open(town / "town.toml")
    sql = "SELECT COUNT(*) AS n FROM people WHERE age < 50"
    assert gate.sql(sql, epsilon=900, rows_per_unit=3).rows[0][0] == 5
    terms = ("--epsilon", "1000", "--budget", "2000", "--json")
    shown = json.loads(run("ask", "people.csv", sql, *terms, cwd=town).stdout)
    assert shown["rows"] == [[5]]
    assert any("'age' is read as a number" in words for words in shown["caveats"])


@pytest.mark.parametrize(
    "form",
    ["({} + age)", "({} // 2.5)", "FLOOR({} / 2) * 2", "(age - {})", "COALESCE({} + 1, age)"],
)
def test_deep_expressions_are_read_once(tables, form):
    value = "age"
    for _ in range(20):
        value = form.format(value)
    assert read(f"SELECT COUNT(*) FROM people WHERE {value} > 3", tables).blocks


def joined_tables(folder, *, private, public):
    """A table in which every row is a unit, and a public one, each in a file of its own kind."""
    con = duckdb.connect()
    rows = {"shops": "(VALUES (7, 'x'), (8, 'y'), (NULL, 'z'))", "kinds": "(VALUES (7, 70), (8, 80), (9, 90))"}  # fmt: skip
    names = {"shops": "(code, note)", "kinds": "(code, size)"}
    for table, kind in (("shops", private), ("kinds", public)):
        con.execute(f"COPY (FROM {rows[table]} AS t{names[table]}) TO '{folder}/{table}.{kind}'")
    (folder / "j.toml").write_text(f"""
name = "j"
[budget]
epsilon = 1000000
[tables.shops]
source = "shops.{private}"
every_row_is_one_person = true
[tables.shops.columns]
code = {{}}
note = {{}}
[tables.kinds]
source = "kinds.{public}"
public = true
key = ["code"]
""")
    return noisegate.open(folder / "j.toml")


def test_a_join_reads_a_column_without_a_type_as_its_partner_is(tmp_path):
    gate = joined_tables(tmp_path, private="csv", public="parquet")
    join = "SELECT COUNT(*) AS n FROM shops s JOIN kinds k ON s.code = k.code WHERE k.size > 70"
    answer = gate.sql(join, epsilon=900)
    assert answer.rows[0][0] == 1
    assert any("'code' is read as a whole number" in words for words in answer.caveats)
    inside = (
        "SELECT COUNT(*) AS n FROM shops WHERE code IN (SELECT code FROM kinds WHERE size < 90)"
    )
    assert gate.sql(inside, epsilon=900).rows[0][0] == 2


def test_a_public_key_without_a_type_is_none_once_it_is_read_as_another_kind(tmp_path):
    """The texts 7 and 07 are two keys and one number: a row could meet both."""
    gate = joined_tables(tmp_path, private="parquet", public="csv")
    with pytest.raises(Unsupported, check=about("key")):
        gate.plan("SELECT COUNT(*) AS n FROM shops s JOIN kinds k ON s.code = k.code", epsilon=1)
    both = joined_tables(tmp_path, private="csv", public="csv")
    join = "SELECT COUNT(*) AS n FROM shops s JOIN kinds k ON s.code = k.code WHERE s.code < 8"
    assert both.sql(join, epsilon=900).rows[0][0] == 1
