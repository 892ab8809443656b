"""How far sums of noise reach: bounds that hold whatever the sum is made of.

>>> [round(tail_factor(failure, gaussian=False), 2) for failure in (0.1, 0.05, 0.01)]
[1.72, 2.16, 3.26]
"""

from fractions import Fraction
from functools import lru_cache
from math import erfc, exp, log, pi, sqrt
from statistics import NormalDist
from typing import Final

import numpy as np

from noisegate.desk.terms.price import Price, variance_of
from noisegate.mechanisms.additive.geometric import Geometric
from noisegate.releases.cells.estimate import Floats

_STEPS: Final = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
_ROUNDED: Final = 1 + 1e-9
_TINY: Final = 1e-300


def laplace_tail(t: float) -> float:
    """A bound on Pr[|S| > t σ] for any sum S of independent Laplace and normal noise, var(S) = σ².

    Claim: Pr[|S| > t σ] ≤ e^(-√2 t) F(t²/3) + e^(-t²/3) g'(t²/3), where F is the inverse Gaussian
        distribution function with mean t/√2 and shape t², and g'(v) = t φ(t/√v) v^(-3/2).
    Why: Laplace noise of variance p is √(p E) Z with E exponential of mean 1 and Z normal. So
        S = σ √V Z, V = p₀ + Σ p_i E_i, p₀ + Σ p_i = 1, and Pr[|S| > t σ] = E g(V), where
        g(v) = 2 Φ(-t/√v). Let h be g up to v = t²/3, where g turns from convex to concave, and its
        tangent from there on: h is convex and nowhere below g. So E g(V) ≤ E h(V) ≤ p₀ h(1) +
        Σ p_i E h(E_i) ≤ E h(E), by Jensen's inequality, twice. The last is the claim, by parts:
        g'(v) e^(-v) is e^(-√2 t) times an inverse Gaussian density. Rounding: doubles, raised by
        10⁻⁹, which is far above what they lose.
    """
    v = t * t / 3
    slope = exp(-1.5) / sqrt(2 * pi) * 3 * sqrt(3) / (t * t)
    below, above = (sqrt(3) * (sqrt(2) * t / 3 + end) for end in (-1, 1))
    inner = _normal(below) + exp(sqrt(8) * t) * _normal(-above)
    return min(1.0, (exp(-sqrt(2) * t) * inner + exp(-v) * slope) * _ROUNDED)


@lru_cache(maxsize=256)
def tail_factor(failure: float, *, gaussian: bool) -> float:
    """How many standard deviations a sum of draws exceeds with at most that probability.

    Gaussian: that of the normal law. Else the least t with `laplace_tail` (t) ≤ failure, which also
    holds for sums of Laplace noise with normal noise, however they are weighed.
    """
    if gaussian:
        return -NormalDist().inv_cdf(failure / 2)
    low, high = 0.0, sqrt(2) * log(2 / failure)
    while high - low > 1e-9:  # the bound falls
        middle = (low + high) / 2
        low, high = (low, middle) if laplace_tail(middle) <= failure else (middle, high)
    return high


def reach(variance: Floats, failure: float, price: Price, moved: int) -> Floats:
    """How far sums of the draws of a recipe reach, given their variances.

    Claim: each is exceeded with at most that probability. Why: a two-sided geometric draw Z has a
        Laplace one L = Z + W, where Z = ⌊X⌋ - ⌊Y⌋ for X, Y exponential and L = X - Y: the parts
        behind the point do not depend on the whole ones, and W, their difference, is symmetric and
        log-concave with variance at most 1/6. A sum S = Σ w Z has S + Σ w W, a sum of Laplace
        noise; T = Σ w W is symmetric, unimodal and of variance τ² ≤ Σ w² / 6, and no draw has less
        variance v than one for the whole price, so τ² ≤ var(S) / (6 v). As T does not depend on S,
        Pr[|S| > r + k τ] Pr[T ≥ -k τ] ≤ Pr[|S + T| > r], and Pr[T < -k τ] is at most half of what
        Gauss' inequality says. The best of several k is taken, or Chebyshev's inequality, where
        noise is so little that W would be most of it. Gaussian draws are as a normal law, which for
        one discrete draw of variance 1 or more is off by less than 10⁻⁸; for sums of several that
        is not proven. Rounding: doubles.
    """
    deviation = np.sqrt(variance)
    if price.gaussian:
        return tail_factor(failure, gaussian=True) * deviation
    scale = max(Fraction(moved) / price.amount, Geometric.LEAST)
    least = variance_of(Geometric(scale=scale))
    part = 1 / sqrt(6 * max(least, _TINY))
    best = min(
        tail_factor(failure * (1 - _beyond(k)), gaussian=False) * sqrt(1 + part**2) + k * part
        for k in _STEPS
    )
    return min(best, 1 / sqrt(failure)) * deviation


def _normal(x: float) -> float:
    """Φ(x), also where it is tiny."""
    return erfc(-x / sqrt(2)) / 2


def _beyond(k: float) -> float:
    """Pr[T > k τ] at most, for T symmetric and unimodal with variance τ²: half of Gauss' bound."""
    return 2 / (9 * k * k) if k * k > 4 / 3 else (1 - k / sqrt(3)) / 2
