"""A block as it is ordered: the noise that its price buys, what the ledger has of it, the rest."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import partial
from math import ceil
from typing import Any, Final, final

import numpy as np

from noisegate.algebra.expression import Expression
from noisegate.algebra.known import remembered
from noisegate.algebra.relation import Table
from noisegate.algebra.tally import Distinct, Sums, Values
from noisegate.curator.curator import Curator
from noisegate.curator.measurement import Measurement
from noisegate.desk.desk import Desk
from noisegate.desk.job import all_of
from noisegate.desk.terms.price import share_of
from noisegate.desk.terms.terms import USUAL, Terms
from noisegate.errors import Bug, SpecError
from noisegate.frozen import dataclass, field, replace
from noisegate.mechanisms.base import Mechanism
from noisegate.privacy.event import Event, KeySelectionEvent, ThresholdedGaussianEvent
from noisegate.privacy.release import Release
from noisegate.sql.bounds.limits import caps_of, most_rows
from noisegate.sql.bounds.looks import known_profile
from noisegate.sql.bounds.ranges import is_far
from noisegate.sql.bounds.sized import own_rows, owner_table
from noisegate.sql.drafts.draft import Draft, DraftPart, draft
from noisegate.sql.drafts.groups import Caps
from noisegate.sql.drafts.purchase import (
    Purchase,
    Slack,
    key_questions_of,
    purchase,
    require_findable,
)
from noisegate.sql.drafts.words import capped_words
from noisegate.sql.estimates.accuracy import Goal, epsilon_for
from noisegate.sql.estimates.clipped import Clipped
from noisegate.sql.estimates.estimate import COUNTED, Estimate, Estimates, estimate
from noisegate.sql.estimates.losses import (
    FORMER_SLACKS,
    LESS_UNLIKE,
    Lost,
    losses_of,
    lost_of,
    rank_slack,
    slack_of,
)
from noisegate.sql.estimates.profiles import Profile
from noisegate.sql.question import Block
from noisegate.sql.reuse.shelf import Needed, Shelf
from noisegate.sql.steps.asked import Asked
from noisegate.transforms.query import Query
from noisegate.transforms.stability import stability_of

_MODEL: Final = (
    "A private estimate from these rows says that the contribution bound loses about {lost}: "
    "{so}. This part rests on a model of how rows are distributed over units, and is not proven: "
    "about {hidden} units with far more rows than all others could be hidden by the noise of the "
    "estimate. A known maximum can be declared: rows_per_unit, with rows_per_unit_holds."
)
_HIDING: Final = 3  # scales of noise: so many units are hidden in one number at 95 %
_RAISED: Final = "counts and sums are raised by that, and the ± includes its uncertainty"
_RANKED: Final = "quantiles are not raised, and their ± includes how far that may move them"

_FAR: Final = (
    "The ± is wide for such numbers: declared bounds may be far out, and noise is for values up to "
    'them. If nearly all lie far below, choose="bounds" narrows them, for a quarter of the price.'
)

_BLIND: Final = (
    "A private estimate from these rows shows no unit, since its noise hides as many as there are: "
    "what the contribution bound loses of {lost} is not known, and the ± does not hold it. Counts, "
    "and sums of non-negative values, that it bounds are lower bounds."
)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class BlockOrder:
    """A block with what it costs: bought noise, and which parts of it are still to be measured.

    ``buy`` is the same purchase over keys that were found.
    """

    bought: Purchase
    buy: Callable[[Sequence[Release]], Purchase]
    caps: Caps
    epsilon: Fraction
    delta: Fraction
    keys: tuple[Measurement, ...]
    found: tuple[Release, ...] | None  # the keys, where they are known already
    needed: tuple[Needed, ...]
    profiles: tuple[Profile, ...] = ()  # how large units are, if that was looked at
    looked: Release | None = None  # an earlier look that the numbers are raised by
    clips: Mapping[Expression, Clipped] = field(default_factory=dict)  # what found bounds lose

    @property
    def losses(self) -> tuple[Lost, ...]:
        """What the caps lose, as far as that is known."""
        return losses_of(self.bought, self.profiles)

    @property
    def clipping(self) -> tuple[str, ...]:
        """What a cap does to the numbers, in words: what it loses, or how to find out.

        None where no number is about capped rows.
        """
        block, cap, profiles = self.bought.draft.block, self.caps.rows_per_unit, self.profiles
        capped = capped_words(block, self.bought.draft.drawn, known=bool(profiles))
        counted = {type(part.query.tally) for part in self.bought.draft.parts}
        if not capped or cap is None or counted == {Distinct}:  # what rows add is another thing
            return capped
        lost = [(_named(each), lost_of(self.bought, each)) for each in profiles]
        shares = [
            f"{each.loss.share:.1%} of {name}" for name, each in lost if each and not each.blind
        ]
        hidden = [name for name, each in lost if each and each.blind]
        if shares or hidden:
            so = _RANKED if self.bought.draft.is_ranked else _RAISED
            most = ceil(_HIDING * max(each.scale for each in profiles))
            told = _MODEL.format(lost=" and ".join(shares), so=so, hidden=most)
            model = [told] if shares else []
            unseen = [_BLIND.format(lost=" and of ".join(hidden))] if hidden else []
            return (*capped, *model, *unseen)
        look = (
            'choose="caps" in place of the cap estimates it from the rows of this question, and '
            "chooses"
        )
        if isinstance(own_rows(block), Table):
            look = f"gate.caps({owner_table(block).name!r}, epsilon=...) estimates it, for a price"
        return (*capped, f"How much a contribution bound of {cap} rows loses is not known: {look}.")

    def require_plan(self, curator: Curator) -> None:
        """Refuse what the engine cannot plan of what is known to be measured."""
        needed = (m for part in self.needed if (m := part.measurement) is not None)
        for each in self.keys if self.found is None else needed:
            curator.require_plan(each)

    def charges(self, blind: Collection[str], *, found: bool) -> Iterator[tuple[str, Event]]:
        """What is still to be paid for, by canonical texts; unless ``found``, if no group is found.

        How much of its δ a threshold uses follows from the cap: in ``blind`` blocks, whose cap is
        still to be found, all of it.
        """
        draft, keys = self.bought.draft, self.keys if self.found is None else ()
        needed = self.needed if found or not keys else ()
        unknown = draft.block.name in blind
        for each in (*keys, *(m for part in needed if (m := part.measurement) is not None)):
            event = each.event()
            if unknown and isinstance(event, KeySelectionEvent | ThresholdedGaussianEvent):
                event = replace(event, delta=max(event.delta, self.delta))
            yield each.question(), event


def _named(profile: Profile) -> str:
    """What a cap loses some of."""
    if profile.sums:
        return "what they add to sums"
    return "the groups that units are in" if profile.people else "them"


@final
@dataclass(frozen=True, slots=True)
class Parcel:
    """What came back for a block: its table and the releases it was made of."""

    bought: Purchase
    estimates: Estimates
    releases: tuple[Release, ...]

    def hints(self, terms: Terms) -> tuple[str, ...]:
        """What would help, by how wide bars are: narrower bounds than those that are declared."""
        if terms.choose is not None or terms.epsilon is None:
            return ()
        block = self.bought.draft.block
        far = (
            self.estimates.columns[each.name]
            for each in block.aggregates
            if any(is_far(block, each, arg, terms) for arg in each.args)
        )
        return (_FAR,) if any(map(_is_wide, far)) else ()


def _is_wide(column: Estimate) -> bool:
    """Whether the ± is a quarter of most numbers, or more."""
    width = column.margin(USUAL)
    if width is None or not width.size:
        return False
    return float(np.median(width)) > float(np.median(np.abs(column.values))) / 4


def orders_of(desk: Desk, asked: Asked, *, fresh: bool) -> tuple[BlockOrder, ...]:
    """All blocks of a question, for no more than one question may cost."""
    blocks, shelf = asked.question.blocks, desk.read_as(Shelf).still()
    orders = tuple(_order(desk, asked, block, shelf, fresh=fresh) for block in blocks)
    steps = (*asked.steps, *(order.epsilon for order in orders))
    desk.rules.require_price(desk.asked(*steps, said=asked.said))
    return orders


def _order(desk: Desk, asked: Asked, block: Block, shelf: Shelf, *, fresh: bool) -> BlockOrder:
    terms, count = asked.terms, len(asked.question.blocks)
    caps = replace(caps_of(block, terms), **asked.chosen.caps.get(block.name, {}))
    profiles, looked = asked.chosen.profiles.get(block.name, ()), None
    # Before a look its cap is a guess: what is on the shelf for that is no answer to this.
    fresh = fresh or any(look.block.name == block.name for look in asked.missing)
    off, delta = rank_slack(profiles, caps.rows_per_unit), (terms.delta or Fraction(0)) / count
    known = _drafted(block, caps, asked.accountant)
    if terms.epsilon is None:
        epsilon = epsilon_for(known, Goal.of(terms), delta=delta)
    else:
        epsilon = share_of(terms.epsilon, Fraction(1, count), rho=desk.rho)
    usual = partial(slack_of, profiles, caps.rows_per_unit)

    top = _top(desk, terms, block)

    def buy(found: Sequence[Release], *, slack: Slack = usual, former: bool = False) -> Purchase:
        over = known
        if found:
            counts, keys = found[0].values.tolist(), [each.keys or () for each in found]
            over = draft(block, caps, found=keys, counts=counts, accountant=asked.accountant)
        bought = purchase(
            over, epsilon=epsilon, delta=delta, rows=terms.rows, slack=slack, former=former
        )
        if top is None:
            return bought
        words = f"Counts are cut to 0 … {top:,}: sums of cut counts can be too large or too small."
        return replace(bought, top=top, caveats=(*bought.caveats, words))

    keys = key_questions_of(known, epsilon=epsilon, delta=delta)
    found = None if fresh and keys else _found(desk.curator, keys)
    if found is None:
        counted = (profile.units_max for profile in profiles)
        require_findable(keys, terms.rows, _units_max(desk, block), *counted)
    bought = buy(found or ())
    has_values = any(isinstance(part.query.tally, Values) for part in bought.draft.parts)
    if found is not None and not fresh and has_values:
        slacks = [partial(_formerly, each, off) for each in FORMER_SLACKS[: None if off else 1]]
        former = [partial(buy, found, slack=each, former=True) for each in slacks]
        former += [partial(buy, found, slack=partial(usual, unlike=LESS_UNLIKE))]
        was = (each() for each in former)
        bought = next((each for each in was if _are_chosen(desk.curator, each)), bought)
    if not profiles:
        profiles, looked = known_profile(shelf, block, asked.accountant)
    order = BlockOrder(
        bought=bought,
        buy=buy,
        caps=caps,
        epsilon=epsilon,
        delta=delta,
        keys=keys,
        found=found,
        needed=_needed(desk.curator, shelf, bought, terms, fresh=fresh),
        profiles=profiles,
        looked=looked,
        clips=asked.chosen.clips.get(block.name, {}),
    )
    return order if order.losses else replace(order, looked=None)


def _top(desk: Desk, terms: Terms, block: Block) -> int | None:
    """The largest count there can be, where counts are to be cut to the range."""
    if terms.noise is None:
        return None
    if not any(each.function in COUNTED for each in block.aggregates):
        raise SpecError(
            "Truncated noise is for counts, and none is asked for.",
            fix="Ask for COUNT(*), or leave out noise.",
            about="noise",
        )
    most = terms.top or most_rows(block.relation, desk.rules.rows_max)
    if most is None:
        raise SpecError(
            "Truncated noise needs the largest count that is possible, which is not declared.",
            fix="Give it: top=1000 (--top 1000), or declare rows_max of the table in the policy.",
            about="top",
        )
    return most


@remembered
def _drafted(block: Block, caps: Caps, accountant: str) -> Draft:
    """A block's tallies before any key is found."""
    return draft(block, caps, accountant=accountant)


def _units_max(desk: Desk, block: Block) -> int | None:
    """How many units there can be, as the policy bounds rows."""
    private = [t for t in stability_of(block.relation).tables if not t.is_public]
    sizes = [desk.rules.rows_max.get(table.name) for table in private]
    return None if None in sizes else sum(size for size in sizes if size is not None)


def _found(curator: Curator, keys: Sequence[Measurement]) -> tuple[Release, ...] | None:
    """The keys, where all of them were found before (or none are sought)."""
    found = [curator.find(measurement) for measurement in keys]
    return None if None in found else tuple(each for each in found if each is not None)


def _formerly(
    slack: Callable[[Fraction, Sequence[Fraction]], Fraction],
    off: Fraction,
    taus: Sequence[Fraction],
    _: Fraction,
) -> Fraction:
    return slack(off, taus)


def _are_chosen(curator: Curator, bought: Purchase) -> bool:
    """Whether the ledger has all quantiles of a purchase."""
    chosen = [pair for pair in _pairs(bought) if isinstance(pair[0].query.tally, Values)]
    asked = [Measurement(query=part.query, mechanisms=noises) for part, noises in chosen]
    return bool(asked) and all(curator.find(each) is not None for each in asked)


def _needed(
    curator: Curator, shelf: Shelf, bought: Purchase, terms: Terms, *, fresh: bool
) -> tuple[Needed, ...]:
    """What is on the shelf. Tables that are made consistent must be drawn independently.

    Several sums of a sample must be of the same one: averages compare them.
    """
    by_error = terms.within is not None or terms.relative is not None
    level = terms.confidence or USUAL if by_error else None
    single = len(set(bought.draft.block.sets)) == 1

    def needed(query: Query, noises: Sequence[Mechanism[Any]]) -> Needed:
        everything = Needed.all_of(query, noises)
        if fresh:
            return everything
        alike = query.sample is not None and len(query.l1s) > 1
        if single and isinstance(query.tally, Sums) and not alike:
            return shelf.needed(query, noises, level)
        # the very same measurement from the ledger, or a new one
        found = curator.find(Measurement(query=query, mechanisms=tuple(noises)))
        return replace(everything, stored=found)

    return tuple(needed(part.query, noises) for part, noises in _pairs(bought))


def fetched(curator: Curator, order: BlockOrder, measured: list[Release], *, fresh: bool) -> Parcel:
    """Measure what is missing, and note it. Each measurement stands by itself in the ledger."""
    bought, needed, before = order.bought, order.needed, len(measured)

    def measure(measurement: Measurement, name: str | None = None) -> Release:
        request = curator.fresh_id() if fresh else name
        measured.append(release := curator.measure(measurement, request_id=request))
        return release

    if order.found is None:
        bought = order.buy([measure(each) for each in order.keys])
        needed = tuple(Needed.all_of(part.query, noises) for part, noises in _pairs(bought))
        _require_same_price(curator, order.needed, needed)
    numbers = [
        each.known(None if each.measurement is None else measure(each.measurement, each.name))
        for each in needed
    ]
    kept = [release for each in needed for release in each.releases]
    used = [] if order.looked is None else [order.looked]
    return Parcel(
        bought,
        estimate(bought, numbers, order.losses, order.clips),
        (*(order.found or ()), *used, *kept, *measured[before:]),
    )


def _pairs(bought: Purchase) -> list[tuple[DraftPart, tuple[Mechanism[Any], ...]]]:
    return list(zip(bought.draft.parts, bought.mechanisms, strict=True))


def _require_same_price(curator: Curator, planned: Sequence[Needed], now: Sequence[Needed]) -> None:
    """Refuse to pay more for the groups that were found than was planned for any."""
    first, then = (
        curator.loss_of(all_of([m.event() for each in parts if (m := each.measurement)]))
        for parts in (planned, now)
    )
    if then.epsilon > first.epsilon or then.delta > first.delta:
        raise Bug(
            "The price would depend on which groups were found.",
            fix="Only partition selection was paid for. Please report the question.",
        )
