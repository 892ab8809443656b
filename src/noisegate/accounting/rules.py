"""How an accountant reads an event: one rule per kind, and the same three folds for all.

A rule gives a pair (amount, δ) of exact numbers, the amount in the accountant's own measure. Kinds
without a rule are refused by name, wherever they stand inside a larger event.
"""

from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from typing import Any, Final, TypeAlias, final

from noisegate.errors import Unsupported
from noisegate.frozen import dataclass
from noisegate.privacy.event import (
    Event,
    Group,
    InPart,
    NothingEvent,
    Parallel,
    PoissonSampled,
    Repeated,
    Sequential,
)

Pair: TypeAlias = tuple[Fraction, Fraction]
Rule: TypeAlias = Callable[[Any], Pair]

NO_DELTA: Final = Fraction(0)
NOTHING: Final[Pair] = (Fraction(0), Fraction(0))
_WRAPPERS: Final = (Group, InPart, PoissonSampled)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The price list of one accountant.

    Claim: sequential steps add up in both parts; parallel steps cost the componentwise maximum,
        since a unit takes part in one block only; repeating a step multiplies.
    Adjacency: add/remove. Under change-one a unit may leave one block and enter another.
    Why: [DR14, Thm 3.16], [BS16, Lemma 1.7], [Mir17, Prop. 1] for sums; [McS09, Thm 4] for maxima.
    """

    accountant: str
    by_kind: Mapping[type[Event], Rule]
    advice: str

    def loss(self, event: Event) -> Pair:
        """The unrounded price of the event."""
        if isinstance(event, _WRAPPERS):
            event = _plain(event)
        rule = self.by_kind.get(type(event))
        if rule is not None:
            return rule(event)
        if type(event) is NothingEvent:
            return NOTHING
        if isinstance(event, Sequential):
            return added(self.loss(part) for part in event.events)
        if isinstance(event, Parallel):
            return largest(self.loss(part) for part in event.events)
        if isinstance(event, Repeated):
            amount, delta = self.loss(event.event)
            return event.count * amount, event.count * delta
        raise self.refusal(event)

    def refusal(self, event: Event) -> Unsupported:
        """The answer to an event without a theorem here."""
        kind = getattr(event, "name", type(event).__name__)
        return Unsupported(
            f"The {self.accountant} accountant has no price for {kind!r}.",
            fix=self.advice,
            about="price",
        )


def _plain(event: Event) -> Event:
    """The same step without an idle wrapper: a group of one, a full sample; for those of a part."""
    match event:
        case Group(event=inner, size=1) | InPart(event=inner):
            return _plain(inner)
        case Group(event=Group() as inner, size=size):
            return _plain(Group(event=inner.event, size=inner.size * size))
        case PoissonSampled(event=inner, probability=1):
            return _plain(inner)
        case _:
            return event


def added(pairs: Iterable[Pair]) -> Pair:
    """Sequential composition."""
    amounts, deltas = zip(NOTHING, *pairs, strict=True)
    return sum(amounts, Fraction(0)), sum(deltas, Fraction(0))


def largest(pairs: Iterable[Pair]) -> Pair:
    """Parallel composition."""
    amounts, deltas = zip(NOTHING, *pairs, strict=True)
    return max(amounts), max(deltas)
