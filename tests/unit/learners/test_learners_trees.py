"""Trees and forests: rows walk them alike everywhere, they see no row but by sums, and they tell.

Statistical tests here fail by chance less than once in 10**6 runs: accuracies are bounded far below
what is seen, and their spread over runs is stated.
"""

from fractions import Fraction

import numpy as np
import pytest
from sklearn import tree as textbook
from sklearn.datasets import load_wine
from trial_rows import REACH, trial

from noisegate.learners.matrix import Coordinate
from noisegate.learners.trees.class_sides import Leanings
from noisegate.learners.trees.forest import RandomForestClassifier, fit_forest
from noisegate.learners.trees.growing import Tree, grown, random_tree
from noisegate.learners.trees.leaves import Made, measured
from noisegate.learners.trees.normal_classes import Normals, look
from noisegate.learners.trees.plots import Drawn, grove
from noisegate.learners.trees.tree import (
    DecisionTreeClassifier,
    Sight,
    counted,
    fit_levels,
    fit_random,
    fit_tree,
    visible_levels,
)
from noisegate.noise.bits import SYSTEM
from noisegate.releases.cells.chance import public_coins
from noisegate.root import memory
from trials import TrialRows


def checkers(rows, seed=0):
    """Two classes that no single column tells: by the signs of the first two, shifted a little."""
    coins = np.random.default_rng(seed)
    held = coins.uniform(-1, 1, (rows, 4))
    told = ((held[:, 0] > 0.2) ^ (held[:, 1] > -0.3)).astype(np.int64)
    return held, told


def clouds(rows, seed=0):
    """Four classes in three columns."""
    coins = np.random.default_rng(seed)
    told = coins.integers(4, size=rows)
    centers = np.array([[0.6, 0.5, 0], [-0.6, 0.5, 0], [0.5, -0.6, 0], [-0.5, -0.5, 0.4]])
    return np.clip(centers[told] + coins.normal(0, 0.15, (rows, 3)), -1, 1), told


def right(found, rows, told):
    """The share that the fitted tree tells right."""
    places = Tree(found["nodes"]).places(np.rint(rows * REACH))
    return np.mean(found["counts"].argmax(axis=1)[places] == told)


# --- trees on the grid ----------------------------------------------------------------------------


def test_the_door_walks_a_tree_as_the_learner_does():
    rows, told = clouds(3000)
    tree = random_tree(3, REACH, 5, public_coins(7))
    found = counted(trial(rows, told, 1, noise=False), tree, Fraction(1))["counts"]
    places = tree.places(np.rint(rows * REACH))
    assert found.tolist() == np.histogram2d(places, told, (np.arange(33), np.arange(5)))[0].tolist()


def test_leaves_are_boxes_that_hold_their_rows():
    rows = np.random.default_rng(1).integers(-REACH, REACH + 1, (2000, 3))
    tree = random_tree(3, REACH, 4, public_coins(1))
    low, high = tree.boxes(3, REACH)
    places = tree.places(rows)
    assert np.all((low[places] <= rows) & (rows <= high[places]))
    volume = np.prod((high - low + 1).astype(float), axis=1).sum()
    assert volume == pytest.approx((2.0 * REACH + 1) ** 3)
    assert (tree.size, tree.depth) == (16, 4)


def test_a_tree_that_cannot_be_cut_further_stays():
    tree = random_tree(1, 2, 9, public_coins(0))
    assert tree.size == 5
    assert sorted(tree.places(np.arange(-2, 3)[:, None]).tolist()) == [0, 1, 2, 3, 4]


def test_a_tree_grows_as_in_the_textbook():
    rows, told = clouds(4000)
    whole = np.rint(rows * REACH).astype(np.int64)
    for depth in (1, 2, 4):
        tree = grown(Tree.root(), whole, told, levels=depth, least=1)
        cells = np.histogram2d(tree.places(whole), told, (np.arange(tree.size + 1), np.arange(5)))[
            0
        ]
        mine = cells.max(axis=1).sum() / len(told)
        known = textbook.DecisionTreeClassifier(max_depth=depth, random_state=0).fit(rows, told)
        # it cuts between 24 bins of a column only
        assert mine == pytest.approx(known.score(rows, told), abs=0.02)
    few = grown(Tree.root(), whole, told, levels=8, least=300)
    assert np.bincount(few.places(whole)).min() >= 300


# --- what is known about leaves -------------------------------------------------------------------


def test_made_up_rows_lie_as_they_should():
    """60,000 rows: means within 7 standard errors."""
    coins = public_coins(3)
    tree = Tree.root().cut(np.array([0]), np.array([0]), np.array([0]))
    means = np.array([[[-0.5, 0.2], [-0.5, -0.2]], [[0.5, 0.1], [0.5, 0.3]]])
    counts, spread = np.array([[3.0, 1.0], [2.0, 2.0]]), np.full((2, 2, 2), 0.01)
    normals = Normals(counts, means, spread, np.zeros((2, 2)))
    made = Made.of(normals, tree, 60_000, REACH, coins)
    told = made.described(tree, REACH)
    assert told.counts == pytest.approx(counts, abs=0.1)
    assert told.means == pytest.approx(means, abs=0.01)
    assert told.variances == pytest.approx(spread, rel=0.1)


def test_guesses_are_corrected_by_exact_sums():
    rows, told = clouds(5000)
    tree = random_tree(3, REACH, 2, public_coins(2))
    wrong = Normals(
        np.full((4, 4), 300.0), np.zeros((4, 4, 3)), np.full((4, 4, 3), 0.1), np.zeros((4, 4))
    )
    (found,) = measured(trial(rows, told, 1000, noise=False), [tree], [wrong], Fraction(1))
    places = tree.places(np.rint(rows * REACH))
    for leaf in range(4):
        for key in range(4):
            mine = rows[(places == leaf) & (told == key)]
            if len(mine) > 20:
                assert found.counts[leaf, key] == pytest.approx(len(mine), abs=0.01)
                assert found.means[leaf, key] == pytest.approx(mine.mean(axis=0), abs=1e-3)


def test_where_noise_hides_leaves_guesses_stay():
    rows, told = clouds(200)
    tree = random_tree(3, REACH, 2, public_coins(2))
    guess = Normals(
        np.full((4, 4), 12.0), np.zeros((4, 4, 3)), np.full((4, 4, 3), 0.1), np.zeros((4, 4))
    )
    for _ in range(5):
        (found,) = measured(trial(rows, told, "1/1000"), [tree], [guess], Fraction(1))
        assert np.all(np.isfinite(found.scores(rows, tree.places(np.rint(rows * REACH)))))
        low, high = tree.boxes(3, REACH)
        assert np.all(found.means >= low[:, None] / REACH)
        assert np.all(found.means <= high[:, None] / REACH)


# --- the sides that classes lie on -----------------------------------------------------------------


def test_leanings_are_how_many_more_rows_lie_above_the_middle():
    rows, told = clouds(5000)
    ask = trial(rows, told, 1000, noise=False)
    found = Leanings.of(ask, Fraction(1), 5000.0, public_coins(0))
    assert ask.spent == 1
    assert found.columns == (0, 1, 2)
    assert found.counts == pytest.approx(np.bincount(told), rel=1e-3)
    above = np.where(np.rint(rows * REACH) > 0, 1, -1)
    exact = np.array([above[told == key].mean(axis=0) for key in range(4)])
    assert found.means == pytest.approx(np.clip(exact, -0.98, 0.98), abs=1e-3)
    tree = Tree.root().cut(np.array([0]), np.array([1]), np.array([0]))
    normals = found.normals(tree, 5, REACH)
    assert normals.counts[1] == pytest.approx(found.counts * (1 + found.means[:, 1]) / 2)
    assert normals.means.shape == (2, 4, 5)
    assert not normals.means.any()


def test_a_larger_price_asks_about_more_columns():
    rows, told = np.zeros((300, 20)), np.repeat([0, 1, 2], 100)
    sizes = [
        len(Leanings.of(trial(rows, told, price), Fraction(1), 300.0, public_coins(0)).columns)
        for price in ("1/100", "1/10", 1)
    ]
    assert sizes == [4, 10, 20]
    asked = {
        Leanings.of(trial(rows, told, "1/10"), Fraction(1), 300.0, public_coins(seed)).columns
        for seed in range(3)
    }
    assert len(asked) == 3


def test_rows_in_leaves_follow_from_leanings():
    """As many as there would be, were columns independent: all 16 places are tried one by one."""
    counts, means = np.array([30.0, 10.0]), np.array([[0.5, -0.2, 0.9], [-0.6, 0.1, 0.3]])
    known = Leanings(counts, (0, 2, 3), means, np.zeros(2))
    tree = known.grown(2000, 3, 1, public_coins(1))
    found = known.within(tree, 4, REACH)
    assert set(tree.nodes[tree.nodes[:, 0] >= 0, 0]) <= {0, 2, 3}
    expected = np.zeros_like(found)
    for place in np.ndindex(2, 2, 2, 2):
        side = 2 * np.array(place) - 1
        leaf = tree.places(side[None] * 5)[0]
        for key in range(2):
            share = np.prod((1 + side[[0, 2, 3]] * means[key]) / 2) / 2
            expected[leaf, key] += counts[key] * share
    assert found == pytest.approx(expected)


# --- trees ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("gaussian", [False, True])
def test_a_tree_spends_its_price_and_tells_the_classes(gaussian):
    rows, told = clouds(20_000)
    ask = trial(rows, told, "1/2", gaussian=gaussian)
    found = fit_tree(ask)
    assert Fraction(99, 100) < ask.spent <= 1
    assert right(found, *clouds(4000, seed=1)) > 0.95  # 0.99 without noise


@pytest.mark.long
def test_a_tree_looks_at_leaves_where_no_column_tells_by_itself():
    """By the classes' means alone it tells 0.6; with leaves 0.957, ± 0.006 over runs."""
    rows, told = checkers(30_000)
    assert right(fit_tree(trial(rows, told, 10)), *checkers(4000, seed=1)) > 0.9


def test_where_noise_hides_the_classes_a_tree_cuts_at_middles():
    """A count that noise makes large looks like sight, in 4 fits of 100: not in most.

    8 of 15 fits would be so less than once in 10⁷ runs.
    """
    at_middles = 0
    for _ in range(15):
        found = fit_tree(trial(*clouds(60), "1/1000"), depth=3)
        inner = found["nodes"][:, 0] >= 0
        at_middles += np.all(found["nodes"][inner, 1] == 0) and np.all(found["counts"] > 0)
        assert Tree(found["nodes"]).depth <= 3
    assert at_middles > 7


def test_random_cuts_are_those_of_the_seed():
    one, other = (fit_random(trial(*clouds(60), "1/1000"), depth=3, seed=5) for _ in range(2))
    assert one["nodes"].shape == (15, 4)
    assert np.array_equal(one["nodes"], other["nodes"])


def test_sight_is_by_rows_and_noise():
    rows, told = clouds(20_000)
    assert not Sight.of(trial(rows, told, 1)).hidden
    assert Sight.of(trial(rows[:50], told[:50], "1/100", noise=False)).hidden
    few, many = (Sight.of(trial(rows, told, epsilon)).detail for epsilon in (1, 10))
    assert many == pytest.approx(10 * few, rel=0.05)
    assert Sight(133.0, 1.0, hidden=True).coins(0).random() == (
        Sight(133.0, 9.0, hidden=True).coins(0).random()
    )
    assert Sight(133.0, 1.0, hidden=True).coins(0).random() != (
        Sight(134.0, 1.0, hidden=True).coins(0).random()
    )
    assert [visible_levels(detail) for detail in (1, 99, 201, 801)] == [0, 0, 2, 4]


@pytest.mark.parametrize("criterion", ["entropy", "ratio", "gini"])
def test_levels_by_noisy_counts_are_id3(criterion):
    rows, told = clouds(20_000)
    ask = trial(rows, told, 4)
    found = fit_levels(ask, depth=3, criterion=criterion)
    assert ask.spent <= 1
    assert right(found, *clouds(4000, seed=1)) > 0.9
    exact = fit_levels(trial(rows, told, 400, noise=False), depth=1, criterion="gini")["nodes"]
    known = textbook.DecisionTreeClassifier(max_depth=1, random_state=0).fit(rows, told).tree_
    assert exact[0, 0] == known.feature[0]
    assert exact[0, 1] / REACH == pytest.approx(known.threshold[0], abs=0.25)


def test_levels_stop_where_noise_alone_could_gain():
    coins = np.random.default_rng(0)
    rows, told = coins.uniform(-1, 1, (200, 3)), coins.integers(2, size=200)
    assert len(fit_levels(trial(rows, told, "1/10"))["nodes"]) == 1


@pytest.mark.long
def test_wine_at_a_price_of_1():
    """diffprivlib tells 0.63 of them right by a tree; the mean of 10 is 0.82 here, ± 0.03."""
    rows, told = load_wine(return_X_y=True)
    bounds = (rows.min(axis=0), rows.max(axis=0))
    held = 2 * (rows - bounds[0]) / (bounds[1] - bounds[0]) - 1
    found = [fit_tree(trial(held, told, 1), depth=5, seed=seed) for seed in range(10)]
    assert np.mean([right(each, held, told) for each in found]) > 0.64


def test_few_rows_at_a_small_price():
    """Where 0.4 is luck: 0.74 here, ± 0.03 as the mean of 10; the bound is 7 deviations below."""
    rows, told = load_wine(return_X_y=True)
    held = 2 * (rows - rows.min(axis=0)) / np.ptp(rows, axis=0) - 1
    found = [fit_tree(trial(held, told, "3/10"), depth=5) for _ in range(10)]
    assert np.mean([right(each, held, told) for each in found]) > 0.52


def test_a_tree_through_the_door():
    rows, told = clouds(4000)
    names = np.array(["a", "b", "c", "d"])
    budget = memory(epsilon=60)
    model = DecisionTreeClassifier(
        epsilon=2, max_depth=5, bounds=(-10, 10), classes=list(names), memory=budget
    )
    model.fit(rows * 10, names[told])
    assert model.cost_.epsilon == 2
    assert model.remaining_.epsilon == 58
    assert 0 < model.error_["means"] < 0.2
    assert model.get_depth() <= 5
    assert model.get_n_leaves() == len(model.counts_)
    places = model.apply(rows * 10)
    assert 0 <= places.min() < places.max() < len(model.counts_)  # a leaf may have no such rows
    told_right = model.score(rows * 10, names[told])
    assert told_right > 0.9
    assert model.predict_proba(rows * 10).sum(axis=1) == pytest.approx(np.ones(4000))
    matrix = budget.matrix(rows * 10, names[told], bounds=(-10, 10), classes=list(names))
    # rows are rounded to the grid of the door, and the noise of the counts at ε = 50 is below 1
    assert model.score(matrix, epsilon=50) == pytest.approx(told_right, abs=0.02)
    lines = model.export_text(max_depth=2).splitlines()
    assert lines[0].startswith("|--- x")
    assert any("class: " in line for line in lines)
    assert max(line.count("|   ") for line in lines) <= 2


def test_a_tree_is_drawn():
    alt = pytest.importorskip("altair")
    rows, told = clouds(2000)
    budget = memory(epsilon=2)
    model = DecisionTreeClassifier(
        epsilon=2, bounds=(-1, 1), classes=[0, 1, 2, 3], memory=budget
    ).fit(rows, told)
    chart = model.plot(max_depth=2)
    assert isinstance(chart, alt.LayerChart)
    (values,) = chart.to_dict()["datasets"].values()
    assert values[0]["written"] == values[0]["asks"]
    assert max(point["level"] for point in values) <= 2
    assert values[0]["to"] == pytest.approx(2000, rel=0.2)


# --- forests --------------------------------------------------------------------------------------


def test_a_forest_spends_its_price_and_tells_the_classes():
    rows, told = checkers(20_000)
    for trees, count, epsilon in ((10, 4, 1), (2, 2, 10)):
        ask = trial(rows, told, epsilon)
        found = fit_forest(ask, trees=trees)
        assert Fraction(99, 100) < ask.spent <= 1
        assert len(found["sizes"]) == count
        assert np.all(found["variances"] > 0)


def test_a_forest_without_sight_is_one_tree_of_sides():
    """A count that noise makes large looks like sight, in 3 fits of 100: not in most.

    8 of 15 fits would be so less than once in 10⁷ runs.
    """
    rows, told = clouds(50)
    fits_of_sides = 0
    for _ in range(15):
        ask = trial(rows, told, "1/1000")
        found = fit_forest(ask, trees=2, depth=3)
        assert ask.spent == 1
        fits_of_sides += (
            np.all(found["counts"] > 0)
            and len(found["sizes"]) == 1
            and set(found["nodes"][found["nodes"][:, 0] >= 0, 1]) <= {0}
            and not found["means"].any()
        )
    assert fits_of_sides > 7


@pytest.mark.long
def test_a_class_that_little_is_known_about_is_not_the_likeliest_everywhere():
    """50 rows of 1,000 with ten columns: a wide guess about them was the likeliest of most rows."""
    coins = np.random.default_rng(3)
    rows = np.clip(coins.normal(0, 0.25, (1000, 10)), -1, 1)
    told = (np.arange(1000) < 50).astype(int)
    right = []
    for _ in range(9):
        model = RandomForestClassifier(epsilon=1, bounds=(-1, 1), classes=[0, 1], memory=memory(1))
        right.append(model.fit(rows, told).score(rows, told))
    assert np.median(right) > 0.9


def test_variances_that_are_known_stay_those_of_their_class():
    counts, means = np.full((1, 2), 500.0), np.zeros((1, 2, 3))
    apart = np.stack([np.full(3, 0.1), np.full(3, 0.3)])[None]
    clear, blurred = (
        Normals(counts, means, apart, np.full((1, 2), noise)).drawn().variances
        for noise in (1e-5, 0.1)
    )
    assert clear == pytest.approx(apart, rel=1e-3)
    assert blurred == pytest.approx(np.full_like(apart, 0.2), rel=0.01)


def test_a_forest_through_the_door():
    rows, told = checkers(15_000)
    budget = memory(epsilon=10)
    model = RandomForestClassifier(epsilon=10, bounds=(-1, 1), classes=[0, 1], memory=budget)
    model.fit(rows, told)
    assert model.cost_.epsilon == 10
    chances = model.predict_proba(rows[:500])
    assert chances.sum(axis=1) == pytest.approx(np.ones(500))
    assert np.array_equal(model.predict(rows[:500]), chances.argmax(axis=1))
    assert model.score(*checkers(4000, seed=1)) > 0.95  # 0.988 ± 0.002
    assert len(model.estimators_) >= 2
    assert 0 < model.error_["means"] < 0.1
    pytest.importorskip("altair")
    spec = model.plot(trees=2, max_depth=1).to_dict()
    assert [each["title"] for each in spec["vconcat"]] == [
        f"tree {place} of {len(model.estimators_)}" for place in (1, 2)
    ]
    for each in spec["vconcat"]:
        points = spec["datasets"][each["data"]["name"]]
        assert points[0]["to"] == pytest.approx(15_000, rel=0.1)
        assert {point["level"] for point in points} == {0, 1}


def test_a_forest_of_one_leaf_is_drawn_as_one():
    pytest.importorskip("altair")
    age = Coordinate("age", None, Fraction(0), Fraction(100), "age")
    leaf = Drawn.of(Tree.root(), (age,), np.array([[3.0, 9.0]]), ["no", "yes"])
    (points,) = grove([leaf], 1, 3).to_dict()["datasets"].values()
    assert [(each["asks"], each["class"], each["to"]) for each in points] == [("leaf", "yes", 12)]


def test_an_interrupted_forest_is_what_was_known():
    class Stopping(TrialRows):
        kept = None

        def keep(self, fitted):
            self.kept = fitted

    rows, told = clouds(5000)
    ask = Stopping(rows * REACH, Fraction(10), reach=REACH, keys=told, classes=4, bits=SYSTEM)
    assert set(fit_forest(ask, trees=1)) == set(ask.kept)
    assert ask.kept["means"].shape == (1, 4, 3)
    known = look(trial(rows, told, 10), Fraction(1), 5000)
    assert ask.kept["means"] == pytest.approx(known.means, abs=0.02)
