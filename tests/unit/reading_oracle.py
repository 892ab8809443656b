"""Tables, and an exact interpreter of questions that shares no code with the engine's writers."""

from fractions import Fraction
from math import isclose

import duckdb
from sqlglot import exp

from noisegate.algebra.expression import domain_of
from noisegate.algebra.relation import (
    Among,
    Filter,
    Fold,
    Join,
    JoinKind,
    Matching,
    Partnered,
    PerUnit,
    Project,
    Table,
    Windowed,
)
from noisegate.algebra.schema import schema_of
from noisegate.privacy.domain import Column, Kind, Step, TableDomain
from noisegate.privacy.unit import PrivacyUnit
from noisegate.sources.duckdb.dialect import write
from noisegate.sql.question import Function
from noisegate.sql.reading.reader import read

PATIENT = PrivacyUnit(column="patient_id", noun="patient", ids="patient")
DAYS = (Fraction(-30_000), Fraction(30_000))


def table(name, unit, *columns, **more):
    return TableDomain(
        dataset="d", name=name, unit=unit, columns={one.name: one for one in columns}, **more
    )


def column(name, kind=Kind.TEXT, **more):
    if "between" in more:
        more["between"] = tuple(map(Fraction, more["between"]))
    return Column(name=name, kind=kind, **more)


TABLES = {
    one.name: one
    for one in (
        table(
            "patients", PATIENT,
            column("patient_id", Kind.INTEGER),
            column("region", keys=("north", "south")),
            column("age", Kind.INTEGER, between=(0, 120)),
            column("weight", Kind.NUMBER, between=(0, 200)),
            column("born", Kind.DATE, between=DAYS),
            column("smoker", Kind.BOOLEAN),
            column("name"),
        ),
        table(
            "visits", PATIENT,
            column("visit_id", Kind.INTEGER),
            column("patient_id", Kind.INTEGER, hidden=True),
            column("code", nullable=False),
            column("cost", Kind.NUMBER, between=(0, 1000)),
            column("seen", Kind.TIMESTAMP),
        ),
        table(
            "bills", PATIENT,
            column("visit_id", Kind.INTEGER),
            column("amount", Kind.NUMBER, between=(0, 1000)),
            path=(Step(column="visit_id", table="visits", key="visit_id"),),
        ),
        table(
            "notes", PATIENT, column("pid", Kind.INTEGER), column("words", Kind.INTEGER),
            path=(Step(column="pid", table="patients", key="patient_id"),),
        ),
        table("codes", None, column("code", nullable=False), column("chapter"), key=("code",)),
        table("regions", None, column("region"), column("country"), key=("region",)),
        table(
            "survey", PrivacyUnit(column=None), column("code", nullable=False),
            column("score", Kind.INTEGER, between=(0, 10)),
        ),
        table("doctors", PrivacyUnit(column="doctor_id", noun="doctor"), column("doctor_id", Kind.INTEGER)),
    )
}  # fmt: skip

ROWS = """
CREATE TABLE patients (patient_id BIGINT, region VARCHAR, age BIGINT, weight DOUBLE, born DATE, smoker BOOLEAN, name VARCHAR);
INSERT INTO patients VALUES
 (1, 'north', 34, 70.5, '1990-02-03', true, 'Ann Lee'), (2, 'south', 51, 82.25, '1973-07-31', false, ' bob '),
 (3, 'north', 7, NULL, '2017-12-25', NULL, 'Cy%'), (4, NULL, 88, 64.0, NULL, true, NULL),
 (5, 'south', NULL, 91.75, '1969-12-31', false, 'Dee_Émile'), (6, 'south', 51, 55.5, '1973-01-01', true, '');
CREATE TABLE visits (visit_id BIGINT, patient_id BIGINT, code VARCHAR, cost DOUBLE, seen TIMESTAMP);
INSERT INTO visits VALUES
 (10, 1, 'A1', 10.5, '2024-01-05 08:30:00'), (11, 1, 'B2', 20.0, '2024-02-06 23:15:00'), (12, 1, 'A1', NULL, '2024-02-29 12:00:00'),
 (13, 2, 'A1', 100.0, '2023-12-31 23:59:59'), (14, 2, 'Z9', 5.0, NULL), (15, 3, 'B2', 7.0, '2024-05-05 05:05:05'),
 (16, 6, 'A2', 50.0, '2024-06-06 06:06:06'), (17, 6, 'A1', 50.0, '2024-06-07 06:06:06');
CREATE TABLE bills (visit_id BIGINT, amount DOUBLE);
INSERT INTO bills VALUES (10, 1.0), (10, 2.0), (13, 4.0), (15, 8.0), (17, 16.0);
CREATE TABLE notes (pid BIGINT, words BIGINT);
INSERT INTO notes VALUES (1, 3), (1, 5), (2, 8), (5, 13);
CREATE TABLE codes (code VARCHAR, chapter VARCHAR);
INSERT INTO codes VALUES ('A1', 'A'), ('A2', 'A'), ('B2', 'B'), ('C3', NULL);
CREATE TABLE regions (region VARCHAR, country VARCHAR);
INSERT INTO regions VALUES ('north', 'X'), ('south', 'Y'), ('east', 'Y');
CREATE TABLE survey (code VARCHAR, score BIGINT);
INSERT INTO survey VALUES ('A1', 3), ('A1', 4), ('C3', 9), ('Q', NULL);
"""
OWNERS = {
    "patients": "SELECT *, patient_id AS _owner FROM patients",
    "visits": "SELECT *, patient_id AS _owner FROM visits",
    "bills": "SELECT b.*, v.patient_id AS _owner FROM bills b JOIN visits v USING (visit_id)",
    "notes": "SELECT *, pid AS _owner FROM notes",
    "survey": "SELECT *, row_number() OVER () AS _owner FROM survey",
}


def database():
    con = duckdb.connect()
    con.execute(ROWS)
    return con


def sql_of(expression, schema, alias):
    return write(expression, schema, lambda name: exp.column(name, table=alias, quoted=True)).sql(
        "duckdb"
    )


def listed(names, alias):
    return "".join(f'{alias}."{name}", ' for name in names)


def is_private(relation):
    if type(relation) is Table:
        return not relation.domain.is_public
    below = getattr(relation, "parts", None) or [
        getattr(relation, part) for part in ("of", "left", "right") if hasattr(relation, part)
    ]
    return any(map(is_private, below))


def paired(relation, one, other, left, right):
    on = [
        f"{sql_of(a, schema_of(one), left)} = {sql_of(b, schema_of(other), right)}"
        for a, b in relation.on
    ]
    if is_private(one) and is_private(other):
        on.append(f"{left}._owner = {right}._owner")
    return " AND ".join(on)


def relation_sql(relation):  # noqa: PLR0911 - one case after the other
    """SQL that computes the relation exactly, with a column _owner."""
    if type(relation) is Table:
        name = relation.domain.name
        return OWNERS.get(name, f"SELECT *, NULL AS _owner FROM {name}")
    if type(relation) is Filter:
        condition = sql_of(relation.condition, schema_of(relation.of), "x")
        return f"SELECT * FROM ({relation_sql(relation.of)}) x WHERE {condition}"
    if type(relation) is Project:
        below = schema_of(relation.of)
        items = "".join(f'{sql_of(e, below, "x")} AS "{n}", ' for n, e in relation.columns)
        return f"SELECT {items} x._owner FROM ({relation_sql(relation.of)}) x"
    if type(relation) is Join:
        word = "LEFT JOIN" if relation.kind is JoinKind.LEFT else "JOIN"
        columns = listed(schema_of(relation.left), "l") + listed(schema_of(relation.right), "r")
        return (
            f"SELECT {columns} l._owner FROM ({relation_sql(relation.left)}) l {word} "
            f"({relation_sql(relation.right)}) r ON {paired(relation, relation.left, relation.right, 'l', 'r')}"
        )
    if type(relation) is Matching:
        word = "NOT EXISTS" if relation.negated else "EXISTS"
        on = paired(relation, relation.of, relation.other, "x", "y")
        return (
            f"SELECT * FROM ({relation_sql(relation.of)}) x WHERE {word} "
            f"(SELECT 1 FROM ({relation_sql(relation.other)}) y WHERE {on})"
        )
    if type(relation) is PerUnit:
        return per_unit_sql(relation)
    if type(relation) is Windowed:
        below = schema_of(relation.of)
        items = "".join(
            f'{window_sql(each, below)} AS "{each.name}", ' for each in relation.windows
        )
        return f"SELECT {items} x.* FROM ({relation_sql(relation.of)}) x"
    if type(relation) is Partnered:
        return partnered_sql(relation)
    return " UNION ALL ".join(
        f"SELECT {listed(schema_of(part), 'x')} x._owner FROM ({relation_sql(part)}) x"
        for part in relation.parts
    )


CALLS = {
    Fold.COUNT: "COUNT({})", Fold.COUNT_DISTINCT: "COUNT(DISTINCT {})", Fold.SUM: "SUM({})",
    Fold.MIN: "MIN({})", Fold.MAX: "MAX({})", Among.RANK: "RANK()", Among.DENSE_RANK: "DENSE_RANK()",
    Among.FIRST: "FIRST_VALUE({})", Among.LAST: "LAST_VALUE({})",
}  # fmt: skip


def fold_sql(how, expression, schema, alias, over=""):
    call = CALLS[how].format(sql_of(expression, schema, alias)) + over
    return f"COALESCE({call}, 0)" if how is Fold.SUM else call


def per_unit_sql(relation):
    below = schema_of(relation.of)
    items = [f'{sql_of(e, below, "x")} AS "{n}"' for n, e in relation.keys]
    items += [
        f'{fold_sql(one.fold, one.expression, below, "x")} AS "{one.name}"'
        for one in relation.folded
    ]
    by = ", ".join(["x._owner", *(sql_of(e, below, "x") for _, e in relation.keys)])
    select = ", ".join([*items, "x._owner"])
    return f"SELECT {select} FROM ({relation_sql(relation.of)}) x GROUP BY {by}"


def window_sql(window, below):
    """Ties are left to the engine, so questions must have none that show."""
    by = ", ".join(["x._owner", *(sql_of(e, below, "x") for e in window.keys)])
    order = [
        f"{sql_of(one.expression, below, 'x')} {'DESC' if one.descending else 'ASC'} "
        f"NULLS {'FIRST' if one.nulls_first else 'LAST'}"
        for one in window.order
    ]
    frame = ""
    if window.frame is not None:
        words = {None: ("UNBOUNDED PRECEDING", "UNBOUNDED FOLLOWING"), 0: ("CURRENT ROW",) * 2}
        ends = [
            words[end][place]
            if end in words
            else f"{abs(end)} {'PRECEDING' if end < 0 else 'FOLLOWING'}"
            for place, end in enumerate(window.frame)
        ]
        frame = f" ROWS BETWEEN {' AND '.join(ends)}"
    ordered = f" ORDER BY {', '.join(order)}" if order else ""
    return fold_sql(
        window.how, window.expression, below, "x", f" OVER (PARTITION BY {by}{ordered}{frame})"
    )


def partnered_sql(relation):
    """Pairs of numbered rows, folded by the number."""
    of, other = schema_of(relation.of), schema_of(relation.other)
    both = lambda name: exp.column(name, table="y" if name in other else "x", quoted=True)  # noqa: E731
    on = write(relation.condition, {**of, **other}, both).sql("duckdb")
    if is_private(relation.other):
        on += " AND x._owner = y._owner"
    folds = "".join(
        f', {fold_sql(one.fold, one.expression, other, "y")} AS "{one.name}"'
        for one in relation.folded
    )
    rows = f"SELECT *, row_number() OVER () AS _n FROM ({relation_sql(relation.of)})"
    found = f"SELECT x._n{folds} FROM _rows x JOIN ({relation_sql(relation.other)}) y ON {on} GROUP BY x._n"
    names = ", ".join(
        f'COALESCE(z."{one.name}", 0) AS "{one.name}"'
        if one.fold in (Fold.COUNT, Fold.COUNT_DISTINCT, Fold.SUM)
        else f'z."{one.name}"'
        for one in relation.folded
    )
    once = f"WITH _rows AS MATERIALIZED ({rows})"  # numbered once, not once for each use
    return (
        f"{once} SELECT x.* EXCLUDE (_n), {names} FROM _rows x LEFT JOIN ({found}) z ON x._n = z._n"
    )


DECIMAL = (Function.SUM, Function.QUANTILE, Function.MIN, Function.MAX)  # of decimals they are such


def aggregate_sql(aggregate, schema):
    args = [sql_of(arg, schema, "x") for arg in aggregate.args]
    if aggregate.function in DECIMAL and (scale := domain_of(aggregate.args[0], schema).scale):
        args = [f"CAST({args[0]} AS DECIMAL(38, {scale}))"]
    text = {
        Function.COUNT: "COUNT(*)",
        Function.COUNT_UNITS: "COUNT(DISTINCT x._owner)",
        Function.COUNT_DISTINCT: f"COUNT(DISTINCT {args[0] if args else ''})",
        Function.COUNT_VALUES: f"COUNT({args[0] if args else ''})",
        Function.QUANTILE: f"QUANTILE_CONT({args[0] if args else ''}, {float(aggregate.level or 0)})",
    }.get(aggregate.function, f"{aggregate.function.value}({', '.join(args)})")
    if aggregate.where is not None:
        text += f" FILTER (WHERE {sql_of(aggregate.where, schema, 'x')})"
    return f'{text} AS "{aggregate.name}"'


def release_sql(block):
    """SQL for the block's table, exact and without limits."""
    schema = schema_of(block.relation)
    keys = [sql_of(key.expression, schema, "x") for key in block.by]
    items = [f'{sql} AS "{key.name}"' for sql, key in zip(keys, block.by, strict=True)]
    items += [aggregate_sql(one, schema) for one in block.aggregates]
    if len(block.sets) > 1:
        items.append(f"GROUPING({', '.join(keys)}) AS grouping_id")
    sets = ", ".join(f"({', '.join(keys[i] for i in one)})" for one in block.sets)
    grouped = f" GROUP BY GROUPING SETS ({sets})" if block.by else ""
    select = ", ".join(items)
    return f'CREATE TEMP TABLE "{block.name}" AS SELECT {select} FROM ({relation_sql(block.relation)}) x{grouped}'


def answer(con, sql):
    """The exact answer about the tables above."""
    return exact_answer(con, sql, TABLES)


def exact_answer(con, sql, tables):
    """The exact answer by way of the question: names and rows."""
    public = lambda name: con.table(name).to_arrow_table()  # noqa: E731
    question = read(sql, tables, public, lines=True)
    for block in question.blocks:
        con.execute(release_sql(block))
        require_shown(con, block)
    result = con.execute(question.outer)
    names = [one[0] for one in result.description]
    rows = result.fetchall()
    for block in question.blocks:
        con.execute(f'DROP TABLE "{block.name}"')
    assert tuple(names) == question.columns or not question.columns
    return names, rows


def require_shown(con, block):
    """No group that has rows is left out of those that are listed."""
    for place, key in enumerate(block.by):
        if key.domain.keys is None or not all(place in one for one in block.sets):
            continue
        shown = {*key.domain.keys, *([None] if key.domain.nullable else [])}
        held = {row[0] for row in con.execute(f'SELECT {key.name} FROM "{block.name}"').fetchall()}
        assert held <= shown, (key, held - shown)


def alike(one, other):
    if isinstance(one, list):
        return isinstance(other, list) and all(map(alike, one, other))
    if isinstance(one, bool) or not isinstance(one, int | float):
        return str(one).removesuffix(" 00:00:00") == str(other).removesuffix(" 00:00:00")
    return other is not None and isclose(float(one), float(other), rel_tol=1e-12, abs_tol=1e-12)


def same_rows(one, other):
    def order(rows):
        return sorted(
            rows,
            key=lambda row: [
                (
                    v is None,
                    str(type(v) is str),
                    str(float(v)) if isinstance(v, int | float) else str(v),
                )
                for v in row
            ],
        )

    pairs = list(zip(order(one), order(other), strict=False))
    return len(one) == len(other) and all(
        len(a) == len(b) and all(map(alike, a, b)) for a, b in pairs
    )
