"""How likely broken copies are missed: computed from exact laws, not counted.

Each audit below fixes its event beforehand, and the law of the broken copy is known. No runs are
drawn, so there are no false alarms.
"""

from math import exp

import numpy as np
import pytest
from scipy.stats import binom

from noisegate.audit.audit import audit_named, audits
from noisegate.audit.confidence import epsilon_lower, zcdp_claims
from noisegate.noise.continuous import StudentT

ALPHA = 1e-6 / len(audits())
MISSED = 1e-4
SMOOTH = [
    "smooth-student", "smooth-laplace", "smooth-lognormal", "local-quantile", "local-graph",
    "local-trimmed-mean", "local-huber",
]  # fmt: skip


def missed(chances, *, claims, trials):
    """A bound on how likely no claim is refuted: the event too rare, or too likely on the other."""
    least = int(binom.ppf(MISSED / 10, trials, chances[0]))
    found = []
    for delta, claim in claims.items():
        terms = {"trials": trials, "alpha": ALPHA / len(claims), "delta": delta}
        most, over = -1, trials  # how often it may occur on the other, and how often not
        while over - most > 1:
            middle = (most + over) // 2
            is_caught = epsilon_lower(least, middle, **terms) > claim
            most, over = (middle, over) if is_caught else (most, middle)
        found.append(MISSED / 10 + binom.sf(most, trials, chances[1]))
    return min(found)


@pytest.mark.parametrize("name", SMOOTH)
def test_smooth_noise_that_lacks_a_fifth_is_missed_less_than_once_in_ten_thousand_runs(name):
    audit = audit_named(name)
    assert audit.broken_words == "a fifth too little noise"
    chances = [audit.event.chance(draw.mechanism, draw.exact) for draw in audit.broken]
    assert missed(chances, claims=audit.claims, trials=audit.trials) < MISSED
    honest = [audit.event.chance(draw.mechanism, draw.exact) for draw in audit.draws]
    assert missed(honest, claims=audit.claims, trials=audit.trials) > 0.99


@pytest.mark.parametrize("name", ["least-sum", "unevenness", "graph-number", "weighted-cut"])
def test_a_count_with_geometric_noise_that_lacks_a_fifth_is_hardly_ever_missed(name):
    audit = audit_named(name)
    (claim,) = audit.claims.values()
    ratio = exp(-claim * 5 / 4)  # of the tails; the event is that the noise is not below 0
    chances = [1 / (1 + ratio), ratio / (1 + ratio)]
    assert missed(chances, claims=audit.claims, trials=audit.trials) < MISSED


def test_a_test_and_a_release_that_lack_a_fifth_are_hardly_ever_missed():
    audit = audit_named("propose-test-release")
    broken = audit.broken[0].mechanism
    test, step = exp(-1 / float(broken.test_scale)), exp(-1 / float(broken.scale))
    first = 1 / (1 + test) / (1 + step)
    chances = [first, first * test * step**broken.bound]
    assert missed(chances, claims=audit.claims, trials=audit.trials) < MISSED


def test_a_choice_of_a_cut_that_lacks_a_fifth_is_hardly_ever_missed():
    audit, chances = audit_named("fourier-cut"), []
    for draw in audit.broken:
        cut = draw.mechanism
        slow, fast = cut.tails(np.array(draw.exact)) + np.array([int(n) for n in cut.noises])
        chances.append(1 / (1 + exp(float(cut.factor) * float(fast - slow))))
    assert missed(chances, claims=audit.claims, trials=audit.trials) < MISSED


def test_neighbours_of_a_quantile_use_the_move_and_nearly_all_of_the_growth_of_the_bound():
    wide, narrow = audit_named("local-quantile").draws
    noise = wide.mechanism
    widths = [float(noise.width(each.exact[1:])) for each in (wide, narrow)]
    assert 0.98 * exp(noise.beta) < widths[0] / widths[1] <= exp(noise.beta)
    moved = float(noise.scale) * (wide.exact[0] - narrow.exact[0])
    assert moved == pytest.approx(widths[1], rel=1e-3)
    assert noise.shape == StudentT(3)


def test_claims_from_rho_hold_for_gaussian_noise_and_are_below_the_usual_conversion():
    """Half-lines of two normal laws, one apart, of ρ = 1/2: p - e^ε q is below δ, and near it."""
    from scipy.stats import norm

    ((delta, epsilon),) = zcdp_claims(1 / 2, [0.5]).items()
    at = np.linspace(-4, 4, 801)
    best = (norm.sf(at - 1) - exp(epsilon) * norm.sf(at)).max()
    assert best < delta < 1.6 * best
