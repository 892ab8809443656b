"""Which share of the price of a question is for looks at its caps.

Chosen on tables of made-up shapes (`bench/truth.py`): a look that sees fewer units leaves more of
what a cap loses to a model, and one that costs more leaves less for the numbers.
"""

from fractions import Fraction
from typing import Final

_LEAST: Final = Fraction(1, 8)
_MOST: Final = Fraction(1, 2)
# an ε with which a look sees a hundred units, or two dozen, for up to such a share of the price
_SEEN: Final = (Fraction(6, 125), Fraction(12, 25)), (Fraction(1, 5), Fraction(1, 5))
_TWO: Final = Fraction(3, 2)  # times that for two sizes
_RATIOS: Final = Fraction(3, 4)  # where averages alone are asked, which depend less on their cap


def share_of(epsilon: Fraction, *, two: bool, ratios: bool, rho: bool = False) -> Fraction:
    """More of a small price, which else would show nothing. With ``rho``, the share of that.

    Why: a look that sees as much is the same step ε in both, and costs (seen / ε)² of ρ.
    """
    power = 2 if rho else 1
    share = max(_LEAST, *(min((seen / epsilon) ** power, most) for seen, most in _SEEN))
    if ratios:
        return share * _RATIOS
    return min(share * _TWO, _MOST) if two else share


def is_tight(epsilon: Fraction, *, rho: bool = False) -> bool:
    """Whether two looks would take all that looks may."""
    return share_of(epsilon, two=True, ratios=False, rho=rho) >= _MOST


def former_share_of(epsilon: Fraction, *, two: bool) -> Fraction:
    """What it once was, of counts and sums: looks of that price are on ledgers."""
    seen, most = _SEEN[0]
    share = max(_LEAST, min(seen / epsilon, most))
    return min(2 * share, _MOST) if two else share
