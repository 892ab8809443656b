"""A contribution bound that nobody declared: estimated first, for a share of the release's price.

As in SQL: a count of the same rows looks how many rows units have, and the bound that errs least is
taken. The look is bought once, whatever is released of these rows for the same price.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, final

from noisegate.accounting.search import digits_down
from noisegate.curator.curator import Curator
from noisegate.desk.based import Based
from noisegate.desk.desk import Desk
from noisegate.desk.job import Drawn, E, Job, Progress, R, Receipt
from noisegate.desk.terms.terms import Terms
from noisegate.exact import Number
from noisegate.privacy.domain import TableDomain
from noisegate.privacy.event import Event
from noisegate.sql.job import QuestionJob, question_job

_DIGITS: Final = 6  # of what is left of an ε: both together are no more than was said
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
) -> Job[Any, R, E] | None:
    """What ``made`` makes of a bound and of what is left of ε; None where none is estimated."""
    terms = Terms(epsilon=None if epsilon is None else desk.epsilon(epsilon))
    look = question_job(desk, sql, terms)
    said = look.asked.said
    if said is None or not any(each.counted is not None for each in look.asked.looks):
        return None

    def make(known: QuestionJob) -> Job[Any, R, E]:
        caps = [each["rows_per_unit"] for each in known.asked.chosen.caps.values()]
        left = known.asked.terms.epsilon
        assert left is not None  # noqa: S101 - the question has a price
        job = made(max(caps), digits_down(desk.asked(left), _DIGITS))
        notes = (*known.asked.chosen.words, *job.notes)
        based = Based.on(known.asked.seen, known.asked.chosen.words)
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
