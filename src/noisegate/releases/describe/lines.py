"""The answers of several questions as one table, with a line for each number."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, final

import pyarrow as pa

from noisegate.desk.answer import Answer, HalfWidths
from noisegate.exact import Number
from noisegate.privacy.domain import Kind
from noisegate.releases.describe.description import (
    COUNT,
    MEAN,
    MISSING,
    QUARTILES,
    ROWS,
    Description,
)
from noisegate.releases.describe.questions import ALL, Questions, Way, alias

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
) -> Description:
    """All numbers of the answers; ``notes`` say what is not among them."""
    lines = list(_lines(questions, answers))
    whole = all(isinstance(_value(answers, each), int) for each in lines if each.home == COUNT)
    kinds = {COUNT: pa.int64() if whole else pa.float64(), _VALUES: pa.float64()}
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
        amounts=lambda: (COUNT,), unsigned=lambda: (COUNT,),
        lower=lambda: (COUNT,) if is_lower else (),
    )  # fmt: skip
    types = {name: each.kind.value for name, each in questions.columns.items()}
    return Description(held=held, table=questions.table, kinds=types)


def _lines(questions: Questions, answers: Mapping[str, Answer]) -> Iterator[Line]:
    """The numbers in the order of the columns."""
    places = {name: list(each.columns) for name, each in answers.items()}

    def line(column: str | None, statistic: str, home: str, answer: str) -> Iterator[Line]:
        name = statistic if column is None else alias(column, statistic)
        if name in places.get(answer, ()):
            yield Line(column, statistic, None, home, answer, (places[answer].index(name), 0))

    yield from line(None, ROWS, COUNT, ALL)
    for name, column in questions.columns.items():
        yield from line(name, MISSING, COUNT, ALL)
        answer = name if questions.way(name) is Way.BOUNDS else ALL
        home = _TIMES[column.kind][0] if column.kind in _TIMES else _VALUES
        for statistic in (MEAN, *QUARTILES):
            yield from line(name, statistic, home, answer)
        if questions.way(name) is Way.KEYS and name in answers:
            for row, (key, _) in enumerate(answers[name].rows):
                statistic = MISSING if key is None else COUNT
                if key is not None or not any(line(name, MISSING, COUNT, ALL)):
                    text = None if key is None else str(key)
                    yield Line(name, statistic, text, COUNT, name, (1, row))


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
