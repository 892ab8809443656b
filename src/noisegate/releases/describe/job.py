"""Describing a table: `gate.describe()`, one order with one price for several questions.

The question about all columns comes first: the cap that it finds, where nobody declared one, is
that of all others. Each is measured, stored and found again like any other question, so that later
questions about the same numbers are free.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias, final

from noisegate.curator.curator import Curator
from noisegate.desk.based import Based
from noisegate.desk.desk import Desk
from noisegate.desk.job import Drawn, Job, Progress, Receipt, all_of, require_room
from noisegate.desk.plan import Fact
from noisegate.desk.terms.price import Price
from noisegate.desk.terms.terms import Terms, checked_terms
from noisegate.errors import OverBudget, SpecError, Unsupported
from noisegate.exact import Number, fraction
from noisegate.privacy.domain import Column, TableDomain
from noisegate.privacy.event import Event, NothingEvent
from noisegate.privacy.guarantee import Guarantee
from noisegate.privacy.loss import ApproxDP
from noisegate.privacy.release import Release
from noisegate.releases.ask.order import ReleaseOrder, RowsTerms
from noisegate.releases.describe.description import Description
from noisegate.releases.describe.lines import description_of
from noisegate.releases.describe.questions import ALL, Questions, Way
from noisegate.sql.bounds.looks import BOUNDS, CHOICES
from noisegate.sql.job import PARTLY, Collected, QuestionJob
from noisegate.sql.order import Chosen
from noisegate.sql.plan import AnswerExpected
from noisegate.sql.spelling import table_named

Content: TypeAlias = Mapping[str, Drawn[Collected]]
_TOLD: Final = ("groups", "error", "clipping")
_UNSEEN: Final = 2  # rows per unit, in plans of keys whose cap is still to be found


class DescribeTerms(RowsTerms, total=False):
    """What is said of a description; see `DescribeOrder`."""

    columns: Sequence[str] | None
    choose: Chosen | Sequence[Chosen] | None
    delta: Number | None
    groups_per_unit: int | None


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeExpected:
    """What is expected of each question, by its column."""

    table: str
    parts: Mapping[str, AnswerExpected]

    def facts(self, confidence: Number) -> list[Fact]:
        """In words, one fact a line."""
        told = [fact for part in self.parts.values() for fact in part.facts(confidence)]
        return [("table", self.table), *dict.fromkeys(each for each in told if each[0] in _TOLD)]

    def margins(self, confidence: Number) -> dict[str, float | None]:
        """The ± to expect of each number; of keys, that of one of them."""
        found = [part.margins(confidence) for part in self.parts.values()]
        return {name: width for each in found for name, width in each.items()}

    def to_dict(self, confidence: Number) -> dict[str, Any]:
        """Plain values, for JSON."""
        asked = [part.to_dict(confidence) for part in self.parts.values()]
        return {"table": self.table, "questions": asked}


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeOrder(ReleaseOrder[Description, DescribeExpected]):
    """A table described: rows, and of each column missing values, mean, quartiles or keys.

    Attributes:
        table: The table, if there are several.
        columns: Which columns; by default all that can be asked about.
        where: A condition on rows.
        choose: "bounds": find bounds of numeric columns that nobody declared; "caps": how many
            rows of one unit count, in place of the policy's cap. One that nobody declared is found
            anyway.
        epsilon: The price of all of it; by default what the policy says.
        delta: The δ for finding keys that are not declared; by default the policy's. Without any,
            they are not looked for.
        rows_per_unit: How many rows of one unit count, instead of the policy's cap.
        groups_per_unit: In how many groups one unit counts, where keys are found.
    """

    name: Literal["describe"] = "describe"
    table: str | None = None
    columns: Sequence[str] | None = None
    where: str | None = None
    choose: Sequence[str] | None = None
    epsilon: Number | None = None
    delta: Number | None = None
    rows_per_unit: int | None = None
    groups_per_unit: int | None = None

    def __post_init__(self) -> None:
        if isinstance(self.choose, str):
            object.__setattr__(self, "choose", (self.choose,))
        ReleaseOrder.__post_init__(self)

    def job(self, desk: Desk) -> "DescribeJob":
        """Its questions."""
        return _made(_questions(desk, self, fresh=False))

    def anew(self, desk: Desk) -> "DescribeJob":
        """The same, to be measured anew."""
        return _made(_questions(desk, self, fresh=True))


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeJob(Job[Content, Description, DescribeExpected]):
    """All questions of a description, as of now.

    ``refused`` are those that cannot be asked, such as of a column whose estimate of bounds shows
    none, with the reason.
    """

    kind: str = "description"
    questions: Questions
    parts: Mapping[str, QuestionJob]
    refused: Mapping[str, str]

    @property
    def event(self) -> Event:
        """That of all questions, as far as they are new."""
        return _together([part.event for part in self.parts.values()])

    @property
    def tables(self) -> Sequence[TableDomain]:
        """The table that is described."""
        return self.parts[ALL].tables

    def is_paid(self, curator: Curator) -> bool:
        """Whether all of it was released before, or is public."""
        return all(part.is_paid(curator) for part in self.parts.values())

    def ready(self) -> "DescribeJob":
        """The same with caps and bounds that were found; what shows none is refused."""
        first = self.parts[ALL]
        first = first.ready() if first.before else first
        found, refused = _asked(self.questions, first)
        paid: list[Event] = []
        for name, part in list(found.items()):
            try:
                found[name] = part.ready() if part.before else part
            except Unsupported as refusal:
                refused[name] = refusal.problem
                paid += found.pop(name).before
        return _job(self.questions, {ALL: first} | found, refused, tuple(paid))

    def drawn(self, curator: Curator, progress: Progress, *, fresh: bool) -> Drawn[Content]:
        """Measure what is missing, if all of it fits."""
        require_room(curator, self.event)
        content: dict[str, Drawn[Collected]] = {}
        for place, (name, part) in enumerate(self.parts.items()):
            progress(place / len(self.parts), "measuring")
            try:
                content[name] = part.drawn(curator, lambda *_: None, fresh=fresh)
            except OverBudget as refusal:  # others spent meanwhile
                if all(each.free for each in content.values()):
                    raise
                raise OverBudget(refusal.problem, fix=PARTLY, about="partly") from None
        paid = [each.used for each in content.values() if not each.free]
        return Drawn(
            content=content, used=all_of(paid), question=self.sql, request_id="", free=not paid
        )

    def promise(self, drawn: Drawn[Content]) -> Event:
        """What all answers lost, and the estimates that show nothing."""
        lost = self.rests(drawn).besides(_releases(drawn))
        return _together([*lost, *map(self._look, self.refused)])

    def rests(self, drawn: Drawn[Content]) -> Based:
        """The looks of all parts."""
        parts = [self.parts[name].rests(each) for name, each in drawn.content.items()]
        looks = {question for part in parts for question in part.questions}
        return Based.on(each for each in _releases(drawn) if each.question in looks)

    def _look(self, name: str) -> Event:
        """What the estimate of a column's bounds lost that shows none."""
        desk, way = self.questions.desk, self.questions.way(name)
        if way is not Way.BOUNDS:
            return NothingEvent()
        epsilon = self.questions.price(name) * BOUNDS
        return Price.of(epsilon, accountant=desk.accountant, sample=desk.rules.sample).event()

    def guarantee(self, loss: ApproxDP) -> Guarantee:
        """About the table."""
        return self.parts[ALL].guarantee(loss)

    def result(self, content: Content, receipt: Receipt) -> Description:
        """All numbers in one table."""
        answers = {
            name: self.parts[name].result(each.content, receipt) for name, each in content.items()
        }
        return description_of(self.questions, answers, self.sql, self.notes)


def _questions(desk: Desk, order: DescribeOrder, *, fresh: bool) -> Questions:
    """What is asked; what is wrong with it is refused here, at no cost."""
    if unknown := set(order.choose or ()) - set(CHOICES):
        raise SpecError(
            f"{min(unknown)!r} cannot be chosen.",
            fix=f"Choose {' or '.join(CHOICES)}.",
            about="choice",
        )
    tables = desk.curator.tables
    table = table_named(tables, order.table)
    delta = desk.rules.keys_delta if order.delta is None else fraction(order.delta, name="delta")
    epsilon = desk.epsilon(order.epsilon)
    terms = Terms(
        delta=delta,
        rows_per_unit=order.rows_per_unit,
        groups_per_unit=order.groups_per_unit,
        choose=tuple(order.choose or ()),
    )
    return Questions(
        desk=desk, table=table, where=order.where, columns=_columns(tables[table], order.columns),
        epsilon=epsilon, terms=checked_terms(terms), fresh=fresh,
    )  # fmt: skip


def _columns(table: TableDomain, listed: Sequence[str] | None) -> dict[str, Column]:
    """The columns that are described: the unit is no column that can be asked about."""
    unit = None if table.unit is None else table.unit.column
    known = {n: each for n, each in table.columns.items() if not each.hidden and n != unit}
    if listed is None:
        return known
    if unknown := [name for name in listed if name not in known]:
        raise SpecError(
            f"{table.name!r} has no column {unknown[0]!r} that can be described.",
            fix=f"Use {', '.join(known)}.",
            about="column",
        )
    return {name: known[name] for name in listed}


def _made(questions: Questions) -> DescribeJob:
    first = questions.asked(ALL)
    found, refused = _asked(questions, first)
    return _job(questions, {ALL: first} | found, refused)


def _asked(
    questions: Questions, first: QuestionJob
) -> tuple[dict[str, QuestionJob], dict[str, str]]:
    """The other questions, with the cap of the first; and why some cannot be asked.

    Gaussian noise hides norms over groups, so there each question finds a cap of its own.
    """
    cap = None
    if first.asked.looks and not questions.desk.gaussian:
        cap = _UNSEEN if first.asked.missing else first.orders[0].caps.rows_per_unit
    found: dict[str, QuestionJob] = {}
    refused: dict[str, str] = {}
    for name in questions.names[1:]:
        try:
            found[name] = questions.asked(name, cap)
        except Unsupported as refusal:
            refused[name] = refusal.problem
    return found, refused


def _job(
    questions: Questions,
    parts: Mapping[str, QuestionJob],
    refused: Mapping[str, str],
    paid: tuple[Event, ...] = (),
) -> DescribeJob:
    early = [part.event if part.early is None else part.early for part in parts.values()]
    expected = {name: part.expected for name, part in parts.items()}
    notes = [note for part in parts.values() for note in part.notes]
    said = [f"{name}: {words}" for name, words in refused.items()]
    return DescribeJob(
        sql=";\n".join(part.sql for part in parts.values()),
        epsilon=questions.epsilon,
        expected=DescribeExpected(table=questions.table, parts=expected),
        notes=tuple(dict.fromkeys((*questions.notes, *said, *notes))),
        endings=Description.endings,
        before=tuple(event for part in parts.values() for event in part.before),
        paid=paid,
        early=_together(early) if any(part.early is not None for part in parts.values()) else None,
        questions=questions,
        parts=parts,
        refused=refused,
    )


def _releases(drawn: Drawn[Content]) -> list[Release]:
    return [release for each in drawn.content.values() for release in each.content.releases]


def _together(events: Sequence[Event]) -> Event:
    return all_of([each for each in events if not isinstance(each, NothingEvent)])
