"""A secret sample of units: coins of their own, fresh for every question, and a smaller price."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

import noisegate as ng
from door import FINE, ONE, by, curator, domain
from noisegate.accounting.amplification import SAMPLED_DELTA, poisson
from noisegate.accounting.pure import pure_loss
from noisegate.accounting.zcdp import zcdp_loss
from noisegate.algebra.expression import Call, Field, Literal
from noisegate.algebra.relation import (
    Filter,
    Fold,
    Folded,
    Join,
    PerUnit,
    Project,
    Sampled,
    Table,
    Union,
    keyed,
    sample_of,
)
from noisegate.algebra.tally import Cells, Marginals, Sums
from noisegate.curator.measurement import Measurement
from noisegate.errors import Bug, SpecError, Unsupported
from noisegate.mechanisms.additive.gaussian import DiscreteGaussian
from noisegate.mechanisms.additive.geometric import Geometric
from noisegate.privacy.event import (
    DeclaredEvent,
    DiscreteGaussianEvent,
    GeometricEvent,
    KeySelectionEvent,
    PoissonSampled,
    decode,
)
from noisegate.privacy.loss import ApproxDP
from noisegate.sources.duckdb.source import DuckDBSource
from noisegate.transforms.query import Query
from refusals import about

P = Fraction(3, 10)
WARDS = by("ward", "north", "south", "west")
UNITS = 4000
ROWS = pa.table(
    {"id": [n // 2 for n in range(2 * UNITS)], "ward": ["north", "south"] * UNITS}
)  # each unit has a row in both
NORTH = Call("eq", (Field("ward"), Literal("north")))


def sums(relation, unit="id"):
    if unit is None:
        return Sums(relation=relation, by=(WARDS,), terms=(ONE,))
    return Sums(relation=relation, by=(WARDS,), terms=(FINE,), rows_per_unit=2)


def read(relation, key, unit="id"):
    source = DuckDBSource({"people": ROWS}, {"people": domain(unit)})
    return source.sums(sums(keyed(relation, key), unit))[0]


def measured(relation, unit="id"):
    query = Query(sums(relation, unit))
    return Measurement(
        query=query, mechanisms=(Geometric.for_epsilon(1, sensitivity=query.l1s[0]),)
    )


@pytest.mark.parametrize("unit", ["id", None])
def test_a_sample_has_a_binomial_size_and_its_own_coins(unit):
    """False alarm: beyond six standard errors, once in 5 · 10⁸ runs for each of two."""
    relation = Sampled(Table(domain(unit)), P)
    one, other = (read(relation, key, unit)[0] / (1 if unit is None else 1024) for key in "ab")
    spread = 6 * (UNITS * float(P * (1 - P))) ** 0.5
    assert abs(one - UNITS * float(P)) < spread
    assert abs(other - UNITS * float(P)) < spread
    assert (read(relation, "a", unit) == read(relation, "a", unit)).all()


def test_an_owner_is_there_with_all_its_rows_or_not_at_all():
    found = [read(Sampled(Table(domain("id")), P), key) for key in ("a", "b", "c")]
    for north, south, _ in found:
        assert north == south
    assert len({int(each[0]) for each in found}) > 1


def test_sampling_first_or_after_steps_on_single_rows_is_the_same():
    table = Table(domain("id"))
    before, after = Filter(Sampled(table, P), NORTH), Sampled(Filter(table, NORTH), P)
    assert (read(before, "a") == read(after, "a")).all()


def test_each_draw_tosses_its_own_coins():
    """False alarm: 10⁻⁹, the chance that six binomial numbers of variance 840 are all the same."""
    relation = Sampled(Table(domain("id")), P)
    tight = Measurement(query=Query(sums(relation)), mechanisms=(Geometric(scale=Fraction(1, 64)),))
    source = DuckDBSource({"people": ROWS}, {"people": domain("id")})
    door = curator(table=domain("id"), source=source, budget=10**6)
    drawn = [door.measure(tight, request_id=str(n)).values[0][0] for n in range(6)]
    assert len(set(drawn)) > 1
    assert (door.measure(tight, request_id="1").values[0][0]) == drawn[1]


def test_the_price_is_amplified():
    measurement = measured(Sampled(Table(domain("id")), P))
    event = measurement.event()
    assert isinstance(event, PoissonSampled)
    assert event.probability == P
    assert pure_loss(event) == poisson(ApproxDP(1), probability=P)
    assert '"sample":"3/10"' in measurement.question()
    assert Query(sums(Table(domain("id")))).sample is None


JOIN_ON = ((Field("id"), Field("number")),)
OTHER = Project(Sampled(Table(domain("id")), P), (("number", Field("id")),))


@pytest.mark.parametrize(
    "relation",
    [
        Sampled(Sampled(Table(domain("id")), P), P),
        Filter(Sampled(Filter(Sampled(Table(domain("id")), P), NORTH), P), NORTH),
        Join(Table(domain("id")), OTHER, JOIN_ON),
        Union((Sampled(Table(domain("id")), P), Table(domain("id")))),
        Sampled(Table(domain("id")), Fraction(1)),
        Sampled(Table(domain("id")), Fraction(0)),
        Sampled(Table(domain("id")), 0.5),
        Sampled(Table(domain("id")), P, "my own coins"),
    ],
)
def test_samples_elsewhere_have_no_rule(relation):
    with pytest.raises(Unsupported):
        Query(sums(relation))


def test_rows_that_stand_for_one_person_twice_cannot_be_sampled():
    twice = Union((Table(domain(None)), Table(domain(None))))
    with pytest.raises(Unsupported):
        Query(sums(Sampled(twice, P), None))


def test_tables_of_several_sets_have_no_sample_of_their_own():
    relation = Sampled(Table(domain("id")), P)
    tally = Marginals(relation=relation, by=(WARDS,), sets=((0,),), term=FINE, rows_per_unit=1)
    with pytest.raises(Unsupported):
        Query(tally)


@pytest.mark.parametrize("unit", ["id", None])
def test_cells_are_those_of_the_sample(unit):
    """False alarm: beyond six standard deviations, once in 5 · 10⁸ runs."""
    relation, cap = Sampled(Table(domain(unit)), P), None if unit is None else 2
    tally = Cells(relation=relation, by=(WARDS,), rows_per_unit=cap)
    assert Query(tally).sample == P
    source = DuckDBSource({"people": ROWS}, {"people": domain(unit)})
    found = source.cells(replace(tally, relation=keyed(relation, "a")))
    assert found.cells.tolist() == [0, 1]
    spread = 6 * (UNITS * float(P * (1 - P))) ** 0.5
    assert (np.abs(found.counts - UNITS * float(P)) < spread).all()
    assert unit is None or found.counts[0] == found.counts[1]  # all rows of a unit, or none


def test_a_recipe_cannot_ask_twice_about_a_sample_for_its_amplified_price():
    door = curator(table=domain("id"), budget=4)
    measurement = measured(Sampled(Table(domain("id")), P))
    for event in (
        DeclaredEvent(epsilon=1),
        PoissonSampled(event=DeclaredEvent(epsilon=1), probability=P),
    ):
        with (
            door.allowance(event, question="recipe", request_id=str(event)[:50]) as allowed,
            pytest.raises(Unsupported),
        ):
            allowed.whole.measure(measurement)
    assert door.ledger.balance("clinic").spent.epsilon == 0


def test_no_source_reads_a_sample_without_coins():
    source = DuckDBSource({"people": ROWS}, {"people": domain("id")})
    with pytest.raises(Bug):
        source.sums(sums(Sampled(Table(domain("id")), P)))


def test_folds_of_a_sample_keep_their_owners():
    rows = Folded("n", Fold.COUNT, Literal(1))
    folded = PerUnit(Sampled(Table(domain("id")), P), (), (rows,))
    tally = Sums(relation=folded, terms=(ONE,))
    assert sample_of(folded) is not None
    source = DuckDBSource({"people": ROWS}, {"people": domain("id")})
    assert Query(tally).per_unit == 1
    people = source.sums(replace(tally, relation=keyed(folded, "a")))[0][0]
    assert people == read(Sampled(Table(domain("id")), P), "a")[0] / 1024
    assert np.issubdtype(type(people), np.integer)


PEOPLE = pa.table({"ward": ["north"] * 6000 + ["south"] * 2000, "age": [30, 50] * 4000})
DECLARED = {"ward": {"in": ["north", "south"]}, "age": {"type": "integer", "between": [0, 99]}}


@pytest.fixture
def gate():
    return ng.open(PEOPLE, epsilon=1, columns=DECLARED)


def test_answers_about_a_sample_are_about_all_rows_at_the_price_asked(gate):
    """False alarm: six standard deviations of sampling and noise, once in 10⁸ runs for each."""
    answer = gate.sample("1/4").sql(
        "SELECT ward, COUNT(*) AS n, AVG(age) AS mean, SUM(age) AS total FROM data GROUP BY ward",
        epsilon="0.5",
    )
    for (_, n, mean, total), exact in zip(answer.rows, (6000, 2000), strict=True):
        spread = 6 * ((exact * 3) ** 0.5 + 60)
        assert abs(n - exact) < spread
        assert abs(mean - 40) < 15
        assert abs(total - 40 * exact) < 60 * spread
    assert Fraction(499, 1000) < gate.spent.epsilon <= Fraction(1, 2)
    assert any("secret sample" in words for words in answer.caveats)


def test_quantiles_of_a_sample_are_those_of_all_rows(gate):
    """False alarm: a median of 30s and 50s outside both, by ranks beyond 200: below 10⁻⁹."""
    answer = gate.sample("1/4").sql("SELECT QUANTILE(age, 0.25) AS q FROM data", epsilon="0.5")
    assert answer.rows[0][0] == 30
    assert Fraction(499, 1000) < gate.spent.epsilon <= Fraction(1, 2)


def test_less_noise_about_the_sample_is_more_about_all_rows(gate):
    question = "SELECT COUNT(*) AS n FROM data"
    sampled = gate.sample("1/4").plan(question, epsilon="0.1")
    assert sampled.price.epsilon <= Fraction(1, 10)
    scales = [
        each.plan(question, epsilon="0.1").expected.bought[0].mechanisms[0][0].scale
        for each in (gate, gate.sample("1/4"))
    ]
    assert scales[0] < 4 * scales[1] < 2 * scales[0]


@pytest.mark.parametrize(
    "ask",
    [
        lambda gate: gate.sample(1),
        lambda gate: gate.sample(0),
        lambda gate: gate.sample("1/2").sample("1/2"),
        lambda gate: gate.sample("1/10000000"),
        lambda gate: gate.sample("1/2").caps("data", epsilon=1),
        lambda gate: gate.sample("1/2").sql("SELECT COUNT(*) FROM data", within=9),
        lambda gate: gate.sample("1/2").release("crowd-histogram", columns={"ward": None}, probability="1/2", crowd=9, epsilon=1),
        lambda gate: gate.sample("1/2").release("synthetic", columns=["ward"], total=8000, epsilon=1),
    ],
)  # fmt: skip
def test_what_has_no_sample_is_refused_for_nothing(gate, ask):
    with pytest.raises((SpecError, Unsupported)):
        ask(gate)
    assert gate.spent.epsilon == 0


def test_looks_are_at_the_sample_for_the_amplified_price():
    """All ages are from 32 to 63, and all units have two rows; noise of scale 1/2 or less.

    Of 2,000 units 500 are expected in the sample: beyond six deviations once in 10⁸ runs.
    """
    rows = pa.table({"id": np.arange(4000) // 2, "age": [40, 50] * 2000})
    gate = ng.open(
        rows, epsilon=5, unit="id", columns={"age": {"type": "integer"}}, rows_per_unit=2
    )
    sample = gate.sample("1/4")
    low, high = sample.bounds("data", "age", epsilon=1)
    assert low <= 32  # an empty bin may widen them
    assert high >= 64
    found = sample.caps("data", epsilon=1)
    assert Fraction(1999, 1000) < gate.spent.epsilon <= 2
    assert abs(found.units[1] - 2000) < 6 * (2000 * 3) ** 0.5 + 80


def test_accounts_of_rho_pay_for_pure_noise_about_a_sample():
    gate = ng.open(PEOPLE, epsilon=9, delta=1e-6, accountant="zcdp", columns=DECLARED)
    asked = "SELECT ward, COUNT(*) AS n FROM data GROUP BY ward"
    price = gate._desk.asked(Fraction(1))  # buys ρ = 1/2
    plan = gate.sample("1/2").plan(asked, epsilon=price)
    assert isinstance(plan.expected.event, PoissonSampled)
    assert isinstance(plan.expected.event.event, GeometricEvent)
    assert Fraction(4999, 10000) < zcdp_loss(plan.expected.event).rho <= Fraction(1, 2)
    bell = Measurement(
        query=Query(sums(Sampled(Table(domain("id")), P))),
        mechanisms=(DiscreteGaussian(variance=100),),
    )
    with pytest.raises(Unsupported, check=about("price")):
        pure_loss(bell.event())
    assert zcdp_loss(bell.event()).rho <= zcdp_loss(bell.event().event).rho


def test_accounts_of_rho_have_gaussian_noise_about_a_sample_where_it_errs_less():
    """Of 50 rows of a unit in 50 groups, geometric noise hides 50 and Gaussian noise √50."""
    rows = pa.table({"id": np.arange(5000) // 50, "day": np.arange(5000) % 50})
    columns = {"day": {"type": "integer", "between": [0, 49], "in": list(range(50))}}
    gate = ng.open(rows, epsilon=9, delta=1e-6, accountant="zcdp", unit="id", columns=columns)
    asked = "SELECT day, COUNT(DISTINCT id) AS n FROM data GROUP BY day"
    price = gate._desk.asked(Fraction(1, 10))  # buys ρ = 1/200
    for p in ("1/2", "1/100"):
        plan = gate.sample(p).plan(asked, epsilon=price, groups_per_unit=50)
        assert isinstance(plan.expected.event.event, DiscreteGaussianEvent)
        loss = zcdp_loss(plan.expected.event)
        assert Fraction(4999, 10**6) < loss.rho <= Fraction(1, 200)
        assert loss.delta == SAMPLED_DELTA
    answer = gate.sample("1/100").sql(asked, epsilon=price, groups_per_unit=50)
    assert len(answer.rows) == 50
    assert gate.ledger.verify().ok
    for other, kind in (("renyi-16", DiscreteGaussianEvent), ("renyi-5/2", GeometricEvent),
                        ("pure", GeometricEvent)):  # fmt: skip
        gate = ng.open(rows, epsilon=9, delta=1e-6, accountant=other, unit="id", columns=columns)
        plan = gate.sample("1/100").plan(asked, epsilon="1/10", groups_per_unit=50)
        assert isinstance(plan.expected.event.event, kind)


def test_groups_of_a_sample_are_found_with_a_delta_that_is_amplified_too():
    """Both wards show: a count of 500 below its threshold is beyond 30 scales."""
    gate = ng.open(PEOPLE, epsilon=1, delta=1e-3, columns={**DECLARED, "ward": {"type": "text"}})
    sample = gate.sample("1/4")
    asked = "SELECT ward, COUNT(*) AS n FROM data GROUP BY ward"
    answer = sample.sql(asked, epsilon="0.8", delta="1e-6")
    assert [ward for ward, _ in answer.rows] == ["north", "south"]
    found, counted = (decode(e.body["event"]) for e in gate.history() if e.kind == "reserve")
    assert isinstance(found.event, KeySelectionEvent)
    inner = found.event.epsilon, found.event.delta
    outer = poisson(ApproxDP(*inner), probability=Fraction(1, 4))
    assert pure_loss(found) == outer
    assert Fraction(999, 1000) * Fraction(1, 10**6) <= outer.delta <= Fraction(1, 10**6)
    assert inner[1] == 4 * outer.delta
    assert inner[0] > Fraction(2, 10) > outer.epsilon - Fraction(1, 10**9)
    assert pure_loss(counted).delta == 0
    assert Fraction(799, 1000) < gate.spent.epsilon <= Fraction(8, 10)


def test_different_values_are_those_of_the_sample(gate):
    answer = gate.sample("1/4").sql("SELECT COUNT(DISTINCT age) AS n FROM data", epsilon=1)
    assert abs(answer.rows[0][0] - 2) < 20  # scale below 1/2: once in 10¹⁷ runs
    assert any("that of the sample" in words for words in answer.caveats)
    assert Fraction(999, 1000) < gate.spent.epsilon <= 1


def test_an_average_is_made_of_one_sample_whatever_was_asked_before():
    """Ages are all 90, far off the middle: a count of another sample would show.

    With one sample both sums err together; else by 40 · 3 % or so, ten times the ±.
    """
    rows = pa.table({"ward": ["north"] * 4000, "age": [90] * 4000})
    gate = ng.open(rows, epsilon=100, columns=DECLARED)
    sample = gate.sample("1/4")
    sample.sql("SELECT COUNT(*) FROM data", epsilon=10)
    (mean,) = sample.sql("SELECT AVG(age) FROM data", epsilon=10).rows[0]
    assert abs(mean - 90) < 0.5


def test_the_bars_of_counts_hold_what_sampling_adds():
    """300 groups at 90 %: fewer than 240 hold once in 10⁶ runs, if each holds with exactly 90 %."""
    rows = pa.table({"group": np.repeat(np.arange(300), 80)})
    columns = {"group": {"type": "integer", "between": [0, 299], "in": list(range(300))}}
    gate = ng.open(rows, epsilon=100, columns=columns)
    asked = 'SELECT "group", COUNT(*) AS n FROM data GROUP BY "group"'
    answer = gate.sample("1/4").sql(asked, epsilon=5)
    widths = np.array(answer.margins(0.9)["n"])
    off = np.abs(np.array([n for _, n in answer.rows]) - 80)
    assert (off <= widths).sum() >= 240
    spread = (80 * 3) ** 0.5
    assert 1.64 * spread < widths.mean() < 2.2 * 1.64 * spread
