"""Facts about trees are worked out once, and never those of another tree."""

import pytest

from noisegate.algebra import known
from noisegate.algebra.expression import Field, Literal
from noisegate.algebra.known import remembered
from noisegate.algebra.relation import Project, Table
from noisegate.algebra.schema import schema_of
from noisegate.errors import Unsupported
from noisegate.privacy.domain import Column, Kind, TableDomain
from noisegate.privacy.unit import PrivacyUnit

PEOPLE = TableDomain(
    dataset="d",
    name="people",
    unit=PrivacyUnit(column=None),
    columns={"x": Column(name="x", kind=Kind.INTEGER)},
)


def test_a_tree_is_asked_once_and_an_equal_one_by_itself():
    asked = []
    rule = remembered(lambda node, *, more: asked.append((node, more)) or type(node[0]))
    one, true = [1], [True]
    assert [rule(one, more=2), rule(true, more=2), rule(one, more=2)] == [int, bool, int]
    assert rule(one, more=3) is int
    assert asked == [([1], 2), ([True], 2), ([1], 3)]


def test_no_new_tree_has_the_address_of_one_whose_facts_are_kept():
    rule = remembered(lambda node: node[0])
    assert all(rule([number]) == number for number in range(10 * known._KEPT))


def test_a_refusal_is_given_each_time():
    asked = []

    @remembered
    def refuse(node):
        asked.append(node)
        raise Unsupported("No.", fix="Yes.")

    for _ in range(2):
        with pytest.raises(Unsupported):
            refuse(asked)
    assert len(asked) == 2


def test_no_caller_can_change_the_columns_that_others_see():
    rows = Project(Table(PEOPLE), (("y", Field("x")), ("one", Literal(1))))
    for relation in (rows, rows.of):
        found = schema_of(relation)
        held = dict(found)
        found.clear()
        assert schema_of(relation) == held != {}
