"""One reservation for a whole recipe, and the same strict account inside it.

A recipe (a tree, k-means, multiplicative weights) asks many questions, each chosen by the answers
so far. Its allowance is charged once, up front; inside, the door composes what was really asked:
sequentially along a line of questions, in parallel across disjoint parts. A question that does not
fit into what was reserved is refused before a row is read.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Final, final

from noisegate.accounting.accountant import Charge
from noisegate.curator.measurement import Measurement
from noisegate.errors import OverBudget, RequestConflict, Unsupported
from noisegate.ledger.store import Reservation
from noisegate.privacy.domain import Key
from noisegate.privacy.event import Event, NothingEvent, Parallel, Sequential
from noisegate.privacy.release import Release
from noisegate.transforms.restrict import restrict

Quote = Callable[[Event], Mapping[str, Charge]]
Draw = Callable[[Measurement, str], Release]

_UNFINISHED: Final = b""


@final
class Scope:
    """A place to ask: the whole table, or one of several disjoint parts of it.

    Claim: the recipe as a whole is the event `used`: its questions in sequence, and the parts of
        each cut in parallel. Adjacency: add/remove one unit, each unit being one row.
    Why: basic adaptive composition, and [McS09] for parts: the cut is by a declared key of the
        unit's own row, so a row lies in one part at most, whatever the answers were.
    """

    def __init__(self, root: "Allowance", where: tuple[tuple[str, Key], ...]) -> None:
        self._root, self._where = root, where
        self.events: list[Event] = []
        self._cuts: list[tuple[Scope, ...]] = []

    def measure(self, measurement: Measurement) -> Release:
        """Answer a question about this part, within what the allowance holds."""
        query = measurement.query
        for column, key in self._where:
            query = restrict(query, column=column, key=key)
        restricted = Measurement(query=query, mechanism=measurement.mechanism)
        return self._root.draw_for(self, restricted)

    def cut(self, column: str, keys: Sequence[Key]) -> "tuple[Scope, ...]":
        """Disjoint parts by the declared keys of a column: asking each costs like asking one."""
        if len(set(keys)) < len(keys):
            raise Unsupported("A part is listed twice.", fix="List each key once.")
        if any(column == earlier for earlier, _ in self._where):
            raise Unsupported(
                f"This part is already one of {column!r}.", fix="Cut by another column."
            )
        parts = tuple(Scope(self._root, (*self._where, (column, key))) for key in keys)
        self._cuts.append(parts)
        return parts

    def used(self) -> Event:
        """What has been asked here, as one event."""
        cuts = [Parallel(events=tuple(part.used() for part in cut)) for cut in self._cuts if cut]
        events = (*self.events, *cuts)
        return Sequential(events=events) if events else NothingEvent()


@final
class Allowance:
    """A reservation that a recipe draws on. Made by `Curator.allowance`, closed when it is left."""

    def __init__(self, entry: Reservation, *, quote: Quote, draw: Draw) -> None:
        self._entry, self._quote, self._draw = entry, quote, draw
        self._lock = threading.Lock()
        self._answer, self._closed = entry.answer, entry.answer is not None
        self.whole = Scope(self, ())

    @property
    def answer(self) -> bytes | None:
        """The recipe's stored result, if it was finished before: use it and ask nothing."""
        return self._answer or None

    def finish(self, answer: bytes) -> None:
        """Hand over the recipe's result, to be stored when the allowance closes."""
        if self._closed:
            raise RequestConflict("The allowance is closed.", fix="Use the stored answer.")
        self._answer = answer

    def draw_for(self, scope: Scope, measurement: Measurement) -> Release:
        """Check, note down, draw: the event is on record before the first row is read."""
        unit = measurement.query.table.unit
        if measurement.query.tally.where and unit.column is not None:
            raise Unsupported(
                f"One {unit.noun} may have rows in several parts, so parts cannot be asked in "
                "parallel.",
                fix="Ask about the whole table, or per key.",
            )
        with self._lock:
            if self._closed:
                raise RequestConflict("The allowance is closed.", fix="Open a new one.")
            self._note_down(scope, measurement.event())
        return self._draw(measurement, self._entry.request_id)

    def close(self) -> None:
        """Store the result and give back what nothing was drawn for; once."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self._answer = self._entry.close(self.whole.used(), self._answer or _UNFINISHED)

    def _note_down(self, scope: Scope, event: Event) -> None:
        scope.events.append(event)
        fits = False
        try:
            charges = self._quote(self.whole.used())
            fits = all(charge <= self._entry.charges[name] for name, charge in charges.items())
        finally:
            if not fits:
                scope.events.pop()
        if not fits:
            raise OverBudget(
                "The question does not fit into what is left of the allowance.",
                fix="Nothing was drawn. Reserve more, or ask with more noise.",
            )
