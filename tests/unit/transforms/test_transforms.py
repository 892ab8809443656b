from datetime import date
from fractions import Fraction
from types import MappingProxyType

import pytest

from door import ONE, by, table
from noisegate.algebra.expression import Call, Field, Literal
from noisegate.algebra.relation import Filter, Project, Table, Union
from noisegate.algebra.tally import Keys, Sums
from noisegate.errors import SpecError, Unsupported
from noisegate.privacy.distance import L1, L2
from noisegate.privacy.domain import Column, Kind, TableDomain
from noisegate.privacy.unit import PrivacyUnit
from noisegate.transforms.query import Query
from noisegate.transforms.restrict import declared, restrict
from refusals import about

WARD = Column(name="ward", keys=("north", "south"))
AGE = Column(name="age", kind=Kind.INTEGER, between=(Fraction(0), Fraction(100)))
CODE = Column(name="code", kind=Kind.INTEGER, keys=(1, 2))


def people(unit=None, **more):
    return table("people", unit, WARD, AGE, CODE, **more)


def count(here=None, *groups, cap=None):
    return Query(Sums(relation=Table(here or people()), by=groups, terms=(ONE,), rows_per_unit=cap))


def test_one_row_moves_a_count_by_one():
    query = count()
    assert (query.l1s, query.l2s, query.tally.cells) == ((L1(1),), (L2(squared=1),), 1)


def test_one_row_moves_one_cell_of_a_histogram():
    query = count(people(), by("ward", *WARD.keys))
    assert (query.l1s, query.l2s, query.tally.cells) == ((L1(1),), (L2(squared=1),), 2)


def test_a_unit_with_k_rows_moves_a_count_by_k():
    query = count(people("id"), cap=5)
    assert (query.l1s, query.l2s) == ((L1(5),), (L2(squared=25),))
    assert query.tally.rows_per_unit == 5


def test_a_unit_with_k_rows_moves_all_cells_together_by_k():
    query = count(people("id"), by("ward", *WARD.keys), cap=5)
    assert (query.l1s, query.l2s) == ((L1(5),), (L2(squared=25),))


@pytest.mark.parametrize("name", ["age", "nope"])
def test_undeclared_keys_are_refused(name):
    with pytest.raises(Unsupported, check=about("keys")):
        declared(people(), name)


def test_a_hidden_column_has_no_declared_keys():
    hidden = Column(name="ward", keys=("north",), hidden=True)
    with pytest.raises(Unsupported, check=about("keys")):
        declared(table("people", None, hidden), "ward")


def test_a_restriction_keeps_the_sensitivity_and_filters_the_tables_own_rows():
    query = restrict(count(), column="ward", key="north")
    assert query.l1s == (L1(1),)
    assert query.tally.relation == Filter(
        Table(people()), Call("eq", (Field("ward"), Literal("north")))
    )
    twice = restrict(query, column="code", key=1)
    assert twice.tally.relation.of.of == Table(people())  # below the filter that was there


@pytest.mark.parametrize(
    ("column", "key"),
    [("ward", "west"), ("age", 3), ("nope", "x"), ("ward", None), ("code", True), ("code", "1")],
)
def test_a_restriction_to_an_undeclared_key_is_refused(column, key):
    with pytest.raises(Unsupported, check=about("keys")):
        restrict(count(), column=column, key=key)


@pytest.mark.parametrize(
    "relation",
    [
        Project(Table(people()), (("ward", Field("ward")),)),
        Union((Table(people()), Table(people()))),
    ],
)
def test_only_a_plain_table_is_cut_into_parts(relation):
    query = Query(Sums(relation=relation, terms=(ONE,)))
    with pytest.raises(Unsupported, check=about("part")):
        restrict(query, column="ward", key="north")


def test_different_questions_have_different_records():
    rows = Table(people("id"))
    moved = Project(rows, (("ward", Field("ward")),))
    records = [
        count(),
        count(people(), by("ward", *WARD.keys)),
        count(people(), by("ward", "north")),
        count(people(), by("ward", "south", "north")),
        count(people("id"), cap=5),
        count(people("id"), cap=6),
        count(people(origin="elsewhere")),
        count(people(snapshot="2")),
        restrict(count(), column="ward", key="north"),
        restrict(count(), column="ward", key="south"),
        Query(Sums(relation=moved, terms=(ONE,), rows_per_unit=5)),
        Query(Sums(relation=rows, terms=(ONE, ONE), rows_per_unit=5)),
        Query(Keys(relation=rows, by=(("ward", Field("ward")),), keys_per_unit=1)),
        Query(Keys(relation=rows, by=(("ward", Field("ward")),), keys_per_unit=2)),
    ]
    assert len({str(query.to_record()) for query in records}) == len(records)
    assert count().to_record() == count().to_record()


@pytest.mark.parametrize(
    ("unit", "cap"),
    [(None, 3), ("public", 3), ("id", 0), ("id", True), ("id", 1 << 40), ("id", 1.5)],
)
@pytest.mark.parametrize("name", ["rows_per_unit_max", "groups_per_unit_max"])
def test_a_cap_that_does_not_fit_the_unit_is_refused(unit, cap, name):
    with pytest.raises(SpecError):
        people(unit=unit, **{name: cap})


@pytest.mark.parametrize(
    "terms",
    [{"in": []}, {"in": [1, "a"]}, {"in": [1, 1]}, {"in": [1, True]}, {"in": [1.5]}, {"in": "ab"}, {"in": [2**63]}, {"in": ["\x00"]},
     {"in": ["1"], "type": "integer"}, {"in": [1], "type": "number"}, {"in": [date(2020, 1, 1)], "type": "timestamp"}, {"type": "whole"},
     {"between": [3, 3]}, {"between": [1]}, {"between": "ab"}, {"beetween": [0, 1]}, {"between": [0, "x"]}, {"between": [0, 1], "type": "text"},
     {"between": ["1970-01-02", "soon"], "type": "date"}, {"between": ["1970-01-02", "1970-01-11"]}],
)  # fmt: skip
def test_bad_public_facts_are_refused(terms):
    with pytest.raises(SpecError):
        Column.from_terms("c", terms)


def test_public_facts_are_read_exactly():
    column = Column.from_terms("c", {"between": [0, 0.1]})
    assert (column.kind, column.between) == (Kind.NUMBER, (0, Fraction(1, 10)))
    assert column.domain.magnitude == Fraction(1, 10)
    days = Column.from_terms("c", {"between": [date(1970, 1, 2), date(1970, 1, 11)]})
    assert (days.kind, days.between) == (Kind.DATE, (1, 10))
    assert (
        Column.from_terms("c", {"between": ["1970-01-02", "1970-01-11"]}, stored=Kind.DATE) == days
    )
    times = {"between": ["1970-01-01", "1970-01-01 00:00:01"], "type": "timestamp"}
    assert Column.from_terms("c", times).between == (0, 10**6)


@pytest.mark.parametrize(
    ("terms", "stored", "kind"),
    [
        ({}, None, Kind.TEXT),
        ({}, Kind.DATE, Kind.DATE),
        ({"in": [True, False]}, None, Kind.BOOLEAN),
        ({"in": [1]}, Kind.TEXT, Kind.INTEGER),
        ({"between": [0, 9]}, Kind.INTEGER, Kind.INTEGER),
        ({"type": "text"}, Kind.INTEGER, Kind.TEXT),
    ],
)
def test_a_columns_kind_is_the_declared_the_stored_or_that_of_its_keys(terms, stored, kind):
    assert Column.from_terms("c", terms, stored=stored).kind is kind


def test_a_unit_without_a_cap_has_no_count():
    with pytest.raises(Unsupported, check=about("no-cap")):
        count(people("id"))


@pytest.mark.parametrize(
    "terms",
    [
        {"unit": PrivacyUnit(column="id"), "key": ("ward",)},
        {"unit": None, "key": ("nope",)},
        {"unit": None, "path": ("x",)},
        {"unit": PrivacyUnit(column=None), "path": ("x",)},
    ],
)
def test_a_key_is_for_public_tables_and_a_path_for_units(terms):
    with pytest.raises(SpecError):
        TableDomain(dataset="d", name="t", columns=MappingProxyType({"ward": WARD}), **terms)
