"""Running totals of a table that grows: paid once, each question drawn once, unbiased."""

import json
from dataclasses import replace
from datetime import date, timedelta
from fractions import Fraction
from itertools import combinations, product

import numpy as np
import pyarrow as pa
import pytest
from pyarrow.csv import write_csv
from typer.testing import CliRunner

import noisegate
from door import table
from noisegate.algebra.expression import Call, Field, Literal
from noisegate.algebra.relation import Filter, Table, Union
from noisegate.algebra.tally import Term
from noisegate.cli import app
from noisegate.curator.curator import Curator
from noisegate.curator.series import (
    ROOT_UNIT,
    Counter,
    Series,
    _rank,
    _unpacked,
    capped,
    questions,
    root_factor,
)
from noisegate.errors import (
    Bug,
    NoisegateError,
    OverBudget,
    RequestConflict,
    SpecError,
    Unsupported,
)
from noisegate.ledger.open import open_ledger
from noisegate.noise.bits import SYSTEM
from noisegate.privacy.domain import Column, Kind
from noisegate.privacy.loss import ApproxDP
from noisegate.releases.forms.running import SeriesRelease, predicted, totals_of
from noisegate.sources.duckdb.source import DuckDBSource
from refusals import about, listed

DAYS = tuple(date(2024, 1, 1) + timedelta(days=i) for i in range(100))
ONE = Term(expression=Literal(1), grain=Fraction(1), low=0, high=1)
SURE = Fraction(2000)  # so much ε that noise is 0, but for one draw in e^200


def visits(unit=None, snapshot="1"):
    columns = (
        Column(name="pid", kind=Kind.INTEGER),
        Column(name="t", kind=Kind.INTEGER, between=(Fraction(0), Fraction(99))),
    )
    return table("visits", unit, *columns, snapshot=snapshot)


def counter(unit=None, cap=None, *, amount=Fraction(1), horizon=15, domain=None, **more):
    return Counter(
        relation=Table(domain or visits(unit)), period=Field("t"), periods=tuple(range(100)),
        term=ONE, rows_per_unit=cap, amount=amount, gaussian=more.pop("gaussian", False),
        horizon=horizon, **more,
    )  # fmt: skip


def door(where, rows, *, unit=None, snapshot="1", budget="1", accountant="pure", delta=0):
    domain = visits(unit, snapshot)
    ledger = open_ledger(str(where))
    ledger.open_account(
        "clinic", parent=None, accountant=accountant, budget=ApproxDP(budget, delta),
        unit=str(domain.unit),
    )  # fmt: skip
    arrow = pa.table({"pid": [p for p, _ in rows], "t": [t for _, t in rows]}, schema=SCHEMA)
    source = DuckDBSource({"visits": arrow}, {"visits": domain})
    return Curator(
        source=source, tables={"visits": domain}, ledger=ledger, account="clinic"
    ), domain


SCHEMA = pa.schema([("pid", pa.int64()), ("t", pa.int64())])


# what one unit can lose


def loss_of_a_row(made, period):
    """The log-ratio (or ρ) that a row of one period adds up over the whole life of the series."""
    total, noises = Fraction(0), {epoch: made.noise(epoch) for epoch in made.epochs}
    for each in range(made.epochs[-1].end):
        noise = noises[made.epoch_of(each)]
        for first, weights in questions(made, each):
            if first <= period < first + len(weights):
                weight = int(weights[period - first])
                total += (
                    Fraction(weight**2) / (2 * noise.variance)
                    if made.gaussian
                    else abs(weight) / noise.scale
                )
    return total


@pytest.mark.parametrize(
    "more",
    [
        {"horizon": 15},
        {"horizon": 16},
        {"horizon": 1},
        {"horizon": None},
        {"horizon": 21, "gaussian": True},
        {"horizon": 21, "gaussian": True, "factor": "root"},
        {"horizon": None, "gaussian": True, "factor": "root"},
    ],
)
def test_a_row_costs_at_most_the_price_over_the_whole_life_and_some_row_costs_all_of_it(more):
    made = counter(**more)
    losses = [loss_of_a_row(made, period) for period in range(made.epochs[-1].end)]
    assert max(losses) == made.amount


def test_that_check_catches_a_tree_that_pays_for_one_level_only():
    class Broken:
        def __init__(self, made):
            self.made = made

        def __getattr__(self, name):
            return getattr(self.made, name)

        def noise(self, epoch):
            return type(self.made.noise(epoch))(scale=self.made.moved / self.made.amount)

    made = Broken(counter())
    assert max(loss_of_a_row(made, period) for period in range(15)) > made.amount


def test_the_stated_norm_is_that_of_the_whole_matrix():
    for factor, gaussian in (("tree", False), ("tree", True), ("root", True)):
        made = counter(horizon=13, factor=factor, gaussian=gaussian)
        rows = np.zeros((0, 100), np.int64)
        for period in range(13):
            for first, weights in questions(made, period):
                row = np.zeros((1, 100), np.int64)
                row[0, first : first + len(weights)] = weights
                rows = np.vstack([rows, row])
        columns = (rows**2 if gaussian else np.abs(rows)).sum(axis=0)
        assert columns.max() == made.norm(made.epochs[0])


def histories():
    """Rows of one unit: what there is at each of three looks; rows only come, also late ones."""
    places = [(), (0,), (1,), (2,), (0, 0), (0, 3), (1, 2), (2, 3), (3, 3)]
    for first, second, third in product(places, repeat=3):
        looks = [first, first + second, first + second + third]
        yield [[t for t in look if t <= last] for look, last in zip(looks, (1, 3, 3), strict=True)]


def moved_by_a_unit(looks, cap, share):
    """The largest sum over a level of what the unit counts for, nodes being read at three looks."""
    sums = {}
    for look, rows in enumerate(looks):
        for period in [(0,), (1, 2), (3,)][look]:
            size = 1
            while (period + 1) % size == 0:
                sums[size] = sums.get(size, 0) + share(rows, period + 1 - size, period + 1, cap)
                size *= 2
    return max(sums.values())


def first_rows(rows, start, end, cap):
    before = [sum(t < each for t in rows) for each in (start, end)]
    return min(before[1], cap) - min(before[0], cap)


def rows_of_the_node(rows, start, end, cap):
    return min(sum(start <= t < end for t in rows), cap)


def test_a_unit_counts_at_most_its_cap_in_each_level_whenever_its_rows_come():
    for cap, looks in product((1, 2), histories()):
        assert moved_by_a_unit(looks, cap, first_rows) <= cap


def test_that_check_catches_a_cap_for_each_node_by_itself():
    worst = max(moved_by_a_unit(looks, 1, rows_of_the_node) for looks in histories())
    assert worst > 1


def test_that_check_catches_a_state_that_is_older_than_the_last():
    assert moved_by_a_unit([[0, 3], [0, 3], [3]], 1, first_rows) == 2


def test_that_check_catches_rows_that_change_so_that_a_filter_leaves_them_out():
    assert moved_by_a_unit([[0], [2], [3]], 1, first_rows) == 3


def test_such_a_filter_is_refused_where_units_have_several_rows():
    made = counter("pid", 2)
    chosen = Filter(made.relation, Call("eq", (Field("pid"), Literal(1))))
    with pytest.raises(Unsupported, check=about("where")):
        replace(made, relation=chosen)
    early = Filter(made.relation, Call("is_null", (made.period,)))
    assert replace(made, relation=early).relation == early
    rows = counter()
    assert replace(rows, relation=Filter(rows.relation, chosen.condition)).is_row_level


def test_the_engine_counts_the_first_rows_of_a_unit():
    rows = [(1, 0), (1, 0), (1, 5), (2, 5), (2, 6), (3, 14), (3, 14), (3, 99)]
    made = counter("pid", 2)
    curator, _ = door(":memory:", rows, unit="pid")
    nodes = [node for period in range(15) for node in made.nodes(period)]
    found = curator._source.sums(capped(made, nodes).tally).reshape(-1)
    expected = [
        sum(first_rows([t for p, t in rows if p == pid], n.start, n.end, 2) for pid in (1, 2, 3))
        for n in nodes
    ]
    assert found.tolist() == expected


# one draw, one charge


def test_new_periods_cost_nothing_and_old_ones_are_neither_drawn_nor_read_again(tmp_path):
    rows = [(1, 0), (2, 3), (3, 3)]
    curator, _ = door(tmp_path / "l.db", rows, budget=1)
    first = Series(curator, counter()).advance(4)
    assert curator.ledger.balance("clinic").spent.epsilon == 1
    grown, domain = door(tmp_path / "l.db", [(9, 0)] * 10**6 + [(4, 5)], snapshot="2", budget=1)
    again = Series(grown, counter(domain=domain))
    assert [each.tolist() for each in again.read()] == [each.tolist() for each in first]
    more = again.advance(6)
    assert [each.tolist() for each in more[:4]] == [each.tolist() for each in first]
    assert len(more) == 6
    assert all(abs(each).max() < 10**4 for each in more)  # the late rows are in no new question
    assert grown.ledger.balance("clinic").spent.epsilon == 1
    assert grown.ledger.verify().problems == []


def test_however_it_is_cut_into_steps_the_same_questions_are_answered(tmp_path):
    rows = [(i, i % 40) for i in range(200)]
    whole, _ = door(":memory:", rows, budget=SURE)
    steps, _ = door(":memory:", rows, budget=SURE)
    made = counter(amount=SURE, horizon=None)
    at_once, by_steps = Series(whole, made), Series(steps, made)
    for until in (1, 2, 7, 16, 17, 33):
        found = by_steps.advance(until)
    assert [e.tolist() for e in at_once.advance(33)] == [e.tolist() for e in found]
    totals = totals_of(made, found).values
    assert np.rint(totals).tolist() == np.cumsum([5] * 33).tolist()


def test_a_step_that_crashed_before_it_was_settled_may_run_again(tmp_path):
    curator, _ = door(tmp_path / "l.db", [(1, 0)])
    series = Series(curator, counter())
    sums, curator._source.sums = curator._source.sums, None
    with pytest.raises(Bug):
        series.advance(3)
    curator._source.sums = sums
    assert len(series.advance(5)) == 5
    assert curator.ledger.balance("clinic").spent.epsilon == 1


def test_a_second_step_from_the_same_period_gets_what_was_settled_first(tmp_path):
    one, _ = door(tmp_path / "l.db", [(1, 0)])
    other, _ = door(tmp_path / "l.db", [(1, 0)])
    racer = Series(other, counter())
    first = Series(one, counter())
    inner = first._draw

    def slow(start, until):
        racer.advance(2)
        return inner(start, until)

    first._draw = slow
    found = first.advance(2)
    assert [e.tolist() for e in found] == [e.tolist() for e in racer.read()]


CAP = 50
LATE = [(1, 7)] * CAP  # in both states
EARLY = [(1, 0)] * CAP  # in the newer one only


def states(where, *, series=Series):
    """An older and a newer state of one table of people, both open, on one ledger."""
    made = []
    for snapshot, rows in (("9", LATE), ("10", LATE + EARLY)):
        curator, domain = door(where, rows, unit="pid", snapshot=snapshot, budget=10**5)
        amount = SURE * CAP
        made.append(series(curator, counter("pid", CAP, amount=amount, horizon=8, domain=domain)))
    return made


def test_an_older_state_cannot_go_on_with_a_series_of_people(tmp_path):
    """The attack: day 0 with the new state, then day 7 with the old one, which lacks day 0."""
    old, new = states(tmp_path / "l.db")
    first = new.advance(4)

    def read(*_):
        raise AssertionError("a row was read")

    old._curator._source.sums = read
    before = len(old._curator.ledger.history())
    with pytest.raises(RequestConflict, check=about("snapshot")):
        old.advance(8)
    assert [e.tolist() for e in old.advance(4)] == [e.tolist() for e in first]  # that is out
    assert len(old._curator.ledger.history()) == before
    found = new.advance(8)
    assert sum(int(each[0]) for each in found) == CAP
    assert _unpacked(new._find(4))[0] == "10"


def test_without_that_refusal_one_person_counts_twice(tmp_path, monkeypatch):
    monkeypatch.setattr(Series, "_require_later", lambda *_: None)
    old, new = states(tmp_path / "l.db")
    new.advance(4)
    assert sum(int(each[0]) for each in old.advance(8)) == 2 * CAP


def test_an_older_state_is_refused_also_if_the_newer_one_settles_first(tmp_path):
    old, new = states(tmp_path / "l.db")
    inner = old._draw

    def slow(start, until):
        new.advance(4)
        return inner(start, until)

    old._draw = slow
    with pytest.raises(RequestConflict, check=about("snapshot")):
        old.advance(8)
    assert len(old.read()) == 4


def test_states_come_in_the_order_of_their_names_and_rows_that_are_units_need_none(tmp_path):
    names = ["1", "2", "9", "10", "2026-01-31", "2026-02-01", "2026-02-01b", "v2", "v10"]
    assert all(_rank(a) < _rank(b) for a, b in combinations(names, 2))
    newer, domain = door(tmp_path / "l.db", [(1, 0)], snapshot="2")
    Series(newer, counter(domain=domain)).advance(2)
    older, domain = door(tmp_path / "l.db", [(1, 0)], snapshot="1")
    assert len(Series(older, counter(domain=domain)).advance(4)) == 4


def test_a_gate_on_an_older_state_is_refused_and_one_on_the_same_is_not(tmp_path):
    ask = {"columns": {"day": "day"}, "epsilon": SURE}
    more = {"unit": "pid", "rows_per_unit": 3, "epsilon": SURE}
    newer, older = gate_of(tmp_path, 20, "2", **more), gate_of(tmp_path, 10, "1", **more)
    newer.release("series", **ask, until=DAYS[3])
    with pytest.raises(RequestConflict, check=about("snapshot")):
        older.release("series", **ask, until=DAYS[9])
    again = gate_of(tmp_path, 20, "2", **more).release("series", **ask, until=DAYS[9])
    assert again.free


def test_a_series_is_refused_before_any_charge():
    curator, domain = door(":memory:", [(1, 0)], budget="0.5")
    with pytest.raises(OverBudget):
        Series(curator, counter()).advance(1)
    with pytest.raises(SpecError, check=about("horizon")):
        Series(curator, counter(amount=Fraction(1, 4))).advance(16)
    with pytest.raises(Unsupported, match="behind this door"):
        Series(curator, counter(amount=Fraction(1, 4), domain=visits(snapshot="2")))
    refusals = [
        lambda: counter(amount=Fraction(-1)),
        lambda: counter(horizon=101),
        lambda: counter(horizon=0),
        lambda: counter("pid"),
        lambda: counter(cap=3),
        lambda: counter(amount=SURE * 10),
        lambda: counter(factor="root"),
        lambda: counter("pid", 2, factor="root", gaussian=True),
        lambda: Counter(
            relation=Union((Table(domain), Table(domain))), period=Field("t"), periods=(0, 1),
            term=ONE, rows_per_unit=None, amount=Fraction(1), gaussian=False, horizon=2,
        ),
        lambda: Counter(
            relation=Table(domain), period=Field("t"), periods=(1, 0), term=ONE,
            rows_per_unit=None, amount=Fraction(1), gaussian=False, horizon=2,
        ),
    ]  # fmt: skip
    for refused in refusals:
        with pytest.raises((SpecError, Unsupported)):
            refused()
    assert curator.ledger.balance("clinic").spent.epsilon == 0


# estimates


def test_a_node_with_all_below_it_has_the_variance_of_the_theorem():
    made = counter(horizon=63)
    found = predicted(made, 63)
    single = predicted(made, 1)[0]
    for height in range(1, 6):
        expected = single / (2 * (1 - 2.0**-height))
        assert found[2 ** (height - 1) - 1] == pytest.approx(expected, rel=1e-12)


def test_the_root_factor_is_a_square_root_and_errs_as_its_theorem_says():
    exact = np.array(root_factor(256)) / ROOT_UNIT
    assert np.convolve(exact, exact)[:256] == pytest.approx(np.ones(256), abs=0.02)
    made = counter(horizon=100, gaussian=True, factor="root")
    rough = sum(c * c for c in exact[:100])
    last = predicted(made, 100)[-1]
    assert last == pytest.approx(rough**2 / (2 * float(made.amount)), rel=0.01)
    tree = counter(horizon=100, gaussian=True)
    assert predicted(made, 100).mean() < predicted(tree, 100).mean() / 1.5


@pytest.mark.parametrize("more", [{}, {"gaussian": True}, {"gaussian": True, "factor": "root"}])
def test_totals_err_as_predicted(more):
    """Of 2,000 series, the mean square of the last error over its variance.

    A draw's fourth moment is at most 6 σ⁴, so the mean is off by 6 √(5 / 2,000) less than once in
    10^8, and so is the mean error by 6 / √2,000.
    """
    made, trials = counter(horizon=21, **more), 2000
    truth = np.arange(21)
    exact = [
        [int(weights @ truth[first : first + len(weights)]) for first, weights in asked]
        for asked in (questions(made, period) for period in range(21))
    ]
    sizes = np.cumsum([len(each) for each in exact])
    flat = np.concatenate([np.array(each, np.int64) for each in exact])
    drawn = made.noise(made.epochs[0]).sample(np.tile(flat, (trials, 1)), bits=SYSTEM)
    spread, errors = np.sqrt(predicted(made, 21)[-1]), []
    for row in drawn:
        found = totals_of(made, np.split(row, sizes[:-1]))
        errors.append((found.values[-1] - truth.sum()) / spread)
    assert abs(np.mean(np.square(errors)) - 1) < 6 * np.sqrt(5 / trials)
    assert abs(np.mean(errors)) < 6 / np.sqrt(trials)


# through a gate


def frame(days, per_day=5):
    return pa.table({"pid": list(range(per_day)) * days, "day": np.repeat(DAYS[:days], per_day)})


def gate_of(tmp_path, days, snapshot, **more):
    facts = {"day": {"between": [DAYS[0], DAYS[-1]]}}
    return noisegate.open(
        frame(days), epsilon=more.pop("epsilon", 2), table="visits", columns=facts,
        ledger=tmp_path / "l.db", snapshot=snapshot, **more,
    )  # fmt: skip


def test_a_gate_opens_a_series_once_and_adds_to_it_for_nothing(tmp_path):
    ask = {"columns": {"day": "day"}, "epsilon": 1, "horizon": 31}
    gate = gate_of(tmp_path, 10, "1")
    plan = gate.release_plan("series", **ask, until=DAYS[9])
    assert plan.price.epsilon == 1
    first = gate.release("series", **ask, until=DAYS[9])
    assert (first.cost.epsilon, len(first.periods)) == (1, 10)
    later = gate_of(tmp_path, 20, "2")
    assert later.release_plan("series", **ask, until=DAYS[19]).price.epsilon == 0
    second = later.release("series", **ask, until=DAYS[19])
    assert second.free
    assert second.values[:10].tolist() == first.values.tolist()
    assert later.spent.epsilon == 1
    shown = second.total(DAYS[19], "0.999999")
    assert abs(shown.value - 100) <= shown.margin
    assert "only added" in str(second.guarantee)
    assert second.to_arrow(0.95).num_rows == 20
    assert np.all(np.diff(second.rising()) >= 0)
    second.save(tmp_path / "s.parquet")
    again = SeriesRelease.load(tmp_path / "s.parquet")
    assert again.values.tolist() == second.values.tolist()
    assert again.total(DAYS[19]) == second.total(DAYS[19])
    assert (str(again.guarantee), again.card()) == (str(second.guarantee), second.card())
    with pytest.raises(ValueError, match="read-only"):
        again.totals.values[0] = 1
    with pytest.raises(SpecError, check=about("kind")):
        SeriesRelease.load(tmp_path / "s.csv")
    second.save(tmp_path / "s.csv")
    assert "20 periods" in repr(second)


def test_sums_over_periods_are_differences_of_totals(tmp_path):
    gate = gate_of(tmp_path, 30, "1")
    made = gate.release("series", columns={"day": "day"}, until=DAYS[29], horizon=60, epsilon=1)
    assert made.query() == made.total(DAYS[29]) == made.total(DAYS[29].isoformat())
    assert made.query(day=(None, "2024-01-10")) == made.total(DAYS[9])
    part = made.query(0.9, day=("2024-01-08", "2024-01-14"))
    assert part.value == max(0, made.values[13] - made.values[6])
    assert part.margin == made.margins(0.95)[13] + made.margins(0.95)[6]
    apart = made.query(0.9, day=[DAYS[0], DAYS[2]])
    assert apart.value == max(0, made.values[0] + made.values[2] - made.values[1])
    assert apart.margin == made.margins(1 - Fraction(1, 30))[:3].sum()
    for wrong, words in (("2024-01-31", "key"), (("2024-02-01", None), "empty")):
        with pytest.raises(SpecError, check=listed(words)):
            made.query(day=wrong)
    with pytest.raises(SpecError, check=about("axis"), match="'week'"):
        made.query(week=1)
    with pytest.raises(SpecError, check=about("period"), match="2024-02-01"):
        made.total("2024-02-01")
    for ask in (gate.release, gate.release_plan):
        with pytest.raises(SpecError, check=about("fresh")):
            ask("series", columns={"day": "day"}, until=DAYS[29], horizon=60, epsilon=1, fresh=True)


def test_a_period_is_not_measured_before_it_ends(tmp_path):
    gate = gate_of(tmp_path, 60, "1")
    asked = {"columns": {"day": "month"}, "horizon": 3, "epsilon": 1}
    with pytest.raises(SpecError, check=about("period"), match="2024-02-10") as refused:
        gate.release("series", until="2024-02-10", **asked)
    assert "until=2024-02-29" in refused.value.fix
    assert gate.spent.epsilon == 0
    ends = gate.release("series", until="2024-02-29", **asked)
    assert ends.periods == (date(2024, 1, 1), date(2024, 2, 1))
    assert ends.query(day=("2024-01-01", "2024-02-29")) == ends.total("2024-02-01")
    with pytest.raises(SpecError, check=about("period"), match="begins") as inside:
        ends.total("2024-01-31")  # measured, though not how a period is called
    assert "2024-01-01, 2024-02-01" in inside.value.fix
    with pytest.raises(SpecError, check=about("period"), match="2024-02-10"):
        ends.query(day=("2024-01-01", "2024-02-10"))
    assert gate.release("series", until="2024-02-01", **asked).free  # the name of the period


@pytest.mark.parametrize(
    ("unit", "until", "said"),
    [
        ("day", "2024-04-10", "beyond"),  # bounds end with 2024-04-09
        ("day", "2199-01-01", "beyond"),
        ("month", "2024-05-01", "beyond"),
        ("month", "2024-04-08", "period"),
        ("year", "2024-03-31", "period"),
        ("year", "2025-01-01", "beyond"),
    ],
)
@pytest.mark.parametrize(
    "terms", [{}, {"unit": "pid", "rows_per_unit": 3}, {"accountant": "zcdp", "delta": "1e-6"}]
)
def test_a_series_does_not_freeze_periods_to_come(tmp_path, unit, until, said, terms):
    """Totals that are out never change: rows of a period that was measured too early are lost."""
    gate = gate_of(tmp_path, 60, "1", **terms)
    for ask in (gate.release, gate.release_plan):
        with pytest.raises(SpecError, check=listed(said)):
            ask("series", columns={"day": unit}, until=until, epsilon=1)
    assert gate.spent.epsilon == 0


@pytest.mark.parametrize(
    ("unit", "until", "periods"),
    [
        ("day", "2024-04-09", 100),
        ("month", "2024-04-09", 4),
        ("month", "2024-04-30", 4),
        ("year", "2024-12-31", 1),
    ],
)
def test_a_series_ends_with_its_bounds(tmp_path, unit, until, periods):
    made = gate_of(tmp_path, 60, "1").release_plan(
        "series", columns={"day": unit}, until=until, epsilon=1
    )
    assert made.expected.questions == periods


@pytest.mark.parametrize(
    ("until", "said"), [(15, "period"), (29, None), (99, None), (100, "beyond"), (10, None)]
)
def test_periods_of_numbers_end_too(tmp_path, until, said):
    rows = pa.table({"t": [0, 15, 99]})
    gate = noisegate.open(rows, epsilon=1, columns={"t": {"between": [0, 99]}}, table="visits")
    asked = {"columns": {"t": 10}, "until": until, "epsilon": 1}
    if said is None:
        assert gate.release_plan("series", **asked).expected.questions == until // 10 + 1
    else:
        with pytest.raises(SpecError, check=listed(said)):
            gate.release("series", **asked)


def test_a_cap_of_groups_is_none_of_a_series(tmp_path):
    gate = noisegate.open(
        frame(10), epsilon=2, unit="pid", rows_per_unit=20, groups_per_unit=3, table="visits",
        columns={"day": {"between": [DAYS[0], DAYS[-1]]}}, ledger=tmp_path / "l.db",
    )  # fmt: skip
    made = gate.release("series", columns={"day": "day"}, until=DAYS[9], horizon=10, epsilon=1)
    assert "the first 20 rows count" in made.footer()
    assert len(made.periods) == 10


def test_gaussian_noise_goes_into_the_root_factor_and_a_step_costs_nothing(tmp_path):
    """Within margins that hold with 1 - 1e-9 each."""
    more = {"accountant": "zcdp", "delta": "1e-6", "epsilon": 8}
    ask = {"columns": {"day": "day"}, "epsilon": 1, "horizon": 50}
    first = gate_of(tmp_path, 10, "1", **more).release("series", **ask, until=DAYS[9])
    gate = gate_of(tmp_path, 40, "2", **more)
    before = gate.spent
    found = gate.release("series", **ask, until=DAYS[39])
    assert (found.factor, gate.spent) == ("root", before)
    assert found.values[:10].tolist() == first.values.tolist()
    exact = 5 * np.arange(1, 41)
    assert np.all(np.abs(found.values - exact) <= found.margins(1 - Fraction(1, 10**9)))
    tree = gate.release("series", **ask, until=DAYS[39], method="tree")
    assert tree.totals.variances.mean() > 1.5 * found.totals.variances.mean()


def test_a_gate_counts_the_first_rows_of_each_person(tmp_path):
    gate = gate_of(tmp_path, 20, "1", unit="pid", rows_per_unit=3, epsilon=SURE)
    found = gate.release("series", columns={"day": "day"}, epsilon=SURE, until=DAYS[19])
    assert found.values[:5].tolist() == [5, 10, 15, 15, 15]
    assert "never change, and states with more rows have later snapshot names" in str(
        found.guarantee
    )


def test_a_gate_refuses_series_that_make_no_sense(tmp_path):
    gate = gate_of(tmp_path, 5, "1")
    asks = [
        {"until": "soon"},
        {"until": date(2023, 1, 1)},
        {"until": DAYS[9], "horizon": 5},
        {"until": DAYS[3], "horizon": -1},
        {"until": DAYS[3], "levels": 3},
        {"until": DAYS[3], "method": "fourier"},
        {"until": DAYS[3], "epsilon": -1},
    ]
    for ask in asks:
        with pytest.raises(NoisegateError):
            gate.release("series", **({"columns": {"day": "day"}, "epsilon": 1} | ask))
    assert gate.spent.epsilon == 0


def test_filters_belong_to_the_series():
    condition = Filter(Table(visits()), Literal(value=True))
    assert counter().record() != Counter(
        relation=condition, period=Field("t"), periods=tuple(range(100)), term=ONE,
        rows_per_unit=None, amount=Fraction(1), gaussian=False, horizon=15,
    ).record()  # fmt: skip


def test_a_series_is_released_and_continued_at_the_command_line(tmp_path):
    write_csv(frame(10), tmp_path / "visits.csv")
    asked = [
        "release", "series", str(tmp_path / "visits.csv"), "--columns", "day=day",
        "--budget", "2", "--epsilon", "1", "--between", "day=2024-01-01,2024-04-01",
        "--option", "horizon=31", "--json",
    ]  # fmt: skip
    first = json.loads(CliRunner().invoke(app, [*asked, "--option", "until=2024-01-04"]).stdout)
    more = json.loads(CliRunner().invoke(app, [*asked, "--option", "until=2024-01-10"]).stdout)
    assert more["rows"][:4] == first["rows"]
    assert len(more["rows"]) == 10
