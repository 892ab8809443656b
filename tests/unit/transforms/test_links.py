"""Joins along the foreign key that leads to owners: read once, and every pair its owner's."""

from dataclasses import replace
from fractions import Fraction

import pyarrow as pa
import pytest

from noisegate.algebra.expression import Call, Field, Literal
from noisegate.algebra.relation import Filter, Join, JoinKind, Project, Table
from noisegate.algebra.tally import Grouping, Sums, Term
from noisegate.privacy.domain import Column, Kind, PrivacyUnit, Step, TableDomain
from noisegate.sources.duckdb.source import DuckDBSource
from noisegate.sources.writing.links import sides

UNIT = PrivacyUnit(column="home", ids="homes.home")
ONE = Term(expression=Literal(1), grain=Fraction(1), low=0, high=1)


def table(name, kinds, path=(), between=None):
    columns = {
        each: Column(name=each, kind=kind, between=between if each == "user" else None)
        for each, kind in kinds.items()
    }
    return TableDomain(dataset="d", name=name, unit=UNIT, columns=columns, path=path)


def world(user=Kind.INTEGER, between=None):
    homes = table("homes", {"user": user, "home": Kind.INTEGER, "kind": Kind.INTEGER}, (), between)
    link = (Step(column="user", table="homes", key="user"),)
    return homes, table("visits", {"user": user, "cost": Kind.INTEGER}, link, between)


def source_of(homes, visits, users="int64"):
    frames = {
        "homes": pa.table({
            "user": pa.array([1, 2, 3, 3, 4, None]).cast(users),
            "home": [10, 10, 20, 30, 40, 50], "kind": [0, 1, 0, 1, 1, 0]}),
        "visits": pa.table({
            "user": pa.array([1, 1, 2, 3, 3, 9, None]).cast(users),
            "cost": [1, 2, 4, 8, 16, 32, 64]}),
    }  # fmt: skip
    return DuckDBSource(frames, {"homes": homes, "visits": visits})


def joined(homes, visits, on="user", kind=JoinKind.INNER, *, flipped=False):
    named = tuple((f"{name}_2", Field(name)) for name in homes.columns)
    if flipped:
        other = tuple((f"{name}_2", Field(name)) for name in visits.columns)
        return Join(
            Table(homes), Project(Table(visits), other), ((Field(on), Field("user_2")),), kind
        )
    return Join(
        Table(visits), Project(Table(homes), named), ((Field("user"), Field(f"{on}_2")),), kind
    )


def counts(source, relation, key):
    by = (Grouping(name="kind", expression=Field(key), keys=(0, 1), rest=True),)
    return source.sums(Sums(relation=relation, by=by, terms=(ONE,), rows_per_unit=100))[0].tolist()


def is_told(source, relation):
    tally = Sums(relation=relation, terms=(ONE,), rows_per_unit=100)
    with source._reading(tally) as writer:
        return sides(relation, writer) != (relation.left, relation.right)


@pytest.mark.parametrize("users", ["int64", "int16", "string"])
@pytest.mark.parametrize("flipped", [False, True])
def test_a_join_along_the_link_has_the_rows_of_plain_sql(flipped, users):
    """User 3 is of two households, as two of them say."""
    homes, visits = world(Kind.TEXT if users == "string" else Kind.INTEGER)
    source = source_of(homes, visits, users)
    relation = joined(homes, visits, flipped=flipped)
    assert is_told(source, relation)
    assert counts(source, relation, "kind" if flipped else "kind_2") == [4, 3, 0]


def test_a_repeated_partner_is_met_once_for_each_time_it_is_there():
    homes, visits = world()
    frames = {
        "homes": pa.table({"user": [1, 1], "home": [10, 10], "kind": [0, 0]}),
        "visits": pa.table({"user": [1], "cost": [5]}),
    }
    source = DuckDBSource(frames, {"homes": homes, "visits": visits})
    assert counts(source, joined(homes, visits), "kind_2") == [2, 0, 0]  # as in SQL, and not 4


def test_owners_are_looked_for_where_equal_values_may_be_other_ids():
    """A clamp makes two users one: then each has its own owner still."""
    homes, visits = world(between=(Fraction(2), Fraction(3)))
    source = source_of(homes, visits)
    relation = joined(homes, visits)
    assert not is_told(source, relation)
    # a read user 2 is user 1 or 2, and 3 is 3, 4 or 9; partners are of one owner
    assert counts(source, relation, "kind_2") == [5, 5, 0]


def test_rows_without_a_partner_keep_their_owners():
    homes, visits = world()
    source = source_of(homes, visits)
    some = Filter(Table(homes), Call("eq", (Field("kind"), Literal(1))))
    named = tuple((f"{name}_2", Field(name)) for name in homes.columns)
    relation = Join(
        Table(visits), Project(some, named), ((Field("user"), Field("user_2")),), JoinKind.LEFT
    )
    assert not is_told(source, relation)
    assert counts(source, relation, "kind_2") == [0, 3, 4]
    inner = replace(relation, kind=JoinKind.INNER)
    assert is_told(source, inner)
    assert counts(source, inner, "kind_2") == [0, 3, 0]


def test_other_columns_are_no_link():
    homes, visits = world()
    source = source_of(homes, visits)
    assert not is_told(source, joined(homes, visits, on="kind"))
    assert not is_told(source, joined(homes, visits, on="home", flipped=True))


def test_partners_of_another_unit_are_no_owners():
    homes, visits = world()
    other = replace(homes, unit=PrivacyUnit(column="user", ids="users"))
    assert not is_told(source_of(homes, visits), joined(other, visits))
