"""A job: an order that was read and checked. Nothing about it is left to be refused but its price.

`Measured` is one measurement at the door; `AdaptiveJob` asks many adaptive questions within one
allowance. A kind of release says what it asks and what it makes of the answers; how a job is
planned, found, paid for and kept is written once, in `Desk`. A recipe is drawn once: found by its
question, or begun as the next attempt at it.

    attempts = Attempts(curator, question)   # the canonical text of what is released, price and all
    found = attempts.found()                 # (request id, bytes), whoever made it; free
    with attempts.begin(event, fresh=fresh) as allowed:
        …                                    # ask through allowed.whole
        allowed.finish(stored)               # what `found` gives from then on
        allowed.request_id                   # for cards

An attempt that was interrupted leaves its charge and no result. One that never came to an end may
be running elsewhere, so the next is refused unless it is asked for ``fresh``.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final, Generic, TypeAlias, TypeVar, final
from zipfile import BadZipFile

from noisegate.accounting.pure import promised
from noisegate.curator.curator import Asked, Curator
from noisegate.curator.measurement import digest
from noisegate.desk.based import NOTHING, Based
from noisegate.desk.plan import Expected
from noisegate.desk.terms.price import Price
from noisegate.errors import LedgerError, RequestConflict, SpecError
from noisegate.frozen import dataclass, replace
from noisegate.ledger.verify.anchor import Log
from noisegate.privacy import event as events
from noisegate.privacy.domain import TableDomain
from noisegate.privacy.event import Event
from noisegate.privacy.guarantee import Guarantee, guarantee_of
from noisegate.privacy.loss import ApproxDP
from noisegate.privacy.release import Release as Measurements

if TYPE_CHECKING:
    from noisegate.curator.allowance import Allowance

T = TypeVar("T")
_TAKEN: Final = 8  # names in a row that somebody else may have taken


@final
@dataclass(frozen=True, slots=True)
class Attempts:
    """The attempts at one question, in the ledger of a curator."""

    curator: Curator
    question: str

    def found(self) -> tuple[str, bytes] | None:
        """The request id and the bytes of a finished release; free, and reads no row."""
        return self.curator.ledger.find_recipe(self.question)

    @contextmanager
    def begin(
        self, event: Event, *, fresh: bool = False, uses: Collection[str] = ()
    ) -> "Iterator[Allowance]":
        """An allowance for the next attempt, closed when the block is left.

        Fresh ones of a named request are one attempt: tried again, it has its stored ``answer``.
        """

        def opened(name: str) -> "AbstractContextManager[Allowance]":
            return self.curator.allowance(event, question=self.question, request_id=name, uses=uses)

        with self.opening(opened, fresh=fresh) as allowed:
            yield allowed

    @contextmanager
    def opening(
        self, open_: "Callable[[str], AbstractContextManager[T]]", *, fresh: bool
    ) -> "Iterator[T]":
        """The same with whatever ``open_`` charges for and opens under a request's name."""
        curator = self.curator
        if fresh and curator.request is not None:
            with open_(f"release {digest(self.question)} {curator.request}") as allowed:
                yield allowed
            return
        begun, open_ones = curator.ledger.attempts(self.question, account=curator.account)
        if not fresh and self.found() is not None:  # since the caller looked
            raise RequestConflict(
                "This release was made in the meantime.", fix="Ask again: it is free.", about="made"
            )
        names = range(begun, begun + _TAKEN) if fresh or not open_ones else ()
        for number in names:
            name, opened = f"release {digest(self.question)} {number}", False
            try:
                with open_(name) as allowed:
                    opened = True
                    yield allowed
            except RequestConflict:
                if opened:
                    raise
                _, open_ones = curator.ledger.attempts(self.question, account=curator.account)
                if not fresh and open_ones:  # another process was faster
                    break
            else:
                return
        raise RequestConflict(
            "This release was started and has not finished.",
            fix="It may still be running elsewhere. If it was killed, release with fresh=True; "
            "what it reserved stays spent.",
            about="begun",
        )


C = TypeVar("C")
R = TypeVar("R")
S = TypeVar("S")
E = TypeVar("E", bound=Expected)
Progress: TypeAlias = Callable[[float, str], None]
_UNREAD = (ValueError, KeyError, TypeError, OSError, EOFError, BadZipFile)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn(Generic[C]):
    """What a job gave: from the ledger if it was drawn before, else drawn and charged now.

    ``used`` is what drawing it lost.
    """

    content: C
    used: Event
    question: str
    request_id: str
    free: bool


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """What a release cost and what is promised: every release carries these fields."""

    cost: ApproxDP
    remaining: ApproxDP
    guarantee: Guarantee
    question: str
    request_id: str
    practice: bool
    log: Log
    free: bool
    based: Based = NOTHING

    @property
    def standing(self) -> dict[str, Any]:
        """The fields of a `Charged` release, by name."""
        based = {"based": self.based} if self.based.questions else {}
        return {
            "cost": self.cost, "remaining": self.remaining, "guarantee": self.guarantee,
            "question": self.question, "request_id": self.request_id, "practice": self.practice,
            "log": self.log, **based,
        }  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Job(ABC, Generic[C, R, E]):
    """What is asked for ``epsilon``, and what is made of it.

    ``expected`` is what is known of the result before it is drawn; ``notes`` say what it leaves
    out; ``endings`` are the forms of file that it can be saved in. ``before`` is what has to be
    bought first, such as bounds that nobody declared, and ``paid`` what `ready` bought of it.
    ``based`` is what it rests on besides its own event, whoever paid for it.
    ``early`` is what is charged of the job if no group is found, where that is less. ``then`` makes
    another release from this one alone, which costs nothing more.
    ``uses`` are the optional capabilities that a policy may forbid.
    """

    kind: str
    sql: str
    epsilon: Fraction
    expected: E
    notes: tuple[str, ...] = ()
    endings: tuple[str, ...] = ()
    before: tuple[Event, ...] = ()
    paid: tuple[Event, ...] = ()
    based: Based = NOTHING
    early: Event | None = None
    then: Callable[[Any], Any] | None = None
    uses: frozenset[str] = frozenset()

    @property
    def capabilities(self) -> frozenset[str]:
        """The optional capabilities that it uses."""
        return self.uses

    @property
    @abstractmethod
    def event(self) -> Event:
        """What is about to happen; no row is read for it."""

    @property
    @abstractmethod
    def tables(self) -> Sequence[TableDomain]:
        """The tables that the guarantee speaks of."""

    def require_anew(self) -> None:
        """Refuse where what was drawn cannot be drawn anew."""

    def ready(self) -> "Job[C, R, E]":
        """The job after what comes ``before`` it was bought."""
        return self

    def is_paid(self, curator: Curator) -> bool:
        """Whether running it would charge nothing. Free, and reads no row."""
        return self.found(curator) is not None

    def found(self, curator: Curator) -> Drawn[C] | None:  # noqa: ARG002 - of those who look
        """What is in the ledger already, unless `drawn` finds it. Free, and reads no row."""
        return None

    @abstractmethod
    def drawn(self, curator: Curator, progress: Progress, *, fresh: bool) -> Drawn[C]:
        """Charge, then draw, then keep."""

    def promise(self, drawn: Drawn[C]) -> Event:
        """What may be promised of what was drawn, for those who have what it rests on."""
        return drawn.used

    def rests(self, drawn: Drawn[C]) -> Based:  # noqa: ARG002 - of those who know by then
        """What it rests on besides."""
        return self.based

    def guarantee(self, loss: ApproxDP) -> Guarantee:
        """The promise in words."""
        return guarantee_of(loss, self.tables)

    def is_simulated(self, event: Event, *first: Event) -> bool:
        """Whether what happened, and what was bought ``first``, was zero-knowledge as well."""
        return all(map(of_samples, (event, *first)))

    @abstractmethod
    def result(self, content: C, receipt: Receipt) -> R:
        """The release."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured(Job[Measurements, R, E]):
    """One measurement: found by its question, else measured."""

    measurement: Asked

    @property
    def capabilities(self) -> frozenset[str]:  # noqa: D102 - see Job
        return self.measurement.capabilities

    @property
    def event(self) -> Event:  # noqa: D102 - see Job
        return self.measurement.event()

    @property
    def tables(self) -> Sequence[TableDomain]:  # noqa: D102 - see Job
        return self.measurement.query.tables

    def found(self, curator: Curator) -> Drawn[Measurements] | None:  # noqa: D102 - see Job
        stored = curator.find(self.measurement)
        return None if stored is None else drawn_of(stored)

    def drawn(self, curator: Curator, progress: Progress, *, fresh: bool) -> Drawn[Measurements]:  # noqa: D102 - see Job
        progress(0.0, "measuring")
        request = curator.fresh_id() if fresh else None
        return drawn_of(curator.measure(self.measurement, request_id=request))


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptiveJob(Job[C, R, E]):
    """Adaptive questions within one allowance: found by its canonical text, else drawn once.

    ``question`` is that text: two recipes with one text are one release.
    """

    price: Price
    question: str

    @property
    def event(self) -> Event:  # noqa: D102 - see Job
        return self.price.event()

    @abstractmethod
    def draw(self, allowed: "Allowance", progress: Progress) -> bytes:
        """Ask through the allowance; what is to be kept."""

    @abstractmethod
    def read(self, stored: bytes) -> tuple[C, Event]:
        """What was kept, and what was used of the price."""

    def found(self, curator: Curator) -> Drawn[C] | None:  # noqa: D102 - see Job
        kept = Attempts(curator, self.question).found()
        return None if kept is None else self._drawn(*kept, free=True)

    def drawn(self, curator: Curator, progress: Progress, *, fresh: bool) -> Drawn[C]:  # noqa: D102 - see Job
        attempts = Attempts(curator, self.question)
        with attempts.begin(self.event, fresh=fresh, uses=self.capabilities) as allowed:
            if allowed.answer is not None:
                return self._drawn(allowed.request_id, allowed.answer, free=True)
            progress(0.0, "measuring")
            stored = self.draw(allowed, progress)
            allowed.finish(stored)
        return self._drawn(allowed.request_id, stored, free=False)

    def promise(self, drawn: Drawn[C]) -> Event:  # noqa: D102 - see Job
        return promised(drawn.used, self.event)

    def _drawn(self, request_id: str, stored: bytes, *, free: bool) -> Drawn[C]:
        try:
            content, used = self.read(stored)
        except _UNREAD:
            raise LedgerError(
                "The stored release cannot be read.",
                fix="Release it again with fresh=True.",
                about="stored",
            ) from None
        return Drawn(
            content=content, used=used, question=self.question, request_id=request_id, free=free
        )


def require_progress(progress: object) -> None:
    """Refuse what cannot be told how far a job has come."""
    if progress is not None and not callable(progress):
        raise SpecError(
            "progress is not callable.", fix="Give a function of a fraction and a text."
        )


def derived(
    kind: str, job: Job[C, R, E], make: Callable[[R], S], endings: tuple[str, ...]
) -> Job[C, S, E]:
    """The job whose release ``make`` makes of that of ``job``."""
    return replace(job, kind=kind, endings=endings, then=make)  # type: ignore[return-value]


def of_samples(event: Event) -> bool:
    """Whether all that happened was on secret samples, so that it is zero-knowledge as well.

    Claim: whoever sees it could have made nearly the same, up to the (ε, δ) of the guarantee, from
        samples of the other units alone, drawn as the release drew its own. Adjacency: add/remove.
    Why: a mechanism M on a secret sample S(D), each unit by its own coin, is within (ε, δ) of M on
        S(D without the unit). Whoever is given S(D without the unit) can run M on it, whatever else
        is known: that is the simulator [GLP11], [GHLP12]. Several fresh samples give it several.
        With larger numbers it holds all the more, so also for changing one unit.
    """
    if isinstance(event, events.Sequential | events.Parallel):
        return bool(event.events) and all(map(of_samples, event.events))
    if isinstance(event, events.Repeated | events.Group):
        return of_samples(event.event)
    return isinstance(event, events.CrowdCountsEvent | events.PoissonSampled)


def all_of(several: Sequence[Event]) -> Event:
    """Several events as one."""
    if not several:
        return events.NothingEvent()
    return several[0] if len(several) == 1 else events.Sequential(events=tuple(several))


def require_room(curator: Curator, event: Event) -> None:
    """Refuse what would not fit now; who only finds pays nothing, and needs no room."""
    if not curator.finding:
        curator.ledger.require_room(curator.paying(event), account=curator.account)


def drawn_of(release: Measurements) -> Drawn[Measurements]:
    """A measurement as a job has it."""
    return Drawn(
        content=release, used=release.event, question=release.question,
        request_id=release.request_id, free=release.free,
    )  # fmt: skip
