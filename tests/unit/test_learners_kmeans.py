"""Clusters: without noise Lloyd's rounds, with noise what it says, through the door for its price.

Statistical tests here fail by chance less than once in 10**6 runs.
"""

from fractions import Fraction

import numpy as np
import pytest

from noisegate.connect import memory
from noisegate.errors import SpecError
from noisegate.learners.asking import TrialRows
from noisegate.learners.kmeans import KMeans, fit_kmeans, fit_sulq
from noisegate.learners.noisy import divided, for_means, joined, shrunk
from noisegate.noise.bits import SYSTEM

REACH = 1024


def blobs(rows: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Five clusters in four columns, and their centres, from -1 to 1."""
    coins = np.random.default_rng(seed)
    centers = np.array([
        [0.7, 0.7, -0.5, 0.0], [-0.7, 0.6, 0.5, 0.3], [0.6, -0.7, 0.6, -0.4],
        [-0.6, -0.6, -0.6, 0.6], [0.0, 0.0, 0.0, -0.8],
    ])  # fmt: skip
    found = centers[np.arange(rows) % 5] + coins.normal(0, 0.08, (rows, 4))
    return np.clip(found, -1, 1), centers


def trial(rows, epsilon, *, noise=True, gaussian=False):
    amount = Fraction(epsilon)
    bits = SYSTEM if noise else None
    return TrialRows(rows * REACH, amount, reach=REACH, gaussian=gaussian, bits=bits)


def inertia(rows, centers):
    return float(np.min(((rows[:, None] - centers) ** 2).sum(2), axis=1).sum())


def lloyd(grid, centers, rounds):
    """The textbook, on whole numbers."""
    for _ in range(rounds):
        label = ((grid[:, None] - np.rint(centers)) ** 2).sum(2).argmin(1)
        centers = np.array([
            grid[label == place].mean(0) if np.any(label == place) else centers[place]
            for place in range(len(centers))
        ])  # fmt: skip
    return centers


@pytest.mark.parametrize("rounds", [1, 4])
def test_sulq_without_noise_is_lloyd(rounds):
    rows, _ = blobs(4000)
    # at this price a count below 2 standard deviations of its noise is no count of these rows
    found = fit_sulq(trial(rows, 200, noise=False), 5, rounds=rounds, seed=3)["centers"]
    start = np.random.default_rng(3).uniform(-1, 1, size=(5, 4))
    grid = np.rint(rows * REACH)
    assert found == pytest.approx(lloyd(grid, start * REACH, rounds) / REACH, abs=1e-12)


def test_sulq_leaves_a_centre_without_rows_where_it_is():
    rows = np.full((1000, 2), 0.5)
    found = fit_sulq(trial(rows, 100), 6, rounds=3, seed=1)
    start = np.random.default_rng(1).uniform(-1, 1, size=(6, 2))
    near = int(((start - 0.5) ** 2).sum(1).argmin())
    others = np.arange(6) != near
    assert np.array_equal(found["centers"][others], start[others])
    assert found["counts"][near] == pytest.approx(1000, abs=5)


def test_auto_without_noise_finds_what_scikit_learn_finds():
    rows, centers = blobs(5000)
    found = fit_kmeans(trial(rows, 1000, noise=False), 5)
    assert inertia(rows, found["centers"]) <= 1.001 * inertia(rows, lloyd(rows * 1.0, centers, 0))
    assert np.sort(found["counts"]) == pytest.approx(np.full(5, 1000.0), abs=1)


@pytest.mark.parametrize("gaussian", [False, True])
def test_auto_spends_its_price_and_nearly_finds_the_clusters(gaussian):
    rows, centers = blobs(20_000)
    ask = trial(rows, "1/2", gaussian=gaussian)
    found = fit_kmeans(ask, 5, seed=2)
    assert ask.spent == 1
    # noise adds less than 1 % on average; a cluster that is missed would add 100 % and more
    assert inertia(rows, found["centers"]) < 1.15 * inertia(rows, centers)


def test_centres_are_off_by_as_much_as_is_said():
    rows, _ = blobs(5000)
    exact = fit_kmeans(trial(rows, 2, noise=False), 5)["centers"]
    near = []
    for seed in range(12):
        found = fit_kmeans(trial(rows, 2), 5, seed=seed)
        match = ((found["centers"][:, None] - exact) ** 2).sum(2).argmin(1)
        far = (found["centers"] - exact[match]) ** 2
        near.append(np.mean(far / found["variances"][:, None]))
    # 240 squares of unit variance each, drawn towards a guess: about 1
    assert 0.3 < np.mean(near) < 2


def test_where_noise_hides_everything_centres_stay_near_the_middle():
    rows = np.random.default_rng(0).uniform(-1, 1, (50, 8))
    found = fit_kmeans(trial(rows, "1/100"), 3)
    assert np.all(np.abs(found["centers"]) <= 1)
    assert found["centers"].shape == (3, 8)


def test_through_the_door_it_costs_its_price_once():
    rows, centers = blobs(4000)
    budget = memory(epsilon=3)
    said = []
    model = KMeans(5, epsilon=2, bounds=([-10] * 4, [10] * 4), memory=budget)
    model.fit(rows * 10, progress=lambda part, words: said.append((part, words)))
    assert model.cost_.epsilon == 2
    assert model.remaining_.epsilon == 1
    assert [part for part, _ in said] == sorted(part for part, _ in said)
    assert inertia(rows, model.cluster_centers_ / 10) < 1.15 * inertia(rows, centers)
    assert model.score(rows * 10) == pytest.approx(-inertia(rows, model.cluster_centers_ / 10))
    label = model.predict(rows * 10)
    assert np.array_equal(label, model.transform(rows * 10).argmin(1))
    assert np.array_equal(np.bincount(label, minlength=5) > 500, np.full(5, True))
    assert model.error_["centers"].shape == (5, 4)
    assert np.all(model.error_["centers"] < 1)


def test_plots_show_two_columns():
    alt = pytest.importorskip("altair")
    rows, _ = blobs(2000)
    model = KMeans(5, epsilon=2, bounds=(-1, 1), memory=memory(epsilon=2)).fit(rows)
    assert isinstance(model.plot(), alt.LayerChart)
    shown = model.plot("x1", "x3").to_dict()
    titles = {layer["encoding"][side].get("title") for layer in shown["layer"] for side in "xy"}
    assert {"x1", "x3"} <= titles
    with pytest.raises(SpecError, match="no column"):
        model.plot("age")


@pytest.mark.parametrize(
    "given",
    [{"n_clusters": 0}, {"n_clusters": 2.5}, {"method": "magic"}, {"random_state": -1},
     {"method": "sulq", "rounds": 0}],
)  # fmt: skip
def test_bad_parameters_are_refused_before_any_charge(given):
    budget = memory(epsilon=1)
    with pytest.raises(SpecError):
        KMeans(**given, bounds=(0, 1), memory=budget).fit(np.zeros((5, 2)))
    assert budget.spent.epsilon == 0


def test_shares_add_up_and_estimates_combine():
    assert divided(Fraction(1), 1, 2, 3)[0] < Fraction(1, 5)
    assert sum(divided(Fraction(1, 3), 0.1, 0.7, 1.9)) == Fraction(1, 3)
    assert sum(for_means(trial(np.zeros((1, 9)), 1), Fraction(1, 7))) == Fraction(1, 7)
    assert joined((1.0, 1.0), (4.0, 2.0)) == pytest.approx((2.0, 2 / 3))
    away = shrunk(np.array([[0.0, 2.0], [0.0, 0.5]]), np.zeros((2, 2)), np.array([1.0, 1.0]))
    assert away.tolist() == [[0.0, 1.75], [0.0, 0.0]]
