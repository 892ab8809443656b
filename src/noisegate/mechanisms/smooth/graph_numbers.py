"""Numbers of a graph with noise: some that one edge hardly moves, some by what one can do here.

>>> ring = np.array([1, 6, 11, 12])  # the edges 0-1, 1-2, 2-3, 3-0 among 4 vertices, as cells
>>> asked = GraphNumber(statistic="min-cut", vertices=4, noise=Geometric(scale="1/50"))
>>> asked.sample(ring).tolist()
[2]
"""

from abc import abstractmethod
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Final, final

import numpy as np

from noisegate.algebra.tally import Cells
from noisegate.errors import SpecError, Unsupported
from noisegate.frozen import dataclass
from noisegate.mechanisms.additive.gaussian import DiscreteGaussian
from noisegate.mechanisms.additive.geometric import Geometric
from noisegate.mechanisms.base import (
    INPUT_MAX,
    Mechanism,
    OfCells,
    Takes,
    clamped,
    no_rule,
    require_whole,
    whole_count,
)
from noisegate.mechanisms.smooth.graph_shapes import (
    Edges,
    Reaches,
    at_most,
    edges_of,
    flow_of,
    min_cut,
    projected,
    star_reaches,
    tree_reaches,
    triangle_reaches,
    truncated_triangle_reaches,
    weighted_cut,
    without_bipartite,
)
from noisegate.mechanisms.smooth.smooth import LocalNoise, decays_of, require_local
from noisegate.noise.bits import SYSTEM, Bits
from noisegate.noise.chunks import Int64Array, Places
from noisegate.privacy.distance import L1, L2
from noisegate.privacy.event import Event
from noisegate.transforms.query import Query

_CAPPED: Final = (
    "capped-edges", "degree-distribution", "capped-degree-distribution", "capped-min-cut",
)  # fmt: skip
LEVELS_MAX: Final = 1 << 20  # weights of an edge
# How many vertices there may be, for what takes how long.
VERTICES_MAX: Final[Mapping[str, int]] = MappingProxyType(
    {
        "edges": 1 << 20,
        "degrees": 1 << 20,
        "capped-edges": 1 << 11,
        "degree-distribution": 1 << 20,
        "capped-degree-distribution": 1 << 16,
        "min-cut": 1 << 10,
        "capped-min-cut": 1 << 10,
        "bipartite-distance": 22,
        "triangles": 1 << 12,
        "two-stars": 1 << 13,
        "truncated-triangles": 1 << 12,
        "spanning-tree": 1 << 8,
    }
)


class OfGraph(OfCells[int]):
    """Something about a graph whose edges are cells (source, target, weight)."""

    __slots__ = ()
    takes: ClassVar[Takes] = Takes.ROWS
    statistic: str
    vertices: int
    noise: Mechanism[Any]
    levels: int = 1

    def sample(self, exact: Int64Array, *, bits: Bits = SYSTEM) -> Int64Array:
        """One draw for the numbers of all cells that hold rows."""
        return self.noise.sample(self.handed(exact), bits=bits)

    def require(self, query: Query, place: int) -> None:  # noqa: ARG002 - there is one
        """Cells of two vertices, and perhaps a weight."""
        if not isinstance(query.tally, Cells):
            raise no_rule(query)
        if self.shape != tuple(axis.size for axis in query.tally.by):
            raise Unsupported("The graph has other vertices.", fix="Use the sizes of the axes.")

    def summary(
        self, cells: Places, counts: Int64Array, *, bits: Bits = SYSTEM
    ) -> tuple[None, Int64Array]:
        """The numbers of the graph; how often an edge is there does not matter."""
        del counts
        return None, self.sample(cells.astype(np.int64), bits=bits)[None]

    def handed(self, exact: Int64Array) -> Int64Array:
        """What the noise is given. Exact: never leaves the door."""
        return self.of(edges_of(clamped(exact).ravel(), self.vertices, self.levels))

    @abstractmethod
    def of(self, edges: Edges) -> Int64Array:
        """The same for edges."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes of the axes that it reads."""
        sides = self.vertices, self.vertices
        return sides if self.levels == 1 else (*sides, self.levels)

    def _require_vertices(self, known: Mapping[str, object]) -> None:
        if type(self.statistic) is not str or self.statistic not in known:
            raise SpecError("There is no such graph statistic.", fix=f"Use {', '.join(known)}.")
        require_whole(self, "vertices", least=3, most=VERTICES_MAX[self.statistic])


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class GraphNumber(OfGraph):
    """Numbers of a graph with geometric or discrete Gaussian noise.

    ``statistic`` is "edges", "degrees" (of all vertices, in their order of size), "min-cut",
    "bipartite-distance", or "degree-distribution": how many vertices have at most 0, 1, …,
    ``cap`` - 1 edges. All edges of a vertex move those that are capped by a bounded amount:
    "capped-edges", twice the number of edges, of which no vertex counts more than ``cap``;
    "capped-degree-distribution", the same of a graph with at most ``cap`` edges at each vertex;
    "capped-min-cut", the least cut up to ``cap``.
    """

    name: ClassVar[str] = "graph-number/1"
    statistic: str
    vertices: int
    noise: Geometric | DiscreteGaussian
    cap: int = 0

    def __post_init__(self) -> None:
        self._require_vertices(_NUMBERS)
        if type(self.noise) not in (Geometric, DiscreteGaussian):
            raise SpecError("This noise does not apply to a single number.", fix="Use Geometric.")
        is_capped = self.statistic in _CAPPED
        require_whole(self, "cap", least=int(is_capped), most=self.vertices if is_capped else 0)

    def event(self, rows_per_unit: int, /) -> Event:
        """What one use is, where a unit has at most ``rows_per_unit`` rows.

        Claim: that of the noise at `moved` (rows, …). Adjacency: add/remove; for those that are
            "capped-" also any change of the edges of one vertex, as one row.
        Why: a row changes one edge at most, and several rows several; see `moved`. Rounding: none.
        """
        l1, l2 = moved(self.statistic, rows_per_unit, cap=self.cap)
        return self.noise.event(l1) if isinstance(self.noise, Geometric) else self.noise.event(l2)

    def of(self, edges: Edges) -> Int64Array:
        """The numbers."""
        return _NUMBERS[self.statistic](edges, self)


def moved(statistic: str, rows_per_unit: int, *, cap: int = 0) -> tuple[L1, L2]:
    """How far the numbers of a `GraphNumber` move when so many rows come or go.

    Claim: for each row by 1; degrees by 1 in two places, and their distribution by 2 in all;
        "capped-edges" by 2 · cap, "capped-degree-distribution" by 3 · cap in all, "capped-min-cut"
        by cap.
    Why: two vertices lie on an edge, and sorting brings no two lists further apart, in any norm;
        a number from 0 to cap moves by no more than that; for the others see `graph_shapes`. L2 is
        at most L1. Rows add up by the triangle inequality.
    """
    rows = whole_count(rows_per_unit, name="rows_per_unit")
    known = {"degree-distribution": 2, "capped-edges": 2 * cap, "capped-min-cut": cap}
    each = {"degrees": 2, "capped-degree-distribution": 3 * cap, **known}.get(statistic, 1)
    squared = 2 if statistic == "degrees" else each * each
    return L1(rows * each), L2(squared=rows * rows * squared)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class WeightedCut(OfGraph):
    """The least weight whose loss parts a graph, with geometric or discrete Gaussian noise.

    An edge of level l weighs ``base`` + l whole steps, l from 0 to ``levels`` - 1.
    """

    name: ClassVar[str] = "weighted-cut/1"
    statistic: ClassVar[str] = "min-cut"  # type: ignore[misc]  # there is one
    vertices: int
    levels: int
    base: int
    noise: Geometric | DiscreteGaussian

    def __post_init__(self) -> None:
        self._require_vertices(_NUMBERS)
        require_whole(self, "levels", least=2, most=LEVELS_MAX)
        require_whole(self, "base", least=0, most=LEVELS_MAX)
        if type(self.noise) not in (Geometric, DiscreteGaussian):
            raise SpecError("This noise does not apply to a single number.", fix="Use Geometric.")

    @property
    def largest(self) -> int:
        """The largest weight of an edge."""
        return self.base + self.levels - 1

    def event(self, rows_per_unit: int, /) -> Event:
        """What one use is, where a unit has at most ``rows_per_unit`` rows.

        Claim: that of the noise at rows · `largest`. Adjacency: add/remove. Why: `weighted_cut`;
            rows add up by the triangle inequality. Rounding: none.
        """
        reach = whole_count(rows_per_unit, name="rows_per_unit") * self.largest
        noise = self.noise
        return noise.event(L1(reach)) if isinstance(noise, Geometric) else noise.event(
            L2(squared=reach * reach)
        )  # fmt: skip

    def of(self, edges: Edges) -> Int64Array:
        """The weight of the least cut."""
        return _whole(weighted_cut(edges, self.vertices, self.base))


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class LocalGraph(OfGraph):
    """A number of a graph with noise by what a step can do here.

    ``statistic`` is "triangles" or "two-stars" (pairs of edges that share a vertex), where a step
    is an edge; "spanning-tree", the weight of the lightest tree that joins all, where a step is
    another weight of one pair and a missing edge weighs ``levels`` - 1; or "truncated-triangles",
    among vertices of a degree up to ``cap``, where a step is all edges of one vertex.
    """

    name: ClassVar[str] = "local-graph/1"
    statistic: str
    vertices: int
    noise: LocalNoise
    levels: int = 1
    cap: int = 0

    def __post_init__(self) -> None:
        self._require_vertices(_LOCAL)
        require_local(self.noise)
        is_tree, is_cut = self.statistic == "spanning-tree", self.statistic.startswith("truncated")
        require_whole(self, "levels", least=1 + is_tree, most=LEVELS_MAX if is_tree else 1)
        require_whole(self, "cap", least=2 * is_cut, most=self.vertices if is_cut else 0)

    def require(self, query: Query, place: int) -> None:
        """The same, with noise by reaches."""
        OfGraph.require(self, query, place)
        require_local(self.noise)

    def event(self, rows_per_unit: int, /) -> Event:
        """What one use is, where a unit has at most ``rows_per_unit`` rows.

        Claim: that of the noise, a row being one step at most. Adjacency: add/remove; for
            "truncated-triangles" also any change of the edges of one vertex, as one row.
        Why: `graph_shapes`, for each number. Rounding: none.
        """
        return self.noise.event(rows_per_unit)

    def of(self, edges: Edges) -> Int64Array:
        """The number, then its reaches."""
        value, reaches = _LOCAL[self.statistic](edges, self)
        return np.array([value, *reaches])


def largest(statistic: str, vertices: int, *, levels: int = 1, cap: int = 0) -> int:
    """The largest that the number of a `LocalGraph` can be."""
    n, degree = vertices, min(cap, vertices - 1)
    return {
        "triangles": n * (n - 1) * (n - 2) // 6,
        "two-stars": n * (n - 1) * (n - 2) // 2,
        "spanning-tree": (n - 1) * (levels - 1),
        "truncated-triangles": n * degree * (degree - 1) // 6,
    }[statistic]


def _whole(value: int) -> Int64Array:
    return np.array([min(value, INPUT_MAX)])


_NUMBERS: Final[Mapping[str, Callable[[Edges, GraphNumber], Int64Array]]] = MappingProxyType(
    {
        "edges": lambda edges, _: _whole(len(edges)),
        "degrees": lambda edges, of: np.sort(edges.degrees(of.vertices)),
        "capped-edges": lambda edges, of: _whole(flow_of(edges, of.vertices, of.cap)),
        "degree-distribution": lambda edges, of: at_most(edges.degrees(of.vertices), of.cap),
        "capped-degree-distribution": lambda edges, of: at_most(
            projected(edges, of.vertices, of.cap), of.cap
        ),
        "min-cut": lambda edges, of: _whole(min_cut(edges, of.vertices)),
        "capped-min-cut": lambda edges, of: _whole(min(min_cut(edges, of.vertices), of.cap)),
        "bipartite-distance": lambda edges, of: _whole(without_bipartite(edges, of.vertices)),
    }
)
_LOCAL: Final[Mapping[str, Callable[[Edges, LocalGraph], Reaches]]] = MappingProxyType(
    {
        "triangles": lambda edges, of: triangle_reaches(edges, of.vertices, of.noise.depth),
        "two-stars": lambda edges, of: star_reaches(edges, of.vertices, of.noise.depth),
        "spanning-tree": lambda edges, of: tree_reaches(
            edges, of.vertices, of.levels - 1, of.noise.depth, decays_of(of.noise)
        ),
        "truncated-triangles": lambda edges, of: truncated_triangle_reaches(
            edges, of.vertices, of.cap, of.noise.depth
        ),
    }
)
