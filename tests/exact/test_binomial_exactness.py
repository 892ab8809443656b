"""Binomial draws: certified sums against fractions, rejection from an envelope that dominates."""

from fractions import Fraction
from importlib import import_module
from math import comb

import mpmath
import pytest
from bit_tree import DIGITS, ScriptedBits, ScriptEnded, as_fraction, mp

from noisegate.noise.binomials import Binomial
from noisegate.noise.law import Certified
from noisegate.noise.table import table_for

binomial_module = import_module("noisegate.noise.binomials")
CASES = [
    (1025, Fraction(1, 2)),
    (1500, Fraction(1, 1000)),
    (1200, Fraction(999, 1000)),
    (2001, Fraction(1, 3)),
    (1999, Fraction(1, 2)),  # (n + 1) p is whole: two modes
    (1100, Fraction(1, 1 << 20)),
]


def exact_mass(trials, p, k):
    return comb(trials, k) * p**k * (1 - p) ** (trials - k)


def exact_masses(trials, p):
    """All of them, times the denominator to the power of the trials: whole numbers."""
    mass, p, q = (p.denominator - p.numerator) ** trials, p.numerator, p.denominator - p.numerator
    found = [mass]
    for k in range(trials):
        mass = mass * (trials - k) * p // ((k + 1) * q)  # without a rest
        found.append(mass)
    return found


@pytest.mark.parametrize("bits", [8, 64, 150])
@pytest.mark.parametrize(
    ("trials", "p"), [(1, "1/2"), (7, "1/3"), (64, "9/10"), (300, "1/7"), (1024, "1/1000")]
)
def test_partial_sums_enclose_the_exact_fractions(trials, p, bits):
    p, total = Fraction(p), Fraction(0)
    law = Binomial(trials, p)
    for k in range(min(trials, 120)):
        total += exact_mass(trials, p, k)
        low, high = law.cdf(k, bits)
        assert low <= total * 2**bits <= high
        assert high - low <= 2
    assert law.cdf(-1, bits) == (0, 0)
    assert law.cdf(trials, bits) == (2**bits, 2**bits)


@pytest.mark.parametrize(("trials", "p"), CASES)
def test_the_envelope_dominates_the_law_everywhere(trials, p):
    """q(M + k) / q(M) ≤ 1 inside ±a and ≤ e^(-j/a) at a + 1 + j, for every k."""
    envelope = binomial_module._envelope(trials, p)
    a, mode = envelope.half, envelope.mode
    masses = exact_masses(trials, p)  # times whole
    peak, whole = masses[mode], p.denominator**trials
    assert (peak, sum(masses)) == (exact_mass(trials, p, mode) * whole, whole)
    assert max(masses) == peak
    assert a * peak >= whole
    assert (a - 1) * peak * (1 - Fraction(1, 1 << 20)) < whole, "wider than it need be"
    with mpmath.workdps(DIGITS):
        decay = as_fraction(mpmath.exp(-mp(Fraction(1, a))))
    decay = int(decay * 2**400) + 1  # from here on whole numbers, rounded up by little
    bound = -(-(peak << 400) // whole)
    for j in range(max(mode, trials - mode)):
        for k in (mode - a - 1 - j, mode + a + 1 + j):
            if 0 <= k <= trials:
                assert masses[k] * 2**400 * 10**40 <= whole * bound * (10**40 + 1)
        bound = (bound * decay >> 400) + 1


@pytest.mark.parametrize("p", [Fraction(1, 3), Certified.exp_minus(Fraction(2))])
@pytest.mark.parametrize("trials", [1025, 10**9, (1 << 62) - 1])
def test_the_mode_is_the_floor_of_n_plus_one_times_p(trials, p):
    with mpmath.workdps(DIGITS):
        value = mpmath.mpf(1) / 3 if isinstance(p, Fraction) else mpmath.exp(-2)
        assert binomial_module._mode(trials, p) == int(mpmath.floor((trials + 1) * value))


def accepts(envelope, offset, steps, word):
    return binomial_module._accepted(envelope, offset, steps, ScriptedBits([word]))


@pytest.mark.parametrize(("trials", "p"), CASES[:4])
def test_a_proposal_is_accepted_with_its_share_of_the_envelope(trials, p):
    """The coin's threshold is q(k) / (q(M) · envelope), to the last of 64 bits."""
    envelope = binomial_module._envelope(trials, p)
    a, peak = envelope.half, exact_mass(trials, p, envelope.mode)
    for offset in (-a - 3, -a - 1, -2, -1, 1, 2, a, a + 1, a + 7):
        k, steps = envelope.mode + offset, max(0, abs(offset) - a - 1)
        if not 0 <= k <= trials:
            assert accepts(envelope, offset, steps, 0) is False
            continue
        with mpmath.workdps(DIGITS):
            rise = as_fraction(mpmath.exp(mp(Fraction(steps, a))))
        threshold = exact_mass(trials, p, k) / peak * rise * 2**64
        floor = threshold.numerator // threshold.denominator
        assert 0 < floor <= 1 << 64
        # a second mode has ratio 1, which no enclosure can tell from a little less
        assert accepts(envelope, offset, steps, floor - 1 - (floor == 1 << 64)) is True
        if floor + 1 < 1 << 64:
            assert accepts(envelope, offset, steps, floor + 1) is False


def test_the_mode_itself_is_always_accepted_without_a_coin():
    envelope = binomial_module._envelope(1025, Fraction(1, 2))
    assert binomial_module._accepted(envelope, 0, 0, ScriptedBits([])) is True


@pytest.mark.parametrize(("trials", "p"), CASES[:4])
def test_the_centre_is_chosen_by_its_share_of_the_envelope(trials, p):
    """2a + 1 unit weights against 2 / (1 - e^(-1/a)): seen by which words are asked for next."""
    table_for.cache_clear()  # a table that has filled its cells would ask for other words
    envelope = binomial_module._envelope(trials, p)
    a = envelope.half
    with mpmath.workdps(DIGITS):
        tails = as_fraction(2 / (1 - mpmath.exp(-mp(Fraction(1, a)))))
    threshold = (2 * a + 1) / (2 * a + 1 + tails) * 2**64
    floor = threshold.numerator // threshold.denominator
    uniform_width, table_width = (2 * a).bit_length(), 64
    for word, width in [(0, uniform_width), (floor - 1, uniform_width), (floor + 1, table_width)]:
        with pytest.raises(ScriptEnded) as end:
            binomial_module._by_rejection(envelope, ScriptedBits([word]))
        assert end.value.width == width


def test_both_tails_are_reached_by_a_fair_sign():
    envelope = binomial_module._envelope(2001, Fraction(1, 3))
    top = (1 << 64) - 2  # beyond the centre's share
    steps_word = 1 << 63
    seen = set()
    for sign in (0, 1):
        # a tail proposal, its steps, its sign, and a coin of 0, which accepts any possible k
        script = [top, steps_word, steps_word, sign, 0]
        bits = ScriptedBits(script)
        outcome = binomial_module._by_rejection(envelope, bits)
        seen.add(outcome > envelope.mode)
        assert abs(outcome - envelope.mode) > envelope.half
    assert seen == {False, True}
