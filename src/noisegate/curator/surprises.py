"""Many questions at one price: only those whose public guess is far off are answered with noise.

    open     everything that may be drawn is charged, once, before a row is read
    ask      is the count far from its guess? If so, a fresh noisy count; after the last, no more
    close    what was not drawn is given back; the session is over for good

The exact cells of one grid are read once and stay here until the end. What leaves is, for each
question, on which side of its guess the count is (mostly: near it), and for a surprise one number
with noise of its own. A crash leaves the session spent: its answers may have been seen, so nothing
resumes. A forked child cannot ask.

Claim: the whole session is the event `SurpriseSpec.event`, whatever is asked and however questions
    and guesses depend on earlier answers. Adjacency: add/remove one unit.
Why: a question has coefficients from 0 to ``reach`` over cells that one unit raises by at most
    `Query.moved` together, so it raises each count by at most Δ = moved · reach and lowers none;
    guesses are functions of what was released. So comparisons are a run of `OutsideBand`, and each
    number is a geometric or Gaussian draw of sensitivity Δ; they compose adaptively. A run lasts
    while other questions come between, here and in other sessions: an ε-private step with many
    turns is a function of one randomised response of ε [VW21], so it composes like that one,
    drawn when the run begins.
Why, what is given back: with ``restarts`` a session is a row of runs with one yes each, and of
    single numbers. Runs and numbers that were not begun did not happen, and to stop is a choice
    like any other, which every filter allows [RRUV16, FZ21]. Without, one run answers all. Where
    losses are pure, what counts is the log-ratio of the answers that were given, which for u yeses
    is at most ε₁ + u · Δ / query_scale (`OutsideBand.event`): later steps multiply onto it, so the
    sum is kept for every outcome. Other accountants have no such theorem, and so every account
    above must be pure. A session that was never asked drew nothing; one that was asked has begun a
    run, also if its rows could not be read, since that may tell of them.
Claim, on a ``sample``: all of it is amplified once, as `Allowance` has it; for pure losses only.
    Why: the cells are read once, from a sample drawn for this session, so it is one mechanism of
    those who are in it; as above, each outcome is bounded by its own ε, and so by its own ε'.
In a part of the units it is the step of that part, and nothing is given back (`ledger/parts.py`).
Rounding: none; counts are whole.
"""

import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from typing import Any, Final, final
from weakref import WeakSet

import numpy as np

from noisegate.algebra.tally import Sums
from noisegate.curator.allowance import require_sample
from noisegate.curator.curator import Curator
from noisegate.curator.measurement import Measurement
from noisegate.curator.quietly import quietly
from noisegate.errors import RequestConflict, SpecError, Unsupported
from noisegate.frozen import dataclass
from noisegate.ledger.fork import lineage
from noisegate.ledger.ledger import Reservation
from noisegate.mechanisms.additive.gaussian import DiscreteGaussian
from noisegate.mechanisms.additive.geometric import Geometric
from noisegate.mechanisms.base import to_record
from noisegate.mechanisms.selection.outside_band import BandRun, OutsideBand
from noisegate.noise.chunks import Int64Array
from noisegate.privacy.distance import L1, L2
from noisegate.privacy.event import (
    AboveThresholdEvent,
    DeclaredEvent,
    Event,
    NothingEvent,
    PoissonSampled,
    Repeated,
    Sequential,
)
from noisegate.transforms.query import Query
from noisegate.transforms.strategy import SUM_MAX, Block, Strategy

CELLS_MAX: Final = 1 << 22  # that are kept in memory
GUESS_MAX: Final = 1 << 60


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class SurpriseSpec:
    """What a session compares and draws. ``most`` is how many surprises it answers.

    With ``restarts`` each run of comparisons ends with its yes, and the next has ends of its own:
    then ``band`` has cutoff 1. Without, one run goes on to ``most`` yeses.
    """

    cells: Query
    reach: int
    band: OutsideBand
    number: Geometric | DiscreteGaussian
    most: int
    restarts: bool

    def __post_init__(self) -> None:
        tally = self.cells.tally
        plain = type(self.cells) is Query and self.cells.strategy is None
        plain = plain and self.cells.sample is None  # one sample would answer many questions
        if not plain or not isinstance(tally, Sums) or len(tally.terms) != 1:
            raise Unsupported("A session needs the cells of a single sum.", fix="Ask for one sum.")
        if tally.cells > CELLS_MAX:
            raise Unsupported(
                f"There would be {tally.cells:,} cells, more than {CELLS_MAX:,}.",
                fix="Use wider bins or fewer columns.",
            )
        if tally.terms[0].low < 0:
            raise Unsupported("These sums may decrease when a unit is added.", fix="Use COUNT(*).")
        whole = all(type(each) is int and each >= 1 for each in (self.reach, self.most))
        if not whole or self.reach * self.cells.moved > GUESS_MAX:
            raise SpecError("reach or surprises is not a count.", fix="Use whole numbers from 1.")
        kinds = type(self.band), type(self.number)
        if kinds not in ((OutsideBand, Geometric), (OutsideBand, DiscreteGaussian)):
            raise Unsupported("The session has no rule for this noise.", fix="Use geometric noise.")
        if type(self.restarts) is not bool or self.band.cutoff != (
            1 if self.restarts else self.most
        ):
            raise SpecError(
                "The runs have another cutoff than the surprises.", fix="Use their cutoff."
            )

    @property
    def moved(self) -> Fraction:
        """How far one unit raises any one count."""
        return self.cells.moved * self.reach

    def event(self) -> Event:
        """What all of it is, if every surprise is used."""
        return self.used(runs=self.most if self.restarts else 1, yeses=self.most)

    def used(self, *, runs: int, yeses: int) -> Event:
        """What was drawn: ``runs`` of comparisons, and ``yeses`` numbers."""
        if not runs:
            return NothingEvent()
        run: Event = self.band.event(self.moved)
        if not self.restarts and isinstance(run, AboveThresholdEvent) and yeses < self.most:
            each = run.epsilon_queries / run.cutoff
            run = DeclaredEvent(epsilon=run.epsilon_threshold + yeses * each)
        events = [_times(run, runs)]
        if yeses and type(self.number) is Geometric:
            events.append(_times(self.number.event(L1(self.moved)), yeses))
        elif yeses and type(self.number) is DiscreteGaussian:
            events.append(_times(self.number.event(L2(squared=self.moved**2)), yeses))
        return events[0] if len(events) == 1 else Sequential(events=tuple(events))

    def to_record(self) -> dict[str, Any]:
        """The session as plain values."""
        return {
            "surprises": 1,
            "of": self.cells.to_record(),
            "reach": self.reach,
            "band": to_record(self.band),
            "number": to_record(self.number),
            "most": self.most,
            "restarts": self.restarts,
        }


def _amplified(event: Event, sample: Fraction | None) -> Event:
    if sample is None or isinstance(event, NothingEvent):
        return event
    return PoissonSampled(event=event, probability=sample)


def _times(event: Event, count: int) -> Event:
    return event if count == 1 else Repeated(event=event, count=count)


@final
@dataclass(frozen=True, slots=True)
class Told:
    """``near`` questions were near their guess; then one was not, unless ``side`` is 0.

    ``side`` is 1 where the count is above its guess, -1 where it is below; ``number`` is then the
    count with noise.
    """

    near: int
    side: int
    number: int | None


@final
class Surprises:
    """A session. Made by `open_surprises`, closed when that is left. Threads may share it."""

    __slots__ = (
        "__weakref__", "_answer", "_cells", "_curator", "_entry", "_lock", "_past", "_run", "_runs",
        "_sample", "_spec", "question", "request_id",
    )  # fmt: skip

    def __init__(
        self, curator: Curator, spec: SurpriseSpec, entry: Reservation, sample: Fraction | None
    ) -> None:
        self._curator, self._spec, self._entry, self._sample = curator, spec, entry, sample
        self.question, self.request_id = entry.question, entry.request_id
        self._lock = threading.Lock()
        self._cells: Int64Array | None = None
        self._run: BandRun | None = None
        self._runs, self._past, self._answer = 0, 0, b""
        _open_sessions.add(self)
        if entry.process != lineage():  # a fork came between the charge and this
            self._entry = None  # type: ignore[assignment]

    def __copy__(self) -> "Surprises":
        raise RequestConflict("A session cannot be copied.", fix="Use the one that was opened.")

    def __reduce__(self) -> str:
        raise RequestConflict(
            "A session cannot leave its process.", fix="Use the one that was opened."
        )

    @property
    def answered(self) -> int:
        """How many surprises there were: of past runs, and of this one by its own count."""
        return self._past + (0 if self._run is None else self._run.yeses)

    @property
    def left(self) -> int:
        """How many surprises are left; none once it is closed."""
        return 0 if self._entry is None else self._spec.most - self.answered

    def used(self) -> Event:
        """What was drawn so far, as one event."""
        return _amplified(self._spec.used(runs=self._runs, yeses=self.answered), self._sample)

    def ask(self, block: Block, guesses: Int64Array) -> Told:
        """Compare questions with their guesses, in order, up to the first surprise."""
        strategy = Strategy(self._spec.cells.tally.cells, (block,))  # type: ignore[union-attr]
        if not strategy.is_positive or strategy.reaches[0] > self._spec.reach:
            raise Unsupported(
                f"A coefficient is not from 0 to {self._spec.reach}.", fix="Ask for plain counts."
            )
        own = guesses.copy() if type(guesses) is np.ndarray else None  # others may write into it
        if own is None or own.dtype != np.int64:
            raise SpecError("The guesses are not int64.", fix="Give an int64 array.")
        beyond = (own < -GUESS_MAX) | (own > GUESS_MAX)
        if own.shape != (block.size,) or np.any(beyond):
            raise SpecError("There must be one guess per question.", fix="Give one for each.")
        with self._lock:
            run = self._begun()
            (exact,) = strategy.apply(self._read())
            found = run.ask(np.clip(exact, -GUESS_MAX, GUESS_MAX) - own)
            side, number = int(found[-1]), None
            if side:
                last = exact[found.size - 1 : found.size]
                (number,) = self._spec.number.sample(last, bits=self._curator._bits).tolist()  # noqa: SLF001 - same room
            self._require_open()  # a child that was forked amid the draw has drawn once more
            return Told(found.size - (1 if side else 0), side, number)

    def finish(self, answer: bytes) -> None:
        """Hand over what was made of the answers, to be stored when the session closes."""
        with self._lock:
            self._require_open()
            self._answer = answer

    def close(self) -> None:
        """Forget the cells, and give back what was not drawn; once."""
        with self._lock:
            entry, self._entry = self._entry, None  # type: ignore[assignment]
            self._end_run()
            self._cells = None
        if entry is not None:
            entry.close(self.used(), self._answer)

    def _begun(self) -> BandRun:
        """The run that goes on, or a new one: charged from here on, before a row is read."""
        self._require_open()
        if not self.left:
            raise RequestConflict(
                "The last update of the session was used.",
                fix="Pay for a new session.",
                about="last-surprise",
            )
        if self._run is not None and self._run.is_over:
            self._end_run()
        if self._run is None:
            self._runs += 1
            self._run = self._spec.band.start(bits=self._curator._bits)  # noqa: SLF001 - same room
        return self._run

    def _read(self) -> Int64Array:
        """The cells, read with the first question."""
        if self._cells is None:
            tally = self._spec.cells.tally
            with self._curator._rows_of(self._sample) as source:  # noqa: SLF001 - same room
                (row,) = quietly(lambda: source.sums(tally))  # type: ignore[arg-type]
            limit = SUM_MAX // (tally.cells * self._spec.reach)  # type: ignore[union-attr]
            self._cells = np.clip(np.asarray(row, np.int64), 0, limit)
        return self._cells

    def _end_run(self) -> None:
        self._past, self._run = self.answered, None

    def _require_open(self) -> None:
        if self._entry is None:
            raise RequestConflict(
                "The session is closed, or belongs to another process.", fix="Open a new one."
            )


@contextmanager
def open_surprises(
    curator: Curator,
    spec: SurpriseSpec,
    *,
    name: str,
    request_id: str,
    sample: Fraction | None = None,
) -> Iterator[Surprises]:
    """Pay for a session and open it. ``name`` says what it is for, ``request_id`` is a new one.

    With a ``sample`` it is about one secret sample that holds each unit with that chance.
    """
    if type(spec) is not SurpriseSpec:
        raise Unsupported("This is not a session.", fix="Make one with `SurpriseSpec`.")
    curator.require_allowed({"many"})
    number = Measurement(query=spec.cells, mechanisms=(spec.number,))
    curator._require_own(number)  # noqa: SLF001 - same room
    if not spec.restarts or sample is not None:
        _require_pure(curator)
    if sample is not None:
        require_sample(sample)
    record = spec.to_record() | {"name": name}
    record |= {} if sample is None else {"sample": str(sample)}
    entry = curator._reserve(  # noqa: SLF001 - same room
        curator._own_id(f"many {request_id}"),  # noqa: SLF001
        question=json.dumps(record, sort_keys=True, separators=(",", ":"), ensure_ascii=False),
        event=_amplified(spec.event(), sample),
        kind="allowance",
    )
    if entry.answer is not None:
        raise RequestConflict(
            "This session has ended.", fix="Open one with a new request id.", about="over"
        )
    session = Surprises(curator, spec, entry, sample)
    try:
        yield session
    finally:
        session.close()


def is_pure(curator: Curator) -> bool:
    """Whether the account and all above it add up ε."""
    return set(curator.accountants) == {"pure"}


def _require_pure(curator: Curator) -> None:
    if not is_pure(curator):
        raise Unsupported(
            "One run for all updates, or a sample, needs an account that adds up ε.",
            fix="Use restarts, and all rows.",
            about="accountant",
        )


_open_sessions: "WeakSet[Surprises]" = WeakSet()


def _leave_to_the_parent() -> None:
    """A forked child holds copies: what it asked would not be counted."""
    for session in list(_open_sessions):
        session._lock = threading.Lock()  # noqa: SLF001 - the copy's lock may be held
        session._entry = session._cells = session._run = None  # type: ignore[assignment]  # noqa: SLF001


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_to_the_parent)
