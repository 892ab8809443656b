"""What each part of a table has been asked inside one allowance, and what that has lost so far.

Losses are kept, not added up anew: a question costs the same work however many came before.

Claim: `Part.loss` is, for each account, the price of `Part.used()` before rounding, to the last
    digit. Adjacency: add/remove one unit, as for that event.
Why: every accountant reads steps in sequence as a sum and parallel ones as a componentwise maximum
    (`accounting/rules.py`), of exact fractions. One more summand adds itself, whatever the order. A
    maximum is at least as large as before where one part rose, and then only that part can have
    passed it; where a part fell, all are compared. So what changes lies on the way up to the whole.
    The ledger prices `used` as one event when the allowance closes, and gives nothing back if that
    is more than was reserved. Rounding: none.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias, final

from noisegate.accounting.rules import Pair, added, largest
from noisegate.curator.cells import CellAccount
from noisegate.privacy.domain import Key
from noisegate.privacy.event import Event, NothingEvent, Parallel, Sequential

Losses: TypeAlias = Mapping[str, Pair]  # by account
Step: TypeAlias = "tuple[Part | Cut, Losses]"


@final
@dataclass(eq=False, slots=True)
class Part:
    """What has been asked about one part, and the cuts below it. Only the allowance touches it."""

    where: tuple[tuple[str, Key], ...]
    loss: Losses
    cut: "Cut | None" = None  # that it is a part of
    events: list[Event] = field(default_factory=list)
    cells: dict[str, tuple[CellAccount, Losses]] = field(default_factory=dict)  # by the tally
    cuts: "list[Cut]" = field(default_factory=list)
    closed: bool = False  # of the whole: kept here, so that copies of an allowance close with it

    def used(self) -> Event:
        """All of it, as one event."""
        asked = [account.event() for account, _ in self.cells.values()]
        cuts = [Parallel(events=tuple(part.used() for part in cut.parts)) for cut in self.cuts]
        events = (*self.events, *asked, *cuts)
        return Sequential(events=events) if events else NothingEvent()

    def after(self, more: Losses, less: Losses) -> list[Step]:
        """What this and all above it will have lost with ``more`` for ``less``; last the whole."""
        part, loss = self, _changed(self.loss, more, less)
        found: list[Step] = [(part, loss)]
        while (cut := part.cut) is not None:
            dearest = cut.dearest(part, loss)
            part, loss = cut.of, _changed(cut.of.loss, dearest, cut.loss)
            found += [(cut, dearest), (part, loss)]
        return found


@final
@dataclass(eq=False, slots=True)
class Cut:
    """Disjoint parts of a part. Its loss is that of the dearest."""

    of: Part
    loss: Losses
    parts: tuple[Part, ...] = ()

    def dearest(self, part: Part, loss: Losses) -> Losses:
        """The componentwise maximum once ``part`` has lost ``loss``."""
        if _each(largest, loss, part.loss) == loss:  # it fell nowhere
            return _each(largest, loss, self.loss)
        return _each(largest, loss, *(each.loss for each in self.parts if each is not part))


def _changed(loss: Losses, more: Losses, less: Losses) -> Losses:
    return _each(added, loss, more, _each(_negative, less))


def _negative(pairs: list[Pair]) -> Pair:
    ((amount, delta),) = pairs
    return -amount, -delta


def _each(rule: Callable[[list[Pair]], Pair], *losses: Losses) -> Losses:
    return {name: rule([each[name] for each in losses]) for name in losses[0]}
