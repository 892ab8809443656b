"""Whose rows a relation holds: one example for each rule, one for each refusal."""

from dataclasses import replace

import pytest

from door import table
from noisegate.algebra.expression import Call, Field, Literal
from noisegate.algebra.relation import (
    Among,
    Filter,
    Fold,
    Folded,
    Join,
    JoinKind,
    Matching,
    Ordering,
    Partnered,
    PerUnit,
    Project,
    Table,
    Union,
    Window,
    Windowed,
)
from noisegate.algebra.schema import schema_of
from noisegate.errors import Unsupported
from noisegate.privacy.domain import Column, Kind, Step
from noisegate.privacy.unit import PrivacyUnit
from noisegate.transforms.stability import GROWTH_MAX, stability_of
from refusals import about

PEOPLE = table("people", "pid", ("pid", Kind.INTEGER), ("ward", Kind.TEXT))
VISITS = table("visits", "who", ("vid", Kind.INTEGER), ("who", Kind.INTEGER), ("code", Kind.TEXT))
TAKEN = table(
    "taken", "who", ("visit", Kind.INTEGER), ("drug", Kind.TEXT),
    path=(Step(column="visit", table="visits", key="vid"),),
)  # fmt: skip
DRUGS = table("drugs", "public", ("name", Kind.TEXT), ("maker", Kind.TEXT), key=("name",))
MAKERS = table("makers", "public", ("firm", Kind.TEXT))
ROWS = table("rows", None, ("drug", Kind.TEXT), ("firm", Kind.TEXT))
HOMES = replace(
    table("homes", "home", ("home", Kind.INTEGER)),
    unit=PrivacyUnit(column="home", noun="household"),
)

ON_DRUG = ((Field("drug"), Field("name")),)
ON_MAKER = ((Field("drug"), Field("maker")),)
SAME = ((Field("pid"), Field("who")),)


def per_unit(relation, *names, folded=()):
    return PerUnit(relation, tuple((name, Field(name)) for name in names), folded)


def renamed(relation, **names):
    return Project(relation, tuple((new, Field(old)) for new, old in names.items()))


def partnered(of, other):
    return Partnered(of, other, Literal(True), (Folded("n", Fold.COUNT, Literal(1)),))


# tables


def test_a_public_table_belongs_to_nobody_and_has_its_declared_key():
    facts = stability_of(Table(DRUGS))
    assert (facts.is_private, facts.unique) == (False, {"name"})
    assert stability_of(Table(MAKERS)).unique is None


def test_rows_that_are_persons_are_one_each():
    facts = stability_of(Table(ROWS))
    assert (facts.is_private, facts.is_row_level, facts.rows) == (True, True, 1)


def test_rows_that_belong_to_persons_have_no_bound_and_own_their_id():
    facts = stability_of(Table(PEOPLE))
    assert (facts.is_private, facts.is_row_level, facts.rows) == (True, False, None)
    assert (facts.owned, facts.identity, facts.tables) == ({"pid"}, None, (PEOPLE,))


def test_a_foreign_key_is_owned_by_nobody():
    assert stability_of(Table(TAKEN)).owned == frozenset()  # a row may belong to several
    assert "visit → visits.vid, who" in stability_of(Table(TAKEN)).path[0]


# one row at a time


def test_a_filter_keeps_all_facts():
    rows = per_unit(Table(PEOPLE), "ward")
    facts = stability_of(Filter(rows, Call("is_null", (Field("ward"),))))
    assert facts == stability_of(rows)  # but for the words
    assert facts.path[-1].startswith("filter")


def test_a_projection_renames_the_facts_and_forgets_what_is_not_shown():
    rows = per_unit(Table(PEOPLE), "pid", "ward")
    facts = stability_of(renamed(rows, who="pid", place="ward"))
    assert (facts.owned, facts.identity) == ({"who"}, {"place"})
    dropped = stability_of(renamed(rows, who="pid"))
    assert dropped.identity is None
    assert dropped.rows is None
    assert stability_of(renamed(Table(DRUGS), n="name")).unique == {"n"}
    assert stability_of(renamed(Table(DRUGS), m="maker")).unique is None


def test_a_computed_column_is_not_the_one_it_is_made_of():
    other = Call("coalesce", (Field("pid"), Literal(0)))
    assert stability_of(Project(Table(PEOPLE), (("pid", other),))).owned == frozenset()


# joins


@pytest.mark.parametrize("kind", JoinKind)
def test_a_join_with_a_unique_public_key_multiplies_no_row(kind):
    facts = stability_of(Join(Table(ROWS), Table(DRUGS), ON_DRUG, kind))
    assert (facts.is_row_level, facts.rows) == (True, 1)
    rows = per_unit(Table(TAKEN), "drug")
    assert stability_of(Join(rows, Table(DRUGS), ON_DRUG, kind)).identity == {"drug"}


def test_a_unique_key_stays_one_through_names_and_filters():
    drugs = renamed(Filter(Table(DRUGS), Call("is_null", (Field("maker"),))), n="name")
    assert stability_of(Join(Table(ROWS), drugs, ((Field("drug"), Field("n")),))).rows == 1
    assert stability_of(Join(drugs, Table(ROWS), ((Field("n"), Field("drug")),))).rows == 1


@pytest.mark.parametrize(
    "public",
    [
        Table(MAKERS),
        renamed(Table(DRUGS), firm="maker"),
        Union((renamed(Table(DRUGS), firm="name"), renamed(Table(DRUGS), firm="name"))),
        Join(renamed(Table(DRUGS), firm="name", maker="maker"), renamed(Table(DRUGS), other="maker"),
             ((Field("maker"), Field("other")),)),
    ],
)  # fmt: skip
def test_a_join_that_could_multiply_rows_has_no_bound_and_is_refused_where_rows_are_persons(public):
    persons = renamed(Table(ROWS), drug="drug")
    with pytest.raises(Unsupported, check=about("multiplied")):
        stability_of(Join(persons, public, ((Field("drug"), Field("firm")),)))
    rows = per_unit(Table(TAKEN), folded=(Folded("drug", Fold.MIN, Field("drug")),))
    assert stability_of(rows).rows == 1
    facts = stability_of(Join(rows, public, ((Field("drug"), Field("firm")),)))
    assert (facts.rows, facts.identity) == (None, None)


def test_a_key_of_two_columns_must_be_equated_whole():
    both = table("both", "public", ("name", Kind.TEXT), ("maker", Kind.TEXT), key=("name", "maker"))
    with pytest.raises(Unsupported, check=about("multiplied")):
        stability_of(Join(Table(ROWS), Table(both), ON_DRUG))
    whole = (*ON_DRUG, (Field("firm"), Field("maker")))
    assert stability_of(Join(Table(ROWS), Table(both), whole)).rows == 1


def test_a_key_inside_an_expression_is_not_equated():
    inside = ((Field("drug"), Call("lower", (Field("name"),))),)
    with pytest.raises(Unsupported, check=about("multiplied")):
        stability_of(Join(Table(ROWS), Table(DRUGS), inside))


def test_a_join_of_public_tables_is_public_and_has_no_key():
    facts = stability_of(Join(Table(DRUGS), Table(MAKERS), ((Field("maker"), Field("firm")),)))
    assert (facts.is_private, facts.unique, facts.tables) == (False, None, (DRUGS, MAKERS))


def test_one_row_meets_few_public_rows_however_they_are_put_together():
    """Else an engine that gives up after an hour would tell that somebody is there."""
    makers = [renamed(Table(replace(MAKERS, size=4_000)), **{f"f{i}": "firm"}) for i in range(2)]
    one = ((Literal(1), Literal(1)),)
    people = Table(PEOPLE)
    once = Join(people, makers[0], one)
    assert stability_of(once).times == 4_000
    both, apart = Join(makers[0], makers[1], one), Join(Table(VISITS), makers[1], one)
    assert stability_of(both).size == 4_000**2
    for relation in (
        Join(once, makers[1], one),
        Join(people, both, one),
        Join(once, apart, SAME),
        partnered(people, both),
        Matching(people, both, ((Field("ward"), Field("f0")),)),
        Join(Union((once, once)), makers[1], one),
    ):
        with pytest.raises(Unsupported, check=about("growth"), match="10,000,000"):
            stability_of(relation)
    drugs = Table(replace(DRUGS, size=10**8))
    keyed = Join(people, drugs, ((Field("ward"), Field("name")),))
    assert stability_of(keyed).times == 1


def test_private_rows_pair_up_within_one_unit():
    facts = stability_of(Join(Table(PEOPLE), Table(VISITS), SAME))
    assert (facts.is_private, facts.rows, facts.owned) == (True, None, {"pid", "who"})
    assert "within one unit" in facts.path[-1]
    left = stability_of(Join(Table(PEOPLE), Table(VISITS), SAME, JoinKind.LEFT))
    assert left.owned == {"pid"}  # who may be missing


def test_a_public_table_cannot_keep_rows_without_an_owner():
    with pytest.raises(Unsupported, check=about("outer-join")):
        stability_of(
            Join(Table(DRUGS), Table(TAKEN), ((Field("name"), Field("drug")),), JoinKind.LEFT)
        )
    inner = stability_of(Join(Table(DRUGS), Table(TAKEN), ((Field("name"), Field("drug")),)))
    assert inner.is_private


@pytest.mark.parametrize("other", [Table(PEOPLE), Table(ROWS)])
def test_rows_that_are_persons_have_no_private_partners(other):
    rows = renamed(Table(ROWS), x="drug")
    with pytest.raises(Unsupported, check=about("units")):
        stability_of(Join(rows, other, ((Field("x"), Field("ward")),)))
    with pytest.raises(Unsupported, check=about("units")):
        stability_of(Matching(rows, other, ()))


def test_tables_of_different_units_do_not_meet():
    for relation in (
        Join(Table(PEOPLE), Table(HOMES), ((Field("pid"), Field("home")),)),
        Matching(Table(PEOPLE), Table(HOMES), ()),
        partnered(Table(PEOPLE), Table(HOMES)),
        Union((renamed(Table(PEOPLE), x="pid"), renamed(Table(HOMES), x="home"))),
    ):
        with pytest.raises(Unsupported, check=about("id-space"), match=r"'person'.*'homes\.home'"):
            stability_of(relation)


# an id that nobody can see stands for no other column of its name


@pytest.mark.parametrize("hidden", [True, False])
def test_a_column_called_like_a_hidden_id_is_not_owned(hidden):
    declared = [Column(name="pid", kind=Kind.INTEGER, hidden=True)] if hidden else []
    visits = table("visits", "pid", *declared, ("code", Kind.TEXT))
    products = table("products", "public", ("name", Kind.TEXT), ("pid", Kind.INTEGER))
    joined = Join(Table(visits), Table(products), ((Field("code"), Field("name")),))
    assert stability_of(per_unit(joined, "pid")).rows is None
    notes = table("notes", "who", ("pid", Kind.INTEGER))
    paired = Join(Table(visits), Table(notes), ((Literal(1), Literal(1)),))
    assert stability_of(per_unit(paired, "pid")).rows is None


# matching


@pytest.mark.parametrize("negated", [True, False])
def test_a_partner_keeps_or_drops_rows_and_changes_no_fact(negated):
    rows = per_unit(Table(PEOPLE), "ward")
    facts = stability_of(Matching(rows, Table(VISITS), (), negated))
    assert (facts.identity, facts.rows) == ({"ward"}, None)
    assert facts.tables == (PEOPLE, VISITS)
    public = stability_of(Matching(Table(ROWS), Table(MAKERS), ON_MAKER, negated))
    assert (public.is_row_level, public.rows) == (True, 1)


def test_which_public_rows_have_a_private_partner_is_not_public():
    with pytest.raises(Unsupported, check=about("match")):
        stability_of(Matching(Table(DRUGS), Table(TAKEN), ((Field("name"), Field("drug")),)))


def test_folds_of_partners_keep_all_rows_and_change_no_fact():
    rows = per_unit(Table(PEOPLE), "ward")
    facts = stability_of(partnered(rows, Table(VISITS)))
    assert (facts.identity, facts.rows, facts.tables) == ({"ward"}, None, (PEOPLE, VISITS))
    public = stability_of(partnered(Table(ROWS), Table(MAKERS)))
    assert (public.is_row_level, public.rows) == (True, 1)
    assert schema_of(partnered(Table(ROWS), Table(DRUGS)))["n"].low == 0  # there may be none


@pytest.mark.parametrize("other", [Table(PEOPLE), Table(ROWS)])
def test_folds_of_private_partners_are_of_one_unit(other):
    with pytest.raises(Unsupported, check=about("units")):
        stability_of(partnered(renamed(Table(ROWS), x="drug"), other))
    with pytest.raises(Unsupported, check=about("match")):
        stability_of(partnered(Table(DRUGS), Table(TAKEN)))


def test_partners_are_paired_up_as_often_as_joins_may_multiply_rows():
    grown = Table(PEOPLE)
    for place in range(GROWTH_MAX):
        assert stability_of(partnered(grown, Table(VISITS))).growth == place
        other = renamed(Table(PEOPLE), **{f"w{place}": "ward"})
        grown = Join(grown, other, ((Field("ward"), Field(f"w{place}")),))
    with pytest.raises(Unsupported, check=about("growth")):
        stability_of(partnered(grown, Table(VISITS)))


# windows


def test_windows_keep_all_rows_of_a_unit_and_change_no_fact():
    first = Window("w", Among.FIRST, Field("code"), (), (Ordering(Field("vid")),), (None, 0))
    facts = stability_of(Windowed(Table(VISITS), (first,)))
    assert (facts.owned, facts.rows, facts.identity) == ({"who"}, None, None)
    once = Windowed(per_unit(Table(PEOPLE), "ward"), (Window("w", Among.RANK, Literal(1)),))
    assert (stability_of(once).identity, stability_of(once).rows) == ({"ward"}, None)


NUMBER = Window("n", Fold.COUNT, Literal(1), (), (Ordering(Field("vid")),), (None, 0))


def kept(window, function, value, *more):
    condition = Call(function, (Field("n"), Literal(value)))
    rows = renamed(Windowed(Table(VISITS), (window,)), n="n", code="code")
    return Filter(rows, Call("and", (*more, condition)) if more else condition)


@pytest.mark.parametrize(
    ("function", "value", "rows"),
    [("eq", 1, 1), ("eq", 7, 1), ("le", 3, 3), ("lt", 3, 2), ("lt", 0, 1), ("ge", 3, None), ("ne", 1, None)],
)  # fmt: skip
def test_the_first_rows_of_a_unit_are_as_many_as_they_are_numbered(function, value, rows):
    assert stability_of(kept(NUMBER, function, value)).rows == rows
    more = Call("eq", (Field("code"), Literal("a")))
    assert stability_of(kept(NUMBER, function, value, more)).rows == rows


@pytest.mark.parametrize(
    "window",
    [
        replace(NUMBER, keys=(Field("code"),)),
        replace(NUMBER, frame=(-1, 0)),
        replace(NUMBER, frame=None),
        replace(NUMBER, expression=Field("vid")),
        Window("n", Among.RANK, Literal(1), (), NUMBER.order),
    ],
)
def test_no_other_window_numbers_rows(window):
    assert stability_of(kept(window, "le", 1)).rows is None


def test_rows_that_are_made_of_numbered_ones_have_no_numbers_of_their_own():
    numbered = Windowed(Table(TAKEN), (replace(NUMBER, order=()),))
    at_first = Call("eq", (Field("n"), Literal(1)))
    once = Join(numbered, Table(DRUGS), ON_DRUG)
    assert stability_of(Filter(once, at_first)).rows == 1
    for more in (
        Join(numbered, Table(DRUGS), ON_MAKER),
        Join(numbered, Table(VISITS), ((Field("visit"), Field("vid")),)),
        Union((numbered, numbered)),
        per_unit(numbered, "drug", "n"),
        Project(numbered, (("n", Call("negate", (Field("n"),))),)),
    ):
        assert stability_of(Filter(more, at_first)).rows is None


@pytest.mark.parametrize("rows", [ROWS, DRUGS])
def test_windows_over_rows_of_several_units_are_refused(rows):
    with pytest.raises(Unsupported, check=about("window")):
        stability_of(Windowed(Table(rows), (Window("w", Among.RANK, Literal(1)),)))


@pytest.mark.parametrize(
    "window",
    [
        Window("w", Among.FIRST, Field("vid")),
        Window("w", Among.RANK, Literal(1), frame=(None, None)),
        Window("w", Fold.COUNT, Literal(1), frame=(1, -1)),
        Window("w", Fold.COUNT, Literal(1), frame=(-(1 << 40), 0)),
        Window("w", Fold.COUNT, Literal(1), frame=(True, 0)),
        Window("w", Fold.COUNT, Literal(1), frame=(0, 0, 0)),
        Window("w", "count", Literal(1)),
        Window("vid", Fold.COUNT, Literal(1)),
        Window("w", Fold.SUM, Field("code")),
        Window("w", Fold.COUNT, Field("nope")),
        Window("w", Fold.COUNT, Literal(1), keys=(Field("nope"),)),
        Window("w", Fold.COUNT, Literal(1), order=(Field("vid"),)),
    ],
)
def test_what_is_no_window_is_refused(window):
    with pytest.raises(Unsupported):
        schema_of(Windowed(Table(VISITS), (window,)))


# folding


def test_folding_makes_one_row_for_each_unit():
    facts = stability_of(per_unit(Table(VISITS)))
    assert (facts.rows, facts.identity, facts.owned) == (1, frozenset(), frozenset())


def test_folding_by_keys_makes_one_row_for_each_unit_and_key():
    facts = stability_of(per_unit(Table(VISITS), "code"))
    assert (facts.rows, facts.identity) == (None, {"code"})
    assert facts.path[-1] == "one row for each unit and code"


def test_a_units_own_id_among_the_keys_makes_no_further_rows():
    facts = stability_of(per_unit(Table(VISITS), "who"))
    assert (facts.rows, facts.owned) == (1, {"who"})
    both = stability_of(per_unit(Table(VISITS), "who", "code"))
    assert (both.rows, both.identity) == (None, {"code"})


@pytest.mark.parametrize("below", [Table(ROWS), Table(DRUGS)])
def test_folding_needs_units(below):
    with pytest.raises(Unsupported, check=about("units")):
        stability_of(per_unit(below))


# unions


def test_a_union_adds_up_the_rows_of_a_unit():
    once = per_unit(Table(VISITS))
    assert stability_of(Union((once, once, once))).rows == 3
    assert stability_of(Union((Table(ROWS), Table(ROWS)))).rows == 2
    facts = stability_of(Union((once, per_unit(Table(VISITS), "code"))))
    assert (facts.rows, facts.identity) == (None, None)


def test_a_union_of_tables_that_read_their_ids_differently_owns_none():
    near = table("near", "id", Column(name="id", kind=Kind.INTEGER, between=(0, 10)))
    far = table("far", "id", ("id", Kind.INTEGER))
    assert stability_of(per_unit(Union((Table(near), Table(far))), "id")).rows in (None, 2)


@pytest.mark.parametrize(
    "parts",
    [(Table(PEOPLE), Table(DRUGS)), (Table(PEOPLE), Table(ROWS)), (Table(ROWS), Table(DRUGS))],
)
def test_a_union_of_different_owners_is_refused(parts):
    with pytest.raises(Unsupported, check=about("owners")):
        stability_of(Union(parts))


# what is no relation


class Loose(type(Table(DRUGS))):
    """A table of another class."""


@pytest.mark.parametrize("other", [None, "people", PEOPLE, Loose(PEOPLE)])
def test_what_is_no_relation_is_refused(other):
    with pytest.raises(Unsupported, check=about("relation")):
        stability_of(other)
    with pytest.raises(Unsupported, check=about("relation")):
        stability_of(Filter(other, Literal(True)))
