"""What is counted in a graph, in whole numbers, and how far one edge or vertex can move it.

Rows are edges between n public, labelled vertices. Direction, loops and doubles say nothing; of
doubles with weights the lightest counts. So one row that comes or goes changes one pair of vertices
at most: from no edge to an edge, or its weight.

>>> ring = edges_of(np.array([1, 6, 11, 12]), 4)  # 0-1, 1-2, 2-3, 3-0
>>> triangle_reaches(ring, 4, 3), min_cut(ring, 4), without_bipartite(ring, 4)
((0, [2, 2, 2]), 2, 0)
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from noisegate.frozen import dataclass
from noisegate.noise.chunks import Int64Array

BLOCK: Final = 1 << 22  # pairs of vertices at once
_DENSE: Final = 64  # graphs with more than n² / 64 edges are dense
_FAR: Final = -(1 << 62)

Mask: TypeAlias = NDArray[np.bool_]
Reaches: TypeAlias = tuple[int, list[int]]


@final
@dataclass(frozen=True, slots=True, eq=False)
class Edges:
    """Pairs first < second, each once, and the weight of each."""

    first: Int64Array
    second: Int64Array
    weight: Int64Array

    def __len__(self) -> int:
        return len(self.first)

    def degrees(self, vertices: int) -> Int64Array:
        """How many edges each vertex has."""
        ends = np.concatenate((self.first, self.second))
        return np.bincount(ends, minlength=vertices).astype(np.int64)

    def lighter(self, weight: int) -> "Edges":
        """Those below a weight."""
        kept = self.weight < weight
        return Edges(self.first[kept], self.second[kept], self.weight[kept])

    def among(self, kept: Mask) -> "Edges":
        """Those between vertices that are kept."""
        both = kept[self.first] & kept[self.second]
        return Edges(self.first[both], self.second[both], self.weight[both])

    def matrix(self, vertices: int) -> Any:  # noqa: ANN401 - scipy ships without types
        """The symmetric matrix of 0 and 1, sparse."""
        from scipy.sparse import csr_array  # noqa: PLC0415 - only graphs need it

        ends = np.concatenate((self.first, self.second)), np.concatenate((self.second, self.first))
        ones = np.ones(2 * len(self), np.int32)
        return csr_array((ones, ends), shape=(vertices, vertices))


def edges_of(cells: Int64Array, vertices: int, levels: int = 1) -> Edges:
    """The edges behind numbered cells (source, target, weight), the last varying fastest."""
    pairs, weight = np.divmod(cells, levels)
    source, target = np.divmod(pairs, vertices)
    first, second = np.minimum(source, target), np.maximum(source, target)
    place = first * vertices + second
    order = np.lexsort((weight, place))
    lightest = np.ones(len(order), np.bool_)
    lightest[1:] = np.diff(place[order]) != 0
    kept = order[lightest & (first != second)[order]]
    return Edges(first[kept], second[kept], weight[kept])


# numbers that all edges of one vertex move by a bounded amount


def projected(edges: Edges, vertices: int, cap: int) -> Int64Array:
    """The degrees of a graph that takes edges in a public order, up to ``cap`` at each vertex.

    Claim: whatever happens to the edges of one vertex v, the degrees move by at most 3 · cap in
        L1. Why: let G have edges at v, H none, else the same; take their edges side by side. An
        edge of v that G takes moves one other degree by 1, and there are at most ``cap`` of them.
        If another edge a-b is taken by one graph alone, then because a (or b) is full in the other:
        the degrees of a differ, and now by one less; those of b by one more at most. So over all
        vertices but v, degrees of G and H differ by at most ``cap`` [DLL16]. Two graphs with the
        same H differ there by twice that, and at v by at most ``cap``. The order is that of the
        pairs of labels, which no row changes. Where no degree is above the cap, all edges count.
    """
    found = [0] * vertices
    for a, b in zip(edges.first.tolist(), edges.second.tolist(), strict=True):
        if found[a] < cap and found[b] < cap:
            found[a] += 1
            found[b] += 1
    return np.array(found, np.int64)


def at_most(degrees: Int64Array, cap: int) -> Int64Array:
    """How many vertices have at most 0, 1, …, ``cap`` - 1 edges.

    Claim: moves by no more, in L1, than the degrees, each up to the cap. Why: the sum over t of
        |#(d ≤ t) - #(d' ≤ t)| is the distance of both lists in their order of size, and sorting
        brings no two lists further apart.
    """
    counts = np.bincount(np.minimum(degrees, cap), minlength=cap + 1)
    return np.cumsum(counts)[:cap].astype(np.int64)


# numbers that one edge moves by at most 1


def min_cut(edges: Edges, vertices: int) -> int:
    """The least number of edges whose loss parts the graph; 0 if it is in parts already.

    Claim: one edge moves it by at most 1. Why: a minimum of counts over cuts, each of which one
        edge moves by at most 1. The algorithm is that of [SW97], on whole numbers.
    """
    return _least_cut(edges.matrix(vertices).toarray().astype(np.int64))


def weighted_cut(edges: Edges, vertices: int, base: int) -> int:
    """The least weight of edges whose loss parts the graph; an edge weighs ``base`` more.

    Claim: a row moves it by at most the largest weight. Why: a missing pair weighs 0 and of doubles
        the lightest counts, so a row changes the weight of one pair by at most the largest; so it
        does the weight of every cut, and their minimum. The algorithm is that of [SW97].
    """
    weights = np.zeros((vertices, vertices), np.int64)
    weights[edges.first, edges.second] = edges.weight + base
    return _least_cut(weights + weights.T)


def _least_cut(weights: Int64Array) -> int:
    """The least cut of a symmetric matrix of weights, which is used up."""
    vertices = len(weights)
    best, alive = int(weights.sum(axis=1).min()), np.ones(vertices, np.bool_)
    for left in range(vertices, 2, -1):
        if best == 0:
            break
        before, last, bound = _tightest(weights, alive, left)
        best = min(best, bound)
        weights[before] += weights[last]
        weights[:, before] = weights[before]
        weights[before, before] = 0
        alive[last] = False
    return best


def _tightest(weights: Int64Array, alive: Mask, left: int) -> tuple[int, int, int]:
    """The last two vertices, each following those it is most tightly bound to; and how tightly."""
    bound = np.where(alive, 0, _FAR)
    before = last = int(alive.argmax())
    tight = 0
    for _ in range(left - 1):
        bound += weights[last]
        bound[last] = _FAR
        before, last = last, int(bound.argmax())
        tight = int(bound[last])
    return before, last, tight


def without_bipartite(edges: Edges, vertices: int) -> int:
    """How many edges must go until the rest joins two sides only.

    Claim: one edge moves it by at most 1. Why: a distance to a set of graphs, counted in edges; or
        the minimum over all two sides of the edges inside one. All of them are tried.
    """
    inside = np.zeros(1, np.int64)
    for vertex in range(vertices):
        before = edges.first[edges.second == vertex]
        sides = np.arange(len(inside), dtype=np.int64)  # bit v: the side of vertex v
        mask = np.int64(np.bitwise_or.reduce(np.int64(1) << before, initial=0))
        ones = np.bitwise_count(sides & mask).astype(np.int64)
        inside = np.concatenate((inside + len(before) - ones, inside + ones))
    return int(inside.min())


def flow_of(edges: Edges, vertices: int, cap: int) -> int:
    """Twice the number of edges, if no vertex counts more than ``cap`` of its own.

    Claim: the largest flow of a network in which each vertex lets through ``cap`` as a source and
        as a sink, and each edge 1 in both directions. It is twice the number of edges if no degree
        is above the cap. All edges of one vertex together move it by at most 2 · cap.
    Why: without the edges of a vertex, a flow loses at most what passes its two sides; so the
        flows of two graphs that differ there alone lie in one range of that width [KNRS13].
    """
    from scipy.sparse import csr_array  # noqa: PLC0415 - only graphs need it
    from scipy.sparse.csgraph import maximum_flow  # noqa: PLC0415

    n, every = vertices, np.arange(vertices)
    ends = np.concatenate((edges.first, edges.second)), np.concatenate((edges.second, edges.first))
    tails = np.concatenate((np.full(n, 2 * n), ends[0], n + every))
    heads = np.concatenate((every, n + ends[1], np.full(n, 2 * n + 1)))
    room = np.concatenate((np.full(n, cap), np.ones(2 * len(edges), np.int64), np.full(n, cap)))
    network = csr_array((room.astype(np.int32), (tails, heads)), shape=(2 * n + 2, 2 * n + 2))
    return int(maximum_flow(network, 2 * n, 2 * n + 1).flow_value)


# numbers with reaches: how far one step moves them from anywhere within k steps


def triangle_reaches(edges: Edges, vertices: int, depth: int) -> Reaches:
    """The number of triangles; a step is an edge.

    Claim: A_k = max over pairs of min(a + ⌊(k + min(k, b))/2⌋, n - 2), where the two have ``a``
        common neighbours and ``b`` vertices are neighbours of one of them alone. An edge moves the
        number by at most A_0, and A_k(x) ≤ A_{k+1}(x').
    Why: the edge ij is in a_ij triangles. Another edge makes a pair's (a, b) into (a ± 1, b ∓ 1)
        or (a, b ± 1). With k + 1 for k, k + min(k, b) grows by 2 if b grew, which makes up for
        an a that fell; and does not fall if b fell [NRS07].
    """
    found, most, degrees = 0, np.full(vertices, -1, np.int64), edges.degrees(vertices)
    for rows, linked, common in _neighbours(edges, vertices):
        found += int((common * linked).sum())
        alone = degrees[rows, None] + degrees - 2 * (common + linked)
        alone[np.arange(len(rows)), rows] = -1  # a vertex is not a pair
        np.maximum.at(most, common.ravel(), alone.ravel())
    common_, alone_ = np.flatnonzero(most >= 0), most[most >= 0]
    reaches = [
        int(np.minimum(common_ + (k + np.minimum(k, alone_)) // 2, vertices - 2).max())
        for k in range(min(depth, 2 * vertices))
    ]
    return found // 6, _continued(reaches, depth)


def _neighbours(edges: Edges, vertices: int) -> Iterator[tuple[Int64Array, Int64Array, Int64Array]]:
    """Some vertices at a time: which are linked to each other one, and how many both are linked to.

    Many edges are multiplied as floats, whose sums of up to 2**24 ones are exact.
    """
    matrix, at_once = edges.matrix(vertices), max(1, BLOCK // vertices)
    is_dense = _DENSE * len(edges) > vertices * vertices
    other = matrix.toarray().astype(np.float32) if is_dense else matrix
    for start in range(0, vertices, at_once):
        rows = np.arange(start, min(vertices, start + at_once))
        linked = matrix[rows].toarray().astype(np.int64)
        common = other[rows] @ other
        whole = common if is_dense else common.toarray()
        yield rows, linked, whole.astype(np.int64)


def star_reaches(edges: Edges, vertices: int, depth: int) -> Reaches:
    """The number of pairs of edges that share a vertex; a step is an edge.

    Claim: A_k = min(max over pairs of d_i + d_j, their own edge left out, + k, 2(n - 2)). An edge
        moves the number by at most A_0, and A_k(x) ≤ A_{k+1}(x').
    Why: the edge ij pairs with each other edge of i and of j. Another edge has at most one end in
        common with a pair, else it is the pair's own; so it moves d_i + d_j by at most 1.
    """
    matrix, degrees, widest = edges.matrix(vertices), edges.degrees(vertices), 0
    for start in range(0, vertices, max(1, BLOCK // vertices)):
        rows = np.arange(start, min(vertices, start + max(1, BLOCK // vertices)))
        both = degrees[rows, None] + degrees - 2 * matrix[rows].toarray()
        both[np.arange(len(rows)), rows] = 0  # a vertex is not a pair
        widest = max(widest, int(both.max()))
    most = 2 * (vertices - 2)
    reaches = [min(widest + k, most) for k in range(min(depth, most - widest + 1))]
    return int((degrees * (degrees - 1) // 2).sum()), _continued(reaches, depth)


def truncated_triangle_reaches(edges: Edges, vertices: int, cap: int, depth: int) -> Reaches:
    """The triangles among vertices of a degree up to ``cap``; a step is all edges of one vertex.

    Claim: A_k = min(n, 1 + k + N_k) · cap (cap - 1)/2, where N_k vertices have degrees from
        cap - k to cap + 1 + k. A step moves the number by at most A_0, and A_k(x) ≤ A_{k+1}(x').
    Why: a step changes other vertices' degrees by at most 1, so that besides its own vertex those
        of degree cap or cap + 1 at most come or go; each is in at most cap (cap - 1)/2 triangles
        of what is left, and without all of them both graphs are one. A step takes one vertex out
        of N_k at most, and moves the others by 1 [KNRS13].
    """
    degrees = edges.degrees(vertices)
    left = _neighbours(edges.among(degrees <= cap), vertices)
    found = sum(int((common * linked).sum()) for _, linked, common in left) // 6
    # the least k at which a vertex is counted: cap - k ≤ degree ≤ cap + 1 + k
    near = np.maximum(np.maximum(cap - degrees, degrees - cap - 1), 0)
    counts = np.cumsum(np.bincount(near, minlength=1))
    each, last = cap * (cap - 1) // 2, len(counts) - 1
    reaches = [
        min(vertices, 1 + k + int(counts[min(k, last)])) * each for k in range(min(depth, vertices))
    ]
    return found, _continued(reaches, depth)


def tree_reaches(
    edges: Edges, vertices: int, top: int, depth: int, decays: Sequence[int] = ()
) -> Reaches:
    """The weight of the lightest tree that joins all, where a missing edge weighs ``top``.

    Claim: A_k = max over cuts of the weight of its edge number k + 2, the lightest first. A step,
        another weight of one pair of vertices, moves the number by at most A_0, and
        A_k(x) ≤ A_{k+1}(x').
    Why: as a function of one weight w the number is C + min(w, t), where t is how light a path
        between the two ends can be otherwise: of the cuts between them, the largest of their
        lightest other edges, hence of some cut the first or second. A step moves the order of a
        cut's edges by at most one place [NRS07]. The edge number j of some cut weighs θ or more
        if and only if some cut has fewer than j edges below θ. With ``decays``, reaches are
        found until no later one could matter for max d_k A_k; those count as ``top``.
    """
    marks = np.append(np.unique(edges.weight), top)
    cuts: dict[int, int] = {}

    def cut(mark: int) -> int:
        if mark not in cuts:
            cuts[mark] = min_cut(edges.lighter(int(marks[mark])), vertices)
        return cuts[mark]

    reaches, mark, best = list[int](), 0, 0
    for k in range(depth):
        if decays and decays[k] * top <= best:
            break
        low, high = mark, len(marks)  # the cut at ``low`` is within k + 1, the one at ``high`` not
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if cut(middle) <= k + 1 else (low, middle)
        mark = low
        reaches.append(int(marks[mark]))
        best = max(best, reaches[k] * (decays[k] if decays else 1))
        if mark == len(marks) - 1:
            break
    return _tree(edges, vertices, top), reaches + [top] * (depth - len(reaches))


def _tree(edges: Edges, vertices: int, top: int) -> int:
    """The weight of the lightest tree, by joining parts along the lightest edges first."""
    part = list(range(vertices))

    def root(vertex: int) -> int:
        while part[vertex] != vertex:
            part[vertex] = part[part[vertex]]
            vertex = part[vertex]
        return vertex

    total, left = 0, vertices - 1
    for place in np.argsort(edges.weight, kind="stable").tolist():
        one, other = root(int(edges.first[place])), root(int(edges.second[place]))
        if one != other:
            part[one] = other
            total, left = total + int(edges.weight[place]), left - 1
    return total + left * top


def _continued(reaches: list[int], depth: int) -> list[int]:
    """The list as long as it is looked at; by then it has reached the most that is possible."""
    return reaches + [reaches[-1]] * (depth - len(reaches))
