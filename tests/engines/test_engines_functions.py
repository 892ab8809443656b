"""Every function on rows, on every engine: the same values, or a refusal before rows are read."""

import random
from contextlib import suppress

import psycopg
import pyarrow as pa
import pytest
import test_expression_totality as made
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from noisegate.algebra.expression import domain_of
from noisegate.algebra.functions import FUNCTIONS
from noisegate.errors import Unsupported
from noisegate.privacy.domain import Kind
from noisegate.sources.postgres.dialect import POSTGRES
from noisegate.sources.writing.expressions import write

REFUSED = {
    "power", "log2", "reverse", "strftime", "ilike", "regexp_matches", "regexp_full_match",
    "regexp_extract", "regexp_replace",
}  # fmt: skip
COLUMNS = {
    Kind.INTEGER: "bigint", Kind.NUMBER: "double precision", Kind.BOOLEAN: "boolean",
    Kind.TEXT: 'text COLLATE "C"', Kind.DATE: "date", Kind.TIMESTAMP: "timestamp",
}  # fmt: skip


@pytest.fixture(scope="module")
def table(shared_database):
    """A table of the generator's columns, and the connection that reads it."""
    columns = ", ".join(f'"{name}" {COLUMNS[d.kind]}' for name, d in made.SCHEMA.items())
    name = f"{shared_database.schema}.rows"
    shared_database.owner.execute(f"CREATE TABLE {name} ({columns})")
    shared_database.owner.execute("SET timezone = 'UTC'")
    return shared_database.owner, name


def on_postgres(table, rows, expressions):
    """What Postgres says of each expression; None of one that it refuses."""
    connection, name = table
    connection.execute(f"TRUNCATE {name}")
    with connection.cursor() as cursor, cursor.copy(f"COPY {name} FROM STDIN") as copy:
        for row in rows:
            copy.write_row(list(row.values()))
    found = []
    for expression in expressions:
        try:
            written = POSTGRES.text(write(expression, made.SCHEMA, made.field, POSTGRES))
        except Unsupported:
            found.append(None)
            continue
        try:
            values = connection.execute(f"SELECT {written} FROM {name}".encode()).fetchall()
        except psycopg.Error as error:
            raise AssertionError(f"{expression}\n{written}\n{error}") from None
        found.append([value for (value,) in values])
    return found


def require_equal(table, rows, expressions):
    """How many of the expressions both engines compute, and that they agree on these."""
    _, reference = made.run(rows, expressions)
    others = on_postgres(table, rows, expressions)
    for expression, expected, values in zip(
        expressions, zip(*reference, strict=True), others, strict=True
    ):
        for row, one, other in zip(rows, expected, values or expected, strict=True):
            assert one == other, (expression, row, one, other)
            assert type(one) is type(other), (expression, row)
    return [e for e, values in zip(expressions, others, strict=True) if values is not None]


@settings(max_examples=6, phases=[Phase.reuse, Phase.generate])
@given(seed=st.integers(0, (1 << 64) - 1))
def test_random_expressions_have_the_same_values_on_all_engines(table, seed):
    """6 batches of 40 expressions over 12 rows: 2,880 values, but of what is refused."""
    chance = random.Random(seed)
    rows = made.make_rows(chance)
    kinds = chance.choices(list(Kind), k=40)
    depths = chance.choices([1, 2, 3], [12, 6, 2], k=40)
    require_equal(
        table, rows, [made.tree(chance, *pair) for pair in zip(kinds, depths, strict=True)]
    )


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_each_function_has_the_same_values_or_is_refused(table, name):
    chance = random.Random(name)
    rows, calls = made.make_rows(chance), []
    kinds = [kind for kind, names in made.RESULTS.items() if name in names]
    while len(calls) < 20:
        call = made.call_of(chance, name, 1, chance.choice(kinds))
        with suppress(Unsupported):
            domain_of(call, made.SCHEMA)
            calls.append(call)
    said = require_equal(table, rows, calls)
    assert bool(said) == (name not in REFUSED)


REFUSED_BY = {"Spark": REFUSED - {"power"}, "DataFusion": REFUSED - {"power", "log2"}}
STORED = {
    Kind.INTEGER: pa.int64(), Kind.NUMBER: pa.float64(), Kind.BOOLEAN: pa.bool_(),
    Kind.TEXT: pa.string(), Kind.DATE: pa.date32(), Kind.TIMESTAMP: pa.timestamp("us"),
}  # fmt: skip


@pytest.fixture(scope="module", params=["sail", "fusion"])
def columnar(request):
    """An engine that computes many expressions in one statement."""
    return request.getfixturevalue(request.param)


def same(_expression, one, other):
    return one == other


def require_equal_columns(engine, rows, expressions):
    """Those that it computes, which is done in one statement, and that they are equal."""
    _, reference = made.run(rows, expressions)
    said = []
    for expression, expected in zip(expressions, zip(*reference, strict=True), strict=True):
        with suppress(Unsupported):
            text = engine.dialect.text(write(expression, made.SCHEMA, made.field, engine.dialect))
            said.append((expression, expected, text))
    if not said:
        return []
    frame = pa.table({"row number": range(len(rows)), **{
        name: pa.array([row[name] for row in rows], STORED[domain.kind])
        for name, domain in made.SCHEMA.items()
    }})  # fmt: skip
    found = engine.ask(frame, [text for *_, text in said])
    for (expression, expected, text), values in zip(said, found, strict=True):
        for row, one, other in zip(rows, expected, values, strict=True):
            assert same(expression, one, other), (expression, row, one, other, text)
            assert type(one) is type(other), (expression, row)
    return [expression for expression, *_ in said]


@settings(max_examples=2, phases=[Phase.reuse, Phase.generate])
@given(seed=st.integers(0, (1 << 64) - 1))
def test_random_expressions_have_the_same_values_in_columns(columnar, seed):
    """2 batches of 30 expressions over 12 rows: 720 values, but of what is refused."""
    chance = random.Random(seed)
    rows = made.make_rows(chance)
    kinds = chance.choices(list(Kind), k=30)
    depths = chance.choices([1, 2, 3], [12, 6, 2], k=30)
    trees = [made.tree(chance, *pair) for pair in zip(kinds, depths, strict=True)]
    require_equal_columns(columnar, rows, trees)


def test_each_function_has_the_same_values_in_columns_or_is_refused(columnar):
    """Eight calls of each function, a dozen functions in a statement."""
    names, said = sorted(FUNCTIONS), set()
    for first in range(0, len(names), 12):
        chance = random.Random(first)
        rows, calls = made.make_rows(chance), []
        for name in names[first : first + 12]:
            kinds = [kind for kind, listed in made.RESULTS.items() if name in listed]
            wanted = len(calls) + 8
            while len(calls) < wanted:
                call = made.call_of(chance, name, 1, chance.choice(kinds))
                with suppress(Unsupported):
                    domain_of(call, made.SCHEMA)
                    calls.append(call)
        said |= {call.function for call in require_equal_columns(columnar, rows, calls)}
    assert set(names) - said == REFUSED_BY[columnar.name]
