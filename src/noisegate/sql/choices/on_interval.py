"""A choice on an interval: the point that the stretches of the most rows hold.

The score is a count of rows by a condition on the point, such as
``COUNT(*) FILTER (WHERE hour BETWEEN opens AND closes)``. It is constant between the ends of
stretches, so that a continuous choice is drawn exactly.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, final, overload

from sqlglot import exp

from noisegate.algebra.expression import Call, Expression, Literal, domain_of
from noisegate.algebra.schema import schema_of
from noisegate.algebra.tally import Rows, Term
from noisegate.desk.desk import Desk
from noisegate.desk.terms.terms import Terms
from noisegate.errors import Bug, Unsupported
from noisegate.mechanisms.selection.stretches import StretchChoice
from noisegate.sql.bounds.limits import caps_of
from noisegate.sql.choices.candidates import Candidate, Candidates, sampled_words
from noisegate.sql.question import Block, Function, sampled
from noisegate.sql.reading.hints import take_hints
from noisegate.sql.reading.reader import read
from noisegate.sql.reading.statement import statement_of
from noisegate.sql.reading.words import fold
from noisegate.transforms.query import Query
from noisegate.transforms.stability import stability_of
from noisegate.transforms.whole_rows import WholeRows

REACH: Final = 1 << 24  # half an interval has one step less; beyond it nothing is told apart
_FORM: Final = (
    "For example: SELECT COUNT(*) FILTER (WHERE hour BETWEEN opens AND closes) FROM people, with "
    'candidates={"hour": (0, 24)}.'
)


@final
@dataclass(frozen=True, slots=True)
class Grid(Sequence[Candidate]):
    """The points of an interval, from the lowest."""

    low: Fraction
    high: Fraction

    def __len__(self) -> int:
        return 2 * REACH - 1

    @overload
    def __getitem__(self, place: int) -> Candidate: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[Candidate]: ...

    def __getitem__(self, place: int | slice) -> Candidate | Sequence[Candidate]:
        if isinstance(place, slice):
            return [self[each] for each in range(*place.indices(len(self)))]
        return float(self.low + self.step * place)

    @property
    def step(self) -> Fraction:
        """How far points are apart."""
        return (self.high - self.low) / (2 * REACH - 2)


def interval_candidates(desk: Desk, sql: str, name: str, grid: Grid, terms: Terms) -> Candidates:
    """The points of the interval, and the rows whose stretches they are scored by."""
    stretch = stretch_of(sql, name)
    question = sampled(
        read(stretch.select.sql(dialect="duckdb"), desk.curator.tables), desk.rules.sample
    )
    (block,) = question.blocks
    tally = _rows(block, stretch, grid, terms)
    query = Query(tally, WholeRows())
    return Candidates(
        names=grid,
        query=query,
        grain=1 / Fraction(tally.whole) / (query.sample or 1),
        monotone=True,
        caveats=() if query.sample is None else (sampled_words(query.sample),),
    )


@final
@dataclass(frozen=True, slots=True)
class Stretch:
    """Which rows are asked, with COUNTs of the ends of their stretches, if they have these."""

    select: exp.Select
    low: bool
    high: bool


def stretch_of(sql: str, name: str) -> Stretch:
    """The stretch that a count by a condition states: at most one bound of the point each way."""
    tree = statement_of(take_hints(sql)[0])
    counted = tree.expressions[0].unalias() if isinstance(tree, exp.Select) else None
    if (
        not isinstance(tree, exp.Select)
        or len(tree.expressions) != 1
        or tree.args.get("group")
        or not isinstance(counted, exp.Filter)
        or not isinstance(counted.this, exp.Count)
        or not isinstance(counted.this.this, exp.Star)
    ):
        raise _unread()
    lows: list[exp.Expr] = []
    highs: list[exp.Expr] = []
    others: list[exp.Expr] = []
    condition = counted.expression.this
    for part in condition.flatten() if isinstance(condition, exp.And) else [condition]:
        _sort(part.unnest(), fold(name), lows, highs, others)
    if len(lows) > 1 or len(highs) > 1 or not (lows or highs):
        raise _unread()
    select = tree.copy()
    select.set("expressions", [exp.Count(this=each.copy()) for each in (*lows, *highs)])
    for each in others:
        select = select.where(each.copy(), copy=False)
    return Stretch(select, bool(lows), bool(highs))


def _unread() -> Unsupported:
    return Unsupported(
        "A score on an interval is a COUNT of rows whose stretch holds the point.",
        fix=_FORM,
        about="score",
    )


def _sort(
    part: exp.Expr,
    name: str,
    lows: list[exp.Expr],
    highs: list[exp.Expr],
    others: list[exp.Expr],
) -> None:
    """A part of the condition as an end of the stretch, or as one on rows alone."""
    if name not in {fold(each.name) for each in part.find_all(exp.Column) if not each.table}:
        others.append(part)
        return
    if isinstance(part, exp.Between) and _is(part.this, name):
        lows.append(part.args["low"])
        highs.append(part.args["high"])
        return
    rises = isinstance(part, exp.GTE | exp.GT)
    if not (rises or isinstance(part, exp.LTE | exp.LT)):
        raise _unread()
    if _is(part.this, name):
        (lows if rises else highs).append(part.expression)
    elif _is(part.expression, name):
        (highs if rises else lows).append(part.this)
    else:
        raise _unread()


def _is(node: exp.Expr, name: str) -> bool:
    return isinstance(node, exp.Column) and not node.table and fold(node.name) == name


def _rows(block: Block, stretch: Stretch, grid: Grid, terms: Terms) -> Rows:
    """The ends of all stretches on the grid; a row without one of its ends takes no part."""
    ends = [each.args[0] for each in block.aggregates if each.function is Function.COUNT_VALUES]
    if len(ends) != stretch.low + stretch.high:
        raise _unread()
    schema = schema_of(block.relation)
    if any(not domain_of(each, schema).kind.is_numeric for each in ends):
        raise Unsupported(
            "The ends of a stretch are not numbers.", fix="Use numeric columns.", about="type"
        )
    beyond = 2 * abs(grid.high - grid.low) + abs(grid.high) + abs(grid.low)
    low = ends[0] if stretch.low else Literal(-beyond)
    high = ends[-1] if stretch.high else Literal(beyond)
    rows = stability_of(block.relation).rows
    cap = None if rows is not None else caps_of(block, terms).rows_per_unit
    return Rows(
        relation=block.relation,
        terms=tuple(_term(each, grid) for each in (low, high)),
        rows_per_unit=cap,
    )


def _term(end: Expression, grid: Grid) -> Term:
    """An end as steps from the middle of the interval, clamped beyond its ends."""
    middle = (grid.low + grid.high) / 2
    moved = Call("subtract", (end, Literal(middle)))
    return Term(expression=moved, grain=grid.step, low=-REACH, high=REACH)


def interval_choice(found: Candidates, epsilon: Fraction) -> StretchChoice:
    """The choice that a price buys."""
    tally = found.query.tally
    if not isinstance(tally, Rows):
        raise Bug("A choice on an interval reads rows.", fix="Please report the question.")
    return StretchChoice.for_epsilon(
        epsilon, rows=found.query.per_unit, reach=REACH, whole=tally.whole
    )
