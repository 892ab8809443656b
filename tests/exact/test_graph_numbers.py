"""Numbers of graphs, over all small graphs: what an edge or a vertex can do, and broken copies."""

from fractions import Fraction
from functools import cache
from itertools import combinations, product

import numpy as np
import pytest

from noisegate.mechanisms.additive.gaussian import DiscreteGaussian
from noisegate.mechanisms.additive.geometric import Geometric
from noisegate.mechanisms.smooth.graph_numbers import (
    GraphNumber,
    LocalGraph,
    WeightedCut,
    largest,
)
from noisegate.mechanisms.smooth.graph_shapes import (
    Edges,
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
from noisegate.mechanisms.smooth.smooth import SmoothStudent
from noisegate.privacy.distance import L1, L2
from noisegate.privacy.event import GeometricEvent

N, DEPTH = 5, 7
PAIRS = list(combinations(range(N), 2))
GRAPHS = np.arange(1 << len(PAIRS))


def edges_from(pairs, weights=None):
    first, second = (np.array([pair[j] for pair in pairs], np.int64) for j in (0, 1))
    weight = np.zeros(len(pairs), np.int64) if weights is None else np.array(weights, np.int64)
    return Edges(first, second, weight)


def listed(graph):
    return [pair for bit, pair in enumerate(PAIRS) if graph >> bit & 1]


@cache
def all_reaches(kind, *more):
    found = [kind(edges_from(listed(graph)), N, *more, DEPTH + 1) for graph in GRAPHS]
    return np.array([each[0] for each in found]), np.array([each[1] for each in found])


def by_edge():
    """Graphs that differ in one edge."""
    return [(GRAPHS, GRAPHS ^ (1 << bit)) for bit in range(len(PAIRS))]


def by_vertex():
    """Graphs that differ in the edges of one vertex."""
    for vertex in range(N):
        bits = [bit for bit, pair in enumerate(PAIRS) if vertex in pair]
        for chosen in product((0, 1), repeat=len(bits)):
            yield GRAPHS, GRAPHS ^ sum(1 << bit for bit, on in zip(bits, chosen, strict=True) if on)


def violations(values, reaches, pairs):
    """How often a step moves the number too far, or reaches are not nested."""
    far = nested = 0
    for one, other in pairs:
        moved = np.abs(values[one] - values[other])
        far += int((moved > reaches[one, 0]).sum())
        nested += int((reaches[one, :-1] > reaches[other, 1:]).sum())
    return far, nested


def plain_triangles(graph):
    held = set(listed(graph))
    return sum({(a, b), (a, c), (b, c)} <= held for a, b, c in combinations(range(N), 3))


def widest(values, pairs, depth):
    """The true A_0, A_1, …: the largest move of one step from anywhere within k steps."""
    steps = list(pairs)
    local = np.max([np.abs(values[a] - values[b]) for a, b in steps], axis=0)
    found = [local]
    for _ in range(depth):
        found.append(np.max([found[-1], *[found[-1][b] for _, b in steps]], axis=0))
    return np.array(found).T


@pytest.mark.parametrize("kind", [triangle_reaches, star_reaches])
def test_edges_move_triangles_and_stars_as_their_reaches_say_and_no_less(kind):
    values, reaches = all_reaches(kind)
    assert violations(values, reaches, by_edge()) == (0, 0)
    assert (reaches == widest(values, by_edge(), DEPTH)).all()


def test_the_numbers_are_those_of_plain_counting():
    triangles, stars = all_reaches(triangle_reaches)[0], all_reaches(star_reaches)[0]
    for graph in GRAPHS[::7]:
        ends = [end for pair in listed(graph) for end in pair]
        degrees = [ends.count(vertex) for vertex in range(N)]
        assert triangles[graph] == plain_triangles(graph)
        assert stars[graph] == sum(d * (d - 1) // 2 for d in degrees)


def test_reaches_that_stay_what_they_are_here_are_not_nested():
    """The broken copy: local sensitivity in place of what is near."""
    values, reaches = all_reaches(triangle_reaches)
    assert violations(values, np.repeat(reaches[:, :1], 3, 1), by_edge())[1] > 0


@pytest.mark.parametrize("cap", [2, 3])
def test_vertices_move_truncated_triangles_no_further_than_the_reaches(cap):
    values, reaches = all_reaches(truncated_triangle_reaches, cap)
    assert violations(values, reaches, by_vertex()) == (0, 0)
    degrees = np.array([edges_from(listed(g)).degrees(N).max() for g in GRAPHS])
    exact = all_reaches(triangle_reaches)[0]
    assert (values == exact)[degrees <= cap].all()
    assert (values <= exact).all()


def test_truncating_as_if_no_other_vertex_came_or_went_is_refuted():
    """The broken copy: each vertex is in at most cap (cap - 1)/2 triangles, hence the bound."""
    values, _ = all_reaches(truncated_triangle_reaches, 3)
    only = np.full((len(GRAPHS), 2), 3)
    assert violations(values, only, by_vertex())[0] > 0


def numbers(kind):
    return np.array([kind(edges_from(listed(graph)), N) for graph in GRAPHS])


def plain_cut(graph):
    sides = product((0, 1), repeat=N - 1)
    return min(
        sum((0, *side)[a] != (0, *side)[b] for a, b in listed(graph)) for side in sides if any(side)
    )


def plain_bipartite(graph):
    sides = product((0, 1), repeat=N)
    return min(sum(side[a] == side[b] for a, b in listed(graph)) for side in sides)


@pytest.mark.parametrize(
    ("kind", "plain"), [(min_cut, plain_cut), (without_bipartite, plain_bipartite)]
)
def test_distances_are_exact_and_move_by_one_edge(kind, plain):
    values = numbers(kind)
    assert all(values[graph] == plain(graph) for graph in GRAPHS[::11])
    assert max(np.abs(values[a] - values[b]).max() for a, b in by_edge()) == 1


def test_a_weighted_cut_is_exact_and_moves_by_the_largest_weight():
    """All graphs of four vertices with weights none, 1 and 3, and all changes of one pair."""
    pairs = list(combinations(range(4), 2))
    sides = [side for side in product((0, 1), repeat=4) if 0 < sum(side) < 4]
    found = {}
    for weights in product((0, 1, 3), repeat=len(pairs)):
        held = [(a * 4 + b) * 3 + w - 1 for (a, b), w in zip(pairs, weights, strict=True) if w]
        edges = edges_of(np.array(held, np.int64), 4, 3)
        found[weights] = weighted_cut(edges, 4, 1)
        assert found[weights] == min(
            sum(w for (a, b), w in zip(pairs, weights, strict=True) if side[a] != side[b])
            for side in sides
        )
    moves = [
        abs(found[weights] - found[(*weights[:place], w, *weights[place + 1 :])])
        for weights in found
        for place in range(len(pairs))
        for w in (0, 1, 3)
    ]
    assert max(moves) == 3
    assert WeightedCut(vertices=4, levels=3, base=1, noise=Geometric(scale=3)).event(2) == (
        GeometricEvent(scale=Fraction(3), sensitivity=L1(6))
    )


def test_known_graphs_have_known_cuts():
    ring = [(j, (j + 1) % 40) for j in range(40)]
    full = list(combinations(range(30), 2))
    assert min_cut(edges_from([tuple(sorted(pair)) for pair in ring]), 40) == 2
    assert min_cut(edges_from(full), 30) == 29
    barbell = [*full, *[(30 + a, 30 + b) for a, b in full], (3, 40), (7, 50)]
    assert min_cut(edges_from(barbell), 60) == 2
    assert without_bipartite(edges_from(list(combinations(range(7), 2))), 7) == 9


def test_sorted_degrees_move_by_two():
    degrees = np.array([np.sort(edges_from(listed(g)).degrees(N)) for g in GRAPHS])
    moves = [degrees[a] - degrees[b] for a, b in by_edge()]
    assert max(np.abs(each).sum(axis=1).max() for each in moves) == 2
    assert max((each**2).sum(axis=1).max() for each in moves) == 2


@pytest.mark.parametrize("cap", [1, 3])
def test_capped_edges_move_by_the_cap_whatever_a_vertex_does(cap):
    values = np.array([flow_of(edges_from(listed(g)), N, cap) for g in GRAPHS])
    moved = max(np.abs(values[a] - values[b]).max() for a, b in by_vertex())
    assert moved == 2 * cap
    counts = np.array([len(listed(g)) for g in GRAPHS])
    degrees = np.array([edges_from(listed(g)).degrees(N).max() for g in GRAPHS])
    assert (values == 2 * counts)[degrees <= cap].all()
    assert (values <= 2 * counts).all()
    plain = max(np.abs(counts[a] - counts[b]).max() for a, b in by_vertex())
    assert plain == N - 1  # without a cap


@pytest.mark.parametrize("cap", [1, 2, 3])
def test_degree_distributions_move_by_three_caps_whatever_a_vertex_does(cap):
    """All graphs of five vertices, all changes of the edges of any vertex; and of one edge."""
    taken = np.array([projected(edges_from(listed(g)), N, cap) for g in GRAPHS])
    counts = np.array([at_most(each, cap) for each in taken])
    moved = max(np.abs(counts[a] - counts[b]).sum(axis=1).max() for a, b in by_vertex())
    assert 2 * cap <= moved <= 3 * cap
    degrees = np.array([edges_from(listed(g)).degrees(N) for g in GRAPHS])
    assert (taken <= cap).all()
    assert (taken == degrees)[degrees.max(axis=1) <= cap].all()
    plain = np.array([at_most(each, cap) for each in degrees])
    steps = [plain[a] - plain[b] for a, b in by_edge()]
    assert max(np.abs(each).sum(axis=1).max() for each in steps) == 2
    assert max((each**2).sum(axis=1).max() for each in steps) <= 4


# lightest trees: graphs are weights of all pairs of 4 vertices, 2 standing for a missing edge too

TOP = 2
WEIGHTS = list(product(range(TOP + 1), repeat=6))
FOUR = list(combinations(range(4), 2))


def parted(tree):
    part = [0, 1, 2, 3]
    for a, b in tree:
        part = [part[b] if each == part[a] else each for each in part]
    return len(set(part)) > 1


TREES = [tree for tree in combinations(FOUR, 3) if not parted(tree)]


@cache
def trees():
    found = []
    for weights in WEIGHTS:
        held = [(pair, w) for pair, w in zip(FOUR, weights, strict=True) if w < TOP]
        edges = edges_from([pair for pair, _ in held], [w for _, w in held])
        found.append(tree_reaches(edges, 4, TOP, 4))
    return np.array([each[0] for each in found]), np.array([each[1] for each in found])


def by_weight():
    place = np.arange(len(WEIGHTS))
    for digit in range(6):
        for more in (1, 2):
            old = place // (TOP + 1) ** digit % (TOP + 1)
            yield place, place + ((old + more) % (TOP + 1) - old) * (TOP + 1) ** digit


def test_weights_move_the_lightest_tree_no_further_than_the_reaches():
    values, reaches = trees()
    assert violations(values, reaches, by_weight()) == (0, 0)
    true = widest(values, by_weight(), 3)
    assert (reaches >= true).all()
    assert (reaches[:, :-1] <= np.maximum(true[:, 1:], true[:, :-1])).all()  # one step ahead
    assert reaches.min() == 0  # where nothing can be moved nothing is added


def test_the_lightest_tree_is_the_lightest_of_all():
    assert len(TREES) == 16
    for place in range(0, len(WEIGHTS), 5):
        weight = dict(zip(FOUR, WEIGHTS[place], strict=True))
        assert trees()[0][place] == min(sum(weight[pair] for pair in tree) for tree in TREES)


def test_the_lightest_edge_of_a_cut_in_place_of_the_second_is_too_little():
    """The broken copy: max over cuts of the lightest edge bounds falls, not rises."""
    values, reaches = trees()
    first = np.array([_lightest(weights) for weights in WEIGHTS])
    assert violations(values, np.stack((first, reaches[:, 0]), 1), by_weight())[0] > 0


def _lightest(weights):
    weight = dict(zip(FOUR, weights, strict=True))
    sides = [(0, *side) for side in product((0, 1), repeat=3) if any(side)]
    return max(min(w for (a, b), w in weight.items() if side[a] != side[b]) for side in sides)


def test_reaches_that_no_bound_would_see_may_be_left_out():
    rng = np.random.default_rng(6)  # of the test, not of noise
    for beta in ("1/2", "1/20"):
        noise = SmoothStudent(scale=1, beta=beta, low=0, high=10**4)
        for share in (0.3, 0.9):
            pairs = [pair for pair in combinations(range(12), 2) if rng.random() < share]
            edges = edges_from(pairs, rng.integers(0, 100, len(pairs)))
            full = tree_reaches(edges, 12, 100, noise.depth)
            short = tree_reaches(edges, 12, 100, noise.depth, noise.decays)
            assert noise.bound(full[1]) == noise.bound(short[1])


# rows to edges


def test_rows_of_any_direction_and_doubles_are_one_edge_and_loops_none():
    cells = np.array([1 * 5 + 2, 2 * 5 + 1, 3 * 5 + 3, 0, 4 * 5 + 0, 7])
    edges = edges_of(cells, 5)
    assert list(zip(edges.first.tolist(), edges.second.tolist(), strict=True)) == [(0, 4), (1, 2)]
    heavy = edges_of(np.array([7, 11, 7]) * 10 + np.array([9, 4, 6]), 5, 10)
    assert (heavy.first.tolist(), heavy.second.tolist(), heavy.weight.tolist()) == ([1], [2], [4])
    assert len(edges_of(np.zeros(0, np.int64), 5)) == 0


def test_one_row_changes_one_pair_at_most():
    rng = np.random.default_rng(3)  # of the test, not of noise
    for _ in range(200):
        cells = rng.integers(0, 4 * 4 * 3, rng.integers(1, 9))
        one, other = edges_of(cells, 4, 3), edges_of(cells[1:], 4, 3)
        sets = [set(zip(e.first.tolist(), e.second.tolist(), e.weight.tolist(), strict=True))
                for e in (one, other)]  # fmt: skip
        changed = {pair[:2] for pair in sets[0] ^ sets[1]}
        assert len(changed) <= 1


# the mechanisms


def test_events_count_rows_times_reach():
    for statistic, cap, reach in [("edges", 0, 1), ("degrees", 0, 2), ("capped-edges", 3, 6),
                                  ("degree-distribution", 3, 2), ("capped-min-cut", 3, 3),
                                  ("capped-degree-distribution", 3, 9)]:  # fmt: skip
        asked = {"statistic": statistic, "vertices": 9, "cap": cap}
        plain = GraphNumber(noise=Geometric(scale=2), **asked)
        assert plain.event(4).sensitivity == L1(4 * reach)
        gaussian = GraphNumber(noise=DiscreteGaussian(variance=2), **asked)
        squared = 2 if statistic == "degrees" else reach**2
        assert gaussian.event(4).sensitivity == L2(squared=16 * squared)


def test_numbers_come_out_with_their_own_noise():
    ring = np.array([1, 6, 11, 12])
    for statistic, exact in [("edges", [4]), ("degrees", [2] * 4), ("min-cut", [2]),
                             ("bipartite-distance", [0])]:  # fmt: skip
        noise = GraphNumber(statistic=statistic, vertices=4, noise=Geometric(scale="1/50"))
        assert noise.sample(ring).tolist() == exact  # another one with e^-50
    capped = GraphNumber(statistic="capped-edges", vertices=4, noise=Geometric(scale="1/50"), cap=1)
    assert capped.sample(ring).tolist() == [4]
    noise = SmoothStudent(scale=1, beta=1, low=0, high=100)
    stars = LocalGraph(statistic="two-stars", vertices=40, noise=noise)
    assert 0 <= stars.sample(np.array([1, 2]))[0] <= 100


def test_no_number_is_larger_than_the_largest():
    n = 6
    full = edges_of(np.flatnonzero(np.triu(np.ones((n, n)), 1).ravel()), n)
    none = edges_of(np.zeros(0, np.int64), n)
    assert triangle_reaches(full, n, 1)[0] == largest("triangles", n) == 20
    assert star_reaches(full, n, 1)[0] == largest("two-stars", n) == 60
    cut = truncated_triangle_reaches(full, n, n, 1)[0]
    assert cut == largest("truncated-triangles", n, cap=n) == 20
    assert tree_reaches(none, n, 8, 1)[0] == largest("spanning-tree", n, levels=9) == 40


@pytest.mark.parametrize("rows", [300, 6000])
def test_sparse_and_dense_graphs_are_counted_alike(rows):
    rng = np.random.default_rng(4)  # of the test, not of noise
    n = 200
    pairs = np.unique(np.sort(rng.integers(0, n, (rows, 2)), axis=1), axis=0)
    pairs = pairs[pairs[:, 0] < pairs[:, 1]]
    edges = Edges(pairs[:, 0], pairs[:, 1], np.zeros(len(pairs), np.int64))
    dense = edges.matrix(n).toarray().astype(np.int64)
    found, reaches = triangle_reaches(edges, n, 50)
    assert found == np.trace(dense @ dense @ dense) // 6
    common = dense @ dense
    np.fill_diagonal(common, 0)
    assert reaches[0] == common.max()
