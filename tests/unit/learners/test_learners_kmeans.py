"""Clusters: without noise Lloyd's rounds, with noise what it says, through the door for its price.

Statistical tests here fail by chance less than once in 10**6 runs.
"""

from fractions import Fraction

import numpy as np
import pytest
from trial_rows import REACH, unlabelled

from noisegate.errors import SpecError
from noisegate.learners import plots
from noisegate.learners.matrix import Coordinate
from noisegate.learners.noisy_sums import divided, for_means, joined, shrunk
from noisegate.learners.shapes.kmeans import KMeans, fit_kmeans, fit_sulq
from noisegate.root import memory
from refusals import about


def blobs(rows: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Five clusters in four columns, and their centres, from -1 to 1."""
    coins = np.random.default_rng(seed)
    centers = np.array([
        [0.7, 0.7, -0.5, 0.0], [-0.7, 0.6, 0.5, 0.3], [0.6, -0.7, 0.6, -0.4],
        [-0.6, -0.6, -0.6, 0.6], [0.0, 0.0, 0.0, -0.8],
    ])  # fmt: skip
    found = centers[np.arange(rows) % 5] + coins.normal(0, 0.08, (rows, 4))
    return np.clip(found, -1, 1), centers


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
    found = fit_sulq(unlabelled(rows, 200, noise=False), 5, rounds=rounds, seed=3)["centers"]
    start = np.random.default_rng(3).uniform(-1, 1, size=(5, 4))
    grid = np.rint(rows * REACH)
    assert found == pytest.approx(lloyd(grid, start * REACH, rounds) / REACH, abs=1e-12)


def test_sulq_leaves_a_centre_without_rows_where_it_is():
    rows = np.full((1000, 2), 0.5)
    found = fit_sulq(unlabelled(rows, 100), 6, rounds=3, seed=1)
    start = np.random.default_rng(1).uniform(-1, 1, size=(6, 2))
    near = int(((start - 0.5) ** 2).sum(1).argmin())
    others = np.arange(6) != near
    assert np.array_equal(found["centers"][others], start[others])
    assert found["counts"][near] == pytest.approx(1000, abs=5)


def test_auto_without_noise_finds_what_scikit_learn_finds():
    rows, centers = blobs(5000)
    found = fit_kmeans(unlabelled(rows, 1000, noise=False), 5)
    assert inertia(rows, found["centers"]) <= 1.001 * inertia(rows, lloyd(rows * 1.0, centers, 0))
    assert np.sort(found["counts"]) == pytest.approx(np.full(5, 1000.0), abs=1)


@pytest.mark.parametrize("gaussian", [False, True])
def test_auto_spends_its_price_and_nearly_finds_the_clusters(gaussian):
    rows, centers = blobs(20_000)
    ask = unlabelled(rows, "1/2", gaussian=gaussian)
    found = fit_kmeans(ask, 5, seed=2)
    assert ask.spent == 1
    # noise adds less than 1 % on average; a cluster that is missed would add 100 % and more
    assert inertia(rows, found["centers"]) < 1.15 * inertia(rows, centers)


@pytest.mark.long
def test_centres_are_off_by_as_much_as_is_said():
    rows, _ = blobs(5000)
    exact = fit_kmeans(unlabelled(rows, 2, noise=False), 5)["centers"]
    near = []
    for seed in range(12):
        found = fit_kmeans(unlabelled(rows, 2), 5, seed=seed)
        match = ((found["centers"][:, None] - exact) ** 2).sum(2).argmin(1)
        far = (found["centers"] - exact[match]) ** 2
        near.append(np.mean(far / found["variances"][:, None]))
    # 240 squares of unit variance each, drawn towards a guess: about 1
    assert 0.3 < np.mean(near) < 2


def test_where_noise_hides_everything_centres_stay_near_the_middle():
    rows = np.random.default_rng(0).uniform(-1, 1, (50, 8))
    found = fit_kmeans(unlabelled(rows, "1/100"), 3)
    assert np.all(np.abs(found["centers"]) <= 1)
    assert found["centers"].shape == (3, 8)


@pytest.mark.parametrize("seed", range(3))
def test_one_cloud_is_parted_as_well_as_a_normal_one(seed):
    """At a price that shows one cloud only: centres in random directions leave 0.36 and more."""
    rows = np.random.default_rng(0).uniform(-1, 1, (500, 3))
    found = fit_kmeans(unlabelled(rows, "1/20", noise=False), 8, seed=seed)["centers"]
    assert inertia(rows, found) < 0.32 * inertia(rows, rows.mean(axis=0)[None])


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


COLUMNS = tuple(
    Coordinate(name, None, Fraction(low), Fraction(high), name)
    for name, low, high in [("age", 0, 100), ("cost", 0, 10**6), ("sick", 0, 1)]
)


def shown(chart):
    """The titles of both sides, and the points of each layer."""
    drawn = chart.to_dict()
    told = drawn["layer"][-1]["encoding"]
    names = [(each.get("data") or drawn["data"])["name"] for each in drawn["layer"]]
    return told["x"]["title"], told["y"]["title"], [drawn["datasets"][name] for name in names]


def centers(columns, means, spreads, x=None, y=None):
    pytest.importorskip("altair")
    means, named = np.array(means, float), ("cluster", range(len(means)))
    told = {"named": named, "areas": "rows", "x": x, "y": y}
    return plots.centers(columns, means, np.full(len(means), 9.0), np.array(spreads), **told)


def test_plots_show_where_centres_differ_most_for_the_bounds():
    means = [[20, 500_000, 0.1], [70, 510_000, 0.9]]
    chart = centers(COLUMNS, means, np.ones((2, 3)))
    across, down, layers = shown(chart)
    assert (across, down) == ("sick", "age")
    assert [layer[1]["x"] for layer in layers] == [0.9] * 3
    assert layers[0][1]["y1"] - layers[0][1]["y0"] == 2
    assert shown(centers(COLUMNS, means, np.ones((2, 3)), "cost"))[:2] == ("cost", "sick")
    assert shown(centers(COLUMNS, means, np.ones((2, 3)), y="sick"))[:2] == ("age", "sick")
    for x, y in [("size", None), ("age", "age")]:
        with pytest.raises(SpecError, check=about("column")):
            centers(COLUMNS, means, np.ones((2, 3)), x, y)


def test_a_plot_of_one_column_has_a_line_for_each_centre():
    across, down, layers = shown(centers(COLUMNS[:1], [[20], [70]], np.ones((2, 1))))
    assert (across, down) == ("age", None)
    assert [each["cluster"] for each in layers[0]] == ["0", "1"]


def test_a_centre_about_which_nothing_is_known_is_a_cross():
    chart = centers(COLUMNS, [[20, 0, 0], [70, 1, 1]], [[1.0] * 3, [np.inf] * 3])
    *_, layers = shown(chart)
    assert [each["cluster"] for each in layers[-1]] == ["1"]
    assert [each["cluster"] for each in layers[0]] == ["0"]


def test_a_model_draws_what_it_learnt():
    alt = pytest.importorskip("altair")
    rows, _ = blobs(500)
    model = KMeans(2, epsilon=2, bounds=(-1, 1), memory=memory(epsilon=2)).fit(rows)
    chart = model.plot("x1", "x3")
    assert isinstance(chart, alt.LayerChart)
    title = chart.to_dict()["title"]
    assert title["text"] == ["KMeans: bars are two standard deviations of the noise"]
    assert title["subtitle"][0].startswith("Price ε = 2. ε = 2 for adding or removing")
    model.error_["centers"][0] = np.inf
    assert "crosses: no rows seen" in model.plot().to_dict()["title"]["text"][0]


def test_shares_add_up_and_estimates_combine():
    assert divided(Fraction(1), 1, 2, 3)[0] < Fraction(1, 5)
    assert sum(divided(Fraction(1, 3), 0.1, 0.7, 1.9)) == Fraction(1, 3)
    assert sum(for_means(unlabelled(np.zeros((1, 9)), 1), Fraction(1, 7))) == Fraction(1, 7)
    assert joined((1.0, 1.0), (4.0, 2.0)) == pytest.approx((2.0, 2 / 3))
    away = shrunk(np.array([[0.0, 2.0], [0.0, 0.5]]), np.zeros((2, 2)), np.array([1.0, 1.0]))
    assert away.tolist() == [[0.0, 1.75], [0.0, 0.0]]
