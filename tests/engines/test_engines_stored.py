"""Stored values of every type that is read: each has a meaning, and none can make a question fail."""

import re
from dataclasses import replace
from fractions import Fraction
from types import MappingProxyType

import duckdb
import numpy as np
import pytest

from engines import READER
from noisegate.algebra.expression import Call, Field, Literal
from noisegate.algebra.relation import Filter, Table
from noisegate.algebra.tally import Distinct, Grouping, Keys, Sums, Term, Values
from noisegate.errors import Unsupported
from noisegate.privacy.domain import Column, Kind, TableDomain
from noisegate.privacy.unit import PrivacyUnit
from noisegate.sources.duckdb.source import DuckDBSource
from noisegate.sources.postgres.server import Place
from noisegate.sources.postgres.source import PostgresSource
from refusals import about

BETWEEN = {
    Kind.INTEGER: (Fraction(-1000), Fraction(1000)),
    Kind.NUMBER: (Fraction(-1000), Fraction(1000)),
    Kind.DATE: (Fraction(-700_000), Fraction(2_900_000)),
    Kind.TIMESTAMP: (Fraction(-(10**15)), Fraction(10**17)),
}
# stored type of Postgres, values as it reads them, kind, what they mean (None: NULL)
STORED = [
    ("smallint", ["-32768", "7"], Kind.INTEGER, [-32768, 7]),
    ("bigint", ["9223372036854775807", "-9223372036854775808"], Kind.INTEGER,
     [(1 << 63) - 1, -(1 << 63)]),
    ("integer", ["3", "0"], Kind.NUMBER, [3.0, 0.0]),
    ("integer", ["3", "0"], Kind.BOOLEAN, [True, False]),
    ("integer", ["-3"], Kind.TEXT, ["-3"]),
    ("real", ["0.1", "NaN", "-Infinity", "3.4e38", "1e-45"], Kind.NUMBER,
     [0.10000000149011612, None, None, 3.3999999521443642e38, 1.401298464324817e-45]),
    ("double precision", ["NaN", "Infinity", "-0", "5e-324", "1.7976931348623157e308"],
     Kind.NUMBER, [None, None, 0.0, 5e-324, 1.7976931348623157e308]),
    ("double precision", ["2.5", "-3.5", "1e19", "NaN", "-9223372036854775808"], Kind.INTEGER,
     [2, -4, None, None, -(1 << 63)]),
    ("numeric", ["1e400", "-1e400", "1e-400", "NaN", "Infinity", "0.1"], Kind.NUMBER,
     [None, None, 0.0, None, None, 0.1]),
    ("numeric", ["1e400", "2.5", "NaN", "-Infinity", "9223372036854775808"], Kind.INTEGER,
     [None, 3, None, None, None]),
    ("numeric(10, 2)", ["12.34", "-0.01", "NaN"], Kind.NUMBER, [12.34, -0.01, None]),
    ("boolean", ["t", "f"], Kind.BOOLEAN, [True, False]),
    ("boolean", ["t", "f"], Kind.TEXT, ["true", "false"]),
    ("text", ["", "é", "a\\b'\"{},%", "👨‍👩‍👧"], Kind.TEXT, ["", "é", "a\\b'\"{},%", "👨‍👩‍👧"]),
    ("varchar(3)", ["abc"], Kind.TEXT, ["abc"]),
    ("char(5)", ["ab"], Kind.TEXT, ["ab"]),
    ("uuid", ["A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11"], Kind.TEXT,
     ["a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"]),
    ("date", ["infinity", "-infinity", "4713-01-01 BC", "0001-01-01", "9999-12-31", "10000-01-01",
              "5874897-12-31"], Kind.DATE,
     [None, None, None, "0001-01-01", "9999-12-31", None, None]),
    ("date", ["5874897-12-31", "infinity", "2020-02-29"], Kind.TIMESTAMP,
     [None, None, "2020-02-29 00:00:00"]),
    ("timestamp", ["infinity", "4713-01-01 BC", "0001-01-01", "9999-12-31 23:59:59.999999",
                   "294276-12-31"], Kind.TIMESTAMP,
     [None, None, "0001-01-01 00:00:00", "9999-12-31 23:59:59.999999", None]),
    ("timestamp", ["1969-12-31 23:59:59.999999", "infinity"], Kind.DATE, ["1969-12-31", None]),
    ("timestamptz", ["2020-01-01 00:30:00+14", "infinity", "4713-01-01 BC"], Kind.TIMESTAMP,
     ["2019-12-31 10:30:00", None, None]),
]  # fmt: skip


def source_of(database, stored, texts, kind, *, between=None, collation=""):
    name = f"t{abs(hash((stored, kind, between, tuple(texts))))}"
    table = f"{database.schema}.{name}"
    database.owner.execute(f"CREATE TABLE {table} (who bigint, x {stored} {collation})")
    database.owner.execute(f"GRANT SELECT ON {table} TO {READER}")
    for who, text in enumerate([*texts, None]):
        database.owner.execute(f"INSERT INTO {table} VALUES (%s, %s::text::{stored})", (who, text))
    column = Column(name="x", kind=kind, between=between)
    domain = TableDomain(
        dataset="d", name="t", unit=PrivacyUnit(column="who", ids="who"),
        columns=MappingProxyType({"x": column}),
    )  # fmt: skip
    return PostgresSource({"t": Place(database.url, database.schema, name)}, {"t": domain}), domain


def shown(value):
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


@pytest.mark.parametrize(("stored", "texts", "kind", "expected"), STORED)
def test_stored_values_mean_what_the_policy_says(shared_database, stored, texts, kind, expected):
    source, domain = source_of(shared_database, stored, texts, kind)
    held = source.keys(Keys(relation=Table(domain), by=(("x", Field("x")),), keys_per_unit=1))
    found = dict(
        zip(
            [key for (key,) in held.take(np.arange(held.counts.size))],
            held.counts.tolist(),
            strict=True,
        )
    )
    wanted = {}
    for value in [*expected, None]:
        if value != -(1 << 63):  # which is no key, since its negative is no number
            wanted[value] = wanted.get(value, 0) + 1
    assert {shown(key): count for key, count in found.items()} == wanted


@pytest.mark.parametrize(
    ("stored", "texts", "kind"), [each[:3] for each in STORED if each[2] in BETWEEN]
)
def test_bounds_clamp_whatever_is_stored(shared_database, stored, texts, kind):
    """No sum of clamped values is beyond what its rows may add, and NULL adds nothing."""
    source, domain = source_of(shared_database, stored, texts, kind, between=BETWEEN[kind])
    if not kind.is_numeric:
        later = Call("ge", (Field("x"), Field("x")))
        one = Term(expression=Literal(1), grain=Fraction(1), low=1, high=1)
        found = source.sums(
            Sums(relation=Filter(Table(domain), later), terms=(one,), rows_per_unit=1)
        )
        assert 0 <= found[0, 0] <= len(texts)
        return
    term = Term(expression=Field("x"), grain=Fraction(1), low=-1000, high=1000)
    (values,) = source.values(Values(relation=Table(domain), term=term, rows_per_unit=1))
    total = source.sums(Sums(relation=Table(domain), terms=(term,), rows_per_unit=1))[0, 0]
    assert abs(values).max(initial=0) <= 1000
    assert len(values) <= len(texts)
    assert total == values.sum()


def test_texts_are_told_apart_by_their_bytes_whatever_their_collation(shared_database):
    """This server has no collation that takes two texts for one; so the statement is read, too."""
    source, domain = source_of(shared_database, "text", ["a", "A", "á"], Kind.TEXT)
    tally = Distinct(relation=Table(domain), expression=Field("x"), keys_per_unit=1)
    assert source.distinct(tally).tolist() == [[3]]
    by = Grouping(name="x", expression=Field("x"), keys=("A", None))
    one = Term(expression=Literal(1), grain=Fraction(1), low=1, high=1)
    sums = Sums(relation=Table(domain), by=(by,), terms=(one,))
    assert source.sums(sums).tolist() == [[1, 1]]
    for text in source._written.values():
        casts = re.findall(r"AS TEXT\)( COLLATE \"C\")?", text)
        assert casts
        assert all(casts)


def test_a_text_that_is_too_long_for_the_steps_on_it_has_no_value(database):
    """Were it read, a step that makes it longer than 1 GB would fail: a row would be told of."""
    source, domain = source_of(database, "text", ["a", "ß"], Kind.TEXT)
    (table,) = {place.table for place in source._data.values()}
    database.owner.execute(
        f"UPDATE {database.schema}.{table} SET x = repeat(x, 32769) WHERE x = 'ß'"
    )
    shown = Call("upper", (Field("x"),))
    tally = Distinct(relation=Table(domain), expression=shown, keys_per_unit=1)
    assert source.distinct(tally).tolist() == [[1]]


def test_the_longest_text_that_has_a_value_makes_no_row_too_large(database):
    """Of 68 keys of 16 MB each, the server could not have made one row."""
    longest = ["a" * (1 << 16), "b" * 16_000_000]
    source, domain = source_of(database, "text", longest, Kind.TEXT)
    shown = Call("lower", (Field("x"),))
    by = tuple((f"k{n}", Call("substring", (shown, Literal(n + 1)))) for n in range(68))
    held = source.keys(Keys(relation=Table(domain), by=by, keys_per_unit=1))
    assert sorted(held.counts.tolist()) == [1, 2]  # the longer one, with the NULL, has no value


def test_keys_are_lists_whatever_signs_they_hold(shared_database):
    keys = ["", "NULL", "a\\b'\"{},%", "é👨‍👩‍👧", "{x}", "\n", " a "]
    source, domain = source_of(shared_database, "text", keys, Kind.TEXT)
    by = Grouping(name="x", expression=Field("x"), keys=(*keys, None))
    one = Term(expression=Literal(1), grain=Fraction(1), low=1, high=1)
    tally = Sums(relation=Table(domain), by=(by,), terms=(one,))
    assert source.sums(tally).tolist() == [[1] * (len(keys) + 1)]
    odd = replace(tally, by=(replace(by, keys=("a\x00",)),))
    with pytest.raises(Unsupported, check=about("nul")):
        source.require(odd)  # before it is paid for


def test_decimals_are_the_same_numbers_as_in_files(shared_database, tmp_path):
    """Of up to 15 digits; more are rounded once here and may be rounded twice there."""
    texts = ["0.01", "-99999999.99", "12345678.25", "0.005", "1.115"]
    source, domain = source_of(shared_database, "numeric(12, 3)", texts, Kind.NUMBER)
    file = tmp_path / "t.duckdb"
    with duckdb.connect(str(file)) as connection:
        connection.execute("CREATE TABLE t (who BIGINT, x DECIMAL(12, 3))")
        connection.executemany("INSERT INTO t VALUES (?, ?)", list(enumerate([*texts, None])))
    files = DuckDBSource({"t": file}, {"t": domain})
    for grain in (Fraction(1, 1000), Fraction(1, 100), Fraction(1, 1 << 20), Fraction(3)):
        most = int(10**9 / grain)
        term = Term(expression=Field("x"), grain=grain, low=-most, high=most)
        tally = Sums(relation=Table(domain), terms=(term,))
        assert source.sums(tally).tolist() == files.sums(tally).tolist()


def test_bounds_at_the_ends_of_doubles_do_not_overflow(shared_database):
    """Next to the anchor of such a grain, a value that was not clamped first would be infinite."""
    texts = ["1.7e308", "-1.7e308", "1e300", "Infinity", "0"]
    wide = (Fraction(-(2**1000)), Fraction(2**1000))
    source, domain = source_of(
        shared_database, "double precision", texts, Kind.NUMBER, between=wide
    )
    term = Term(expression=Field("x"), grain=Fraction(2**970), low=-(2**30), high=2**30)
    (values,) = source.values(Values(relation=Table(domain), term=term, rows_per_unit=1))
    assert sorted(values.tolist()) == [-(2**30), 0, round(10**300 / 2**970), 2**30]


def test_a_table_of_no_rows_adds_nothing(shared_database):
    source, domain = source_of(shared_database, "integer", [], Kind.INTEGER)
    shared_database.owner.execute(f"SET search_path = {shared_database.schema}")
    term = Term(expression=Field("x"), grain=Fraction(1), low=-9, high=9)
    assert source.sums(Sums(relation=Table(domain), terms=(term,))).tolist() == [[0]]
