"""Every law's enclosure holds the true distribution function, at any precision and scale."""

import os
from fractions import Fraction

import mpmath
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from noisegate.exact import enclose, lower, real, upper
from noisegate.noise.binomials import Binomial
from noisegate.noise.coins import Coin
from noisegate.noise.continuous import Gaussian, Laplace, Rounded, StudentT
from noisegate.noise.gaussian import Staircase
from noisegate.noise.geometric import SCALE_MIN, WIDEST, Digit, Ratio, Top
from noisegate.noise.law import Certified

DIGITS = 140  # 200 bits are 61 digits; the rest covers cancellation in the references
EXAMPLES = settings(max_examples=240 if os.environ.get("NOISEGATE_EXPLORE") else 60)

widths = st.integers(8, 200)
scales = st.one_of(
    st.fractions(SCALE_MIN, Fraction(10), max_denominator=1000),
    st.sampled_from([SCALE_MIN, Fraction(1, 3), Fraction(4), Fraction(1000), WIDEST]),
    st.integers(1, int(WIDEST)).map(Fraction),
)
coins = st.fractions(Fraction(1, 10**9), 1 - Fraction(1, 10**9), max_denominator=10**9)
ratios = st.one_of(scales.map(lambda s: Ratio(scale=s)), coins.map(lambda p: Ratio(coin=p)))


def mp(x):
    x = Fraction(x)
    return mpmath.mpf(x.numerator) / x.denominator


def log_alpha(ratio):
    return -1 / mp(ratio.scale) if ratio.scale is not None else mpmath.log(1 - mp(ratio.coin))


def assert_encloses(law, k, bits, true):
    """lo ≤ F(k) 2**bits ≤ hi (to the reference's own error), two units apart, inside [0, 1]."""
    low, high = law.cdf(k, bits)
    scaled, error = true * mpmath.mpf(2) ** bits, mpmath.mpf(10) ** -20
    assert low <= scaled + error
    assert scaled <= high + error
    assert high - low <= 2
    assert 0 <= low <= high <= 1 << bits
    before = law.cdf(k - 1, bits)
    assert before[0] <= high, "F must be able to rise"
    assert isinstance(low, int)
    assert isinstance(high, int)


@given(ratios, st.integers(0, 12), st.integers(1, 8), st.data(), widths)
@EXAMPLES
def test_enclosures_of_digits_hold_their_distribution_function(ratio, shift, width, data, bits):
    k, unit = data.draw(st.integers(0, (1 << width) - 1)), 1 << shift
    with mpmath.workdps(DIGITS):
        step = log_alpha(ratio) * unit
        true = mpmath.expm1(step * (k + 1)) / mpmath.expm1(step * (1 << width))
        assert_encloses(Digit(ratio, unit, width), k, bits, true)


@given(ratios, st.integers(0, 40), st.booleans(), st.data(), widths)
@EXAMPLES
def test_enclosures_of_leading_digits_hold_their_distribution_function(
    ratio, shift, signed, data, bits
):
    unit = 1 << shift
    with mpmath.workdps(DIGITS):
        reach = int(min(60 / abs(log_alpha(ratio) * unit), 10**6)) + 2
        k = data.draw(st.integers(-reach if signed else 0, reach))
        assume(abs(k) < (1 << 62) // unit - 1)
        alpha, beyond = mpmath.exp(log_alpha(ratio)), k + 1 if k >= 0 else -1 - k
        tail = mpmath.exp(log_alpha(ratio) * unit * beyond)
        if signed:
            tail *= (1 if k >= 0 else alpha) / (1 + alpha)
        true = 1 - tail if k >= 0 else tail
        assert_encloses(Top(ratio, unit, signed), k, bits, true)


@given(
    st.fractions(Fraction(1, 10**6), Fraction(50), max_denominator=10**6),
    st.integers(-40, 40),
    widths,
)
@EXAMPLES
def test_enclosures_of_discrete_gaussians_hold_their_distribution_function(variance, k, bits):
    with mpmath.workdps(DIGITS):
        reach = int(mpmath.sqrt(2 * mp(variance) * 200)) + 3  # the rest is below e^-200 < 2**-288
        weights = [mpmath.exp(-mp(Fraction(j * j) / (2 * variance))) for j in range(reach + 1)]
        total = weights[0] + 2 * sum(weights[1:])
        size = k if k >= 0 else -1 - k
        tail = sum(weights[size + 1 :]) / total
        assert_encloses(Staircase(variance), k, bits, 1 - tail if k >= 0 else tail)


@given(st.integers(1, 40), coins, st.data(), widths)
@EXAMPLES
def test_enclosures_of_binomials_hold_their_distribution_function(trials, p, data, bits):
    k = data.draw(st.integers(-1, trials))
    with mpmath.workdps(DIGITS):
        true = sum(
            mpmath.binomial(trials, j) * mp(p) ** j * (1 - mp(p)) ** (trials - j)
            for j in range(k + 1)
        )
        assert_encloses(Binomial(trials, p), k, bits, mpmath.mpf(true))


@given(st.fractions(0, 1), st.fractions(0, 50), widths)
@EXAMPLES
def test_enclosures_of_coins_hold_their_distribution_function(p, exponent, bits):
    with mpmath.workdps(DIGITS):
        assert_encloses(Coin(p), 0, bits, 1 - mp(p))
        assert_encloses(Coin(Certified.exp_minus(exponent)), 0, bits, 1 - mpmath.exp(-mp(exponent)))


def student_tail(degrees, x):
    """Pr[T > |x|] by the incomplete beta function, far from the product's finite sums."""
    degrees = mpmath.mpf(degrees)
    return mpmath.betainc(degrees / 2, 0.5, 0, degrees / (degrees + x * x), regularized=True) / 2


def true_cdf(shape, x):
    if isinstance(shape, Laplace):
        return mpmath.exp(x) / 2 if x < 0 else 1 - mpmath.exp(-x) / 2
    if isinstance(shape, Gaussian):
        return mpmath.erfc(-x / mpmath.sqrt(2)) / 2
    return student_tail(shape.degrees, x) if x < 0 else 1 - student_tail(shape.degrees, x)


shapes = st.one_of(st.sampled_from([Laplace(), Gaussian()]), st.integers(1, 30).map(StudentT))
grids = st.one_of(
    st.fractions(Fraction(1, 1000), Fraction(100), max_denominator=1000),
    st.sampled_from([Fraction(1, 1000), Fraction(1 << 40), Fraction(1 << 50)]),
)


@given(shapes, grids, st.integers(-30, 30), st.integers(-3, 3), widths)
@EXAMPLES
def test_enclosures_of_rounded_shapes_hold_their_distribution_function(
    shape, scale, whole, off, bits
):
    k = int(whole * scale) + off
    with mpmath.workdps(DIGITS):
        x = (mp(k) + 0.5) / mp(scale)
        assume(abs(x) < 500)
        assert_encloses(Rounded(shape, scale), k, bits, true_cdf(shape, x))


@pytest.mark.parametrize("scale", [SCALE_MIN, WIDEST], ids=str)
@pytest.mark.parametrize("bits", [8, 64, 200])
def test_the_extreme_scales_are_enclosed_too(scale, bits):
    ratio = Ratio(scale=scale)
    with mpmath.workdps(800):
        for k in (0, 1, 5):
            alpha = mpmath.exp(-1 / mp(scale))
            beyond = mpmath.exp(-(k + 1) / mp(scale))
            assert_encloses(Top(ratio, 1, True), k, bits, 1 - beyond / (1 + alpha))
            assert_encloses(Top(ratio, 1, True), -1 - k, bits, beyond / (1 + alpha))
            assert_encloses(Top(ratio, 1, False), k, bits, 1 - beyond)


@given(st.fractions(-60, 60, max_denominator=10**6), st.integers(0, 300))
@EXAMPLES
def test_enclosures_and_bounds_of_exponentials_hold_the_exponential(x, bits):
    with mpmath.workdps(DIGITS + 60):
        true = mpmath.exp(mp(x))
        low, high = enclose(lambda: real(x).exp(), bits=bits)
        error = mpmath.mpf(10) ** -40
        assert low - error <= true * mpmath.mpf(2) ** bits <= high + error
        assert high - low <= 2
        down, up = lower(lambda: real(x).exp()), upper(lambda: real(x).exp())
        assert mp(down) <= true * (1 + error)
        assert mp(up) >= true * (1 - error)
        assert down <= up <= down * (1 + Fraction(1, 1 << 90))


@given(scales, st.integers(0, 20), widths)
@EXAMPLES
def test_a_finer_enclosure_lies_inside_a_coarser_one_up_to_a_unit(scale, k, bits):
    law = Top(Ratio(scale=scale), 1, True)
    coarse, fine = law.cdf(k, bits), law.cdf(k, bits + 32)
    assert coarse[0] << 32 <= fine[1]
    assert fine[0] <= coarse[1] << 32
