"""How large one number of box noise is: tail and variance, in ball arithmetic and in floats.

With y = s + ½ over the radii s, one number of a cell of width w exceeds t with probability
Σ_{s > t} (y - c) y^(w-1) e^(-λy) / Σ y^w e^(-λy), c = t + ½, λ = 1/scale: given s it is uniform on
2s + 1 places, 2 (s - t) of which are beyond t, and Pr[s] ∝ (2s + 1)^w e^(-λs).
"""

from fractions import Fraction
from math import sqrt
from typing import Final

import numpy as np
from flint import arb, ctx

from noisegate.exact import Real, real

_TERMS_MAX: Final = 1 << 12  # sums up to here are added up, longer ones are compared with integrals
_FLOAT_TERMS_MAX: Final = 1 << 16


def box_tail(scale: Fraction, width: int, within: int) -> Real:
    """Pr[|z| > t] for one number of a cell, for use inside `exact.upper`.

    Claim: never less than the true tail, and beyond it by about 1 / scale² of it, where the
        sums are long. Why: the sums themselves, with their remainders bounded; or the integrals,
        see `_tail_up`. Rounding: up.
    """
    if _terms(scale, width, within) <= _TERMS_MAX:
        return _sum(scale, width - 1, within) / _sum(scale, width, None)
    return _tail_up(scale, width, within)


def box_variance(scale: Fraction, width: int) -> float:
    """E[z²] of one number: E[s (s + 1)] / 3 over the radii s, as a float.

    Why: z is uniform on {-s, …, s}, and s (s + 1) = y² - ¼. Where the sum is long it is that of a
        gamma law, E[y²] = (w + 1) (w + 2) scale², to a few parts in (2π scale)^(w + 1) [Poisson's
        summation of y^w e^(-λy), which is smooth at 0 up to its w-th derivative].
    """
    wide = float(scale)
    last = wide * (width + 1 + 12 * sqrt(width + 1) + 60)
    if last > _FLOAT_TERMS_MAX:
        return ((width + 1) * (width + 2) * wide**2 - 0.25) / 3
    y = np.arange(int(last) + 2) + 0.5
    logs = width * np.log(y) - y / wide
    weights = np.exp(logs - logs.max())
    return float((weights @ (y * y) / weights.sum() - 0.25) / 3)


def _terms(scale: Fraction, width: int, within: int) -> int:
    """About how many terms a sum has before the rest is negligible at the working precision."""
    reach = width + 1 + sqrt(2 * (width + 1) * ctx.prec) + ctx.prec
    return within + int(scale * int(reach)) + 64


def _sum(scale: Fraction, power: int, within: int | None) -> Real:
    """Σ y^power e^(-λy) over y = ½, 1½, …, or with the factor y - c over those beyond c = t + ½."""
    rate, start = real(1 / scale), 0 if within is None else within + 1
    stop = start + _terms(scale, power, start)
    shrink = (-rate).exp()
    decay, total = (-rate * (real(start) + real(Fraction(1, 2)))).exp(), arb(0)
    for s in range(start, stop):
        total += _term(s, power, within) * decay
        decay *= shrink
    # the quotients of neighbouring terms fall, so a geometric series bounds the remainder
    first, second = _term(stop, power, within) * decay, _term(stop + 1, power, within) * decay
    return total + arb(0).union(first / (1 - second * shrink / first))


def _term(s: int, power: int, within: int | None) -> Real:
    return (real(2 * s + 1) / 2) ** power * (1 if within is None else s - within)


def _tail_up(scale: Fraction, width: int, within: int) -> Real:
    """A ball whose upper end is at least the tail.

    Claim: Σ f ≤ ∫ f + ⅛ ∫ |f''| from t on, for f(y) = (y - c) y^n e^(-λy), n = w - 1, and
        Σ g ≥ (1 - λ²/2) w! / λ^(w+1) for g(y) = y^w e^(-λy).
    Why: each y is the middle of a unit interval, where Peano's kernel of the midpoint rule is at
        most ⅛; f(c) = 0 adds nothing to the sum. |f''| ≤ (y - t) |q''| + 2 |q'| + ½ |q''| with
        q = y^n e^(-λy), and |q''| ≤ (n (n-1) y^(n-2) + 2 n λ y^(n-1) + λ² y^n) e^(-λy); likewise
        ∫ |g''| ≤ 4 λ² ∫ g. All of these are incomplete gamma functions.
    """
    rate, n, w, at = real(1 / scale), width - 1, width, real(within / scale)

    def beyond(power: int) -> Real:  # ∫ from λt of x^power e^-x; negative powers stand beside a 0
        return at.gamma_upper(arb(power + 1)) if power >= 0 else arb(0)

    def bend(more: int) -> Real:
        k = n + more
        return n * (n - 1) * beyond(k - 2) + 2 * n * beyond(k - 1) + beyond(k)

    area = beyond(w) - (at + rate / 2) * beyond(n)
    bent = bend(1) - at * bend(0) + rate / 2 * bend(0) + 2 * (n * beyond(n - 1) + beyond(n))
    least = arb(w + 1).gamma() * (1 - rate * rate / 2)
    return (area + rate * rate / 8 * bent) / least
