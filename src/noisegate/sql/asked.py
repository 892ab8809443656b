"""A question on its way: as asked, as ordered, as it came back."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, final

from noisegate.algebra.expression import Expression
from noisegate.curator.measurement import Measurement
from noisegate.desk.terms import USUAL, Terms
from noisegate.privacy.event import (
    Event,
    KeySelectionEvent,
    NothingEvent,
    Sequential,
    ThresholdedGaussianEvent,
)
from noisegate.privacy.release import Release
from noisegate.sql.bounds.looks import Chosen, Look, price_of, text_of
from noisegate.sql.bounds.profiles import Profile
from noisegate.sql.drafts.accuracy import Goal, epsilon_for
from noisegate.sql.drafts.draft import Draft
from noisegate.sql.drafts.groups import Caps
from noisegate.sql.drafts.purchase import Purchase
from noisegate.sql.estimates.clipped import Clipped
from noisegate.sql.estimates.estimate import Estimates
from noisegate.sql.estimates.losses import Lost, lost_of
from noisegate.sql.first import First
from noisegate.sql.question import Question
from noisegate.sql.reuse.shelf import Needed
from noisegate.transforms.query import Query


@final
@dataclass(frozen=True, slots=True)
class Asked:
    """A question with its terms, what is to be found for it, and what of that is still missing."""

    sql: str
    chosen: Chosen
    looks: tuple[Look, ...]
    missing: tuple[Look, ...]
    seen: tuple[Release, ...]  # by the looks that were paid for
    firsts: tuple[First, ...] = ()  # numbers that are measured before the question
    read_as: Question | None = None  # the same at each reading, unless it waits for numbers

    @property
    def question(self) -> Question:
        """With bounds that were found as if they were declared."""
        return self.chosen.question

    @property
    def terms(self) -> Terms:
        """With the price that is left after the looks."""
        return self.chosen.terms

    @property
    def epsilon(self) -> Fraction:
        """What the looks cost, each once."""
        return price_of(self.looks)

    def events(self, orders: "Sequence[Order]", *, fresh: bool, found: bool = True) -> list[Event]:
        """What would be paid for now, or a little more; unless ``found``, if no group is found.

        How much of its δ a threshold uses follows from the cap: before the look, all of it.
        """
        blind = {look.block.name for look in self.missing}
        pairs = [(each, order) for order in orders for each in order.measurements(found=found)]
        looks = [(text_of(look.measurement), look.measurement.event()) for look in self.missing]
        wanted = [(text_of(each), order.event(each, blind=blind)) for each, order in pairs]
        if fresh:
            return [*dict(looks).values(), *(event for _, event in wanted)]
        return list(dict([*looks, *wanted]).values())


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """A block with what it costs: bought noise, and which parts of it are still to be measured."""

    bought: Purchase
    caps: Caps
    epsilon: Fraction
    delta: Fraction
    rows: int | None
    keys: tuple[Measurement, ...]
    found: tuple[Release, ...] | None  # the keys, where they are known already
    needed: tuple[Needed, ...]
    profiles: tuple[Profile, ...] = ()  # how large units are, if that was looked at
    slack: Fraction = Fraction(0)  # of ranks, for what a cap leaves out
    looked: Release | None = None  # an earlier look that the numbers are raised by
    clips: Mapping[Expression, Clipped] = field(default_factory=dict)  # what found bounds lose

    @property
    def losses(self) -> tuple[Lost, ...]:
        """What the caps lose, as far as that is known."""
        found = (lost_of(self.bought, profile) for profile in self.profiles)
        return tuple(each for each in found if each is not None)

    def event(self, measurement: Measurement, *, blind: Collection[str]) -> Event:
        """What a measurement is, with all of its δ in blocks whose cap is still to be found."""
        event, draft = measurement.event(), self.bought.draft
        if draft.decided is None or draft.block.name not in blind:
            return event
        if isinstance(event, KeySelectionEvent | ThresholdedGaussianEvent):
            return replace(event, delta=max(event.delta, self.delta))
        return event

    def measurements(self, *, found: bool = True) -> Iterator[Measurement]:
        """What is still to be paid for; unless ``found``, if no group is found."""
        if self.found is None:
            yield from self.keys
        for needed in self.needed if found or self.found is not None else ():
            if needed.measurement is not None:
                yield needed.measurement


@final
@dataclass(frozen=True, slots=True)
class Parcel:
    """What came back for a block: its table and the releases it was made of."""

    bought: Purchase
    estimates: Estimates
    releases: tuple[Release, ...]


def epsilon_of(known: Draft, terms: Terms, count: int, delta: Fraction) -> Fraction:
    """The price of one of ``count`` blocks."""
    if terms.epsilon is not None:
        return terms.epsilon / count
    goal = Goal(
        within=terms.within,
        relative=terms.relative,
        confidence=terms.confidence or USUAL,
        rows=terms.rows,
    )
    return epsilon_for(known, goal, delta=delta / count)


def shares(query: Query) -> bool:
    """Whether each of its numbers may come from another draw."""
    return query.sample is None or len(query.l1s) == 1


def all_of(events: Sequence[Event]) -> Event:
    """Several events as one."""
    if not events:
        return NothingEvent()
    return events[0] if len(events) == 1 else Sequential(events=tuple(events))


def found_of(releases: Sequence[Release]) -> dict[str, Any]:
    """The keys that were found, with the numbers that were released beside them."""
    counts = releases[0].values.tolist() if releases else None
    return {"found": [release.keys or () for release in releases], "counts": counts}
