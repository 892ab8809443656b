"""Shares of geometric noise: enough of them are exactly the geometric law, fewer are not enough."""

from fractions import Fraction
from math import exp

import numpy as np
import pytest

from noisegate.errors import SpecError
from noisegate.noise.bits import SYSTEM
from noisegate.noise.law import draw_by_inversion
from noisegate.noise.polya import NegativeBinomial, geometric_share
from noisegate.noise.table import table_for

LENGTH = 200


def masses(law, length=LENGTH):
    """Probabilities of 0, 1, …, each within 2^-62 of the law's."""
    ends = [law.cdf(k, 64) for k in range(length)]
    assert all(high - low <= 2 for low, high in ends)
    return np.diff([0.0, *((low + high) / 2**65 for low, high in ends)])


def several(one, count):
    total = np.array([1.0])
    for _ in range(count):
        total = np.convolve(total, one)[:LENGTH]
    return total


@pytest.mark.parametrize(("scale", "parts"), [(1, 1), (1, 4), (3, 2), (Fraction(5, 2), 7)])
def test_shares_add_up_to_a_geometric_number_exactly(scale, parts):
    one = masses(NegativeBinomial(Fraction(scale), Fraction(1, parts)))
    ratio = exp(-1 / scale)
    assert several(one, parts) == pytest.approx((1 - ratio) * ratio ** np.arange(LENGTH), abs=1e-13)


def worst_ratio(one, count):
    """The largest log-ratio between neighbouring outcomes of the difference of two sums."""
    side = several(one, count)
    both = np.convolve(side, side[::-1])
    middle = both[LENGTH - 1 - 8 : LENGTH + 8]
    return np.abs(np.diff(np.log(middle))).max()


def test_more_shares_keep_the_promise_and_fewer_break_it():
    scale, parts = 2, 4
    one = masses(NegativeBinomial(Fraction(scale), Fraction(1, parts)))
    for count in (4, 5, 8):
        assert worst_ratio(one, count) <= 1 / scale + 1e-9
    assert worst_ratio(one, 3) > 1 / scale + 0.01
    broken = masses(NegativeBinomial(Fraction(scale), Fraction(1, parts + 1)))
    assert worst_ratio(broken, parts) > 1 / scale + 0.01


def test_a_table_and_inversion_bit_by_bit_give_the_same_outcome():
    law = NegativeBinomial(Fraction(3), Fraction(1, 5))
    table = table_for(law)
    words = SYSTEM.words(300, 64)
    found, unsettled = table._search(words)
    for word, index, is_open in zip(words.tolist(), found.tolist(), unsettled, strict=True):
        if not is_open:
            assert index + table._lowest == draw_by_inversion(law, word, 64, SYSTEM)


@pytest.mark.parametrize(("scale", "count"), [(3, 20_000), (300, 400)])
def test_the_sum_of_all_shares_has_the_mean_size_of_geometric_noise(scale, count):
    """The mean of the sums' squares is within 6 standard errors; its law is normal enough: 1e-8."""
    parts = 3
    sums = sum(geometric_share(scale, parts, count) for _ in range(parts)).astype(float)
    ratio = exp(-1 / scale)
    variance = 2 * ratio / (1 - ratio) ** 2
    assert abs(np.mean(sums**2) / variance - 1) < 6 * np.sqrt(5 / count)
    assert geometric_share(scale, parts, (2, 3)).shape == (2, 3)


@pytest.mark.parametrize("wrong", [(0, 2), (-1, 2), (1, 0), (1, 1.5), (2**31, 2), (1, -3)])
def test_shares_that_make_no_sense_are_refused(wrong):
    with pytest.raises(SpecError):
        geometric_share(*wrong, 1)
