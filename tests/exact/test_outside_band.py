"""The two-sided sparse vector: the exact law of short runs, what it loses, and slips that lose more.

The law of an answer stream is a sum over the noise (z, y) of both ends of Pr[z] Pr[y] Π Pr[answer].
It is summed here in floats, with all terms positive, good to about 10⁻¹¹.
"""

from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from noisegate.accounting.zcdp import zcdp_loss
from noisegate.mechanisms.selection import above_threshold, outside_band
from noisegate.mechanisms.selection.outside_band import OutsideBand, sum_tail

SPAN = 100  # noise of an end beyond this weighs less than e^-40 below
ENDS = np.arange(-SPAN, SPAN + 1)


def mass(scale, z):
    return np.tanh(0.5 / scale) * np.exp(-np.abs(z) / scale)


def at_least(scale, t):
    """Pr[Z ≥ t] for an array of whole t."""
    tail = np.exp(-np.abs(np.where(t >= 1, t, 1 - t)) / scale) / (1 + np.exp(-1 / scale))
    return np.where(t >= 1, tail, 1 - tail)


def chances(query_scale, top, bottom, value):
    """Pr of above, below and inside, for arrays of ends."""
    above = at_least(query_scale, top - value)
    below = at_least(query_scale, value - np.minimum(bottom, top - 1))  # -Z ≥ value - bottom
    return {1: above, -1: below, 0: np.maximum(1 - above - below, 0)}


def ends_of(spec, *, shared=False):
    """Both ends for all noises, and how likely they are; ``shared``: one noise for both."""
    z, y = ENDS[:, None], ENDS[None, :]
    weights = mass(spec[1], z) * mass(spec[1], y)
    if shared:
        y, weights = z, mass(spec[1], z)
    return spec[0] + z, -spec[0] - y, weights


def law(spec, values, **more):
    """The chances of all runs on these differences, as far as the first ``cutoff`` yeses."""
    top, bottom, weights = ends_of(spec, **more)
    each = [chances(spec[2], top, bottom, value) for value in values]
    found = {}
    for answers in product((0, 1, -1), repeat=len(values)):
        yeses = np.flatnonzero(answers)
        length = yeses[spec[3] - 1] + 1 if yeses.size >= spec[3] else len(values)
        if answers[:length] not in found:
            terms = weights
            for place, answer in enumerate(answers[:length]):
                terms = terms * each[place][answer]
            found[answers[:length]] = float(terms.sum())
    return found


def log_chance(spec, steps, **more):
    """ln Pr of a run of (difference, answer, how often in a row)."""
    top, bottom, terms = ends_of(spec, **more)
    for value, answer, times in steps:
        terms = terms * chances(spec[2], top, bottom, value)[answer] ** times
    return np.log(terms.sum())


def worst(spec, **more):
    """The largest log-ratio where noes are surprising, so that they force an end, and yeses too."""
    most = 0.0
    for at, sides in product((-25, 25), product((1, -1), repeat=spec[3])):
        for no_move, *moves in product((0, 1), repeat=1 + spec[3]):
            here = [(at, 0, 30), *((-20 * side, side, 1) for side in sides)]
            there = [
                (value + move, side, times)
                for (value, side, times), move in zip(here, (no_move, *moves), strict=True)
            ]
            gap = log_chance(spec, here, **more) - log_chance(spec, there, **more)
            most = max(most, abs(gap))
    return most


def spec_of(band):
    return band.threshold, float(band.threshold_scale), float(band.query_scale), band.cutoff


def test_a_law_is_a_law():
    assert sum(law((3, 2.0, 4.0, 1), [0, 2, -5]).values()) == pytest.approx(1, abs=1e-9)


@pytest.mark.parametrize("cutoff", [1, 2])
def test_a_run_loses_its_price_and_no_more(cutoff):
    band = OutsideBand.for_epsilon(1, threshold=6, sensitivity=1, cutoff=cutoff)
    assert 0.99 < worst(spec_of(band)) <= 1 + 1e-9


def test_a_run_with_fewer_yeses_loses_less():
    """What the session gives back: log-ratios of a run are at most ε₁ and its own yeses."""
    band = OutsideBand.for_epsilon(1, threshold=6, sensitivity=1, cutoff=2)
    event = band.event(Fraction(1))
    each = float(event.epsilon_queries) / 2
    for here, move in product(product((-25, 0, 25), repeat=2), product((0, 1), repeat=2)):
        one = law(spec_of(band), here)
        other = law(spec_of(band), np.add(here, move).tolist())
        for run, chance in one.items():
            loss = abs(np.log(chance / other[run]))
            assert loss <= float(event.epsilon_threshold) + np.count_nonzero(run) * each + 1e-9


def test_the_hockey_stick_is_nothing_at_the_price_and_something_below():
    band = OutsideBand.for_epsilon(1, threshold=6, sensitivity=1, cutoff=1)
    one, other = (law(spec_of(band), values) for values in ([6, 6, 6], [7, 7, 7]))
    gaps = [
        sum(max(0.0, p[run] - np.exp(epsilon) * q[run]) for run in p)
        for p, q in ((one, other), (other, one))
        for epsilon in (1.0, 0.05)
    ]
    assert max(gaps[0], gaps[2]) <= 1e-12
    assert max(gaps[1], gaps[3]) > 1e-3


def test_one_noise_for_both_ends_is_caught():
    band = OutsideBand.for_epsilon(1, threshold=6, sensitivity=1, cutoff=1)
    assert worst(spec_of(band), shared=True) > 1.2


def test_scales_that_forget_the_cutoff_are_caught():
    threshold, end, query, _ = spec_of(
        OutsideBand.for_epsilon(1, threshold=6, sensitivity=1, cutoff=2)
    )
    assert worst((threshold, end, query / 2, 2)) > 1.3


def test_ends_without_noise_are_caught():
    """All noes of a long stream: every one of them loses, and they add up."""
    band = OutsideBand.for_epsilon(1, threshold=2, sensitivity=1, cutoff=1)
    _, end, query, _ = spec_of(band)
    noes = 60
    one, other = (
        np.log(chances(query, np.array(2), np.array(-2), value)[0]) * noes for value in (2, 3)
    )
    assert one - other > 5
    z, y = ENDS[:, None], ENDS[None, :]
    honest = [
        np.log((mass(end, z) * mass(end, y) * chances(query, 2 + z, -2 - y, v)[0] ** noes).sum())
        for v in (2, 3)
    ]
    assert abs(honest[0] - honest[1]) <= 1 + 1e-9


def test_counts_without_noise_are_caught():
    threshold, end, _, _ = spec_of(OutsideBand.for_epsilon(1, threshold=6, sensitivity=1, cutoff=1))
    assert worst((threshold, end, 0.2, 1)) > 3


def test_a_run_compares_as_its_law_says(monkeypatch):
    """With noise that is given, the answers are those of the definition, ties too."""
    given = []

    def drawn(_scale, shape, *, bits):
        count = int(np.prod(shape))
        found, given[:] = given[:count], given[count:]
        return np.array(found, np.int64)

    for drawing in (outside_band, above_threshold):  # the ends, and the questions of any run
        monkeypatch.setattr(drawing, "discrete_laplace", drawn)
    band = OutsideBand(threshold=5, threshold_scale=1, query_scale=1, cutoff=2)
    given += [2, -1, 0, -1, 0, 0, 0, 9, -3]  # ends 7 and -4
    run = band.start()
    assert run.ask(np.array([6, 8])).tolist() == [0, 1]
    assert run.ask(np.array([-3, -4, 50])).tolist() == [0, -1]
    assert run.is_over
    given[:] = [-9, -9, 0]  # ends cross: above goes before below
    assert band.start().ask(np.array([0])).tolist() == [1]


def test_the_slack_is_the_tail_of_two_noises():
    wide, narrow = Fraction(7), Fraction(3)
    z = np.arange(-400, 401)
    sums = np.convolve(mass(7.0, z), mass(3.0, z))
    for least in (1, 5, 40):
        exact = sums[800 + least :].sum()
        assert float(sum_tail(wide, narrow, least).mid()) == pytest.approx(exact, rel=1e-9)
    same = np.convolve(mass(7.0, z), mass(7.0, z))[800 + 20 :].sum()
    above = float(sum_tail(wide, wide, 20).mid())
    assert same <= above <= same * 1.00001
    band = OutsideBand(threshold=5, threshold_scale=3, query_scale=7, cutoff=2)
    slack = band.slack(Fraction(1, 1000))
    assert sums[800 + slack + 1 :].sum() <= 1e-3 < sums[800 + slack :].sum()


def law_of_runs(spec, values, runs):
    """The chances of all answers where each yes ends a run, and the next has ends of its own."""
    if not runs or not values:
        return {(): 1.0}
    found = {}
    for first, chance in law(spec, values).items():
        more = law_of_runs(spec, values[len(first) :], runs - 1) if any(first) else {(): 1.0}
        for rest, then in more.items():
            found[first + rest] = chance * then
    return found


def renyi(p, q, order):
    return np.log(sum(p[run] ** order * q[run] ** (1 - order) for run in p)) / (order - 1)


def test_runs_with_one_yes_each_add_up_like_zcdp():
    """Two runs of ε = 1/2 are ρ = 2 · ε²/2: of all orders, D ≤ order · ρ, in both directions."""
    band = OutsideBand.for_epsilon(Fraction(1, 2), threshold=2, sensitivity=1, cutoff=1)
    rho = float(2 * zcdp_loss(band.event(Fraction(1))).rho)
    assert rho == 0.25
    worst_seen = 0.0
    for here, moves in (([3, -4, 2], [1, 1, 1]), ([5, 5, 5], [1, 0, 1]), ([-9, 9, 0], [0, 1, 1])):
        one = law_of_runs(spec_of(band), here, 2)
        other = law_of_runs(spec_of(band), np.add(here, moves).tolist(), 2)
        assert sum(one.values()) == pytest.approx(1, abs=1e-9)
        for order in (1.01, 2, 8, 64):
            for p, q in ((one, other), (other, one)):
                worst_seen = max(worst_seen, renyi(p, q, order) / (order * rho))
    assert 0.01 < worst_seen <= 1


def test_runs_that_share_one_price_are_caught():
    """Scales of one run for all of ε, used for two runs: log-ratios pass ε."""
    band = OutsideBand.for_epsilon(Fraction(1, 2), threshold=2, sensitivity=1, cutoff=1)
    spec, run = spec_of(band), [(25, 0, 30), (-20, 1, 1)]
    moved = [(26, 0, 30), (-20, 1, 1)]
    gap = 2 * (log_chance(spec, run) - log_chance(spec, moved))  # the runs are independent
    assert gap > 0.9
