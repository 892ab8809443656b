"""Linear regression: without noise least squares, with noise what it says, for its price.

Statistical tests here fail by chance less than once in 10**6 runs.
"""

from fractions import Fraction

import numpy as np
import pytest
from sklearn import linear_model
from trial_rows import REACH, unlabelled

from noisegate.learners import plots
from noisegate.learners.linear import lines
from noisegate.learners.linear.lines import fit_linear
from noisegate.learners.linear.regression import LinearRegression, Ridge
from noisegate.root import memory

WEIGHTS = np.array([0.3, -0.2, 0.1, 0.0])


def numbers(rows: int, *, spread: float = 0.05, seed: int = 2) -> tuple[np.ndarray, np.ndarray]:
    """Four columns, two of them alike, and a target; on the grid."""
    coins = np.random.default_rng(seed)
    found = np.clip(coins.normal(0, 0.3, (rows, 4)), -1, 1)
    found[:, 3] = np.clip(found[:, 2] + coins.normal(0, 0.2, rows), -1, 1)
    told = found @ WEIGHTS + 0.2 + np.clip(coins.normal(0, spread, rows), -0.1, 0.1)
    return np.rint(found * REACH) / REACH, np.rint(told * REACH) / REACH


def trial(rows, told, amount, **how):
    return unlabelled(np.column_stack([rows, told]), amount, **how)


def shortened(rows, most=0.95):
    """No row is cut, in the tests that compare with the textbook."""
    size = np.quantile(np.linalg.norm(rows, axis=1), most)
    return rows * np.minimum(1, size / np.linalg.norm(rows, axis=1))[:, None]


def test_without_noise_it_is_least_squares():
    rows, told = numbers(2000)
    rows = np.rint(shortened(rows, 0.7) * REACH) / REACH  # many are as long as the longest
    usual = linear_model.LinearRegression().fit(rows, told)
    found = fit_linear(trial(rows, told, 1000, noise=False), rounds=12)
    assert found["line"][:-1] == pytest.approx(usual.coef_, abs=2e-3)
    assert found["line"][-1] == pytest.approx(usual.intercept_, abs=1e-3)
    left = float(np.std(told - usual.predict(rows)))
    assert found["residual"] == pytest.approx(left, rel=0.15)
    # standard errors of the textbook, where noise adds next to nothing
    held = np.column_stack([rows, np.ones(2000)])
    errors = left * np.sqrt(np.diag(np.linalg.inv(held.T @ held)))[:-1]
    assert found["deviations"] == pytest.approx(errors, rel=0.25)


def test_without_noise_a_ridge_is_a_ridge():
    rows, told = numbers(2000)
    rows = np.rint(shortened(rows, 0.7) * REACH) / REACH
    usual = linear_model.Ridge(alpha=100.0).fit(rows, told)
    found = fit_linear(trial(rows, told, 1000, noise=False), penalty=100.0, rounds=12)
    assert found["line"][:-1] == pytest.approx(usual.coef_, abs=3e-3)
    assert np.linalg.norm(usual.coef_) < 0.9 * np.linalg.norm(WEIGHTS)


def test_steps_down_the_slopes_find_it_too(monkeypatch):
    monkeypatch.setattr(lines, "_clear", lambda *_: False)
    rows, told = numbers(2000)
    found = fit_linear(trial(rows, told, 1000, noise=False), rounds=30)
    assert found["line"][:-1] == pytest.approx(WEIGHTS, abs=0.02)


@pytest.mark.parametrize("gaussian", [False, True])
def test_it_spends_its_price_and_is_nearly_as_good(gaussian):
    rows, told = numbers(30_000)
    ask = trial(rows, told, "1/2", gaussian=gaussian)
    line = fit_linear(ask)["line"]
    assert Fraction(99, 100) < ask.spent <= 1
    left = np.mean((told - rows @ line[:-1] - line[-1]) ** 2)
    assert left < 1.04 * np.mean(
        (told - linear_model.LinearRegression().fit(rows, told).predict(rows)) ** 2
    )


@pytest.mark.long
def test_weights_are_off_by_as_much_as_is_said():
    rows, told = numbers(3000)
    exact = fit_linear(trial(rows, told, 6, noise=False), rounds=4)["line"]
    far = []
    for _ in range(40):
        found = fit_linear(trial(rows, told, 6), rounds=4)
        far.append(np.mean(((found["line"] - exact)[:-1] / found["noise"]) ** 2))
    assert 0.5 < np.mean(far) ** 0.5 < 1.8  # 1.2 on average, give or take 0.1


def test_where_noise_hides_everything_it_says_the_level():
    rows, told = numbers(100)
    for _ in range(5):
        line = fit_linear(trial(rows, told, "1/100"))["line"]
        assert np.all(np.isfinite(line))
        assert np.abs(line).max() < 20


def test_through_the_door_it_costs_its_price():
    rows, told = numbers(8000)
    budget = memory(epsilon=3)
    model = LinearRegression(
        epsilon=2, bounds=(0, 20), target_bounds=(-100, 100), memory=budget
    ).fit(rows * 10 + 10, told * 100)
    assert (model.cost_.epsilon, budget.remaining.epsilon) == (2, 1)
    assert model.coef_ == pytest.approx(WEIGHTS * 10, abs=0.5)
    points = rows * 10 + 10
    assert model.predict(points) == pytest.approx(points @ model.coef_ + model.intercept_)
    assert model.score(points, told * 100) > 0.75  # 0.82 without noise
    assert model.error_["coef"].shape == (4,)
    assert np.all(model.error_["coef"] >= model.error_["noise"])
    assert model.predict([[1000.0, -1000, 0, 0]]) <= 100


def test_the_score_on_private_rows_is_paid_for():
    rows, told = numbers(4000)
    model = LinearRegression(bounds=(-1, 1), target_bounds=(-1, 1), memory=memory(epsilon=1))
    model.fit(rows, told)
    purse = memory(epsilon=20)
    held = purse.matrix(rows, told, bounds=(-1, 1), target_bounds=(-1, 1))
    # noise moves it by about 0.012
    assert model.score(held, epsilon=20) == pytest.approx(model.score(rows, told), abs=0.1)
    assert purse.spent.epsilon == 20


def test_plots_show_weights_with_errors():
    alt = pytest.importorskip("altair")
    rows, told = numbers(2000)
    model = Ridge(1.0, bounds=(-1, 1), target_bounds=(-1, 1), memory=memory(epsilon=1))
    chart = model.fit(rows, told).plot()
    assert isinstance(chart, alt.FacetChart)
    assert "standard errors" in chart.to_dict()["title"]["text"][0]


def test_a_column_that_was_not_asked_about_has_a_place_and_no_weight():
    pytest.importorskip("altair")
    lines, deviations = np.array([[1.0, 0.0]]), np.array([[0.25, np.inf]])
    chart = plots.weights(["age", "cost"], lines, deviations, ["sick"])
    ((first, second),) = chart.to_dict()["datasets"].values()
    assert (first["column"], first["low"], first["high"]) == ("age", 0.5, 1.5)
    assert second == {"column": "cost", "line": "sick"}
