"""How far one unit moves an exact answer, computed from the tally; and what has no such number."""

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from fractions import Fraction

import pytest

from door import FINE, ONE, by, field, table
from noisegate.algebra.expression import Call, Field, Literal
from noisegate.algebra.relation import (
    Filter,
    Fold,
    Folded,
    Join,
    Matching,
    PerUnit,
    Project,
    Table,
    Union,
)
from noisegate.algebra.tally import Distinct, Grouping, Keys, Sums, Term, Values
from noisegate.errors import NoisegateError, SpecError, Unsupported
from noisegate.privacy.distance import L1, L2
from noisegate.privacy.domain import Kind
from noisegate.transforms.checks import CAP_MAX, MOVED_MAX, REACH_MAX
from noisegate.transforms.query import Query
from refusals import about

VISITS = table(
    "visits", "who", ("who", Kind.INTEGER), ("code", Kind.TEXT), ("cost", Kind.NUMBER),
    ("day", Kind.DATE), ("at", Kind.TIMESTAMP), ("new", Kind.BOOLEAN),
)  # fmt: skip
ROWS = table("rows", None, ("code", Kind.TEXT), ("cost", Kind.NUMBER))
DRUGS = table("drugs", "public", ("name", Kind.TEXT), key=("name",))
CODES = by("code", "a", "b", None)
PER_CODE = PerUnit(
    Table(VISITS), (("code", Field("code")),), (Folded("n", Fold.COUNT, Field("code")),)
)
ONCE = PerUnit(Table(VISITS), (), (Folded("n", Fold.COUNT, Field("code")),))


ALL = Table(VISITS)


def sums(relation=ALL, *groups, terms=(ONE,), cap=None):
    return Query(Sums(relation=relation, by=groups, terms=terms, rows_per_unit=cap))


def both(query):
    return [int(l1.value) for l1 in query.l1s], [int(l2.squared) for l2 in query.l2s]


# sums


def test_each_term_moves_by_its_reach_times_the_rows_of_a_unit():
    terms = (ONE, field("cost", low=-7, high=3), field("cost", low=2, high=5), FINE)
    assert both(sums(terms=terms, cap=3)) == ([3, 21, 15, 3072], [9, 441, 225, 3072**2])
    assert both(sums(Table(ROWS), terms=terms)) == ([1, 7, 5, 1024], [1, 49, 25, 1024**2])


def test_groups_change_no_sensitivity():
    assert both(sums(Table(VISITS), CODES, by("new", True, False), cap=3)) == ([3], [9])


def test_one_row_for_each_cell_of_a_unit_moves_the_squares_by_the_cap_only():
    assert both(sums(PER_CODE, CODES, terms=(field("n", high=10),), cap=4)) == ([40], [400])


@pytest.mark.parametrize(
    ("relation", "groups"),
    [
        (PER_CODE, ()),  # all codes in one cell
        (PER_CODE, (by("n", 1, 2),)),
        (PER_CODE, (Grouping(name="code", expression=Call("lower", (Field("code"),)), keys=("a",)),)),
        (Table(VISITS), (CODES,)),
        (Union((PER_CODE, PER_CODE)), (CODES,)),
        (Project(PER_CODE, (("code", Call("lower", (Field("code"),))),)), (CODES,)),
    ],
)  # fmt: skip
def test_where_cells_may_hold_several_rows_of_a_unit_the_squares_move_by_the_caps_square(
    relation, groups
):
    assert both(sums(relation, *groups, cap=4)) == ([4], [16])


def test_filters_matches_names_and_unique_partners_keep_one_row_for_each_cell():
    shown = Project(PER_CODE, (("x", Field("code")),))
    for relation, group in (
        (Filter(PER_CODE, Call("gt", (Field("n"), Literal(1)))), CODES),
        (Matching(PER_CODE, Table(VISITS), ()), CODES),
        (Join(PER_CODE, Table(DRUGS), ((Field("code"), Field("name")),)), CODES),
        (shown, by("x", "a", "b")),
    ):
        assert both(sums(relation, group, cap=4)) == ([4], [4])


def test_a_structure_that_bounds_the_rows_needs_no_cap():
    assert both(sums(ONCE)) == ([1], [1])
    assert both(sums(Union((ONCE, ONCE)))) == ([2], [4])
    assert both(sums(Union((Table(ROWS), Table(ROWS))))) == ([2], [4])
    assert both(sums(Union((Table(ROWS), Table(ROWS))), cap=2)) == ([2], [4])


def test_a_cap_beside_a_structure_is_what_is_paid_for():
    assert both(sums(ONCE, cap=5)) == ([5], [5])  # never less than the one row that there is


# values, keys, distinct values


def test_values_keys_and_distinct_values_move_by_what_is_kept_of_a_unit():
    rows, shown = Table(VISITS), (("code", Field("code")),)
    for tally in (
        Values(relation=rows, by=(CODES,), term=field("cost"), rows_per_unit=3),
        Keys(relation=rows, by=shown, keys_per_unit=3),
        Distinct(relation=rows, by=(CODES,), expression=Field("cost"), keys_per_unit=3),
    ):
        query = Query(tally)
        assert (query.per_unit, query.l1s, query.l2s) == (3, (L1(3),), (L2(squared=9),))
    assert Query(Values(relation=Table(ROWS), term=field("cost"))).per_unit == 1
    assert Query(Values(relation=ONCE, term=field("n"))).per_unit == 1
    assert Query(Keys(relation=Table(ROWS), by=shown, keys_per_unit=1)).per_unit == 1


def test_rows_that_may_hold_a_key_twice_show_no_keys():
    twice = Union((Table(ROWS), Table(ROWS)))
    for cap in (1, 2):
        with pytest.raises(Unsupported):
            Query(Keys(relation=twice, by=(("code", Field("code")),), keys_per_unit=cap))


# caps


@pytest.mark.parametrize("cap", [0, -1, True, 1.0, Fraction(2), "2", CAP_MAX + 1])
def test_a_cap_that_is_none_is_refused(cap):
    rows = Table(VISITS)
    for tally in (
        Sums(relation=rows, terms=(ONE,), rows_per_unit=cap),
        Values(relation=rows, term=field("cost"), rows_per_unit=cap),
        Keys(relation=rows, by=(("code", Field("code")),), keys_per_unit=cap),
        Distinct(relation=rows, expression=Field("code"), keys_per_unit=cap),
        Sums(relation=ONCE, terms=(ONE,), rows_per_unit=cap),
    ):
        with pytest.raises(Unsupported):
            Query(tally)


def test_units_without_a_bound_are_refused():
    with pytest.raises(Unsupported, check=about("no-cap")):
        sums()
    with pytest.raises(Unsupported, check=about("no-cap")):
        sums(PER_CODE, CODES)


@pytest.mark.parametrize("cap", [2, 3])
def test_a_cap_has_no_meaning_where_rows_are_persons(cap):
    with pytest.raises(Unsupported, check=about("cap")):
        sums(Table(ROWS), cap=cap)


# terms


@pytest.mark.parametrize(
    "terms",
    [
        (),
        (field("code"),),
        (field("new"),),
        (field("day"),),
        (field("cost", low=3, high=2),),
        (field("cost", low=0, high=0),),
        (field("cost", grain=0),),
        (field("cost", grain=-1),),
        (field("cost", grain=Fraction(1, 10**400)),),
        (field("cost", grain=10**400),),
        (field("cost", high=1.0),),
        (field("cost", low=False),),
        (field("cost", high=REACH_MAX + 1),),
        (field("cost", low=-REACH_MAX - 1),),
        (ONE, field("nope")),
        (Term(expression=Field("cost"), grain=1, low=0, high=1),),
        (Term(expression="cost", grain=Fraction(1), low=0, high=1),),
        (Term(expression=Call("system", (Literal("ls"),)), grain=Fraction(1), low=0, high=1),),
    ],
)
def test_a_term_without_whole_bounds_in_order_is_refused(terms):
    with pytest.raises(Unsupported):
        sums(terms=terms, cap=1)


def test_a_unit_never_moves_a_sum_beyond_the_engines_whole_numbers():
    wide = field("cost", high=REACH_MAX)
    low = replace(wide, low=-REACH_MAX, high=1)
    assert both(sums(terms=(wide, low), cap=CAP_MAX))[0] == [MOVED_MAX, MOVED_MAX]
    assert MOVED_MAX < 2**63
    with pytest.raises(Unsupported):
        Query(Values(relation=Table(ROWS), term=field("cost", high=REACH_MAX + 1)))


# groups

NOON = datetime(2020, 5, 17)  # noqa: DTZ001 - times in tables have no zone


@pytest.mark.parametrize(
    ("name", "keys"),
    [
        ("code", ("a", "a")),
        ("code", (None, None)),
        ("code", (1,)),
        ("code", ("a", b"a")),
        ("code", ()),
        ("who", ("1",)),
        ("who", (1, True)),
        ("who", (1.0,)),
        ("who", (1, 1)),
        ("who", (2**63,)),
        ("new", (0, 1)),
        ("new", (True, True)),
        ("day", (date(2020, 5, 17), NOON)),  # the same moment
        ("day", (NOON,)),
        ("at", (NOON, date(2020, 5, 17))),
        ("at", (date(2020, 5, 17),)),
        ("at", (NOON, NOON + timedelta(0))),
        ("at", (NOON.replace(tzinfo=UTC),)),
        ("code", ("\ud800",)),
        ("cost", (1,)),
        ("cost", (1.5,)),
        ("cost", (Fraction(1),)),
        ("nope", ("a",)),
    ],
)
def test_groups_that_are_not_distinct_keys_of_the_columns_kind_are_refused(name, keys):
    with pytest.raises(NoisegateError):
        sums(Table(VISITS), by(name, *keys), cap=1)
    with pytest.raises(NoisegateError):
        Query(
            Values(
                relation=Table(VISITS), by=(by(name, *keys),), term=field("cost"), rows_per_unit=1
            )
        )


@pytest.mark.parametrize(
    ("name", "keys"),
    [("code", ("a", "A", "", None)), ("who", (-1, 0, 1, None)), ("new", (True, False, None)),
     ("day", (date(2020, 5, 17), date(1, 1, 1))), ("at", (NOON, NOON + timedelta(microseconds=1)))],
)  # fmt: skip
def test_groups_that_are_keys_of_the_columns_kind_are_taken(name, keys):
    assert sums(Table(VISITS), by(name, *keys), cap=1).tally.cells == len(keys)


def test_too_many_cells_are_refused():
    with pytest.raises(Unsupported, check=about("groups")):
        sums(Table(VISITS), by("who", *range(5000)), by("code", *map(str, range(5000))), cap=1)


@pytest.mark.parametrize("shown", [(), (("c", Field("cost")),), (("c", Field("nope")),)])
def test_keys_without_a_kind_of_their_own_are_refused(shown):
    with pytest.raises(Unsupported):
        Query(Keys(relation=Table(VISITS), by=shown, keys_per_unit=1))


# relations


@pytest.mark.parametrize(
    "relation",
    [
        Table(DRUGS),
        Filter(Table(VISITS), Field("code")),
        Filter(Table(VISITS), Field("nope")),
        Project(Table(VISITS), (("a", Field("who")), ("a", Field("code")))),
        Join(Table(VISITS), Table(ROWS), ((Field("code"), Field("code")),)),
        Join(Table(VISITS), Table(DRUGS), ()),
        Join(Table(VISITS), Table(DRUGS), ((Field("who"), Field("name")),)),
        PerUnit(Table(VISITS), (("n", Field("code")),), (Folded("n", Fold.COUNT, Field("code")),)),
        PerUnit(Table(VISITS), (), (Folded("n", Fold.SUM, Field("cost")),)),  # no bounds
        PerUnit(Table(VISITS), (), (Folded("n", Fold.SUM, Field("code")),)),
        Union((Table(VISITS), ONCE)),
        Union(()),
    ],
)
def test_relations_without_a_meaning_are_refused(relation):
    with pytest.raises(Unsupported):
        sums(relation, cap=1)


@pytest.mark.parametrize("tally", [None, ONE, Table(VISITS)])
def test_what_is_no_tally_is_refused(tally):
    with pytest.raises(Unsupported, check=about("tally")):
        Query(tally)


@pytest.mark.parametrize("value", [2**63, 1.5, NOON.replace(tzinfo=UTC), b"a", "\ud800"])
def test_constants_that_no_engine_holds_are_refused(value):
    with pytest.raises(SpecError):
        Literal(value)


# words


def test_the_path_says_how_the_sensitivity_comes_about():
    assert sums(Table(ROWS)).path[-1] == "one person adds at most 1 row"
    assert sums(cap=3).path[-1] == "one person counts for at most 3 rows"
    assert sums(ONCE).path[-1] == "one person has at most 1 row here"
    assert [table.name for table in sums(Matching(ONCE, Table(VISITS), ())).tables] == [
        "visits"
    ] * 2
