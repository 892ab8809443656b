"""Trees as text and as altair charts. They show what was learnt, never rows."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, final

import numpy as np

from noisegate.desk.display.drawing import Chart, altair
from noisegate.frozen import dataclass
from noisegate.learners.asking import Floats
from noisegate.learners.fitting import REACH
from noisegate.learners.matrix import Coordinate
from noisegate.learners.trees.growing import Tree, Whole

TITLE: Final = "rows go left where the answer is yes"
_WIDTH: Final = 560
_LETTERS: Final = _WIDTH // 6  # that stand side by side


@final
@dataclass(frozen=True, slots=True, eq=False)
class Drawn:
    """A tree with the names of its columns, its thresholds in their units, and noisy counts."""

    tree: Tree
    names: Sequence[str]
    thresholds: Floats  # of each node
    counts: Floats  # (leaves, classes)
    classes: Sequence[str]

    @classmethod
    def of(
        cls, tree: Tree, columns: Sequence[Coordinate], counts: Floats, classes: Iterable[Any]
    ) -> "Drawn":
        """A tree on the grid, in the units of its columns."""
        asked, cuts = tree.nodes[:, 0], (tree.nodes[:, 1] + 0.5) / REACH
        middles, halves = (
            np.array([float(getattr(each, name)) for each in columns])[asked]
            for name in ("middle", "half")
        )
        names = [each.name for each in columns]
        return cls(tree, names, middles + cuts * halves, counts, [str(key) for key in classes])

    def totals(self) -> Floats:
        """The counts of all nodes, of shape (nodes, classes)."""
        nodes = self.tree.nodes
        found = np.zeros((len(nodes), self.counts.shape[1]))
        found[self.tree.ends] = np.maximum(self.counts, 0.0)
        for place in np.flatnonzero(nodes[:, 0] >= 0)[::-1]:
            found[place] = found[nodes[place, 2]] + found[nodes[place, 3]]
        return found

    def question(self, place: int) -> str:
        """What a node asks; the answer yes is left."""
        return f"{self.names[self.tree.nodes[place, 0]]} <= {self.thresholds[place]:.4g}"

    def shown(self, max_depth: int) -> Whole:
        """The nodes down to some depth."""
        return np.flatnonzero(self.tree.levels() <= max_depth)


def lines(drawn: Drawn, max_depth: int) -> Iterator[str]:
    """The tree as text, a line for each node.

    >>> tree = Tree.root().cut(np.array([0]), np.array([1]), np.array([5]))
    >>> held = np.array([[9.0, 1.0], [2.0, 8.0]])
    >>> drawn = Drawn(tree, ["age", "bmi"], np.full(3, 21.5), held, ["no", "yes"])
    >>> for line in lines(drawn, 3):
    ...     print(line)
    |--- bmi <= 21.5
    |   |--- class: no (about 10 rows)
    |--- bmi >  21.5
    |   |--- class: yes (about 10 rows)
    """
    totals, nodes, levels = drawn.totals(), drawn.tree.nodes, drawn.tree.levels()

    def of(place: int) -> Iterator[str]:
        indent = "|   " * int(levels[place])
        rows = totals[place]
        if nodes[place, 0] < 0 or levels[place] >= max_depth:
            cut = "" if nodes[place, 0] < 0 else ", more questions"
            told = drawn.classes[int(np.argmax(rows))]
            yield f"{indent}|--- class: {told} (about {rows.sum():.0f} rows{cut})"
            return
        asked = drawn.question(place)
        yield f"{indent}|--- {asked}"
        yield from of(int(nodes[place, 2]))
        yield f"{indent}|--- {asked.replace('<=', '> ')}"
        yield from of(int(nodes[place, 3]))

    return of(0)


def chart(drawn: Drawn, max_depth: int) -> Chart:
    """The tree as nested bars: the rows of a node stand under it, coloured by its largest class.

    What a node asks is written where it finds room; rows for which that holds go left.
    """
    alt = altair()
    totals, nodes, levels = drawn.totals(), drawn.tree.nodes, drawn.tree.levels()
    start = np.zeros(len(nodes))
    for place in np.flatnonzero(nodes[:, 0] >= 0):
        left, right = nodes[place, 2:]
        start[left], start[right] = start[place], start[place] + totals[left].sum()
    whole, points = max(float(totals[0].sum()), 1e-9), []
    for place in drawn.shown(max_depth):
        rows = totals[place]
        asks = drawn.question(place) if nodes[place, 0] >= 0 else "leaf"
        room = int(_LETTERS * rows.sum() / whole)
        points.append({
            "level": int(levels[place]),
            "from": float(start[place]),
            "middle": float(start[place] + rows.sum() / 2),
            "to": float(start[place] + rows.sum()),
            "asks": asks,
            "written": asks if len(asks) <= room else "",
            "class": drawn.classes[int(np.argmax(rows))],
            "share": float(rows.max() / max(rows.sum(), 1e-9)),
        })  # fmt: skip
    base = alt.Chart(alt.InlineData(values=points)).encode(
        y=alt.Y("level:O", title="questions asked before")
    )
    across = alt.Scale(domain=[0, whole], nice=False)
    bars = base.mark_rect(stroke="white").encode(
        x=alt.X("from:Q", title="rows (noisy)", scale=across),
        x2="to:Q",
        color=alt.Color("class:N", title="largest class", scale=alt.Scale(domain=drawn.classes)),
        opacity=alt.Opacity("share:Q", title="its share", scale=alt.Scale(domain=[0, 1])),
        tooltip=["asks:N", "class:N", "share:Q"],
    )
    words = base.mark_text(fontSize=10).encode(x=alt.X("middle:Q"), text="written:N")
    height = 40 * (min(max_depth, drawn.tree.depth) + 1)
    return alt.layer(bars, words).properties(width=_WIDTH, height=height)


def grove(trees: Sequence[Drawn], many: int, max_depth: int) -> Chart:
    """Trees below each other, the first of so many."""
    charts = [
        chart(tree, max_depth).properties(title=f"tree {place + 1} of {many}")
        for place, tree in enumerate(trees)
    ]
    return altair().vconcat(*charts)
