"""Sums over rows of weights times features: one question of a learner, with its sensitivity.

>>> from noisegate.transforms.statistics.features import Linear
>>> rows = Batch(np.array([[2, 1], [-2, 0]], np.int32), np.array([0, 1], np.int32))
>>> shape = Shape(columns=2, reach=4, keys=2)
>>> question = Statistic(ByKey(), (One(), Linear()))
>>> [block.tolist() for block in question.total([rows], shape)]
[[[1], [1]], [[2, 1], [-2, 0]]]
>>> [(block.width, block.largest, block.l1, block.l2_squared) for block in question.blocks(shape)]
[(1, 1, 1, 1), (2, 4, 8, 32)]
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final, final

import numpy as np

from noisegate.algebra.tally import Rows
from noisegate.errors import Unsupported
from noisegate.exact import EXACT_MAX
from noisegate.frozen import dataclass
from noisegate.sources.adding import halves, joined
from noisegate.sources.source import Batch, Whole
from noisegate.transforms.statistics.features import FEATURES, Feature, One, Products
from noisegate.transforms.statistics.numbers import (
    Floats,
    Shape,
    across,
    clip,
)
from noisegate.transforms.statistics.weighings import (
    CELLS_MAX,
    WEIGHINGS,
    ByKey,
    Leaves,
    Nearest,
    Plain,
    Slopes,
    Soft,
    Weighing,
)

__all__ = ["Batch", "Block", "Statistic"]

_ROWS_MIN: Final = 1 << 6
_ROWS_MAX: Final = 1 << 15
_ROWS_NEAR: Final = 1 << 12
_NEAR: Final = 1 << 16  # numbers that stay near the processor
_SIZE_MAX: Final = 1 << 22
_FEW: Final = 12  # cells up to which a matrix of weights is quicker than counting
_REACH_MAX: Final = 1 << 20
_NORM_MAX: Final = 1 << 26


@final
@dataclass(frozen=True, slots=True)
class Block:
    """The numbers of one feature, cell by cell, and how far a row of weight 1 moves them."""

    cells: int
    width: int
    largest: int  # Σ over cells of the largest change in the cell
    l1: int
    l2_squared: int

    @property
    def size(self) -> int:
        """How many numbers there are."""
        return self.cells * self.width


@final
@dataclass(frozen=True, slots=True)
class Statistic:
    """For each feature φ: Σ over rows of p ⊗ φ, p being the row's weights over cells.

    ``norm``: the Euclidean norm to which the first ``clipped`` coordinates (all but the last, if
    rows end with a target) of each row are shortened first, in units of the grid.
    """

    weighing: Weighing
    features: tuple[Feature, ...]
    norm: int | None = None
    clipped: int = 0

    def __post_init__(self) -> None:
        if type(self.weighing) not in WEIGHINGS or type(self.features) is not tuple:
            raise Unsupported(
                "The statistic is of an unknown type.", fix="Use the weightings of this package."
            )
        if not self.features or {type(each) for each in self.features} - FEATURES:
            raise Unsupported(
                "A feature is of an unknown type.", fix="Use the features of this package."
            )
        if self.norm is None:
            return
        if type(self.norm) is not int or not 1 <= self.norm <= _NORM_MAX:
            raise Unsupported("The norm is not usable.", fix=f"Use 1 to {_NORM_MAX}.")
        if type(self.clipped) is not int or self.clipped < 1:
            raise Unsupported("No coordinate is clipped.", fix="Say how many coordinates are.")

    def shape_of(self, shape: Shape) -> Shape:
        """The shape of rows once they are shortened; refuses what cannot be exact."""
        if not 1 <= shape.reach <= _REACH_MAX or shape.columns * shape.reach**2 > EXACT_MAX:
            raise Unsupported("The grid of the rows is too fine.", fix="Use fewer steps.")
        if self.norm is None:
            return Shape(shape.columns, shape.reach, shape.keys)
        if self.clipped > shape.columns:
            raise Unsupported(
                "There are fewer coordinates than that.", fix="Clip those that exist."
            )
        return Shape(shape.columns, shape.reach, shape.keys, self.norm, self.clipped)

    def blocks(self, shape: Shape) -> tuple[Block, ...]:
        """For each feature its numbers and how far one row of weight 1 moves them.

        Claim: in L1, |p|₁ |φ|₁; squared in L2, |p|₂² |φ|₂²; and the sum over cells of the largest
            change in the cell is at most |p|₁ max|φ|.
        Why: the row adds p_k φ_j to number j of cell k, and norms of p ⊗ φ are products of norms.
        Rounding: none; every number is whole, and bounds are rounded up where they are not.
        """
        seen = self.shape_of(shape)
        cells = self.weighing.cells(seen)
        _, p1, p2 = self.weighing.norms(seen)
        found = []
        for feature in self.features:
            longest, l1, squared = feature.norms(seen)
            width = feature.width(seen)
            found.append(Block(cells, width, p1 * longest, p1 * l1, p2 * squared))
        if cells > CELLS_MAX or sum(block.size for block in found) > _SIZE_MAX:
            raise Unsupported("There would be too many numbers.", fix="Use fewer cells.")
        return tuple(found)

    def total(self, batches: Iterable[Batch], shape: Shape) -> list[Whole]:
        """The exact sums, of shape (cells, width) each, clamped to ±2**60.

        Every product and every partial sum inside a batch is a whole number below 2**53, so doubles
        do not round; batches are added as integers, in two halves that do not wrap.
        """
        seen, blocks = self.shape_of(shape), self.blocks(shape)
        size = self.rows_at_once(shape)
        low, high = ([np.zeros((b.cells, b.width), np.int64) for b in blocks] for _ in range(2))
        for batch in _cut(batches, size):
            rows = batch.coordinates.astype(np.float64)
            if self.norm is not None:
                rows = clip(rows, self.norm, self.clipped)
            for place, part in enumerate(self._added(batch, rows, seen, blocks[0].cells)):
                few, many = halves(part.astype(np.int64))
                low[place] += few
                high[place] += many
        return [joined(a, b) for a, b in zip(low, high, strict=True)]

    def rows_at_once(self, shape: Shape) -> int:
        """How many rows doubles add exactly, and that stay near the processor; public."""
        seen = self.shape_of(shape)
        weight = self.weighing.norms(seen)[0]
        longest = max(feature.norms(seen)[0] for feature in self.features)
        rows = EXACT_MAX // (weight * longest * Rows.WHOLE)
        if rows < _ROWS_MIN:
            raise Unsupported(
                "The numbers are too fine to be added exactly.", fix="Use fewer steps."
            )
        scored = isinstance(self.weighing, Nearest | Soft | Slopes)
        wide = self.weighing.cells(seen) if scored else 1
        return int(min(rows, _ROWS_MAX, max(_NEAR // wide, _ROWS_NEAR)))

    def _added(self, batch: Batch, rows: Floats, shape: Shape, cells: int) -> list[Floats]:
        """What some rows add to each block."""
        weighing, weights = self.weighing, batch.weights
        if isinstance(weighing, Plain):
            return [_together(rows, weights, feature) for feature in self.features]
        if isinstance(weighing, ByKey | Nearest | Leaves):
            parts = self._placed(batch, rows, shape)
            return [_gathered(rows, weights, parts, cells, each) for each in self.features]
        held = weighing.of(rows, batch.places, shape)
        if weights is not None:
            held = held * weights[:, None]
        return [_spread(rows, held, feature) for feature in self.features]

    def _placed(self, batch: Batch, rows: Floats, shape: Shape) -> list[tuple[Whole, Whole]]:
        """Rows and the cells they are in: all rows once, or once for each tree."""
        weighing = self.weighing
        if isinstance(weighing, Leaves):
            return weighing.of(rows, batch.places, shape)
        every = np.arange(len(rows))
        if isinstance(weighing, ByKey):
            return [(every, batch.places.astype(np.int64))]
        assert isinstance(weighing, Nearest)  # noqa: S101 - the others are above
        best = weighing.scores.of(rows).argmax(axis=1)
        return [(every, best * shape.keys + batch.places if weighing.keyed else best)]

    def to_record(self) -> dict[str, Any]:
        """Equal exactly for equal statistics."""
        return {
            "weighing": self.weighing.to_record(),
            "features": [feature.to_record() for feature in self.features],
            "norm": self.norm,
            "clipped": self.clipped,
        }


def _cut(batches: Iterable[Batch], size: int) -> Iterator[Batch]:
    for batch in batches:
        for start in range(0, len(batch), size):
            part = slice(start, start + size)
            weights = None if batch.weights is None else batch.weights[part]
            yield Batch(batch.coordinates[part], batch.places[part], weights)


def _together(rows: Floats, weights: Any, feature: Feature) -> Floats:  # noqa: ANN401 - int32 or None
    """The sum of a feature over all rows."""
    if isinstance(feature, Products):
        held = feature.only(rows)
        weighed = held if weights is None else held * weights[:, None]
        return _triangle(across(weighed, held), feature)[None]
    values = feature.of(rows)
    if weights is not None:
        values = values * weights[:, None]
    found: Floats = values.sum(axis=0)[None]
    return found


def _gathered(
    rows: Floats,
    weights: Any,  # noqa: ANN401 - int32 or None
    parts: list[tuple[Whole, Whole]],
    cells: int,
    feature: Feature,
) -> Floats:
    """The sums of a feature over the rows of each cell."""
    found = None
    for at, places in parts:
        own = None if weights is None else weights[at]
        held = rows if len(at) == len(rows) else rows[at]
        if isinstance(feature, One):
            counted = np.bincount(places, own, cells).astype(np.float64)[:, None]
        elif isinstance(feature, Products):
            counted = np.vstack([
                _together(held[mine], None if own is None else own[mine], feature)
                for mine in (np.flatnonzero(places == cell) for cell in range(cells))
            ])  # fmt: skip
        else:
            values = feature.of(held) if own is None else feature.of(held) * own[:, None]
            counted = _by_cell(values, places, cells)
        found = counted if found is None else found + counted
    assert found is not None  # noqa: S101 - there is at least one tree
    return found


def _by_cell(values: Floats, places: Whole, cells: int) -> Floats:
    """Sums of rows by cell."""
    if cells <= _FEW:
        return across((places[:, None] == np.arange(cells)).astype(np.float64), values)
    width = values.shape[1]
    at = places[:, None] * width + np.arange(width)
    found = np.bincount(at.ravel(), values.ravel(), cells * width)
    return found.astype(np.float64).reshape(cells, width)


def _spread(rows: Floats, held: Floats, feature: Feature) -> Floats:
    """The sums of a feature, each row counting in every cell by its weight there."""
    if isinstance(feature, One):
        counted: Floats = held.sum(axis=0)[:, None]
        return counted
    if isinstance(feature, Products):
        seen = feature.only(rows)
        return np.vstack([
            _triangle(across(seen * own[:, None], seen), feature)[None] for own in held.T
        ])  # fmt: skip
    return across(held, feature.of(rows))


def _triangle(square: Floats, feature: Products) -> Floats:
    """The upper triangle of a matrix, weighed."""
    return square[np.triu_indices(len(square))] * feature.factors(len(square))
