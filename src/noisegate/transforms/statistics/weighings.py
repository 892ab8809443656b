"""Where a row is added, and how much of it: a vector of weights over cells, one row at a time.

Scores are whole-number combinations of a row's coordinates, exact in doubles. Whatever is not
linear is looked up in a public table of whole numbers, so that no function of the machine decides.

A weighing states how long its vector can be: the largest weight, their sum, the squared length.
"""

from math import prod
from typing import Any, Final, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from noisegate.errors import Unsupported
from noisegate.exact import EXACT_MAX
from noisegate.frozen import dataclass
from noisegate.sources.source import Whole
from noisegate.transforms.statistics.numbers import Floats, Norms, Numbers, Shape, times

CELLS_MAX: Final = 1 << 20
TABLE_MAX: Final = 1 << 16
ENTRY_MAX: Final = 1 << 20
_SHIFT_MAX: Final = 60


@final
@dataclass(frozen=True, slots=True)
class Scores:
    """Score of cell k: Σ weights[k, j] · u_j, with a last column of constants.

    With ``squares``, the weights go on: first of u, then of u², or, with ``products``, of all
    products of pairs (as in `Products`); the constant is last.
    """

    weights: Numbers
    order: str = "linear"

    def __post_init__(self) -> None:
        if type(self.weights) is not Numbers or len(self.weights.shape) != 2:
            raise Unsupported("The weights are not a table.", fix="Give a row for each cell.")
        known = ("linear", "squares", "products")
        if type(self.order) is not str or self.order not in known:  # a subclass could change it
            raise Unsupported(
                "The scores are of an unknown type.", fix="Use linear, squares or products."
            )

    @property
    def cells(self) -> int:
        """How many scores there are."""
        return self.weights.shape[0]

    def require(self, shape: Shape) -> None:
        """Refuse scores of other columns, or ones that doubles could not hold exactly."""
        if self.weights.shape[1] != self._terms(shape.columns) + 1:
            raise Unsupported(
                "The scores do not match these columns.", fix="Give one weight per column."
            )
        if self.largest(shape) > EXACT_MAX:
            raise Unsupported("Scores could exceed 2**53.", fix="Use coarser weights.")

    def largest(self, shape: Shape) -> int:
        """The largest score, without sign."""
        bounds = [shape.reach] * shape.columns
        bounds += [shape.reach**2] * (self._terms(shape.columns) - shape.columns) + [1]
        rows = self.weights.whole.tolist()
        return int(max(sum(abs(w) * b for w, b in zip(row, bounds, strict=True)) for row in rows))

    def of(self, rows: Floats) -> Floats:
        """The scores, of shape (rows, cells): exact, because no partial sum passes 2**53."""
        weights = self.weights.array
        found = times(rows, weights[:, : rows.shape[1]].T)
        found += weights[:, -1]
        if self.order == "linear":
            return found
        others = weights[:, rows.shape[1] : -1].T
        if self.order == "squares":
            found += times(rows * rows, others)
        else:
            first, second = np.triu_indices(rows.shape[1])
            found += times(rows[:, first] * rows[:, second], others)
        return found

    def _terms(self, columns: int) -> int:
        if self.order == "linear":
            return columns
        return 2 * columns if self.order == "squares" else columns + columns * (columns + 1) // 2

    def to_record(self) -> Any:  # noqa: ANN401 - JSON
        """Equal exactly for equal scores."""
        return [self.order, self.weights.digest()]


@final
@dataclass(frozen=True, slots=True)
class Lookup:
    """Whole numbers by a score: entry ⌊score / 2**shift⌋ + ``middle``, or the nearest one."""

    entries: Numbers
    shift: int
    middle: int = 0

    def __post_init__(self) -> None:
        if type(self.entries) is not Numbers or len(self.entries.shape) != 1:
            raise Unsupported(
                "A look-up table is not a vector of numbers.", fix="Use `Numbers.of`."
            )
        if self.entries.shape[0] > TABLE_MAX or self.entries.largest > ENTRY_MAX:
            raise Unsupported(
                "A look-up table is too large.",
                fix=f"Use up to {TABLE_MAX} entries of at most {ENTRY_MAX}.",
            )
        if type(self.shift) is not int or not 0 <= self.shift <= _SHIFT_MAX:
            raise Unsupported(
                "The step of a look-up table is out of range.", fix=f"Use 0 to {_SHIFT_MAX}."
            )
        if type(self.middle) is not int or not 0 <= self.middle < self.entries.shape[0]:
            raise Unsupported(
                "The middle of a look-up table is not one of its entries.",
                fix="Name one of its entries.",
            )

    @property
    def largest(self) -> int:
        """The largest entry, without sign."""
        return self.entries.largest

    def of(self, scores: Floats) -> Floats:
        """The entries; a power of two divides doubles exactly."""
        places = np.floor(scores * 2.0**-self.shift) + self.middle
        at = np.clip(places, 0, self.entries.shape[0] - 1).astype(np.intp)
        found: Floats = self.entries.array[at]
        return found

    def to_record(self) -> Any:  # noqa: ANN401 - JSON
        """Equal exactly for equal tables."""
        return [self.entries.digest(), self.shift, self.middle]


class _InOneCell:
    """A weighing by which each row counts once, in one cell."""

    __slots__ = ()

    def norms(self, shape: Shape) -> Norms:  # noqa: ARG002
        """Why: one weight is 1, the others are 0."""
        return 1, 1, 1


@final
@dataclass(frozen=True, slots=True)
class Plain(_InOneCell):
    """All rows in one cell."""

    def cells(self, shape: Shape) -> int:  # noqa: ARG002, D102 - see Weighing
        return 1

    def to_record(self) -> Any:  # noqa: ANN401, D102 - JSON
        return ["plain"]


@final
@dataclass(frozen=True, slots=True)
class ByKey(_InOneCell):
    """Each row in the cell of its key."""

    def cells(self, shape: Shape) -> int:  # noqa: D102 - see Weighing
        return require_keys(shape)

    def to_record(self) -> Any:  # noqa: ANN401, D102 - JSON
        return ["by key"]


@final
@dataclass(frozen=True, slots=True)
class Nearest(_InOneCell):
    """Each row in the cell of its highest score; of equal ones, the first.

    The nearest of centres c is the highest of 2 c·u - |c|². With ``keyed``, cells are pairs of
    score and key, the key varying fastest.
    """

    scores: Scores
    keyed: bool = False

    def __post_init__(self) -> None:
        _require_exact((self.scores, Scores), (self.keyed, bool))

    def cells(self, shape: Shape) -> int:  # noqa: D102 - see Weighing
        self.scores.require(shape)
        return self.scores.cells * (require_keys(shape) if self.keyed else 1)

    def to_record(self) -> Any:  # noqa: ANN401, D102 - JSON
        return ["nearest", self.scores.to_record(), self.keyed]


@final
@dataclass(frozen=True, slots=True)
class Leaves:
    """Each row in one leaf of each public tree; with ``keyed``, by leaf and key.

    A tree is a table of nodes (column, threshold, left, right): a row goes left where
    u[column] ≤ threshold. A node with column -1 is a leaf, and its left is the leaf's number.
    With ``apart``, a row is in one tree only, told by a hash of its coordinates, so that several
    trees cost like one.
    """

    trees: tuple[Numbers, ...]
    keyed: bool = False
    apart: bool = False

    def __post_init__(self) -> None:
        if type(self.trees) is not tuple or not self.trees:
            raise Unsupported("There is no tree.", fix="Give a tuple of trees.")
        _require_exact((self.keyed, bool), (self.apart, bool))
        for tree in self.trees:
            _require_tree(tree)

    def cells(self, shape: Shape) -> int:  # noqa: D102 - see Weighing
        if any(int(tree.whole[:, 0].max()) >= shape.columns for tree in self.trees):
            raise Unsupported("A tree refers to another column.", fix="Use the columns' numbers.")
        return sum(self.sizes) * (require_keys(shape) if self.keyed else 1)

    def norms(self, shape: Shape) -> Norms:  # noqa: ARG002
        """Why: one leaf of each tree, or of one tree."""
        many = 1 if self.apart else len(self.trees)
        return 1, many, many

    @property
    def sizes(self) -> tuple[int, ...]:
        """How many leaves each tree has."""
        return tuple(int(np.sum(tree.whole[:, 0] < 0)) for tree in self.trees)

    def of(
        self, rows: Floats, places: NDArray[np.int32], shape: Shape
    ) -> list[tuple[Whole, Whole]]:
        """For each tree, the rows that are in it, and their cells."""
        keys = shape.keys if self.keyed else 1
        chosen = _hashed(rows) % len(self.trees) if self.apart else None
        found, start = [], 0
        for number, (tree, size) in enumerate(zip(self.trees, self.sizes, strict=True)):
            at = np.arange(len(rows)) if chosen is None else np.flatnonzero(chosen == number)
            leaf = _leaf(tree.whole, rows[at]) + start
            found.append((at, leaf * keys + places[at] if self.keyed else leaf))
            start += size
        return found

    def to_record(self) -> Any:  # noqa: ANN401, D102 - JSON
        return ["leaves", [tree.digest() for tree in self.trees], self.keyed, self.apart]


@final
@dataclass(frozen=True, slots=True)
class Soft:
    """Each row in parts: cell k gets ⌊unit · T(best - score k) / Σ T⌋, together at most ``unit``.

    With ``less``, ``unit`` is taken off the cell of the row's key: the slope of a softmax.
    """

    scores: Scores
    table: Lookup
    unit: int
    less: bool = False

    def __post_init__(self) -> None:
        _require_exact((self.scores, Scores), (self.table, Lookup), (self.less, bool))
        entries = self.table.entries.whole
        if entries.min() < 0 or entries[self.table.middle] < 1 or self.table.middle:
            raise Unsupported("The shares are not positive.", fix="Let the table begin above 0.")
        if type(self.unit) is not int or not 1 <= self.unit <= ENTRY_MAX:
            raise Unsupported("The unit is out of range.", fix=f"Use 1 to {ENTRY_MAX}.")

    def cells(self, shape: Shape) -> int:  # noqa: D102 - see Weighing
        self.scores.require(shape)
        if 2 * self.scores.largest(shape) > EXACT_MAX:
            raise Unsupported("Scores could exceed 2**53.", fix="Use coarser weights.")
        if self.less and require_keys(shape) != self.scores.cells:
            raise Unsupported("There must be one score per key.", fix="Give one each.")
        return self.scores.cells

    def norms(self, shape: Shape) -> Norms:  # noqa: ARG002
        """Why: parts are not negative and together at most the unit.

        Less the unit at the key's cell: that one lies in [-unit, 0] and the others are together at
        most the unit, so sizes add up to 2 units and squares to 2 units².
        """
        many = 2 if self.less else 1
        return self.unit, many * self.unit, many * self.unit**2

    def of(self, rows: Floats, places: NDArray[np.int32], shape: Shape) -> Floats:  # noqa: ARG002
        """The parts.

        ⌊a / b⌋ of whole numbers below 2**53 is exact in doubles: a quotient that is not whole is at
        least 1 / b away from any whole number, and rounding moves it by less.
        """
        scores = self.scores.of(rows)
        raw = self.table.of(scores.max(axis=1, keepdims=True) - scores)
        parts: Floats = np.floor(self.unit * raw / raw.sum(axis=1, keepdims=True))
        if self.less:
            parts[np.arange(len(rows)), places] -= self.unit
        return parts

    def to_record(self) -> Any:  # noqa: ANN401, D102 - JSON
        return ["soft", self.scores.to_record(), self.table.to_record(), self.unit, self.less]


@final
@dataclass(frozen=True, slots=True)
class Slopes:
    """Cell k gets T(score k) of each row; ``signed``, it gets s · T(s · score k).

    s is 1 where the row's key is k, else -1; with one cell, where it is the last key. With
    ``even`` the sign stays inside: T(s · score k), such as for curvatures and counts of mistakes.
    """

    scores: Scores
    table: Lookup
    signed: bool = True
    even: bool = False

    def __post_init__(self) -> None:
        _require_exact((self.scores, Scores), (self.table, Lookup))
        _require_exact((self.signed, bool), (self.even, bool))

    def cells(self, shape: Shape) -> int:  # noqa: D102 - see Weighing
        self.scores.require(shape)
        if self.signed and require_keys(shape) != self.scores.cells and self.scores.cells != 1:
            raise Unsupported(
                "There must be one score, or one per key.", fix="Give one, or one each."
            )
        return self.scores.cells

    def norms(self, shape: Shape) -> Norms:  # noqa: ARG002
        """Why: each cell gets an entry of the table."""
        entry, cells = self.table.largest, self.scores.cells
        return entry, cells * entry, cells * entry**2

    def of(self, rows: Floats, places: NDArray[np.int32], shape: Shape) -> Floats:  # noqa: D102 - see Weighing
        scores = self.scores.of(rows)
        if not self.signed:
            return self.table.of(scores)
        own = np.arange(self.scores.cells) if self.scores.cells > 1 else np.array([shape.keys - 1])
        signs = np.where(places[:, None] == own, 1.0, -1.0)
        found = self.table.of(signs * scores)
        return found if self.even else signs * found

    def to_record(self) -> Any:  # noqa: ANN401, D102 - JSON
        how = [self.signed, self.even]
        return ["slopes", self.scores.to_record(), self.table.to_record(), *how]


# Each says how many `cells` there are, how long a row's weights can be (`norms`), and has a record
# that is equal exactly for equal weighings.
Weighing: TypeAlias = Plain | ByKey | Nearest | Leaves | Soft | Slopes
WEIGHINGS: Final[frozenset[type]] = frozenset({Plain, ByKey, Nearest, Leaves, Soft, Slopes})


def require_keys(shape: Shape) -> int:
    """How many keys there are, if any."""
    if not shape.keys:
        raise Unsupported("The rows have no key.", fix="Name the column with the class.")
    return shape.keys


def _require_exact(*parts: tuple[object, type]) -> None:
    """Refuse anything but the types of this room: a subclass could state wrong norms."""
    if any(type(part) is not kind for part, kind in parts):
        raise Unsupported(
            "A weighting contains a value of an unknown type.", fix="Use the types of this package."
        )


def _require_tree(tree: Numbers) -> None:
    """Nodes in order: children come after their parents, so that every walk ends at a leaf."""
    if type(tree) is not Numbers or len(tree.shape) != 2 or tree.shape[1] != 4:
        raise Unsupported(
            "A tree is not a table of nodes.", fix="Give (column, threshold, left, right)."
        )
    if prod(tree.shape) > CELLS_MAX:
        raise Unsupported("A tree is too large.", fix="Use fewer leaves.")
    nodes = tree.whole
    inner = np.flatnonzero(nodes[:, 0] >= 0)
    leaves = np.flatnonzero(nodes[:, 0] < 0)
    ahead = np.all(nodes[inner, 2:] > inner[:, None]) and np.all(nodes[inner, 2:] < len(nodes))
    if not ahead or sorted(nodes[leaves, 2].tolist()) != list(range(len(leaves))):
        raise Unsupported(
            "A tree has a cycle.", fix="Number children after parents, leaves from 0."
        )


def _leaf(nodes: Whole, rows: Floats) -> Whole:
    """The leaf of each row."""
    at = np.zeros(len(rows), np.int64)
    every = np.arange(len(rows))
    while True:
        column = nodes[at, 0]
        inner = column >= 0
        if not inner.any():
            leaves: Whole = nodes[at, 2]
            return leaves
        left = rows[every, np.maximum(column, 0)] <= nodes[at, 1]
        at = np.where(inner, np.where(left, nodes[at, 2], nodes[at, 3]), at)


def _hashed(rows: Floats) -> Whole:
    """A number from each row's coordinates alone, well mixed."""
    found = np.full(len(rows), 0x9E3779B97F4A7C15, np.uint64)
    for column in rows.T:
        found ^= column.astype(np.int64).view(np.uint64)
        found *= np.uint64(0xFF51AFD7ED558CCD)
        found ^= found >> np.uint64(32)
    return (found >> np.uint64(1)).astype(np.int64)
