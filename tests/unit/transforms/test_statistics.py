"""Statistics of rows: exact whatever stands beside a row, and never further than they claim."""

import os
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

import noisegate
from noisegate.algebra.expression import Field
from noisegate.algebra.relation import Table
from noisegate.algebra.tally import Grouping, Rows, Term
from noisegate.curator.kept import Kept
from noisegate.curator.measurement import Measurement
from noisegate.errors import NoisegateError, SourceError
from noisegate.mechanisms.additive.box_noise import BoxNoise
from noisegate.mechanisms.additive.geometric import Geometric
from noisegate.privacy.event import BoxNoiseEvent
from noisegate.sources.source import Batch
from noisegate.transforms.query import Query, shape_of
from noisegate.transforms.statistics.features import Bins, Linear, One, Products, Sides, Squares
from noisegate.transforms.statistics.numbers import Numbers, Shape, across, clip, times
from noisegate.transforms.statistics.statistic import Statistic
from noisegate.transforms.statistics.weighings import (
    ByKey,
    Leaves,
    Lookup,
    Nearest,
    Plain,
    Scores,
    Slopes,
    Soft,
)

REACH, COLUMNS, KEYS = 16, 3, 2
SHAPE = Shape(COLUMNS, REACH, KEYS)
LINES = Scores(Numbers.of([[3, -1, 2, 5], [-2, 4, 1, -7]]))
CURVES = Scores(Numbers.of([[1, 0, 2, -1, 1, 0, 3], [0, 1, 0, 1, -1, 2, 0]]), "squares")
PAIRS = Scores(Numbers.of([[1, 0, 2, -1, 1, 0, 3, 1, -2, 4], [0] * 9 + [7]]), "products")
STEPS = Lookup(Numbers.of([-8, -3, 0, 5, 8]), shift=4, middle=2)
PARTS = Lookup(Numbers.of([64, 32, 16, 8, 4, 2, 1]), shift=3)
TREE = Numbers.of([[0, 2, 1, 2], [-1, 0, 0, 0], [2, -5, 3, 4], [-1, 0, 1, 0], [-1, 0, 2, 0]])
STUMP = Numbers.of([[1, 0, 1, 2], [-1, 0, 1, 0], [-1, 0, 0, 0]])
WEIGHINGS = {
    "plain": Plain(),
    "by key": ByKey(),
    "nearest": Nearest(LINES),
    "nearest by curves": Nearest(CURVES, keyed=True),
    "nearest by pairs": Nearest(PAIRS),
    "leaves": Leaves((TREE, STUMP), keyed=True),
    "leaves apart": Leaves((TREE, STUMP), apart=True),
    "soft": Soft(LINES, PARTS, unit=32),
    "soft less": Soft(LINES, PARTS, unit=32, less=True),
    "slopes": Slopes(LINES, STEPS),
    "curvatures": Slopes(LINES, STEPS, even=True),
    "unsigned": Slopes(LINES, STEPS, signed=False),
    "one slope": Slopes(Scores(Numbers.of([[1, 2, -1, 0]])), STEPS),
}
FEATURES = {
    "one": One(),
    "linear": Linear(),
    "some linear": Linear((0, 2)),
    "sides": Sides(),
    "some sides": Sides((0, 2)),
    "squares": Squares(),
    "one square": Squares((1,)),
    "products": Products(),
    "weighed products": Products((5, 7)),
    "some products": Products((5, 7), (0, 2)),
    "bins": Bins(((-3, 4), (), (0,))),
}

TRIED = 400 if os.environ.get("NOISEGATE_EXPLORE") else 20  # rows, the same ones in every run


def made_up(count: int, seed: int) -> Batch:
    coins = np.random.default_rng(seed)
    rows = coins.integers(-REACH, REACH + 1, (count, COLUMNS)).astype(np.int32)
    extreme = coins.random((count, COLUMNS)) < 0.4
    rows = np.where(extreme, np.sign(rows) * REACH, rows).astype(np.int32)
    rows[0], rows[1] = REACH, -REACH  # the furthest there are
    return Batch(rows, coins.integers(0, KEYS, count).astype(np.int32))


# the slow twin: one row at a time, in Python's whole numbers


def slow_scores(scores: Scores, row: list[int]) -> list[int]:
    terms = list(row)
    if scores.order == "squares":
        terms += [u * u for u in row]
    if scores.order == "products":
        terms += [row[i] * row[j] for i in range(len(row)) for j in range(i, len(row))]
    return [
        sum(w * t for w, t in zip(line, [*terms, 1], strict=True))
        for line in scores.weights.whole.tolist()
    ]


def slow_entry(table: Lookup, score: int) -> int:
    place = min(max((score >> table.shift) + table.middle, 0), table.entries.shape[0] - 1)
    return int(table.entries.whole[place])


def slow_leaf(tree: Numbers, row: list[int]) -> int:
    nodes, at = tree.whole.tolist(), 0
    while nodes[at][0] >= 0:
        column, threshold, left, right = nodes[at]
        at = left if row[column] <= threshold else right
    return int(nodes[at][2])


def slow_weights(weighing: object, row: list[int], key: int) -> list[int]:
    match weighing:
        case Plain():
            return [1]
        case ByKey():
            return [int(key == k) for k in range(KEYS)]
        case Nearest():
            scores = slow_scores(weighing.scores, row)
            best = scores.index(max(scores))
            cells = [best == k for k in range(len(scores))]
            if not weighing.keyed:
                return [int(cell) for cell in cells]
            return [int(cell and key == k) for cell in cells for k in range(KEYS)]
        case Soft():
            scores = slow_scores(weighing.scores, row)
            raw = [slow_entry(weighing.table, max(scores) - score) for score in scores]
            parts = [weighing.unit * part // sum(raw) for part in raw]
            return [p - weighing.unit * (weighing.less and k == key) for k, p in enumerate(parts)]
        case Slopes():
            scores = slow_scores(weighing.scores, row)
            own = key if len(scores) > 1 else key - (KEYS - 1)
            signs = [1 if not weighing.signed or k == own else -1 for k in range(len(scores))]
            found = [slow_entry(weighing.table, s * z) for s, z in zip(signs, scores, strict=True)]
            even = weighing.even or not weighing.signed
            return [f if even else s * f for s, f in zip(signs, found, strict=True)]
    raise AssertionError(weighing)


def slow_feature(feature: object, row: list[int]) -> list[int]:
    match feature:
        case One():
            return [1]
        case Linear():
            return [row[i] for i in feature.columns or range(len(row))]
        case Sides():
            return [1, *(1 if row[i] > 0 else -1 for i in feature.columns or range(len(row)))]
        case Squares():
            return [row[i] ** 2 for i in feature.columns or range(len(row))]
        case Products():
            same, other = feature.weights
            at = feature.columns or range(len(row))
            pairs = [(i, j) for i in at for j in at if i <= j]
            return [row[i] * row[j] * (same if i == j else other) for i, j in pairs]
        case Bins():
            found = []
            for u, edges in zip(row, feature.edges, strict=True):
                place = sum(u > edge for edge in edges)
                found += [int(place == k) for k in range(len(edges) + 1)]
            return found
    raise AssertionError(feature)


@pytest.mark.parametrize("weighing", sorted(set(WEIGHINGS) - {"leaves", "leaves apart"}))
@pytest.mark.parametrize("feature", sorted(FEATURES))
def test_sums_are_those_of_one_row_at_a_time(weighing, feature):
    statistic = Statistic(WEIGHINGS[weighing], (FEATURES[feature],))
    rows = made_up(60, 1)
    expected = np.zeros(1, object)
    for row, key in zip(rows.coordinates.tolist(), rows.places.tolist(), strict=True):
        weights = slow_weights(WEIGHINGS[weighing], row, key)
        expected = expected + np.outer(
            weights, np.array(slow_feature(FEATURES[feature], row), object)
        )
    (found,) = statistic.total([rows], SHAPE)
    assert found.tolist() == expected.tolist()


def test_a_row_is_counted_in_one_leaf_of_each_tree():
    rows = made_up(200, 2)
    (found,) = Statistic(Leaves((TREE, STUMP), keyed=True), (One(),)).total([rows], SHAPE)
    expected = np.zeros((5, KEYS), int)
    for row, key in zip(rows.coordinates.tolist(), rows.places.tolist(), strict=True):
        expected[slow_leaf(TREE, row), key] += 1
        expected[3 + slow_leaf(STUMP, row), key] += 1
    assert found.reshape(5, KEYS).tolist() == expected.tolist()


def test_trees_apart_share_the_rows_out():
    rows = made_up(4000, 3)
    (found,) = Statistic(Leaves((TREE, STUMP), apart=True), (One(),)).total([rows], SHAPE)
    first, second = found[:3].sum(), found[3:].sum()
    assert first + second == 4000
    assert min(first, second) > 1500  # 16 standard deviations below the half


@pytest.mark.parametrize("weighing", sorted(WEIGHINGS))
@pytest.mark.parametrize("feature", sorted(FEATURES))
@pytest.mark.parametrize("norm", [None, 20])
def test_no_row_moves_a_block_further_than_it_claims(weighing, feature, norm):
    statistic = Statistic(WEIGHINGS[weighing], (FEATURES[feature],), norm, 0 if norm is None else 3)
    (block,) = statistic.blocks(SHAPE)
    rows = made_up(TRIED, 4)
    largest = []
    for place in range(TRIED):
        one = Batch(rows.coordinates[place : place + 1], rows.places[place : place + 1])
        (moved,) = statistic.total([one], SHAPE)
        sizes = np.abs(moved.astype(object))
        norms = sizes.max(axis=1).sum(), sizes.sum(), (sizes**2).sum()
        assert norms[0] <= block.largest
        assert norms[1] <= block.l1
        assert norms[2] <= block.l2_squared
        largest.append(norms)
    reached = np.array(largest, float).max(axis=0)
    if norm is None and weighing in ("plain", "by key", "nearest", "leaves"):  # bounds are met
        claimed = np.array([block.largest, block.l1, block.l2_squared], float)
        assert np.all(reached >= 0.99 * claimed)


def test_a_bound_that_forgets_a_cell_or_a_norm_is_passed():
    """The same search catches a copy that claims too little."""
    rows = made_up(400, 4)
    statistic = Statistic(WEIGHINGS["soft less"], (Linear(),))
    (block,) = statistic.blocks(SHAPE)
    passed = 0
    for place in range(400):
        one = Batch(rows.coordinates[place : place + 1], rows.places[place : place + 1])
        (moved,) = statistic.total([one], SHAPE)
        passed += int((moved.astype(object) ** 2).sum()) > block.l2_squared // 2  # |p|² = 1, not 2
    assert passed > 0


def test_sides_that_do_not_count_the_row_itself_are_passed(monkeypatch):
    """A copy that claims a length for the columns alone claims too little."""
    monkeypatch.setattr(Sides, "norms", lambda *_: (1, COLUMNS, COLUMNS))
    statistic, rows = Statistic(ByKey(), (Sides(),)), made_up(2, 4)
    one = Batch(rows.coordinates[:1], rows.places[:1])
    (block,), (moved,) = statistic.blocks(SHAPE), statistic.total([one], SHAPE)
    assert np.abs(moved).sum() > block.l1
    assert (moved**2).sum() > block.l2_squared


@pytest.mark.parametrize("weighing", sorted(WEIGHINGS))
def test_the_order_and_the_batches_do_not_matter(weighing):
    statistic = Statistic(WEIGHINGS[weighing], tuple(FEATURES.values()), 20, 3)
    rows = made_up(500, 5)
    order = np.random.default_rng(6).permutation(500)
    whole = statistic.total([rows], SHAPE)
    cuts = [order[:1], order[1:70], order[70:70], order[70:]]
    parts = [Batch(rows.coordinates[cut], rows.places[cut]) for cut in cuts]
    for a, b in zip(whole, statistic.total(parts, SHAPE), strict=True):
        assert a.tolist() == b.tolist()


def test_sums_stay_exact_beyond_doubles_and_do_not_wrap():
    shape, far = Shape(1, 1 << 18), (1 << 18) - 1
    rows = Batch(np.full((1000, 1), far, np.int32), np.zeros(1000, np.int32))
    one = Batch(rows.coordinates[:1], rows.places[:1])
    statistic = Statistic(Plain(), (Squares(),))
    (found,) = statistic.total([rows] * 201 + [one], shape)
    assert found.tolist() == [[201_001 * far**2]]  # odd, and above 2**53
    weighed = Batch(rows.coordinates, rows.places, np.full(1000, 256, np.int32))
    (found,) = statistic.total([weighed] * 100, shape)
    assert found.tolist() == [[1 << 60]]  # 2.8e19 would have wrapped


def test_rows_are_shortened_to_their_norm_and_stay_whole():
    coins = np.random.default_rng(7)
    rows = coins.integers(-4096, 4097, (20_000, 5)).astype(float)
    found = clip(rows, 3000, 4)
    assert np.all(found == np.rint(found))
    assert np.all((found[:, :4].astype(np.int64) ** 2).sum(axis=1) <= 3000**2)
    assert np.all(found[:, 4] == rows[:, 4])
    near = (rows[:, :4] ** 2).sum(axis=1) <= 3000**2
    assert np.all(found[near] == rows[near])
    far = found[~near][:, :4]
    lengths = np.sqrt((far**2).sum(axis=1))
    assert lengths.min() > 3000 - 3  # cut off by less than 1 in each coordinate


class Fickle(str):
    """Linear while it is checked, squares when rows are scored."""

    __slots__ = ()
    __hash__ = str.__hash__

    def __eq__(self, other):
        return other in ("linear", "squares")


class Understated:
    """A table that states a smaller largest entry than it has."""

    entries, shift, middle, largest = STEPS.entries, STEPS.shift, STEPS.middle, 1

    def of(self, scores):
        return 1000 * STEPS.of(scores)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Numbers.of([0.5]),
        lambda: Slopes(LINES, Understated()),
        lambda: Soft(LINES, Understated(), unit=4),
        lambda: Nearest(object()),
        lambda: Scores(LINES.weights, "cubes"),
        lambda: Scores(LINES.weights, Fickle("linear")),
        lambda: Leaves((TREE,), keyed=2),
        lambda: Numbers.of([float("nan")]),
        lambda: Numbers.of([1e30]),
        lambda: Statistic(Plain(), ()),
        lambda: Statistic(Plain(), (One(),), norm=0),
        lambda: Statistic(object(), (One(),)),
        lambda: Bins(((2, 1),)),
        lambda: Products((0, 1)),
        lambda: Linear((1, 0)),
        lambda: Linear(()),
        lambda: Statistic(Plain(), (Squares((0, 3)),)).blocks(SHAPE),
        lambda: Lookup(Numbers.of([1 << 30]), 0),
        lambda: Soft(LINES, STEPS, unit=4),
        lambda: Leaves((Numbers.of([[0, 0, 0, 0]]),)),
        lambda: Statistic(ByKey(), (One(),)).blocks(Shape(2, 4)),
        lambda: Statistic(Nearest(LINES), (One(),)).blocks(Shape(2, 4)),
        lambda: Statistic(Nearest(Scores(Numbers.of([[1 << 50, 0, 0, 0]]))), (One(),)).blocks(
            SHAPE
        ),
        lambda: Statistic(Plain(), (Squares(),)).rows_at_once(Shape(1, 1 << 24)),
    ],
)
def test_what_cannot_be_exact_is_refused(wrong):
    with pytest.raises(NoisegateError):
        wrong()


# through the engine


def people(rows: pa.Table, **terms) -> tuple[noisegate.Gate, Rows]:
    gate = noisegate.open(
        rows, epsilon=100, unit="who", rows_per_unit=2, table="t",
        columns={"x": {"between": [-4, 4]}, "g": {"in": [0, 1]}}, **terms,
    )  # fmt: skip
    tally = Rows(
        relation=Table(gate.tables["t"]),
        by=(Grouping(name="g", expression=Field("g"), keys=(0, 1)),),
        terms=(Term(expression=Field("x"), grain=Fraction(1, 64), low=-256, high=256),),
        rows_per_unit=2,
    )
    return gate, tally


def table(who, x, g) -> pa.Table:
    return pa.table({"who": who, "x": pa.array(x, pa.float64()), "g": pa.array(g, pa.int64())})


def test_rows_come_clamped_weighed_and_without_what_has_no_place():
    gate, tally = people(
        table(
            [1, 1, 1, 2, 3, 4, 5],
            [1.0, 1.0, -1.0, 9.0, None, float("nan"), 0.5],
            [0, 0, 1, 1, 0, 0, 7],
        )
    )
    statistic = Statistic(ByKey(), (One(), Linear()))
    source = gate._curator._source
    counts, sums = source.rows(tally, lambda batches: statistic.total(batches, shape_of(tally)))
    assert counts.tolist() == [[2 * (256 * 2 // 3)], [256 * 2 // 3 + 256]]
    assert sums.tolist() == [[128 * (256 * 2 // 3)], [-64 * (256 * 2 // 3) + 256 * 256]]


def test_one_person_moves_no_statistic_further_than_its_query_claims():
    """Neighbours: all rows, and those without one person, who has up to nine."""
    coins = np.random.default_rng(8)
    who = np.repeat(np.arange(40), coins.integers(1, 10, 40))
    x, g = coins.choice([-9.0, -4.0, 0.3, 4.0, 9.0], who.size), coins.integers(0, 2, who.size)
    statistic = Statistic(ByKey(), (One(), Linear(), Products()))

    def exact(kept):
        gate, tally = people(table(who[kept], x[kept], g[kept]))
        source = gate._curator._source
        found = source.rows(tally, lambda batches: statistic.total(batches, shape_of(tally)))
        return found, Query(tally, statistic)

    whole, query = exact(np.ones(who.size, bool))
    reached = np.zeros(3)
    for person in range(5):
        other, _ = exact(who != person)
        for place, (a, b) in enumerate(zip(whole, other, strict=True)):
            moved = np.abs(a - b)
            assert moved.sum() <= query.l1s[place].value
            assert (moved.astype(object) ** 2).sum() <= query.l2s[place].squared
            assert moved.max(axis=1).sum() <= query.boxes[place].value
            reached[place] = max(reached[place], moved.sum() / float(query.l1s[place].value))
    assert reached.min() > 0.95  # a cap of one row instead of two would be passed


def test_rows_are_read_once_in_an_allowance_and_forgotten():
    gate, tally = people(table([1, 2, 3], [1.0, 2.0, 3.0], [0, 1, 1]))
    statistic = Statistic(Plain(), (Linear(),))
    source, reads = gate._curator._source, []

    class Counting:
        def rows(self, tally, use):
            reads.append(1)
            return source.rows(tally, use)

    kept = Kept(Counting())
    shape = shape_of(tally)
    found = [kept.rows(tally, lambda rows: statistic.total(rows, shape)) for _ in range(3)]
    assert len(reads) == 1
    assert found[0][0].tolist() == found[2][0].tolist() == [[6 * 64 * 256]]
    kept.forget()
    kept.rows(tally, lambda rows: statistic.total(rows, shape))
    assert len(reads) == 2


def test_rows_without_room_are_read_again():
    gate, tally = people(table([1, 2, 3], [1.0, 2.0, 3.0], [0, 1, 1]))
    statistic = Statistic(Plain(), (Linear(),))
    kept = Kept(gate._curator._source, most=2)
    for _ in range(2):
        (found,) = kept.rows(tally, lambda rows: statistic.total(rows, shape_of(tally)))
        assert found.tolist() == [[6 * 64 * 256]]


class Stumbling:
    """Two batches of rows, and an engine that fails after the first as often as it is told."""

    def __init__(self, failures=0):
        self.failures, self.reads = failures, 0

    def rows(self, tally, use):
        del tally
        self.reads += 1
        return use(self._batches())

    def _batches(self):
        yield Batch(np.array([[1], [2]], np.int32), np.zeros(2, np.int32))
        if self.failures:
            self.failures -= 1
            raise SourceError("The rows cannot be reached.", fix="Ask again.")
        yield Batch(np.array([[4]], np.int32), np.zeros(1, np.int32))


def added(batches):
    return sum(int(batch.coordinates.sum()) for batch in batches)


@pytest.mark.parametrize("room", [3, 2, 1])
def test_rows_of_which_only_some_were_read_are_not_kept(room):
    """Which rows come first depends on all of them: a row more could push out any other."""
    kept, asked = Kept(Stumbling(failures=1), most=room), people(table([1], [1.0], [0]))[1]
    with pytest.raises(SourceError):
        kept.rows(asked, added)
    assert kept.rows(asked, added) == 7
    early = Kept(Stumbling(), most=room)
    assert early.rows(asked, lambda batches: len(next(batches))) == 2
    assert [early.rows(asked, added) for _ in range(2)] == [7, 7]
    assert early.source.reads == (2 if room == 3 else 3)


def test_rows_that_are_units_weigh_one_and_take_no_cap():
    gate = noisegate.open(
        pa.table({"x": [1.0, 2.0]}), epsilon=1, columns={"x": {"between": [0, 4]}}
    )
    term = Term(expression=Field("x"), grain=Fraction(1), low=-4, high=4)
    tally = Rows(relation=Table(gate.tables["data"]), terms=(term,), rows_per_unit=1)
    with pytest.raises(NoisegateError):
        Query(tally, Statistic(Plain(), (One(),)))
    assert gate.matrix("data", ["x"], rows_per_unit=1).rows(4).whole == 1


def test_the_price_of_a_statistic_is_that_of_its_bounds():
    _, tally = people(table([1], [1.0], [0]))
    query = Query(tally, Statistic(ByKey(), (One(), Linear())))
    measured = Measurement(
        query=query, mechanisms=(Geometric(scale=512), BoxNoise(scale=2048, width=1))
    )
    first, second = measured.event().events
    assert first.sensitivity.value == 2 * 256
    assert type(second) is BoxNoiseEvent
    assert second.sensitivity.value == 2 * 256 * 256
    with pytest.raises(NoisegateError):
        Measurement(query=query, mechanisms=(Geometric(scale=512), BoxNoise(scale=2048, width=2)))
    with pytest.raises(NoisegateError):
        Query(tally)


@pytest.mark.parametrize(("rows", "columns", "cells"), [(0, 3, 2), (1, 1, 1), (100, 200, 300)])
def test_products_in_pieces_are_the_whole_products(rows, columns, cells):
    """Wide ones are taken 16 rows at a time, and the last piece is shorter."""
    coins = np.random.default_rng(0)
    left = coins.integers(-(1 << 20), 1 << 20, (rows, columns))
    right = coins.integers(-(1 << 20), 1 << 20, (columns, cells))
    other = coins.integers(-(1 << 20), 1 << 20, (rows, cells))
    held = left.astype(np.float64)
    assert np.array_equal(times(held, right.astype(np.float64)), left @ right)
    assert np.array_equal(across(held, other.astype(np.float64)), left.T @ other)


def test_many_cells_are_added_up_as_few_are():
    coins = np.random.default_rng(0)
    rows = Batch(coins.integers(-16, 17, (500, 3), np.int32), np.zeros(500, np.int32))
    lines = coins.integers(-9, 10, (40, 4))
    best = (rows.coordinates @ lines[:, :3].T + lines[:, 3]).argmax(axis=1)
    exact = np.stack([rows.coordinates[best == cell].sum(axis=0) for cell in range(40)])
    counts, sums = Statistic(Nearest(Scores(Numbers.of(lines))), (One(), Linear())).total(
        [rows], SHAPE
    )
    assert np.array_equal(sums, exact)
    assert np.array_equal(counts[:, 0], np.bincount(best, minlength=40))
