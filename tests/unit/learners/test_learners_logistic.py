"""Logistic regression: without noise the textbook's, with noise what it says, for its price.

Statistical tests here fail by chance less than once in 10**6 runs.
"""

from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from scipy.special import expit, softmax
from sklearn import linear_model
from sklearn.base import clone
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.metrics import roc_auc_score
from trial_rows import REACH, clouds, right, trial, unit_columns

import noisegate
from noisegate.errors import SpecError
from noisegate.learners.linear.logistic import LogisticRegression, fit_logistic
from noisegate.learners.linear.moments import LOGISTIC, calmed, descended, measure
from noisegate.learners.linear.scores import (
    UNIT,
    ask_lengths,
    cells_of_score,
    lookup,
    scores,
    softmax_slopes,
    square_of,
    useful,
)
from noisegate.root import memory
from noisegate.transforms.statistics.features import Linear, One
from noisegate.transforms.statistics.statistic import Statistic
from noisegate.transforms.statistics.weighings import Slopes
from refusals import about
from trials import TrialRows


def classes(rows, kinds):
    """Overlapping classes in four columns."""
    return clouds(rows, kinds, columns=4, spread=0.3, apart=0.3, seed=3)


def test_rows_are_between_the_cuts_of_their_scores():
    rows, told = classes(500, 2)
    line, cuts = np.array([0.5, -1.0, 0.25, 2.0, 0.125]), np.array([-1.0, -0.25, 0.0, 0.5])
    ask = trial(rows, told, 1, noise=False)
    question = Statistic(cells_of_score(line, cuts, REACH, keyed=True), (One(),))
    (found,) = ask.totals(question, [Fraction(1)])
    places = np.searchsorted(cuts, rows @ line[:-1] + line[-1], side="left")
    expected = np.zeros((5, 2))
    np.add.at(expected, (places, told), 1)
    assert np.array_equal(found.values.reshape(5, 2), expected)


def test_lengths_are_counted_where_noise_lets_them_be_seen():
    rows, told = classes(4000, 2)
    assert ask_lengths(trial(rows, told, 1), 4, 20, Fraction(1, 20)) is None
    found = ask_lengths(trial(rows, told, 10, noise=False), 4, 4000, Fraction(1, 20))
    lengths = np.linalg.norm(rows, axis=1)
    cuts = np.rint(4 * REACH**2 * 2.0 ** (-np.arange(11, 0, -1) / 2))
    held = np.searchsorted(cuts, ((rows * REACH) ** 2).sum(1), side="left")
    assert np.array_equal(found.counts.values[:, 0], np.bincount(held, minlength=12))
    assert found.square == pytest.approx(np.mean(rows**2), rel=0.1)
    part = np.mean(lengths <= found.covering(0.9) / REACH)
    assert 0.9 <= part < 0.99
    assert lengths.max() <= found.covering_all() / REACH < lengths.max() * 2**0.25


def test_a_norm_is_used_where_it_helps():
    ask = trial(*classes(10, 2), 1)
    assert useful(ask, REACH // 2, 4) == REACH // 2
    assert useful(ask, 2 * REACH, 4) is None  # as long as the longest row


def test_slopes_are_those_of_the_loss():
    rows, told = classes(3000, 2)
    line = np.array([[2.0, -3.0, 0.5, 1.0, 0.25]])
    ask = trial(rows, told, 1, noise=False)
    weighing = Slopes(scores(line, REACH), lookup(LOGISTIC.pull, REACH))
    ones, sums = ask.totals(Statistic(weighing, (One(), Linear())), [Fraction(1, 2)] * 2)
    signs = 2 * told - 1
    pull = signs * expit(-signs * (rows @ line[0, :-1] + line[0, -1]))
    # a table's step is 1/256, and half of it moves a slope by less than 1/2000
    assert ones.values[0, 0] / UNIT == pytest.approx(pull.sum(), abs=3000 / 2000)
    assert sums.values[0] / UNIT / REACH == pytest.approx(pull @ rows, abs=1)


def test_slopes_of_a_softmax_are_shares_less_the_own_class():
    rows, told = classes(3000, 3)
    lines = np.array([[2.0, -3.0, 0.5, 1.0, 0.25], [0.0, 1.0, 0, 0, 0.5], [1.0, 1.0, 1.0, 1.0, 0]])
    ask = trial(rows, told, 1, noise=False)
    (sums,) = ask.totals(Statistic(softmax_slopes(lines, REACH), (Linear(),)), [Fraction(1)])
    shares = softmax(rows @ lines[:, :-1].T + lines[:, -1], axis=1) - np.eye(3)[told]
    assert sums.values / UNIT / REACH == pytest.approx(shares.T @ rows, abs=3)


@pytest.mark.parametrize("kinds", [2, 3])
def test_newton_without_noise_is_the_textbook(kinds):
    rows, told = classes(600, kinds)
    found = fit_logistic(trial(rows, told, 1000, noise=False), rounds=8)["lines"]
    usual = linear_model.LogisticRegression(C=1.0, tol=1e-9, max_iter=1000).fit(rows, told)
    assert found[:, :-1] == pytest.approx(usual.coef_, abs=3e-3)
    level = usual.intercept_ - (usual.intercept_.mean() if kinds > 2 else 0)
    assert found[:, -1] == pytest.approx(level, abs=3e-3)


def test_moments_without_noise_are_the_discriminant_analysis():
    rows, told = classes(600, 3)
    moments, _ = measure(trial(rows, told, 1000, noise=False), LOGISTIC, rounds=0)
    lines = moments.lines()
    most = moments.norm / REACH  # to which one row in ten is shortened
    rows = rows * np.minimum(1, most / np.linalg.norm(rows, axis=1))[:, None]
    usual = LinearDiscriminantAnalysis(solver="lsqr").fit(rows, told)
    assert lines[:, :-1] == pytest.approx(usual.coef_ - usual.coef_.mean(0), abs=0.01)
    assert lines[:, -1] == pytest.approx(usual.intercept_ - usual.intercept_.mean(), abs=0.01)


@pytest.mark.parametrize("kinds", [2, 3])
def test_sulq_without_noise_is_gradient_descent(kinds):
    rows, told = classes(600, kinds)
    ask = trial(rows, told, 1000, noise=False)
    found = descended(ask, loss=LOGISTIC, rounds=5)["lines"]
    held = np.column_stack([rows, np.ones(600)])
    lines = np.zeros((kinds, 5))
    free = np.array([1, 1, 1, 1, 0])
    pair = kinds == 2
    for _ in range(5):
        slopes = (softmax(held @ lines.T, axis=1) - np.eye(kinds)[told]).T @ held
        if pair:  # one line: the first class has 0
            slopes[0] = 0
        lines -= (slopes + free * lines) / (0.25 * (1 if pair else 2) * 600 * 5 + 1)
    expected = lines[1:] if pair else lines - lines.mean(0)
    assert found == pytest.approx(expected, abs=2e-3)


@pytest.mark.parametrize("gaussian", [False, True])
@pytest.mark.parametrize("kinds", [2, 3])
def test_it_spends_its_price_and_is_nearly_as_good(kinds, gaussian):
    rows, told = classes(20_000, kinds)
    ask = trial(rows, told, "1/2", gaussian=gaussian)
    found = fit_logistic(ask)["lines"]
    assert Fraction(99, 100) < ask.spent <= 1
    usual = linear_model.LogisticRegression().fit(rows, told).score(rows, told)
    assert right(found, rows, told) > usual - 0.01


def test_weights_are_off_by_as_much_as_is_said():
    rows, told = classes(3000, 2)
    exact = fit_logistic(trial(rows, told, 6, noise=False), rounds=4)["lines"]
    far = []
    for _ in range(40):
        found = fit_logistic(trial(rows, told, 6), rounds=4)
        far.append(np.mean(((found["lines"] - exact)[:, :-1] / found["deviations"]) ** 2))
    assert 0.5 < np.mean(far) ** 0.5 < 1.7  # 1.1 on average, give or take 0.07


def test_where_noise_hides_everything_lines_are_small_and_finite():
    rows, told = classes(60, 3)
    found = fit_logistic(trial(rows, told, "1/100"))
    assert np.all(np.isfinite(found["lines"]))
    assert np.abs(found["lines"]).max() < 100


def test_a_covariance_is_positive_and_drawn_to_a_sphere():
    coins = np.random.default_rng(1)
    true = np.diag([1.0, 0.5, 0.1, 0.1])
    blurred = square_of((true + 0)[np.triu_indices(4)] + coins.normal(0, 0.3, 10), 4)
    found = calmed(blurred, 0.09)
    assert np.linalg.eigvalsh(found).min() >= (0.09 * 4) ** 0.5 - 1e-12
    assert np.sum((calmed(blurred, 0.0) - blurred) ** 2) < np.sum((found - blurred) ** 2)
    assert calmed(true, 0.0) == pytest.approx(true)


def test_more_rows_buy_more_rounds():
    many, few = classes(30_000, 2), classes(300, 2)
    assert len(measure(trial(*many, 2), LOGISTIC)[1].rounds) > 2
    assert measure(trial(*few, 1), LOGISTIC)[1].rounds == ()


def fitted(**how):
    rows, told = classes(6000, 2)
    budget = memory(epsilon=3)
    model = LogisticRegression(
        epsilon=2, bounds=(-10, 10), classes=["no", "yes"], memory=budget, **how
    )
    names = np.array(["no", "yes"])[told]
    return model.fit(rows * 10, names), rows * 10, names, budget


def test_through_the_door_it_costs_its_price():
    model, rows, told, budget = fitted()
    assert (model.cost_.epsilon, budget.remaining.epsilon) == (2, 1)
    usual = linear_model.LogisticRegression().fit(rows, told)
    assert model.score(rows, told) > usual.score(rows, told) - 0.02
    # in the columns' units: the scores follow from coefficients and points alone
    assert model.decision_function(rows) == pytest.approx(
        rows @ model.coef_[0] + model.intercept_[0]
    )
    chances = model.predict_proba(rows)
    assert chances.sum(axis=1) == pytest.approx(np.ones(6000))
    assert np.array_equal(model.predict(rows), model.classes_[chances.argmax(1)])
    assert np.exp(model.predict_log_proba(rows)) == pytest.approx(chances)
    assert model.error_["coef"].shape == model.coef_.shape
    assert clone(model).get_params()["epsilon"] == 2


def test_a_perturbed_objective_costs_its_price_and_is_near_the_usual_one():
    """The slope has noise of 3 or so where rows have slopes of thousands."""
    model, rows, told, budget = fitted(method="objective")
    assert (model.cost_.epsilon, budget.remaining.epsilon) == (2, 1)
    usual = linear_model.LogisticRegression().fit(rows, told)
    assert model.score(rows, told) > usual.score(rows, told) - 0.01
    assert model.coef_ == pytest.approx(usual.coef_, abs=0.05)
    assert np.abs(usual.coef_).max() > 0.25
    assert model.rows_ == pytest.approx(6000, abs=500)


@pytest.mark.parametrize(
    ("kinds", "amount", "gaussian", "taken"),
    [(2, 1, False, True), (2, "1/10", False, False), (3, 2, False, True), (3, "1/8", False, False),
     (2, 1, True, False)],
)  # fmt: skip
def test_an_objective_is_perturbed_where_noise_is_small_beside_the_rows(
    monkeypatch, kinds, amount, gaussian, taken
):
    """The noisy number of 2000 rows decides, and would have to be twice or half of it: 1 in 10**7."""
    rows, told = classes(2000, kinds)
    ask, asked = trial(rows, told, amount, gaussian=gaussian), []
    minimised = TrialRows.minimised
    monkeypatch.setattr(
        TrialRows, "minimised", lambda *given: asked.append(given) or minimised(*given)
    )
    lines = fit_logistic(ask)["lines"]
    assert len(asked) == taken
    assert ask.spent <= 1
    assert lines.shape == (1 if kinds == 2 else kinds, 5)


@pytest.mark.parametrize("accountant", ["pure", "zcdp"])
def test_a_perturbed_objective_counts_the_rows_of_a_person_in_every_account(accountant):
    rows, told = classes(3000, 3)
    names = np.array(["a", "b", "c"])[told]
    table = pa.table({"id": np.arange(3000) // 3, "x": rows[:, 0], "y": rows[:, 1], "kind": names})
    columns = {"x": {"between": [-1, 1]}, "y": {"between": [-1, 1]}, "kind": {"in": list("abc")}}
    delta = {} if accountant == "pure" else {"delta": "1e-6"}
    gate = noisegate.open(
        table, unit="id", epsilon=200, columns=columns, accountant=accountant, **delta
    )
    matrix = gate.matrix("data", ["x", "y"], target="kind", rows_per_unit=3)
    model = LogisticRegression(epsilon=8, method="objective").fit(matrix)
    usual = linear_model.LogisticRegression().fit(rows[:, :2], names)
    assert model.score(rows[:, :2], names) > usual.score(rows[:, :2], names) - 0.05
    assert gate.spent.epsilon > 0
    free = LogisticRegression(epsilon=8, method="objective").fit(matrix)
    assert np.array_equal(free.coef_, model.coef_)
    if accountant == "pure":
        assert (model.cost_.epsilon, gate.spent.epsilon) == (8, 8)
        sampled = gate.sample("1/2").matrix("data", ["x", "y"], target="kind", rows_per_unit=3)
        assert LogisticRegression(epsilon=2, method="objective").fit(sampled).cost_.epsilon <= 2


def test_tables_and_curves_of_private_rows_are_paid_for():
    model, rows, told, _ = fitted()
    purse = memory(epsilon=20)
    held = purse.matrix(rows, told, bounds=(-10, 10), classes=["no", "yes"])
    assert model.score(held, epsilon=5) == pytest.approx(model.score(rows, told), abs=0.01)
    curve = model.roc(held, epsilon=10)
    assert purse.spent.epsilon == 15
    area = roc_auc_score(told == "yes", model.decision_function(rows))
    assert curve.area == pytest.approx(area, abs=6 * curve.deviation + 0.01)
    assert curve.deviation < 0.01
    wrong, alarms = curve.rates
    assert wrong[0] == alarms[0] == 0
    assert wrong[-1] == alarms[-1] == 1
    assert np.all(np.diff(wrong) >= 0)
    other = model.roc(held, epsilon=5, positive="no")
    assert other.area == pytest.approx(area, abs=6 * other.deviation + 0.01)
    with pytest.raises(SpecError, check=about("class")):
        model.roc(held, epsilon=1, positive="perhaps")
    assert purse.spent.epsilon == 20


def test_plots_show_weights_and_the_curve():
    alt = pytest.importorskip("altair")
    model, rows, told, _ = fitted(method="moments")
    assert isinstance(model.plot(), alt.FacetChart)
    held = memory(epsilon=5).matrix(rows, told, bounds=(-10, 10), classes=["no", "yes"])
    assert "yes: area" in model.roc(held, epsilon=5).plot().to_dict()["title"]["text"][0]


def test_where_noise_hides_most_columns_a_few_have_weights():
    told = np.arange(400) % 2
    rows = np.repeat(np.where(told, 0.5, -0.5)[:, None], 64, axis=1)
    model = LogisticRegression()
    model.coordinates_ = unit_columns(64)
    model._take(fit_logistic(trial(rows, told, "1/10", noise=False)))
    asked = model.coef_ != 0
    assert 0 < asked.sum() < 64
    assert np.all(np.isfinite(model.error_["coef"]) == asked)


def test_a_few_columns_tell_classes_apart_where_all_would_not():
    told = np.arange(400) % 2
    rows = np.repeat(np.where(told, 0.5, -0.5)[:, None], 64, axis=1)
    ask = trial(rows, told, "1/10", noise=False)
    moments, plan = measure(ask, LOGISTIC)
    assert ask.spent == 1
    assert not plan.rounds
    asked = np.any(moments.means != 0, axis=0)
    assert 5 <= asked.sum() <= 16  # √(3 · 0.1) · ε · 200 rows of a class is 11, by steps of √2
    assert right(moments.lines(), rows, told) == 1
