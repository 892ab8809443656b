"""The contract of a price: events become charges, charges add up, and a filter compares.

An account is opened with one accountant that has a filter theorem for adaptively chosen questions;
sharper accountants may report but never authorise. A charge is a pair of whole numbers of grains,
so sums in a ledger are exact and cheap: decimals of up to 24 digits and fractions with small
denominators are whole numbers of grains, anything else is rounded up by less than 10⁻²⁹.
"""

from abc import ABC, abstractmethod
from fractions import Fraction
from typing import Final, final

from noisegate.accounting.rules import Pair
from noisegate.frozen import dataclass
from noisegate.privacy.event import Event
from noisegate.privacy.loss import ApproxDP

GRAINS_PER_ONE: Final = 720_720 * 10**24


@final
@dataclass(frozen=True, slots=True)
class Charge:
    """A price or a balance in grains: the accountant's own measure (ε, ρ, …) and δ."""

    amount: int
    delta: int

    def __add__(self, other: "Charge") -> "Charge":
        return Charge(self.amount + other.amount, self.delta + other.delta)

    def __sub__(self, other: "Charge") -> "Charge":
        return Charge(self.amount - other.amount, self.delta - other.delta)

    def __le__(self, other: "Charge") -> bool:
        """Both parts at most the other's: the test that a filter makes."""
        return self.amount <= other.amount and self.delta <= other.delta

    @classmethod
    def rounded_up(cls, amount: Fraction, delta: Fraction) -> "Charge":
        """Never understates a price."""
        return cls(-_grains_down(-amount), -_grains_down(-delta))

    @classmethod
    def rounded_down(cls, amount: Fraction, delta: Fraction) -> "Charge":
        """Never overstates a limit."""
        return cls(_grains_down(amount), _grains_down(delta))

    def as_fractions(self) -> tuple[Fraction, Fraction]:
        """The amount and δ as exact numbers."""
        return Fraction(self.amount, GRAINS_PER_ONE), Fraction(self.delta, GRAINS_PER_ONE)


class Accountant(ABC):
    """Prices events: any adaptive run whose charges sum to at most ``limit`` keeps the budget."""

    @property
    @abstractmethod
    def name(self) -> str:
        """How a policy and a ledger call this accountant; see `accountants.accountant_named`."""

    @abstractmethod
    def loss(self, event: Event) -> Pair:
        """What the event costs, before rounding. Refuses (`Unsupported`) what has no theorem."""

    def price(self, event: Event) -> Charge:
        """What the event costs, rounded up."""
        return Charge.rounded_up(*self.loss(event))

    @abstractmethod
    def limit(self, budget: ApproxDP) -> Charge:
        """The largest total charge that still implies the budget, rounded down."""

    @abstractmethod
    def implied(self, spent: Charge, budget: ApproxDP) -> ApproxDP:
        """The (ε, δ) that a total charge amounts to, for an account with this budget; rounded up.

        A reading, not a promise, unless ε itself is summed: an analyst who stops at a moment that
        the answers chose may have learnt slightly more than the reading then says. What is
        promised at any stop is the budget.

        At most the budget whenever ``spent <= limit(budget)``, and (0, 0) when nothing is spent.
        """

    def rho(self, epsilon: Fraction, budget: ApproxDP) -> Fraction | None:  # noqa: ARG002 - as others
        """The ρ that an order buys whose ε is to hold by itself; None where ε itself adds up."""
        return None

    def told(self, event: Event, budget: ApproxDP) -> ApproxDP:
        """The (ε, δ) of an event by itself, as an order asks for it; rounded up."""
        return self.implied(self.price(event), budget)

    def room(self, left: Charge, budget: ApproxDP) -> ApproxDP:
        """The largest (ε, δ) that one more order may ask where so much is left, rounded down."""
        return self.implied(left, budget)


def _grains_down(value: Fraction) -> int:
    return value.numerator * GRAINS_PER_ONE // value.denominator
