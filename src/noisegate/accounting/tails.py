"""Tail probabilities of the noises, in ball arithmetic, for use inside `exact.upper` and friends.

Infinite sums end with a ball that contains the whole remainder, so the results are enclosures at
any precision.
"""

import math
from fractions import Fraction
from typing import Final

from flint import arb, ctx

from noisegate.exact import Real, real

# Beyond this variance a discrete Gaussian tail is bounded instead of summed (one unit looser).
EXACT_VARIANCE_MAX: Final = 1 << 16


def geometric_tail(scale: Fraction, within: int) -> Real:
    """Pr[|Z| > t] = 2 α^{t+1}/(1 + α), α = e^{-1/scale}: the two geometric series [GRS09]."""
    return 2 * real(-(within + 1) / scale).exp() / (1 + real(-1 / scale).exp())


def gaussian_tail(variance: Fraction, within: Fraction) -> Real:
    """Pr[|Z| > x] = erfc(x/(σ√2))."""
    return (real(within * within / (2 * variance)).sqrt()).erfc()


def discrete_gaussian_tail(variance: Fraction, within: int) -> Real:
    """Pr[|Y| > t]: summed for moderate variances, otherwise Pr[Y ≥ m] ≤ Pr[N ≥ m - 1].

    Claim: never less than the true tail. Why: the terms from m on fall, so their sum is at most
        the integral from m - 1 on, and the normaliser is at least σ√(2π) by Poisson summation
        [CKS20]. The bound moves the answer to "which t?" by at most one.
    """
    if variance > EXACT_VARIANCE_MAX:
        return gaussian_tail(variance, Fraction(within))
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
