"""What is claimed: the ε of an event at its own δ, or at several points of a curve."""

from collections.abc import Callable, Iterable
from fractions import Fraction
from typing import Final

from noisegate.accounting.pure import pure_loss
from noisegate.accounting.zcdp import zcdp_loss
from noisegate.errors import Unsupported
from noisegate.privacy.conversion import approx_of_zcdp
from noisegate.privacy.event import Event

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


def curve_claims(
    delta_of: Callable[[Fraction], Fraction], epsilons: Iterable[Fraction]
) -> dict[float, float]:
    """Points of an exact hockey-stick curve: the δ of each ε."""
    return {float(delta_of(epsilon)): float(epsilon) for epsilon in epsilons}
