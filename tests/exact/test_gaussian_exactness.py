"""The discrete Gaussian beyond its table: proposal times acceptance is the law, term by term."""

from fractions import Fraction
from importlib import import_module

import mpmath
import numpy as np
import pytest
from bit_tree import DIGITS, RecordingBits, ReplayedBits, as_fraction, mp

from noisegate.noise import gaussian
from noisegate.noise.bits import SYSTEM
from noisegate.noise.gaussian import DiscreteGaussian, discrete_gaussian

VARIANCES = [Fraction(4097), Fraction(10**6, 7), Fraction(2**40) + Fraction(1, 3), Fraction(2**78)]


def proposal_scale(variance):
    """⌊σ⌋ + 1 by its definition: the least whole t with t > σ."""
    with mpmath.workdps(DIGITS):
        return int(mpmath.floor(mpmath.sqrt(mp(variance)))) + 1


@pytest.mark.parametrize("variance", VARIANCES, ids=str)
def test_proposal_and_acceptance_multiply_to_the_law_exactly(variance):
    """-|y|/t - γ(y) + y²/2σ² does not depend on y, as fractions."""
    t = proposal_scale(variance)
    root = int(float(variance) ** 0.5)
    sizes = np.array([0, 1, 2, root - 1, root, root + 1, 3 * root, 40 * root], np.int64)
    constants = {
        -Fraction(y, t)
        - gaussian._exponent(variance, t, sizes, lane)
        + Fraction(y * y) / (2 * variance)
        for lane, y in enumerate(sizes.tolist())
    }
    assert len(constants) == 1
    assert constants == {-variance / (2 * t * t)}


def test_the_proposal_scale_is_the_one_of_the_theorem(monkeypatch):
    asked = []

    def noted(scale, size, *, bits):
        asked.append(scale)
        return np.full(size, 0)

    monkeypatch.setattr(gaussian, "discrete_laplace", noted)
    for variance in VARIANCES:
        discrete_gaussian(size=1, variance=variance)
        assert set(asked) == {proposal_scale(variance)}
        asked.clear()


@pytest.mark.parametrize("variance", VARIANCES, ids=str)
def test_float_exponents_err_by_less_than_a_sixteenth_of_the_claim(variance):
    """Where the coin can show one within 64 bits (γ < 45); up to γ = 700 by less than a quarter."""
    t, sigma = proposal_scale(variance), float(variance) ** 0.5
    sizes = np.unique((np.linspace(0, 38, 6000) * sigma).astype(np.int64))
    near_centre = int(variance / t) + np.arange(-50, 50)
    sizes = np.concatenate([sizes, near_centre[near_centre >= 0]])
    rough = (sizes - float(variance / t)) ** 2 * float(1 / (2 * variance))
    exact = [gaussian._exponent(variance, t, sizes, lane) for lane in range(sizes.size)]
    errors = [(abs(Fraction(r) - e), e) for r, e in zip(rough.tolist(), exact, strict=True)]
    assert max(error for error, e in errors if e < 45) <= gaussian._EXPONENT_ERROR / 16
    assert max(error for error, e in errors if e < 700) <= gaussian._EXPONENT_ERROR / 4


@pytest.mark.parametrize("variance", VARIANCES, ids=str)
def test_with_every_lane_on_the_exact_path_the_same_bits_give_the_same_draws(variance, monkeypatch):
    recording = RecordingBits(SYSTEM)
    fast = discrete_gaussian(size=1500, variance=variance, bits=recording)
    monkeypatch.setattr(import_module("noisegate.noise.bernoulli"), "_EXP_ERROR", np.inf)
    slow = discrete_gaussian(size=1500, variance=variance, bits=ReplayedBits(recording.record))
    assert fast.tolist() == slow.tolist()


@pytest.mark.parametrize("variance", ["1/1000000", "1/10", "1", "100", "4096"])
@pytest.mark.parametrize("bits", [8, 64, 200])
def test_partial_sums_enclose_the_distribution_function(variance, bits):
    law, sigma = DiscreteGaussian(Fraction(variance)), float(Fraction(variance)) ** 0.5
    with mpmath.workdps(90):
        reach = int(25 * sigma) + 5
        weights = [mpmath.exp(-mp(Fraction(j * j) / (2 * law.variance))) for j in range(reach)]
        total = weights[0] + 2 * mpmath.fsum(weights[1:])
        for k in {0, 1, 2, int(sigma), int(3 * sigma), int(8 * sigma)}:
            true = as_fraction((mpmath.fsum(weights[: k + 1]) + mpmath.fsum(weights[1:])) / total)
            low, high = law.cdf(k, bits)
            assert low - Fraction(1, 10**9) <= true * 2**bits <= high + Fraction(1, 10**9)
            assert high - low <= 2
            assert law.cdf(-k - 1, bits) == (2**bits - high, 2**bits - low)


def test_the_tail_beyond_the_sums_is_below_one_unit():
    law = DiscreteGaussian(Fraction(3))
    for bits in (8, 64, 128):
        length = len(gaussian._partial_sums(law.variance, bits))
        assert law.cdf(length, bits) == (2**bits - 1, 2**bits)
        with mpmath.workdps(DIGITS):
            tail = mpmath.exp(-mp(Fraction(length * length, 6))) * 2
            assert tail * 2**bits < 1
