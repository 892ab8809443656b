"""From a block to tallies: what is shared, what is refused, what a unit may add, what it costs."""

from dataclasses import replace
from fractions import Fraction

import pytest

from noisegate.accounting.accountants import accountant_named
from noisegate.algebra.expression import Call, Field, Literal
from noisegate.algebra.relation import Filter, PerUnit, Table
from noisegate.algebra.schema import schema_of
from noisegate.algebra.tally import Distinct, Sums, Values
from noisegate.errors import SpecError, Unsupported
from noisegate.mechanisms.additive.gaussian import DiscreteGaussian
from noisegate.mechanisms.additive.geometric import Geometric
from noisegate.mechanisms.quantiles.brackets import Brackets
from noisegate.mechanisms.quantiles.quantiles import Quantiles
from noisegate.privacy.domain import Column, Kind, TableDomain
from noisegate.privacy.event import Sequential
from noisegate.privacy.unit import PrivacyUnit
from noisegate.sql.drafts.draft import draft
from noisegate.sql.drafts.groups import Caps, key_questions
from noisegate.sql.drafts.purchase import extreme_level, purchase
from noisegate.sql.estimates.accuracy import Goal, decimal, epsilon_for
from noisegate.sql.estimates.estimate import predicted
from noisegate.sql.question import Aggregate, Block, Function, GroupKey
from refusals import about

HALF = Fraction(1, 2)
COLUMNS = (
    Column(name="age", kind=Kind.INTEGER, between=(Fraction(18), Fraction(90)), nullable=False),
    Column(name="income", kind=Kind.NUMBER, between=(Fraction(0), Fraction(100_000))),
    Column(name="weight", kind=Kind.NUMBER),
    Column(name="ward", kind=Kind.TEXT, keys=("n", "s", "e"), nullable=False),
    Column(name="sex", kind=Kind.TEXT, keys=("f", "m")),
    Column(name="city", kind=Kind.TEXT, nullable=False),
    Column(name="street", kind=Kind.TEXT),
    Column(name="born", kind=Kind.DATE, between=(Fraction(0), Fraction(10_000))),
    Column(name="seen", kind=Kind.TIMESTAMP, between=(Fraction(0), Fraction(10**15))),
)


def table(unit=None):
    columns = {column.name: column for column in COLUMNS}
    owner = PrivacyUnit(column=unit)
    return Table(TableDomain(dataset="d", name="visits", unit=owner, columns=columns))


def ask(function, *args, name=None, level=None, where=None):
    fields = tuple(Field(arg) for arg in args)
    name = name or f"{function.value} {args} {level}"
    return Aggregate(name=name, function=function, args=fields, level=level, where=where)


def block(*aggregates, by=(), sets=None, unit=None):
    relation = table(unit)
    schema = schema_of(relation)
    keys = tuple(GroupKey(name=f"k_{b}", expression=Field(b), domain=schema[b]) for b in by)
    every = (tuple(range(len(by))),)
    return Block(name="b", relation=relation, by=keys, sets=sets or every, aggregates=aggregates)


def sums_of(found):
    return [part.query.tally for part in found.parts if isinstance(part.query.tally, Sums)]


def event_of(bought):
    """All that is drawn, one after the other."""
    events = [key_question.event() for key_question in bought.keys]
    for part, mechanisms in zip(bought.draft.parts, bought.mechanisms, strict=True):
        query = part.query
        for place, mechanism in enumerate(mechanisms):
            if isinstance(mechanism, Brackets | Quantiles):
                events.append(mechanism.event(query.per_unit))
            elif isinstance(mechanism, DiscreteGaussian):
                events.append(mechanism.event(query.l2s[place]))
            else:
                events.append(mechanism.event(query.l1s[place]))
    return Sequential(events=tuple(events))


EVERYTHING = (
    ask(Function.COUNT), ask(Function.COUNT_VALUES, "income"), ask(Function.COUNT_UNITS),
    ask(Function.COUNT_DISTINCT, "city"), ask(Function.SUM, "income"), ask(Function.AVG, "age"),
    ask(Function.VAR_SAMP, "age"), ask(Function.STDDEV_POP, "income"),
    ask(Function.COVAR_POP, "age", "income"), ask(Function.CORR, "age", "income"),
    ask(Function.QUANTILE, "age", level=HALF), ask(Function.QUANTILE, "age", level=HALF / 2),
    ask(Function.MIN, "born"), ask(Function.MAX, "seen"),
)  # fmt: skip


def test_a_mean_and_a_count_share_their_count():
    found = draft(block(ask(Function.COUNT), ask(Function.AVG, "age")), Caps())
    (tally,) = sums_of(found)
    assert len(tally.terms) == 2  # the column is never missing, so its values are the rows
    with_nulls = draft(block(ask(Function.COUNT), ask(Function.AVG, "income")), Caps())
    assert len(sums_of(with_nulls)[0].terms) == 3
    both = draft(block(ask(Function.COUNT_VALUES, "income"), ask(Function.AVG, "income")), Caps())
    assert len(sums_of(both)[0].terms) == 2


def test_a_mean_is_measured_around_the_middle_with_half_the_reach():
    found = draft(block(ask(Function.AVG, "age")), Caps())
    reaches = sorted(term.reach for term in sums_of(found)[0].terms)
    assert reaches == [1, 36]
    assert found.recipes[0].means[0].middle == 54


def test_a_sum_alone_is_direct_and_beside_count_and_mean_it_is_derived():
    alone = draft(block(ask(Function.SUM, "age")), Caps())
    assert [term.reach for term in sums_of(alone)[0].terms] == [90]
    beside = draft(
        block(ask(Function.COUNT), ask(Function.AVG, "age"), ask(Function.SUM, "age")), Caps()
    )
    assert len(sums_of(beside)[0].terms) == 2
    assert beside.recipes[2].direct is None


def test_a_filter_applies_to_sum_and_count_alike():
    where = Call("gt", (Field("age"), Literal(40)))
    found = draft(block(ask(Function.AVG, "age", where=where)), Caps())
    for term in sums_of(found)[0].terms:
        assert term.expression.function == "case"
        assert term.expression.args[0] == where


def test_sums_without_bounds_are_refused_with_both_ways_out():
    for function in (Function.SUM, Function.AVG, Function.VAR_POP, Function.QUANTILE):
        with pytest.raises(Unsupported, check=about("bounds"), match=r"choose=.bounds"):
            draft(block(ask(function, "weight", level=HALF)), Caps())
    with pytest.raises(Unsupported, check=about("type")):
        draft(block(ask(Function.SUM, "ward")), Caps())


def test_rows_that_are_people_take_no_cap_and_units_are_rows():
    found = draft(block(ask(Function.COUNT_UNITS), ask(Function.COUNT)), Caps())
    (tally,) = sums_of(found)
    assert tally.rows_per_unit is None
    assert len(tally.terms) == 1


def test_rows_of_people_need_a_cap_and_are_counted_finely_enough_for_weights():
    with pytest.raises(Unsupported, match="rows_per_unit"):
        draft(block(ask(Function.COUNT), unit="id"), Caps())
    found = draft(
        block(ask(Function.COUNT), ask(Function.SUM, "age"), unit="id"), Caps(rows_per_unit=5)
    )
    (tally,) = sums_of(found)
    assert tally.rows_per_unit == 5
    assert all(term.reach >= 1 << 16 for term in tally.terms)
    assert found.capped[0] == (
        "Capped: 5 rows per person; a unit with more is scaled down as a whole (not in the ±): counts, "
        "and sums of non-negative values, are lower bounds."
    )


def test_a_cap_on_groups_changes_no_sum_and_needs_a_cap_on_rows():
    wanted = block(ask(Function.SUM, "age"), by=("ward",), unit="id")
    one, other = (
        draft(wanted, Caps(rows_per_unit=10, groups_per_unit=groups)) for groups in (None, 4)
    )
    assert one == other
    assert one.parts[0].query.l1s[0].value == 10 * one.parts[0].query.tally.terms[0].reach
    with pytest.raises(Unsupported, match="rows_per_unit"):
        draft(wanted, Caps(groups_per_unit=4))


def test_gaussian_noise_hides_a_euclidean_norm():
    wanted = block(ask(Function.SUM, "age"), by=("ward",), unit="id")
    found = draft(wanted, Caps(rows_per_unit=10), accountant="zcdp")
    (tally,) = sums_of(found)
    query = found.parts[0].query
    assert (tally.rows_per_unit, tally.squares_per_unit, query.per_unit) == (None, 100, 10)
    assert query.l2s[0].squared == 100 * tally.terms[0].reach ** 2
    assert query.l1s[0].value ** 2 >= tally.cells * query.l2s[0].squared


def test_what_sizes_a_unit_up_is_said_by_the_question():
    def sized(*asked, **more):
        found = draft(block(*asked, by=("ward",), unit="id"), Caps(rows_per_unit=10), **more)
        return sums_of(found)[0].sized

    rows = sized(ask(Function.COUNT))
    assert [term.expression for term in rows] == [Literal(1)]
    assert sized(ask(Function.COUNT), ask(Function.SUM, "income")) == rows
    (income,) = sized(ask(Function.SUM, "income"), derive=False)
    assert income.expression == Field("income")
    (held,) = sized(ask(Function.AVG, "income"))
    assert held.high * held.grain == 1  # the count of its values


def test_the_shares_of_a_mean_do_not_depend_on_where_zero_is():
    ages = ask(Function.AVG, "age")
    years = Aggregate(
        name="y", function=Function.AVG, args=(Call("add", (Field("age"), Literal(1900))),)
    )
    one, other = (draft(block(ask(Function.COUNT), mean), Caps()) for mean in (ages, years))
    assert one.split.shares == other.split.shares


def test_units_are_counted_once_per_group_and_once_in_all():
    wanted = block(ask(Function.COUNT_UNITS), by=("ward",), unit="id")
    grouped = draft(wanted, Caps(groups_per_unit=2))
    (tally,) = sums_of(grouped)
    assert isinstance(tally.relation, PerUnit)
    assert (tally.rows_per_unit, grouped.parts[0].query.per_unit) == (2, 2)
    assert grouped.capped[0].startswith("Capped: 2 groups per person;")
    both = block(ask(Function.COUNT_UNITS), ask(Function.COUNT), by=("ward",), unit="id")
    capped = draft(both, Caps(groups_per_unit=2, rows_per_unit=5)).capped
    assert [words.split(";")[0] for words in capped] == [
        "Capped: 5 rows per person", "Capped: 2 groups per person",
    ]  # fmt: skip
    total = draft(block(ask(Function.COUNT_UNITS), unit="id"), Caps())
    assert total.parts[0].query.l1s[0].value == 1


def test_a_unit_is_in_no_more_groups_than_there_are():
    wanted = block(ask(Function.COUNT_UNITS), by=("ward",), unit="id")
    (tally,) = sums_of(draft(wanted, Caps(groups_per_unit=20)))
    assert tally.rows_per_unit == tally.cells == 3
    assert draft(wanted, Caps(groups_per_unit=20)).capped == ()
    (tally,) = sums_of(draft(wanted, Caps(groups_per_unit=20), accountant="zcdp"))
    assert tally.squares_per_unit == 3


def test_levels_of_one_column_go_together_and_extremes_apart():
    found = draft(
        block(
            ask(Function.QUANTILE, "age", level=HALF), ask(Function.QUANTILE, "age", level=HALF / 2),
            ask(Function.QUANTILE, "income", level=HALF), ask(Function.MIN, "age"),
            ask(Function.QUANTILE, "age", level=Fraction(0)), ask(Function.COUNT_DISTINCT, "city"),
        ),
        Caps(),
    )  # fmt: skip
    assert [part.other.levels for part in found.parts] == [(HALF / 2, HALF), (HALF,), (), ()]
    assert [type(part.query.tally) for part in found.parts] == [Values, Values, Values, Distinct]
    assert [recipe.level for recipe in found.recipes] == [1, 0, 0, 0, 0, 0]


def test_a_quantile_says_its_rank_error_in_numbers():
    levels = (HALF, HALF / 2)
    found = draft(block(*(ask(Function.QUANTILE, "age", level=level) for level in levels)), Caps())
    bought = purchase(found, epsilon=1)
    lower, middle = bought.mechanisms[0][0].rank_errors("0.95")
    assert (
        f"MEDIAN(age): ± {middle} ranks at 95 %; QUANTILE(age, 0.25): ± {lower} ranks at 95 %."
        in bought.caveats
    )
    assert middle < lower


def test_levels_that_are_alike_say_their_rank_error_once():
    levels = (HALF / 2, HALF, 3 * HALF / 2)
    found = draft(block(*(ask(Function.QUANTILE, "age", level=level) for level in levels)), Caps())
    bought = purchase(found, epsilon=1)
    outer, middle, upper = bought.mechanisms[0][0].rank_errors("0.95")
    assert outer == upper
    assert [words for words in bought.caveats if "ranks" in words] == [
        f"MEDIAN(age): ± {middle} ranks at 95 %; QUANTILE(age, 0.25 and 0.75): ± {outer} ranks at 95 %."
    ]


def test_what_is_capped_by_leaving_out_says_so():
    asked = block(
        ask(Function.QUANTILE, "age", level=HALF), ask(Function.COUNT_DISTINCT, "city"), unit="id"
    )
    caveats = draft(asked, Caps(rows_per_unit=5)).capped
    assert (
        "Capped: 5 rows per person; of a unit with more, some are left out evenly (not in the ±)."
        in caveats
    )
    assert (
        "Capped: 5 values per person; of a unit with more, some are left out (not in the ±)."
        in caveats
    )
    alone = draft(block(ask(Function.COUNT_DISTINCT, "city")), Caps())
    assert alone.capped == ()


def test_a_missing_value_is_a_group_of_its_own():
    found = draft(block(ask(Function.COUNT), by=("ward", "sex")), Caps())
    assert found.groups == (("n", "s", "e"), ("f", "m", None))


def test_groups_that_are_not_declared_are_asked_for_first():
    wanted = block(ask(Function.COUNT), by=("city", "street", "ward"))
    (keys,) = key_questions(wanted, Caps())
    assert [name for name, _ in keys.by] == ["k_city", "k_street", "k_ward"]
    pairs = [("x", "a", "n"), ("y", "b", "n"), ("y", "b", "outside")]
    found = draft(wanted, Caps(), found=[pairs])
    assert found.groups == (("x", "y"), ("a", "b"), ("n", "s", "e"))
    assert found.shown == ((0, 1, 2), frozenset(pairs))  # those that exist
    alone = block(ask(Function.COUNT), by=("street",))
    assert draft(alone, Caps(), found=[[("b",), ("a",)]]).groups == (("a", "b"),)
    assert draft(block(ask(Function.COUNT), by=("city",)), Caps(), found=[[]]).parts == ()
    with pytest.raises(Unsupported, check=about("delta")):
        purchase(found, epsilon=1)
    with pytest.raises(Unsupported, match="groups_per_unit"):
        key_questions(block(by=("city",), unit="id"), Caps())


def test_grouping_sets_read_only_rows_that_are_in_all_of_them():
    found = draft(block(ask(Function.COUNT), by=("ward", "sex"), sets=((0, 1), (0,))), Caps())
    tally = sums_of(found)[0]
    assert isinstance(tally.relation, Filter)
    assert tally.relation.condition.function == "or"  # a key of the list, or none
    assert isinstance(tally.relation.of, Table)  # the ward is in every set


@pytest.mark.parametrize("unit", [None, "id"])
@pytest.mark.parametrize("by", [(), ("ward",), ("city",)])
def test_a_pure_account_is_charged_exactly_epsilon(unit, by):
    caps = Caps() if unit is None else Caps(rows_per_unit=6, groups_per_unit=2)
    bought = purchase(
        draft(block(*EVERYTHING, by=by, unit=unit), caps), epsilon="0.7", delta="1e-6", rows=10_000
    )
    charged, delta = accountant_named("pure").price(event_of(bought)).as_fractions()
    assert charged == Fraction(7, 10)
    assert 0 < delta <= Fraction(1, 10**6) if by == ("city",) else delta == 0


@pytest.mark.parametrize("unit", [None, "id"])
@pytest.mark.parametrize("sets", [None, ((0, 1), (0,), ())])
def test_a_zcdp_account_is_charged_half_of_epsilon_squared(unit, sets):
    caps = Caps() if unit is None else Caps(rows_per_unit=6, groups_per_unit=2)
    wanted = block(*EVERYTHING, by=("ward", "sex"), sets=sets, unit=unit)
    bought = purchase(draft(wanted, caps, accountant="zcdp"), epsilon="0.7", rows=10_000)
    charged, delta = accountant_named("zcdp").price(event_of(bought)).as_fractions()
    assert Fraction(245 - 1, 1000) < charged <= Fraction(245, 1000)
    assert delta == 0


def test_under_zcdp_the_noise_with_the_smaller_margin_is_bought():
    one = purchase(draft(block(ask(Function.COUNT)), Caps(), accountant="zcdp"), epsilon=1)
    geometric, gaussian = Geometric(scale=1), DiscreteGaussian(variance=1)
    assert gaussian.interval("0.95") < geometric.interval("0.95")
    assert one.mechanisms == ((gaussian,),)
    loud = purchase(draft(block(ask(Function.COUNT)), Caps(), accountant="zcdp"), epsilon=8)
    assert loud.mechanisms[0][0].interval("0.95") == 0


def test_the_price_of_an_accuracy_is_the_least_that_meets_it():
    found = draft(block(ask(Function.COUNT), ask(Function.SUM, "age")), Caps())
    goal = Goal(within=Fraction(400))
    price = epsilon_for(found, goal)
    assert price == Fraction(f"{float(price):.3g}")
    assert max(predicted(purchase(found, epsilon=price), "0.95").values()) <= 400
    below = decimal(next(i for i in range(9000) if decimal(i + 1) == price))
    assert max(predicted(purchase(found, epsilon=below), "0.95").values()) > 400


def test_a_relative_accuracy_holds_for_the_guessed_size():
    found = draft(block(ask(Function.COUNT), by=("ward",)), Caps())
    price = epsilon_for(found, Goal(relative=Fraction(1, 100), rows=30_000))
    margins = predicted(purchase(found, epsilon=price), "0.95")
    assert list(margins.values()) == [100.0]  # of 10,000 in each of three wards
    ranks = draft(block(ask(Function.QUANTILE, "age", level=HALF)), Caps())
    dear = epsilon_for(ranks, Goal(relative=Fraction(1, 100), rows=30_000))
    (mechanism,) = purchase(ranks, epsilon=dear).mechanisms[0]
    assert mechanism.rank_error("0.95") <= 300


def test_accuracy_is_refused_where_it_would_need_the_rows():
    mean = draft(block(ask(Function.AVG, "age")), Caps())
    with pytest.raises(Unsupported, check=about("rows")):
        epsilon_for(mean, Goal(within=Fraction(1)))
    with pytest.raises(Unsupported, check=about("rows"), match="rows=10000"):
        epsilon_for(mean, Goal(within=Fraction(1)))
    assert epsilon_for(mean, Goal(within=Fraction(1), rows=10_000)) < Fraction(1, 10)
    where = Call("gt", (Field("age"), Literal(40)))
    some = draft(block(ask(Function.AVG, "age", where=where)), Caps())
    for goal in ({"within": Fraction(1)}, {"relative": Fraction(1, 10)}):
        with pytest.raises(Unsupported, check=about("rows"), match=r"FILTER.*WHERE"):
            epsilon_for(some, Goal(**goal, rows=10_000))
    with pytest.raises(Unsupported, check=about("accuracy")):
        epsilon_for(draft(block(ask(Function.MIN, "age")), Caps()), Goal(within=Fraction(1)))
    with pytest.raises(Unsupported, check=about("rows"), match="rows=10000"):
        Goal(relative=Fraction(1, 10))
    with pytest.raises(Unsupported, check=about("rows")):
        epsilon_for(
            draft(block(ask(Function.COUNT_DISTINCT, "city")), Caps()),
            Goal(relative=Fraction(1, 10), rows=10),
        )
    with pytest.raises(SpecError, check=about("accuracy")):
        Goal()
    with pytest.raises(Unsupported, check=about("accuracy")):
        epsilon_for(draft(block(ask(Function.SUM, "income")), Caps()), Goal(within=Fraction(1)))


def test_extremes_say_which_quantile_they_are():
    found = draft(block(ask(Function.MIN, "age"), ask(Function.MAX, "age")), Caps())
    bought = purchase(found, epsilon=1, rows=100_000)
    low, high = (mechanisms[0].taus[0] for mechanisms in bought.mechanisms)
    assert 0 < low < Fraction(1, 500)
    assert high == 1 - low
    ranks = bought.mechanisms[0][0].rank_error("0.95")
    assert any(
        f"MIN(age) is a private quantile: about {float(low * 100):.2g} % of the rows lie below it, "
        f"± {ranks} ranks at 95 %," in words
        for words in bought.caveats
    )
    where = Call("gt", (Field("age"), Literal(40)))
    some = draft(block(ask(Function.MIN, "age", where=where)), Caps())
    assert purchase(some, epsilon=1, rows=100_000).mechanisms[0][0].taus[0] == Fraction(1, 100)
    assert extreme_level(Fraction(1), points=73, rows=None) == Fraction(1, 100)
    assert extreme_level(Fraction(1), points=73, rows=5) == HALF


def test_drafts_do_not_depend_on_the_order_of_aggregates_beyond_their_order():
    one, two = ask(Function.COUNT), ask(Function.AVG, "income")
    shares = draft(block(one, two), Caps()).split.shares
    assert sorted(shares) == sorted(draft(block(two, one), Caps()).split.shares)
    assert draft(block(one, replace(one, name="again")), Caps()).split.shares == (1,)
