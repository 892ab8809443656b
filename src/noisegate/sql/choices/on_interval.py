"""Public candidates: a list, a public table or an interval; and a prior over them.

A choice on an interval is of the point that the stretches of the most rows hold. The score is a
count of rows by a condition on the point, such as ``COUNT(*) FILTER (WHERE hour BETWEEN opens AND
closes)``. It is constant between the ends of stretches, so that a continuous choice is drawn
exactly.
"""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from math import lcm
from typing import Final, TypeAlias, final, overload

import pyarrow as pa
from sqlglot import exp

from noisegate.algebra.expression import Call, Expression, Literal, domain_of
from noisegate.algebra.schema import schema_of
from noisegate.algebra.tally import Rows, Term
from noisegate.desk.desk import Desk
from noisegate.desk.terms.terms import Terms
from noisegate.errors import Bug, SpecError, Unsupported
from noisegate.exact import Number, fraction
from noisegate.frozen import dataclass
from noisegate.mechanisms.selection.prior import WEIGHT_MAX
from noisegate.mechanisms.selection.stretches import StretchChoice
from noisegate.sql.bounds.limits import caps_of
from noisegate.sql.choices.candidates import Candidate, Candidates
from noisegate.sql.question import Block, Function, sampled
from noisegate.sql.reading.reader import read
from noisegate.sql.reading.statement import statement_of, take_hints
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
    return Candidates.of(grid, Query(tally, WholeRows()), 1 / Fraction(tally.whole))


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


Given: TypeAlias = Mapping[str, object]  # lists by the names of columns, or one pair (low, high)
Prior: TypeAlias = Mapping[str, Number]
LIST_MAX: Final = 100_000
_LISTS: Final = 'Use {"price": [5, 10, 15]}, {"hour": (0, 24)}, or the name of a public table.'


@final
@dataclass(frozen=True, slots=True)
class Listed:
    """Candidates as lines of a table; ``shown`` are the columns that name them."""

    table: pa.Table
    shown: tuple[str, ...]
    weights: tuple[Fraction, ...] | None = None


def interval_of(given: Given | str | None) -> tuple[str, Grid] | None:
    """The name of the point and its interval, where candidates are one."""
    pairs = list(given.items()) if isinstance(given, Mapping) else []
    found = [(name, ends) for name, ends in pairs if isinstance(ends, tuple) and len(ends) == 2]
    if not found:
        return None
    (name, (low, high)), *others = found
    exact = [fraction(end, name=name) for end in (low, high)]
    if others or len(pairs) != 1 or exact[0] >= exact[1]:
        raise SpecError(
            "Candidates on an interval are one pair of numbers.",
            fix='For example: candidates={"hour": (0, 24)}.',
            about="candidates",
        )
    return name, Grid(*exact)


def listed_of(desk: Desk, given: Given | str, prior: Prior | str | None) -> Listed:
    """The candidates of an order, with the weights that one of their columns states."""
    table = _public(desk, given) if isinstance(given, str) else _table(given)
    if not 2 <= table.num_rows <= LIST_MAX:
        raise SpecError(
            f"There are {table.num_rows:,} candidates.",
            fix=f"Give at least 2 and at most {LIST_MAX:,}.",
            about="candidates",
        )
    names = {fold(name): name for name in table.column_names}
    column = names.get(fold(prior)) if isinstance(prior, str) else None
    if isinstance(prior, str) and column is None:
        raise SpecError(
            f"The candidates have no column {prior!r}.",
            fix=f"They have {', '.join(table.column_names)}.",
            about="prior",
        )
    shown = tuple(name for name in table.column_names if name != column)
    rows = {tuple(row.values()) for row in table.select(shown).to_pylist()}
    if not shown or len(rows) < table.num_rows:
        raise SpecError(
            "A candidate is listed twice.", fix="List each candidate once.", about="candidates"
        )
    weights = None
    if column is not None:
        values = table.column(column).to_pylist()
        weights = tuple(fraction(each, name="prior") for each in values)
    return Listed(table, shown, weights)


def _public(desk: Desk, name: str) -> pa.Table:
    found = next((t for n, t in desk.curator.tables.items() if fold(n) == fold(name)), None)
    if found is None or not found.is_public:
        raise SpecError(
            f"{name!r} is not a public table.", fix=f"Declare it, or give a list. {_LISTS}",
            about="candidates",
        )  # fmt: skip
    return desk.curator.public(found.name)


def _table(given: Given) -> pa.Table:
    lists = {name: column for name, column in given.items() if isinstance(column, Sequence)}
    lengths = {len(column) for column in lists.values()}
    texts = any(isinstance(column, str) for column in lists.values())
    if len(lists) < len(given) or texts or len(lengths) != 1:
        raise SpecError("Candidates are not lists of one length.", fix=_LISTS, about="candidates")
    try:
        return pa.table({name: pa.array(list(column)) for name, column in lists.items()})
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError):
        raise SpecError(
            "A column of candidates holds values of different types.",
            fix="Use numbers, or texts.",
            about="candidates",
        ) from None


def weights_of(
    names: Sequence[Candidate], prior: Prior | None, stated: Sequence[Fraction] | None
) -> tuple[int, ...] | None:
    """The prior as whole numbers: stated beside the candidates, or by name, others weighing 1."""
    if prior is None and stated is None:
        return None
    weights = list(stated or ())
    if prior is not None:
        texts = [", ".join(map(str, n)) if isinstance(n, tuple) else str(n) for n in names]
        given = {name: fraction(each, name="prior") for name, each in prior.items()}
        if unknown := sorted(given.keys() - set(texts)):
            raise SpecError(
                f"There is no candidate {unknown[0]!r}.",
                fix="Name candidates as the choice shows them.",
                about="prior",
            )
        weights = [given.get(text, Fraction(1)) for text in texts]
    scale = lcm(*(each.denominator for each in weights))
    whole = tuple(int(each * scale) for each in weights)
    if min(whole) < 0 or max(whole) > WEIGHT_MAX or not any(whole):
        raise SpecError(
            "The weights of the prior are out of range.",
            fix="Use weights of at least 0, not all 0, with few digits.",
            about="prior",
        )
    return whole
