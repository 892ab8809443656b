"""Exact audits: the law of every finite mechanism on all small neighbours, in ball arithmetic.

A loss is compared with its claim to 10⁻³⁰, so a factor of two, a rank or one count cannot hide.
Each audit is also run on a deliberately broken copy, which it must catch.
"""

from dataclasses import replace
from fractions import Fraction
from itertools import combinations_with_replacement, permutations, product

import numpy as np
import pytest
from flint import arb, ctx

from noisegate.exact import real
from noisegate.mechanisms.additive.truncated_geometric import TruncatedGeometric
from noisegate.mechanisms.keys.key_selection import KeySelection, ThresholdedGeometric
from noisegate.mechanisms.quantiles import quantiles
from noisegate.mechanisms.quantiles.quantile import Quantile
from noisegate.mechanisms.quantiles.quantiles import Quantiles
from noisegate.mechanisms.quantiles.ranks import runs_near
from noisegate.mechanisms.selection import exponential, permute_and_flip, top_k
from noisegate.mechanisms.selection.exponential import Exponential
from noisegate.mechanisms.selection.permute_and_flip import PermuteAndFlip
from noisegate.mechanisms.selection.top_k import TopK
from noisegate.privacy.distance import L1

TINY = 1e-30


@pytest.fixture(autouse=True)
def _precise():
    before, ctx.prec = ctx.prec, 192
    yield
    ctx.prec = before


def loss(p, q):
    """The largest log-ratio between two laws, either way round, as a float."""
    ratios = [(a / b).log() for a, b in zip(p, q, strict=True)]
    return max(abs(float(ratio)) for ratio in ratios), ratios


def is_pure(p, q, epsilon):
    """Whether both laws are within e^ε of each other, up to TINY."""
    return all(abs(ratio) < real(epsilon) + TINY for ratio in loss(p, q)[1])


def hockey_stick(p, q, epsilon):
    """Σ max(0, p - e^ε q)."""
    gaps = [a - real(epsilon).exp() * b for a, b in zip(p, q, strict=True)]
    return sum((gap for gap in gaps if gap > 0), arb(0))


def is_approx(p, q, epsilon, delta):
    return all(hockey_stick(a, b, epsilon) < real(delta) + TINY for a, b in ((p, q), (q, p)))


def normalised(weights):
    total = sum(weights, arb(0))
    return [weight / total for weight in weights]


# --- truncated geometric -------------------------------------------------------------------------


def truncated_law(mechanism, n):
    return [mechanism._mass(m, n) for m in range(mechanism.top + 1)]


@pytest.mark.parametrize("top", [1, 2, 5, 9])
@pytest.mark.parametrize("epsilon", [Fraction(1, 10), Fraction(1), Fraction(3)])
def test_truncated_geometric_noise_costs_epsilon_and_no_less(top, epsilon):
    mechanism = TruncatedGeometric.for_epsilon(epsilon, top=top, sensitivity=L1(1))
    for n in range(top):
        p, q = truncated_law(mechanism, n), truncated_law(mechanism, n + 1)
        assert is_pure(p, q, epsilon)
        assert loss(p, q)[0] == pytest.approx(float(epsilon), rel=1e-12)


def test_a_truncated_scale_a_fifth_too_small_is_caught():
    broken = TruncatedGeometric(scale=Fraction(4, 5), top=5)
    assert not is_pure(truncated_law(broken, 2), truncated_law(broken, 3), 1)


# --- choices -------------------------------------------------------------------------------------


@pytest.fixture
def contest_of(monkeypatch):
    """The contest a mechanism holds for given scores: what it hands to the sampler."""

    def capture(mechanism, scores):
        seen = []

        def spy(contest, times, **_):
            seen.append(contest)
            return np.zeros((times, 1), np.int64)

        for module in (exponential, permute_and_flip, top_k):
            monkeypatch.setattr(module, "choose_times", spy)
        mechanism.sample(np.array(scores, np.int64))
        return seen[0]

    return capture


def exponents(contest):
    return [real(contest.factor * score) for score in contest.scores.tolist()]


def exponential_law(contest):
    return normalised([exponent.exp() for exponent in exponents(contest)])


def flip_law(contest):
    """Permute-and-flip by its definition: all orders, accept with e^(score - best)."""
    values = exponents(contest)
    best = max(contest.scores.tolist())
    accept = [(value - real(contest.factor * best)).exp() for value in values]
    law = [arb(0)] * len(values)
    orders = list(permutations(range(len(values))))
    for order in orders:
        reached = arb(1) / len(orders)
        for candidate in order:
            law[candidate] = law[candidate] + reached * accept[candidate]
            reached = reached * (1 - accept[candidate])
    return law


def top_k_law(contest, k):
    weights = [exponent.exp() for exponent in exponents(contest)]
    law = []
    for picks in permutations(range(len(weights)), k):
        left, chance = set(range(len(weights))), arb(1)
        for pick in picks:
            chance = chance * weights[pick] / sum((weights[i] for i in left), arb(0))
            left.remove(pick)
        law.append(chance)
    return law


def neighbours(candidates, *, monotone):
    moves = (0, 1) if monotone else (-1, 0, 1)
    for scores in product(range(3), repeat=candidates):
        for move in product(moves, repeat=candidates):
            yield scores, tuple(a + b for a, b in zip(scores, move, strict=True))


def worst_choice(contest_of, mechanism, law, candidates=3):
    """The largest loss over all small neighbours, for the scores' stated behaviour."""
    worst = 0.0
    for here, there in neighbours(candidates, monotone=mechanism.monotone):
        p, q = law(contest_of(mechanism, here)), law(contest_of(mechanism, there))
        worst = max(worst, loss(p, q)[0])
    return worst


@pytest.mark.parametrize("monotone", [False, True])
@pytest.mark.parametrize(
    ("kind", "law"), [(Exponential, exponential_law), (PermuteAndFlip, flip_law)]
)
def test_a_choice_loses_at_most_epsilon_on_all_small_neighbours(contest_of, kind, law, monotone):
    mechanism = kind.for_epsilon(1, score_sensitivity=1, monotone=monotone)
    assert 0.6 < worst_choice(contest_of, mechanism, law) <= 1 + TINY


@pytest.mark.parametrize(
    ("kind", "law"), [(Exponential, exponential_law), (PermuteAndFlip, flip_law)]
)
def test_a_choice_without_the_factor_two_is_caught(contest_of, kind, law):
    broken = kind(factor=Fraction(1))  # ε / Δ although the scores are not monotone
    assert worst_choice(contest_of, broken, law) > 1.2


def test_log_ratios_of_the_exponential_mechanism_have_range_epsilon(contest_of):
    """What the accountants' bounded-range theorems need, and permute-and-flip does not give."""
    mechanism = Exponential.for_epsilon(1, score_sensitivity=1)
    spans = []
    for here, there in neighbours(3, monotone=False):
        laws = (exponential_law(contest_of(mechanism, scores)) for scores in (here, there))
        ratios = loss(*laws)[1]
        spans.append(max(float(ratio) for ratio in ratios) - min(float(r) for r in ratios))
    assert max(spans) == pytest.approx(1, rel=1e-12)


@pytest.mark.parametrize("k", [1, 2, 3])
@pytest.mark.parametrize("monotone", [False, True])
def test_top_k_loses_at_most_epsilon_on_all_small_neighbours(contest_of, k, monotone):
    mechanism = TopK.for_epsilon(1, k=k, score_sensitivity=1, monotone=monotone)
    worst = worst_choice(contest_of, mechanism, lambda contest: top_k_law(contest, k))
    assert worst <= 1 + TINY


def test_top_k_that_forgets_to_share_epsilon_is_caught(contest_of):
    broken = TopK(k=2, factor=Fraction(1), monotone=True)
    worst = worst_choice(contest_of, broken, lambda contest: top_k_law(contest, 2))
    assert worst > 1.2


def test_both_choices_have_the_published_masses(contest_of):
    scores = (0, -2, -6, -7)  # in halves
    flip = PermuteAndFlip.for_epsilon(1, score_sensitivity=2)
    gumbel = Exponential.for_epsilon(1, score_sensitivity=2)
    assert [float(p) for p in flip_law(contest_of(flip, scores))] == pytest.approx(
        [0.585573, 0.265103, 0.084507, 0.064818], abs=1e-6
    )
    assert [float(p) for p in exponential_law(contest_of(gumbel, scores))] == pytest.approx(
        [0.499143, 0.302745, 0.111374, 0.086738], abs=1e-6
    )


# --- key selection -------------------------------------------------------------------------------

BUDGETS = [
    ("1", "1e-5"), ("2", "1e-8"), ("0.3", "1e-3"), ("0.05", "1e-2"), ("4", "0.3"), ("0.01", "0.4"),
    ("1", "0.99"),
]  # fmt: skip


def key_law(keys, n):
    certain = n <= 0 or n > keys.last
    shown = arb(int(n > 0)) if certain else keys._chance(n).compute()
    return [shown, 1 - shown]


@pytest.mark.parametrize(("epsilon", "delta"), BUDGETS)
def test_the_closed_form_of_key_selection_is_its_recursion(epsilon, delta):
    keys = KeySelection(epsilon=epsilon, delta=delta)
    grown, small = real(keys.epsilon).exp(), real(keys.delta)
    chance = arb(0)
    for n in range(1, keys.last + 3):
        steps = (grown * chance + small, 1 - (1 - chance - small) / grown, arb(1))
        chance = min(steps, key=float)
        assert abs(key_law(keys, n)[0] - chance) < TINY


@pytest.mark.parametrize(("epsilon", "delta"), BUDGETS)
def test_key_selection_keeps_its_budget_for_every_count(epsilon, delta):
    keys = KeySelection(epsilon=epsilon, delta=delta)
    for n in range(keys.last + 2):
        assert is_approx(key_law(keys, n), key_law(keys, n + 1), keys.epsilon, keys.delta)


@pytest.mark.parametrize(("epsilon", "delta"), BUDGETS[:4])
def test_no_key_could_be_shown_more_often(epsilon, delta):
    keys = KeySelection(epsilon=epsilon, delta=delta)
    for n in range(keys.last - 1):
        shown = key_law(keys, n + 1)[0] + 1e-12
        assert not is_approx(key_law(keys, n), [shown, 1 - shown], keys.epsilon, keys.delta)


def test_a_unit_with_two_keys_pays_for_both():
    keys = KeySelection.for_budget(1, "1e-2", keys_per_unit=2)
    for first, second in combinations_with_replacement(range(0, keys.last + 1, 2), 2):
        here, there = (
            [a * b for a, b in product(key_law(keys, first + i), key_law(keys, second + i))]
            for i in (0, 1)
        )
        assert is_approx(here, there, 1, Fraction(1, 100))


@pytest.mark.parametrize(
    ("epsilon", "delta", "turn", "last"), [(1, "1e-5", 11, 22), (2, "1e-8", 10, 19)]
)
def test_key_selection_turns_where_published(epsilon, delta, turn, last):
    keys = KeySelection(epsilon=epsilon, delta=delta)
    assert (keys.turn, keys.last) == (turn, last)


@pytest.mark.parametrize(
    ("epsilon", "delta", "half", "threshold"), [(1, "1e-5", 12, 13), ("0.3", "1e-3", 18, 23)]
)
def test_optimal_selection_shows_keys_earlier_than_a_threshold(epsilon, delta, half, threshold):
    keys = KeySelection(epsilon=epsilon, delta=delta)
    assert min(n for n in range(99) if keys.probability(n)[0] >= Fraction(1, 2)) == half
    noisy = ThresholdedGeometric.for_budget(epsilon, delta, keys_per_unit=1)
    assert noisy.threshold == threshold


def thresholded_law(mechanism, n, *, reach=60):
    """Hidden, then every shown count from the threshold on; the last one holds the tail."""
    if n == 0:
        return [arb(1)] + [arb(0)] * (reach + 1)
    alpha = (-real(1 / mechanism.scale)).exp()
    shown = range(mechanism.threshold, mechanism.threshold + reach)
    law = [(1 - alpha) / (1 + alpha) * alpha ** abs(m - n) for m in shown]
    law.append(alpha ** (shown[-1] + 1 - n) / (1 + alpha))
    return [1 - sum(law, arb(0)), *law]


@pytest.mark.parametrize(("epsilon", "delta"), BUDGETS[:4])
def test_thresholded_counts_keep_their_budget_for_every_count(epsilon, delta):
    mechanism = ThresholdedGeometric.for_budget(epsilon, delta, keys_per_unit=1)
    event = mechanism.event(1)
    assert event.delta <= Fraction(delta)
    for n in range(40):
        p, q = thresholded_law(mechanism, n), thresholded_law(mechanism, n + 1)
        assert is_approx(p, q, event.epsilon, event.delta)


@pytest.mark.parametrize(("epsilon", "delta"), BUDGETS[:4])
def test_a_threshold_one_too_low_is_caught(epsilon, delta):
    honest = ThresholdedGeometric.for_budget(epsilon, delta, keys_per_unit=1)
    broken = ThresholdedGeometric(scale=honest.scale, threshold=honest.threshold - 1)
    p, q = thresholded_law(broken, 0), thresholded_law(broken, 1)
    assert not is_approx(p, q, Fraction(epsilon), Fraction(delta))


# --- quantiles -----------------------------------------------------------------------------------


def rank_law(data, goal, points):
    """The law of `private_ranks`, point by point, from its runs."""
    runs, is_all = runs_near(np.array(data, np.int64), goal[0], points=points, reach=len(data) + 1)
    assert is_all
    weights = [arb(0)] * points
    parts = (runs.first.tolist(), runs.length.tolist(), runs.score.tolist())
    for first, length, score in zip(*parts, strict=True):
        for point in range(first, first + length):
            assert weights[point] == 0  # each point is in one run
            weights[point] = real(goal[1] / goal[0].denominator * score).exp()
    return normalised(weights)


def rank_law_by_definition(data, goal, points):
    tau, factor = goal
    errors = [
        max(
            Fraction(0),
            tau * len(data) - sum(x <= point for x in data),
            sum(x < point for x in data) - tau * len(data),
        )
        for point in range(points)
    ]
    return normalised([(-real(factor * error)).exp() for error in errors])


SMALL = [data for size in range(5) for data in combinations_with_replacement(range(4), size)]
TAUS = [Fraction(1, 2), Fraction(1, 4), Fraction(2, 3), Fraction(0), Fraction(1)]


@pytest.mark.parametrize("tau", TAUS)
def test_the_runs_give_the_law_of_the_definition(tau):
    for data in SMALL:
        fast, slow = (
            law(data, (tau, Fraction(1, 3)), 4) for law in (rank_law, rank_law_by_definition)
        )
        assert all(abs(a - b) < TINY for a, b in zip(fast, slow, strict=True))


def worst_quantile(tau, factor):
    worst = 0.0
    for data in SMALL:
        here = rank_law(data, (tau, factor), 4)
        for added in range(4):
            there = rank_law(sorted((*data, added)), (tau, factor), 4)
            worst = max(worst, loss(here, there)[0])
    return worst


@pytest.mark.parametrize("tau", TAUS)
def test_a_quantile_loses_at_most_epsilon_on_all_small_neighbours(tau):
    factor = Quantile.for_epsilon(1, tau=tau, low=0, high=3).factor
    assert 0.5 < worst_quantile(tau, factor) <= 1 + TINY


def test_a_median_with_sensitivity_one_quarter_is_caught():
    assert worst_quantile(Fraction(1, 2), Fraction(2)) > 1.2


def scripted_quantiles(monkeypatch, mechanism, data):
    """The joint law of all released quantiles, by walking every outcome of every call."""
    law, scripts = {}, [()]

    while scripts:
        script = scripts.pop()
        chance, calls = [arb(1)], [0]

        def walk(block, goal, times, *, points, bits, script=script, chance=chance, calls=calls):
            at, calls[0] = calls[0], calls[0] + 1
            if at >= len(script):
                scripts.extend((*script, point) for point in range(points))
                raise StopIteration
            chances = rank_law(block.tolist(), (goal.tau, goal.factor), points)
            chance[0] = chance[0] * chances[script[at]]
            return script[at]

        monkeypatch.setattr(quantiles, "private_ranks", walk)
        try:
            outcome = tuple(mechanism.sample(np.array(data, np.int64)).tolist())
        except StopIteration:
            continue
        law[outcome] = law.get(outcome, arb(0)) + chance[0]
    return law


def worst_quantiles(monkeypatch, mechanism, sizes):
    worst = 0.0
    datasets = [data for size in sizes for data in combinations_with_replacement(range(3), size)]
    for data in datasets:
        here = scripted_quantiles(monkeypatch, mechanism, data)
        assert abs(sum(here.values(), arb(0)) - 1) < TINY
        for added in range(3):
            there = scripted_quantiles(monkeypatch, mechanism, sorted((*data, added)))
            assert here.keys() == there.keys()
            worst = max(worst, loss(here.values(), [there[o] for o in here])[0])
    return worst


THREE = {"taus": ("1/4", "1/2", "3/4"), "low": 0, "high": 2, "tie_bits": 0}


def test_three_quantiles_lose_at_most_epsilon_on_all_small_neighbours(monkeypatch):
    mechanism = Quantiles.for_epsilon(1, **THREE)
    assert 0.4 < worst_quantiles(monkeypatch, mechanism, (0, 1, 2, 3)) <= 1 + TINY


def test_quantiles_that_pay_each_level_with_all_of_epsilon_are_caught(monkeypatch):
    honest = Quantiles.for_epsilon(1, **THREE)
    broken = replace(honest, epsilon_levels=(Fraction(1), Fraction(1)))
    assert worst_quantiles(monkeypatch, broken, (1, 2)) > 1.1


def blocks_of(monkeypatch, mechanism, data, script):
    """What each call gets to see when the calls release the scripted points."""
    blocks, released = [], iter(script)

    def record(block, goal, times, *, points, bits):
        blocks.append((block.tolist(), goal, points))
        return min(next(released), points - 1)

    monkeypatch.setattr(quantiles, "private_ranks", record)
    mechanism.sample(np.array(data, np.int64))
    return blocks


def touched_calls(monkeypatch, mechanism):
    """The largest number of calls of one level that a single added value changes."""
    worst = 0
    for script in product(range(4), repeat=3):
        for data in combinations_with_replacement(range(4), 3):
            here = blocks_of(monkeypatch, mechanism, data, script)
            for added in range(4):
                there = blocks_of(monkeypatch, mechanism, sorted((*data, added)), script)
                differ = [a != b for a, b in zip(here, there, strict=True)]
                worst = max(worst, differ[0], sum(differ[1:]))
    return worst


def test_one_value_enters_one_call_of_each_level(monkeypatch):
    mechanism = Quantiles.for_epsilon(1, **{**THREE, "high": 3})
    assert touched_calls(monkeypatch, mechanism) == 1


def test_quantiles_that_give_a_value_to_both_sides_are_caught(monkeypatch):
    def overlapping(keys, cuts, *, open_end):
        return keys[(keys >= cuts[0]) & (keys <= cuts[1])]

    monkeypatch.setattr(quantiles, "_between", overlapping)
    mechanism = Quantiles.for_epsilon(1, **{**THREE, "high": 3})
    assert touched_calls(monkeypatch, mechanism) == 2


@pytest.mark.parametrize("reach", [1, 2, 3])
@pytest.mark.parametrize("tau", TAUS)
def test_near_and_far_runs_are_all_runs(tau, reach):
    from noisegate.mechanisms.quantiles.ranks import _far_runs

    for size in (5, 6, 7):
        for data in combinations_with_replacement(range(5), size):
            values = np.array(data, np.int64)
            near, is_all = runs_near(values, tau, points=5, reach=reach)
            parts = [near] if is_all else [near, _far_runs(values, tau, near, points=5)]
            seen = {}
            for part in parts:
                for first, length, score in zip(part.first, part.length, part.score, strict=True):
                    seen.update(dict.fromkeys(range(first, first + length), int(score)))
            assert sum(int(part.length.sum()) for part in parts) == 5
            full = rank_scores(data, tau, 5)
            assert [seen[point] for point in range(5)] == full
            if not is_all:
                far = parts[1].score[parts[1].length > 0]
                assert far.max(initial=-99) <= -reach * tau.denominator


def rank_scores(data, tau, points):
    goal = tau * len(data)
    return [
        -int(
            max(0, goal - sum(x <= o for x in data), sum(x < o for x in data) - goal)
            * tau.denominator
        )
        for o in range(points)
    ]
