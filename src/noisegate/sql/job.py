"""A question as a job: several measurements, of which the ledger may have some.

read       SQL becomes private blocks and free SQL; numbers that rows are compared with come first
ask        terms are agreed; bounds and caps that nobody declared are to be found
order      each block is bought: noise for its price, less what was released before
rehearse   the free SQL is tried on made-up numbers
ready      buy what comes first, and order again with what it showed
draw       measure what is missing
answer     estimate, and run the free SQL
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from fractions import Fraction
from typing import Any, Final, final

import pyarrow as pa

from noisegate.algebra.expression import Expression
from noisegate.curator.curator import Curator
from noisegate.desk.answer import Answer
from noisegate.desk.based import Based
from noisegate.desk.desk import Desk
from noisegate.desk.display.numbers import CHOSEN
from noisegate.desk.job import Drawn, Job, Progress, Receipt, all_of, require_room
from noisegate.desk.terms.price import together
from noisegate.desk.terms.terms import USUAL, Terms
from noisegate.errors import NoisegateError, OverBudget, Unsupported
from noisegate.frozen import dataclass, replace
from noisegate.ledger.ledger import Ledger
from noisegate.privacy.domain import TableDomain
from noisegate.privacy.event import Event, NothingEvent
from noisegate.privacy.guarantee import Guarantee, names_of, units_of
from noisegate.privacy.loss import ApproxDP
from noisegate.privacy.release import Release
from noisegate.sql.estimates.accuracy import Goal
from noisegate.sql.outer.engine import run_outer
from noisegate.sql.plan import AnswerExpected, AnswerPlan
from noisegate.sql.question import Question, sampled
from noisegate.sql.reaching import MOST, alone, goal_of, least, require_foreseen, require_reached
from noisegate.sql.reading.clock import Clock
from noisegate.sql.reading.reader import read
from noisegate.sql.reuse.released import Guess
from noisegate.sql.reuse.shelf import Shelf
from noisegate.sql.steps.asked import (
    Asked,
    First,
    Reading,
    after_paying,
    agreed_of,
    asked_of,
    number_of,
)
from noisegate.sql.steps.formerly import Formerly, former_ways
from noisegate.sql.steps.ordered import BlockOrder, Parcel, fetched, orders_of
from noisegate.sql.steps.shown import Expectation, public_tables, rehearsed, shown_of
from noisegate.transforms.stability import stability_of

PARTLY: Final = (
    "A part was measured before; it is paid for, and free from now on. Ask for less, or ask the "
    "steward to raise the budget."
)


_READ_MAX: Final = 256


@final
class _Read:
    """Questions by their SQL, for one desk, whose tables and rules stay as they are."""

    def __init__(self, _: Ledger) -> None:
        self.questions: dict[str, Question] = {}


@final
@dataclass(frozen=True, slots=True)
class Collected:
    """What came back for a question: the plan that was paid, its blocks, and all releases used."""

    plan: AnswerPlan
    parcels: tuple[Parcel, ...]
    releases: tuple[Release, ...]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionJob(Job[Collected, Answer, AnswerExpected]):
    """A question in SQL, ordered as of now.

    ``wanted`` is what is still to be measured of its blocks, ``firsts`` are the jobs of numbers
    that come before, and ``looked`` are the looks that were bought for it.
    """

    kind: str = "answer"
    desk: Desk
    terms: Terms
    step: Fraction
    fresh: bool
    asked: Asked
    orders: tuple[BlockOrder, ...]
    wanted: Event
    firsts: "Mapping[str, QuestionJob]"
    looked: tuple[Release, ...] = ()
    goal: Goal | None = None  # an accuracy: what is before may show that less is enough

    @property
    def event(self) -> Event:
        """That of the blocks, as far as they are new."""
        return self.wanted

    @property
    def tables(self) -> Sequence[TableDomain]:
        """Those of the private blocks."""
        blocks = self.asked.question.blocks
        return [table for block in blocks for table in stability_of(block.relation).tables]

    def is_paid(self, curator: Curator) -> bool:  # noqa: ARG002 - as of when it was ordered
        """Whether all of it was released before, or is public."""
        return isinstance(self.expected.event, NothingEvent)

    def ready(self) -> "QuestionJob":
        """The same with numbers that were measured first, and bounds and caps that were found."""
        job, looked, curator = self, list[Release](), self.desk.curator
        for order in self.orders:  # as far as it is known: caps that are looked for may be others
            order.require_plan(curator)
        if self.firsts:
            known = {each.sql: each for each in self.asked.reading.firsts}
            for place, (sql, first) in enumerate(self.firsts.items()):
                now = first.again() if place else first  # others may have bought a part of it
                known[sql] = now.known(known[sql])
            try:
                moment = job.asked.reading.moment
                job = self.again(_reading(self.desk, self.sql, self.terms, known, moment))
            except Unsupported as refusal:
                raise after_paying(refusal) from None
        while job.asked.missing:
            ready = [look.measurement for look in job.asked.missing if not look.waits]
            for measurement in ready:
                curator.require_plan(measurement)
            looked += [curator.measure(measurement) for measurement in ready]
            job = job.again()
        if self.goal is not None:
            try:
                job = _within(job, self.goal)
            except Unsupported as refusal:
                fix = f"{refusal.fix} The estimate is paid for, and free from now on."
                raise Unsupported(refusal.problem, fix=fix, about=refusal.about) from None
        return replace(
            job, looked=tuple(looked), kind=self.kind, endings=self.endings, then=self.then
        )

    def again(self, reading: Reading | None = None, *, fresh: bool | None = None) -> "QuestionJob":
        """The question as of now, or ``fresh``; it was rehearsed before."""
        return _job(
            self.desk, reading or self.asked.reading, self.terms,
            fresh=self.fresh if fresh is None else fresh, schema=self.expected.schema,
        )  # fmt: skip

    def known(self, first: First) -> First:
        """The number that the question gives, measured now, or read off what is known."""
        curator, job = self.desk.curator, self.ready() if self.before else self
        found = job.drawn(curator, lambda *_: None, fresh=self.fresh).content
        table, margins, _ = shown_of(curator, job.asked.question, found.parcels)
        widths = margins.at(self.terms.confidence or USUAL)[0] if found.releases else None
        value, shown = number_of(table, widths)
        return replace(first, value=value, shown=shown, is_known=True, releases=found.releases)

    def drawn(self, curator: Curator, progress: Progress, *, fresh: bool) -> Drawn[Collected]:  # noqa: ARG002 - as ordered
        """Measure what is missing, if all of it fits; of EXPLAIN, nothing."""
        progress(0.0, "measuring")
        plan, firsts = self.desk.plan(self, fresh=self.fresh), self.asked.reading.firsts
        if self.asked.question.explain:
            return _drawn(plan, (), ())
        looked = [*(each for first in firsts for each in first.releases), *self.looked]
        measured = list(looked)
        try:
            if not plan.fits:
                require_room(curator, self.event)
            for order in self.orders:
                order.require_plan(curator)
            parcels = tuple(
                fetched(curator, order, measured, fresh=self.fresh) for order in self.orders
            )
        except OverBudget as refusal:  # others spent meanwhile, or prices differ by a rounding
            if all(release.free for release in measured):
                raise
            raise OverBudget(refusal.problem, fix=PARTLY, about="partly") from None
        paid = {release.request_id for release in looked}
        looked += [each for each in self.asked.seen if each.request_id not in paid]
        used = (each for parcel in parcels for each in parcel.releases)
        return _drawn(plan, parcels, (*looked, *used))

    def promise(self, drawn: Drawn[Collected]) -> Event:
        """What all releases but looks lost, whoever paid for them, each once."""
        return all_of(self.rests(drawn).besides(drawn.content.releases))

    def rests(self, drawn: Drawn[Collected]) -> Based:
        """The looks at bounds and caps that were used."""
        looks = {each.question for each in (*self.looked, *self.asked.seen)}
        looks |= {each.looked.question for each in self.orders if each.looked is not None}
        return Based.on(each for each in drawn.content.releases if each.question in looks)

    def guarantee(self, loss: ApproxDP) -> Guarantee:
        """About the answer."""
        used = self.tables
        unit, *others = units_of(used) or units_of(self.desk.curator.tables.values())
        scope = f"this answer about {names_of(used) or 'public rows only'}"
        return Guarantee(loss=loss, unit=unit, scope=scope, also=tuple(others))

    def result(self, content: Collected, receipt: Receipt) -> Answer:
        """The free SQL on what was released; of EXPLAIN, the plan as a table."""
        plan, releases, question = content.plan, content.releases, self.asked.question
        stated = {name: getattr(receipt, name) for name in ("cost", "remaining", "guarantee")}
        standing: dict[str, Any] = {"sql": self.sql, "plan": plan, **stated}
        if question.explain:
            table = plan.table(self.asked.terms.confidence or USUAL)
            return Answer(table=table, half_widths=lambda _: (None, None), **standing)
        table, margins, noise = shown_of(self.desk.curator, question, content.parcels)
        chosen = [CHOSEN] if margins.chosen else []
        hints = {hint: None for each in content.parcels for hint in each.hints(self.asked.terms)}
        return Answer(
            table=table, half_widths=margins.at, noise_widths=None if noise is None else noise.at,
            request_ids=tuple(dict.fromkeys(r.request_id for r in releases if r.request_id)),
            questions=tuple(dict.fromkeys(release.question for release in releases)),
            caveats=(*self.expected.clipping, *self.notes, *chosen, *hints),
            reused=self.expected.reused,
            practice=receipt.practice, log=receipt.log,
            unfollowed=margins.unknown if question.blocks else tuple, unsigned=margins.unsigned,
            amounts=margins.amounts, lower=margins.lower, **standing,
        )  # fmt: skip


def _drawn(
    plan: AnswerPlan, parcels: tuple[Parcel, ...], releases: tuple[Release, ...]
) -> Drawn[Collected]:
    paid = [release.event for release in releases if not release.free]
    content = Collected(plan, parcels, releases)
    return Drawn(
        content=content, used=all_of(paid), question=plan.sql, request_id="", free=not paid
    )


def question_job(desk: Desk, sql: str, terms: Terms, *, fresh: bool = False) -> QuestionJob:
    """What a question asks for; whatever is wrong with it is refused here, for nothing."""
    reading = _reading(desk, sql, terms, {}, desk.rules.moment or _now())
    agreed, firsts = agreed_of(desk.rules, terms, reading.question), bool(reading.firsts)
    goal = goal_of(agreed, reading.question, firsts=firsts)
    if goal is not None:
        terms = alone(agreed, desk.rules.epsilon_max)
    job = _known(desk, reading, terms, fresh=fresh)
    if goal is not None and not job.is_paid(desk.curator):
        require_foreseen(job.expected, goal, looked=bool(job.asked.looks))
        if job.before:
            one = replace(terms, rows_per_unit=1, groups_per_unit=1)
            schema, top = job.expected.schema, terms.epsilon or job.epsilon
            tried = _job(desk, reading, one, fresh=True, schema=schema)
            require_reached(tried.expected, goal, top)
            job = replace(job, goal=goal, notes=(*job.notes, MOST))
        else:
            job = _within(job, goal)
    if not job.asked.question.explain:
        return job
    early = None if job.early is None else all_of((*job.before, job.early))
    return replace(job, before=(), wanted=job.expected.event, early=early)


def _within(job: QuestionJob, goal: Goal) -> QuestionJob:
    """The question at the least price that is accurate enough, now that looks are paid for."""

    def made(epsilon: Fraction, *, fresh: bool) -> QuestionJob:
        terms = replace(job.terms, epsilon=epsilon, within=goal.within, relative=goal.relative)
        schema = job.expected.schema
        return _job(job.desk, job.asked.reading, terms, fresh=fresh, schema=schema)

    top = job.terms.epsilon or job.epsilon
    most = made(top, fresh=True)

    def expected(epsilon: Fraction) -> AnswerExpected | None:
        tried = made(epsilon, fresh=True)
        return tried.expected if _is_within(tried, most) else None

    return made(least(most.expected, top, goal, expected), fresh=job.fresh)


def _is_within(job: QuestionJob, most: QuestionJob) -> bool:
    """Whether no block costs more than it does at the most, and nothing else has to be found."""
    pairs = zip(job.orders, most.orders, strict=True)
    return not job.before and all(each.epsilon <= top.epsilon for each, top in pairs)


def _known(desk: Desk, reading: Reading, terms: Terms, *, fresh: bool) -> QuestionJob:
    """The job; in older ledgers the one that was paid for, with bounds and caps as they were."""
    job, blocks = _job(desk, reading, terms, fresh=fresh), reading.question.blocks
    if fresh or not blocks or job.is_paid(desk.curator):
        return job
    begun, looks = desk.read_as(Ledger.begun), bool(job.asked.looks)
    bounds = "bounds" in (terms.choose or ())
    for former in former_ways(reading, begun, looks=looks, bounds=bounds):
        with suppress(NoisegateError):
            other = _job(desk, former, terms, fresh=fresh)
            if other.is_paid(desk.curator):
                return other
    return job


def _now() -> datetime:
    """The moment, in UTC."""
    return datetime.now(UTC).replace(microsecond=0, tzinfo=None)


def _reading(
    desk: Desk, sql: str, terms: Terms, known: Mapping[str, First], moment: datetime
) -> Reading:
    """What the SQL asks at a moment, with numbers that are ``known``; others are made up."""
    firsts: dict[str, First] = {}

    def first(inner: str) -> Expression:
        made = firsts.get(inner) or known.get(inner)
        firsts[inner] = made or _made_up(desk, inner, terms, moment)
        return firsts[inner].value

    kept = desk.read_as(_Read).questions
    question = kept.get(sql)
    if question is None:
        looked: list[str] = []  # at public rows or the clock, which may be others next time
        question = _read(desk, sql, first, looked, moment)
        if not (looked or firsts):
            if len(kept) >= _READ_MAX:
                kept.clear()
            kept[sql] = question
    return Reading(sql=sql, question=question, moment=moment, firsts=tuple(firsts.values()))


def _read(
    desk: Desk,
    sql: str,
    first: Callable[[str], Expression],
    looked: list[str],
    moment: datetime,
) -> Question:
    """The question; ``looked`` is what else it was read with: public tables, the clock."""
    curator = desk.curator

    def public(table: str) -> pa.Table:
        looked.append(table)
        return curator.public(table)

    def value(constant: str) -> Any:  # noqa: ANN401 - whatever the engine gives
        looked.append(constant)
        return run_outer(f"SELECT {constant}", {}, {}).column(0)[0].as_py()

    clock = Clock(moment, value)
    question = read(sql, curator.tables, public, lines=True, first=first, clock=clock)
    question = sampled(question, desk.rules.sample)
    for block in question.blocks:
        keys = [key.expression for key in block.by]
        wheres = [each.where for each in block.aggregates if each.where is not None]
        args = [arg for each in block.aggregates for arg in each.args]
        curator.require_words(block.relation, [*keys, *args, *wheres])
    return question


def _made_up(desk: Desk, sql: str, terms: Terms, moment: datetime) -> First:
    """A number that the sub-query could give, whatever its price."""
    price = min(Fraction(1), desk.rules.epsilon_max or Fraction(1))
    tried = replace(terms, epsilon=price, within=None, relative=None)
    reading = _reading(desk, sql, tried, {}, moment)
    asked = asked_of(desk, reading, tried)
    shown = rehearsed(desk.curator, asked.question, orders_of(desk, asked, fresh=False))
    return First(reading=reading, value=number_of(shown)[0])


def _job(
    desk: Desk,
    reading: Reading,
    terms: Terms,
    *,
    fresh: bool,
    schema: pa.Schema | None = None,
) -> QuestionJob:
    """The question as of now; it is rehearsed unless that was done, and its ``schema`` known."""
    asked, firsts = _with_found(desk, asked_of(desk, reading, terms), terms, fresh=fresh)
    orders = orders_of(desk, asked, fresh=fresh or bool(firsts))
    if schema is None:
        schema = rehearsed(desk.curator, asked.question, orders).schema
    plans = tuple(desk.plan(each, fresh=fresh) for each in firsts.values())
    before = (*asked.unpaid.values(), *(each.expected.event for each in plans))
    wanted = early = _events(asked, orders, fresh=fresh, found=True)
    if any(order.keys for order in orders):
        early = _events(asked, orders, fresh=fresh, found=False)
    paying = [*asked.steps, *(each.epsilon for each in orders)]
    paying += [each.step for each in firsts.values()]
    expected = AnswerExpected(
        question=asked.question,
        bought=tuple(order.bought for order in orders),
        event=all_of((*before, *wanted)),
        error=_error(desk, asked, orders),
        reused=tuple(dict.fromkeys(each.words for o in orders for each in o.needed if each.words)),
        clipping=tuple(dict.fromkeys((*asked.chosen.words, *_clipped(asked, orders)))),
        schema=schema,
        firsts=plans,
    )
    return QuestionJob(
        sql=reading.sql, epsilon=desk.asked(*paying, said=asked.said),
        step=together(paying, rho=desk.rho), expected=expected,
        notes=expected.caveats, before=before, wanted=all_of(wanted),
        early=all_of(early) if early != wanted else None, desk=desk, terms=terms, fresh=fresh,
        asked=asked, orders=orders, firsts=firsts,
    )  # fmt: skip


def _with_found(
    desk: Desk, asked: Asked, terms: Terms, *, fresh: bool
) -> tuple[Asked, dict[str, QuestionJob]]:
    """The question with all numbers that cost nothing, and the jobs of the others."""
    firsts = {each.sql: each for each in asked.reading.firsts}
    jobs = {
        sql: _known(desk, each.reading, each.terms, fresh=fresh)
        for sql, each in firsts.items()
        if not each.is_known
    }
    free = {sql: job.known(firsts[sql]) for sql, job in jobs.items() if job.is_paid(desk.curator)}
    if free:
        moment = asked.reading.moment
        reading = _reading(desk, asked.reading.sql, terms, firsts | free, moment)
        asked = asked_of(desk, Formerly.of(asked.reading).read(reading), terms)
    return asked, {sql: job for sql, job in jobs.items() if sql not in free}


def _events(
    asked: Asked, orders: Sequence[BlockOrder], *, fresh: bool, found: bool
) -> tuple[Event, ...]:
    """What would be charged for the blocks, equal measurements once; see `BlockOrder.charges`."""
    blind, unpaid = {look.block.name for look in asked.missing}, asked.unpaid
    pairs = [pair for order in orders for pair in order.charges(blind, found=found)]
    if fresh:
        return tuple(event for _, event in pairs)
    return tuple(event for text, event in dict(pairs).items() if text not in unpaid)


def _clipped(asked: Asked, orders: Sequence[BlockOrder]) -> Iterator[str]:
    """What caps do to the numbers, where the caps are known."""
    blind = {look.block.name for look in asked.missing if look.counted is not None}
    for order in orders:
        if order.bought.draft.block.name not in blind:
            yield from order.clipping


def _error(desk: Desk, asked: Asked, orders: Sequence[BlockOrder]) -> Expectation:
    """How far the numbers may be off. For plans alone: no price looks at it."""
    guesses = tuple(
        Guess(
            bought=order.bought, needed=order.needed, caps=order.caps, shelf=desk.read_as(Shelf),
            accountant=asked.accountant, said=asked.terms.rows, losses=order.losses,
            guessed=frozenset(
                about for name, about in asked.chosen.guessed
                if name == order.bought.draft.block.name
            ),
        )
        for order in orders
    )  # fmt: skip
    return Expectation(
        question=asked.question, guesses=guesses, rows_max=desk.rules.rows_max,
        public=lambda: public_tables(desk.curator, asked.question),
    )  # fmt: skip
