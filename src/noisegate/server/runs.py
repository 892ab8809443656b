"""Runs: orders that are waiting, being worked on, or done; each is asked for once.

A run that was named by an idempotency key is found by it again, in this process or in another that
shares the store. What it drew is in the ledger: a process that died left nothing else, and the same
key goes on from there, at no second charge.

When an answer is stored: at once, unless whoever asks has chosen the moments.
From the moment at which the ledger has an answer, everybody who shares it can find that out: a plan
turns free, what was not used is given back, the same question is not charged any more. A service
lets that happen at times that rows do not choose: its ledgers pause by `wait_to_settle`.

Claim: all that can be seen of runs, by whomever, is seen at times that follow from when they were
    asked, approved and cancelled, from what was released, and from one rung for each of their
    steps: the time that the step took, on a ladder (`rung`). A step of up to T seconds tells
    one of 8 + log2(T / 8q) rungs of a quantum q: at 0.05 s one of 15 up to 51 s, which is less than
    4 bits, and one of 22 up to an hour, less than 4.5 bits. How long a run waited for its turn is
    not a part of that. Of the progress within a step, which number was the last is told at each of
    these rungs: log2(n) bits more for a step that tells n numbers.
Why: by induction over the turns. A run is begun when it is asked, or once a worker is free and it
    is the next in turn; a worker is free at the told end of what it did before, so both follow from
    what was told. The first step is charged then. It reads rows, and its answer is stored at the
    next rung from there; the next step is charged then, and has a ladder of its own. What comes
    after the last one is calculated from released numbers. A run that was cancelled keeps its
    worker like any other.
Between runs: an engine takes a few questions at a time, and all share the processors, so one step
    can move the rung of others that are under way. Somebody with several accounts, or beside other
    people's questions, can so read one step off n other runs, each by a rung of its own: young runs
    have short rungs, and tell its end to about a quantum. To fill an engine takes two people, since
    one person has fewer questions at once than an engine takes.
Not claimed: that somebody who watches the machine itself (its load, its disk, how soon it says that
    it is healthy) learns nothing more.
"""

import asyncio
import json
import time
from asyncio import AbstractEventLoop, Future
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime
from fractions import Fraction
from functools import cached_property, partial
from threading import Condition, Timer
from typing import Any, Final, Literal, TypeAlias, final

from noisegate.desk.order import Order
from noisegate.desk.plan import Expected
from noisegate.errors import Cancelled, Waiting
from noisegate.frozen import dataclass, field
from noisegate.orders import order_from
from noisegate.privacy.loss import ApproxDP
from noisegate.root import Stop
from noisegate.server.refusals import body_of
from noisegate.server.results import Result
from noisegate.server.store import Do

State: TypeAlias = Literal["waiting", "queued", "running", "done", "failed", "cancelled"]
RUN: Final = (
    "id, person, dataset, key, ordered, fresh, practice, face, token, state, created, period, "
    "allow, settled, cost"
)
_ENDED: Final = ("done", "failed", "cancelled")
_EVEN: Final = 8  # steps of the same length
_SHORT: Final = 5  # steps in a quantum, where rows have no part in what takes time
_LOOK: Final = 0.5  # seconds until who waits for a time looks whether it was cancelled
_Step: TypeAlias = tuple[float, float, str]  # from when on it may be told, the part, and words


@final
@dataclass(eq=False, kw_only=True)
class Run:
    """One order of one caller. Its fields change under ``changed``; it ends once."""

    id: str
    person: str
    dataset: str
    order: Order[Any, Expected]
    fresh: bool
    practice: bool
    face: str
    created: str
    key: str | None = None
    token: str | None = None
    allow: frozenset[str] | None = None  # the capabilities of whoever asked; None: all of theirs
    window: str | None = None  # the time whose share it is asked from
    purpose: str | None = None  # what it is asked for, where the policy has purposes
    again: bool = False  # it was begun before, under the same key
    finding: bool = False  # it was paid for before: to be found, and not to be charged
    cost: ApproxDP | None = None  # what its result said that it cost, where it was done
    state: State = "queued"
    quantum: float = 0.0
    settled_order: Order[Any, Expected] | None = None  # at the price that it is asked for
    price: Fraction | None = None  # that was planned for, where that had to be known
    ended_at: float = 0.0  # when the answer may leave, by the monotonic clock
    begun_at: float = field(default_factory=time.monotonic)
    on_cancel: Callable[[], None] | None = None  # writes it down, wherever it was
    stop: Stop = field(default_factory=Stop)  # cuts short what the engine does for it
    stored_at: float = 0.0  # when the ledger got the last answer of it
    _steps: tuple[_Step, ...] = ((0.0, 0.0, ""),)  # what may be told of its progress, and what next
    _error: Exception | None = None
    _result: Result | None = None
    _changed: Condition = field(default_factory=Condition)
    _waiters: list[Callable[[], None]] = field(default_factory=list)

    @property
    def ended(self) -> bool:
        """Whether it will not change any more."""
        return self.state in _ENDED

    @property
    def told(self) -> State:
        """The state that is told: who has an answer that may not leave yet is still at work."""
        early = self.state in ("done", "failed") and time.monotonic() < self.ended_at
        return "running" if early else self.state

    @property
    def settled(self) -> bool:
        """Whether the work is over and that may be told, also of a run that was cancelled."""
        return self.ended and 0 < self.ended_at <= time.monotonic()

    @property
    def progress(self) -> float:
        """How far it is, of 1."""
        return self._step[1]

    @property
    def words(self) -> str:
        """What it is at."""
        return self._step[2]

    @property
    def _step(self) -> _Step:
        now = time.monotonic()
        return next(each for each in reversed(self._steps) if each[0] <= now)

    def begin(self) -> bool:
        """Whether it is to be worked on: it was not cancelled while it waited.

        Its ladder of times begins now: how long it waited, or a steward took, is not a part of it.
        """
        with self._changed:
            if self.state != "queued":
                return False
            self.state, self.begun_at = "running", time.monotonic()
            return True

    def finish_at_once(self, made: Result) -> None:
        """The end of a run that asks nothing: its ladder began when it was asked."""
        with self._changed:
            if self.state == "queued":
                self.state = "running"
        self.finish(made)

    def approve(self, log: Callable[[], None]) -> bool:
        """Queue a run that waits, once that is in the ``log``; whether it was waiting."""
        with self._changed:
            if self.state != "waiting":
                return False
            log()
            self.state = "queued"
            return True

    def tell(self, part: float, words: str) -> None:
        """How far it is, from the next time of the ladder on; here a run stops that is cut.

        Its end is told by `finish` alone.
        """
        if part < 1:
            now, since = time.monotonic(), self.stored_at or self.begun_at
            self._steps = self._step, (since + rung(now - since, self.quantum), part, words)
        if self.stop.is_set:  # at a time of the ladder, as the engine is
            raise _cancelled()

    def pause(self) -> None:
        """Wait for the time of the ladder at which the ledger may have what was drawn.

        Claim: when the ledger is changed after rows were read, when the answer leaves, and what a
            run that is cut was charged, tell of the time that rows took what the ladder tells: how
            much that is stands at the top of this file.
        Why: the charge of a step is made before it reads rows; its answer is stored, and what it
            did not use is given back, at the next time of a ladder that begins with the step
            before it, which is when the next step is charged. What follows the last step is
            calculated from released numbers. A cut comes at times of a ladder too (`cancel`), and
            compares them with those.
        """
        if self.quantum > 0:
            now, since = time.monotonic(), self.stored_at or self.begun_at
            self.stored_at = since + rung(now - since, self.quantum)
            time.sleep(max(0.0, self.stored_at - now))

    def finish(self, made: Result | Exception) -> None:
        """The end: a result or a refusal. It leaves on the ladder of times."""
        with self._changed:
            if self.state == "cancelled":
                made = _cancelled()
            elif isinstance(made, Exception):
                self.state = "failed"
            else:
                self.state = "done"
            if isinstance(made, Exception):
                self._error = made
            else:
                self._result = made
            since, step = self.stored_at or self.begun_at, self.quantum
            if self.stored_at and not isinstance(made, Exception):
                step /= _SHORT  # what came after it was calculated from released numbers
            self.ended_at = since + rung(time.monotonic() - since, step)
            waiters, self._waiters = self._waiters, []
            self._changed.notify_all()
        for tell in waiters:
            tell()

    def rest(self) -> None:
        """Wait until its end may be told, which is when somebody else may have its worker."""
        time.sleep(max(0.0, self.ended_at - time.monotonic()))

    def cancel(self) -> None:
        """Stop it. What was drawn stays charged, and what the engine does for it is cut short.

        What was not told as ended is cancelled, whether its work is over or not: else who cancels
        early would learn how long the rows took. That is told at once. The engine is cut at a time
        of a ladder too: else how many parts of a question were paid for by then would tell of the
        rows whatever moment somebody likes to choose.
        """
        with self._changed:
            if self.told in _ENDED:
                return
            if self.state in ("queued", "waiting"):
                self._error = Cancelled("The run was cancelled.", fix="Nothing was spent.")
                self.ended_at = time.monotonic()
            else:
                self._error, self._result = _cancelled(), None
                taken = time.monotonic() - self.begun_at
                clock = Timer(_cut(taken, self.quantum) - taken, self.stop.set)
                clock.daemon = True
                clock.start()
            self.state = "cancelled"
            waiters, self._waiters = self._waiters, []
            self._changed.notify_all()
        if self.on_cancel is not None:
            self.on_cancel()
        for tell in waiters:
            tell()

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until its answer may leave; whether that came in time.

        Who waits for less is told no sooner that the work itself is over.
        """
        last = _last(seconds)
        with self._changed:
            if not self._changed.wait_for(lambda: self.ended, seconds):
                return False
            while not self._may_leave:
                if (now := time.monotonic()) >= last:
                    return False
                self._changed.wait(max(0.0, min(self.ended_at, last) - now))
            return True

    async def until(self, seconds: float | None = None) -> bool:
        """The same for an event loop: nobody's thread waits."""
        loop, last = asyncio.get_running_loop(), _last(seconds)
        ended: Future[None] | None = None
        with self._changed:
            if not self.ended:
                ended = loop.create_future()
                self._waiters.append(partial(_set, loop, ended))
        try:
            if ended is not None:
                await asyncio.wait_for(ended, seconds)
        except TimeoutError:
            return False
        while not self._may_leave:
            if (now := time.monotonic()) >= last:
                return False
            await asyncio.sleep(max(0.0, min(self.ended_at - now, last - now, _LOOK)))
        return True

    @property
    def _may_leave(self) -> bool:
        return self.told in _ENDED

    def result(self) -> Result:
        """What it made; a run that failed raises its refusal. Neither leaves before its time."""
        with self._changed:
            state, error, made = self.told, self._error, self._result
        if state in _ENDED and error is not None:
            raise error
        if state not in _ENDED or made is None:
            raise Waiting(
                "A steward has to approve this first."
                if state == "waiting"
                else "This is not done yet.",
                fix="Look again later.",
                about=state,
            )
        return made

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        state = self.told
        error = None if self._error is None or state == "running" else body_of(self._error)
        done = state == "done"
        return {
            "id": self.id, "dataset": self.dataset, "person": self.person, "state": state,
            "progress": 1.0 if done else self.progress, "words": "done" if done else self.words,
            "created": self.created, "practice": self.practice, "fresh": self.fresh,
            "order": self.order.to_dict(), "purpose": self.purpose, "error": error,
        }  # fmt: skip

    @property
    def moment(self) -> datetime:
        """When it was begun: times in its question are said from then."""
        return datetime.fromisoformat(self.created).replace(microsecond=0)

    @cached_property
    def said(self) -> dict[str, Any]:
        """The order as plain values, with what it is asked for."""
        said = _said(self.order)
        return said if self.purpose is None else said | {"purpose": self.purpose}

    @cached_property
    def text(self) -> str:
        """The order as JSON: what an idempotency key stands for."""
        return json.dumps([self.said, self.fresh, self.practice], sort_keys=True)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """A run that is over as soon as it is written down: ``write`` in a transaction, then `tell`."""

    run: Run
    ready: Result
    write: Callable[[Do], object]
    keep: Callable[[Run], None]

    def tell(self) -> Run:
        """The run, which is over; once it is on the disk, and not before."""
        self.keep(self.run)
        self.run.finish_at_once(self.ready)
        return self.run


_SAID: Final[dict[int, tuple[Order[Any, Expected], dict[str, Any]]]] = {}  # by the order's place
_SAID_MAX: Final = 1000


def _said(order: Order[Any, Expected]) -> dict[str, Any]:
    """An order as plain values, which nobody changes: one that is asked again is written once."""
    known = _SAID.get(id(order))
    if known is None or known[0] is not order:
        if len(_SAID) >= _SAID_MAX:
            _SAID.clear()
        known = _SAID[id(order)] = order, order.to_dict()
    return known[1]


def stored_run(row: Sequence[Any], quantum: float) -> Run:
    """The run of a row of the store, in the order of `RUN`."""
    name, person, dataset, key, text, fresh, practice, face, token, _, created, *more = row
    window, allow, settled, cost = more
    said = json.loads(text)
    purpose = said.pop("purpose", None)
    return Run(
        id=name, person=person, dataset=dataset, order=order_from(said), purpose=purpose,
        fresh=bool(fresh), practice=bool(practice), face=face, created=created, key=key,
        token=token, quantum=quantum, window=window,
        allow=None if allow is None else frozenset(json.loads(allow)),
        settled_order=None if settled is None else order_from(json.loads(settled)),
        cost=None if cost is None else ApproxDP(*map(Fraction, cost.split())),
    )  # fmt: skip


def rung(seconds: float, quantum: float) -> float:
    """The next time on the ladder: multiples of the quantum, doubled from eight of them on.

    >>> [rung(t, 0.05) for t in (0, 0.02, 0.12, 0.5)]
    [0.05, 0.05, 0.15, 0.8]
    """
    if quantum <= 0:
        return seconds
    steps = int(seconds / quantum) + 1
    if steps > _EVEN:
        steps = 1 << (steps - 1).bit_length()
    return round(steps * quantum, 9)


def _cut(seconds: float, quantum: float) -> float:
    """The next time at which the engine is cut: at most an eighth later, or the quantum.

    >>> [_cut(t, 0.05) for t in (0, 0.12, 0.5, 100)]
    [0.05, 0.15, 0.55, 102.4]
    """
    if quantum <= 0:
        return seconds
    steps = int(seconds / quantum) + 1
    grain = 1 << max(0, steps.bit_length() - 4)
    return round(-(-steps // grain) * grain * quantum, 9)


def _cancelled() -> Cancelled:
    return Cancelled("The run was cancelled.", fix="What was drawn stays charged.")


def _last(seconds: float | None) -> float:
    return float("inf") if seconds is None else time.monotonic() + seconds


def _set(loop: AbstractEventLoop, ended: "Future[None]") -> None:
    def done() -> None:
        if not ended.done():
            ended.set_result(None)

    try:
        loop.call_soon_threadsafe(done)
    except RuntimeError:  # the loop is closed: nobody waits any more
        return


_WAIT: ContextVar[Callable[[], None] | None] = ContextVar("wait", default=None)


@contextmanager
def settling(wait: Callable[[], None]) -> Iterator[None]:
    """What this thread draws is stored when ``wait`` has come back.

    A process that ends meanwhile leaves a charge without an answer: the same request draws again,
    and nobody has seen the draw that is gone.
    """
    before = _WAIT.set(wait)
    try:
        yield
    finally:
        _WAIT.reset(before)


def wait_to_settle() -> None:
    """Wait for the moment, if there is one to wait for."""
    if (wait := _WAIT.get()) is not None:
        wait()
