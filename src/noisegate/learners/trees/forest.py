"""Random forests: a few trees with naive Bayes in their leaves.

    RandomForestClassifier(epsilon=1).fit(gate.matrix("patients", ["age", "bmi"], target="sick"))

A row is in one leaf of each tree, so every tree adds to the noise of all of them: a private forest
has few trees, and its leaves tell more than one class each [Koh96]. Trees grow on made-up rows,
each on its own and with half of the columns at each cut; the leaves of all trees are looked at
together, by one question. Where noise hides most, the forest is one leaf, with naive Bayes by what
is seen of all rows; where it hides even that, one tree by the sides that classes lie on.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import numpy as np
from scipy.special import softmax

from noisegate.desk.display.drawing import Chart
from noisegate.frozen import KW_ONLY, dataclass
from noisegate.learners.arrays import Rows
from noisegate.learners.asking import Floats, RowsAsk
from noisegate.learners.base import PrivateClassifier
from noisegate.learners.fitting import REACH, Algorithm, Fitted, Options
from noisegate.learners.matrix import Matrix
from noisegate.learners.noisy_sums import divided
from noisegate.learners.parameters import require_seed, require_whole
from noisegate.learners.trees.class_sides import Leanings
from noisegate.learners.trees.growing import Tree, Whole, grown
from noisegate.learners.trees.leaves import Made, measured
from noisegate.learners.trees.normal_classes import Normals, look
from noisegate.learners.trees.plots import TITLE, Drawn, grove
from noisegate.learners.trees.tree import (
    COUNT,
    DEPTH,
    LEAST,
    MADE,
    Sight,
    require_depth,
    visible_levels,
)

# How many trees, by how much the noise lets us see of all rows.
_TREES: Final[tuple[tuple[float, int], ...]] = ((2e3, 1), (4e3, 2), (4e4, 4), (float("inf"), 8))
_TREES_MAX: Final = 100


@dataclass(eq=False, repr=False)
class RandomForestClassifier(PrivateClassifier):
    """Trees whose leaves hold noisy counts and means of each class.

    After `fit`, ``estimators_`` are the trees, as tables of nodes on the grid; ``error_["means"]``
    is the standard deviation of the noise in the means of classes in leaves, about, in the scale
    where each column's bounds are -1 and 1. Classes are assumed equally large where noise hides
    their sizes.

    Args:
        n_estimators: The most trees; noise may allow fewer.
        epsilon: The price.
        max_depth: The largest depth; noise may allow less (default: 12).
        bounds: (low, high) of the columns of an array.
        classes: The classes of an array's target.
        memory: The budget for arrays.
        random_state: Of public choices, together with the noisy number of rows, so that no two fits
            share them; noise has no seed.

    >>> from noisegate.root import memory
    >>> rows, told = np.repeat([[1.0, 9.0], [8.0, 2.0]], 500, axis=0), np.repeat([0, 1], 500)
    >>> purse = memory(epsilon=1)
    >>> model = RandomForestClassifier(epsilon=1, bounds=(0, 10), classes=[0, 1], memory=purse)
    >>> model.fit(rows, told).predict([[2.0, 7.0], [9.0, 1.0]])
    array([0, 1])
    >>> print(model.cost_)
    ε = 1
    """

    n_estimators: int = 10
    _: KW_ONLY
    max_depth: int | None = None
    random_state: int = 0

    def _plan(self, matrix: Matrix) -> tuple[Algorithm, Options]:  # noqa: ARG002 - any matrix
        options: dict[str, Any] = {
            "trees": require_whole(self.n_estimators, "n_estimators", 1, _TREES_MAX),
            "depth": require_depth(self.max_depth),
            "seed": require_seed(self.random_state),
        }
        return partial(fit_forest, **options), options

    def _take(self, fitted: Fitted) -> None:
        self.estimators_ = [Tree(nodes) for nodes in _parted(fitted["nodes"], fitted["sizes"])]
        leaves = [tree.size for tree in self.estimators_]
        parts = ("counts", "means", "variances", "noise")
        told = zip(*(_parted(fitted[name], leaves) for name in parts), strict=True)
        self._leaves = [Normals(*each).drawn() for each in told]
        noise, weights = fitted["noise"], np.maximum(fitted["counts"], 1e-9)
        self.error_ = {"means": float(np.sqrt(np.average(noise, weights=weights)))}

    def plot(self, *, trees: int = 3, max_depth: int = 3) -> Chart:
        """The splits of the first trees, to some depth; widths are noisy numbers of rows."""
        self._require_fitted()
        pairs = zip(self.estimators_[:trees], self._leaves, strict=False)
        drawn = [
            Drawn.of(tree, self.coordinates_, held.counts, self.classes_) for tree, held in pairs
        ]
        return self._framed(grove(drawn, len(self.estimators_), max_depth), TITLE)

    def predict_proba(self, X: Rows) -> Floats:
        """The probability of each class: the mean over the trees."""
        return self._scores(self._points(X))

    def _scores(self, points: Floats) -> Floats:
        rows = np.rint(points * REACH)
        told = [
            softmax(leaves.scores(points, tree.places(rows)), axis=1)
            for tree, leaves in zip(self.estimators_, self._leaves, strict=True)
        ]
        found: Floats = np.mean(told, axis=0)
        return found


def fit_forest(ask: RowsAsk, *, trees: int = 10, depth: int | None = None, seed: int = 0) -> Fitted:
    """Trees, one after the other, and what is known about the classes in their leaves."""
    ask.done(0.0, "counting rows")
    sight, share, root = Sight.of(ask), 1 - COUNT, Tree.root()
    coins, depth = sight.coins(seed), depth or DEPTH
    ask.done(0.1, "looking at classes")
    if sight.hidden:
        seen = Leanings.of(ask, share, sight.rows, coins)
        tree = seen.grown(MADE, depth, LEAST, coins)
        return _fitted([tree], [seen.normals(tree, ask.columns, ask.reach)])
    count = min(trees, next(many for below, many in _TREES if sight.detail < below))
    levels = min(depth, visible_levels(0.8 * sight.detail / count))
    first, *parts = divided(share, 1, 4) if levels else [share]
    known = look(ask, first, sight.told)
    if not levels:
        return _fitted([root], [known])
    ask.keep(_fitted([root], [known]))
    ask.done(0.5, f"looking at the leaves of {count} trees")
    grove, guesses = [], []
    for _ in range(count):
        made = Made.of(known, root, MADE, ask.reach, coins)
        among = None if count == 1 else (ask.columns + 1) // 2
        grove.append(grown(
            root, made.rows, made.labels, levels=levels, least=LEAST, among=among,
            coins=coins,
        ))  # fmt: skip
        guesses.append(made.described(grove[-1], ask.reach))
    return _fitted(grove, measured(ask, grove, guesses, parts[0]))


def _fitted(grove: Sequence[Tree], leaves: Sequence[Normals]) -> Fitted:
    return {
        "nodes": np.vstack([tree.nodes for tree in grove]),
        "sizes": np.array([len(tree.nodes) for tree in grove]),
        "counts": np.vstack([each.counts for each in leaves]),
        "means": np.vstack([each.means for each in leaves]),
        "variances": np.vstack([each.variances for each in leaves]),
        "noise": np.vstack([each.noise for each in leaves]),
    }


def _parted(held: Floats | Whole, sizes: Sequence[int] | Whole) -> list[Any]:
    return np.split(held, np.cumsum(sizes)[:-1])
