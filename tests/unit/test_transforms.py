from types import MappingProxyType

import pytest

from noisegate.errors import SpecError, Unsupported
from noisegate.privacy.distance import L1, L2
from noisegate.privacy.domain import Column, TableDomain
from noisegate.privacy.unit import PrivacyUnit
from noisegate.transforms.count import count
from noisegate.transforms.restrict import restrict

WARD = Column(name="ward", keys=("north", "south"))


def table(unit=None, cap=None):
    return TableDomain(
        dataset="clinic",
        name="people",
        unit=PrivacyUnit(column=unit),
        columns=MappingProxyType({"ward": WARD, "age": Column(name="age", between=(0, 100))}),
        rows_per_unit_max=cap,
    )


def test_one_row_moves_a_count_by_one():
    query = count(table())
    assert (query.l1, query.l2, query.tally.cells) == (L1(1), L2(squared=1), 1)


def test_one_row_moves_one_cell_of_a_histogram():
    query = count(table(), by="ward")
    assert (query.l1, query.l2, query.tally.cells) == (L1(1), L2(squared=1), 2)


def test_a_unit_with_k_rows_moves_a_count_by_k():
    query = count(table(unit="id", cap=5))
    assert (query.l1, query.l2) == (L1(5), L2(squared=25))
    assert query.tally.rows_per_unit_max == 5


@pytest.mark.parametrize("by", ["age", "nope"])
def test_undeclared_keys_are_refused(by):
    with pytest.raises(Unsupported, match="not declared"):
        count(table(), by=by)


def test_counts_per_key_are_refused_where_a_unit_may_have_many_keys():
    with pytest.raises(Unsupported, match="one unit"):
        count(table(unit="id", cap=5), by="ward")


def test_a_restriction_keeps_the_sensitivity():
    query = restrict(count(table()), column="ward", key="north")
    assert query.l1 == L1(1)
    assert query.tally.where == ((WARD, "north"),)


@pytest.mark.parametrize(("column", "key"), [("ward", "west"), ("age", 3), ("nope", "x")])
def test_a_restriction_to_an_undeclared_key_is_refused(column, key):
    with pytest.raises(Unsupported, match=r"not (a )?declared"):
        restrict(count(table()), column=column, key=key)


def test_different_questions_have_different_records():
    records = [
        count(table()),
        count(table(), by="ward"),
        count(table(unit="id", cap=5)),
        count(table(unit="id", cap=6)),
        restrict(count(table()), column="ward", key="north"),
        restrict(count(table()), column="ward", key="south"),
    ]
    assert len({str(query.to_record()) for query in records}) == len(records)
    assert count(table()).to_record() == count(table()).to_record()


@pytest.mark.parametrize(
    ("unit", "cap"), [(None, 3), ("id", 0), ("id", True), ("id", 1 << 40), ("id", 1.5)]
)
def test_a_cap_that_does_not_fit_the_unit_is_refused(unit, cap):
    with pytest.raises(SpecError):
        table(unit=unit, cap=cap)


@pytest.mark.parametrize(
    "terms",
    [{"in": []}, {"in": [1, "a"]}, {"in": [1, 1]}, {"in": [True, False]}, {"in": [1.5]},
     {"between": [3, 3]}, {"between": [1]}, {"between": "ab"}, {"beetween": [0, 1]}, {"between": [0, "x"]}],
)  # fmt: skip
def test_bad_public_facts_are_refused(terms):
    with pytest.raises(SpecError):
        Column.from_terms("c", terms)


def test_public_facts_are_read_exactly():
    column = Column.from_terms("c", {"between": [0, 0.1]})
    assert column.between is not None
    assert str(column.between[1]) == "1/10"


def test_a_unit_without_a_cap_has_no_count():
    with pytest.raises(Unsupported, match="no bound"):
        count(table(unit="id"))
