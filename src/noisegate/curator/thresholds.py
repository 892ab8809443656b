"""A session of threshold questions, one after the other, each any sum: paid by the few yeses.

    open     the run and all numbers that may be drawn are charged, once, before a row is read
    ask      does the sum reach the threshold? If so: by how much, and the number, with fresh noise
    close    numbers that were not drawn are given back; the session is over for good

A crash leaves the session spent: its answers may have been seen, so nothing resumes. A forked child
cannot ask.

Claim: the whole session is the event `ThresholdSpec.event`, however questions depend on earlier
    answers. Adjacency: add/remove one unit.
Why: each question is one sum, in whole grains of the session, that a unit moves by at most
    ``moved`` (refused otherwise, by `Query.moved`), and raises where the run is ``monotone``. So
    all answers with their gaps are one run of `AboveThreshold`, and each number is one geometric
    draw of that sensitivity, made after its yes; they compose adaptively, and so they do with what
    is asked outside of the session meanwhile: a run with many turns is a function of one randomised
    response of its ε, drawn when it begins [VW21].
Why, what is given back: numbers that were not drawn did not happen, and to stop is a choice that
    every filter allows [RRUV16, FZ21]. A run that has begun stays charged up to its last yes.
Rounding: none; sums are whole numbers of grains.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from threading import Lock
from typing import Any, final

import numpy as np

from noisegate.algebra.tally import Sums
from noisegate.curator.curator import Curator
from noisegate.curator.measurement import Measurement
from noisegate.curator.quietly import quietly
from noisegate.errors import RequestConflict, SpecError, Unsupported
from noisegate.frozen import dataclass
from noisegate.ledger.fork import lineage
from noisegate.ledger.ledger import Reservation
from noisegate.mechanisms.additive.geometric import Geometric
from noisegate.mechanisms.base import INPUT_MAX, to_record
from noisegate.mechanisms.selection.above_threshold import AboveThreshold, SparseRun
from noisegate.privacy.distance import L1
from noisegate.privacy.event import Event, NothingEvent, Repeated, Sequential
from noisegate.transforms.query import Query


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ThresholdSpec:
    """What a session compares: sums in multiples of ``grain`` that a unit moves by ``moved`` of it.

    With a ``number``, each yes is followed by the sum with that noise.
    """

    noise: AboveThreshold
    moved: int
    grain: Fraction
    number: Geometric | None

    def __post_init__(self) -> None:
        kinds = type(self.noise) is AboveThreshold, type(self.number) in (Geometric, type(None))
        whole = type(self.moved) is int and 1 <= self.moved <= INPUT_MAX
        if not all(kinds) or not whole or type(self.grain) is not Fraction or self.grain <= 0:
            raise SpecError("This is not a session of thresholds.", fix="Use gate.thresholds.")

    def event(self) -> Event:
        """What all of it is, if every yes is used."""
        return self.used(self.noise.cutoff)

    def used(self, numbers: int) -> Event:
        """A run that was begun, and so many numbers."""
        run = self.noise.event(Fraction(self.moved))
        if self.number is None or not numbers:
            return run
        drawn = Repeated(event=self.number.event(L1(self.moved)), count=numbers)
        return Sequential(events=(run, drawn))

    def to_record(self) -> dict[str, Any]:
        """The session as plain values."""
        return {
            "thresholds": 1, "noise": to_record(self.noise), "moved": self.moved,
            "grain": str(self.grain),
            "number": None if self.number is None else to_record(self.number),
        }  # fmt: skip

    def question(self, name: str) -> str:
        """Canonical text of a session with a name."""
        record = self.to_record() | {"name": name}
        return json.dumps(record, sort_keys=True, separators=(",", ":"), ensure_ascii=False)

    def require(self, query: Query) -> int:
        """How many grains of the session one of the query is; refuses what has no claim here."""
        tally = query.tally
        plain = query.strategy is None and query.sample is None and isinstance(tally, Sums)
        if not plain or not isinstance(tally, Sums) or len(tally.terms) != 1 or tally.cells != 1:
            raise Unsupported(
                "A threshold question is one count or sum, without groups.",
                fix="Ask for COUNT(*), COUNT(DISTINCT unit) or SUM(column), with WHERE.",
                about="threshold",
            )
        times = tally.terms[0].grain / self.grain
        if times.denominator != 1:
            raise Unsupported(
                f"This sum is counted in steps of {tally.terms[0].grain}, the session in steps of "
                f"{self.grain}.",
                fix=f"Open the session with grain={tally.terms[0].grain}.",
                about="grain",
            )
        if self.noise.monotone and tally.terms[0].low < 0:
            raise Unsupported(
                "One more unit may lower this sum, and the session is for counts.",
                fix="Open the session with signed=True.",
                about="monotone",
            )
        if query.moved * times > self.moved:
            most = float(query.moved * tally.terms[0].grain)
            raise Unsupported(
                f"One unit may move this sum by {most:g}, more than the session's "
                f"{float(self.moved * self.grain):g}.",
                fix="Ask with smaller contribution bounds, or open it with a larger bound.",
                about="bound",
            )
        return int(times)


@final
@dataclass(frozen=True, slots=True)
class Heard:
    """One answer, in grains: ``gap`` is None where the sum does not reach the threshold."""

    gap: int | None
    number: int | None = None


@final
class Thresholds:
    """A session. Made by `open_thresholds`, closed when that is left. Threads may share it."""

    __slots__ = (
        "_curator", "_drawn", "_entry", "_kept", "_lock", "_run", "answer", "question",
        "request_id", "spec", "yeses",
    )  # fmt: skip

    def __init__(self, curator: Curator, spec: ThresholdSpec, entry: Reservation) -> None:
        self._curator, self.spec = curator, spec
        self.question, self.request_id = entry.question, entry.request_id
        self._entry: Reservation | None = entry if entry.answer is None else None
        self.answer, self._kept = entry.answer, b""  # what it ended with before; what to keep of it
        self._lock, self._drawn, self.yeses = Lock(), 0, 0
        self._run: SparseRun | None = None

    def __copy__(self) -> "Thresholds":
        raise RequestConflict("A session cannot be copied.", fix="Use the one that was opened.")

    def __reduce__(self) -> str:
        raise RequestConflict("A session cannot leave its process.", fix="Use the opened one.")

    def used(self) -> Event:
        """What was drawn so far, as one event."""
        return NothingEvent() if self._run is None else self.spec.used(self._drawn)

    def ask(self, query: Query) -> Heard:
        """Whether a sum reaches the threshold, by how much, and the sum itself if that is paid."""
        times = require_question(self._curator, self.spec, query)
        with self._lock:
            self._require_open()
            bits = self._curator._bits  # noqa: SLF001 - same room
            if self._run is None:
                self._run = self.spec.noise.start(bits=bits)
            if self._run.is_over:
                raise RequestConflict(
                    "The session has given its last yes.", fix="Open a new one.", about="over"
                )
            source = self._curator._source  # noqa: SLF001 - same room
            (row,) = quietly(lambda: source.sums(query.tally))  # type: ignore[arg-type]
            limit = INPUT_MAX // times
            exact = np.clip(np.asarray(row, np.int64), -limit, limit) * times
            (gap,) = self._run.gaps(exact).tolist()
            if gap < 0:
                return Heard(None)
            self.yeses += 1
            if self.spec.number is None:
                return Heard(gap)
            self._drawn += 1
            (number,) = self.spec.number.sample(exact, bits=bits).tolist()
            self._require_open()  # a child that was forked amid the draw has drawn once more
            return Heard(gap, number)

    def finish(self, kept: bytes) -> None:
        """Hand over what was released, to be stored when the session closes."""
        with self._lock:
            self._require_open()
            self._kept = kept

    def close(self) -> None:
        """Give back numbers that were not drawn; once, and in its own process."""
        with self._lock:
            entry, self._entry = self._entry, None
        if entry is not None and entry.process == lineage():
            entry.close(self.used(), self._kept)

    def _require_open(self) -> None:
        if self._entry is None or self._entry.process != lineage():
            raise RequestConflict(
                "The session is closed, or belongs to another process.", fix="Open a new one."
            )


def require_question(curator: Curator, spec: ThresholdSpec, query: Query) -> int:
    """How many grains of a session one of a question is; refuses what `Thresholds.ask` would."""
    times = spec.require(query)
    noise = spec.number or Geometric(scale=spec.noise.query_scale)
    curator._require_own(Measurement(query=query, mechanisms=(noise,)))  # noqa: SLF001 - same room
    return times


@contextmanager
def open_thresholds(
    curator: Curator, spec: ThresholdSpec, *, name: str, request_id: str
) -> Iterator[Thresholds]:
    """Pay for a session and open it. ``name`` says what it is for, ``request_id`` is a new one.

    One that was finished before under this request has its ``answer``, at no charge.
    """
    if type(spec) is not ThresholdSpec:
        raise Unsupported("This is not a session.", fix="Make one with `ThresholdSpec`.")
    curator.require_allowed({"many"})
    entry = curator._reserve(  # noqa: SLF001 - same room
        curator._own_id(f"thresholds {request_id}"),  # noqa: SLF001
        question=spec.question(name),
        event=spec.event(),
        kind="allowance",
    )
    if entry.answer == b"":
        raise RequestConflict(
            "This session has ended.", fix="Open one with a new request id.", about="over"
        )
    session = Thresholds(curator, spec, entry)
    try:
        yield session
    finally:
        session.close()
