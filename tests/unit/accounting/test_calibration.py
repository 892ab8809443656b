"""Noise for a loss, error for a noise, and back: published numbers and certified edges."""

import math
from fractions import Fraction

import mpmath
import pytest

from noisegate.accounting.amplification import (
    fixed_size,
    inner_epsilon_down,
    poisson,
)
from noisegate.accounting.search import digits_down, digits_up
from noisegate.accounting.tails import EXACT_VARIANCE_MAX
from noisegate.errors import SpecError
from noisegate.planning.calibrate import (
    discrete_gaussian_count_delta_up,
    discrete_gaussian_error,
    discrete_gaussian_variance,
    discrete_gaussian_variance_for_error,
    gaussian_delta_up,
    gaussian_error,
    gaussian_variance_up,
    geometric_error,
    geometric_scale,
    geometric_scale_for_error,
    laplace_error,
)
from noisegate.privacy.distance import L1, L2
from noisegate.privacy.loss import ApproxDP
from refusals import about

UNIT = L2(squared=1)
MOST = Fraction(95, 100)


def geometric_miss(scale, within):
    alpha = math.exp(-1 / scale)
    return 2 * alpha ** (within + 1) / (1 + alpha)


def discrete_gaussian_miss(variance, within):
    with mpmath.workdps(40):
        weight = lambda n: mpmath.exp(-mpmath.mpf(n * n) / (2 * mpmath.mpf(variance)))  # noqa: E731
        reach = int(12 * math.sqrt(variance)) + within + 12
        total = 1 + 2 * mpmath.fsum(weight(n) for n in range(1, reach))
        return float(2 * mpmath.fsum(weight(n) for n in range(within + 1, reach)) / total)


def test_closed_forms_are_exact():
    assert geometric_scale("0.1", sensitivity=L1(3)) == 30
    assert discrete_gaussian_variance("0.01", sensitivity=L2(squared=2)) == 100


@pytest.mark.parametrize(("epsilon", "delta", "sigma"), [
    ("1", "1e-5", 3.730632), ("0.1", "1e-6", 36.304690), ("4", "1e-5", 1.081162),
])  # fmt: skip
def test_the_analytic_gaussian_has_its_published_sigma(epsilon, delta, sigma):
    budget = ApproxDP(epsilon, delta)
    variance = gaussian_variance_up(budget, sensitivity=UNIT)
    assert math.sqrt(variance) == pytest.approx(sigma, abs=6e-7)
    assert gaussian_delta_up(budget.epsilon, variance=variance, sensitivity=UNIT) <= budget.delta
    less = variance * (1 - Fraction(1, 10**9))
    assert gaussian_delta_up(budget.epsilon, variance=less, sensitivity=UNIT) > budget.delta


def test_the_analytic_gaussian_scales_with_the_squared_sensitivity():
    budget = ApproxDP(1, "1e-5")
    one = gaussian_variance_up(budget, sensitivity=UNIT)
    nine = gaussian_variance_up(budget, sensitivity=L2(squared=9))
    assert float(nine) == pytest.approx(9 * float(one), rel=1e-10)
    assert gaussian_delta_up(Fraction(1), variance=one, sensitivity=L2(squared=0)) == 0


def test_the_classical_sigma_breaks_its_promise_at_twelve():
    epsilon, delta = Fraction(12), Fraction(1, 10**5)
    classical = Fraction(2 * math.log(1.25 / delta)) / epsilon**2
    assert gaussian_delta_up(epsilon, variance=classical, sensitivity=UNIT) > delta


def test_the_discrete_gaussian_has_its_published_delta():
    half = discrete_gaussian_count_delta_up(Fraction(1, 2), variance=Fraction(4))
    one = discrete_gaussian_count_delta_up(Fraction(1), variance=Fraction(4))
    assert float(half) == pytest.approx(0.05400722, abs=5e-9)
    assert float(one) == pytest.approx(0.00724878, abs=5e-9)


@pytest.mark.parametrize("variance", ["0.3", "1", "4", "50"])
@pytest.mark.parametrize("epsilon", ["0", "0.1", "0.5", "2"])
def test_the_discrete_gaussian_delta_is_the_hockey_stick(variance, epsilon):
    variance, epsilon = Fraction(variance), Fraction(epsilon)
    with mpmath.workdps(40):
        weight = lambda n: mpmath.exp(-mpmath.mpf(n * n) / (2 * float(variance)))  # noqa: E731
        reach = range(-150, 151)
        total = mpmath.fsum(weight(n) for n in reach)
        lift = mpmath.exp(float(epsilon))
        stick = mpmath.fsum(max(0, weight(n) - lift * weight(n + 1)) for n in reach) / total
    found = discrete_gaussian_count_delta_up(epsilon, variance=variance)
    assert float(found) == pytest.approx(float(stick), rel=1e-9, abs=1e-25)


def test_a_delta_of_one_promises_nothing_and_is_refused():
    with pytest.raises(SpecError, check=about("delta")):
        gaussian_variance_up(ApproxDP(1, 1), sensitivity=UNIT)


@pytest.mark.parametrize("cells", [1, 2, 1000])
@pytest.mark.parametrize("scale", ["0.1", "1", "10", "12345.6"])
def test_the_geometric_error_is_the_smallest_that_holds(scale, cells):
    scale = Fraction(scale)
    found = geometric_error(scale, confidence=MOST, cells=cells)
    assert (1 - geometric_miss(scale, found)) ** cells >= 0.95
    assert found == 0 or (1 - geometric_miss(scale, found - 1)) ** cells < 0.95


def test_the_geometric_tail_has_its_published_value():
    """Pr[Z ≥ 5] at ε = 1 is 0.004925834, so an error of 4 holds with twice that to miss."""
    miss = 2 * Fraction("0.004925834")
    assert geometric_error(1, confidence=1 - miss * Fraction("1.000001")) == 4
    assert geometric_error(1, confidence=1 - miss * Fraction("0.999999")) == 5


@pytest.mark.parametrize("cells", [1, 300])
@pytest.mark.parametrize("variance", ["0.1", "1", "7.5", "100", "900"])
def test_the_discrete_gaussian_error_is_the_smallest_that_holds(variance, cells):
    found = discrete_gaussian_error(variance, confidence=MOST, cells=cells)
    size = float(Fraction(variance))
    assert (1 - discrete_gaussian_miss(size, found)) ** cells >= 0.95
    assert found == 0 or (1 - discrete_gaussian_miss(size, found - 1)) ** cells < 0.95


def test_the_bound_for_wide_discrete_gaussians_is_one_unit_off_at_most():
    variance = Fraction(EXACT_VARIANCE_MAX)
    for cells in (1, 100):
        exact = discrete_gaussian_error(variance, confidence=MOST, cells=cells)
        bound = discrete_gaussian_error(variance + Fraction(1, 10**9), confidence=MOST, cells=cells)
        assert exact <= bound <= exact + 1


def test_an_error_of_zero_asks_for_almost_no_noise():
    scale = geometric_scale_for_error(0, confidence=MOST)
    assert float(scale) == pytest.approx(1 / math.log(39), rel=1e-10)  # 2α/(1 + α) = 1/20
    assert discrete_gaussian_variance_for_error(0, confidence=MOST) < Fraction(1, 7)
    wide = Fraction(10**8)
    assert discrete_gaussian_error(wide, confidence=Fraction(1, 10**9)) == 0


def test_error_bars_survive_extreme_confidence():
    sure = 1 - Fraction(1, 10**60)
    found = geometric_error(1, confidence=sure)
    assert geometric_miss(1, found) <= 1e-60 < geometric_miss(1, found - 1)
    assert discrete_gaussian_error(1, confidence=sure) in range(15, 20)


@pytest.mark.parametrize("within", [0, 1, 7, 50, 1000])
@pytest.mark.parametrize("cells", [1, 64])
def test_noise_for_an_error_keeps_the_error_and_wastes_nothing(within, cells):
    scale = geometric_scale_for_error(within, confidence=MOST, cells=cells)
    assert geometric_error(scale, confidence=MOST, cells=cells) == within
    more = scale * (1 + Fraction(1, 10**9))
    assert geometric_error(more, confidence=MOST, cells=cells) == within + 1
    variance = discrete_gaussian_variance_for_error(within, confidence=MOST, cells=cells)
    assert discrete_gaussian_error(variance, confidence=MOST, cells=cells) == within
    more = variance * (1 + Fraction(1, 10**9))
    assert discrete_gaussian_error(more, confidence=MOST, cells=cells) == within + 1


def test_an_error_between_two_integers_is_the_lower_one():
    assert geometric_scale_for_error(7.9, confidence=MOST) == geometric_scale_for_error(
        7, confidence=MOST
    )


@pytest.mark.parametrize("cells", [1, 100])
def test_laplace_and_gaussian_errors_are_their_quantiles(cells):
    miss = 1 - 0.95 ** (1 / cells)
    laplace = laplace_error(2, confidence=0.95, cells=cells)
    assert float(laplace) == pytest.approx(2 * math.log(1 / miss), rel=1e-10)
    gaussian = gaussian_error(4, confidence=MOST, cells=cells)
    assert math.erfc(gaussian / 2 / math.sqrt(2)) == pytest.approx(miss, rel=1e-9)


@pytest.mark.parametrize("confidence", [0, 1, 1.5, -0.1])
def test_a_confidence_outside_the_open_unit_interval_is_refused(confidence):
    with pytest.raises(SpecError, match=r"0\.95"):
        geometric_error(1, confidence=confidence)


@pytest.mark.parametrize("cells", [0, -1, True, 2.0])
def test_a_number_of_cells_is_whole_and_positive(cells):
    with pytest.raises(SpecError, check=about("cells")):
        geometric_error(1, confidence=MOST, cells=cells)


def test_impossible_noise_is_refused():
    with pytest.raises(SpecError, check=about("positive")):
        geometric_scale(0, sensitivity=L1(1))
    with pytest.raises(SpecError, check=about("positive")):
        discrete_gaussian_error(0, confidence=MOST)
    with pytest.raises(SpecError, check=about("within")):
        geometric_scale_for_error(-1, confidence=MOST)


def test_sampling_one_in_a_hundred_has_its_published_loss():
    found = poisson(ApproxDP(1, "1e-6"), probability=Fraction(1, 100))
    assert float(found.epsilon) == pytest.approx(0.0170369, abs=5e-8)
    assert found.delta == Fraction(1, 10**8)
    assert fixed_size(ApproxDP(1, "1e-6"), sample=1, population=100) == found


def test_the_inner_loss_is_the_largest_that_fits():
    for outer in ("0.001", "0.1", "3"):
        for share in (Fraction(1, 1000), Fraction(1, 3), Fraction(1)):
            inner = inner_epsilon_down(Fraction(outer), probability=share)
            back = poisson(ApproxDP(inner), probability=share).epsilon
            assert float(back) == pytest.approx(float(outer), rel=1e-12)
            more = poisson(ApproxDP(inner * (1 + Fraction(1, 10**9))), probability=share)
            assert more.epsilon > Fraction(outer)
    assert inner_epsilon_down(Fraction(0), probability=Fraction(1, 2)) == 0


@pytest.mark.parametrize("probability", [Fraction(0), Fraction(3, 2)])
def test_an_impossible_sampling_rate_is_refused(probability):
    with pytest.raises(SpecError, match=r"\(0, 1\]"):
        poisson(ApproxDP(1), probability=probability)


def test_an_impossible_sample_is_refused():
    with pytest.raises(SpecError, check=about("sample")):
        fixed_size(ApproxDP(1), sample=5, population=4)
    with pytest.raises(SpecError, check=about("size")):
        fixed_size(ApproxDP(1), sample=0, population=4)


@pytest.mark.parametrize("value", ["1/3", "99999999999999/7", "1e-20", "123456789012", "-1/3"])
def test_twelve_digits_enclose_the_number(value):
    value = Fraction(value)
    low, high = digits_down(value), digits_up(value)
    assert low <= value <= high
    assert high - low <= abs(value) / 10**11
    assert digits_up(Fraction(0)) == 0


def test_a_sensitivity_without_its_norm_is_refused():
    with pytest.raises(SpecError, check=about("sensitivity"), match=r"L1\(1\)"):
        geometric_scale(1, sensitivity=1)
    with pytest.raises(SpecError, check=about("sensitivity"), match=r"squared=1"):
        gaussian_variance_up(ApproxDP(1, "1e-6"), sensitivity=L1(1))
