"""At small prices a model is about as good as its constant, and its plan says so for nothing.

Statistical tests here fail by chance less than once in 10**6 runs.
"""

import numpy as np
import pyarrow as pa
import pytest
from trial_rows import unlabelled

import noisegate
from noisegate.learners import LinearRegression, LogisticRegression
from noisegate.learners.linear.lines import fit_linear
from noisegate.learners.linear.scores import UNIT, hats
from noisegate.root import memory


def made(rows: int, columns: int, *, told: float, seed: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Columns that explain a part of the target's variance."""
    coins = np.random.default_rng(seed)
    held = np.clip(coins.normal(0, 0.35, (rows, columns)), -1, 1)
    line = held @ coins.normal(size=columns)
    noise = coins.normal(size=rows)
    target = told**0.5 * line / line.std() + (1 - told) ** 0.5 * noise
    return held, np.clip(0.2 * target - 0.4, -1, 1)


def score(line: np.ndarray, held: np.ndarray, target: np.ndarray) -> float:
    off = np.clip(held @ line[:-1] + line[-1], -1, 1) - target
    return float(1 - np.mean(off**2) / np.var(target))


@pytest.mark.long
@pytest.mark.parametrize("gaussian", [False, True])
@pytest.mark.parametrize(("columns", "told"), [(3, 0.0), (10, 0.5)])
def test_a_line_is_hardly_worse_than_the_mean(columns, told, gaussian):
    held, target = made(300, columns, told=told)
    asks = [unlabelled(np.column_stack([held, target]), "1/2", gaussian=gaussian) for _ in range(9)]
    assert np.median([score(fit_linear(ask)["line"], held, target) for ask in asks]) > -0.15
    assert all(ask.spent <= 1 for ask in asks)


@pytest.mark.long
def test_a_mean_far_from_the_middle_is_told_as_well_as_one_near_it():
    """300 rows at -0.8: 0.1 off, where a count and a sum for parts of the price were 0.2 off."""
    target = np.clip(np.random.default_rng(6).normal(-0.8, 0.05, (300, 1)), -1, 1)
    rows = np.column_stack([np.zeros(300), target])
    found = [fit_linear(unlabelled(rows, "1/10"))["line"][-1] for _ in range(120)]
    assert np.mean((np.array(found) - target.mean()) ** 2) ** 0.5 < 0.16


@pytest.mark.long
@pytest.mark.parametrize(("mean", "wide"), [(-0.6, 0.08), (0.8, 0.05), (0.0, 0.3), (0.3, 0.3)])
def test_a_mean_for_a_small_price_is_as_good_as_the_target_is_narrow(mean, wide):
    """Rows times ε are 20: the quotient of a noisy sum and count is off by 0.0046 or more.

    That is its median squared error; of fits it is 0.0002 for narrow targets, wherever they lie,
    and 0.003 for wide ones. A fit passes what is asserted of the median with p < 0.3, so 100 of 200
    do with p < 1e-9.
    """
    target = np.clip(np.random.default_rng(4).normal(mean, wide, 200), -1, 1)
    rows = np.column_stack([np.zeros(200), target])
    found = [fit_linear(unlabelled(rows, "1/10"))["line"][-1] for _ in range(200)]
    off = np.median((np.array(found) - target.mean()) ** 2)
    assert off < (0.001 if wide < 0.1 else 0.0075)


def test_the_middle_is_said_where_noise_hides_all():
    """60 rows at ε = 1/100: 0 is what is left, give or take little."""
    rows = np.column_stack([np.zeros(60), np.full(60, 0.9)])
    found = [fit_linear(unlabelled(rows, "1/100"))["line"][-1] for _ in range(40)]
    assert np.median(np.abs(found)) < 0.4


@pytest.mark.parametrize("knots", [2, 9])
@pytest.mark.parametrize("reach", [1, 64, 1 << 15])
def test_parts_of_a_score_are_a_row_together_and_the_score_on_average(reach, knots):
    rows = np.rint(np.random.default_rng(8).uniform(-1, 1, (500, 2)) * reach)
    weighing = hats(np.array([0.0, 1.0, 0.0]), knots, reach)
    parts = weighing.of(rows, np.zeros(500, np.int32), None) / UNIT
    assert (parts.sum(axis=1) <= 1).all()
    assert (parts.sum(axis=1) > 1 - 2 / UNIT).all()
    at = np.linspace(-1, 1, knots)
    assert np.abs(parts @ at - rows[:, 1] / reach).max() < 0.004
    far = np.abs(at - rows[:, 1:] / reach) > 2 / (knots - 1) + 1e-9
    assert not parts[far].any()


def test_columns_of_two_values_and_targets_of_two_heaps_are_no_trap():
    coins = np.random.default_rng(5)
    held = np.where(coins.random((4000, 3)) < 0.3, 1.0, -1.0)
    target = np.where(held[:, 0] > 0, 0.8, -0.6) + np.clip(coins.normal(0, 0.05, 4000), -0.2, 0.2)
    found = [fit_linear(unlabelled(np.column_stack([held, target]), 1)) for _ in range(3)]
    assert min(score(each["line"], held, target) for each in found) > 0.9


def test_where_slopes_are_hidden_no_column_is_asked_about():
    held, target = made(200, 4, told=0.5)
    found = fit_linear(unlabelled(np.column_stack([held, target]), "1/10"))
    assert not found["line"][:-1].any()
    assert np.isinf(found["noise"]).all()


def test_a_plan_says_how_many_rows_it_takes():
    held, target = made(50, 4, told=0.5)
    plans = [
        LinearRegression(
            epsilon=price, bounds=(-1, 1), target_bounds=(-1, 1), memory=memory(9)
        ).plan(held, target)
        for price in ("1/10", "1")
    ]
    few, many = (plan.to_dict("0.95")["rows_needed"] for plan in reversed(plans))
    assert many == pytest.approx(10 * few, rel=0.05)
    assert f"fewer than {many:,}" in str(plans[0].facts("0.95"))


@pytest.mark.parametrize("accountant", ["pure", "zcdp"])
def test_units_with_many_rows_are_planned_and_paid_for_alike(accountant):
    coins = np.random.default_rng(7)
    rows = pa.table({
        "who": coins.integers(0, 80, 400), "x": [None, *coins.uniform(0, 9, 399)],
        "y": coins.uniform(0, 9, 400), "g": coins.choice(["a", "b"], 400),
    })  # fmt: skip
    delta = {"delta": "1/1000000"} if accountant == "zcdp" else {}
    gate = noisegate.open(
        rows, epsilon=4, unit="who", rows_per_unit=5, accountant=accountant, ledger=":memory:",
        columns={"x": {"between": [0, 9]}, "y": {"between": [0, 9]}, "g": {"in": ["a", "b"]}}, **delta,
    )  # fmt: skip
    for learner, target in (
        (LinearRegression(epsilon="1/4"), "y"),
        (LogisticRegression(epsilon="1/4"), "g"),
    ):
        handle, before = gate.matrix(columns=["x"], target=target), gate.remaining
        plan = learner.plan(handle)
        assert (gate.remaining, plan.fits) == (before, True)
        assert plan.to_dict("0.95")["noise"] > 5  # a unit moves a sum by its five rows
        assert np.isfinite(learner.fit(handle).coef_).all()
