"""The practice twin: every declared fact holds in it, keys resolve, tails are heavy, none is read."""

import time
from datetime import date, datetime
from fractions import Fraction

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from noisegate.errors import SpecError
from noisegate.privacy.domain import WHOLE_MAX, Column, Kind, Step, TableDomain, ordinal
from noisegate.privacy.unit import PrivacyUnit
from noisegate.steward.practice import _between, practice_rows

PERSON = PrivacyUnit(column="id")
TO_CUSTOMERS = Step(column="customer", table="customers", key="id")
TO_ORDERS = Step(column="order", table="orders", key="number")
BORN = (date(1930, 1, 1), date(2010, 12, 31))
PLACED = (datetime(2023, 1, 1), datetime(2023, 12, 31, 23))  # noqa: DTZ001
TYPES = {
    Kind.BOOLEAN: pa.bool_(), Kind.INTEGER: pa.int64(), Kind.NUMBER: pa.float64(),
    Kind.TEXT: pa.string(), Kind.DATE: pa.date32(), Kind.TIMESTAMP: pa.timestamp("us"),
}  # fmt: skip


def table(name, unit, *columns, **facts):
    named = {column.name: column for column in columns}
    return TableDomain(dataset="shop", name=name, unit=unit, columns=named, **facts)


def bounds(low, high):
    return ordinal(low), ordinal(high)


SHOP = {
    "items": table(
        "items",
        PERSON,
        Column(name="quantity", kind=Kind.INTEGER, between=bounds(1, 9), nullable=False),
        Column(name="gift", kind=Kind.BOOLEAN),
        Column(name="note", kind=Kind.TEXT, hidden=True),
        path=(TO_ORDERS, TO_CUSTOMERS),
    ),
    "orders": table(
        "orders",
        PERSON,
        Column(name="number", kind=Kind.TEXT),
        Column(name="customer", kind=Kind.INTEGER),
        Column(name="amount", kind=Kind.NUMBER, between=bounds("0.1", "99.9")),
        Column(name="placed", kind=Kind.TIMESTAMP, between=bounds(*PLACED)),
        Column(name="country", references=("countries", "code"), nullable=False),
        path=(TO_CUSTOMERS,),
        rows_per_unit_max=10,
    ),
    "customers": table(
        "customers",
        PERSON,
        Column(name="id", kind=Kind.INTEGER, between=bounds(1000, 1 << 40)),
        Column(name="born", kind=Kind.DATE, between=bounds(*BORN)),
        Column(name="region", keys=("north", "south", "east"), nullable=False),
        Column(name="grade", kind=Kind.INTEGER, keys=(1, 2, 3)),
    ),
    "clicks": table(
        "clicks",
        PrivacyUnit(column="user"),
        Column(name="seconds", kind=Kind.NUMBER),
        Column(name="page", kind=Kind.TEXT),
    ),
    "answers": table(
        "answers", PrivacyUnit(column=None), Column(name="day", kind=Kind.DATE), Column(name="word")
    ),
    "countries": table("countries", None, Column(name="code"), key=("code",)),
}
PUBLIC = {
    "countries": pa.table({"code": ["de", "fr", "it", None, "de"], "people": [83, 68, 59, 0, 0]})
}


@pytest.fixture(scope="module")
def shop():
    return practice_rows(SHOP, PUBLIC, rows=2000, seed=1)


@pytest.mark.parametrize("name", [name for name in SHOP if name != "countries"])
def test_every_declared_fact_holds(shop, name):
    rows = shop[name]
    assert rows.num_rows == 2000
    for column in SHOP[name].columns.values():
        values = rows[column.name]
        assert values.type == TYPES[column.kind]
        present = values.drop_null().to_pylist()
        assert len(set(present)) > 1
        if column.between is not None:
            low, high = column.between
            assert all(low <= ordinal(value) <= high for value in present)
        if column.keys is not None:
            assert set(present) == set(column.keys)
        if not column.nullable:
            assert values.null_count == 0


def test_nullable_columns_miss_about_a_twentieth_but_owners_and_foreign_keys_never(shop):
    for rows, column in (("orders", "amount"), ("customers", "grade"), ("items", "gift")):
        assert 50 <= shop[rows][column].null_count <= 150
    for rows, column in (
        ("customers", "id"),
        ("orders", "customer"),
        ("items", "order"),
        ("clicks", "user"),
    ):
        assert shop[rows][column].null_count == 0


def test_foreign_keys_resolve_to_one_row_each(shop):
    with duckdb.connect() as engine:
        for name, rows in shop.items():
            engine.register(name, rows)
        joined = engine.execute(
            'SELECT count(*) FROM items JOIN orders ON items."order" = orders."number" '
            "JOIN customers ON orders.customer = customers.id"
        ).fetchone()
        known = engine.execute(
            "SELECT count(*) FROM orders WHERE country IN (SELECT code FROM countries)"
        ).fetchone()
    assert joined == known == (2000,)
    for rows, column in (("customers", "id"), ("orders", "number")):
        assert pc.count_distinct(shop[rows][column]).as_py() == 2000


@pytest.mark.parametrize(("name", "owner"), [("clicks", "user"), ("orders", "customer")])
def test_few_owners_hold_many_rows_and_many_hold_few(shop, name, owner):
    sizes = np.sort(pc.value_counts(shop[name][owner]).field("counts").to_numpy())
    assert sizes[-1] > 10 * SHOP["orders"].rows_per_unit_max
    assert np.median(sizes) <= 5


def test_keys_are_a_little_skewed(shop):
    counts = pc.value_counts(shop["customers"]["region"]).field("counts").to_numpy()
    assert 1.2 < counts.max() / counts.min() < 3


def test_public_tables_stay_as_they_are(shop):
    assert shop["countries"] is PUBLIC["countries"]
    assert list(shop) == list(SHOP)


def test_the_same_seed_gives_the_same_rows_and_another_one_others(shop):
    assert practice_rows(SHOP, PUBLIC, rows=2000, seed=1) == shop
    other = practice_rows(SHOP, PUBLIC, rows=2000, seed=2)
    assert other["orders"] != shop["orders"]
    assert practice_rows(SHOP, PUBLIC, rows=9) == practice_rows(SHOP, PUBLIC, rows=9)


def test_a_new_column_leaves_the_others_as_they_are(shop):
    wider = {**SHOP["answers"].columns, "new": Column(name="new", kind=Kind.NUMBER)}
    domain = table("answers", PrivacyUnit(column=None), *wider.values())
    found = practice_rows({"answers": domain}, rows=2000, seed=1)["answers"]
    assert found.drop_columns(["new"]) == shop["answers"]


def test_a_table_has_no_more_rows_than_its_key_has_values():
    people = table("customers", PERSON, Column(name="id", kind=Kind.INTEGER, between=bounds(1, 7)))
    orders = table("orders", PERSON, path=(TO_CUSTOMERS,))
    found = practice_rows({"customers": people, "orders": orders}, rows=50)
    assert sorted(found["customers"]["id"].to_pylist()) == [1, 2, 3, 4, 5, 6, 7]
    assert found["orders"].num_rows == 50


@pytest.mark.parametrize(
    ("kind", "between"),
    [(Kind.INTEGER, (-WHOLE_MAX, WHOLE_MAX)), (Kind.NUMBER, ("-1e301", "1e301")),
     (Kind.NUMBER, (Fraction(1, 3), Fraction(1, 3) + Fraction(1, 10**9))),
     (Kind.DATE, (date(1, 1, 1), date(9999, 12, 31))),
     (Kind.TIMESTAMP, (datetime(1900, 1, 1), datetime(2200, 1, 1)))],  # noqa: DTZ001
)  # fmt: skip
def test_extreme_bounds_hold_exactly(kind, between):
    column = Column(name="x", kind=kind, between=bounds(*between), nullable=False)
    rows = practice_rows({"t": table("t", PrivacyUnit(column=None), column)}, rows=500)["t"]
    low, high = column.between
    assert all(low <= ordinal(value) <= high for value in rows["x"].to_pylist())


def test_bounds_that_floats_cannot_hold_are_rounded_inwards():
    for low, high in ((Fraction(1, 3), Fraction(7, 3)), (Fraction(-7, 10), Fraction(1, 10))):
        column = Column(name="x", kind=Kind.NUMBER, between=(low, high))
        ends = [Fraction(end) for end in _between(np.array([0.0, 1.0]), column).tolist()]
        assert low <= ends[0] < low + Fraction(1, 10**15)
        assert high - Fraction(1, 10**15) < ends[1] <= high


@pytest.mark.parametrize("facts", [{"between": bounds(1, 3)}, {"keys": (1, 2, 3)}])
def test_owners_keep_their_bounds_and_keys(facts):
    owner = Column(name="user", kind=Kind.INTEGER, **facts)
    rows = practice_rows({"t": table("t", PrivacyUnit(column="user"), owner)}, rows=500)["t"]
    assert set(rows["user"].to_pylist()) == {1, 2, 3}


@pytest.mark.parametrize("kind", [Kind.INTEGER, Kind.NUMBER, Kind.TEXT, Kind.DATE, Kind.TIMESTAMP])
def test_owners_and_keys_can_be_of_any_kind(kind):
    people = table("customers", PERSON, Column(name="id", kind=kind))
    orders = table("orders", PERSON, path=(TO_CUSTOMERS,))
    visits = table("visits", PrivacyUnit(column="who"), Column(name="who", kind=kind))
    found = practice_rows({"orders": orders, "customers": people, "visits": visits}, rows=300)
    ids = found["customers"]["id"]
    assert pc.count_distinct(ids).as_py() == 300
    assert (
        ids.type == found["orders"]["customer"].type == found["visits"]["who"].type == TYPES[kind]
    )
    assert pc.all(pc.is_in(found["orders"]["customer"], ids)).as_py()


def test_a_key_that_only_a_path_speaks_of_has_the_kind_of_the_column_that_holds_it():
    people = table("customers", PrivacyUnit(column="person"))
    unit = PrivacyUnit(column="person")
    orders = table("orders", unit, Column(name="customer", kind=Kind.TEXT), path=(TO_CUSTOMERS,))
    found = practice_rows({"customers": people, "orders": orders}, rows=100)
    assert found["customers"].schema.names == ["id", "person"]
    assert found["customers"]["id"].type == found["orders"]["customer"].type == pa.string()


@pytest.mark.parametrize(
    ("tables", "public"),
    [({"countries": SHOP["countries"]}, {}),
     ({"orders": SHOP["orders"]}, PUBLIC),
     ({"orders": SHOP["orders"], "customers": SHOP["customers"]}, {}),
     ({**SHOP}, {"countries": pa.table({"name": ["a"]})}),
     ({**SHOP}, {"countries": pa.table({"code": pa.array([], pa.string())})}),
     ({"a": table("a", PERSON, path=(Step(column="b", table="b", key="id"),)),
       "b": table("b", PERSON, path=(Step(column="a", table="a", key="id"),))}, {})],
)  # fmt: skip
def test_what_cannot_be_made_is_refused(tables, public):
    with pytest.raises(SpecError):
        practice_rows(tables, public)


@pytest.mark.parametrize("rows", [0, -1, True, 2.0, 10**9])
def test_a_number_of_rows_that_is_none_is_refused(rows):
    with pytest.raises(SpecError):
        practice_rows(SHOP, PUBLIC, rows=rows)


def test_a_hundred_thousand_rows_of_ten_columns_take_less_than_half_a_second():
    kinds = [Kind.INTEGER, Kind.NUMBER, Kind.TEXT, Kind.DATE, Kind.TIMESTAMP] * 2
    columns = [Column(name=f"c{at}", kind=kind) for at, kind in enumerate(kinds)]
    wide = {"wide": table("wide", PrivacyUnit(column="who"), *columns)}
    spent = []
    for _ in range(3):
        start = time.process_time()
        practice_rows(wide, rows=100_000)
        spent.append(time.process_time() - start)
    assert min(spent) < 0.5
