"""Chi-square audits of every sampler: honest draws pass, a slightly broken copy is caught.

Each audit compares counts with exact bin masses and alarms below a p-value of 1e-9, its false-alarm
rate; about 130 audits in one run raise a false alarm once in several million runs. Bins hold at
least 500 expected draws, where the chi-square approximation holds that far out; slow samplers make
do with 100 per bin, where the tail is up to a hundred times heavier, and alarm at 1e-11 instead.
Mutants are chosen far beyond the smallest change that could be seen, so that none is ever missed.
"""

from collections import Counter
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from itertools import permutations
from math import exp

import numpy as np
import pytest
from scipy import stats

from noisegate.noise.binomials import binomial
from noisegate.noise.choice import Contest, choose
from noisegate.noise.coins import bernoulli, bernoulli_exp, sample_rows
from noisegate.noise.continuous import Gaussian, Laplace, StudentT, rounded
from noisegate.noise.cut_geometric import geometric_tail, truncated_geometric
from noisegate.noise.gaussian import discrete_gaussian
from noisegate.noise.geometric import discrete_laplace, geometric, geometric_gaps
from noisegate.noise.uniform import uniform_below

FALSE_ALARM = 1e-9
FALSE_ALARM_SMALL, EXPECTED_MIN_SMALL = 1e-11, 100
EXPECTED_MIN = 500
BINS_MAX = 150
SHORT, LONG = 10**6, 10**7


def p_value(counts, masses, *, least=EXPECTED_MIN):
    """Pearson's chi-square test of counts against exact masses; small bins are pooled first."""
    counts, masses = np.asarray(counts, np.float64), np.asarray(masses, np.float64)
    assert abs(masses.sum() - 1) < 1e-9, "the masses are not a law"
    expected = counts.sum() * masses
    small = expected < least
    if small.any():
        counts = np.append(counts[~small], counts[small].sum())
        expected = np.append(expected[~small], expected[small].sum())
        if expected[-1] < least:  # even together they are rare: add them to the largest
            place = expected[:-1].argmax()
            counts[place] += counts[-1]
            expected[place] += expected[-1]
            counts, expected = counts[:-1], expected[:-1]
    assert counts.size > 1, "too few draws to fill two bins"
    statistic = ((counts - expected) ** 2 / expected).sum()
    return stats.chi2.sf(statistic, counts.size - 1)


def audit(draws, cdf, *, centre=0, least=EXPECTED_MIN):
    """The p-value of integer draws against a distribution function, in at most BINS_MAX bins."""
    tail = 2 * least / draws.size
    levels = np.linspace(tail, 1 - tail, min(BINS_MAX, int(draws.size / least / 2)))
    edges = np.unique(_quantiles(cdf, levels, centre))
    below = np.concatenate([[0.0], cdf(edges.astype(np.float64)), [1.0]])
    counts = np.bincount(np.searchsorted(edges, draws, side="left"), minlength=edges.size + 1)
    return p_value(counts, np.diff(below), least=least)


def _quantiles(cdf, levels, centre):
    """The least k with F(k) ≥ level, for each level: single outcomes, or intervals of some."""
    low, high = np.full(levels.size, centre - 1), np.full(levels.size, centre + 1)
    for step in 2 ** np.arange(62):
        too_high, too_low = (
            cdf(low.astype(np.float64)) >= levels,
            cdf(high.astype(np.float64)) < levels,
        )
        if not (too_high.any() or too_low.any()):
            break
        low, high = low - step * too_high, high + step * too_low
    while (high - low > 1).any():
        middle = low + (high - low) // 2
        reached = cdf(middle.astype(np.float64)) >= levels
        low, high = np.where(reached, low, middle), np.where(reached, middle, high)
    return high


def laplace_cdf(scale, k):
    alpha = exp(-1 / scale)
    return np.where(
        k >= 0,
        1 - np.exp(-(np.abs(k) + 1) / scale) / (1 + alpha),
        np.exp(-np.abs(k) / scale) / (1 + alpha),
    )


def geometric_cdf(scale, k):
    return np.where(k < 0, 0.0, -np.expm1(-(np.maximum(k, 0) + 1) / scale))


def gaussian_table_cdf(sigma):
    reach = int(12 * sigma) + 3
    weights = np.exp(-(np.arange(-reach, reach + 1) ** 2) / (2 * sigma**2))
    sums = np.cumsum(weights) / weights.sum()
    return lambda k: np.where(
        k < -reach,
        0.0,
        np.where(k > reach, 1.0, sums[np.clip(k, -reach, reach).astype(int) + reach]),
    )


def uniform_cdf(bound, k):
    return np.clip((np.asarray(k) + 1) / bound, 0, 1)


@dataclass(frozen=True)
class Audit:
    """A sampler with a knob: stretch 1 is honest, anything else is the broken copy."""

    name: str
    draw: object
    cdf: object
    centre: int = 0
    stretch: Fraction = Fraction(103, 100)  # 3 % at a million draws, 1 % at ten million


def _of_scale(name, sampler, cdf, scale):
    scale = Fraction(scale)
    return Audit(f"{name} {scale}", lambda n, s: sampler(scale * s, n), partial(cdf, float(scale)))


AUDITS = [
    *[
        _of_scale("discrete laplace", discrete_laplace, laplace_cdf, s)
        for s in ("1/2", 1, 4, 5, 1000)
    ],
    _of_scale(
        "discrete laplace", lambda s, n: discrete_laplace(min(s, 2**40), n), laplace_cdf, 2**20
    ),
    Audit(
        "discrete laplace 2**40",
        lambda n, s: discrete_laplace(2**40 / s, n),
        partial(laplace_cdf, 2.0**40),
    ),
    *[_of_scale("geometric", geometric, geometric_cdf, s) for s in ("1/2", 3, 700)],
    Audit(
        "geometric tail",
        lambda n, s: geometric_tail(40, 9 * s, n) - 40,
        partial(geometric_cdf, 9.0),
    ),
    *[
        Audit(
            f"gaps of {p}",
            lambda n, s, p=p: geometric_gaps(Fraction(p) * s, n),
            partial(geometric_cdf, -1 / np.log1p(-float(Fraction(p)))),
        )
        for p in ("9/10", "1/3", "1/1000", "1/1000000000000000")
    ],
    *[
        Audit(
            f"discrete gaussian {sigma}",
            lambda n, s, sigma=sigma: discrete_gaussian(Fraction(sigma) * s, n),
            gaussian_table_cdf(float(Fraction(sigma))),
        )
        for sigma in ("1/2", 1, 10, 64, 65, 1000)
    ],
    *[
        Audit(
            f"rounded {name} {scale}",
            lambda n, s, shape=shape, scale=scale: rounded(shape, Fraction(scale) * s, n),
            lambda k, law=law, scale=scale: law.cdf((k + 0.5) / float(Fraction(scale))),
        )
        for name, shape, law in [
            ("laplace", Laplace(), stats.laplace),
            ("gaussian", Gaussian(), stats.norm),
            ("cauchy", StudentT(1), stats.cauchy),
            ("t3", StudentT(3), stats.t(3)),
            ("t10", StudentT(10), stats.t(10)),
        ]
        for scale in (2, 1000)
    ],
    *[
        Audit(
            f"bernoulli {p}",
            lambda n, s, p=p: bernoulli(min(1, Fraction(p) * s), n),
            lambda k, p=p: np.where(k < 0, 0.0, np.where(k < 1, 1 - float(Fraction(p)), 1.0)),
        )
        for p in ("1/2", "1/3", "9/10")
    ],
    *[
        Audit(
            f"binomial {trials} {p}",
            lambda n, s, trials=trials, p=p: binomial(trials, Fraction(p) * s, n),
            partial(stats.binom.cdf, n=trials, p=float(Fraction(p))),
            centre=trials // 3,
        )
        for trials, p in [(5, "1/3"), (100, "1/7"), (1024, "1/2")]
    ],
    *[
        Audit(
            f"uniform {bound}",
            lambda n, s, bound=bound: uniform_below(int(bound * s), n),
            partial(uniform_cdf, bound),
        )
        for bound in (100, 10**9, 2**62)
    ],
]
STANDARD = pytest.mark.parametrize("case", AUDITS, ids=[case.name for case in AUDITS])


@pytest.mark.long
@STANDARD
def test_a_million_draws_follow_the_law_and_three_percent_more_is_seen(case):
    assert audit(case.draw(SHORT, Fraction(1)), case.cdf, centre=case.centre) > FALSE_ALARM
    mutant = case.draw(SHORT, case.stretch)
    assert audit(mutant, case.cdf, centre=case.centre) < FALSE_ALARM


@pytest.mark.audit
@STANDARD
def test_ten_million_draws_follow_the_law_and_one_percent_more_is_seen(case):
    assert audit(case.draw(LONG, Fraction(1)), case.cdf, centre=case.centre) > FALSE_ALARM
    mutant = case.draw(LONG, Fraction(101, 100))
    assert audit(mutant, case.cdf, centre=case.centre) < FALSE_ALARM


def digit_masses(scale, place, width=8):
    """Masses of the bits ``place`` … ``place + width - 1`` of Z in two's complement."""
    steps = np.arange(1 << width) * 2.0**place / scale
    digit = np.exp(-steps) / np.exp(-steps).sum()
    alpha = exp(-1 / scale)
    return (digit + alpha * digit[::-1]) / (1 + alpha)


def digits_of(draws, place, width=8):
    return np.bincount((draws >> place) & ((1 << width) - 1), minlength=1 << width)


PLACES = [(4, 0), (5, 0), (1000, 0), (1000, 5), (2**20, 0), (2**20, 9), (2**40, 0), (2**40, 7),
          (2**40, 16), (2**40, 30), (2**40, 36)]  # fmt: skip


@pytest.mark.parametrize(("scale", "place"), PLACES)
def test_every_byte_of_discrete_laplace_noise_has_its_exact_law(scale, place):
    """Rounded or float noise leaves traces in low bits. The mutant sets its lowest bit 1 % more."""
    draws = discrete_laplace(scale, SHORT)
    masses = digit_masses(float(scale), place)
    assert p_value(digits_of(draws, place), masses) > FALSE_ALARM
    broken = draws | (bernoulli("1/25", draws.size).astype(np.int64) << place)
    assert p_value(digits_of(broken, place), masses) < FALSE_ALARM


@pytest.mark.audit
@pytest.mark.parametrize(("scale", "place"), PLACES)
def test_every_byte_has_its_exact_law_at_ten_million_draws(scale, place):
    draws = discrete_laplace(scale, LONG)
    masses = digit_masses(float(scale), place)
    assert p_value(digits_of(draws, place), masses) > FALSE_ALARM
    broken = draws | (bernoulli("1/100", draws.size).astype(np.int64) << place)
    assert p_value(digits_of(broken, place), masses) < FALSE_ALARM


@pytest.mark.parametrize("scale", [1000, 2**40])
def test_digits_signs_and_neighbours_are_independent(scale):
    """Low bits against sign, and against the next draw; the mutant repeats one draw in twenty."""
    draws = discrete_laplace(scale, SHORT)
    low, alpha = digit_masses(float(scale), 0, 4), exp(-1 / scale)
    steps = np.exp(-np.arange(16) / scale)
    digit = steps / steps.sum()
    joint = np.concatenate([digit, alpha * digit[::-1]]) / (1 + alpha)
    assert p_value(np.bincount((draws & 15) + 16 * (draws < 0), minlength=32), joint) > FALSE_ALARM
    pairs = np.outer(low, low).reshape(-1)

    def neighbours(z):
        return np.bincount((z[::2] & 15) * 16 + (z[1::2] & 15), minlength=256)

    assert p_value(neighbours(draws), pairs) > FALSE_ALARM
    repeated = bernoulli("1/20", SHORT // 2)
    draws[1::2][repeated] = draws[::2][repeated]
    assert p_value(neighbours(draws), pairs) < FALSE_ALARM


@pytest.mark.parametrize("sigma", [65, 1000])
def test_low_bits_of_large_gaussian_noise_are_fair(sigma):
    """The parity of a discrete Gaussian is fair to within e^(-π² σ² / 2), which is nothing here."""
    draws = discrete_gaussian(sigma, SHORT)
    assert p_value(digits_of(draws, 0, 4), np.full(16, 1 / 16)) > FALSE_ALARM
    broken = draws | bernoulli("1/25", draws.size)
    assert p_value(digits_of(broken, 0, 4), np.full(16, 1 / 16)) < FALSE_ALARM


def test_clamped_noise_piles_up_its_tails_at_both_ends():
    """n = 3, N = 10, ε = 0.7: α^n / (1 + α) = 0.0818239 and α^(N - n) / (1 + α) = 0.0049757."""
    scale, alpha = Fraction(10, 7), exp(-0.7)
    masses = (1 - alpha) / (1 + alpha) * alpha ** np.abs(np.arange(11) - 3.0)
    masses[0], masses[10] = alpha**3 / (1 + alpha), alpha**7 / (1 + alpha)
    assert (round(masses[0], 7), round(masses[10], 7)) == (0.0818239, 0.0049757)
    values = np.full(SHORT, 3)
    honest = np.bincount(truncated_geometric(values, scale, top=10), minlength=11)
    assert p_value(honest, masses) > FALSE_ALARM
    broken = np.bincount(
        truncated_geometric(values, scale * Fraction(103, 100), top=10), minlength=11
    )
    assert p_value(broken, masses) < FALSE_ALARM


def test_the_reference_laws_agree_with_the_known_numbers_at_scale_one():
    k = np.arange(-60, 61)
    masses = np.diff(laplace_cdf(1.0, np.arange(-61, 61).astype(float)))
    moments = masses[60], (np.abs(k) * masses).sum(), (k**2 * masses).sum(), masses[65:].sum()
    assert [round(m, 6) for m in moments[:3]] == [0.462117, 0.850918, 1.841347]
    assert round(moments[3], 9) == 0.004925834
    assert round(float(geometric_cdf(1.0, 5) - geometric_cdf(1.0, 4)), 9) == 0.004259195


def test_coins_with_a_bias_per_lane_follow_their_exponentials():
    exponents = [Fraction(j, 8) for j in range(20)]
    counts, rounds = np.zeros(20), 60_000
    rough = np.tile([float(e) for e in exponents], 1000)
    for _ in range(rounds // 1000):
        coins = bernoulli_exp(rough, lambda lane: exponents[lane % 20], error=2.0**-50)
        counts += coins.reshape(-1, 20).sum(axis=0)
    for exponent, ones in zip(exponents[1:], counts[1:], strict=True):
        p = exp(-float(exponent))
        assert p_value([ones, rounds - ones], [p, 1 - p]) > FALSE_ALARM
        assert p_value([ones, rounds - ones], [0.8 * p, 1 - 0.8 * p]) < FALSE_ALARM
    assert counts[0] == rounds


def test_row_samples_have_binomial_sizes_and_keep_all_rows_alike():
    p, count, rounds = Fraction(1, 50), 1000, 4000
    samples = [sample_rows(count, p) for _ in range(rounds)]
    sizes = np.array([rows.size for rows in samples])
    seen = partial(audit, cdf=stats.binom(count, float(p)).cdf, centre=20, least=EXPECTED_MIN_SMALL)
    assert seen(sizes) > FALSE_ALARM_SMALL
    assert seen(sizes + 1) < FALSE_ALARM_SMALL
    tenths = np.bincount(np.concatenate(samples) // 100, minlength=10)
    assert p_value(tenths, np.full(10, 0.1)) > FALSE_ALARM
    assert p_value(tenths * np.linspace(0.9, 1.1, 10), np.full(10, 0.1)) < FALSE_ALARM


def large_binomials_follow_their_law(draws, shift):
    trials, p = 10**6, Fraction(1, 3)
    seen = partial(
        audit, cdf=stats.binom(trials, float(p)).cdf, centre=trials // 3, least=EXPECTED_MIN_SMALL
    )
    assert seen(binomial(trials, p, draws)) > FALSE_ALARM_SMALL
    assert seen(binomial(trials, p + shift, draws)) < FALSE_ALARM_SMALL


@pytest.mark.long
def test_large_binomials_follow_the_law_and_a_shift_by_one_deviation_is_seen():
    large_binomials_follow_their_law(1500, Fraction(1, 2000))


@pytest.mark.audit
def test_large_binomials_follow_the_law_and_a_shift_by_a_fifth_of_a_deviation_is_seen():
    large_binomials_follow_their_law(20_000, Fraction(1, 10_000))


SCORES = np.array([0, -1, -3, -4, 2])
FACTOR = Fraction(1, 3)


def softmax_sequences(weights, k):
    """The law of k choices in a row without replacement, each proportional to its weight."""
    law = {}
    for order in permutations(range(len(weights)), k):
        left, mass = sum(weights), 1.0
        for i in order:
            mass, left = mass * weights[i] / left, left - weights[i]
        law[order] = mass
    return law


def permute_and_flip_law(factor):
    accept = [exp(float(factor) * (s - int(SCORES.max()))) for s in SCORES.tolist()]
    law = dict.fromkeys(((i,) for i in range(len(accept))), 0.0)
    orders = list(permutations(range(len(accept))))
    for order in orders:
        left = 1 / len(orders)
        for i in order:
            law[(i,)] += left * accept[i]
            left *= 1 - accept[i]
    return law


MULTIPLICITY = np.array([3, 0, 10, 1, 2])
CHOICES = {
    "gumbel": (
        {},
        None,
        lambda: softmax_sequences([exp(float(FACTOR) * s) for s in SCORES.tolist()], 1),
    ),
    "gumbel, two in a row": (
        {"k": 2},
        None,
        lambda: softmax_sequences([exp(float(FACTOR) * s) for s in SCORES.tolist()], 2),
    ),
    "gumbel with multiplicities": (
        {},
        MULTIPLICITY,
        lambda: softmax_sequences(
            [
                m * exp(float(FACTOR) * s)
                for m, s in zip(MULTIPLICITY.tolist(), SCORES.tolist(), strict=True)
            ],
            1,
        ),
    ),
    "exponential": ({"noise": "exponential"}, None, lambda: permute_and_flip_law(FACTOR)),
}


def choices_follow_their_law(name, draws, stretch):
    options, multiplicity, law = CHOICES[name][0], CHOICES[name][1], CHOICES[name][2]()

    def seen(factor):
        contest = Contest(SCORES, factor, multiplicity)
        counts = Counter(tuple(choose(contest, **options).tolist()) for _ in range(draws))
        observed = [counts[outcome] for outcome in law]
        return p_value(observed, list(law.values()), least=EXPECTED_MIN_SMALL)

    assert seen(FACTOR) > FALSE_ALARM_SMALL
    assert seen(FACTOR * stretch) < FALSE_ALARM_SMALL


@pytest.mark.long
@pytest.mark.parametrize("name", CHOICES)
def test_choices_follow_their_law_and_twice_the_factor_is_seen(name):
    choices_follow_their_law(name, 3000, Fraction(2))


@pytest.mark.audit
@pytest.mark.parametrize("name", CHOICES)
def test_choices_follow_their_law_and_a_seventh_more_is_seen_in_fifty_thousand(name):
    choices_follow_their_law(name, 50_000, Fraction(8, 7))


def test_the_audit_itself_is_calibrated():
    """Under the law its p-values are uniform: 200 of 1000 below 0.2, and none below 1e-13."""
    masses = digit_masses(5.0, 0, 4)
    values = []
    for _ in range(1000):
        draws = uniform_below(1 << 30, 20_000)
        counts = np.bincount(
            np.searchsorted(np.cumsum(masses) * 2**30, draws, side="right"), minlength=16
        )
        values.append(p_value(counts[:16], masses))
    assert min(values) > 1e-13
    assert 110 < sum(value < 0.2 for value in values) < 290  # 7.1 sigma: 1e-12
