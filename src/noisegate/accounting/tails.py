"""Tail probabilities of the noises, in ball arithmetic, for use inside `exact.upper` and friends.

Infinite sums end with a ball that contains the whole remainder, so the results are enclosures at
any precision.
"""

import math
from fractions import Fraction
from typing import Final

from flint import arb, ctx

from noisegate.exact import Real, real

# Beyond this variance a discrete Gaussian tail is bounded instead of summed.
EXACT_VARIANCE_MAX: Final = 1 << 16


def upper_tail(scale: Fraction, t: int) -> Real:
    """Pr[Z ≥ t] = α^t/(1 + α) for t ≥ 0, α = e^{-1/scale}: a geometric series [GRS09]."""
    return real(-t / scale).exp() / (1 + real(-1 / scale).exp())


def geometric_tail(scale: Fraction, within: int) -> Real:
    """Pr[|Z| > t] of two-sided geometric noise: both tails beyond t."""
    return 2 * upper_tail(scale, within + 1)


def gaussian_tail(variance: Fraction, within: Fraction) -> Real:
    """Pr[|Z| > x] = erfc(x/(σ√2))."""
    return (real(within * within / (2 * variance)).sqrt()).erfc()


def discrete_gaussian_tail(variance: Fraction, within: int) -> Real:
    """Pr[|Y| > t]: summed for moderate variances, else a bound that is tight to about 10⁻⁷.

    Claim: never less than the true tail.
    """
    if variance > EXACT_VARIANCE_MAX:
        return _both_tails_up(variance, within + 1)
    return 2 * discrete_gaussian_mass_from(variance, within + 1)


def discrete_gaussian_mass_from(variance: Fraction, start: int) -> Real:
    """Pr[Y ≥ m] for m ≥ 0, as a quotient of two theta-like sums."""
    rate = real(1 / (2 * variance))
    return _sum_from(rate, start) / _normaliser(variance)


def _normaliser(variance: Fraction) -> Real:
    """Σ over all integers of e^{-n²/2σ²}; for large σ by Poisson summation, which has few terms."""
    if variance < 1:
        return 1 + 2 * _sum_from(real(1 / (2 * variance)), 1)
    pi = arb.pi()
    dual = _sum_from(2 * pi * pi * real(variance), 1)
    return (2 * pi * real(variance)).sqrt() * (1 + 2 * dual)


def _sum_from(rate: Real, start: int) -> Real:
    """Σ_{n ≥ start} e^{-rate n²}, with the remainder bounded by a geometric series."""
    stop = _last_term(float(rate.mid()), start)
    term = (-rate * start * start).exp()
    ratio, shrink = (-rate * (2 * start + 1)).exp(), (-2 * rate).exp()
    total = arb(0)
    for _ in range(start, stop):
        total += term
        term *= ratio
        ratio *= shrink
    # ``term`` is now the first one left out and ``ratio`` bounds all later quotients.
    return total + arb(0).union(term / (1 - ratio))


def _last_term(rate: float, start: int) -> int:
    """Where the terms have become smaller than the first one by the working precision."""
    return math.isqrt(start * start + math.ceil(ctx.prec * math.log(2) / rate)) + 2


def _both_tails_up(variance: Fraction, start: int) -> Real:
    """A ball whose upper end is at least Pr[|Z| ≥ start], for σ ≥ 64 and start ≥ 1.

    Claim: with f(x) = e^(-x² / 2σ²), the sum of f over whole x ≥ a is at most
        ∫ₐ f + f(a) / 2 - f'(a) / 12 + V / 120, V the variation of f'' beyond a.
    Why: Euler-Maclaurin to second order; |B₃(x)| / 3! ≤ √3 / 216 < 1 / 120 bounds the remainder.
        f'' falls beyond √3 σ, so V = f''(a) there, and V ≤ 2 / σ² everywhere (it rises from
        -1 / σ² to 2 e^(-3/2) / σ² and falls to 0). All weights sum to at least σ √(2π), by Poisson
        summation.
    """
    a, sigma = real(start), real(variance).sqrt()
    here = (-a * a / (2 * real(variance))).exp()
    integral = sigma * (arb.pi() / 2).sqrt() * (a / (sigma * arb(2).sqrt())).erfc()
    variation = real(2 / variance)
    if start * start >= 3 * variance:
        variation = (a * a / real(variance) - 1) / real(variance) * here
    slope = a / real(variance) * here
    tail = integral + here / 2 + slope / 12 + variation / 120
    return 2 * tail / (sigma * (2 * arb.pi()).sqrt())
