"""One reservation for a whole recipe, and the same strict account inside it.

A recipe (a tree, k-means, multiplicative weights) asks many questions, each chosen by the answers
so far. Its allowance is charged once, up front; inside, the door composes what was really asked:
sequentially along a line of questions, in parallel across disjoint parts. A question that does not
fit into what was reserved is refused before a row is read.
"""

import json
import os
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from fractions import Fraction
from typing import Final, TypeAlias, final
from weakref import WeakSet

from noisegate.accounting.accountant import Charge
from noisegate.accounting.pure import pure_loss
from noisegate.curator.kept import Kept
from noisegate.curator.measurement import Measurement
from noisegate.curator.parts import CellAccount, Cut, Losses, PartAccount
from noisegate.errors import LedgerError, OverBudget, RequestConflict, Unsupported
from noisegate.ledger.fork import lineage
from noisegate.ledger.ledger import Reservation
from noisegate.privacy.domain import Key
from noisegate.privacy.event import DeclaredEvent, Event, NothingEvent, PoissonSampled
from noisegate.privacy.release import Release
from noisegate.transforms.restrict import restrict

Priced: TypeAlias = Callable[[Event], Losses]
Draw: TypeAlias = Callable[[Measurement, str], Release]
Require: TypeAlias = Callable[[Measurement], None]

_UNFINISHED: Final = b""
_INSIDE: Final = "those in the sample"
_AMPLIFIED: Final = frozenset({"pure", "zcdp"})  # accountants that price a recipe about one sample


@final
class Scope:
    """A place to ask: the whole table, or one of several disjoint parts of it."""

    __slots__ = ("_allowance", "_part")

    def __init__(self, allowance: "Allowance", part: PartAccount) -> None:
        self._allowance, self._part = allowance, part

    def measure(self, measurement: Measurement) -> Release:
        """Answer a question about this part, within what the allowance holds."""
        return self._allowance._measure(self._part, measurement)  # noqa: SLF001 - one mechanism

    def cut(self, column: str, keys: Sequence[Key]) -> "tuple[Scope, ...]":
        """Disjoint parts by the declared keys of a column: asking each costs like asking one."""
        parts = self._allowance._cut(self._part, column, keys)  # noqa: SLF001 - one mechanism
        return tuple(Scope(self._allowance, part) for part in parts)


@final
class Allowance:
    """A reservation that a recipe draws on. Made by `Curator.allowance`, closed when it is left.

    Claim: the recipe as a whole is the event `used`: its questions in sequence, the parts of each
        cut in parallel, and groups of cells by what each cell was asked (`parts.py`). Adjacency:
        add/remove one unit; for parts, each unit being one row.
    Why: basic adaptive composition, and [McS09] for parts: a cut is by a declared key of the unit's
        own row, so a row lies in one part at most, whatever the answers were. Every event is on
        record before its draw, and `used` is what the ledger charges in the end.

    Claim, on a ``sample``: the recipe is ε' = ln(1 + p (e^ε - 1)) private, ε that of all its
        questions together, and giving back what was not asked keeps that. Adjacency: add/remove
        one unit. Rounding: up.
    Why: all questions read one Poisson sample, so the whole recipe is one mechanism of those who
        are in it. Fix the others' coins, and let R be how much likelier a transcript is with the
        unit in the sample than without: e^-ε ≤ R ≤ e^ε, ε what this transcript asked. With the
        unit in the table it is 1 - p + p R times as likely as without, at most e^ε' and at least
        e^-ε' [LQS12, BBG18]: for each transcript by its own ε, which is what a filter of sums
        compares. A next question of ε₂ changes that factor by at most d = ε'(ε + ε₂) - ε'(ε), as
        ε' is convex; so it is d²/2-zCDP given the past, the squares of all d add up to at most the
        square of their sum ε', and the filter of zCDP covers ε'²/2 of what was asked [FZ21]. For
        neighbours ε is what the one unit's own cells and parts were asked, at most that of `used`.
        Other steps in between toss coins of their own, so they change none of these factors.
        Questions that carry a δ are not covered by this and are refused.
    """

    def __init__(
        self,
        entry: Reservation,
        *,
        priced: Priced,
        draw: Draw,
        require: Require,
        plan: Require,
        sample: Fraction | None = None,
    ) -> None:
        self._entry, self._priced, self._draw, self._sample = entry, priced, draw, sample
        self._require, self._require_plan = require, plan
        self._lock = threading.Lock()
        self._answer = entry.answer
        self._nothing = self._losses(NothingEvent())
        self._whole = PartAccount((), self._nothing, closed=entry.answer is not None)
        self._parts = {self._whole}
        _open_allowances.add(self)
        if entry.process != lineage():  # a fork came between the charge and this
            self._whole.closed = True

    def __copy__(self) -> "Allowance":
        raise RequestConflict(
            "An allowance cannot be copied.", fix="Use the one that was opened.", about="copy"
        )

    @property
    def whole(self) -> Scope:
        """The whole table."""
        return Scope(self, self._whole)

    @property
    def request_id(self) -> str:
        """The request on record, with the account's name."""
        return self._entry.request_id

    @property
    def answer(self) -> bytes | None:
        """The recipe's stored result, if it was finished before: use it and ask nothing."""
        return self._answer or None

    def used(self) -> Event:
        """What has been asked so far, as one event."""
        with self._lock:
            return self._event()

    def _event(self) -> Event:
        """What all parts were asked, of those who take part."""
        asked = self._whole.used()
        if self._sample is None or isinstance(asked, NothingEvent):
            return asked
        return PoissonSampled(event=asked, probability=self._sample)

    def finish(self, answer: bytes) -> None:
        """Hand over the recipe's result, to be stored when the allowance closes."""
        with self._lock:
            self._require_open()
            self._answer = answer

    def close(self) -> None:
        """Store the result and give back what nothing was drawn for; once."""
        with self._lock:
            if self._whole.closed:
                return
            self._whole.closed = True
        self._answer = self._entry.close(self._event(), self._answer or _UNFINISHED)

    def _measure(self, part: PartAccount, measurement: Measurement) -> Release:
        if type(measurement) is not Measurement:
            raise Unsupported(
                "A recipe can only take measurements.",
                fix="Ask for this outside of the recipe.",
                about="measurement",
            )
        self._require(measurement)  # what the door would refuse is not noted down
        if measurement.query.sample is not None:
            raise Unsupported(
                "Inside a recipe, a question cannot have its own sample.",
                fix="Reserve a sample for the whole recipe, or ask one question at a time.",
            )
        restricted = measurement
        for column, key in part.where:
            query = restrict(restricted.query, column=column, key=key)
            restricted = Measurement(query=query, mechanisms=measurement.mechanisms)
        self._require_plan(restricted)
        with self._lock:
            self._require_open()
            self._require_known(part)
            _require_one_part_per_unit(restricted, part)
            self._note_down(part, restricted)
        drawn = self._draw(restricted, self._entry.request_id)
        with self._lock:
            self._require_open()  # a child that was forked amid the draw has drawn once more
        return drawn

    def _cut(self, part: PartAccount, column: str, keys: Sequence[Key]) -> tuple[PartAccount, ...]:
        listed = tuple(keys)
        if any(type(key) not in (str, int) for key in listed) or len(set(listed)) < len(listed):
            raise Unsupported("The keys of the parts are not distinct.", fix="List each key once.")
        if any(column == earlier for earlier, _ in part.where):
            raise Unsupported(
                f"This is already a part by {column!r}.",
                fix="Split by another column.",
                about="part",
            )
        with self._lock:
            self._require_open()
            self._require_known(part)
            cut = Cut(part, self._nothing)
            where = [(*part.where, (column, key)) for key in listed]
            cut.parts = tuple(PartAccount(each, self._nothing, cut) for each in where)
            part.cuts += [cut] if listed else []
            self._parts.update(cut.parts)
        return cut.parts

    def _note_down(self, part: PartAccount, measurement: Measurement) -> None:
        query = measurement.query
        if query.asks != "combinations" or measurement.compares:
            event = measurement.event()
            self._raise(part, self._losses(event), self._nothing)
            part.events.append(event)
            return
        name = json.dumps(query.whole_record(), sort_keys=True)
        empty = CellAccount.empty(query.combinations.cells), self._nothing
        before, less = part.cells.get(name, empty)
        after = before.after(measurement)
        more = self._losses(after.event())
        self._raise(part, more, less)
        part.cells[name] = after, more

    def _raise(self, part: PartAccount, more: Losses, less: Losses) -> None:
        """Let the part lose ``more`` for ``less``; what does not fit is refused, and not noted."""
        steps = part.after(more, less)
        charges = self._charges(steps[-1][1])
        if not all(charge <= self._entry.charges[name] for name, charge in charges.items()):
            raise OverBudget(
                "The question costs more than is left of the allowance.",
                fix="Nothing was drawn. Reserve more, or ask with more noise.",
                about="allowance",
            )
        for place, loss in reversed(steps):  # if interrupted, the whole has lost too much
            place.loss = loss

    def _losses(self, event: Event) -> Losses:
        """What one step loses, in each account; of those in a sample, the ε that is amplified."""
        if self._sample is None:
            return self._priced(event)
        loss = pure_loss(event)  # refuses what has no ε, as the claim above is about ε
        return {_INSIDE: (loss.epsilon, loss.delta)}

    def _charges(self, whole: Losses) -> dict[str, Charge]:
        """The price of all steps together, in each account.

        Why, on a sample: accountants that have a price for it (`Curator.allowance`) read nothing
            else of what is inside than its ε and δ.
        """
        if self._sample is not None:
            epsilon, delta = whole[_INSIDE]
            inside = DeclaredEvent(epsilon=epsilon, delta=min(delta, Fraction(1)))
            whole = self._priced(PoissonSampled(event=inside, probability=self._sample))
        return {name: Charge.rounded_up(*loss) for name, loss in whole.items()}

    def _require_open(self) -> None:
        if self._whole.closed:
            raise RequestConflict(
                "The allowance is closed, or belongs to another process.",
                fix="Use its stored answer, or open a new one.",
            )

    def _require_known(self, part: PartAccount) -> None:
        if part not in self._parts:
            raise Unsupported(
                "This part does not belong to the allowance.",
                fix="Use `whole` and `cut`.",
                about="part",
            )


def _require_one_part_per_unit(measurement: Measurement, part: PartAccount) -> None:
    if part.where and not measurement.query.stability.is_row_level:
        raise Unsupported(
            "One unit may have rows in several parts, so parallel composition does not apply.",
            fix="Ask about the whole table, or per key.",
            about="parallel",
        )


@contextmanager
def ended(allowance: Allowance, kept: Kept) -> Iterator[None]:
    """Close it when the block ends. What failed in the block is told, not what failed after it."""
    try:
        yield
    except BaseException:
        with suppress(LedgerError):  # the charge stays
            allowance.close()
        raise
    finally:
        kept.forget()
    allowance.close()


def sample_in(event: Event, accountants: Collection[str]) -> Fraction | None:
    """The probability of the one sample that a recipe is about, if any.

    Refuses a recipe about a sample that no theorem prices; see `Allowance`.
    """
    if not isinstance(event, PoissonSampled):
        return None
    inner = event.event
    if type(inner) is not DeclaredEvent or inner.delta or event.probability >= 1:
        raise Unsupported(
            "A recipe on a sample must reserve an ε alone, without Gaussian noise or δ.",
            fix="Reserve a declared ε, with a probability below 1.",
        )
    if other := set(accountants) - _AMPLIFIED:
        raise Unsupported(
            f"The {min(other)} accountant has no price for a recipe on one sample.",
            fix="Ask about all rows, or use an account that adds up ε or ρ.",
            about="sample",
        )
    return event.probability


def require_sample(sample: Fraction) -> None:
    """Refuse a sample that holds everybody or nobody."""
    if not 0 < sample < 1:
        raise Unsupported(
            "The sampling probability is out of range.", fix="Use one between 0 and 1."
        )


_open_allowances: "WeakSet[Allowance]" = WeakSet()


def _leave_to_the_parent() -> None:
    """A forked child holds copies: drawing on them, or closing them, would not be counted once."""
    for allowance in list(_open_allowances):
        allowance._lock = threading.Lock()  # noqa: SLF001 - the copy's lock may be held
        allowance._whole.closed = True  # noqa: SLF001


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_to_the_parent)
