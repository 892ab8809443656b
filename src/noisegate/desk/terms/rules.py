"""What a policy says about questions."""

from collections.abc import Mapping
from datetime import datetime
from fractions import Fraction
from typing import Final, final

from noisegate.errors import SpecError, Unsupported
from noisegate.exact import Number, positive
from noisegate.frozen import dataclass, field

EPSILON_MAX: Final = 10**6  # of an account


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What the policy says about questions: prices, and the δ for finding groups."""

    epsilon: Fraction | None = None
    epsilon_max: Fraction | None = None
    keys_delta: Fraction = Fraction(0)
    practice: bool = False
    sample: Fraction | None = None  # of units, drawn anew for each question
    crowd: tuple[Fraction, Fraction] | None = None  # probability and δ, where crowds may be asked
    rows_max: Mapping[str, int] = field(default_factory=dict)  # of each table that declares it
    state_named: bool = True  # whether the policy names the state of its rows: parts rest on it
    former: bool = False  # where ρ adds up, an ε buys ρ = ε²/2, as it did once
    moment: datetime | None = None  # in UTC, from which times are said; None: that of each question

    def require_state(self) -> None:
        """Refuse parts of rows that may change: a unit that moves would be in two, and pay once."""
        if not self.state_named:
            raise Unsupported(
                "The policy does not name the state of its rows, so that one unit might be in two "
                "parts.",
                fix='The steward can add snapshot = "2026-01" to it, and a new name whenever rows '
                "change. Ask about the whole table until then.",
                about="snapshot",
            )

    def price(self, *said: Number | None) -> Fraction:
        """What is to be paid: the first that was said, else as the policy has it."""
        given = next((each for each in (*said, self.epsilon) if each is not None), None)
        if given is None:
            raise SpecError(
                "The question has no price.", fix="Give epsilon, for example 0.5.", about="price"
            )
        exact = positive(given, name="epsilon")
        self.require_price(exact)
        return exact

    def require_price(self, epsilon: Fraction) -> None:
        """Refuse to pay more at once than the policy allows, or than any account has."""
        if epsilon > EPSILON_MAX:
            raise SpecError(
                "epsilon is above 10**6.",
                fix="No account has more. Use a smaller epsilon.",
                about="price",
            )
        if self.epsilon_max is not None and epsilon > self.epsilon_max:
            raise SpecError(
                f"One question may cost at most ε = {float(self.epsilon_max):g}.",
                fix="Use a smaller epsilon, or ask the steward to raise the limit.",
                about="max-price",
            )
