"""How the price of a question is shared between the numbers it measures.

Let piece j have sensitivity s_j and share x_j of the price. Its noise has a standard deviation of
about s_j / (ε x_j) (geometric noise, shares of ε) or s_j / (ε √x_j) (Gaussian noise, shares of ρ).
To first order the relative error of aggregate k has the variance

    V_k = Σ_j g_kj² / x_j^p,    p = 2 (geometric) or 1 (Gaussian),

where g_kj says how much of a relative error a change by the sensitivity makes; `recipe.py` guesses
it from public facts. We want the least max_k V_k with Σ x_j = 1. This is convex. At its optimum
there are multipliers λ_k ≥ 0 for the largest V_k, and setting the derivative of
Σ_k λ_k V_k + μ Σ_j x_j to zero gives

    x_j ∝ (Σ_k λ_k g_kj²)^(1 / (p + 1)).

So one average shares by cube roots of squares, x ∝ g^(2/3), and separate counts and sums share in
proportion to g, which makes their relative errors equal. The multipliers are found by raising those
of the aggregates that are worst. Shares are cut to whole thousandths: prices stay readable, and
two machines agree on them.
"""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from math import inf
from typing import Final, final

import numpy as np

from noisegate.frozen import dataclass

ROUNDS: Final = 300
GAP: Final = 1e-14  # of the worst, where the search ends
PARTS: Final = 1000


@final
@dataclass(frozen=True, slots=True)
class Split:
    """The shares of the pieces, together 1, and the worst guessed relative error, squared."""

    shares: tuple[Fraction, ...]
    worst: float


def split(errors: Sequence[Mapping[int, float]], *, pieces: int, gaussian: bool) -> Split:
    """Shares for the pieces such that the worst aggregate is as good as it can be.

    >>> split([{0: 1.0}, {1: 3.0}], pieces=2, gaussian=False).shares
    (Fraction(1, 4), Fraction(3, 4))
    >>> split([{0: 8.0, 1: 1.0}], pieces=2, gaussian=False).shares
    (Fraction(4, 5), Fraction(1, 5))
    """
    return _split(tuple(tuple(each.items()) for each in errors), pieces, 1 if gaussian else 2)


@lru_cache(maxsize=1024)  # questions of one form differ by what rows they are about
def _split(errors: tuple[tuple[tuple[int, float], ...], ...], pieces: int, power: int) -> Split:
    if pieces == 0:
        return Split((), 0.0)
    squares = np.zeros((len(errors), pieces))
    for row, weights in enumerate(errors):
        for piece, weight in weights:
            squares[row, piece] = max(weight, 1e-6) ** 2
    multipliers = np.full(len(errors), 1 / len(errors))
    best, worst = np.full(pieces, 1 / pieces), inf
    add, largest = np.add.reduce, np.maximum.reduce
    for _ in range(ROUNDS):
        shares = np.maximum(multipliers @ squares, 1e-18) ** (1 / (power + 1))
        shares /= add(shares)
        variances = add(squares / shares**power, axis=1)
        top = float(largest(variances))
        if top < worst:
            best, worst = shares, top
        if top - float(multipliers @ variances) <= GAP * top:
            break  # no shares are better: Σ λ_k V_k is least at these, for any λ that sum to 1
        multipliers *= variances / top
        multipliers /= add(multipliers)
    return Split(_rounded(best), worst)


def _rounded(shares: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> tuple[Fraction, ...]:
    """Whole thousandths (or finer for many pieces) that add up to 1; none is 0."""
    parts = PARTS * max(1, 10 ** (len(str(shares.size)) - 1))
    whole = np.maximum(1, np.rint(np.round(shares * parts, 6)).astype(np.int64))
    whole[np.argmax(whole)] += parts - whole.sum()
    return tuple(Fraction(int(count), parts) for count in whole)
