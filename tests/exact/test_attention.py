"""The centre of attention: every neighbour of every short list, by brute force."""

from itertools import pairwise, product

import numpy as np
import pytest

from noisegate.mechanisms.smooth.smooth import SmoothStudent
from noisegate.transforms.attention import REACHES_MAX, attention

END = 3


def reach(row, place):
    return row[1 + place] if 1 + place < len(row) else 2 * END


def neighbours(count):
    for numbers in product(range(END + 1), repeat=count):
        for new in range(numbers[0]):
            yield np.array(numbers), np.array((new, *numbers[1:]))


def is_kept(one, other, count):
    """Whether both claims hold for two rows of a centre and its reaches."""
    near = abs(one[0] - other[0]) <= min(reach(one, 0), reach(other, 0))
    return near and all(
        reach(a, place) <= reach(b, place + 1)
        for place in range(count + 1)
        for a, b in ((one, other), (other, one))
    )


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5])
def test_a_changed_number_moves_the_centre_and_its_reaches_as_claimed(count):
    for one, other in neighbours(count):
        rows = [attention(each, range_end=END).tolist() for each in (one, other)]
        assert is_kept(*rows, count), (one, other)


def with_half(numbers):
    """A broken copy: half of the numbers are enough."""
    points, count = np.sort(numbers), numbers.size
    most = count // 2
    starts = points[most - 1 :] - points[: count - most + 1]
    at = int(starts.argmin())
    lengths = [
        int((points[t - 1 :] - points[: count - t + 1]).min()) for t in range(most, count + 1)
    ]
    lengths.append(END)
    return [int(points[at] + points[at + most - 1]), *map(sum, pairwise(lengths))]


def test_the_centre_of_half_the_numbers_would_be_noticed():
    assert not all(is_kept(with_half(a), with_half(b), 4) for a, b in neighbours(4))


def test_values_reaches_and_ties():
    assert attention(np.array([0, 0, 2, 2, 9]), range_end=10).tolist() == [2, 11, 19]
    assert attention(np.array([7]), range_end=10).tolist() == [10]  # one number says nothing
    many = attention(np.zeros(2 * REACHES_MAX + 10, np.int64), range_end=10)
    assert many.size == REACHES_MAX + 1
    assert not many.any()


def test_blocks_that_agree_need_little_noise_and_others_much():
    """Where all blocks say the same, only the far end of the range is left in the bound."""
    noise = SmoothStudent.for_epsilon(1, low=0, high=2 * 1024)
    alike = attention(np.full(200, 300), range_end=1024)
    apart = attention(np.arange(200) * 5, range_end=1024)
    near, far = (noise.bound(row[1:].tolist()) / (1 << 48) for row in (alike, apart))
    assert near == pytest.approx(2048 * np.exp(-0.2 * 100), rel=1e-3)  # t₀ = 101, of 200
    assert far > 1000
