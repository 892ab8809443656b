"""Adaptive runs without a ledger: a filter that stops at a budget, an odometer that reads the loss.

>>> from noisegate.privacy.distance import L1
>>> from noisegate.privacy.event import GeometricEvent
>>> step = GeometricEvent(scale=Fraction(100), sensitivity=L1(1))
>>> read = Odometer(delta="1e-6")
>>> for _ in range(10_000):
...     read.add(step)
>>> print(read.loss)  # the ε alone add up to 100
(ε = 7.01429, δ = 1e-6)
"""

from fractions import Fraction
from math import log, log2, sqrt
from threading import Lock
from typing import Final, final

from noisegate.accounting.accountant import Charge
from noisegate.accounting.accountants import accountant_named
from noisegate.accounting.pure import pure_loss
from noisegate.accounting.zcdp import zcdp_loss
from noisegate.dp.curve import Curve
from noisegate.errors import OverBudget, SpecError, Unsupported
from noisegate.exact import Number, fraction, real, upper
from noisegate.privacy.event import Event
from noisegate.privacy.loss import ApproxDP

_LINES: Final = 60  # of an odometer: from ρ = 2^-40 to 2^19
_FIRST: Final = Fraction(1, 2**40)


@final
class Filter:
    """Takes steps until the next one would pass the budget. Threads may share it.

    Claim: all steps that it took are together (ε, δ)-private, also where each was chosen by the
        answers before it. Why: the filter theorem of its accountant: sums of ε and δ [RRUV16], of ρ
        [FZ21], [WRRW23], or of a Rényi divergence at one order. It forgets everything with its
        process: a gate's ledger does not.
    """

    def __init__(self, *, epsilon: Number, delta: Number = 0, accountant: str = "pure") -> None:
        self.budget, self._accountant = ApproxDP(epsilon, delta), accountant_named(accountant)
        self._limit, self._spent = self._accountant.limit(self.budget), Charge(0, 0)
        self._lock = Lock()

    def price(self, step: Event | Curve) -> ApproxDP:
        """What a step by itself amounts to in this account."""
        return self._accountant.told(_event(step), self.budget)

    def fits(self, step: Event | Curve) -> bool:
        """Whether there is room for a step now."""
        return self._spent + self._accountant.price(_event(step)) <= self._limit

    def spend(self, step: Event | Curve) -> None:
        """Count a step before it is drawn; refuses one that does not fit, and counts nothing."""
        price = self._accountant.price(_event(step))
        with self._lock:
            if not self._spent + price <= self._limit:
                raise OverBudget(
                    "The step does not fit the budget.",
                    fix="Take less, or stop. Nothing was counted.", about="filter",
                )  # fmt: skip
            self._spent += price

    @property
    def spent(self) -> ApproxDP:
        """A reading of what was taken; the promise is the budget."""
        return self._accountant.implied(self._spent, self.budget)

    @property
    def left(self) -> ApproxDP:
        """The largest (ε, δ) that one more step may have."""
        return self._accountant.room(self._limit - self._spent, self.budget)

    def __repr__(self) -> str:
        return f"<Filter: {self.spent} of {self.budget}>"


@final
class Odometer:
    """Reads the loss of a run without a budget, at any moment. Threads may share it.

    Claim: with probability 1 - δ the privacy loss of a run that is stopped at any moment, chosen by
        whatever was seen, is at most the ε that is read then. Adjacency: that of the events.
    Why: let L be the loss and V the sum of ρ so far. For each λ > 0, e^(λL - λ(1+λ)V) is a
        supermartingale, since a step of ρ-zCDP has E[e^(λl)] ≤ e^(λ(1+λ)ρ); by Ville's inequality
        L ≤ (1+λ)V + ln(1/δ)/λ at all times at once, but for a chance of δ [WRRW23]. Line k has
        λₖ = √(ln(1/δₖ)/Vₖ) for Vₖ = 2^(k-40) and δₖ = δ/((k+1)(k+2)); these add up to less than δ,
        so the least of all lines holds. Sums of pure ε hold surely [RRUV16], so the lesser of both
        is read. Rounding: up. Steps with a δ of their own are refused.
    """

    def __init__(self, *, delta: Number) -> None:
        self.delta = fraction(delta, name="delta")
        if not 0 < self.delta < 1:
            raise SpecError("delta is not between 0 and 1.", fix="Use a small one, such as 1e-6.")
        self._rho, self._epsilon = Fraction(0), Fraction(0)
        self._is_pure, self._lock = True, Lock()

    def add(self, step: Event | Curve) -> None:
        """Count a step."""
        event = _event(step)
        loss = zcdp_loss(event)
        if loss.delta:
            raise Unsupported(
                "The step has a δ of its own, which an odometer cannot add up.",
                fix="Use a Filter.", about="odometer",
            )  # fmt: skip
        epsilon = pure_epsilon(event)
        with self._lock:
            self._rho += loss.rho
            self._is_pure = self._is_pure and epsilon is not None
            self._epsilon += epsilon or 0

    @property
    def loss(self) -> ApproxDP:
        """What is read now."""
        with self._lock:
            rho, pure = self._rho, self._epsilon if self._is_pure else None
        if not rho or pure == 0:
            return ApproxDP(0)
        lines = [_line(place, rho, self.delta) for place in _near(rho)]
        least = min(lines)
        return ApproxDP(pure) if pure is not None and pure <= least else ApproxDP(least, self.delta)

    def __repr__(self) -> str:
        return f"<Odometer: {self.loss}>"


def _event(step: Event | Curve) -> Event:
    return step.event if isinstance(step, Curve) else step


def pure_epsilon(event: Event) -> Fraction | None:
    """The ε of a step that has no δ; None where only its ρ is known."""
    try:
        loss = pure_loss(event)
    except Unsupported:
        return None
    return None if loss.delta else loss.epsilon


def _near(rho: Fraction) -> range:
    """The lines that may be the least at ρ: all are true, so those far away may be left out."""
    place = max(0, min(_LINES - 1, round(log2(rho / _FIRST))))
    return range(max(0, place - 4), min(_LINES, place + 5))


def _line(place: int, rho: Fraction, delta: Fraction) -> Fraction:
    share = delta / ((place + 1) * (place + 2))
    slope = Fraction(sqrt(-log(share) / (_FIRST * 2**place)))
    return upper(lambda: real((1 + slope) * rho) - real(share).log() / real(slope))
