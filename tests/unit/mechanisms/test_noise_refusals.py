"""Samplers: shapes and types, what they refuse, how fast, and how much memory they take."""

import time
import tracemalloc
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

from noisegate.errors import SpecError
from noisegate.noise import (
    bernoulli,
    binomial,
    discrete_gaussian,
    discrete_laplace,
    geometric,
    geometric_tail,
    rounded,
    sample_rows,
    truncated_geometric,
    uniform_below,
)
from noisegate.noise.choice import Contest, choose
from noisegate.noise.coins import bernoulli_exp
from noisegate.noise.continuous import Laplace, StudentT
from noisegate.noise.geometric import geometric_gaps
from refusals import about

SAMPLERS = {
    "discrete_laplace": lambda size: discrete_laplace(3, size),
    "discrete_laplace, many digits": lambda size: discrete_laplace(2**40, size),
    "geometric": lambda size: geometric("1/2", size),
    "geometric_tail": lambda size: geometric_tail(5, 3, size),
    "geometric_gaps": lambda size: geometric_gaps("1/7", size),
    "geometric_gaps of 1": lambda size: geometric_gaps(1, size),
    "discrete_gaussian": lambda size: discrete_gaussian(3, size),
    "discrete_gaussian, by rejection": lambda size: discrete_gaussian(100, size),
    "rounded": lambda size: rounded(Laplace(), 10, size),
    "uniform_below": lambda size: uniform_below(10, size),
    "binomial": lambda size: binomial(10, "1/3", size),
    "binomial of 0": lambda size: binomial(10, 0, size),
    "bernoulli": lambda size: bernoulli("1/3", size),
}


@pytest.mark.parametrize("name", SAMPLERS)
@pytest.mark.parametrize(
    ("size", "shape"),
    [(0, (0,)), (1, (1,)), (7, (7,)), ((), ()), ((2, 3), (2, 3)), ((4, 0), (4, 0))],
)
def test_a_draw_has_the_shape_and_type_it_was_asked_for(name, size, shape):
    draw = SAMPLERS[name](size)
    assert draw.shape == shape
    assert draw.dtype == (np.bool_ if name == "bernoulli" else np.int64)


@pytest.mark.parametrize("name", SAMPLERS)
@pytest.mark.parametrize("size", [70_000, (2, 40_000)], ids=str)
def test_a_draw_longer_than_a_chunk_is_filled_to_its_end(name, size):
    """Memory that was never written would be far outside every sampler's reach or all equal."""
    draw = SAMPLERS[name](size).reshape(-1)[-5000:]
    if name not in {"geometric_gaps of 1", "binomial of 0"}:
        assert np.unique(draw).size > 1
    assert np.abs(draw.astype(np.float64)).max() < 2.0**47


IMPOSSIBLE_SIZES = [-1, (2, -1), (-2, -1), 2.5, "3", None, 1 << 60, (1 << 30, 1 << 30)]


@pytest.mark.parametrize("size", IMPOSSIBLE_SIZES, ids=str)
@pytest.mark.parametrize("name", [name for name in SAMPLERS if name != "geometric_gaps of 1"])
def test_an_impossible_size_is_refused_with_a_fix(name, size):
    with pytest.raises(SpecError, check=about("range"), match="size"):
        SAMPLERS[name](size)


@pytest.mark.parametrize("size", IMPOSSIBLE_SIZES, ids=str)
def test_an_impossible_size_is_refused_also_for_the_coin_that_always_shows_one(size):
    with pytest.raises(SpecError, check=about("range"), match="size"):
        geometric_gaps(1, size)


def test_a_count_from_numpy_is_a_size():
    assert discrete_laplace(2, np.int64(3)).shape == (3,)


BAD_NUMBERS = [
    0,
    -1,
    "-1/2",
    float("nan"),
    float("inf"),
    True,
    None,
    "one",
    "1e999999999",
    10**5000,
]


@pytest.mark.parametrize("scale", [*BAD_NUMBERS, "1/1001", 2**50 + 1, "1e-10000"], ids=range(13))
@pytest.mark.parametrize(
    "sampler", [discrete_laplace, geometric, lambda s, n: geometric_tail(1, s, n)]
)
def test_a_scale_out_of_range_is_refused_quickly(sampler, scale):
    start = time.process_time()
    with pytest.raises(SpecError, check=about("number", "positive", "scale"), match="scale"):
        sampler(scale, 1)
    assert time.process_time() - start < 1


@pytest.mark.parametrize("sigma", [*BAD_NUMBERS, "1/1001", 2**46 + 1], ids=range(12))
def test_a_sigma_out_of_range_is_refused_quickly(sigma):
    start = time.process_time()
    with pytest.raises(SpecError):
        discrete_gaussian(sigma, 1)
    assert time.process_time() - start < 1


def test_sigma_and_variance_are_given_one_at_a_time():
    with pytest.raises(SpecError, check=about("sigma")):
        discrete_gaussian(1, 1, variance=1)
    with pytest.raises(SpecError, check=about("sigma")):
        discrete_gaussian(size=3)
    with pytest.raises(SpecError, check=about("sigma")):
        discrete_gaussian(size=1, variance=2**92 + 1)


@pytest.mark.parametrize("scale", [*BAD_NUMBERS, 2**50 + 1], ids=range(11))
def test_a_grid_out_of_range_is_refused_quickly(scale):
    with pytest.raises(SpecError, check=about("number", "positive", "scale"), match="scale"):
        rounded(Laplace(), scale, 1)


@pytest.mark.parametrize("degrees", [0, -1, 31])
def test_degrees_of_freedom_out_of_range_are_refused(degrees):
    with pytest.raises(SpecError, check=about("degrees")):
        StudentT(degrees)


@pytest.mark.parametrize(
    "p",
    [-1, "-1e-300", "1.0000000000000000001", 2, float("nan"), True, None, "1e999999999"],
    ids=range(8),
)
@pytest.mark.parametrize(
    "sampler",
    [
        lambda p: bernoulli(p, 1),
        lambda p: binomial(5, p),
        lambda p: sample_rows(5, p),
        lambda p: geometric_gaps(p, 1),
    ],
)
def test_what_is_no_probability_is_refused(sampler, p):
    with pytest.raises(SpecError, check=about("number", "probability"), match="probability"):
        sampler(p)


def test_a_coin_that_never_succeeds_has_no_gaps():
    with pytest.raises(SpecError, check=about("probability")):
        geometric_gaps(0, 1)


@pytest.mark.parametrize("trials", [-1, 1 << 62, 2.5, True, None])
def test_impossible_numbers_of_trials_are_refused(trials):
    with pytest.raises(SpecError, check=about("range"), match="trials"):
        binomial(trials, "1/2")


@pytest.mark.parametrize("bound", [0, -5, (1 << 63) + 1, 2.5, True, None])
def test_impossible_bounds_are_refused(bound):
    with pytest.raises(SpecError, check=about("range"), match="bound"):
        uniform_below(bound, 1)


@pytest.mark.parametrize("count", [-1, 1 << 62, 2.5, None])
def test_impossible_numbers_of_rows_are_refused(count):
    with pytest.raises(SpecError, check=about("range"), match="count"):
        sample_rows(count, "1/2")


@pytest.mark.parametrize("threshold", [-1, 1 << 62, (1 << 63) - 1])
def test_thresholds_without_a_tail_law_are_refused(threshold):
    with pytest.raises(SpecError, check=about("range"), match="threshold"):
        geometric_tail(threshold, 3, 1)


@pytest.mark.parametrize(
    ("value", "top"),
    [
        (-1, 5),
        (6, 5),
        (0, 0),
        ((1 << 63) - 1, (1 << 63) - 1),
        (5, 1 << 63),
        (2.7, 10),
        (np.array([1.0]), 10),
        (np.array([True]), 10),
        ("3", 10),
        (np.array([2**63 + 1], np.uint64), 10),
    ],
    ids=range(10),
)
def test_values_that_cannot_be_clamped_safely_are_refused(value, top):
    with pytest.raises(SpecError, check=about("values")):
        truncated_geometric(value, 1, top=top)


def test_clamped_values_stay_in_range_up_to_the_largest_top():
    top = (1 << 62) - 1
    values = np.array([0, 1, top - 1, top] * 500)
    for scale in ("1/1000", 1, 2**40):
        out = truncated_geometric(values, scale, top=top)
        assert out.min() >= 0
        assert out.max() <= top
    assert truncated_geometric(values, "1/1000", top=top).tolist() == values.tolist()


def test_an_error_bound_too_wide_to_filter_is_refused():
    for error in (-1.0, 0.26, float("nan")):
        with pytest.raises(SpecError, check=about("error-bound")):
            bernoulli_exp(np.zeros(1), lambda lane: Fraction(0), error=error)


ROW = np.array([1, 2, 3])


@pytest.mark.parametrize(
    ("scores", "factor", "counts"),
    [
        (np.array([], np.int64), Fraction(1), None),
        (ROW.reshape(1, 3), Fraction(1), None),
        (ROW.astype(np.float64), Fraction(1), None),
        (ROW.astype(np.int32), Fraction(1), None),
        (ROW, Fraction(-1), None),
        (ROW, Fraction(10**400), None),
        (np.array([1 << 61]), Fraction(1), None),
        (np.array([-(1 << 63)]), Fraction(1), None),
        (ROW, Fraction(1), np.array([1, 1])),
        (ROW, Fraction(1), np.array([1, 1, -1])),
        (ROW, Fraction(1), np.array([0, 0, 0])),
    ],
    ids=range(11),
)
def test_contests_that_make_no_sense_are_refused(scores, factor, counts):
    with pytest.raises(SpecError):
        Contest(scores, factor, counts)


def test_winners_are_at_least_one_and_at_most_the_candidates():
    for k in (0, 4):
        with pytest.raises(SpecError, check=about("k")):
            choose(Contest(ROW, Fraction(1)), k=k)
    with pytest.raises(SpecError, check=about("k")):
        choose(Contest(ROW, Fraction(1), np.array([0, 0, 9])), k=2)
    with pytest.raises(SpecError, check=about("gumbel")):
        choose(Contest(ROW, Fraction(1), np.array([1, 1, 1])), noise="exponential")


def test_the_largest_factor_and_gap_raise_no_warning():
    contest = Contest(np.array([1 << 60, -(1 << 60)]), Fraction(1 << 899))
    assert choose(contest, noise="exponential").tolist() == [0]
    assert choose(contest, k=2).tolist() == [0, 1]


@pytest.mark.parametrize("value", ["0.5", 0.5, Decimal("0.5"), Fraction(1, 2)])
def test_one_half_may_be_written_in_any_way(value):
    assert discrete_laplace(value, 2).shape == (2,)
    assert bernoulli(value, 2).shape == (2,)


@pytest.mark.parametrize(
    "name",
    [
        "discrete_laplace",
        "discrete_laplace, many digits",
        "discrete_gaussian",
        "discrete_gaussian, by rejection",
        "rounded",
        "uniform_below",
        "binomial",
        "bernoulli",
        "geometric_gaps",
    ],
)
def test_a_large_draw_needs_at_most_three_arrays_of_its_size(name):
    count = 10**7 if name in {"discrete_laplace", "discrete_gaussian", "bernoulli"} else 2 * 10**6
    SAMPLERS[name](10)  # tables are built before the measurement
    SAMPLERS[name](5000)
    tracemalloc.start()
    draw = SAMPLERS[name](count)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak <= 3 * draw.nbytes


def test_continuous_noise_may_be_drawn_on_the_finest_grid():
    assert np.unique(rounded(Laplace(), 1 << 50, 100)).size > 90
