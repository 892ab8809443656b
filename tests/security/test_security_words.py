"""What the SQL says: clauses that let rows decide, functions that reach out, names that hide."""

from functools import cache

import pyarrow as pa
import pytest
from naive import Rewriter
from worlds import (
    CANARY,
    SCHEMA,
    eve,
    is_refused,
    loss,
    measured,
    row,
    seen,
    visits,
    worlds,
)

import noisegate as ng


@pytest.fixture(scope="module")
def both():
    return worlds(eve(age=99))


# LIMIT, ORDER BY and windows inside

INSIDE = [
    "SELECT COUNT(*) FROM (SELECT * FROM visits ORDER BY age DESC LIMIT 1) WHERE cost > 9",
    "SELECT COUNT(*) FROM (SELECT * FROM visits LIMIT 10)",
    "SELECT COUNT(*) FROM (SELECT * FROM visits OFFSET 60)",
    "SELECT COUNT(*) FROM (SELECT * FROM visits ORDER BY age)",
    "SELECT COUNT(*) FROM (SELECT * FROM visits FETCH FIRST 3 ROWS ONLY)",
    "SELECT COUNT(*) FROM (SELECT cost, ROW_NUMBER() OVER (ORDER BY age) AS r FROM visits) WHERE r % 2 = 0",
    "SELECT COUNT(*) FROM (SELECT cost FROM visits QUALIFY ROW_NUMBER() OVER (ORDER BY age) = 1)",
    "SELECT COUNT(*) FROM (SELECT DISTINCT ON (ward) cost FROM visits)",
    "SELECT COUNT(*) FROM (SELECT age - LAG(age) OVER (ORDER BY age) AS d FROM visits) WHERE d > 9",
    "SELECT COUNT(*) FROM visits WHERE who IN (SELECT who FROM visits ORDER BY age DESC LIMIT 1)",
    "SELECT COUNT(*) FROM visits WHERE age >= ALL (SELECT age FROM visits)",
    "SELECT COUNT(*) FROM (SELECT who FROM visits GROUP BY who ORDER BY COUNT(*) DESC LIMIT 1)",
    "SELECT COUNT(*) FROM visits TABLESAMPLE 1 ROWS",
    "SELECT COUNT(*) FROM visits USING SAMPLE 1",
    "SELECT COUNT(*) FROM (SELECT age FROM visits UNION SELECT age FROM visits)",
    "SELECT COUNT(*) FROM (SELECT age FROM visits EXCEPT SELECT age FROM visits WHERE age = 99)",
    "WITH v AS (SELECT * FROM visits LIMIT 5) SELECT COUNT(*) FROM v",
    "SELECT SUM(cost ORDER BY age) FROM visits",
    "SELECT COUNT(*) FROM visits a JOIN (SELECT who FROM visits LIMIT 1) b USING (who)",
    "SELECT COUNT(*) FROM visits a ASOF JOIN visits b ON a.who = b.who AND a.age >= b.age",
    "SELECT COUNT(*) FROM visits POSITIONAL JOIN visits b",
    "WITH RECURSIVE r AS (SELECT who FROM visits UNION SELECT who FROM r) SELECT COUNT(*) FROM r",
]


def test_one_person_first_in_line_moves_everybody_where_rows_are_numbered():
    """With Eve all others change places: 30 rows are counted instead of none."""
    sql = (
        "SELECT COUNT(*) FROM (SELECT cost, ROW_NUMBER() OVER (ORDER BY age) AS r FROM visits)"
        " WHERE r % 2 = 0 AND cost = 1"
    )
    rows = [row(f"q{i}", age=i + 1, cost=float(i % 2 == 0)) for i in range(60)]
    counts = [
        Rewriter(visits=pa.Table.from_pylist(table, schema=SCHEMA)).number(sql, epsilon=100)
        for table in (rows, [eve(age=0, cost=0), *rows])
    ]
    assert counts[1] - counts[0] > 28  # noise of scale 1/100: wrong with chance 1e-40


@pytest.mark.parametrize("sql", INSIDE)
def test_rows_do_not_decide_which_rows_count(sql, both):
    assert is_refused(*both, sql=sql)


def test_outside_order_and_limit_are_about_noisy_numbers(both):
    sql = "SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward ORDER BY n DESC LIMIT 2"
    answer = both[0].sql(sql, epsilon=1)
    rest = both[0].sql("SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward", epsilon=1)
    assert rest.free
    assert answer.table.to_pylist() == sorted(
        rest.table.to_pylist(), key=lambda each: -each["n"]
    )[:2]  # fmt: skip


# functions that are another each time, or reach out

CHANGING = ["RANDOM()", "UUID()", "GEN_RANDOM_UUID()", "CURRENT_TIME", "TXID_CURRENT()", "CURRENT_SETTING('threads')", "VERSION()",
            "CURRENT_SCHEMA()", "CURRENT_DATABASE()", "NEXTVAL('s')", "SETSEED(0.5)",
            "GETVARIABLE('x')", "CURRENT_QUERY()", "PG_BACKEND_PID()"]  # fmt: skip
PLACES = {
    "a condition": "SELECT COUNT(*) FROM visits WHERE CAST({f} AS VARCHAR) > '0'",
    "an aggregate": "SELECT SUM(LEAST(9, LENGTH(CAST({f} AS VARCHAR)))) FROM visits",
    "a filter": "SELECT COUNT(*) FILTER (WHERE CAST({f} AS VARCHAR) > '0') FROM visits",
    "a key": "SELECT CAST({f} AS VARCHAR) AS k, COUNT(*) FROM visits GROUP BY k",
    "a join": "SELECT COUNT(*) FROM visits a JOIN visits b ON a.who = b.who AND a.note = CAST({f} AS VARCHAR)",
    "one person's total": "SELECT SUM(LEAST(n, 9)) FROM (SELECT who, SUM(LENGTH(CAST({f} AS VARCHAR))) AS n FROM visits GROUP BY who)",
    "the outer SQL": "SELECT n, CAST({f} AS VARCHAR) AS x FROM (SELECT COUNT(*) AS n FROM visits)",
    "the outer order": "SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward ORDER BY CAST({f} AS VARCHAR)",
    "HAVING": "SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward HAVING CAST({f} AS VARCHAR) > '0'",
}


def test_a_random_word_makes_one_question_many():
    """A cache by the text of a plan does not help where the plan draws for itself."""
    naive = Rewriter(visits=visits())
    found = {naive.sql("SELECT UUID() AS k, COUNT(*) FROM visits GROUP BY k")[0][0] for _ in "ab"}
    assert len(found) == 2


@pytest.mark.parametrize("place", PLACES)
def test_functions_that_change_are_refused_everywhere(place, both):
    for function in CHANGING:
        assert is_refused(*both, sql=PLACES[place].format(f=function))


@pytest.mark.parametrize("place", PLACES)
def test_a_clock_makes_no_question_anew_before_its_value_changes(place, both):
    for clock in ("CURRENT_DATE", "TODAY()", "DATE_TRUNC('year', NOW())", "NOW()"):
        sql = PLACES[place].format(f=clock)
        if is_refused(*both, sql=sql):
            continue
        for gate in both:
            gate.sql(sql, epsilon=1)
            assert gate.sql(sql, epsilon=1).free


REACHING = [
    "SELECT COUNT(*), MAX(content) FROM read_text('{file}')",
    "SELECT content, COUNT(*) FROM read_text('{file}') GROUP BY content",
    "SELECT * FROM read_csv('{file}', header = false)",
    "SELECT (SELECT ANY_VALUE(content) FROM read_text('{file}')) AS x",
    "WITH f AS (SELECT content FROM read_text('{file}')) SELECT * FROM f",
    "SELECT file FROM glob('{folder}/*')",
]
ALSO_REACHING = [
    "SELECT * FROM '{file}'",
    "SELECT COUNT(*) FROM visits WHERE note IN (SELECT content FROM read_text('{file}'))",
    "SELECT COUNT(*) FROM visits, read_text('{file}')",
    "SELECT n, (SELECT content FROM read_text('{file}')) FROM (SELECT COUNT(*) AS n FROM visits)",
    "SELECT n FROM (SELECT COUNT(*) AS n FROM visits), '{file}'",
    "COPY (SELECT 1) TO '{file}'",
    "COPY visits TO '{file}'",
    "EXPORT DATABASE '{folder}'",
    "ATTACH '{file}'",
    "INSTALL httpfs",
    "LOAD httpfs",
    "SELECT COUNT(*) FROM visits WHERE GETENV('HOME') > ''",
    "SELECT n, GETENV('HOME') FROM (SELECT COUNT(*) AS n FROM visits)",
    "CREATE TABLE t AS SELECT 1",
    "SET threads = 1",
    "CALL pragma_version()",
    "SELECT n FROM query('SELECT 1 AS n')",
    "SELECT n FROM query_table('visits')",
    "SELECT COUNT(*) FROM duckdb_secrets()",
    "SELECT COUNT(*) FROM sniff_csv('{file}')",
    "SELECT COUNT(*) FROM parquet_metadata('{file}')",
    "SELECT COUNT(*) FROM visits WHERE note = (SELECT path FROM duckdb_databases() LIMIT 1)",
]


@cache
def secret_file(folder):
    file = folder / "secret.txt"
    file.write_text(CANARY)
    return file


def test_files_are_read_by_questions_where_the_engine_may(tmp_path):
    file = secret_file(tmp_path)
    naive = Rewriter(visits=visits())
    for sql in REACHING:
        shown = str(naive.sql(sql.format(file=file, folder=tmp_path)))
        assert CANARY in shown or file.name in shown


@pytest.mark.parametrize("sql", [*REACHING, *ALSO_REACHING])
def test_files_settings_and_extensions_are_out_of_reach(sql, both, tmp_path):
    file = secret_file(tmp_path)
    assert is_refused(*both, sql=sql.format(file=file, folder=tmp_path))
    assert file.read_text() == CANARY
    assert list(tmp_path.iterdir()) == [file]


# the catalog and its statistics

CATALOG = {
    "SELECT estimated_size FROM duckdb_tables()": "61",
    "SELECT * FROM duckdb_tables()": "61",
    "SUMMARIZE visits": CANARY,
    "SELECT * FROM (SUMMARIZE visits)": CANARY,
    "EXPLAIN ANALYZE SELECT ward, COUNT(*) FROM visits GROUP BY ward": "61",
    "SELECT stats FROM pragma_storage_info('visits')": CANARY[:8],
    "FROM pragma_storage_info('visits')": CANARY[:8],
    "SELECT * FROM pragma_table_info('visits')": "note",
    "PRAGMA show_tables": "visits",
    "SHOW TABLES": "visits",
    "SHOW ALL TABLES": "visits",
    "DESCRIBE visits": "note",
    "SELECT column_name FROM information_schema.columns": "note",
    "SELECT table_name FROM information_schema.tables": "visits",
    "SELECT relname FROM pg_catalog.pg_class": "visits",
    "SELECT reltuples FROM pg_class": "61",
    "SELECT * FROM sqlite_master": "visits",
    "SELECT sql FROM duckdb_tables()": "note",
    "SELECT column_name FROM duckdb_columns()": "note",
    "SELECT STATS(note) FROM visits LIMIT 1": CANARY[:8],
}
FORMS = ["{}", "SELECT COUNT(*) AS n, (SELECT COUNT(*) FROM ({})) AS m FROM visits"]


@pytest.mark.parametrize("sql", CATALOG)
def test_the_catalog_tells_exact_numbers_where_it_may_be_asked(sql):
    naive = Rewriter(visits=visits(eve(age=99)))
    naive._engine.execute("ANALYZE")
    shown = str(naive._engine.execute(sql).fetchall())
    assert CATALOG[sql] in shown


@pytest.mark.parametrize("sql", CATALOG)
def test_catalog_and_statistics_are_out_of_reach(sql, both):
    for form in FORMS:
        assert is_refused(*both, sql=form.format(sql))


def test_explain_tells_the_plan_and_reads_no_row(both):
    sql = "EXPLAIN SELECT ward, SUM(cost) AS s FROM visits GROUP BY ward"
    shown = [each.sql(sql, epsilon=1) for each in both]
    assert shown[0].table == shown[1].table
    assert [answer.cost.epsilon for answer in shown] == [0, 0]


# names

HIDDEN = [
    "NAME", "Name", '"nAmE"', "visits.NAME", 'VISITS."Name"', "\uff4e\uff41\uff4d\uff45", "n\u0430me",
    '"name\u200b"', '"name\u0301"', '" name"', "main.visits.NAME", "COLUMNS('(?i)name')",
    "visits['NAME']", "STRUCT_EXTRACT(visits, 'NAME')",
]  # fmt: skip


def test_capitals_lead_around_a_list_of_words():
    naive = Rewriter(visits=visits(eve(age=99)))
    with pytest.raises(PermissionError):
        naive.sql("SELECT name, COUNT(*) FROM visits GROUP BY name")
    for spelt in HIDDEN[:5]:
        shown = naive.sql(f"SELECT {spelt}, COUNT(*) FROM visits GROUP BY 1")
        assert CANARY in {key for key, _ in shown}


@pytest.mark.parametrize("spelt", HIDDEN)
def test_a_hidden_column_is_hidden_under_every_spelling(spelt, both):
    for sql in (
        f"SELECT {spelt}, COUNT(*) FROM visits GROUP BY 1",
        f"SELECT COUNT(*) FROM visits WHERE {spelt} = '{CANARY}'",
        f"SELECT COUNT(DISTINCT {spelt}) FROM visits",
        f"SELECT COUNT(*) FROM (SELECT {spelt} AS ward FROM visits) WHERE ward > ''",
    ):
        assert is_refused(*both, sql=sql)


def test_a_star_does_not_bring_a_hidden_column_back(both):
    for star in ("*", "visits.*", "* REPLACE (1 AS age)", "* RENAME (note AS x)", "COLUMNS(*)"):
        sql = f"SELECT COUNT(*) FROM (SELECT {star} FROM visits) WHERE name > ''"
        assert is_refused(*both, sql=sql)


def test_look_alikes_are_other_names():
    """The Kelvin sign is no K: its lower case is k for Python, but not for the engine."""
    kelvin = "\N{KELVIN SIGN}"
    rows = pa.table({"k": [0.0] * 40, kelvin: [1.0] * 40})
    terms = {"between": [0, 1]}
    mine = ng.open(rows, table="t", epsilon=99, columns={"k": terms, kelvin: terms})
    for name, total in (("k", 0), ("K", 0), (kelvin, 40)):
        sql = f'SELECT SUM("{name}") AS s FROM t'
        ((measurement, exact),) = measured(mine, mine.plan(sql, epsilon=1))
        (term,) = measurement.query.tally.terms
        assert exact[0][0] * term.grain == total
    hidden = ng.open(rows, table="t", epsilon=99, columns={"k": terms, kelvin: {"hidden": True}})
    assert is_refused(hidden, sql=f'SELECT SUM("{kelvin}") AS s FROM t')


@pytest.mark.parametrize(
    "name",
    ["noisegate_0", "NoiseGate_0", "NOISEGATE_1", "noisegate_\u0660", "frame0", "keys0", "o"],
)
def test_no_name_of_ours_can_be_taken_or_seen(name, both):
    assert is_refused(*both, sql=f"SELECT * FROM {name}")
    assert is_refused(*both, sql=f"SELECT COUNT(*) FROM visits, {name}")
    assert is_refused(*both, sql=f"SELECT COUNT(*) AS n, (SELECT COUNT(*) FROM {name}) FROM visits")


def test_a_cte_does_not_put_its_name_on_a_private_table():
    here, there = worlds(eve(age=99))
    sql = "WITH visits AS (SELECT * FROM visits WHERE age = 99) SELECT COUNT(*) AS n FROM visits"
    assert loss(here, there, sql) <= 1
    assert is_refused(here, sql="WITH visits AS (SELECT 1 AS x) SELECT * FROM main.visits")


NASTY = [
    "north'); DROP VIEW visits; --",
    'a"b',
    "x'y",
    "\\",
    "%",
    "--",
    "/*",
    ";",
    "\u00e9",
    "$1",
    "?",
]


@pytest.mark.parametrize("nasty", NASTY)
def test_names_and_keys_are_never_run_as_sql(nasty):
    rows = pa.table({"who": ["a", "b"] * 5, nasty: [nasty] * 10, "secret": [CANARY] * 10})
    columns = {nasty: {"in": [nasty, "other"]}, "secret": {"hidden": True}}
    table = nasty if not {"/", "\\"} & {*nasty} else "t"  # a name that reads like a path is refused
    mine = ng.open(rows, table=table, epsilon=99, columns=columns)
    quoted, table = ('"' + name.replace('"', '""') + '"' for name in (nasty, table))
    text = "'" + nasty.replace("'", "''") + "'"
    for sql, exact_counts in (
        (f"SELECT {quoted} AS k, COUNT(*) AS n FROM {table} GROUP BY 1", [10, 0]),
        (f"SELECT COUNT(*) AS n FROM {table} WHERE {quoted} = {text}", [10]),
    ):
        ((_, exact),) = measured(mine, mine.plan(sql, epsilon=1))
        assert exact[0].tolist()[: len(exact_counts)] == exact_counts
        answer = mine.sql(sql, epsilon=1)
        assert CANARY not in str(answer.table.to_pylist())
        assert answer.table.num_rows == len(exact_counts)


# several statements

STACKED = [
    "SELECT COUNT(*) FROM visits; SELECT NOTE FROM visits",
    "SELECT COUNT(*) FROM visits;SELECT NOTE FROM visits;",
    "SELECT COUNT(*) FROM visits; -- one\nSELECT NOTE FROM visits",
    "SELECT COUNT(*) FROM visits; /* ; */ FROM visits SELECT NOTE",
    "SELECT 1; DELETE FROM visits WHERE age < 99; SELECT NOTE FROM visits",
    "SELECT COUNT(*) FROM visits; PREPARE q AS SELECT NOTE FROM visits; EXECUTE q",
    "SELECT COUNT(*) FROM visits; CREATE MACRO f() AS TABLE SELECT NOTE FROM visits; FROM f()",
]
UNFINISHED = [
    "BEGIN; SELECT COUNT(*) FROM visits",
    "SELECT COUNT(*) FROM visits; COMMIT",
    "PREPARE q AS SELECT COUNT(*) FROM visits",
    "EXECUTE q",
    "SELECT COUNT(*) FROM visits WHERE note = ''; DROP TABLE visits; --'",
    "SELECT COUNT(*) FROM visits WHERE note = $1",
    "SELECT COUNT(*) FROM visits WHERE note = ?",
    "SELECT COUNT(*) FROM visits WHERE note = $$a$$; SELECT 1",
    "SELECT COUNT(*) FROM visits \x00; SELECT note FROM visits",
    "SELECT COUNT(*) FROM visits \u037e SELECT note FROM visits",
    "EXPLAIN SELECT COUNT(*) FROM visits; SELECT note FROM visits",
    "EXPLAIN ANALYZE SELECT COUNT(*) FROM visits",
    "SELECT COUNT(*) FROM visits INTO OUTFILE 'x'",
    "WITH d AS (DELETE FROM visits RETURNING *) SELECT COUNT(*) FROM d",
    "",
    ";",
    ";;",
]


@pytest.mark.parametrize("sql", STACKED)
def test_a_second_statement_is_not_noised_where_only_the_first_is_read(sql):
    naive = Rewriter(visits=visits(eve(age=99)))
    assert CANARY in str(naive.sql(sql))


@pytest.mark.parametrize("sql", [*STACKED, *UNFINISHED])
def test_only_one_statement_is_taken(sql, both):
    assert is_refused(*both, sql=sql)


def test_a_semicolon_at_the_end_or_in_a_text_is_no_second_statement(both):
    for sql in (
        "SELECT COUNT(*) AS n FROM visits;",
        "SELECT COUNT(*) AS n FROM visits WHERE note = 'a; SELECT 1'",
    ):
        assert seen(both[0], sql)[0] == "answer"
