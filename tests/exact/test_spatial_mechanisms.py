"""PrivTree and cuts at medians on tiny tables: the law of every output, in ball arithmetic.

What the code compares is found out from the code itself, by handing it scripted noise. Each audit
is also run on broken copies, which it must catch.
"""

from dataclasses import replace
from fractions import Fraction
from importlib import import_module
from itertools import pairwise, product

import mpmath
import numpy as np
import pytest
from bit_tree import RecordingBits, ReplayedBits, mp
from flint import arb, ctx

from noisegate.errors import SpecError
from noisegate.exact import real
from noisegate.mechanisms.partitions import privtree, splits
from noisegate.mechanisms.partitions.privtree import PrivTree, cut_levels, path_loss
from noisegate.mechanisms.partitions.splits import Splits
from noisegate.noise import choice
from noisegate.noise.bits import SYSTEM
from noisegate.noise.choice import Contest, choose_each
from noisegate.privacy.distance import L1
from refusals import about

TINY = 1e-25
REACH = 100


@pytest.fixture(autouse=True)
def _precise():
    before, ctx.prec = ctx.prec, 192
    yield
    ctx.prec = before


def neighbours(size, values):
    """All small vectors of cells, each with those that one more row makes of it."""
    for cells in product(values, repeat=size):
        for place in range(size):
            yield cells, (*cells[:place], cells[place] + 1, *cells[place + 1 :])


# --- PrivTree ------------------------------------------------------------------------------------


class Noise:
    """Noise for all boxes, level by level, in place of the sampler."""

    def __init__(self, values):
        self.left = list(values)

    def __call__(self, scale, size, *, bits):
        count = int(np.prod(size))
        taken, self.left = self.left[:count], self.left[count:]
        return np.array(taken, np.int64).reshape(size)


def bars(monkeypatch, mechanism, cells):
    """For each box the least noise that cuts it, when all boxes above are cut."""
    boxes = sum(level[0].shape[0] for level in cut_levels(mechanism.shape)[: mechanism.depth])
    found = []
    for box in range(boxes):
        low, high = -REACH, REACH
        while low < high:
            middle = (low + high) // 2
            noise = [10 * REACH] * boxes
            noise[box] = middle
            monkeypatch.setattr(privtree, "discrete_laplace", Noise(noise))
            cut = mechanism.sample(np.array(cells, np.int64))[box]
            low, high = (low, middle) if cut else (middle + 1, high)
        assert -REACH < low < REACH
        found.append(low)
    return found


def tail(scale, t):
    """Pr[Z ≥ t] of the two-sided geometric law."""
    alpha = (-real(1 / scale)).exp()
    if t >= 1:
        return alpha**t / (1 + alpha)
    return 1 - alpha ** (1 - t) / (1 + alpha)


def trees(shape, depth):
    """All outputs: sets of boxes that are cut, with each box's parent."""
    parents, start, above = [], 0, 0
    for _, _, whose in cut_levels(shape)[:depth]:
        parents += [above + w if start else -1 for w in whose.tolist()]
        above, start = start, start + whose.size
    for flags in product((0, 1), repeat=len(parents)):
        if all(not cut or p < 0 or flags[p] for cut, p in zip(flags, parents, strict=True)):
            yield flags, parents


def tree_law(monkeypatch, mechanism, cells):
    chances = [tail(mechanism.scale, bar) for bar in bars(monkeypatch, mechanism, cells)]
    law = []
    for flags, parents in trees(mechanism.shape, mechanism.depth):
        total = arb(1)
        for cut, parent, chance in zip(flags, parents, chances, strict=True):
            if parent < 0 or flags[parent]:
                total = total * (chance if cut else 1 - chance)
        law.append(total)
    assert abs(sum(law, arb(0)) - 1) < TINY
    return law


def worst_tree(monkeypatch, mechanism, pairs):
    """The largest and the smallest log-ratio over all outputs and given neighbours."""
    known = {}
    ratios = []
    for pair in pairs:
        for cells in pair:
            if cells not in known:
                known[cells] = tree_law(monkeypatch, mechanism, cells)
        before, after = (known[cells] for cells in pair)
        ratios += [(b / a).log() for a, b in zip(before, after, strict=True)]
    return max(map(float, ratios)), min(map(float, ratios))


LINE = PrivTree(scale=Fraction(3, 2), decay=2, threshold=0, depth=2, shape=(4,))
DEEP = PrivTree(scale=Fraction(2), decay=3, threshold=1, depth=3, shape=(8,))
SQUARE = PrivTree(scale=Fraction(1), decay=1, threshold=-1, depth=2, shape=(3, 2))
ALONG = [((0,) * 3 + (c,) + (0,) * 4, (0,) * 3 + (c + 1,) + (0,) * 4) for c in range(14)]


def test_the_tree_of_four_cells_loses_what_is_claimed_and_no_less(monkeypatch):
    most, least = worst_tree(monkeypatch, LINE, neighbours(4, (0, 2, 3)))
    claim = float(LINE.event(L1(1)).epsilon)
    assert most == pytest.approx(claim, rel=1e-12)
    assert claim == pytest.approx(2 / 1.5, rel=1e-12)
    assert least >= -1 / 1.5 - 1e-12


@pytest.mark.parametrize("mechanism", [DEEP, replace(DEEP, decay=1), replace(DEEP, depth=1)])
def test_one_crowded_cell_is_the_worst_case_of_a_deep_tree(monkeypatch, mechanism):
    most, _ = worst_tree(monkeypatch, mechanism, ALONG)
    assert most == pytest.approx(float(mechanism.event(L1(1)).epsilon), rel=1e-12)


def test_the_claim_holds_on_an_uneven_square(monkeypatch):
    pairs = list(neighbours(6, (0, 1)))
    most, _ = worst_tree(monkeypatch, SQUARE, pairs)
    assert most <= float(SQUARE.event(L1(1)).epsilon) * (1 + 1e-12)


class Shim:
    """NumPy with one broken function."""

    def __init__(self, **broken):
        self.__dict__.update(broken)

    def __getattr__(self, name):
        return getattr(np, name)


def test_trees_without_a_floor_or_with_less_decay_are_caught(monkeypatch):
    claim = float(DEEP.event(L1(1)).epsilon) * (1 + 1e-12)
    assert worst_tree(monkeypatch, DEEP, ALONG)[0] <= claim
    assert worst_tree(monkeypatch, replace(DEEP, decay=2), ALONG)[0] > claim
    assert worst_tree(monkeypatch, replace(DEEP, scale=Fraction(19, 10)), ALONG)[0] > claim
    with monkeypatch.context() as patch:
        patch.setattr(privtree, "np", Shim(maximum=lambda a, b: a))
        assert worst_tree(patch, replace(DEEP, decay=4), ALONG)[0] > claim


def test_cells_below_zero_count_as_zero_so_that_parts_hold_no_more_than_the_whole(monkeypatch):
    for below in (-1, -50):
        cells = (3, below, 0, 1)
        assert bars(monkeypatch, LINE, cells) == bars(monkeypatch, LINE, (3, 0, 0, 1))


@pytest.mark.parametrize("epsilon", ["1/100", "1/3", "1", "7"])
@pytest.mark.parametrize("shape", [(2,), (256, 256), (5, 7, 3), (1000,)])
def test_a_tree_made_for_epsilon_costs_at_most_that_and_almost_all_of_it(epsilon, shape):
    mechanism = PrivTree.for_epsilon(epsilon, shape=shape)
    spent = mechanism.event(L1(3)).epsilon / 3
    assert Fraction(93, 100) * Fraction(epsilon) <= spent <= Fraction(epsilon)
    assert mechanism.decay >= mechanism.scale * Fraction(69, 100)  # the mean family stays below 1


def test_the_loss_of_a_path_is_below_the_published_bound():
    for parts in (2, 4, 8):
        scale = Fraction(2 * parts - 1, parts - 1)
        decay = int(np.ceil(float(scale) * np.log(parts) * 1000))
        assert path_loss(1000 * scale, decay, 60) * 1000 <= 1


# --- cuts ----------------------------------------------------------------------------------------


def contest_of(monkeypatch, mechanism, cells):
    seen = []

    def spy(contest, starts, *, bits):
        seen.append((contest, starts))
        return starts

    monkeypatch.setattr(splits, "choose_each", spy)
    mechanism.sample(np.array(cells, np.int64))
    return seen[0]


def cut_law(monkeypatch, mechanism, cells):
    """The law of all cuts together, a list of places for each box."""
    contest, starts = contest_of(monkeypatch, mechanism, cells)
    laws = []
    for start, end in pairwise([*starts.tolist(), contest.scores.size]):
        weights = [real(contest.factor * s).exp() for s in contest.scores[start:end].tolist()]
        laws.append([weight / sum(weights, arb(0)) for weight in weights])
    return [np.prod(each) for each in product(*laws)]


def worst_cut(monkeypatch, mechanism, pairs):
    found = []
    for before, after in pairs:
        p, q = (cut_law(monkeypatch, mechanism, cells) for cells in (before, after))
        ratios = [float((b / a).log()) for a, b in zip(p, q, strict=True)]
        found.append((max(map(abs, ratios)), max(ratios) - min(ratios)))
    return [max(each) for each in zip(*found, strict=True)]


TWO = Splits.for_epsilon(1, shape=(2, 4), boxes=((0, 0, 0, 3, 1), (1, 0, 1, 2, 1)))


def test_cuts_lose_what_is_claimed_and_their_range_reaches_it(monkeypatch):
    pairs = [((9, 0, 0, 30, 0, 0, 0, 0), (10, 0, 0, 30, 0, 0, 0, 0))]
    loss, span = worst_cut(monkeypatch, TWO, [*list(neighbours(8, (0, 1)))[::7], *pairs])
    claim = float(TWO.event(L1(1)).epsilon)
    assert loss <= claim + TINY
    assert span <= claim * (1 + 1e-12)
    assert span == pytest.approx(claim, rel=1e-12)


def test_a_unit_in_two_boxes_loses_its_own_total(monkeypatch):
    pair = [((0, 3, 0, 1, 1, 0, 1, 0), (1, 3, 0, 1, 2, 0, 1, 0))]
    assert worst_cut(monkeypatch, TWO, pair)[1] <= float(TWO.event(L1(2)).epsilon) * (1 + 1e-12)


def test_sharper_cuts_and_overlapping_boxes_are_caught(monkeypatch):
    pairs = list(neighbours(8, (0, 1)))[::7]
    claim = float(TWO.event(L1(1)).epsilon) * (1 + 1e-12)
    sharper = replace(TWO, factor=TWO.factor * Fraction(6, 5))
    assert worst_cut(monkeypatch, sharper, pairs)[1] > claim
    with pytest.raises(SpecError, check=about("overlap")):
        Splits.for_epsilon(1, shape=(2, 4), boxes=((0, 0, 0, 3, 1), (0, 1, 1, 3, 1)))
    monkeypatch.setattr(splits, "_overlap", lambda *_: False)
    both = Splits.for_epsilon(1, shape=(2, 4), boxes=((0, 0, 0, 3, 1), (0, 0, 0, 3, 1)))
    assert worst_cut(monkeypatch, both, pairs)[1] > claim


def test_scores_are_the_differences_of_both_sides(monkeypatch):
    cells = np.arange(8) ** 2
    contest, starts = contest_of(monkeypatch, TWO, cells)
    table = cells.reshape(2, 4)
    first = [-abs(int(table[0, :k].sum() - table[0, k:].sum())) for k in (1, 2, 3)]
    second = [-abs(int(table[1, :k].sum() - table[1, k:3].sum())) for k in (1, 2)]
    assert contest.scores.tolist() == first + second
    assert starts.tolist() == [0, 3]


# --- many races at once --------------------------------------------------------------------------


def exact_winners(contest, starts, words):
    keys = []
    for score, word in zip(contest.scores.tolist(), words, strict=True):
        exponential = -mpmath.log((mpmath.mpf(int(word)) + 0.5) / 2**64)
        keys.append(mp(contest.factor * score) - mpmath.log(exponential))
    ends = pairwise([*starts.tolist(), len(keys)])
    return [max(range(start, end), key=keys.__getitem__) for start, end in ends]


def random_races():
    scores = (SYSTEM.words(24, 64) % np.uint64(9)).astype(np.int64) - 4
    scores[10:] += 1 << 40
    return Contest(scores, Fraction(1, 3)), np.array([0, 1, 5, 10, 20])


def test_each_stretch_is_won_by_its_largest_exact_noisy_score(monkeypatch):
    module = import_module("noisegate.noise.choice")
    with mpmath.workdps(60):
        for _ in range(60):
            contest, starts = random_races()
            recording = RecordingBits(SYSTEM)
            fast = choose_each(contest, starts, bits=recording).tolist()
            assert fast == exact_winners(contest, starts, recording.record[0][2])
            with monkeypatch.context() as patch:  # floats decide nothing
                patch.setattr(module, "_ULP", np.inf)
                slow = choose_each(contest, starts, bits=ReplayedBits(recording.record)).tolist()
            assert slow == fast


def test_races_with_a_wrong_bound_on_their_error_are_caught(monkeypatch):
    ends = choice._ends
    monkeypatch.setattr(
        choice, "_ends", lambda c, *rest: ends(replace(c, factor=c.factor / 2), *rest)
    )
    with mpmath.workdps(60):
        wrong = 0
        for _ in range(30):
            contest, starts = random_races()
            recording = RecordingBits(SYSTEM)
            found = choose_each(contest, starts, bits=recording).tolist()
            wrong += found != exact_winners(contest, starts, recording.record[0][2])
    assert wrong


@pytest.mark.parametrize(
    ("scores", "starts", "counts"),
    [
        ([1, 2], [1], None),
        ([1, 2], [0, 0], None),
        ([1, 2], [0, 2], None),
        ([1], [0], [1]),
        ([1], [], None),
    ],
)
def test_stretches_that_do_not_fit_are_refused(scores, starts, counts):
    multiplicity = None if counts is None else np.array(counts)
    contest = Contest(np.array(scores), Fraction(1), multiplicity)
    with pytest.raises(SpecError):
        choose_each(contest, np.array(starts, np.int64))


# --- what cannot be, and what is very large ------------------------------------------------------

ENDS = np.iinfo(np.int64)


@pytest.mark.parametrize("cells", [[ENDS.max] * 8, [ENDS.min] * 8, [ENDS.max, ENDS.min] * 4])
def test_the_largest_cells_neither_wrap_nor_fail(cells):
    exact = np.array(cells, np.int64)
    places = TWO.sample(exact)
    assert np.all((places >= 1) & (places <= [3, 2]))
    flags = DEEP.sample(exact)
    assert set(flags.tolist()) <= {0, 1}
    if min(cells) > 0:
        assert flags.all()
        assert places[0] == 2  # in the middle


@pytest.mark.parametrize(
    "make",
    [
        lambda: Splits.for_epsilon(0, shape=(4,), boxes=((0, 3, 0),)),
        lambda: Splits.for_epsilon(1, shape=(4,), boxes=()),
        lambda: Splits.for_epsilon(1, shape=(4,), boxes=((0, 3),)),
        lambda: Splits.for_epsilon(1, shape=(4,), boxes=((0, 4, 0),)),
        lambda: Splits.for_epsilon(1, shape=(4,), boxes=((-1, 3, 0),)),
        lambda: Splits.for_epsilon(1, shape=(4,), boxes=((2, 2, 0),)),
        lambda: Splits.for_epsilon(1, shape=(4,), boxes=((0, 3, 1),)),
        lambda: Splits.for_epsilon(1, shape=(0,), boxes=((0, 3, 0),)),
        lambda: Splits(factor=Fraction(1), shape=(4,), boxes=(0, Fraction(5, 2), 0)),
        lambda: TWO.sample(np.zeros(7, np.int64)),
        lambda: TWO.event(L1(0)),
        lambda: PrivTree.for_epsilon(0, shape=(4,)),
        lambda: PrivTree.for_epsilon(1, shape=()),
        lambda: PrivTree.for_epsilon(1, shape=(1 << 27,)),
        lambda: PrivTree.for_epsilon(1, shape=(4,), ratio=0),
        lambda: replace(LINE, decay=0),
        lambda: replace(LINE, depth=0),
        lambda: replace(LINE, threshold=Fraction(1, 2)),
        lambda: replace(LINE, scale=Fraction(0)),
        lambda: LINE.sample(np.zeros(5, np.int64)),
        lambda: LINE.sample(np.zeros(4)),
    ],
)
def test_what_has_no_meaning_is_refused_with_a_fix(make):
    with pytest.raises(SpecError) as refusal:
        make()
    assert refusal.value.fix
