"""Counts that are shown because they are large: their ± holds for them, not for all counts."""

from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from scipy.stats import binom

import noisegate
from noisegate.mechanisms.additive.gaussian import DiscreteGaussian
from noisegate.mechanisms.additive.geometric import Geometric
from noisegate.planning.calibrate import geometric_error
from noisegate.sql.laws.sampling import Sampling
from noisegate.sql.laws.selected import between, between_all, clear_from

ALARM = 1e-7  # how often a test of chance fails though all is well


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("failure", [0.05, 0.3])
@pytest.mark.parametrize(("scale", "cut"), [("0.4", 1), (1, 3), (10, 1), (10, 30), (10, 200)])
def test_every_count_is_in_its_interval_given_that_it_is_shown(scale, cut, failure, signed):
    """Summed over the whole law, so that nothing is left to chance."""
    scale = Fraction(scale)
    off = np.arange(-int(60 * scale) - 60, int(60 * scale) + 61)
    mass = np.exp(-np.abs(off) / float(scale))
    for count in {0, 1, cut // 2, cut - 1, cut, cut + 1, cut + int(2 * scale), cut + 50, cut + 400}:
        values = count + off
        shown = np.abs(values) >= cut if signed else values >= cut
        noise = Geometric(scale=scale)
        low, high = between(
            values[shown], at_least=cut, noise=noise, failure=failure, signed=signed
        )
        held = (low <= count) & (count <= high)
        assert (mass[shown] * held).sum() >= (1 - failure - 1e-7) * mass[shown].sum()


@pytest.mark.parametrize("failure", [0.05, 0.3])
@pytest.mark.parametrize(("variance", "cut"), [("0.1", 2), (1, 7), (100, 2), (100, 50), (100, 200)])
def test_with_gaussian_noise_every_count_is_in_its_interval_too(variance, cut, failure):
    noise = DiscreteGaussian(variance=Fraction(variance))
    spread = float(noise.variance) ** 0.5
    off = np.arange(-int(30 * spread) - 30, int(30 * spread) + 31)
    logs = -(off**2) / (2 * float(noise.variance))
    for count in {0, 1, cut // 2, cut - 1, cut, cut + 1, cut + int(2 * spread), cut + 400}:
        shown = count + off >= cut
        mass = np.exp(logs[shown] - logs[shown].max())  # given that it is shown
        low, high = between((count + off)[shown], at_least=cut, noise=noise, failure=failure)
        held = (low <= count) & (count <= high)
        assert (mass * held).sum() >= (1 - failure - 1e-7) * mass.sum()
        assert (mass * held).sum() < mass.sum() or failure * mass.sum() < mass.min()


def test_wide_gaussian_noise_is_that_of_the_normal_law():
    sigma = (1 << 15) + 1
    noise = DiscreteGaussian(variance=Fraction(sigma**2))
    low, high = between(np.array([100 * sigma]), at_least=5 * sigma, noise=noise, failure=0.05)
    assert (high[0] - low[0]) / 2 / sigma == pytest.approx(1.959964, abs=1e-4)


def test_far_above_the_threshold_it_is_the_interval_of_any_count():
    noise = Geometric(scale=Fraction(10))
    low, high = between(np.array([10_000]), at_least=50, noise=noise, failure=0.05)
    off = geometric_error(Fraction(10), confidence=Fraction(19, 20))
    assert (low[0], high[0]) == (10_000 - off, 10_000 + off)
    clear = clear_from(50, scale=Fraction(10), failure=Fraction(1, 20))
    low, _ = between(np.array([clear - 1, clear]), at_least=50, noise=noise, failure=0.05)
    assert low[0] == 0 < low[1]


@pytest.mark.parametrize("count", [0, 40, 100, 160, 250, 600])
def test_of_a_sample_it_is_about_all_units(count):
    """20,000 draws each, of which at least 0.95 are inside."""
    rng, p, scale, cut = np.random.default_rng(count), 0.25, 5, 30
    ratio = np.exp(-1 / scale)
    noise = rng.geometric(1 - ratio, 400_000) - rng.geometric(1 - ratio, 400_000)
    values = rng.binomial(count, p, 400_000) + noise
    values = values[values >= cut][:20_000]
    people = Sampling(probability=Fraction(1, 4), reach=Fraction(1), ones=True)
    low, high = between_all(
        values, at_least=cut, scale=Fraction(scale), failure=Fraction(1, 20), sampling=people
    )
    missed = int(((count < low) | (high < count)).sum())
    assert binom.sf(missed - 1, values.size, 0.05) > ALARM


TRUTH = {
    "even": np.repeat(np.arange(150) * 613, 30),  # near the threshold: about half are shown
    "tail": np.repeat(np.arange(400) * 247, (4000 / np.arange(1, 401) ** 1.1).astype(int)),
}


@pytest.mark.parametrize("unit", [None, "who"])
@pytest.mark.parametrize("more", [{}, {"threshold": 20}, {"size": 60}, {"tau": 60}])
@pytest.mark.parametrize("rows", TRUTH)
def test_the_cells_of_a_release_are_within_their_bars(rows, more, unit):
    """All shown cells of 5 releases, and their 20 largest, at a confidence of 0.9.

    Each test fails once in 10⁷ runs: cells are independent, and those outside at most binomial.
    """
    x = TRUTH[rows]
    counts = dict(zip(*np.unique(x, return_counts=True), strict=True))
    facts = {"x": {"type": "integer", "between": [0, 99_999]}}
    who = {} if unit is None else {"unit": "who", "rows_per_unit": 4}
    table = pa.table({"x": x, "who": np.arange(x.size) // 4})
    door = noisegate.open(table, epsilon=1000, columns=facts, **who)
    asked = {"columns": {"x": None}, "epsilon": 1 if unit else "0.25", **more}
    releases = [door.release("sparse", **asked, fresh=True) for _ in range(5)]
    for pick in (lambda made: made.to_arrow(0.9).to_pylist(), largest):
        missed = shown = 0
        for made in releases:
            cells = [each for each in pick(made) if each["n_margin"] is not None]
            shown += len(cells)
            missed += sum(
                abs(each["n"] - counts.get(each["x"], 0)) > each["n_margin"] for each in cells
            )
        assert binom.sf(missed - 1, shown, 0.1) > ALARM


def largest(made):
    answer = made.top(20)
    return [
        {"x": x, "n": n, "n_margin": width}
        for (x, n), width in zip(answer.rows, answer.half_widths(0.9)[-1], strict=True)
    ]
