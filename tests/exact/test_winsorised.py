"""A sum in a range that is found first: what it costs, and how far it is off."""

from fractions import Fraction

import numpy as np
import pytest

from noisegate.accounting.pure import pure_loss
from noisegate.errors import SpecError
from noisegate.mechanisms.additive.geometric import Geometric
from noisegate.mechanisms.quantiles.winsorised import POINTS, Winsorised

HIGH = 1 << 20


def test_the_price_is_what_was_asked_for_whatever_is_changed():
    for changed in (1, 3):
        noise = Winsorised.for_epsilon("0.8", high=HIGH, changed=changed)
        assert pure_loss(noise.event(changed)).epsilon == Fraction(4, 5)
    assert pure_loss(Winsorised.for_epsilon(1, high=HIGH).event(2)).epsilon == 2


def cut_sums(numbers, low, high):
    return int((np.clip(numbers, low, high) - low).sum())


def worst_loss(noise_of):
    """Over ranges and changed numbers, how far the sum moves against its noise."""
    worst = Fraction(0)
    for low, high in ((0, 1), (0, HIGH), (1000, 1024), (HIGH - 1, HIGH)):
        for old in (0, low, (low + high) // 2, high, HIGH):
            for new in (0, low, high, HIGH):
                numbers = np.array([old, 5, HIGH // 2])
                other = np.array([new, 5, HIGH // 2])
                moved = abs(cut_sums(numbers, low, high) - cut_sums(other, low, high))
                worst = max(worst, moved / noise_of(high - low).scale)
    return worst


def test_the_sum_moves_by_no_more_than_its_part_of_the_price():
    """Exactly as far as is paid for; noise for the mean's width alone would be too little."""
    noise = Winsorised.for_epsilon(1, high=HIGH)
    assert worst_loss(noise.noise) == Fraction(1, 2)
    assert worst_loss(lambda width: Geometric(scale=noise.scale * width / 3)) > Fraction(1, 2)


def test_what_is_released_is_the_sum_in_the_range_that_was_found():
    """Noise beyond 20 times its scale has a chance of 2e-9."""
    noise = Winsorised.for_epsilon(50, high=HIGH)
    numbers = np.random.default_rng(1).normal(300_000, 5_000, 2000).astype(np.int64)
    total, low, high = noise.sample(numbers).tolist()
    assert 250_000 < low < 295_000
    assert 305_000 < high < 350_000
    assert abs(total - cut_sums(numbers, low, high)) <= 21 * noise.scale * (high - low)


@pytest.mark.parametrize(
    "numbers", [np.zeros(0, np.int64), np.zeros(5, np.int64), np.full(5, HIGH), np.array([0, HIGH])]
)
def test_whatever_the_numbers_are_there_is_a_range(numbers):
    for spread in (0, 2):
        noise = Winsorised(factor=Fraction(100), scale=Fraction(1, 100), high=HIGH, spread=spread)
        _, low, high = noise.sample(numbers).tolist()
        assert 0 <= low < high <= HIGH


def test_it_errs_less_than_a_mean_over_the_whole_range():
    """Many blocks that lie close together: a tenth of the noise, counted by its own width."""
    plain = Geometric(scale=Fraction(HIGH))
    noise = Winsorised.for_epsilon(1, high=HIGH)
    numbers = np.random.default_rng(2).normal(500_000, 5_000, 2000).astype(np.int64)
    widths = [np.diff(noise.sample(numbers)[1:])[0] for _ in range(5)]
    assert 10 * float(noise.noise(int(np.median(widths))).scale) < float(plain.scale)
    assert noise.rank_error("0.95") < 2000 / 8


@pytest.mark.parametrize(
    "wrong",
    [
        {"high": POINTS + 1},
        {"high": 0},
        {"scale": 0},
        {"factor": -1},
        {"spread": -1},
        {"scale": 10**30},
    ],
)
def test_what_is_no_range_is_refused(wrong):
    terms = {"factor": Fraction(1), "scale": Fraction(1), "high": HIGH}
    with pytest.raises(SpecError):
        Winsorised(**terms | wrong)
