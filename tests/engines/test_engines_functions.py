"""Every function on rows, on every engine: the same values, or a refusal before rows are read."""

import random
from contextlib import suppress

import psycopg
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


@settings(max_examples=12, phases=[Phase.reuse, Phase.generate])
@given(seed=st.integers(0, (1 << 64) - 1))
def test_random_expressions_have_the_same_values_on_all_engines(table, seed):
    """12 batches of 40 expressions over 12 rows: 5,760 values, but of what is refused."""
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
