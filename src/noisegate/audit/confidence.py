"""From counts to a bound: Clopper-Pearson intervals, and what they cost in false alarms.

>>> round(epsilon_lower(7311, 2689, trials=10_000, alpha=1e-6).item(), 2)  # e^1 to 1
0.89
"""

from collections.abc import Callable, Iterable
from fractions import Fraction
from math import exp, inf, log
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betainccinv, betaincinv

from noisegate.accounting.pure import pure_loss
from noisegate.accounting.zcdp import zcdp_loss
from noisegate.errors import SpecError, Unsupported
from noisegate.privacy.conversion import approx_of_zcdp
from noisegate.privacy.event import Event

Floats = NDArray[np.float64]


def epsilon_lower(
    hits: ArrayLike, hits_neighbour: ArrayLike, *, trials: int, alpha: float, delta: float = 0.0
) -> Floats:
    """A lower bound on ε with confidence 1 - alpha, from one event counted on both neighbours.

    Claim: if (ε, δ)-privacy holds, the bound exceeds ε with probability at most alpha.
    Why: p ≤ e^ε q + δ for every event; p is bounded from below and q from above by Clopper-Pearson
        intervals at alpha / 2 each, which hold whatever p and q are, so long as the event was
        chosen without looking at these runs.
    """
    p = probability_lower(hits, trials=trials, alpha=alpha / 2)
    q = probability_upper(hits_neighbour, trials=trials, alpha=alpha / 2)
    with np.errstate(divide="ignore"):
        bound: Floats = np.log(np.maximum(p - delta, 0) / q)
    return bound


def probability_lower(hits: ArrayLike, *, trials: int, alpha: float) -> Floats:
    """A bound from below on how likely an event is, wrong with probability at most alpha."""
    count = np.asarray(hits, np.float64)
    inside = betaincinv(np.maximum(count, 1), trials - count + 1, alpha)
    return np.where(count > 0, inside, 0.0)


def probability_upper(hits: ArrayLike, *, trials: int, alpha: float) -> Floats:
    """A bound from above on how likely an event is, wrong with probability at most alpha."""
    count = np.asarray(hits, np.float64)
    inside = betainccinv(count + 1, np.maximum(trials - count, 1), alpha)
    return np.where(count < trials, inside, 1.0)


def ceiling(epsilon: float, delta: float, *, trials: int, alpha: float) -> float:
    """The bound that a perfect distinguisher would find where the claim is spent to the last bit.

    That is randomised response: p = e^ε q + δ for its best event and for the complement of the one
    in the other direction. With infinitely many trials it is the claimed ε. It tells a mechanism
    that keeps its promise with room to spare from a test that is too weak to say so.
    """
    if epsilon <= 0:
        return 0.0
    least = (1 - delta) / (1 + exp(min(epsilon, 700.0)))  # q at the corner of the trade-off curve
    q = least * np.linspace(0, 1, 65)[1:]
    p = np.minimum(np.exp(min(epsilon, 700.0)) * q + delta, 1.0)
    found = epsilon_lower(p * trials, q * trials, trials=trials, alpha=alpha, delta=delta)
    return float(max(found.max(), 0.0))


def split_alpha(alpha: float, parts: int) -> float:
    """An equal share of the false-alarm budget for each of several bounds (Bonferroni)."""
    if not 0 < alpha < 1 or parts < 1:
        raise SpecError("The false-alarm rate must be between 0 and 1.", fix="For example: 1e-6.")
    return alpha / parts


def finite(value: float) -> float | None:
    """For JSON: infinities are null."""
    return None if value in (inf, -inf) else value


def ratio_of(claim: float, bound: float) -> float:
    """The bound over the claim, where a claim of 0 is reached by any bound of 0."""
    if claim > 0:
        return bound / claim
    return inf if bound > 0 else 1.0


def log_odds(ones: Floats, others: Floats) -> Floats:
    """The logarithm of a ratio of counts, each with half a count added."""
    total = log((ones.sum() + 0.5 * ones.size) / (others.sum() + 0.5 * others.size))
    return np.log((ones + 0.5) / (others + 0.5)) - total


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
    return np.logaddexp(heads, tails) / (_ORDERS - 1)


def curve_claims(
    delta_of: Callable[[Fraction], Fraction], epsilons: Iterable[Fraction]
) -> dict[float, float]:
    """Points of an exact hockey-stick curve: the δ of each ε."""
    return {float(delta_of(epsilon)): float(epsilon) for epsilon in epsilons}
