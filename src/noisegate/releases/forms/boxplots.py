"""Box plots: `gate.release("boxplot", …)`.

A box plot is five quantiles of each group, each with a ± in values that was chosen with it, and an
error in ranks that is known beforehand. Of dates the ± is in days.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import date, timedelta
from fractions import Fraction
from pathlib import Path
from typing import Any, ClassVar, Final, Literal, Required, final

from noisegate.desk.answer import Answer
from noisegate.desk.desk import Desk
from noisegate.desk.display.drawing import Chart, altair
from noisegate.desk.display.numbers import percent
from noisegate.desk.display.plot import framed, label_angle, number_axis
from noisegate.desk.job import Job, derived
from noisegate.desk.order import Bins, Columns
from noisegate.desk.release import loading, read_held
from noisegate.desk.terms.terms import Terms
from noisegate.errors import SpecError
from noisegate.exact import Number as Numeric
from noisegate.exact import fraction
from noisegate.frozen import dataclass
from noisegate.mechanisms.catalogue import from_record
from noisegate.mechanisms.quantiles.brackets import Brackets
from noisegate.mechanisms.quantiles.quantiles import Quantiles
from noisegate.privacy.domain import EPOCH, Kind, TableDomain
from noisegate.releases.ask.order import ReleaseOrder, RowsTerms
from noisegate.releases.forms.kept_answer import HeldAnswer, answer_of, record_of
from noisegate.sql.job import question_job
from noisegate.sql.plan import AnswerExpected
from noisegate.sql.spelling import decimal, quoted, table_named

WHISKERS: Final = Fraction(1, 20)
_BOX: Final = 64  # pixels for each
_NAMES: Final = ("low", "lower", "middle", "upper", "high")
_KINDS: Final = (Kind.INTEGER, Kind.NUMBER, Kind.DATE)
FORMAT: Final = "noisegate-boxplot/1"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """The five numbers, or dates, of one group: whiskers, quartiles and the median."""

    group: tuple[Any, ...]
    low: float | date
    lower: float | date
    middle: float | date
    upper: float | date
    high: float | date


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class BoxplotRelease(HeldAnswer):
    """Boxes by group, as an answer holds them: a row for each group."""

    kind: ClassVar[str] = "boxplot"
    form: ClassVar[str] = FORMAT
    column: str
    by: tuple[str, ...]
    whiskers: Fraction

    @property
    def boxes(self) -> tuple[Box, ...]:
        """A box for each group, in the order of the declared keys."""
        at = len(self.by)
        return tuple(
            Box(group=tuple(row[:at]), **dict(zip(_NAMES, row[at:], strict=True)))
            for row in self.held.rows
        )

    def rank_error(self, confidence: Numeric = 0.95, *, even: bool = False) -> int:
        """How many rows all five numbers of a group may be off at most, so confidently.

        The middle one, say, has between half of the rows minus this and half plus this below it,
        among the values as they are clamped to the declared bounds. Whatever the values are; or, if
        ``even``, where they lie evenly around each of the five, as smooth ones nearly do.
        """
        found = [
            from_record(record)
            for question in self.held.questions
            for record in json.loads(question)["mechanisms"]
        ]
        five = (each for each in found if isinstance(each, Brackets | Quantiles))
        return max(each.rank_error(confidence, even=even) for each in five)

    @property
    def _bounds(self) -> tuple[Fraction, Fraction] | None:
        """Those that values are clamped to; of dates in days since 1970."""
        for question in self.held.questions:
            if values := json.loads(question)["query"]["tally"].get("values"):
                _, grain, low, high = values
                return Fraction(grain) * low, Fraction(grain) * high
        return None

    def _ranks(self, confidence: Numeric) -> str:
        least, most = (f"{self.rank_error(confidence, even=even):,}" for even in (True, False))
        sure = f"at {percent(confidence)} for all five"
        return f"± {most} rows in rank {sure}, ± {least} where values lie evenly"

    def to_dict(self, confidence: Numeric = 0.95) -> dict[str, Any]:
        """Plain JSON values."""
        ranks = {
            "rank_error": self.rank_error(confidence),
            "rank_error_even": self.rank_error(confidence, even=True),
        }
        return self.held.to_dict(confidence) | {"column": self.column} | ranks

    def plot(self, confidence: Numeric = 0.95, title: str | None = None) -> Chart:
        """Boxes with whiskers, an altair chart."""
        alt = altair()
        widths = self.held.margins(confidence)
        rows = [
            {name: _drawn(getattr(box, name)) for name in _NAMES}
            | {f"{name}_margin": each[place] for name in _NAMES if (each := widths[name])}
            | {"group": ", ".join(map(str, box.group)) or self.column}
            for place, box in enumerate(self.boxes)
        ]
        dated = any(isinstance(box.middle, date) for box in self.boxes)
        of, scale = ("T", alt.Scale(type="utc")) if dated else ("Q", alt.Scale(zero=False))
        angle = label_angle((row["group"] for row in rows), _BOX)
        axis = alt.Axis(labelAngle=angle, labelLimit=160)
        x = alt.X("group:N", title=", ".join(self.by) or None, sort=None, axis=axis)
        told = [name for name in rows[0] if name != "group"] if rows else []
        kinds = {name: of if name in _NAMES else "Q" for name in told}
        tips = [alt.Tooltip("group:N"), *(alt.Tooltip(f"{n}:{kind}") for n, kind in kinds.items())]
        base = alt.Chart(alt.InlineData(values=rows)).encode(x=x, tooltip=tips)
        y = alt.Y(f"low:{of}", title=self.column, scale=scale)
        if not dated:
            y = y.axis(number_axis(alt, (row[each] for row in rows for each in _NAMES)))
        whisker = base.mark_rule().encode(y=y, y2="high")
        body = base.mark_bar(size=28, color="#5b8cc0").encode(y=f"lower:{of}", y2="upper")
        middle = base.mark_tick(size=28, thickness=2, color="#1a1a1a").encode(y=f"middle:{of}")
        ends = f"Whiskers at {float(self.whiskers):.0%} and {float(1 - self.whiskers):.0%}"
        words = f"{ends}; {self._ranks(confidence)}"
        layers = whisker + body + middle
        if (sure := widths["middle"]) is not None:
            for row, box, width in zip(rows, self.boxes, sure, strict=True):
                row |= {
                    "least": _away(box.middle, width, -1, self._bounds),
                    "most": _away(box.middle, width, 1, self._bounds),
                }
            wide = base.mark_rule(size=7, opacity=0.35)
            layers += wide.encode(y=f"least:{of}", y2="most")
            words += "; the wide line is the ± of the median"
        boxes = layers.properties(width=alt.Step(_BOX))
        title = title or " by ".join(filter(None, (self.column, ", ".join(self.by))))
        return framed(boxes, self.held, title=title, notes=[f"{words}."])

    def record(self) -> dict[str, Any]:
        """What the boxes are of, and their ±; that in ranks follows from the questions."""
        return record_of(self.held) | {
            "column": self.column,
            "by": list(self.by),
            "whiskers": str(self.whiskers),
        }

    @classmethod
    @loading
    def load(cls, file: str | Path) -> "BoxplotRelease":
        """The boxes that `save` wrote to a Parquet file. Needs no gate."""
        table, record = read_held(file, cls)
        held, stated = answer_of(table, record), record["standing"]["stated"]
        by, ends = tuple(record["by"]), Fraction(record["whiskers"])
        return cls(held=held, column=record["column"], by=by, whiskers=ends, stated=stated)

    @property
    def headline(self) -> str:
        """How many boxes there are, and how surely they stand where they stand."""
        count = self.held.table.num_rows
        boxes = "1 box" if count == 1 else f"{count:,} boxes"
        return f"{boxes} of {self.column}, {self._ranks(0.95)}"


class BoxplotTerms(RowsTerms, total=False):
    """What is said of a box plot; see `BoxplotOrder`."""

    columns: Required[Columns]
    whiskers: Numeric
    groups_per_unit: int | None


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class BoxplotOrder(ReleaseOrder[BoxplotRelease, AnswerExpected]):
    """A box plot: the first of the columns is the number, the rest are groups."""

    name: Literal["boxplot"] = "boxplot"
    columns: Columns
    table: str | None = None
    where: str | None = None
    whiskers: Numeric = WHISKERS
    epsilon: Numeric | None = None
    rows_per_unit: int | None = None
    groups_per_unit: int | None = None

    def job(self, desk: Desk) -> Job[Any, BoxplotRelease, AnswerExpected]:
        """The question of five quantiles."""
        return boxplot_job(desk, self, fresh=False)

    def anew(self, desk: Desk) -> Job[Any, BoxplotRelease, AnswerExpected]:
        """The same, to be measured anew."""
        return boxplot_job(desk, self, fresh=True)


def boxplot_sql(
    tables: Mapping[str, TableDomain], asked: BoxplotOrder
) -> tuple[str, str, tuple[str, ...]]:
    """The SELECT of a box plot, its column and its groups."""
    columns, where = asked.columns, asked.where
    table = table_named(tables, asked.table)
    known = tables[table].columns
    if not columns or set(columns) - set(known):
        raise SpecError(
            "The columns are not in this table.", fix=f"For example: {{{min(known)!r}: None}}."
        )
    column, *by = columns
    if known[column].kind is Kind.TIMESTAMP:
        raise SpecError(
            f"{column!r} is a timestamp, and a box plot is of a number or a date.",
            fix="Ask for its quantiles in SQL, such as MEDIAN(x) and QUANTILE_CONT(x, 0.25).",
            about="timestamp",
        )
    if known[column].kind not in _KINDS or known[column].between is None:
        raise SpecError(
            f"{column!r} is not a number or a date with bounds.",
            fix="Declare between = [low, high] for it.",
        )
    ends = fraction(asked.whiskers, name="whiskers")
    if not 0 < ends < Fraction(1, 4):
        raise SpecError("whiskers is not a valid level.", fix="Use one below 1/4, such as 0.05.")
    levels = (ends, Fraction(1, 4), Fraction(1, 2), Fraction(3, 4), 1 - ends)
    number = quoted(column)
    groups = [
        quoted(name) if how is None else f"BIN({quoted(name)}, {_width(how)})"
        for name, how in list(columns.items())[1:]
    ]
    pairs = zip(levels, _NAMES, strict=True)
    chosen = [
        f"QUANTILE_CONT({number}, {decimal(level)}) AS {quoted(name)}" for level, name in pairs
    ]
    shown = [f"{group} AS {quoted(name)}" for group, name in zip(groups, by, strict=True)]
    condition = f" WHERE {where}" if where else ""
    grouped = f" GROUP BY {', '.join(groups)}" if groups else ""
    select = ", ".join([*shown, *chosen])
    sql = f"SELECT {select} FROM {quoted(table)}{condition}{grouped}"  # noqa: S608 - parsed, not run
    return sql, column, tuple(by)


def boxplot_job(
    desk: Desk, asked: BoxplotOrder, *, fresh: bool
) -> Job[Any, BoxplotRelease, AnswerExpected]:
    """The question of a box plot; what is wrong with it is refused here, at no cost."""
    sql, column, by = boxplot_sql(desk.curator.tables, asked)
    terms = Terms(
        epsilon=None if asked.epsilon is None else fraction(asked.epsilon, name="epsilon"),
        rows_per_unit=asked.rows_per_unit,
        groups_per_unit=asked.groups_per_unit,
    )
    ends = fraction(asked.whiskers)

    def made(answer: Answer) -> BoxplotRelease:
        return BoxplotRelease(held=answer, column=column, by=by, whiskers=ends)

    job = question_job(desk, sql, terms, fresh=fresh)
    return derived("boxplot", job, made, BoxplotRelease.endings)


def _drawn(value: Any) -> Any:  # noqa: ANN401 - a number, a date, or none
    return value.isoformat() if isinstance(value, date) else value


def _away(value: Any, width: Any, way: int, bounds: tuple[Fraction, Fraction] | None) -> Any:  # noqa: ANN401 - as answers have them
    """The end of an error bar, within the bounds and the calendar."""
    if value is None or width is None:
        return None
    dated = isinstance(value, date)
    at = (value - EPOCH.date()).days if dated else value
    end = at + way * width
    if bounds is not None:
        end = min(max(end, float(bounds[0])), float(bounds[1]))
    if not dated:
        return end
    room = (date.max - value if way > 0 else value - date.min).days
    return (value + timedelta(days=int(min(abs(end - at), room)) * way)).isoformat()


def _width(how: Bins) -> str:
    """The width of bins."""
    if isinstance(how, Sequence) and not isinstance(how, str):
        raise SpecError("The groups of a box plot have no edges.", fix="Give a bin width.")
    return decimal(fraction(how or 0, name="bin width"))
