"""How much Gaussian noise about a sample a price buys: whatever costs the account no more."""

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Final

from noisegate.accounting.accountants import accountant_named
from noisegate.accounting.search import digits_down
from noisegate.errors import Unsupported
from noisegate.privacy.event import DeclaredZCDPEvent, PoissonSampled

_DIGITS: Final = 6  # so few that other machines find the same
_NEAR: Final = 1e-5  # of a goal, on its logarithm


def inner_rho_down(
    epsilon: Fraction, *, probability: Fraction, accountant: str = "zcdp"
) -> Fraction | None:
    """A ρ for the sample that costs at most what ρ' = ε²/2 does about all, nearly the largest.

    None where the account has no price for it: sampled noise has whole Rényi orders only.

    Claim: its price is at most that of ρ', in the account's own measure and in ρ. Why: an order is
        to be (ε, δ)-private by itself, which ρ' implies; the order of a Rényi account alone does
        not imply it.
    """
    goal = epsilon**2 / 2
    payers = [accountant_named(each) for each in {accountant, "zcdp"}]

    def past(rho: Fraction) -> float:
        """The logarithm of its price in parts of the goal; below 0 where it keeps the goal."""
        step = PoissonSampled(event=DeclaredZCDPEvent(rho=rho), probability=probability)
        return max(_past(payer.loss(step)[0], payer.loss(whole)[0]) for payer in payers)

    whole = DeclaredZCDPEvent(rho=goal)
    high = digits_down(Fraction(math.log1p(2 * goal / probability**2) / 2), _DIGITS)
    try:
        return _largest(past, goal, max(goal, high))
    except Unsupported:
        return None


def _past(found: Fraction, most: Fraction) -> float:
    if not found:  # rounded to nothing
        return -1.0
    return math.log(found / most) if found > most else min(math.log(found / most), -1e-12)


def _largest(past: Callable[[Fraction], float], low: Fraction, high: Fraction) -> Fraction:
    """The largest number that was tried and is not past 0: false position, on logarithms."""
    below, above, kept = past(low), past(high), 0
    while below < -_NEAR and above > 0:
        part = below / (below - above)
        middle = digits_down(Fraction(float(low) * float(high / low) ** part), _DIGITS)
        if not low < middle < high:
            break
        found = past(middle)
        if found < 0:  # an end that stays twice counts half
            low, below, above, kept = middle, found, above / (1 + (kept < 0)), -1
        else:
            high, above, below, kept = middle, found, below / (1 + (kept > 0)), 1
    return high if above < 0 else low
