"""Series that grow about secret samples: one for each step, one amplified price for the whole life."""

from dataclasses import replace
from fractions import Fraction
from math import exp, log

import numpy as np
import pyarrow as pa
import pytest
from test_running import SURE, counter, door

import noisegate as ng
import noisegate.curator.curator as room
from noisegate.accounting.amplification import poisson
from noisegate.accounting.pure import pure_loss
from noisegate.accounting.zcdp import zcdp_loss
from noisegate.curator.series import Series
from noisegate.errors import SpecError, Unsupported
from noisegate.privacy.event import DeclaredEvent, PoissonSampled
from noisegate.privacy.loss import ApproxDP
from noisegate.releases.forms.running import SeriesRelease
from refusals import about

P = Fraction(1, 4)
ROWS = [(n, n % 8) for n in range(4000)]  # 500 in each of the first eight periods
SQL = "SELECT COUNT(*) AS n FROM data GROUP BY BIN(t, 1)"


def sampled(unit=None, cap=None, **more):
    return counter(unit, cap, sample=P, horizon=8, **more)


def nodes(numbers):
    """Every node of a tree of eight periods, by its ends."""
    return {
        (period + 1 - 2**level, period + 1): int(number)
        for period, ending in enumerate(numbers)
        for level, number in enumerate(ending)
    }


def gaps(numbers):
    """How far each node is from the sum of its halves."""
    found = nodes(numbers)
    return [
        number - found[start, (start + end) // 2] - found[(start + end) // 2, end]
        for (start, end), number in found.items()
        if end - start > 1
    ]


@pytest.mark.parametrize(("unit", "cap"), [(None, None), ("pid", 1)])
def test_a_step_reads_one_sample_and_the_next_step_another(unit, cap, monkeypatch):
    """Of 4,000 rows 1,000 are expected: beyond six standard deviations of 27 once in 5 · 10⁸ runs.

    In seven nodes two samples meet, and agree in all of them once in 10¹¹ runs.
    """
    keys = []
    monkeypatch.setattr(room, "fresh_coins", lambda _: keys.append(f"{len(keys):064x}") or keys[-1])
    made = sampled(unit, cap, amount=SURE)
    at_once = Series(door(":memory:", ROWS, unit=unit, budget=SURE)[0], made).advance(8)
    assert gaps(at_once) == [0] * 7
    assert abs(nodes(at_once)[0, 8] - 1000) < 165
    assert len(keys) == 1
    series = Series(door(":memory:", ROWS, unit=unit, budget=SURE)[0], made)
    for until in range(1, 9):
        found = series.advance(until)
    assert any(gaps(found))
    assert abs(nodes(found)[0, 8] - 1000) < 165
    assert len(set(keys)) == 9
    assert [each.tolist() for each in series.advance(8)] == [each.tolist() for each in found]
    assert len(keys) == 9


def test_the_whole_life_is_amplified_once():
    curator, _ = door(":memory:", ROWS)
    series = Series(curator, sampled(amount=Fraction(2)))
    event = series.counter.event
    assert event == PoissonSampled(event=DeclaredEvent(epsilon=2), probability=P)
    for until in (1, 3, 8):
        series.advance(until)
        spent = curator.ledger.balance("clinic").spent.epsilon
        assert 0 <= spent - poisson(ApproxDP(2), probability=P).epsilon < Fraction(1, 10**20)
    assert (
        series.question
        != Series(curator, replace(sampled(amount=Fraction(2)), sample=None)).question
    )


@pytest.mark.parametrize("p", [0.01, 0.25, 0.9])
def test_fresh_coins_for_each_step_cost_no_more_than_the_price_and_kept_ones_just_as_much(p):
    """A tree of two levels: the row of period 0 is in [0, 1), then in [0, 2), by ε/2 each.

    Log-ratios of all transcripts far out, where noise says most; the broken price is that of fresh
    coins for coins that are kept from step to step.
    """
    epsilon = 2.0

    def loss(*ratios):
        return sum(log(1 - p + p * exp(each)) for each in ratios)

    price = float(poisson(ApproxDP(2), probability=Fraction(p)).epsilon)
    half = epsilon / 2
    for one in (-half, half):
        for two in (-half, half):
            assert abs(loss(one, two)) <= price + 1e-12
    assert loss(epsilon) == pytest.approx(price)  # both in one step
    assert loss(epsilon) > loss(half, half) + 0.001  # kept coins, paid as fresh ones


def test_totals_are_scaled_up_and_their_bars_hold_sampling(tmp_path):
    """Each of eight totals is outside its ± at most once in 10⁷ runs."""
    rows = pa.table({"t": [t for _, t in ROWS]})
    gate = ng.open(rows, epsilon=5, columns={"t": {"type": "integer", "between": [0, 15]}})
    sample = gate.sample(P)
    plan = sample.release_plan("series", SQL, until=3, epsilon=1)
    first = sample.release("series", SQL, until=3, epsilon=1)
    made = sample.release("series", SQL, until=7, epsilon=1)
    assert Fraction(999, 1000) < plan.price.epsilon == first.cost.epsilon <= 1
    assert 0 <= gate.spent.epsilon - first.cost.epsilon < Fraction(1, 10**20)
    assert made.free
    assert made.values[:4].tolist() == first.values.tolist()
    exact = 500 * np.arange(1, 9)
    assert (np.abs(made.values - exact) <= made.margins(1 - Fraction(1, 10**7))).all()
    noise = replace(made, sampling=None).margins(0.95)
    assert (made.margins(0.95) > noise).all()
    assert (made.margins(0.95) < 3 * noise + 6 * np.sqrt(3 * made.values)).all()
    assert any("secret sample" in words for words in made.words)
    made.save(tmp_path / "totals.parquet")
    again = SeriesRelease.load(tmp_path / "totals.parquet")
    assert again.margins(0.95).tolist() == made.margins(0.95).tolist()


def test_accounts_of_rho_pay_half_the_square_and_others_are_refused():
    columns = {"t": {"type": "integer", "between": [0, 15]}}
    rows = pa.table({"t": [t for _, t in ROWS]})
    gate = ng.open(rows, epsilon=50, delta=1e-6, accountant="zcdp", columns=columns)
    gate.sample(P).release("series", SQL, until=3, epsilon=1)
    event = sampled(amount=Fraction(1)).event
    assert zcdp_loss(event).rho == pure_loss(event).epsilon ** 2 / 2
    other = ng.open(rows, epsilon=50, delta=1e-6, accountant="renyi-8", columns=columns)
    with pytest.raises(Unsupported, check=about("sample")):
        other.sample(P).release("series", SQL, until=3, epsilon=1)
    assert other.spent.epsilon == 0
    for wrong in ({"sample": Fraction(1)}, {"gaussian": True, "sample": P}):
        with pytest.raises((SpecError, Unsupported)):
            counter(horizon=8, **wrong)
