"""Describing a table: `gate.describe()`, one order with one price for several questions.

The question about all columns comes first: the cap that it finds, where nobody declared one, is
that of all others. Each is measured, stored and found again like any other question, so that later
questions about the same numbers are free.

The answers become one table, with a line for each number.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias, final

import pyarrow as pa

from noisegate.curator.curator import Curator
from noisegate.desk.answer import Answer
from noisegate.desk.based import Based
from noisegate.desk.desk import Desk
from noisegate.desk.job import Drawn, Job, Progress, Receipt, all_of, require_room
from noisegate.desk.noisy import HalfWidths
from noisegate.desk.plan import Fact
from noisegate.desk.terms.price import Price
from noisegate.desk.terms.terms import Terms, checked_terms
from noisegate.errors import OverBudget, SpecError, Unsupported
from noisegate.exact import Number, fraction
from noisegate.frozen import dataclass
from noisegate.privacy.domain import Column, Kind, TableDomain
from noisegate.privacy.event import Event, NothingEvent
from noisegate.privacy.guarantee import Guarantee
from noisegate.privacy.loss import ApproxDP
from noisegate.privacy.release import Release
from noisegate.releases.ask.order import ReleaseOrder, RowsTerms
from noisegate.releases.describe import description
from noisegate.releases.describe.questions import ALL, Questions, Way, alias
from noisegate.sql.bounds.looks import CHOICES
from noisegate.sql.bounds.ranges import BOUNDS
from noisegate.sql.job import PARTLY, Collected, QuestionJob
from noisegate.sql.order import Chosen
from noisegate.sql.plan import AnswerExpected
from noisegate.sql.spelling import table_named

Widths: TypeAlias = Callable[[Answer], Callable[[Number], Sequence[HalfWidths]]]
_VALUES: Final = "value"
_TIMES: Final = {Kind.DATE: ("date", pa.date32()), Kind.TIMESTAMP: ("time", pa.timestamp("us"))}


@final
@dataclass(frozen=True, slots=True)
class Line:
    """One number: what it is about, and where it stands in which answer."""

    column: str | None
    statistic: str
    key: str | None
    home: str  # the column of the description that holds it
    answer: str
    at: tuple[int, int]  # column and row


def description_of(
    questions: Questions, answers: Mapping[str, Answer], sql: str, notes: Sequence[str]
) -> description.Description:
    """All numbers of the answers; ``notes`` say what is not among them."""
    lines = list(_lines(questions, answers))
    whole = all(
        isinstance(_value(answers, each), int) for each in lines if each.home == description.COUNT
    )
    kinds = {description.COUNT: pa.int64() if whole else pa.float64(), _VALUES: pa.float64()}
    kinds |= {name: kind for name, kind in _TIMES.values() if any(x.home == name for x in lines)}
    texts = {
        name: [getattr(each, name) for each in lines] for name in ("column", "statistic", "key")
    }
    columns = {name: pa.array(each, pa.string()) for name, each in texts.items()}
    for home, kind in kinds.items():
        values = [_value(answers, each) if each.home == home else None for each in lines]
        columns[home] = pa.array(values, kind)

    def widths(of: Widths) -> Callable[[Number], list[HalfWidths]]:
        return lambda confidence: [
            *(None for _ in texts),
            *_widths(lines, list(kinds), {n: of(a)(confidence) for n, a in answers.items()}),
        ]

    first, every = answers[ALL], answers.values()
    is_lower = any(each.lower() for each in every)
    apart = any(each.noise_widths is not None for each in every)
    held = Answer(
        sql=sql, table=pa.table(columns), half_widths=widths(lambda each: each.half_widths),
        noise_widths=widths(lambda each: each.noise_widths or each.half_widths) if apart else None,
        cost=first.cost, remaining=first.remaining, guarantee=first.guarantee,
        request_ids=_once(each.request_ids for each in every),
        questions=_once(each.questions for each in every),
        caveats=_once([notes, *(each.caveats for each in every)]),
        reused=_once(each.reused for each in every), practice=first.practice, log=first.log,
        amounts=lambda: (description.COUNT,), unsigned=lambda: (description.COUNT,),
        lower=lambda: (description.COUNT,) if is_lower else (),
    )  # fmt: skip
    types = {name: each.kind.value for name, each in questions.columns.items()}
    return description.Description(held=held, table=questions.table, kinds=types)


def _lines(questions: Questions, answers: Mapping[str, Answer]) -> Iterator[Line]:
    """The numbers in the order of the columns."""
    places = {name: list(each.columns) for name, each in answers.items()}

    def line(column: str | None, statistic: str, home: str, answer: str) -> Iterator[Line]:
        name = statistic if column is None else alias(column, statistic)
        if name in places.get(answer, ()):
            yield Line(column, statistic, None, home, answer, (places[answer].index(name), 0))

    yield from line(None, description.ROWS, description.COUNT, ALL)
    for name, column in questions.columns.items():
        yield from line(name, description.MISSING, description.COUNT, ALL)
        answer = name if questions.way(name) is Way.BOUNDS else ALL
        home = _TIMES[column.kind][0] if column.kind in _TIMES else _VALUES
        for statistic in (description.MEAN, *description.QUARTILES):
            yield from line(name, statistic, home, answer)
        if questions.way(name) is Way.KEYS and name in answers:
            for row, (key, _) in enumerate(answers[name].rows):
                statistic = description.MISSING if key is None else description.COUNT
                if key is not None or not any(
                    line(name, description.MISSING, description.COUNT, ALL)
                ):
                    text = None if key is None else str(key)
                    yield Line(name, statistic, text, description.COUNT, name, (1, row))


def _value(answers: Mapping[str, Answer], line: Line) -> Any:  # noqa: ANN401 - of any kind
    column, row = line.at
    return answers[line.answer].table.column(column)[row].as_py()


def _widths(
    lines: Sequence[Line], homes: Sequence[str], found: Mapping[str, Sequence[HalfWidths]]
) -> Iterator[HalfWidths]:
    """The ± of each column; none where all of its numbers are exact."""
    for home in homes:
        widths = tuple(
            _width(found[line.answer], line) if line.home == home else None for line in lines
        )
        yield None if all(each is None for each in widths) else widths


def _width(widths: Sequence[HalfWidths], line: Line) -> float | int | None:
    column, row = line.at
    found = widths[column]
    return None if found is None else found[row]


def _once(listed: Any) -> tuple[str, ...]:  # noqa: ANN401 - several lists of texts
    return tuple(dict.fromkeys(text for each in listed for text in each))


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
class DescribeOrder(ReleaseOrder[description.Description, DescribeExpected]):
    """A table described: rows, and of each column missing values, mean, quartiles or keys.

    Attributes:
        table: The table, if there are several.
        columns: Which columns; by default all that can be asked about.
        where: A condition on rows.
        choose: "bounds": find bounds of numeric columns that nobody declared, and narrow those of
            1,000 or more; "caps": how many rows of one unit count, in place of the policy's cap.
            One that nobody declared is found anyway.
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
class DescribeJob(Job[Content, description.Description, DescribeExpected]):
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

    def result(self, content: Content, receipt: Receipt) -> description.Description:
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
        endings=description.Description.endings,
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
