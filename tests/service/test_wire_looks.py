# ruff: noqa: ISC004, Q003 - statements as they are sent
"""Tools look before they ask: each statement as such tools send it, and no budget ever moves."""

import time
from datetime import UTC, datetime
from types import SimpleNamespace

import psycopg
import pytest

import noisegate
from noisegate.root import made_up_rows
from noisegate.server.wire.statements import read

NOTICE = ("message_primary", "message_detail", "message_hint", "sqlstate")
CATALOGUE = (  # answered from declared facts
    "SELECT version()",
    "select pg_catalog.version()",
    "SHOW TRANSACTION ISOLATION LEVEL",
    "show standard_conforming_strings",
    "SELECT current_schema()",
    "SELECT CURRENT_USER, session_user, current_database(), current_schemas(true)",
    "SELECT current_setting('server_version_num')",
    "SELECT set_config('bytea_output','hex',false) FROM pg_show_all_settings() WHERE name = 'bytea_output'",
    "SELECT t.oid, typarray FROM pg_type t JOIN pg_namespace ns ON typnamespace = ns.oid WHERE typname = 'int8'",
    "SELECT nspname FROM pg_catalog.pg_namespace WHERE nspname NOT LIKE 'pg\\_%' ORDER BY nspname",
    "SELECT now(), current_timestamp AS t, current_date, localtimestamp, now() - interval '1 day', now()::text",
    # JDBC
    "SELECT current_database() AS TABLE_CATALOG, n.nspname AS TABLE_SCHEM, c.relname AS TABLE_NAME, "
    "CASE n.nspname ~ '^pg_' OR n.nspname = 'information_schema' WHEN true THEN CASE c.relkind WHEN 'r' THEN 'SYSTEM TABLE' ELSE NULL END "
    "WHEN false THEN CASE c.relkind WHEN 'r' THEN 'TABLE' WHEN 'v' THEN 'VIEW' ELSE NULL END ELSE NULL END AS TABLE_TYPE, d.description AS REMARKS "
    "FROM pg_catalog.pg_namespace n, pg_catalog.pg_class c LEFT JOIN pg_catalog.pg_description d ON (c.oid = d.objoid AND d.objsubid = 0 and d.classoid = 'pg_class'::regclass) "
    "WHERE c.relnamespace = n.oid ORDER BY TABLE_TYPE,TABLE_SCHEM,TABLE_NAME",
    "SELECT string_agg(word, ',') FROM pg_catalog.pg_get_keywords() WHERE word <> ALL ('{a,abs,all}'::text[])",
    # DBeaver
    "SELECT db.oid,db.* FROM pg_catalog.pg_database db WHERE datallowconn AND NOT datistemplate",
    "SELECT n.oid,n.*,d.description FROM pg_catalog.pg_namespace n LEFT OUTER JOIN pg_catalog.pg_description d ON d.objoid=n.oid AND d.objsubid=0 AND d.classoid='pg_namespace'::regclass ORDER BY nspname",
    "SELECT c.oid,c.*,d.description,pg_catalog.pg_get_expr(c.relpartbound, c.oid) as partition_expr, pg_catalog.pg_get_partkeydef(c.oid) as partition_key "
    "FROM pg_catalog.pg_class c LEFT OUTER JOIN pg_catalog.pg_description d ON d.objoid=c.oid AND d.objsubid=0 AND d.classoid='pg_class'::regclass WHERE c.relnamespace=2200 AND c.relkind not in ('i','I','c')",
    # Metabase
    "SELECT nc.nspname AS schema, c.relname AS name, CASE c.relkind WHEN 'r' THEN 'TABLE' WHEN 'p' THEN 'PARTITIONED TABLE' ELSE NULL END AS type, d.description AS description, NULLIF(stat.n_live_tup, 0) AS estimated_row_count "
    "FROM pg_catalog.pg_class AS c INNER JOIN pg_catalog.pg_namespace AS nc ON c.relnamespace = nc.oid LEFT JOIN pg_catalog.pg_description AS d ON c.oid = d.objoid AND d.objsubid = 0 AND d.classoid = 'pg_class'::regclass "
    "LEFT JOIN pg_stat_user_tables AS stat ON nc.nspname = stat.schemaname AND c.relname = stat.relname WHERE c.relnamespace = nc.oid AND nc.nspname !~ '^pg_' AND nc.nspname <> 'information_schema' AND c.relkind IN ('r', 'p', 'v', 'f', 'm')",
    "SELECT c.column_name AS name, c.udt_name AS \"database-type\", c.ordinal_position - 1 AS \"database-position\", c.table_schema AS \"table-schema\", c.table_name AS \"table-name\" "
    "FROM information_schema.columns AS c WHERE c.table_schema !~ '^information_schema|catalog_history|pg_' ORDER BY 4, 5, 3",
    "with table_privileges as (select NULL as role, t.schemaname as schema, t.objectname as table, "
    "pg_catalog.has_table_privilege(current_user, '\"' || replace(t.schemaname, '\"', '\"\"') || '\"', 'SELECT') as select, "
    "pg_catalog.has_table_privilege(current_user, t.objectname, 'delete') as delete from (select schemaname, tablename as objectname from pg_catalog.pg_tables) t "
    "where t.schemaname !~ '^pg_') select t.* from table_privileges t",
    # DataGrip, pgAdmin
    "select round(extract(epoch from pg_postmaster_start_time() at time zone 'UTC')) as startup_time",
    "select case when pg_catalog.pg_is_in_recovery() then null else (pg_catalog.txid_current() % 4294967296)::varchar::bigint end as current_txid",
    "select max(L.transactionid::varchar::bigint) from pg_catalog.pg_locks L where L.transactionid is not null and pg_catalog.age(L.transactionid) > 3",
    "select T.relkind as table_kind, T.oid as table_id, T.xmin as table_state_number from pg_catalog.pg_class T where relnamespace = 2200::oid and T.xmin::varchar::bigint < 5",
    "SELECT count(*), bool_or(gss_authenticated) FROM pg_catalog.pg_stat_gssapi WHERE pid = pg_backend_pid()",
    # Tableau, Power BI
    "select TABLE_CATALOG, TABLE_SCHEMA, TABLE_NAME, TABLE_TYPE from INFORMATION_SCHEMA.tables where TABLE_SCHEMA not in ('information_schema', 'pg_catalog') order by TABLE_SCHEMA, TABLE_NAME",
    "select COLUMN_NAME, ORDINAL_POSITION, IS_NULLABLE, case when (data_type like '%unsigned%') then DATA_TYPE || ' unsigned' else DATA_TYPE end as DATA_TYPE from INFORMATION_SCHEMA.columns where TABLE_SCHEMA = 'public' and TABLE_NAME = 'visits'",
)  # fmt: skip
PREVIEWS = (  # rows of the practice twin
    "SELECT * FROM visits LIMIT 100",
    'SELECT * FROM "public"."visits" LIMIT 0',
    'SELECT * FROM "visits" AS "q01" WHERE (0 = 1)',
    "SELECT * FROM (SELECT * FROM visits) SPARK_GEN_SUBQ_0 WHERE 1=0",
    "SELECT x.* FROM public.visits x LIMIT 200",
    "SELECT * FROM visits ORDER BY RANDOM() LIMIT 10",
    "SELECT * FROM visits TABLESAMPLE SYSTEM (10)",
    "SELECT ward AS ward, cost AS cost FROM public.visits LIMIT 1000",
    'SELECT SUBSTRING("public"."patients"."town", 1, 1234) AS "substring1", "public"."patients"."birth_year" AS "birth_year" FROM "public"."patients" LIMIT 10000',
    'SELECT TRUE AS "_" FROM "public"."visits" WHERE 1 <> 1 LIMIT 0',
    'SELECT * FROM (SELECT ward, cost FROM visits WHERE cost > 3) "Custom SQL Query" LIMIT 1',
    "TABLE visits",
    "COPY visits TO STDOUT",
    "COPY (SELECT * FROM visits LIMIT 3) TO STDOUT (FORMAT csv, HEADER)",
    'COPY (SELECT "ward", "cost" FROM "public"."visits" WHERE ctid BETWEEN \'(0,0)\'::tid AND \'(4294967295,0)\'::tid) TO STDOUT (FORMAT "binary")',
)
SCANS = (  # the twin as well, and the price of the real one
    "SELECT COUNT(*) FROM visits",
    "select count(1) from visits",
    'SELECT COUNT(*) AS "count" FROM "public"."visits"',
    'SELECT SUM(1) AS "cnt:visits:ok" FROM "public"."visits" "visits" HAVING (COUNT(1) > 0)',
    "SELECT DISTINCT ward FROM visits",
    "SELECT DISTINCT ward AS ward FROM public.visits LIMIT 10000",
    'SELECT "public"."visits"."ward" AS "ward" FROM "public"."visits" GROUP BY "public"."visits"."ward" ORDER BY "public"."visits"."ward" ASC LIMIT 1001',
    'SELECT "visits"."ward" AS "ward" FROM "public"."visits" "visits" GROUP BY 1 ORDER BY 1 ASC NULLS FIRST',
    "SELECT MIN(cost), MAX(cost) FROM visits",
    'SELECT MIN("visits"."day") AS "TEMP(a)(1)(0)", MAX("visits"."day") AS "TEMP(b)(2)(0)", COUNT(1) AS "c" FROM "public"."visits" "visits"',
    "SELECT COUNT(DISTINCT ward) FROM visits",
    "SELECT COUNT(*) FROM (SELECT * FROM visits) AS virtual_table",
    "SELECT COUNT(*) FROM (SELECT ward FROM visits GROUP BY ward) AS rowcount_qry",
    "SELECT count(*) AS total, count(distinct ward) AS wards, min(cost)::text AS low FROM clinic.public.visits WHERE ward IS NOT NULL",
)
EMPTY = (  # a question whose answer nobody wants to see
    'SELECT * FROM (SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward) "T" LIMIT 0',
    "SELECT * FROM (SELECT ward, AVG(cost) AS m FROM visits GROUP BY ward) q WHERE 1=0",
)


@pytest.fixture(scope="module")
def session(wire):
    with psycopg.connect(wire.dsn(), autocommit=True) as made:
        yield made


def looked(session, sql):
    """The rows of a statement, and its notices."""
    said = []

    def keep(notice):  # which is empty once the handler has returned
        said.append(SimpleNamespace(**{name: getattr(notice, name) for name in NOTICE}))

    session.add_notice_handler(keep)
    try:
        if sql.startswith("COPY"):
            with session.cursor().copy(sql) as copy:
                return list(copy), said
        return session.execute(sql).fetchall(), said
    finally:
        session.remove_notice_handler(keep)


@pytest.mark.parametrize("asks", ["off", "on"])
@pytest.mark.parametrize("sql", [*CATALOGUE, *PREVIEWS, *SCANS, *EMPTY])
def test_a_look_costs_nothing(wire, session, sql, asks):
    session.execute(f"SET noisegate.ask = {asks}")
    before = wire.left()
    rows, said = looked(session, sql)
    if not sql.startswith("COPY"):
        session.execute(sql, prepare=True)  # described first
    assert wire.left() == before
    if sql in CATALOGUE:
        assert rows
        assert said == []
    else:
        free = "noisegate: free" in said[0].message_primary and sql in SCANS  # declared, or known
        assert free or "made up" in said[0].message_primary
        assert said[0].sqlstate == "00000"


def test_the_time_is_that_of_the_catalogue_under_the_name_that_postgres_gives(session):
    (row,), said = looked(session, "SELECT now(), current_date")
    names = [each.name for each in session.execute("SELECT now(), current_date").description]
    assert (names, said) == (["now", "current_date"], [])
    assert abs((row[0] - datetime.now(UTC)).total_seconds()) < 60
    assert abs((row[1] - datetime.now(UTC).date()).days) <= 1


def test_a_session_may_refuse_made_up_rows(wire):
    before = wire.left()
    started = "-c noisegate.real_only=on -c noisegate.session_max=0.5"
    with psycopg.connect(wire.dsn(), autocommit=True, options=started) as session:
        session.execute("SET noisegate.session_max = 100")
        session.execute("DISCARD ALL")  # pools do that: what the connection began with stays
        assert session.execute("SHOW noisegate.session_max").fetchall() == [("0.5",)]
        for sql in ("SELECT * FROM visits LIMIT 3", "SELECT COUNT(birth_year) FROM patients"):
            with pytest.raises(psycopg.errors.FeatureNotSupported, match="made up"):
                session.execute(sql)
        assert session.execute("SELECT * FROM visits LIMIT 0").fetchall() == []
        assert len(session.execute("SELECT DISTINCT ward FROM visits").fetchall()) == 4  # declared
        session.execute("SET noisegate.real_only = off")
        assert len(session.execute("SELECT * FROM visits LIMIT 3").fetchall()) == 3
        session.execute("RESET noisegate.real_only")
        assert session.execute("SHOW noisegate.real_only").fetchall() == [("on",)]
    assert wire.left() == before


def test_a_scan_tells_the_price_of_the_real_one(session):
    (said,) = looked(session, "SELECT COUNT(birth_year) FROM patients")[1]
    assert "price ε = 0.1; count(birth_year) ± " in said.message_detail
    assert "SET noisegate.epsilon" in said.message_hint


def test_a_list_of_declared_values_is_the_declared_one(wire, session):
    rows, said = looked(session, "SELECT DISTINCT ward FROM visits ORDER BY ward")
    assert rows == [("east",), ("north",), ("south",), ("west",)]
    assert "free" in said[0].message_primary


@pytest.mark.parametrize("sql", [*PREVIEWS, *EMPTY])
def test_a_price_of_the_session_does_not_make_a_preview_a_question(wire, sql):
    """`SELECT *` and empty results are never charged, whatever was set."""
    with psycopg.connect(wire.dsn(), autocommit=True) as session:
        session.execute("SET noisegate.epsilon = 1")
        before = wire.left()
        looked(session, sql)
        assert wire.left() == before


def test_a_preview_shows_made_up_rows_and_no_others(wire, session):
    twin = made_up_rows(noisegate.open(wire.folder / "clinic.toml", practice=True))
    shown = looked(session, "SELECT visit_id, patient_id, ward, day, cost FROM visits")[0]
    columns = [twin["visits"][name].to_pylist() for name in ("visit_id", "patient_id", "ward", "day", "cost")]  # fmt: skip
    assert shown == list(zip(*columns, strict=True))
    assert looked(session, "SELECT COUNT(visit_id) FROM visits")[0] == [(len(shown),)]


def test_a_hidden_column_is_nowhere(session):
    names = [each.name for each in session.execute("SELECT * FROM patients LIMIT 1").description]
    assert names == ["patient_id", "birth_year", "sex", "town"]
    sql = (
        "SELECT attname FROM pg_attribute UNION SELECT column_name FROM information_schema.columns"
    )
    assert ("name",) not in session.execute(sql).fetchall()
    with pytest.raises(psycopg.Error):
        session.execute("SELECT name FROM patients LIMIT 1")


def test_no_table_says_how_many_rows_it_has(session):
    sql = "SELECT DISTINCT reltuples, relpages FROM pg_class WHERE relkind = 'r'"
    assert session.execute(sql).fetchall() == [(-1.0, 0)]
    assert session.execute("SELECT n_live_tup FROM pg_stat_user_tables").fetchall() == []
    assert session.execute("SELECT pg_relation_size('visits')").fetchall() == [(None,)]


def test_public_rows_are_exact_and_free(wire, session):
    before = wire.left()
    rows, said = looked(session, "SELECT class, COUNT(*) AS n FROM public.drugs GROUP BY class ORDER BY class")  # fmt: skip
    exact = wire.gate().door.public("drugs").to_pylist()
    kinds = [row["class"] for row in exact]
    assert rows == sorted({(kind, kinds.count(kind)) for kind in kinds})
    assert wire.left() == before
    assert "free" in said[0].message_primary


@pytest.mark.parametrize(
    ("sql", "state"),
    [
        ("SELECT * FROM nowhere", "42P01"),
        ("SELECT * FROM pg_nothing", "42P01"),
        ("SELECT * FROM information_schema.nothing", "42P01"),
        ("SELECT pg_read_file('/etc/passwd')", "42883"),
        ("SELECT getenv('HOME')", "42883"),
        ("SELECT * FROM read_csv('/etc/passwd')", "42883"),
        ("SELECT * FROM duckdb_settings()", "42883"),
        ("SELECT * FROM '/etc/passwd'", "42P01"),
        ("SELECT repeat('x', 1000000000)", "42883"),
        ("SELECT COUNT(*) FROM visits, pg_class", "42P01"),
        ("SELECT * FROM visits, duckdb_settings()", "0A000"),
        ("SELECT nope FROM visits", "0A000"),
        ("SELEC 1", "25006"),
        ("SELECT FROM WHERE", "42601"),
        ('CREATE LOCAL TEMPORARY TABLE "#Tableau_1_Connect" (COL INTEGER)', "25006"),
        ("INSERT INTO visits VALUES (1)", "25006"),
        ("DROP TABLE visits", "25006"),
        ("COPY visits FROM STDIN", "25006"),
        ("COPY visits TO 'x.csv'", "25006"),
        ("COPY visits TO PROGRAM 'sh'", "25006"),
        ("SELECT * INTO other FROM visits", "0A000"),
        ("SHOW nothing.of.the.kind", "42704"),
        ("SET noisegate.nothing = 1", "42704"),
        ("SET noisegate.epsilon = 'much'", "22023"),
        ("SET noisegate.epsilon = -1", "22023"),
        ("SET noisegate.margins = perhaps", "22023"),
        ("SET ROLE sam", "0A000"),
        ("SET SESSION AUTHORIZATION sam", "0A000"),
        ("SELECT set_config('noisegate.epsilon', '1', false)", "0A000"),
        ("PREPARE x AS SELECT 1", "25006"),
    ],
)  # fmt: skip
def test_what_is_not_possible_is_refused_with_a_state(wire, session, sql, state):
    before = wire.left()
    with pytest.raises(psycopg.Error) as refused:
        session.execute(sql)
    assert refused.value.sqlstate == state
    assert refused.value.diag.message_hint
    assert wire.left() == before


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT " + "(" * 4000 + "1" + ")" * 4000,
        "SELECT " + "+".join(["1"] * 4000),
        "SELECT " + "NOT " * 2000 + "true",
        "SELECT a" + "[1]" * 1200 + " FROM visits",
        "SELECT " + "a" * 200_000,
        "SELECT " + "a." * 2000 + "b FROM visits",
        "SELECT COUNT(*) FROM visits WHERE " + "(" * 3000 + "cost > 1" + ")" * 3000,
        "SELECT generate_series(1, 10000000000)",
        "SELECT lpad('x', 2000000000)",
        "SELECT range(10000000000)",
        "SELECT * FROM generate_series(1, 1000000000000)",
        "SELECT array_agg(a) FROM generate_series(1, 100000000) AS t(a)",
        "SELECT * FROM visits a, visits b, visits c, visits d",
        "SELECT replace(replace('A', 'a', 'A'), 'a', 'A') FROM pg_class".replace("A", "a" * 999),
        "SELECT relname AS a0, "
        + ", ".join(f"a{n} || a{n} AS a{n + 1}" for n in range(26))
        + " FROM pg_class",
    ],
    ids=lambda sql: sql[:24],
)
def test_a_statement_that_is_too_much_is_refused_soon(wire, session, sql):
    begun, before = time.monotonic(), wire.left()
    with pytest.raises(psycopg.Error) as refused:
        session.execute(sql)
    assert refused.value.sqlstate in ("54000", "42601", "42883", "0A000")
    assert time.monotonic() - begun < 8
    assert session.execute("SELECT 1").fetchone() == (1,)
    assert wire.left() == before


def test_a_doubtful_form_is_taken_for_a_question_and_never_for_free(wire):
    """What gathers private rows is a question, however it is written."""
    tables = wire.gate().tables
    for sql in (
        "SELECT ward, COUNT(*) FROM visits GROUP BY ward",
        "SELECT AVG(cost) FROM visits",
        "SELECT COUNT(*) FROM visits WHERE cost > 100",
        "SELECT COUNT(*) FROM visits JOIN patients USING (patient_id)",
        "SELECT COUNT(*) FROM (SELECT * FROM visits WHERE cost > 5) q",
        "SELECT SUM(cost) FROM visits",
        "SELECT COUNT(*) FROM visits HAVING COUNT(*) > 5",
        "WITH t AS (SELECT * FROM visits) SELECT COUNT(*) FROM t",
        "SELECT COUNT(*) FROM visits UNION ALL SELECT COUNT(*) FROM patients",
    ):
        assert read(sql, tables, "clinic").form == "aggregate", sql


@pytest.mark.parametrize(
    "sql",
    [
        "WITH visits AS (SELECT * FROM visits) SELECT COUNT(*) FROM visits v "
        "JOIN drugs d ON d.drug = v.ward",
        "WITH prescriptions AS (SELECT * FROM prescriptions) SELECT d.drug, COUNT(*) "
        "FROM prescriptions p JOIN drugs d ON d.drug = p.drug GROUP BY d.drug",
        "SELECT d.drug, COUNT(*) FROM (WITH prescriptions AS (SELECT 1 AS x) "
        "SELECT * FROM prescriptions) z, prescriptions p JOIN drugs d ON d.drug = p.drug "
        "GROUP BY d.drug",
        'WITH "Visits" AS (SELECT * FROM visits) SELECT COUNT(*) FROM "Visits" v '
        "JOIN drugs d ON d.drug = v.ward",
    ],
    ids=["itself", "groups", "elsewhere", "letters"],
)
def test_a_with_that_hides_a_table_makes_no_question_free(wire, sql):
    before = wire.left()
    with psycopg.connect(wire.dsn(), autocommit=True) as fresh, pytest.raises(psycopg.Error):
        fresh.execute(sql)
    assert wire.left() == before


def test_a_table_with_its_schema_is_not_read_from_a_with(wire, session):
    before = wire.left()
    for sql in (
        "WITH patients AS (SELECT 1 AS one) SELECT COUNT(*) FROM public.patients",
        "WITH drugs AS (SELECT 1 AS one) SELECT (SELECT COUNT(*) FROM drugs) AS a, "
        "(SELECT COUNT(*) FROM public.drugs) AS b",
    ):
        with pytest.raises(psycopg.errors.FeatureNotSupported, match="another name"):
            session.execute(sql)
    assert wire.left() == before
