"""Decision trees: grown on rows made up from noisy class means, or by noisy counts, or at random.

    DecisionTreeClassifier(epsilon=1).fit(gate.matrix("patients", ["age", "bmi"], target="sick"))

A private tree has to find its cuts with little noise. Counts of every bin of every column are many
numbers, and a row is in one bin of each column, so their noise is large. Sums of coordinates by
class are few: the method "auto" learns where classes lie by them, makes up rows that lie so, and
grows the tree on these at no cost; where there are rows enough, it then looks at the leaves, and
grows on. Where noise hides even the classes' means, it asks on which side of the middle rows lie,
in columns that public coins choose (see `class_sides.py`). "levels" is ID3 and C4.5 with noisy
counts [FS10].
"""

from fractions import Fraction
from functools import partial
from typing import Any, Final, final

import numpy as np
from numpy.typing import NDArray

from noisegate.desk.display.drawing import Chart
from noisegate.errors import Bug
from noisegate.frozen import dataclass
from noisegate.learners.arrays import Rows
from noisegate.learners.asking import Floats, RowsAsk
from noisegate.learners.base import PrivateClassifier
from noisegate.learners.fitting import REACH, Algorithm, Fitted, Options
from noisegate.learners.matrix import Matrix
from noisegate.learners.noisy_sums import divided
from noisegate.learners.parameters import require_one_of, require_seed, require_whole
from noisegate.learners.trees import plots
from noisegate.learners.trees.class_sides import Leanings
from noisegate.learners.trees.growing import Tree, Whole, grown, random_tree
from noisegate.learners.trees.leaves import Made, measured
from noisegate.learners.trees.normal_classes import Normals, count_rows, look
from noisegate.releases.cells.chance import Coins, public_coins
from noisegate.transforms.statistics.features import Bins, Linear, One
from noisegate.transforms.statistics.statistic import Statistic
from noisegate.transforms.statistics.weighings import ByKey, Leaves, Weighing

DEPTH: Final = 12
_DEPTH_MAX: Final = 16
_LEVELS: Final = 5
_BINS_MAX: Final = 64
COUNT: Final = Fraction(1, 25)  # of the price, for the number of rows
_SURE: Final = 1.5  # standard deviations that a count is taken to be too large
_HIDDEN: Final = 0.75  # noise of a class mean that hides it
_CLEAR: Final = 50.0  # leaves are looked at down to so many noises of a class's sums
_AT_ONCE: Final = 4  # levels that are grown before the leaves are looked at again
_PARTS: Final = (
    (1,),
    (3, 7),
    (2, 3, 5),
)  # of the price: for all rows, then for each look at leaves
MADE: Final = 30_000
LEAST: Final = 15  # made-up rows in a leaf


@dataclass(eq=False, repr=False, kw_only=True)
class DecisionTreeClassifier(PrivateClassifier):
    """A decision tree with splits on single columns.

    After `fit`, ``tree_`` is the table of nodes on the grid, ``counts_`` the noisy numbers of rows
    of each class in each leaf, as they were counted or as they follow from what was learnt, and
    ``error_`` has the standard deviation of the noise: in "counts" of a leaf, or in the "means" of
    classes, or of the sides they lie on, that the tree was grown on (in the scale where each
    column's bounds are -1 and 1). Classes are assumed equally large where noise hides
    their sizes.

    Args:
        epsilon: The price.
        max_depth: The largest depth (default: 12, or 5 for "levels" and "random").
        method: "auto" (by the sides classes lie on, or their means and then leaves, as noise
            allows), "levels" (ID3 and C4.5: level by level by noisy counts), or "random" (cuts by
            public coins).
        criterion: Of "levels": "entropy", "ratio" (C4.5) or "gini".
        bins: Of each column, between which "levels" cuts.
        bounds: (low, high) of the columns of an array.
        classes: The classes of an array's target.
        memory: The budget for arrays.
        random_state: Of public choices, together with the noisy number of rows, so that no two fits
            share them; of "random" by itself. Noise has no seed.

    >>> from noisegate.root import memory
    >>> rows, told = np.repeat([[1.0, 9.0], [8.0, 2.0]], 500, axis=0), np.repeat([0, 1], 500)
    >>> purse = memory(epsilon=1)
    >>> model = DecisionTreeClassifier(epsilon=1, bounds=(0, 10), classes=[0, 1], memory=purse)
    >>> model.fit(rows, told).predict([[1.0, 9.0], [8.0, 2.0]])
    array([0, 1])
    >>> print(model.cost_)
    ε = 1
    """

    max_depth: int | None = None
    method: str = "auto"
    criterion: str = "entropy"
    bins: int = 8
    random_state: int = 0

    def _plan(self, matrix: Matrix) -> tuple[Algorithm, Options]:  # noqa: ARG002 - any matrix
        depth = require_depth(self.max_depth)
        seed = require_seed(self.random_state)
        method = require_one_of(self.method, "method", ("auto", "levels", "random"))
        options: dict[str, Any] = {"depth": depth, "method": method}
        if method != "levels":
            fit = fit_tree if method == "auto" else fit_random
            return partial(fit, depth=depth, seed=seed), options | {"seed": seed}
        criterion = require_one_of(self.criterion, "criterion", ("entropy", "ratio", "gini"))
        bins = require_whole(self.bins, "bins", 2, _BINS_MAX)
        algorithm = partial(fit_levels, depth=depth, criterion=criterion, bins=bins)
        return algorithm, options | {"criterion": criterion, "bins": bins}

    def _take(self, fitted: Fitted) -> None:
        self.tree_, self.counts_ = Tree(fitted["nodes"]), fitted["counts"]
        of = "counts" if "noise" in fitted else "means"
        noise = fitted["noise"] if "noise" in fitted else fitted["means_noise"]
        self.error_ = {of: float(np.sqrt(noise))}

    def predict_proba(self, X: Rows) -> Floats:
        """The share of each class in the leaf of each point."""
        return self._scores(self._points(X))

    def apply(self, X: Rows) -> Whole:
        """The leaf of each point."""
        return self.tree_.places(np.rint(self._points(X) * REACH))

    def get_depth(self) -> int:
        """The depth of the deepest leaf."""
        self._require_fitted()
        return self.tree_.depth

    def get_n_leaves(self) -> int:
        """The number of leaves."""
        self._require_fitted()
        return self.tree_.size

    def _scores(self, points: Floats) -> Floats:
        held = np.maximum(self.counts_, 0.0) + 1e-3
        held /= held.sum(axis=1, keepdims=True)
        return held[self.tree_.places(np.rint(points * REACH))]

    def _rule(self, reach: int) -> tuple[Weighing, NDArray[np.int64]]:
        if reach != REACH:
            raise Bug("The tree is evaluated on another grid.", fix="Report the learner.")
        told = np.argmax(self.counts_, axis=1)
        return Leaves((self.tree_.numbers(),), keyed=True), told

    def export_text(self, *, max_depth: int = 10) -> str:
        """The splits and the classes they lead to, down to some depth."""
        self._require_fitted()
        return "\n".join(plots.lines(self._drawn(), max_depth))

    def plot(self, *, max_depth: int = 4) -> Chart:
        """A plot of the splits, down to some depth; widths are noisy numbers of rows."""
        self._require_fitted()
        return self._framed(plots.chart(self._drawn(), max_depth), plots.TITLE)

    def _drawn(self) -> plots.Drawn:
        return plots.Drawn.of(self.tree_, self.coordinates_, self.counts_, self.classes_)


@final
@dataclass(frozen=True, slots=True)
class Sight:
    """How much the noise lets us see: how many rows there are, as told, and whether classes show.

    ``detail`` is how many times the noise of a sum, at the whole price, all rows are.
    """

    told: float
    detail: float
    hidden: bool

    @classmethod
    def of(cls, ask: RowsAsk) -> "Sight":
        """For a first share of the price."""
        rows, deviation = count_rows(ask, COUNT)
        (noise,) = ask.variance(Statistic(ByKey(), (Linear(),)), [1 - COUNT])
        each, surely = noise**0.5 / ask.reach, rows - _SURE * deviation
        hidden = surely <= 0 or each * ask.classes / surely > _HIDDEN
        return cls(rows, max(rows, 1.0) / each, hidden)

    @property
    def rows(self) -> float:
        """How many there are, at least one."""
        return max(self.told, 1.0)

    def coins(self, seed: int) -> Coins:
        """Public coins of this fit: no cuts are unlucky in every fit."""
        return public_coins(f"{seed} and {self.told} rows")


def visible_levels(detail: float) -> int:
    """How many levels of a tree the noise lets us see."""
    return max(0, int(np.log2(max(detail / _CLEAR, 1.0))))


def require_depth(value: int | None) -> int | None:
    """A largest depth, if one is given."""
    return None if value is None else require_whole(value, "max_depth", 1, _DEPTH_MAX)


def fit_tree(ask: RowsAsk, *, depth: int | None = None, seed: int = 0) -> Fitted:
    """A tree by what the noise lets us see."""
    ask.done(0.0, "counting rows")
    sight, share = Sight.of(ask), 1 - COUNT
    coins, depth = sight.coins(seed), depth or DEPTH
    ask.done(0.1, "looking at classes")
    if sight.hidden:
        seen = Leanings.of(ask, share, sight.rows, coins)
        tree = seen.grown(MADE, depth, LEAST, coins)
        counts, noise = seen.within(tree, ask.columns, ask.reach), np.array(seen.noise.mean())
        return {"nodes": tree.nodes, "counts": counts, "means_noise": noise}
    levels = min(depth, visible_levels(0.7 * sight.detail))
    steps = [levels] if levels <= _AT_ONCE else [levels // 2, levels - levels // 2]
    first, *parts = divided(share, *_PARTS[len(steps) if levels else 0])
    tree, normals = Tree.root(), look(ask, first, sight.told)
    for place, (step, part) in enumerate(zip(steps, parts, strict=False)):
        ask.keep(_finished(tree, normals, depth, ask, coins))
        ask.done((place + 1) / (len(parts) + 1), "looking at leaves")
        made = Made.of(normals, tree, MADE, ask.reach, coins)
        tree = grown(tree, made.rows, made.labels, levels=step, least=LEAST)
        (normals,) = measured(ask, [tree], [made.described(tree, ask.reach)], part)
    return _finished(tree, normals, depth, ask, coins)


def _finished(tree: Tree, normals: Normals, depth: int, ask: RowsAsk, coins: Coins) -> Fitted:
    """The tree, grown on rows made up from what is known about its leaves."""
    made = Made.of(normals, tree, MADE, ask.reach, coins)
    more = depth - tree.depth
    tree = grown(tree, made.rows, made.labels, levels=more, least=LEAST)
    counts = made.described(tree, ask.reach).counts
    noise = float(np.average(normals.noise, weights=normals.counts))
    return {"nodes": tree.nodes, "counts": counts, "means_noise": np.array(noise)}


def fit_random(ask: RowsAsk, *, depth: int | None = None, seed: int = 0) -> Fitted:
    """Cuts by public coins, the whole price for the counts of classes in the leaves."""
    tree = random_tree(ask.columns, ask.reach, depth or _LEVELS, public_coins(seed))
    return counted(ask, tree, Fraction(1))


def counted(ask: RowsAsk, tree: Tree, share: Fraction) -> Fitted:
    """Noisy counts of classes in the leaves of a public tree."""
    question = Statistic(Leaves((tree.numbers(),), keyed=True), (One(),))
    (counts,) = ask.totals(question, [share])
    held = counts.values.reshape(-1, ask.classes)
    return {"nodes": tree.nodes, "counts": held, "noise": np.array(counts.variance)}


def fit_levels(
    ask: RowsAsk, *, depth: int | None = None, criterion: str = "entropy", bins: int = 8
) -> Fitted:
    """ID3 or C4.5: all leaves of a level are cut by one question, the counts of all their bins.

    A leaf is cut where its best gain stands out of what noise alone would gain.
    """
    depth = depth or _LEVELS
    inner = [round(-ask.reach + 2 * ask.reach * cut / bins) for cut in range(1, bins)]
    edges = (tuple(inner),) * ask.columns
    *parts, last = divided(Fraction(1), *[1] * (depth + 1))
    tree = Tree.root()
    for place, part in enumerate(parts):
        ask.done(place / (depth + 1), f"level {place + 1} of {depth}")
        question = Statistic(Leaves((tree.numbers(),), keyed=True), (Bins(edges),))
        (seen,) = ask.totals(question, [part])
        table = seen.values.reshape(tree.size, ask.classes, ask.columns, bins)
        leaves, columns, cuts = _chosen(table, seen.variance, criterion)
        if not len(leaves):
            break
        tree = tree.cut(leaves, columns, np.array(inner)[cuts])
    return counted(ask, tree, last)


def _chosen(table: Floats, noise: float, criterion: str) -> tuple[Whole, Whole, Whole]:
    """Which leaves are cut, at which column and bin; counts by leaf, class, column and bin."""
    size, classes, _, bins = table.shape
    left = np.cumsum(table, axis=3)[..., :-1]
    right = left[..., -1:] + table[..., -1:] - left
    left, right = np.maximum(left, 0.0), np.maximum(right, 0.0)
    lefts, rights = left.sum(axis=1), right.sum(axis=1)
    whole = np.maximum(lefts + rights, 1e-9)
    share = lefts / whole
    gain = _disorder(left + right, criterion)
    gain -= share * _disorder(left, criterion) + (1 - share) * _disorder(right, criterion)
    least = 2 * (classes * bins * noise) ** 0.5  # rows of a side that noise alone could be
    usable = np.minimum(lefts, rights) > least
    gain = np.where(usable, gain, 0.0)
    if criterion == "ratio":
        known = np.stack([share, 1 - share], axis=1)
        gain = np.where(usable, gain / np.maximum(_disorder(known, criterion), 1e-3), 0.0)
    best = gain.reshape(size, -1).argmax(axis=1)
    leaves = np.flatnonzero(gain.reshape(size, -1).max(axis=1) > 0)
    return leaves, *np.divmod(best[leaves], bins - 1)


def _disorder(counts: Floats, criterion: str) -> Floats:
    """Of classes, which are along the second axis: entropy in bits, or Gini's index."""
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1e-9)
    if criterion == "gini":
        found: Floats = 1 - np.sum(shares**2, axis=1)
    else:
        found = -np.sum(shares * np.log2(np.maximum(shares, 1e-12)), axis=1)
    return found
