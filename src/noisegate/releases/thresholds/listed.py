"""A list of threshold questions given at once: an order, which can be sent, kept and found again.

It is a session of `curator/thresholds.py` whose questions are known before it opens: all of them
are checked before the charge, then asked in turn until the last yes that is paid for.
"""

import json
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, ClassVar, Final, TypedDict, final

from noisegate.curator.curator import Curator
from noisegate.curator.measurement import digest
from noisegate.curator.thresholds import Heard, Thresholds, open_thresholds, require_question
from noisegate.desk.answer import Answer
from noisegate.desk.desk import Desk
from noisegate.desk.job import Attempts, Drawn, Job, Progress, Receipt
from noisegate.desk.order import JobOrder
from noisegate.errors import LedgerError, SpecError
from noisegate.exact import Number
from noisegate.frozen import dataclass
from noisegate.ledger.ledger import Ledger
from noisegate.privacy.domain import TableDomain
from noisegate.privacy.event import Event
from noisegate.privacy.guarantee import Guarantee, guarantee_of
from noisegate.privacy.loss import ApproxDP
from noisegate.releases.thresholds import session

_QUESTIONS_MAX: Final = 10_000
_SINCE: Final = "2026-11-20"  # where ρ adds up, ledgers that began later split it alone


class ThresholdsTerms(TypedDict, total=False):
    """What is said of a list of threshold questions; see `ThresholdsOrder`."""

    count: int
    epsilon: Number | None
    values: bool
    bound: Number
    grain: Number | None
    signed: bool
    rows_per_unit: int | None


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ThresholdsOrder(JobOrder[Answer, session.ThresholdExpected]):
    """Which of a list of counts and sums reach a threshold; only the few yeses are paid for.

    Attributes:
        threshold: What sums are compared with, in their units.
        questions: A COUNT or SUM each, in SQL, without groups; asked in this order.
        count: How many yeses are paid for; after that many, the rest is not answered.
        epsilon: The price of all of it.
        values: Release the sum of each yes too, with fresh noise, for half of the price.
        bound: The most that one unit may move any of the sums.
        grain: What sums are whole multiples of; by default 1, and 2**-20 on tables with units.
        signed: Also sums that one more unit may lower; noise for a yes is then twice as wide.
        rows_per_unit: Contribution bound: how many rows of one unit count.
    """

    kind: ClassVar[str] = "thresholds"
    threshold: Number
    questions: Sequence[str]
    count: int = 1
    epsilon: Number | None = None
    values: bool = False
    bound: Number = 1
    grain: Number | None = None
    signed: bool = False
    rows_per_unit: int | None = None

    def made(self, desk: Desk, *, fresh: bool) -> Job[Any, Answer, session.ThresholdExpected]:
        """The job; or, where that was paid for, with values for half of the ε instead of the ρ."""
        job = JobOrder.made(self, desk, fresh=fresh)
        later = not (desk.rho and self.values) or desk.read_as(Ledger.begun) >= _SINCE
        if fresh or later or job.is_paid(desk.curator):
            return job
        former = self.job(desk, rho=False)
        return former if former.is_paid(desk.curator) else job

    def job(self, desk: Desk, *, rho: bool | None = None) -> "ListedJob":
        """The session that it asks for, all questions read and checked."""
        if not 0 < len(self.questions) <= _QUESTIONS_MAX:
            raise SpecError(
                "There is nothing to compare, or too much.",
                fix=f"List 1 to {_QUESTIONS_MAX:,} questions.",
                about="questions",
            )
        expected = session.expected_of(desk, session.ThresholdAsked(
            threshold=self.threshold, count=self.count, epsilon=self.epsilon, values=self.values,
            bound=self.bound, grain=self.grain, signed=self.signed, questions=len(self.questions),
        ), rho=rho)  # fmt: skip
        read = [session.question_of(desk, sql, self.rows_per_unit) for sql in self.questions]
        for each in read:
            require_question(desk.curator, expected.spec, each.query)
        desk.rules.require_price(asked := desk.asked(expected.epsilon))
        return ListedJob(
            kind=self.kind, sql="; ".join(self.questions), epsilon=asked, expected=expected,
            notes=session.GIVEN_BACK if self.values else (), uses=frozenset({"many"}),
            asked=tuple(read),
        )  # fmt: skip


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ListedJob(Job[tuple[Heard, ...], Answer, session.ThresholdExpected]):
    """A session with a list of questions."""

    asked: tuple[session.ThresholdQuestion, ...]

    @property
    def event(self) -> Event:  # noqa: D102 - see Job
        return self.expected.spec.event()

    @property
    def tables(self) -> Sequence[TableDomain]:  # noqa: D102 - see Job
        return tuple({table.name: table for each in self.asked for table in each.query.tables}
                     .values())  # fmt: skip

    @property
    def _name(self) -> str:
        records = [each.query.whole_record() for each in self.asked]
        return f"listed {digest(json.dumps(records, sort_keys=True))}"

    def _attempts(self, curator: Curator) -> Attempts:
        return Attempts(curator, self.expected.spec.question(self._name))

    def found(self, curator: Curator) -> Drawn[tuple[Heard, ...]] | None:  # noqa: D102 - see Job
        attempts = self._attempts(curator)
        kept = attempts.found()
        return None if kept is None else self._drawn(attempts.question, *kept, free=True)

    def drawn(  # noqa: D102 - see Job
        self, curator: Curator, progress: Progress, *, fresh: bool
    ) -> Drawn[tuple[Heard, ...]]:
        attempts, spec, name = self._attempts(curator), self.expected.spec, self._name

        def opened(request: str) -> AbstractContextManager[Thresholds]:
            return open_thresholds(curator, spec, name=name, request_id=request)

        with attempts.opening(opened, fresh=fresh) as door:
            if door.answer is not None:
                return self._drawn(attempts.question, door.request_id, door.answer, free=True)
            heard: list[Heard] = []
            for place, each in enumerate(self.asked):
                if door.yeses < spec.noise.cutoff:
                    progress(place / len(self.asked), "comparing")
                    heard.append(door.ask(each.query))
            kept = json.dumps([[each.gap, each.number] for each in heard]).encode()
            door.finish(kept)
        return self._drawn(attempts.question, door.request_id, kept, free=False)

    def _drawn(
        self, question: str, request_id: str, kept: bytes, *, free: bool
    ) -> Drawn[tuple[Heard, ...]]:
        try:
            heard = tuple(Heard(*each) for each in json.loads(kept))
        except (ValueError, TypeError):
            raise LedgerError(
                "The stored answers cannot be read.", fix="Ask again with fresh=True.",
                about="stored",
            ) from None  # fmt: skip
        numbers = sum(each.number is not None for each in heard)
        return Drawn(
            content=heard, used=self.expected.spec.used(numbers), question=question,
            request_id=request_id, free=free,
        )  # fmt: skip

    def guarantee(self, loss: ApproxDP) -> Guarantee:  # noqa: D102 - see Job
        return guarantee_of(loss, self.tables, "these answers about")

    def result(self, content: tuple[Heard, ...], receipt: Receipt) -> Answer:  # noqa: D102 - see Job
        made = [
            self.expected.told(asked, heard, place)
            for place, (asked, heard) in enumerate(zip(self.asked, content, strict=False), start=1)
        ]
        return session.answer_of(self.expected, made, receipt, more=self._unanswered(len(content)))

    def _unanswered(self, heard: int) -> tuple[str, ...]:
        left = len(self.asked) - heard
        ended = f"It ended with the last yes that was paid for: {left:,} questions are unanswered."
        return (*self.notes, ended) if left else self.notes
