"""Decision trees on the grid: how rows walk them, and how they grow on rows that anybody may see.

A tree is a table of nodes (column, threshold, left, right), as `Leaves` takes it: a row goes left
where its coordinate is at most the threshold; a leaf has column -1 and its number under left.
"""

from typing import Final, TypeAlias, final

import numpy as np
from numpy.typing import NDArray
from sklearn.tree import DecisionTreeClassifier

from noisegate.frozen import dataclass
from noisegate.releases.cells.chance import Coins
from noisegate.transforms.statistics.numbers import Numbers

Whole: TypeAlias = NDArray[np.int64]
_BINS: Final = 24  # of each column, between which trees cut


@final
@dataclass(frozen=True, slots=True, eq=False)
class Tree:
    """Nodes in an order where children come after their parents."""

    nodes: Whole

    @classmethod
    def root(cls) -> "Tree":
        """One leaf."""
        return cls(np.array([[-1, 0, 0, 0]]))

    @property
    def ends(self) -> Whole:
        """The nodes that are leaves, by their number."""
        leaves = np.flatnonzero(self.nodes[:, 0] < 0)
        return leaves[np.argsort(self.nodes[leaves, 2])]

    @property
    def size(self) -> int:
        """The number of leaves."""
        return int(np.sum(self.nodes[:, 0] < 0))

    @property
    def depth(self) -> int:
        """The depth of the deepest leaf."""
        return int(self.levels().max())

    def levels(self) -> Whole:
        """How many questions lead to each node."""
        found = np.zeros(len(self.nodes), np.int64)
        for place in np.flatnonzero(self.nodes[:, 0] >= 0):
            found[self.nodes[place, 2:]] = found[place] + 1
        return found

    def numbers(self) -> Numbers:
        """As a question of the door holds it."""
        return Numbers.of(self.nodes)

    def places(self, rows: NDArray[np.generic]) -> Whole:
        """The leaf of each row, in units of the grid."""
        at, every = np.zeros(len(rows), np.int64), np.arange(len(rows))
        while True:
            column = self.nodes[at, 0]
            inner = column >= 0
            if not inner.any():
                found: Whole = self.nodes[at, 2]
                return found
            left = rows[every, np.maximum(column, 0)] <= self.nodes[at, 1]
            at = np.where(inner, np.where(left, self.nodes[at, 2], self.nodes[at, 3]), at)

    def boxes(self, columns: int, reach: int) -> tuple[Whole, Whole]:
        """The least and the largest coordinates of each leaf, of shape (leaves, columns)."""
        low = np.full((len(self.nodes), columns), -reach)
        high = np.full((len(self.nodes), columns), reach)
        for place in np.flatnonzero(self.nodes[:, 0] >= 0):
            column, threshold, left, right = self.nodes[place]
            low[[left, right]], high[[left, right]] = low[place], high[place]
            high[left, column], low[right, column] = threshold, threshold + 1
        return low[self.ends], high[self.ends]

    def cut(self, leaves: Whole, columns: Whole, thresholds: Whole) -> "Tree":
        """These leaves become nodes with two leaves each."""
        nodes, at = self.nodes, self.ends[leaves]
        start = len(nodes)
        children = start + 2 * np.arange(len(at))
        more = np.full((2 * len(at), 4), 0)
        more[:, 0] = -1
        found = np.vstack([nodes, more])
        found[at] = np.column_stack([columns, thresholds, children, children + 1])
        ends = np.flatnonzero(found[:, 0] < 0)
        found[ends, 2] = np.arange(len(ends))
        return Tree(found)


def random_tree(columns: int, reach: int, depth: int, coins: Coins) -> Tree:
    """Every leaf of a level is cut at the middle of one of its columns, chosen by public coins."""
    tree = Tree.root()
    for _ in range(depth):
        low, high = tree.boxes(columns, reach)
        chosen = coins.integers(columns, size=tree.size)
        every = np.arange(tree.size)
        wide = high[every, chosen] > low[every, chosen]
        middles = (low[every, chosen] + high[every, chosen]) // 2
        tree = tree.cut(every[wide], chosen[wide], middles[wide])
    return tree


def grown(  # noqa: PLR0913 - what a tree grows on, and how far
    tree: Tree,
    rows: Whole,
    labels: Whole,
    *,
    levels: int,
    least: int,
    among: int | None = None,
    coins: Coins | None = None,
) -> Tree:
    """The tree, cut where that parts the classes best (by Gini's index), so many levels further.

    ``least`` rows stay in each leaf. ``among``: every leaf sees so many columns only, chosen by
    ``coins``.
    """
    if levels < 1:
        return tree
    edges = [np.unique(np.quantile(column, np.arange(1, _BINS) / _BINS).astype(np.int64))
             for column in rows.T]  # fmt: skip
    bins = np.column_stack([np.searchsorted(*pair) for pair in zip(edges, rows.T, strict=True)])
    nodes, places = tree.nodes.tolist(), tree.places(rows)
    for leaf, at in enumerate(tree.ends):
        inside = places == leaf
        if not inside.any():
            continue
        seed = 0 if coins is None else int(coins.integers(1 << 31))
        learner = DecisionTreeClassifier(
            max_depth=levels, min_samples_leaf=least, max_features=among, random_state=seed
        )
        found = learner.fit(bins[inside], labels[inside]).tree_
        start = len(nodes) - 1  # the first of its nodes takes the place of the leaf
        parts = found.children_left, found.children_right, found.feature, found.threshold
        made = [
            [-1, 0, 0, 0]
            if left < 0
            else [column, edges[column][int(below)], start + left, start + right]
            for left, right, column, below in zip(*parts, strict=True)
        ]
        nodes[at] = made[0]
        nodes += made[1:]
    numbered = np.array(nodes)
    ends = numbered[:, 0] < 0
    numbered[ends, 2] = np.arange(ends.sum())
    return Tree(numbered)
