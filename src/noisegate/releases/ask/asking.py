"""How a recipe asks: rounds of whole-number questions about cells, each for a share of its price.

A recipe sees the cells through `Ask` alone, so whatever it computes is private; a mistake in it
costs accuracy, never privacy.

A contribution bound that nobody declared is estimated first, for a share of the release's price.

As in SQL: a count of the same rows looks how many rows units have. The bound that errs least is
taken, for the questions of the release: its noise grows with the bound, and as nothing is raised by
what the bound loses, all of that is an error. The look is bought once, whatever is released of
these rows for the same price.
"""

from collections.abc import Callable, Sequence
from fractions import Fraction
from math import hypot, prod
from typing import Any, Final, Protocol, final

import numpy as np
from numpy.typing import NDArray

from noisegate.accounting.search import digits_down
from noisegate.curator.allowance import Scope
from noisegate.curator.curator import Curator
from noisegate.curator.measurement import Measurement
from noisegate.desk.based import Based
from noisegate.desk.desk import Desk
from noisegate.desk.job import Drawn, E, Job, Progress, R, Receipt
from noisegate.desk.terms.price import Price, require_shares, variance_of
from noisegate.desk.terms.terms import Terms
from noisegate.errors import Unsupported
from noisegate.exact import Number
from noisegate.frozen import dataclass, replace
from noisegate.ledger.ledger import Ledger
from noisegate.mechanisms.base import Mechanism
from noisegate.privacy.distance import L1, L2
from noisegate.privacy.domain import TableDomain
from noisegate.privacy.event import Event
from noisegate.sql.estimates.profiles import STEPS
from noisegate.sql.estimates.tails import DIFFER
from noisegate.sql.job import QuestionJob, question_job
from noisegate.transforms.query import Query
from noisegate.transforms.strategy import Block, Groups, Strategy

_KEPT: Final = 4  # questions that are asked again in every round


@final
@dataclass(frozen=True, slots=True)
class Noisy:
    """Numbers with independent noise of one variance."""

    values: NDArray[np.int64]
    variance: float


@final
@dataclass(frozen=True, slots=True)
class Moved:
    """The part of a query that prices look at."""

    l1s: tuple[L1, ...]
    l2s: tuple[L2, ...]


def one_sum(shape: tuple[int, ...]) -> Groups:
    """The sum of all cells, as a question."""
    return Groups(np.zeros(prod(shape), np.int32), 1)


def each_cell(shape: tuple[int, ...]) -> Groups:
    """All cells, each by itself."""
    return Groups(np.arange(prod(shape), dtype=np.int32), prod(shape))


class Ask(Protocol):
    """What a recipe is given. Shares are of its whole price; about no cell they exceed 1 together.

    Blocks about different cells stand beside each other: what counts is what each cell was asked.
    One unit moves all cells together by at most ``moved``: a public number.
    """

    shape: tuple[int, ...]
    gaussian: bool
    moved: Fraction

    def sums(self, blocks: Sequence[Block], shares: Sequence[Fraction]) -> list[Noisy]:
        """All blocks in one pass over the rows, each with the noise that its share buys."""

    def choose(
        self, mechanism_of: Callable[[Fraction], Mechanism[L1]], share: Fraction
    ) -> NDArray[np.int64]:
        """What a mechanism chooses by the cells, made for the ε that the share buys per step of 1.

        A unit that may move the cells by s in all has s such steps, each at an s-th of the ε.
        """

    def furthest(self, block: Block, guesses: NDArray[np.int64], share: Fraction) -> int:
        """A question of the block whose guess is nearly the furthest off: exponential choice."""

    def variance(self, block: Block, share: Fraction) -> float:
        """The variance that `sums` would have: free."""

    def done(self, part: float, words: str) -> None:
        """Say how far the recipe has come."""


@final
class DoorAsk:
    """Asks through the door, within an allowance."""

    def __init__(
        self,
        scope: Scope,
        cells: Query,
        price: Price,
        *,
        shape: tuple[int, ...],
        progress: Callable[[float, str], None] | None = None,
    ) -> None:
        self._scope, self._cells, self._price, self._progress = scope, cells, price, progress
        self.shape, self.gaussian, self.moved = shape, price.gaussian, cells.moved
        self._asked: list[tuple[tuple[Block, ...], Query]] = []

    def sums(self, blocks: Sequence[Block], shares: Sequence[Fraction]) -> list[Noisy]:  # noqa: D102 - see Ask
        query = self._query(blocks)
        noises = self._price.noise(query, require_shares(shares))
        release = self._scope.measure(Measurement(query=query, mechanisms=noises))
        ends = np.cumsum([block.size for block in blocks])[:-1]
        parts = np.split(release.values[0], ends)
        return [Noisy(p, variance_of(noise)) for p, noise in zip(parts, noises, strict=True)]

    def choose(  # noqa: D102 - see Ask
        self, mechanism_of: Callable[[Fraction], Mechanism[L1]], share: Fraction
    ) -> NDArray[np.int64]:
        (exact,) = require_shares([share])
        mechanism = self._price.choice(mechanism_of, exact, self._cells.l1s[0])
        release = self._scope.measure(Measurement(query=self._cells, mechanisms=(mechanism,)))
        chosen: NDArray[np.int64] = release.values[0]
        return chosen

    def furthest(self, block: Block, guesses: NDArray[np.int64], share: Fraction) -> int:  # noqa: D102
        query, strategy = self._query([block]), Strategy(block.cells, (block,))
        choice = self._price.furthest(guesses, share, query.moved * strategy.reaches[0])
        release = self._scope.measure(Measurement(query=query, mechanisms=(choice,)))
        return int(release.values[0, 0])

    def variance(self, block: Block, share: Fraction) -> float:  # noqa: D102 - see Ask
        (noise,) = self._price.noise(self._query([block]), require_shares([share]))
        return variance_of(noise)

    def done(self, part: float, words: str) -> None:  # noqa: D102 - see Ask
        if self._progress is not None:
            self._progress(part, words)

    def _query(self, blocks: Sequence[Block]) -> Query:
        """The question about some blocks; that of the same blocks again is the same object."""
        asked = tuple(blocks)
        for known, query in self._asked:
            if list(map(id, known)) == list(map(id, asked)):
                return query
        made = Query(self._cells.tally, Strategy(int(np.prod(self.shape)), asked))
        self._asked = [(asked, made), *self._asked[: _KEPT - 1]]
        return made


_DIGITS: Final = 6  # of what is left of an ε: both together are no more than was said
_BLIND: Final = (
    "The estimate of the contribution bound shows no unit, since its noise hides as many as there "
    "are: numbers may be far too low."
)
_SINCE: Final = "2026-11-20"  # ledgers that began later hold no bounds that suit one total alone
_UNSEEN: Final = "Errors are shown for a contribution bound of 1 row, and grow with it."


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class CappedJob(Job[Any, R, E]):
    """A job whose contribution bound ``look`` estimates; ``guess`` is that with a bound of 1."""

    look: QuestionJob
    guess: Job[Any, R, E]
    make: Callable[[QuestionJob], Job[Any, R, E]]

    @property
    def capabilities(self) -> frozenset[str]:  # noqa: D102 - see Job
        return self.guess.capabilities

    @property
    def event(self) -> Event:  # noqa: D102 - see Job
        return self.guess.event

    @property
    def tables(self) -> Sequence[TableDomain]:  # noqa: D102 - see Job
        return self.guess.tables

    def require_anew(self) -> None:  # noqa: D102 - see Job
        self.guess.require_anew()

    def ready(self) -> Job[Any, R, E]:
        """The job with the bound that was found."""
        done = self.look.ready()
        paid = tuple(each.event for each in done.looked if not each.free)
        return replace(self.make(done), paid=paid)

    def is_paid(self, curator: Curator) -> bool:  # noqa: ARG002 - its look is missing
        """Never: what `ready` gives may be."""
        return False

    def drawn(self, curator: Curator, progress: Progress, *, fresh: bool) -> Drawn[Any]:
        """As `ready` gives it."""
        return self.ready().drawn(curator, progress, fresh=fresh)

    def result(self, content: object, receipt: Receipt) -> R:
        """Likewise."""
        return self.ready().result(content, receipt)


def capped(
    desk: Desk,
    sql: str,
    epsilon: Number | None,
    made: Callable[[int, Number], Job[Any, R, E]],
    *,
    asked: str | None,
    shares: bool,
) -> Job[Any, R, E] | None:
    """What ``made`` makes of a bound and of what is left of ε; None where none is estimated.

    ``sql`` counts the rows; if that is what was ``asked``, with its groups, then looks see norms
    over groups where ρ adds up, which tell no bound on rows. ``shares``: see `_best`. What was
    paid for when the bound was that of the question ``sql`` or ``asked`` is found.
    """
    if asked not in (None, sql) and desk.read_as(Ledger.begun) < _SINCE:
        former = capped(desk, asked or sql, epsilon, made, asked=asked, shares=shares)
        if former is not None and former.is_paid(desk.curator):
            return former
    whole = sql != asked or desk.accountant == "pure"
    terms = Terms(epsilon=None if epsilon is None else desk.epsilon(epsilon))
    try:
        look = question_job(desk, sql, terms)
    except Unsupported:  # such as bins of half a unit, which only releases have
        return None
    said = look.asked.said
    if said is None or not any(each.counted is not None for each in look.asked.looks):
        return None

    def make(known: QuestionJob) -> Job[Any, R, E]:
        caps = [each["rows_per_unit"] for each in known.asked.chosen.caps.values()]
        left = known.asked.terms.epsilon
        assert left is not None  # noqa: S101 - the question has a price
        price = digits_down(desk.asked(left), _DIGITS)
        words, bound = known.asked.chosen.words, max(caps)
        job = made(bound, price)
        best = _best(known, bound, job.expected, shares=shares) if whole else bound
        since = desk.read_as(Ledger.begun) >= _SINCE
        if best != bound and (since or not job.is_paid(desk.curator)):
            job = made(best, price)
            shown = f"as estimated: {bound}", f"as estimated: {best}"
            words = tuple(each.replace(*shown) for each in words)
        found = [each for part in known.asked.chosen.profiles.values() for each in part]
        blind = (_BLIND,) if any(each.is_blind for each in found) else ()
        words = (*words, *blind)
        notes = (*words, *job.notes)
        based = Based.on(known.asked.seen, words)
        return replace(job, epsilon=said, notes=tuple(dict.fromkeys(notes)), based=based)

    job = make(look)
    if not look.asked.missing:
        return job
    notes = (*job.notes, _UNSEEN)
    return CappedJob(
        kind=job.kind, sql=job.sql, epsilon=said, expected=job.expected, notes=notes,
        endings=job.endings, before=tuple(look.asked.unpaid.values()), look=look, guess=job,
        make=make, uses=job.uses,
    )  # fmt: skip


def _best(known: QuestionJob, asked: int, expected: Any, *, shares: bool) -> int:  # noqa: ANN401 - of any job
    """The bound with the least error of a question of the release; ``asked`` where none is known.

    ``expected`` is that of a release with the bound ``asked``. With ``shares`` numbers are parts of
    the rows that count, and what large units have differs from that of others by so much.
    """
    found = [each for part in known.asked.chosen.profiles.values() for each in part]
    noise = next(
        (each for name in ("rms", "noise", "most") if (each := getattr(expected, name, None))), None
    )
    rows = [each for each in found if each.part == 1 and not (each.people or each.sums)]
    if noise is None or len(found) != 1 or rows != found or found[0].is_blind:
        return asked

    def error(cap: int) -> float:
        loss, random = found[0].loss(cap), noise * cap / asked
        if shares:
            return hypot(random / loss.kept, DIFFER * loss.lost / (loss.kept + loss.lost))
        return hypot(random, expected.covered * loss.lost)

    return min(STEPS, key=error)
