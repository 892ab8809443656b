"""What is claimed: the ε of an event at its own δ, or at several points of a curve."""

from collections.abc import Callable, Iterable
from fractions import Fraction
from math import exp
from typing import Final

import numpy as np

from noisegate.accounting.pure import pure_loss
from noisegate.accounting.zcdp import zcdp_loss
from noisegate.audit.confidence import Floats
from noisegate.errors import Unsupported
from noisegate.privacy.conversion import approx_of_zcdp
from noisegate.privacy.event import Event

_ORDERS: Final = 1 + np.geomspace(1e-3, 64, 24)
DELTAS: Final = (Fraction(1, 100), Fraction(1, 1000))  # a smaller δ would need more runs


def claims_of(event: Event, deltas: Iterable[Fraction] = DELTAS) -> dict[float, float]:
    """The ε that is claimed for an event: at its own δ, or at ``deltas`` where it is a curve."""
    try:
        loss = pure_loss(event)
    except Unsupported:
        curve = zcdp_loss(event)
        found = [approx_of_zcdp(curve, delta=delta) for delta in deltas]
        return {float(each.delta): float(each.epsilon) for each in found}
    return {float(loss.delta): float(loss.epsilon)}


def zcdp_claims(rho: Fraction, epsilons: Iterable[float]) -> dict[float, float]:
    """The least δ at each ε that follows from ρ for an event: sharper than any single order.

    Claim: p ≤ e^ε q + δ for an event of probabilities p and q on two neighbours.
    Why: whether the event occurs is post-processing, so both Rényi divergences of (p, 1 - p) and
        (q, 1 - q) are at most ρα at every order α; δ is the largest p - e^ε q that this leaves.
    Rounding: up. p is that of the next place of q, and rises with q; orders are left out.
    """
    places = 3000
    q = np.arange(1, places)[:, None] / places
    low, high, price = q.copy(), np.ones_like(q), float(rho) * _ORDERS
    for _ in range(30):
        p = (low + high) / 2
        fits = (_binary(p, q) <= price) & (_binary(q, p) <= price)
        held = fits.all(axis=1, keepdims=True)
        low, high = np.where(held, p, low), np.where(held, high, p)
    p, q = np.append(high[1:, 0], 1.0), q[:, 0]  # that of the next place, as p rises with q
    return {float((p - exp(each) * q).max()): each for each in epsilons}


def _binary(p: Floats, q: Floats) -> Floats:
    """The Rényi divergences of two coins."""
    with np.errstate(divide="ignore"):
        heads = _ORDERS * np.log(p) + (1 - _ORDERS) * np.log(q)
        tails = _ORDERS * np.log1p(-p) + (1 - _ORDERS) * np.log1p(-q)
    found: Floats = np.logaddexp(heads, tails) / (_ORDERS - 1)
    return found


def curve_claims(
    delta_of: Callable[[Fraction], Fraction], epsilons: Iterable[Fraction]
) -> dict[float, float]:
    """Points of an exact hockey-stick curve: the δ of each ε."""
    return {float(delta_of(epsilon)): float(epsilon) for epsilon in epsilons}
