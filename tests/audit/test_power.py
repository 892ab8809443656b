"""Audits of choices have the power they state: their chances are derived anew, in closed form.

For each audit the chance of its event is computed on both neighbours, of the honest copy and of
one with a fifth too little noise. From these follow the share of the claim that can be reached, and
how often the broken copy would be missed: an exact sum over both binomial counts.
"""

from math import exp, log

import numpy as np
import pytest
from scipy.stats import binom
from test_audits import ALPHA

from noisegate.audit.audit import audit_named
from noisegate.audit.confidence import epsilon_lower, probability_lower, probability_upper

MISSED = 1e-4


def laplace(scale, reach=400):
    at = np.arange(-reach, reach + 1)
    alpha = exp(-1 / scale)
    return at, (1 - alpha) / (1 + alpha) * alpha ** np.abs(at)


def at_least(scale, k):
    """Pr[Z ≥ k] of two-sided geometric noise."""
    alpha, k = exp(-1 / scale), np.asarray(k, float)
    high, low = alpha ** np.maximum(k, 0), alpha ** np.maximum(1 - k, 0)
    return np.where(k >= 1, high / (1 + alpha), 1 - low / (1 + alpha))


def of_weights(scores, factor, chosen):
    weights = np.exp(factor * np.array(scores, float))
    return weights[chosen].sum() / weights.sum()


def led(epsilon, others, more):
    factor = more * epsilon / 2
    return tuple(
        of_weights([lead, *[1 - lead] * others], factor, [0]) for lead in (1, 0)
    )  # fmt: skip


def both_first(more):
    """Two of 17, one after the other, by the exponential mechanism with ε/4 a point."""
    found = []
    for lead in (1, 0):
        scores = [lead, lead, *[1 - lead] * 15]
        first = of_weights(scores, more * 3 / 4, [0, 1])
        found.append(first * of_weights(scores[1:], more * 3 / 4, [0]))
    return tuple(found)


def ranked(epsilon, more):
    """Below 20 of the points 0 to 99, by rank errors as they are defined."""
    found = []
    for data in ((20,), (20, 99)):
        values = np.array(data)
        points, goal = np.arange(100)[:, None], len(data) / 2
        short, over = goal - (values <= points).sum(1), (values < points).sum(1) - goal
        errors = np.maximum(0, np.maximum(short, over))
        found.append(of_weights(-errors, more * epsilon, np.arange(20)))
    return tuple(found)


def cut_first(more):
    """The first of 100 cuts of 101 cells, by how uneven each is."""
    found = []
    for second in (1, 0):
        left = np.cumsum([10, second, *[0] * 98])
        found.append(of_weights(-np.abs(2 * left - 10 - second), more * 1.5, [0]))
    return tuple(found)


def noes_then_yes(scales, questions, more):
    """Three no's, then a yes: a sum over the noise of the threshold."""
    ends, query = (scale / more for scale in scales)
    noise, mass = laplace(ends)
    found = []
    for *noes, yes in questions:
        chance = mass * at_least(query, noise - yes)
        for value in noes:
            chance = chance * (1 - at_least(query, noise - value))
        found.append(float(chance.sum()))
    return tuple(found)


def cut_path(more):
    """Two boxes, both cut: noise of at least 0 and 1, or of 1 and 2."""
    return tuple(float(at_least(1 / more, a) * at_least(1 / more, a + 1)) for a in (0, 1))


def one_stretch(more):
    """Its one-sided noise reaches that of two others and 0, or 2, more; by sums."""
    alpha, g = exp(-more), np.arange(200)
    mass = (1 - alpha) * alpha**g
    both = np.convolve(mass, mass)[:200]
    return tuple(float((both * alpha ** (g + bar)).sum()) for bar in (0, 2))


SPARSE = (1 + 2 ** (2 / 3)) / 4, 2 / (4 - 4 / (1 + 2 ** (2 / 3)))
CHANCES = {
    "exponential": lambda more: led(3, 30, more),
    "prior-exponential": lambda more: led(3, 30, more),
    "stretch-choice": lambda more: (exp(3 * more) / (exp(3 * more) + 200), 1 / 201),
    "furthest": lambda more: led(3, 30, more),
    "small-database": lambda more: led(3, 15, more),
    "permute-and-flip": lambda more: (1 / 2, exp(-2 * more) / 2),
    "noisy-max": lambda more: (1 / 2, exp(-2 * more) / 2),
    "top-k": both_first,
    "splits": cut_first,
    "quantile": lambda more: ranked(3, more),
    "quantiles": lambda more: ranked(2.85, more),
    "brackets": lambda more: ranked(3, more),
    "winsorised": lambda more: tuple(float(at_least(5120 / 9 / more, k)) for k in (0, 1024)),
    "above-threshold": lambda more: noes_then_yes(
        SPARSE, ((-1, -1, -1, 0), (0, 0, 0, -1)), more
    ),
    "outside-band": lambda more: noes_then_yes((1 / 2, 1 / 2), ((-1, -1, -1, 0), (0,) * 4), more),
    "sparse-priority": lambda more: tuple(float(at_least(1 / 2 / more, k)) for k in (0, 1)),
    "privtree": cut_path,
    "dawa-partition": one_stretch,
    "choose: exponential": lambda more: (1 / 4, 1 / (1 + 3 * exp(3 * more))),
    "choose: permute-and-flip": lambda more: (1 / 4, exp(-3 * more) / 4),
    "choose: noisy-max": lambda more: (1 / 4, exp(-3 * more) / 4),
    "many: a surprise": lambda more: tuple(
        float(at_least(10 / 19 / more, k)) for k in (0, 1)
    ),
}  # fmt: skip


def misses(p, q, bar, *, trials):
    """How likely the bound is at most ``bar``, for an event of chances p and q."""
    hits = np.arange(int(binom.ppf(1e-9, trials, p)), int(binom.isf(1e-9, trials, p)) + 1)
    low, high = (
        np.full(hits.size, -1),
        np.full(hits.size, trials),
    )  # hits of the other: enough, too many
    least = probability_lower(hits, trials=trials, alpha=ALPHA / 2)  # as `epsilon_lower` has it
    while (high - low > 1).any():
        middle = (low + high) // 2
        few, place = np.unique(np.maximum(middle, 0), return_inverse=True)
        most = probability_upper(few, trials=trials, alpha=ALPHA / 2)[place]
        found = (np.log(least / most) > bar) & (middle >= 0)
        low, high = np.where(found, middle, low), np.where(found, high, middle)
    for other, above in ((low, True), (high, False)):
        able = (other >= 0) & (other < trials)
        bound = epsilon_lower(hits[able], other[able], trials=trials, alpha=ALPHA)
        assert ((bound > bar) == above).all()
    return 1 - float((binom.pmf(hits, trials, p) * binom.cdf(low, trials, q)).sum())


@pytest.mark.long
@pytest.mark.parametrize("name", CHANCES)
def test_what_can_be_reached_is_derived_and_a_fifth_less_noise_is_seen(name):
    audit = audit_named(name)
    (claim,) = audit.claims.values()
    p, q = CHANCES[name](1)
    assert audit.event is not None  # fixed beforehand, so all runs count
    assert audit.reachable == pytest.approx(log(p / q) / claim, abs=6e-3)
    assert misses(p, q, 0.7 * audit.reachable * claim, trials=audit.trials) < MISSED
    assert misses(*CHANCES[name](5 / 4), claim, trials=audit.trials) < MISSED


def test_an_audit_of_too_few_runs_would_be_noticed():
    """The broken copy of this page's own rule: half of the runs that are needed."""
    assert misses(*CHANCES["exponential"](5 / 4), 3, trials=30_000) > MISSED


def test_the_exact_sum_agrees_with_draws():
    chance, p, q, trials = np.random.default_rng(3), 0.3, 0.02, 5_000
    hits = chance.binomial(trials, p, 20_000), chance.binomial(trials, q, 20_000)
    found = epsilon_lower(*hits, trials=trials, alpha=ALPHA) <= 2.3
    assert found.mean() == pytest.approx(misses(p, q, 2.3, trials=trials), abs=0.02)
