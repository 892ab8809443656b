"""What is added up for a row: 1, its coordinates, their sides, squares or products, or their bins.

A feature states how long it can be for one row, in three norms: the largest number (what noise for
a cube looks at), the sum of sizes, and the squared Euclidean length. Each is computed from the
public shape of rows, never stated by a caller.
"""

from math import isqrt
from typing import Any, Final, TypeAlias, final

import numpy as np

from noisegate.errors import Unsupported
from noisegate.frozen import dataclass
from noisegate.transforms.statistics.numbers import Floats, Norms, Shape

Columns: TypeAlias = tuple[int, ...] | None  # which coordinates; None: all
_WEIGHT_MAX: Final = 100
_EDGES_MAX: Final = 1 << 12


@final
@dataclass(frozen=True, slots=True)
class One:
    """The number 1: a count."""

    def width(self, shape: Shape) -> int:  # noqa: ARG002, D102 - see Feature
        return 1

    def norms(self, shape: Shape) -> Norms:  # noqa: ARG002, D102 - see Feature
        return 1, 1, 1

    def of(self, rows: Floats) -> Floats:  # noqa: D102 - see Feature
        return np.ones((len(rows), 1))

    def to_record(self) -> Any:  # noqa: ANN401, D102 - JSON
        return ["one"]


@dataclass(frozen=True, slots=True)
class _OfColumns:
    """One number for each coordinate, or for those of some columns."""

    columns: Columns = None

    def __post_init__(self) -> None:
        _require_columns(self.columns)

    def width(self, shape: Shape) -> int:
        return shape.only(self.columns).columns


@final
@dataclass(frozen=True, slots=True)
class Linear(_OfColumns):
    """The coordinates themselves, or those of some columns."""

    def norms(self, shape: Shape) -> Norms:
        """Why: by Cauchy and Schwarz Σ|u| ≤ √columns · |u|; the sum is whole, so rounded down."""
        seen = shape.only(self.columns)
        return seen.longest, isqrt(seen.columns * seen.squared), seen.squared

    def of(self, rows: Floats) -> Floats:  # noqa: D102 - see Feature
        return _only(rows, self.columns)

    def to_record(self) -> Any:  # noqa: ANN401, D102 - JSON
        return ["linear", *_listed(self.columns)]


@final
@dataclass(frozen=True, slots=True)
class Sides(_OfColumns):
    """1, and for each coordinate, or those of some columns, 1 above its bounds' middle, else -1."""

    def width(self, shape: Shape) -> int:  # noqa: D102 - see Feature
        return 1 + shape.only(self.columns).columns

    def norms(self, shape: Shape) -> Norms:
        """Why: each number is 1 or -1, wherever the row lies."""
        many = self.width(shape)
        return 1, many, many

    def of(self, rows: Floats) -> Floats:  # noqa: D102 - see Feature
        sides = np.where(_only(rows, self.columns) > 0, 1.0, -1.0)
        return np.hstack([np.ones((len(rows), 1)), sides])

    def to_record(self) -> Any:  # noqa: ANN401, D102 - JSON
        return ["sides", *_listed(self.columns)]


@final
@dataclass(frozen=True, slots=True)
class Squares(_OfColumns):
    """The square of each coordinate, or of those of some columns."""

    def norms(self, shape: Shape) -> Norms:
        """Why: Σu² is the squared length; Σu⁴ ≤ max u² · Σu²."""
        seen = shape.only(self.columns)
        longest = seen.longest**2
        return longest, seen.squared, longest * seen.squared

    def of(self, rows: Floats) -> Floats:  # noqa: D102 - see Feature
        held = _only(rows, self.columns)
        return held * held

    def to_record(self) -> Any:  # noqa: ANN401, D102 - JSON
        return ["squares", *_listed(self.columns)]


@final
@dataclass(frozen=True, slots=True)
class Products:
    """The products of all pairs of coordinates, first ≤ second, row by row of the triangle.

    ``weights`` multiply the squares and the other products: with (5, 7) the Euclidean length is
    that of the squares alone, so the others have half the noise variance at no cost [DTTZ14].
    ``columns``: of the coordinates of some columns only.
    """

    weights: tuple[int, int] = (1, 1)
    columns: Columns = None

    def __post_init__(self) -> None:
        listed = type(self.weights) is tuple and len(self.weights) == 2
        if not listed or any(type(n) is not int or not 1 <= n <= _WEIGHT_MAX for n in self.weights):
            raise Unsupported(
                "weights is not a pair of whole numbers.", fix="Use (1, 1) or (5, 7)."
            )
        _require_columns(self.columns)

    def width(self, shape: Shape) -> int:  # noqa: D102 - see Feature
        many = shape.only(self.columns).columns
        return many * (many + 1) // 2

    def norms(self, shape: Shape) -> Norms:
        """Why: let a and b be the weights, q = Σu², and 2 Σ_{i<j} |u_i u_j| = (Σ|u|)² - q.

        Largest: max(a, b) · max u². Sum: a q + b ((Σ|u|)² - q) / 2 ≤ a q + b (columns - 1) q / 2.
        Squared: a² Σu⁴ + b² (q² - Σu⁴) / 2, which is linear in Σu⁴ between q² / columns (the least,
        by Cauchy and Schwarz) and max u² · q; so the larger of its two ends. Rounding: up.
        """
        seen = shape.only(self.columns)
        (a, b), q, columns = self.weights, seen.squared, seen.columns
        longest = seen.longest**2
        fourth = (q * q // columns, min(q * q, longest * q))
        ends = [a * a * f + b * b * (q * q - f) // 2 + 1 for f in fourth]
        return max(a, b) * longest, a * q + (b * (columns - 1) * q + 1) // 2, max(ends)

    def of(self, rows: Floats) -> Floats:  # noqa: D102 - see Feature
        held = self.only(rows)
        first, second = np.triu_indices(held.shape[1])
        return held[:, first] * held[:, second] * self.factors(held.shape[1])

    def only(self, rows: Floats) -> Floats:
        """The coordinates that are multiplied."""
        return _only(rows, self.columns)

    def factors(self, columns: int) -> Floats:
        """The weight of each number."""
        first, second = np.triu_indices(columns)
        return np.where(first == second, *map(float, self.weights))

    def to_record(self) -> Any:  # noqa: ANN401, D102 - JSON
        return ["products", *self.weights, *_listed(self.columns)]


@final
@dataclass(frozen=True, slots=True)
class Bins:
    """For each coordinate a 1 at its bin: bin i holds edges[i-1] < u ≤ edges[i]."""

    edges: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        listed = type(self.edges) is tuple and all(type(each) is tuple for each in self.edges)
        if not listed or any(type(n) is not int for each in self.edges for n in each):
            raise Unsupported("The edges are not whole numbers.", fix="Give one tuple per column.")
        if any(list(each) != sorted(set(each)) for each in self.edges):
            raise Unsupported(
                "The edges are not in ascending order.", fix="List each once, in order."
            )
        if sum(map(len, self.edges)) > _EDGES_MAX:
            raise Unsupported("There are too many edges.", fix=f"Use at most {_EDGES_MAX}.")

    def width(self, shape: Shape) -> int:  # noqa: D102 - see Feature
        if len(self.edges) != shape.columns:
            raise Unsupported("There must be edges for each column.", fix="Give () for no split.")
        return sum(len(each) + 1 for each in self.edges)

    def norms(self, shape: Shape) -> Norms:  # noqa: D102 - see Feature; one bin of each column
        return 1, shape.columns, shape.columns

    def of(self, rows: Floats) -> Floats:  # noqa: D102 - see Feature
        found = []
        for column, edges in zip(rows.T, self.edges, strict=True):
            places = np.searchsorted(np.array(edges, np.float64), column, side="left")
            found.append(places[:, None] == np.arange(len(edges) + 1))
        return np.hstack(found).astype(np.float64)

    def to_record(self) -> Any:  # noqa: ANN401, D102 - JSON
        return ["bins", *map(list, self.edges)]


def _require_columns(columns: Columns) -> None:
    """Some coordinates, each once, in order."""
    if columns is None:
        return
    if type(columns) is not tuple or not columns or any(type(n) is not int for n in columns):
        raise Unsupported("The columns are not whole numbers.", fix="Give a tuple of numbers.")
    if list(columns) != sorted(set(columns)) or columns[0] < 0:
        raise Unsupported(
            "A column is named twice, or there is none.", fix="Number them from 0, rising."
        )


def _only(rows: Floats, columns: Columns) -> Floats:
    if columns is None:
        return rows
    if columns[-1] - columns[0] == len(columns) - 1:  # side by side: nothing is copied
        return rows[:, columns[0] : columns[-1] + 1]
    return np.ascontiguousarray(rows[:, list(columns)])


def _listed(columns: Columns) -> list[list[int]]:
    return [] if columns is None else [list(columns)]


# Each says how many numbers it is (`width`), how long they can be for one row (`norms`), which they
# are (`of`), and has a record that is equal exactly for equal features.
Feature: TypeAlias = One | Linear | Sides | Squares | Products | Bins
FEATURES: Final[frozenset[type]] = frozenset({One, Linear, Sides, Squares, Products, Bins})
