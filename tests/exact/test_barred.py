"""The ± of smooth noise: a noisy level of its bound, whose sensitivity and reach are exact."""

from fractions import Fraction
from itertools import combinations_with_replacement

import numpy as np
import pyarrow as pa
import pytest
from scipy.stats import t as student

import noisegate as ng
from noisegate.accounting.pure import pure_loss
from noisegate.accounting.zcdp import zcdp_loss
from noisegate.errors import SpecError
from noisegate.exact import exp_down, exp_up
from noisegate.mechanisms.additive.geometric import Geometric
from noisegate.mechanisms.smooth.barred import FINE, Barred, quantile_up
from noisegate.mechanisms.smooth.estimators import trimmed_reaches
from noisegate.mechanisms.smooth.local_quantile import quantile_reaches
from noisegate.mechanisms.smooth.smooth import (
    UNIT,
    SmoothLaplace,
    SmoothLognormal,
    SmoothStudent,
)
from noisegate.noise.continuous import Laplace, LaplaceLognormal, StudentT
from noisegate.privacy.distance import L1
from noisegate.privacy.loss import ApproxDP
from refusals import about

SMALL = {"low": 0, "high": 9}
NOISE = SmoothStudent.for_epsilon(1, beta="1/10", **SMALL)
BARRED = Barred(noise=NOISE, bar=Fraction(24))


def levels_of(values, statistic):
    held = np.array(values, np.int64)
    reaches = (
        quantile_reaches(held, Fraction(1, 2), BARRED)[1]
        if statistic == "median"
        else trimmed_reaches(held, Fraction(1, 4), BARRED)[1]
    )
    return BARRED.level(reaches), NOISE.bound(reaches)


@pytest.mark.parametrize("statistic", ["median", "trimmed mean"])
def test_one_value_changes_the_level_by_at_most_sixteen(statistic):
    """All lists of up to 5 of the values 0, 3, 4, 9, with one more or less: no pair is further."""
    known, worst = {}, 0
    for size in range(6):
        for values in combinations_with_replacement((0, 3, 4, 9), size):
            known[values] = levels_of(values, statistic)
            for place in range(size):
                fewer = values[:place] + values[place + 1 :]
                (level, bound), (other, without) = known[values], known[fewer]
                worst = max(worst, abs(level - other))
                assert Fraction(max(bound, without), min(bound, without)) <= exp_up(NOISE.beta)
    assert 0 < worst <= FINE


@pytest.mark.parametrize("reaches", [[3, 5], [0] * 500, [9], [2] * 100, [1] + [9] * 40])
def test_the_level_is_the_exact_ceiling_of_the_logarithm(reaches):
    level, bound = BARRED.level(reaches), Fraction(NOISE.bound(reaches), UNIT)
    assert exp_down((level - 1) * NOISE.beta / FINE) < bound <= exp_up(level * NOISE.beta / FINE)
    assert Barred(noise=NOISE, bar=24).level([1] * len(NOISE.decays)) == 0  # S is 1


def test_the_event_is_that_of_the_noise_and_a_geometric_draw():
    one, three = (pure_loss(BARRED.event(steps)).epsilon for steps in (1, 3))
    assert one == pure_loss(NOISE.event(1)).epsilon + Fraction(16, 24)
    assert three == pure_loss(NOISE.event(3)).epsilon + 3 * Fraction(16, 24)
    lognormal = SmoothLognormal.for_rho("0.1", **SMALL)
    rho = zcdp_loss(Barred(noise=lognormal, bar=Fraction(32)).event(1)).rho
    assert (
        rho == zcdp_loss(lognormal.event(1)).rho + zcdp_loss(Geometric(scale=32).event(L1(16))).rho
    )
    laplace = SmoothLaplace.for_budget(1, "1e-6", **SMALL)
    loss = pure_loss(Barred(noise=laplace, bar=Fraction(16)).event(1))
    assert (loss.epsilon, loss.delta) == (2, pure_loss(laplace.event(1)).delta)


@pytest.mark.parametrize("shape", [StudentT(3), Laplace(), LaplaceLognormal(Fraction(1, 2))])
@pytest.mark.parametrize("failure", ["1/40", "1/2", "1/10000"])
def test_quantiles_of_the_noise_are_the_least_on_their_grid(shape, failure):
    z, allowed = quantile_up(shape, Fraction(failure)), Fraction(failure)
    tail = [2 * (1 - float(shape.cdf(each))) for each in (z, z - Fraction(1, 1024))]
    assert tail[0] <= float(allowed) * (1 + 1e-9)
    assert tail[1] >= float(allowed) * (1 - 1e-9)


@pytest.mark.parametrize("confidence", ["0.5", "0.95", "0.999"])
def test_the_half_width_holds_with_its_confidence(confidence):
    """In closed form: over all noisy levels, how likely the noise is beyond what is then stated."""
    wide = SmoothStudent.for_epsilon(1, beta="1/10", low=0, high=1 << 20)
    barred, reaches = Barred(noise=wide, bar=Fraction(24)), [1000] * 600
    level, width = barred.level(reaches), float(wide.width(reaches))
    alpha, missed = np.exp(-1 / 24), 1e-7  # what lies beyond 400
    for noise in range(-400, 401):
        stated = barred.interval(confidence, level + noise)
        mass = (1 - alpha) / (1 + alpha) * alpha ** abs(noise)
        missed += mass * 2 * student.sf((stated + 0.5) / width, 3)
    failure = 1 - float(confidence)
    assert missed <= failure
    assert missed > failure / 50  # and it is not idle


def test_the_range_is_the_widest_that_is_stated():
    assert BARRED.interval("0.95", 10**9) == 9
    assert BARRED.interval("0.95", -(10**9)) >= 1


# --- through a gate --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def gates():
    rng = np.random.default_rng(6)
    costs = [None if each < 2 else float(each) for each in rng.normal(50, 12, 4000).clip(0, 100)]
    rows = pa.table({"id": rng.integers(0, 2000, 4000), "cost": costs, "ward": ["n", "s"] * 2000})
    terms = {"columns": {"cost": {"between": [0, 100]}, "ward": {"in": ["n", "s"]}}, "table": "t"}
    terms |= {"ledger": ":memory:", "epsilon": 500}
    units = {"unit": "id", "rows_per_unit": 2, "accountant": "zcdp", "delta": 1e-6}
    return rows, [ng.open(rows, **terms), ng.open(rows, **terms, **units)]


@pytest.mark.parametrize("terms", [{}, {"trim": "0.1"}])
def test_answers_have_a_half_width_and_cost_what_was_planned(gates, terms):
    """Off by 10 and eight times the ± at 95 % more with a chance below 1e-6 each; see above for all."""
    rows, both = gates
    value = "AVG" if terms else "MEDIAN"
    for gate in both:
        for sql in (f"SELECT {value}(cost) AS m FROM t", f"SELECT ward, {value}(cost) AS m FROM t GROUP BY ward"):  # fmt: skip
            asked = {"epsilon": 60, "bar": "1/3", **terms}
            plan, before = gate.smooth_plan(sql, **asked), gate.spent
            answer = gate.smooth(sql, **asked)
            assert answer.cost == plan.price
            assert 50 <= answer.cost.epsilon <= 60
            assert gate.spent.epsilon > before.epsilon
            margins = answer.margins()["m"]
            assert all(0 < each < 30 for each in margins)
            exact = np.median([each for each in rows["cost"].to_pylist() if each is not None])
            for row, off in zip(answer.rows, margins, strict=True):
                assert abs(row[-1] - exact) <= 8 * off + 10  # the middle of each ward is near
            assert gate.smooth(sql, **asked).cost == ApproxDP(0)
            assert answer.card().record["columns"][-1]["error"]


@pytest.mark.parametrize("accountant", ["pure", "zcdp", "renyi-8"])
@pytest.mark.parametrize("rows_per_unit", [None, 2])
def test_a_bar_and_its_number_use_the_whole_price(accountant, rows_per_unit):
    """Shares add up as ε does, or as its squares; in a sample, as ε inside of it."""
    rows = pa.table({"id": [1, 1, 2, 3], "cost": [1.0, 2.0, 3.0, 4.0]})
    unit = {} if rows_per_unit is None else {"unit": "id", "rows_per_unit": rows_per_unit}
    gate = ng.open(
        rows, table="t", columns={"cost": {"between": [0, 100]}}, epsilon=8, delta="1e-4",
        accountant=accountant, ledger=":memory:", **unit,
    )  # fmt: skip
    asked = [gate, gate.sample("1/2")] if accountant != "renyi-8" else [gate]
    for one in asked:
        for bar in ("1/3", "1/10"):
            for delta in (None, "1e-6"):
                sql = "SELECT MEDIAN(cost) AS m FROM t"
                price = one.smooth_plan(sql, epsilon=1, bar=bar, delta=delta).price.epsilon
                assert 1 - Fraction(1, 10**10) < price <= 1


def test_a_wrong_bar_is_refused_before_any_charge(gates):
    _, (gate, _) = gates
    before = gate.spent
    for terms in ({"bar": 0}, {"bar": 1}, {"bar": "-1/2"}, {"bar": "1/3", "method": "ptr", "bound": 3, "delta": 1e-6}):  # fmt: skip
        with pytest.raises(SpecError, check=about("bar")):
            gate.smooth("SELECT MEDIAN(cost) FROM t", epsilon=1, **terms)
    with pytest.raises(SpecError):
        Barred(noise=Geometric(scale=1), bar=1)
    assert gate.spent == before
