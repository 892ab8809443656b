"""The discrete Gaussian by rejection from a staircase: step times acceptance is the law."""

from fractions import Fraction
from importlib import import_module

import mpmath
import numpy as np
import pytest
from bit_tree import RecordingBits, ReplayedBits, as_fraction, mp, start_of

from noisegate.noise import gaussian
from noisegate.noise.bits import SYSTEM
from noisegate.noise.gaussian import STEPS_MAX, Staircase, discrete_gaussian

VARIANCES = [Fraction(4097), Fraction(10**6, 7), Fraction(2**40) + Fraction(1, 3), Fraction(2**92)]


def law_of(variance, monkeypatch):
    """The staircase that the sampler really uses."""
    used = []
    monkeypatch.setattr(
        gaussian, "_draw", lambda law, count, bits: used.append(law) or np.zeros(count)
    )
    discrete_gaussian(size=1, variance=variance)
    monkeypatch.undo()
    return used[0]


@pytest.mark.parametrize("variance", [*VARIANCES, Fraction(1, 10**6), Fraction(4096)], ids=str)
def test_blocks_are_the_smallest_that_keep_the_stairs_within_bounds(variance, monkeypatch):
    bits = law_of(variance, monkeypatch).block_bits
    assert variance <= STEPS_MAX**2 * 4**bits
    assert bits == 0 or variance > STEPS_MAX**2 * 4 ** (bits - 1)


@pytest.mark.parametrize("block_bits", [0, 1, 3])
def test_every_integer_is_one_place_of_one_block(block_bits):
    law = Staircase(Fraction(1), block_bits)
    blocks = np.repeat(np.arange(-5, 5), 1 << block_bits)
    script = [np.array(list(range(1 << block_bits)) * 10, np.uint64)]

    class Bits:
        def words(self, count, width):
            return script[0]

    if block_bits:
        start, place, _ = gaussian._places(law, blocks, Bits())
    else:
        start, place = np.array([start_of(law, b) for b in blocks.tolist()]), np.zeros(10, np.int64)
    assert start.tolist() == [start_of(law, block) for block in blocks.tolist()]
    found = np.where(blocks < 0, -(start + place), start + place)
    assert sorted(found.tolist()) == list(range(-5 << block_bits, 5 << block_bits))


@pytest.mark.parametrize("variance", VARIANCES, ids=str)
def test_step_and_acceptance_multiply_to_the_law_exactly(variance, monkeypatch):
    """start²/2σ² + γ = z²/2σ² as fractions, so weight · acceptance is the law's weight."""
    law = law_of(variance, monkeypatch)
    size = 1 << law.block_bits
    for block in (0, -1, 1, -2, 17, -40, 600):
        start = start_of(law, block)
        for place in {0, 1, size // 2, size - 1}:
            gamma = gaussian._exponent(variance, np.array([start]), np.array([place]), 0)
            assert Fraction(start**2) / (2 * variance) + gamma == Fraction((start + place) ** 2) / (
                2 * variance
            )
            assert gamma >= 0


@pytest.mark.parametrize("variance", VARIANCES, ids=str)
def test_float_exponents_err_by_less_than_a_sixteenth_of_the_claim(variance, monkeypatch):
    """Where the coin can show one within 64 bits (γ < 45); up to γ = 700 by less than the claim."""
    law = law_of(variance, monkeypatch)
    blocks = np.concatenate([np.arange(-700, 700), np.array([2000, -9000, 40000])])
    for _ in range(4):
        start, place, rough = gaussian._places(law, blocks, SYSTEM)
        for lane, value in enumerate(rough.tolist()):
            exact = gaussian._exponent(variance, start, place, lane)
            if exact < 700:
                bound = Fraction(gaussian._EXPONENT_ERROR) / (16 if exact < 45 else 1)
                assert abs(Fraction(value) - exact) <= bound
            else:
                assert value >= 690


@pytest.mark.parametrize("variance", VARIANCES, ids=str)
def test_with_every_lane_on_the_exact_path_the_same_bits_give_the_same_draws(variance, monkeypatch):
    recording = RecordingBits(SYSTEM)
    fast = discrete_gaussian(size=1500, variance=variance, bits=recording)
    bernoulli = import_module("noisegate.noise.coins")
    settled = []
    real = bernoulli.falls_below
    monkeypatch.setattr(
        bernoulli, "falls_below", lambda *a, **k: settled.append(1) or real(*a, **k)
    )
    monkeypatch.setattr(bernoulli, "_WORD_STEP", np.inf)
    slow = discrete_gaussian(size=1500, variance=variance, bits=ReplayedBits(recording.record))
    assert fast.tolist() == slow.tolist()
    assert len(settled) >= 1500


@pytest.mark.parametrize(
    ("variance", "block_bits"),
    [
        ("1/1000000", 0),
        ("1/10", 0),
        ("1", 0),
        ("100", 0),
        ("4096", 0),
        ("4097", 1),
        ("1000000/7", 3),
        ("9", 2),
    ],
)
@pytest.mark.parametrize("bits", [8, 64, 200])
def test_partial_sums_enclose_the_distribution_function(variance, block_bits, bits):
    law = Staircase(Fraction(variance), block_bits)
    steps = float(law.variance) ** 0.5 / 2**block_bits
    with mpmath.workdps(90):
        reach = int(25 * steps) + 5
        blocks = range(-reach, reach)
        weights = [
            mpmath.exp(-mp(Fraction(start_of(law, b) ** 2) / (2 * law.variance))) for b in blocks
        ]
        total = mpmath.fsum(weights)
        for k in {0, 1, 2, -1, -2, int(steps), -int(3 * steps) - 1, int(8 * steps)}:
            true = as_fraction(mpmath.fsum(weights[: k + reach + 1]) / total)
            low, high = law.cdf(k, bits)
            assert low - Fraction(1, 10**9) <= true * 2**bits <= high + Fraction(1, 10**9)
            assert high - low <= 2


def test_the_tail_beyond_the_sums_is_below_one_unit():
    law = Staircase(Fraction(3))
    for bits in (8, 64, 128):
        reach, sums = gaussian._partial_sums(law.variance, 0, bits)
        assert len(sums) == 2 * reach
        assert law.cdf(reach, bits) == (2**bits - 1, 2**bits)
        assert law.cdf(-reach - 1, bits) == (0, 1)
        with mpmath.workdps(60):
            tail = mpmath.exp(-mp(Fraction(reach * reach, 6))) * 2
            assert tail * 2**bits < 1


@pytest.mark.parametrize("sigma", [65, 1000])
def test_nearly_all_draws_are_accepted(sigma):
    recording = RecordingBits(SYSTEM)
    discrete_gaussian(sigma, 20_000, bits=recording)
    proposals = sum(count for count, width, _ in recording.record if width == 64)
    assert 20_000 <= proposals < 20_700  # 99.4 % or more; below 97 % once in e^500 runs
