"""Rounded noise: each outcome is certified by the bits that led to it; floats change nothing."""

from fractions import Fraction
from functools import cache, partial
from importlib import import_module

import mpmath
import numpy as np
import pytest
from bit_tree import RecordingBits, ReplayedBits, ScriptedBits, mp

from noisegate.noise.bits import SYSTEM
from noisegate.noise.continuous import (
    Gaussian,
    Laplace,
    LaplaceLognormal,
    StudentT,
    rounded,
)
from noisegate.noise.law import SATURATION

rounded_module = import_module("noisegate.noise.continuous")


def laplace_cdf(x):
    return mpmath.exp(x) / 2 if x < 0 else 1 - mpmath.exp(-x) / 2


def student_cdf(degrees, x):
    beyond = mpmath.betainc(
        mpmath.mpf(degrees) / 2, 0.5, 0, degrees / (degrees + x * x), regularized=True
    )
    return beyond / 2 if x < 0 else 1 - beyond / 2


def cauchy_cdf(x):
    return 0.5 + mpmath.atan(x) / mpmath.pi


def lognormal_cdf(x):
    """Laplace noise times e^(Y/2), by an expansion in e^-t for the inner law's mean over Y."""
    weight = mpmath.mpf(2) / 25  # trapezoids of a smooth, fast falling function err by e^(-2π²/h²)
    ys = [weight * j for j in range(-250, 251)]
    sizes = [mpmath.exp(-y * y / 2 - abs(x) * mpmath.exp(-y / 2)) for y in ys]
    half = weight * mpmath.fsum(sizes) / mpmath.sqrt(8 * mpmath.pi)
    return half if x < 0 else 1 - half


def once(cdf):
    """The same law, worked out once for each number: many words lead to one outcome."""
    known = cache(lambda x, _precision: cdf(x))
    return lambda x: known(x, mpmath.mp.prec)


SHAPES = {
    name: (shape, once(cdf))
    for name, (shape, cdf) in {
        "laplace": (Laplace(), laplace_cdf),
        "gaussian": (Gaussian(), mpmath.ncdf),
        "cauchy": (StudentT(1), cauchy_cdf),
        "t3": (StudentT(3), partial(student_cdf, 3)),
        "t4": (StudentT(4), partial(student_cdf, 4)),
        "t30": (StudentT(30), partial(student_cdf, 30)),
        "lognormal": (LaplaceLognormal(Fraction(1, 2)), lognormal_cdf),
    }.items()
}
SCALES = [Fraction(1, 1000), Fraction(1, 3), Fraction(1), Fraction(1000, 7), Fraction(1 << 50)]
LATER = [0x0123456789ABCDEF, 0xFEDCBA9876543210]


@pytest.fixture(autouse=True)
def _precise():
    with mpmath.workdps(70):
        yield


def draw(shape, scale, word):
    """The outcome of a first word, and all bits of U that it was allowed to see."""
    bits = ScriptedBits([word, *LATER])
    outcome = int(rounded(shape, scale, 1, bits=bits)[0])
    prefix = word
    for later in LATER[: bits.words_used - 1]:
        prefix = prefix << 64 | later
    return outcome, prefix, 64 * bits.words_used


def assert_certified(cdf, scale, outcome, prefix, width):
    """Every U that begins with these bits lies in [F(k - ½), F(k + ½))."""
    if outcome > -SATURATION:
        below = cdf((mp(outcome) - 0.5) / mp(scale))
        assert below <= mpmath.mpf(prefix) / mpmath.mpf(2) ** width
    if outcome < SATURATION:
        above = cdf((mp(outcome) + 0.5) / mp(scale))
        assert mpmath.mpf(prefix + 1) / mpmath.mpf(2) ** width <= above


def words_of_interest(cdf, scale):
    """Words at and around some boundaries, at both ends, and where the paths change."""
    reach = max(1, int(scale))
    words = [1, 2, (1 << 64) - 2, (1 << 63) - 1, 1 << 63, (1 << 63) + 1]
    for edge in (1 << 42, (1 << 64) - (1 << 42)):
        words += [edge - 2, edge - 1, edge, edge + 1, edge + 2]
    for k in {0, -1, 1, reach // 2, -reach // 2, 3 * reach, -3 * reach, 9 * reach}:
        boundary = int(mpmath.floor(cdf((mp(k) + 0.5) / mp(scale)) * 2**64))
        for distance in [0, 1, 2, *(1 << j for j in range(4, 40, 5))]:
            words += [boundary - distance, boundary + distance]
    return [word for word in words if 0 < word < (1 << 64) - 1]


QUICK = [name for name in SHAPES if name != "lognormal"]  # which has no floats: see its class
CASES = [(name, scale) for name in QUICK for scale in SCALES] + [("lognormal", SCALES[0])]


@pytest.mark.long
@pytest.mark.parametrize(("name", "scale"), CASES, ids=str)
def test_an_outcome_holds_for_every_continuation_of_the_bits_seen(name, scale):
    shape, cdf = SHAPES[name]
    for word in words_of_interest(cdf, scale):
        assert_certified(cdf, scale, *draw(shape, scale, word))


@pytest.mark.parametrize("name", SHAPES)
def test_a_draw_on_a_boundary_asks_for_more_bits_and_goes_to_the_right_side(name):
    shape, cdf = SHAPES[name]
    scale = Fraction(5, 3)
    for k in (-4, -1, 0, 1, 4):
        boundary = cdf((mp(k) + 0.5) / mp(scale)) * 2**64
        word = int(mpmath.floor(boundary))
        rest = int(mpmath.floor((boundary - word) * 2**64))
        for following, expected in [(rest - 1, k), (rest + 1, k + 1)]:
            bits = ScriptedBits([word, following])
            assert rounded(shape, scale, 1, bits=bits).tolist() == [expected]
            assert bits.words_used == 2


@pytest.mark.parametrize("scale", SCALES, ids=str)
@pytest.mark.parametrize("name", QUICK)
def test_with_every_lane_on_the_exact_path_the_same_bits_give_the_same_draws(
    name, scale, monkeypatch
):
    shape, _ = SHAPES[name]
    recording = RecordingBits(SYSTEM)
    fast = rounded(shape, scale, 300, bits=recording)
    monkeypatch.setattr(rounded_module, "_RARE", np.uint64((1 << 64) - 1))
    slow = rounded(shape, scale, 300, bits=ReplayedBits(recording.record))
    assert fast.tolist() == slow.tolist()


@pytest.mark.parametrize("name", QUICK)
def test_nearly_all_lanes_are_settled_by_floats(name):
    """Otherwise the comparison of the two paths would compare the slow one with itself."""
    shape, _ = SHAPES[name]
    words = SYSTEM.words(20_000, 64)
    law = rounded_module.Rounded(shape, Fraction(1000))
    for upper in (False, True):
        mine = words[(words >= np.uint64(1 << 63)) == upper]
        assert rounded_module._propose(law, mine, upper=upper)[1].mean() > 0.99


@pytest.mark.parametrize(
    "scale", [Fraction(1), Fraction(1000, 7), Fraction((1 << 50) - 1)], ids=str
)
@pytest.mark.parametrize("name", QUICK)
def test_float_tails_err_by_a_small_part_of_the_stated_bound(name, scale):
    """Boundary, division and tail together; a sixteenth (Student's t, with many terms: an eighth)."""
    shape, cdf = SHAPES[name]
    part = 8 if isinstance(shape, StudentT) else 16
    depths = np.concatenate([np.linspace(2**-22, 0.5, 150), np.exp2(-np.linspace(1, 22, 150))])
    for upper in (False, True):
        with np.errstate(all="ignore"):
            k = np.rint(float(scale) * shape.quantile(depths, upper=upper))
        edges = k + 0.5 if upper else k - 0.5
        tails = shape.tail(edges / float(scale), upper=upper)
        for edge, tail in zip(edges.tolist(), tails.tolist(), strict=True):
            below = cdf(mpmath.mpf(edge) / mp(scale))
            true = 1 - below if upper else below
            if true > 0.5 or true < 2.0**-23:
                continue  # across the median, or deeper than floats may decide
            allowed = shape.relative_error * true + shape.absolute_error
            assert abs(tail - true) <= allowed / part


@pytest.mark.long
@pytest.mark.parametrize("name", SHAPES)
def test_extreme_scales_and_words_end_and_stay_in_range(name):
    shape, _ = SHAPES[name]
    script = [0, 0, 0, 7, *LATER * 6]  # polynomial tails need twice the depth to be settled
    for scale in ("1e-300", "1e-20", 1, 1 << 50):
        low = int(rounded(shape, scale, 1, bits=ScriptedBits(script))[0])
        top = [(1 << 64) - 1 - word for word in script]
        high = int(rounded(shape, scale, 1, bits=ScriptedBits(top))[0])
        assert -SATURATION <= low <= high <= SATURATION
    assert low < 0  # at the last and largest scale


def test_a_cauchy_draw_beyond_the_range_is_clamped_and_not_wrapped():
    script = [0, 0, 5, *LATER * 4]
    mirrored = [(1 << 64) - 1 - word for word in script]
    assert rounded(StudentT(1), 1 << 50, 1, bits=ScriptedBits(script)).tolist() == [-SATURATION]
    assert rounded(StudentT(1), 1 << 50, 1, bits=ScriptedBits(mirrored)).tolist() == [SATURATION]
