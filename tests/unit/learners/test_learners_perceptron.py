"""The perceptron: without noise the batch perceptron of the textbook, with noise nearly as good.

Statistical tests here fail by chance less than once in 10**6 runs.
"""

from fractions import Fraction

import numpy as np
import pytest
from trial_rows import clouds, right, trial

from noisegate.learners.linear.perceptron import Perceptron, fit_perceptron, fit_sulq
from noisegate.root import memory


def classes(rows, kinds):
    """Classes in three columns with little between them."""
    return clouds(rows, kinds, columns=3, spread=0.15, apart=0.6, seed=5)


@pytest.mark.parametrize("kinds", [2, 3])
def test_sulq_without_noise_is_the_batch_perceptron(kinds):
    rows, told = classes(1000, kinds)
    held = np.column_stack([rows, np.ones(1000)])
    lines = np.zeros((kinds, 4))
    for _ in range(4):
        picked = (held @ lines.T).argmax(1)
        wrong = np.flatnonzero(picked != told)
        turned = np.zeros_like(lines)
        np.add.at(turned, told[wrong], held[wrong])
        np.add.at(turned, picked[wrong], -held[wrong])
        lines = lines + turned / len(wrong)
    found = fit_sulq(trial(rows, told, 1000, noise=False), rounds=4)["lines"]
    assert found == pytest.approx(lines[1:] - lines[:1] if kinds == 2 else lines, abs=1e-9)


def test_weights_are_off_by_as_much_as_is_said():
    rows, told = classes(3000, 2)
    exact = fit_sulq(trial(rows, told, 20, noise=False), rounds=2)["lines"]
    far = []
    for _ in range(60):
        found = fit_sulq(trial(rows, told, 20), rounds=2)
        far.append(np.mean(((found["lines"] - exact)[:, :-1] / found["deviations"]) ** 2))
        assert found["rows"] == pytest.approx(3000, abs=50)
    assert 0.5 < np.mean(far) ** 0.5 < 1.8


def test_it_stops_where_no_mistake_stands_out_of_noise():
    rows = np.repeat([[0.5, 0.5], [-0.5, -0.5]], 500, axis=0)
    ask = trial(rows, np.repeat([0, 1], 500), 2)
    lines = fit_sulq(ask, rounds=20)["lines"]
    assert ask.spent < Fraction(1, 2)  # one turn parts them; a later one is rare
    assert right(lines, rows, np.repeat([0, 1], 500)) == 1


@pytest.mark.parametrize("gaussian", [False, True])
@pytest.mark.parametrize("kinds", [2, 3])
def test_it_is_nearly_as_good_as_the_best_line(kinds, gaussian):
    rows, told = classes(20_000, kinds)
    ask = trial(rows, told, "1/2", gaussian=gaussian)
    lines = fit_perceptron(ask)["lines"]
    assert Fraction(99, 100) < ask.spent <= 1
    nearest = np.eye(kinds, 3)  # the classes lie alike around their means, so this is best
    best = (rows @ nearest.T).argmax(1)
    assert right(lines, rows, told) > np.mean(best == told) - 0.005


def test_of_all_lines_it_keeps_the_best_that_was_counted():
    rows, told = classes(3000, 2)
    ask = trial(rows, told, 1000, noise=False)
    found = right(fit_perceptron(ask, rounds=6)["lines"], rows, told)
    first = right(
        fit_perceptron(trial(rows, told, 1000, noise=False), rounds=1)["lines"], rows, told
    )
    assert found >= first


def test_through_the_door_it_costs_its_price():
    rows, told = classes(4000, 2)
    budget = memory(epsilon=3)
    model = Perceptron(epsilon=2, bounds=(0, 4), classes=[0, 1], memory=budget)
    model.fit(rows * 2 + 2, told)
    assert (model.cost_.epsilon, budget.remaining.epsilon) == (2, 1)
    assert model.score(rows * 2 + 2, told) > 0.95
    assert model.coef_.shape == model.error_["coef"].shape == (1, 3)
