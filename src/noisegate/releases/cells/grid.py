"""The cells of a release: the declared groups of one SELECT, and the one sum over them."""

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import pairwise
from math import floor, lcm, prod
from types import MappingProxyType
from typing import Any, Final, final

from noisegate.algebra.expression import (
    Call,
    Expression,
    Field,
    Literal,
    Schema,
    domain_of,
    fields_of,
)
from noisegate.algebra.intervals import KEYS_MAX
from noisegate.algebra.relation import Filter, Relation
from noisegate.algebra.schema import schema_of
from noisegate.algebra.tally import Grouping, Sums
from noisegate.desk.terms.terms import Terms
from noisegate.errors import SpecError, Unsupported
from noisegate.exact import fraction
from noisegate.frozen import dataclass, replace
from noisegate.privacy.domain import Column, Kind, TableDomain
from noisegate.releases.cells.axes import Axis, plain_number
from noisegate.sql.bounds.limits import caps_of
from noisegate.sql.drafts.draft import draft
from noisegate.sql.laws.sampling import sample_words
from noisegate.sql.plan import shown_names
from noisegate.sql.question import Block, Function, GroupKey, Question
from noisegate.sql.spelling import decimal, quoted, table_named
from noisegate.transforms.checks import CELLS_MAX
from noisegate.transforms.query import Query

_FORM: Final = "For example: SELECT COUNT(*) FROM visits GROUP BY BIN(age, 5), ward."
_FUNCTIONS: Final = (
    Function.COUNT,
    Function.COUNT_VALUES,
    Function.COUNT_UNITS,
    Function.SUM,
)
UNITS: Final = ("hour", "day", "week", "month", "quarter", "year")
OWN: Final = (  # functions whose keys are values of the column
    *("bin", "date_trunc", "least", "greatest", "coalesce", "nullif"),
    *("to_integer", "to_number", "to_date", "to_timestamp"),
)
Edges = tuple[int | Fraction, ...]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """Axes, and the sum over their cells. Numbers are multiples of ``grain``.

    ``whole``: the exact numbers are whole. ``signed``: they may be negative. Of a ``sample`` they
    are scaled up to all units, by the grain. ``cut``: a bound may leave out some of what units add.
    """

    sql: str
    axes: tuple[Axis, ...]
    value: str
    query: Query
    grain: Fraction
    whole: bool
    signed: bool
    caveats: tuple[str, ...]
    sample: Fraction | None = None
    cut: bool = False

    def sampled(self, probability: Fraction | None) -> "Grid":
        """The same of a secret sample, if there is one."""
        if probability is None:
            return self
        words = sample_words(probability, in_bars=not self.signed)
        return replace(
            self,
            grain=self.grain / probability,
            caveats=(*self.caveats, words),
            sample=probability,
        )

    def to_record(self) -> dict[str, Any]:
        """What is counted, as plain values."""
        record = self.query.to_record()
        return record if self.sample is None else record | {"sample": str(self.sample)}

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of keys of each axis."""
        return tuple(axis.size for axis in self.axes)

    @property
    def moved(self) -> int:
        """How far one unit moves all cells together, in grains."""
        return int(self.query.l1s[0].value)


def grid_of(
    question: Question,
    sql: str,
    terms: Terms,
    *,
    missing: bool = True,
    by_groups: bool = True,
    edges: Mapping[int, Edges] | None = None,
) -> Grid:
    """The grid of a question, or a refusal. ``missing``: keep a cell for rows without a value.

    ``by_groups``: cap the groups of a unit too, where the policy does. ``edges`` are those of
    columns whose groups are numbers of bins.
    """
    block, axes = axes_of(question, missing=missing, edges=edges)
    cells = prod(axis.size for axis in axes)
    if cells > CELLS_MAX:
        raise Unsupported(
            f"The table would have {cells:,} cells, more than {CELLS_MAX:,}.",
            fix="Use wider bins or fewer columns.",
            about="cells",
        )
    caps = caps_of(block, terms)
    caps = caps if by_groups else replace(caps, groups_per_unit=None)
    drafted = draft(block, caps, derive=False)  # in L1, which sums of cells need
    tally = drafted.parts[0].query.tally
    if len(drafted.parts) != 1 or not isinstance(tally, Sums) or len(tally.terms) != 1:
        raise Unsupported("The release is not a single sum.", fix=_FORM)
    (term,) = tally.terms
    plain = replace(tally, by=tuple(replace(each, rest=False) for each in tally.by))
    return Grid(
        sql=sql,
        axes=axes,
        value=_value_name(question, block, [axis.name for axis in axes]),
        query=Query(plain),
        grain=term.grain,
        whole=drafted.recipes[0].kind is Kind.INTEGER,
        signed=term.low < 0,
        caveats=(*question.caveats, *drafted.capped, *drafted.caveats),
        cut=bool(drafted.capped),
    )


def axes_of(
    question: Question, *, missing: bool = True, edges: Mapping[int, Edges] | None = None
) -> tuple[Block, tuple[Axis, ...]]:
    """The block of a question by declared groups, and their axes; how many cells is left open."""
    block = _block(question)
    schema = schema_of(block.relation)
    known = asserted(block.relation)
    names = axis_names(question, block, edges=edges or {})
    keys, axes = [], []
    for place, (key, name) in enumerate(zip(block.by, names, strict=True)):
        found, axis = _axis(key, name, schema, (edges or {}).get(place))
        if not missing or found.expression in known or _binned(found.expression) in known:
            found = replace(found, domain=replace(found.domain, nullable=False))
        if found.domain.nullable:
            axis = replace(axis, keys=(*axis.keys, None))
        keys.append(found)
        axes.append(axis)
    return replace(block, by=tuple(keys)), tuple(axes)


def _block(question: Question) -> Block:
    if len(question.blocks) != 1 or question.picked is None or question.explain:
        raise Unsupported(
            "A release takes one plain SELECT over private rows.",
            fix="Apply HAVING, ORDER BY, LIMIT and the like to the released table.",
            about="select",
        )
    (block,) = question.blocks
    if len(block.aggregates) != 1 or block.aggregates[0].function not in _FUNCTIONS:
        raise Unsupported(
            "A release takes exactly one COUNT or SUM.",
            fix="Release each aggregate separately.",
            about="aggregate",
        )
    if not block.by:
        raise Unsupported("The SQL has no GROUP BY.", fix=_FORM, about="group-by")
    if set(block.sets) != {tuple(range(len(block.by)))}:
        raise Unsupported(
            "A release has a single GROUP BY.",
            fix="Use a plain GROUP BY; totals are sums of its cells.",
            about="grouping",
        )
    return block


def axis_names(
    question: Question, block: Block, own: Sequence[str] = OWN, edges: Container[int] = ()
) -> list[str]:
    """As the SELECT shows them, else after the one column they are made of.

    Keys that are neither texts nor its values, such as days of the week of a day, say so; values
    are what the ``own`` functions and listed ``edges`` make of them.
    """
    shown = shown_names(question)
    names: list[str] = []
    for place, key in enumerate(block.by):
        fields = list(dict.fromkeys(fields_of(key.expression)))
        plain = fields[0] if len(fields) == 1 else key.name
        made = _made_by(key.expression, own)
        if made and fields == [plain] and place not in edges and key.domain.kind is not Kind.TEXT:
            plain = f"{made}_{plain}"
        name = shown.get((block.name, key.name), plain)
        if name in names and type(key.expression) is Call:
            name = f"{key.expression.function}_{name}"
        while name in names:
            name += "_"
        names.append(name)
    return names


def _made_by(expression: Expression, own: Sequence[str]) -> str | None:
    """The first function that makes other values than its column's; None where there is none."""
    while type(expression) is Call and expression.function in own:
        expression = next(each for each in expression.args if any(fields_of(each)))
    return expression.function if type(expression) is Call else None


def _value_name(question: Question, block: Block, taken: Sequence[str]) -> str:
    name = shown_names(question).get((block.name, block.aggregates[0].name), "value")
    while name in taken:
        name += "_"
    return name


def _axis(key: GroupKey, name: str, schema: Schema, edges: Edges | None) -> tuple[GroupKey, Axis]:
    """The key as it is grouped by, and the axis of its declared keys."""
    call, width, origin = key.expression, Fraction(0), Fraction(0)
    if type(call) is Call and call.function == "bin":
        constants = [Fraction(a.value) for a in call.args[1:] if type(a) is Literal]  # type: ignore[arg-type]
        width, origin = (*constants, Fraction(0))[:2]
        if key.domain.kind is Kind.NUMBER:  # keys are whole: the numbers of the bins
            key = _numbered(key, width, origin, schema)
    keys = key.domain.keys
    if keys is None:
        raise Unsupported(
            f"The groups of {name!r} are not declared.",
            fix="Declare the column's keys, or declare its bounds and use BIN(x, width), or "
            "DATE_TRUNC('month', x) for a date.",
            about="groups",
        )
    present = tuple(each for each in keys if each is not None)
    key = replace(key, domain=replace(key.domain, keys=present))
    if edges is not None:
        return key, _given(name, edges, _bounds(call, schema))
    if not width:
        periods = type(call) is Call and call.function == "date_trunc"
        return key, Axis(name=name, keys=present, periods=periods)
    lows = present if key.expression is call else [each * width + origin for each in present]  # type: ignore[operator]
    starts, ends = (tuple(map(plain_number, each)) for each in (lows, [a + width for a in lows]))  # type: ignore[operator]
    return key, Axis(name=name, keys=starts, ends=ends, **_bounds(call, schema))


def _given(name: str, edges: Edges, bounds: dict[str, Any]) -> Axis:
    """The axis of listed edges. The outer bins hold all beyond, so they reach to bounds."""
    low, high, whole = bounds["low"], bounds["high"], bounds["whole"]
    first = edges[0] if low is None else plain_number(min(edges[0], low))
    last = edges[-1] if high is None else plain_number(max(edges[-1], high + whole))
    return Axis(name=name, keys=(first, *edges[1:-1]), ends=(*edges[1:-1], last), **bounds)


def _bounds(call: Expression, schema: Schema) -> dict[str, Any]:
    """What is declared of the numbers that are binned."""
    inside = domain_of(_binned(call), schema)
    return {"whole": inside.kind is Kind.INTEGER, "low": inside.low, "high": inside.high}


def _binned(expression: Expression) -> Expression:
    """What a bin is made of; of a CASE, the column that it compares."""
    while type(expression) is Call and expression.args:
        if expression.function not in ("bin", "case", "lt", "not", "is_null", *_STEPS):
            break
        expression = expression.args[0]
    return expression


_STEPS: Final = ("floor", "divide", "subtract", "multiply")  # of `_numbered`


def _numbered(key: GroupKey, width: Fraction, origin: Fraction, schema: Schema) -> GroupKey:
    """The same bins by their numbers, computed in the steps in which BIN computes them."""
    assert type(key.expression) is Call  # noqa: S101 - a BIN
    scale = lcm(width.denominator, origin.denominator)
    grown = Call("multiply", (key.expression.args[0], Literal(scale)))
    shifted = Call("subtract", (grown, Literal(int(origin * scale)))) if origin else grown
    number = Call("floor", (Call("divide", (shifted, Literal(int(width * scale)))),))
    return replace(key, expression=number, domain=domain_of(number, schema))


def asserted(relation: Relation) -> set[Expression]:
    """What WHERE says IS NOT NULL: then there is no cell for rows without it."""
    return {
        each.args[0].args[0]
        for each in _conditions(relation)
        if each.function == "not"
        and type(each.args[0]) is Call
        and each.args[0].function == "is_null"
    }


def _conditions(relation: Relation) -> Iterator[Call]:
    while isinstance(relation, Filter):
        todo = [relation.condition]
        while todo:
            condition = todo.pop()
            if type(condition) is Call:
                if condition.function == "and":
                    todo += condition.args
                yield condition
        relation = relation.of


def on_lists(relation: Relation, by: Iterable[Grouping]) -> Relation:
    """The rows that have a cell in every grouping.

    A table leaves out rows whose key is on no list, and one without that column would count them:
    tables over some of the columns agree only where all are about these rows.
    """
    schema = schema_of(relation)
    for each in by:
        of, domain = each.expression, domain_of(each.expression, schema)
        whole = domain.is_bounded or domain.kind is Kind.BOOLEAN
        if domain.unlisted or (type(of) is Field and not whole):
            held = Call("in", (of, *(Literal(key) for key in each.keys if key is not None)))
            lacks = Call("is_null", (of,))
            relation = Filter(relation, Call("or", (held, lacks)) if None in each.keys else held)
    return relation


def counted(record: Mapping[str, Any]) -> list[Any]:
    """Of a query's record: which rows of which state of the tables are added up, and how."""
    tables = {
        name: {term: said for term, said in table.items() if term != "columns"}
        for name, table in record["tables"].items()
    }
    tally = record["tally"]
    sums = tally.get("sums")
    sized = [term for term in tally.get("sized", ()) if term not in (sums or ())]
    added = tally["rows"], sums, tally.get("cap"), tally.get("squares"), sized
    return [record["dataset"], tables, *added, record.get("sample")]


# without SQL


def asked_sql(
    tables: Mapping[str, TableDomain],
    sql: str | None,
    table: str | None,
    columns: Mapping[str, Any] | None,
    where: str | None,
) -> tuple[str, dict[int, Edges]]:
    """The SQL of an order that gives SQL, or columns of a table instead."""
    if (sql is None) == (columns is None):
        raise SpecError(
            "Give either SQL or columns.",
            fix='For example: a SELECT, or columns={"age": 5, "ward": None}.',
            about="columns",
        )
    if columns is not None:
        return sql_of(tables, table, columns, where)
    if table is not None or where is not None:
        raise SpecError(
            "The SQL already states the table and WHERE.", fix="Leave them out.", about="where"
        )
    return sql or "", {}


def sql_of(
    tables: Mapping[str, TableDomain],
    table: str | None,
    columns: Mapping[str, Any],
    where: str | None = None,
    spelled: Mapping[str, str] = MappingProxyType({}),
) -> tuple[str, dict[int, Edges]]:
    """The SELECT of a table's columns, and the edges of those whose bins are listed.

    A column has a bin width, a list of edges, a unit of time such as "month", or None for its
    declared keys; ``spelled`` ones are groups in SQL already.
    """
    table = table_named(tables, table)
    if not isinstance(columns, Mapping) or not columns:
        raise SpecError(
            "No column is named.",
            fix='For example: columns={"age": 5, "ward": None}.',
            about="no-column",
        )
    known, groups = tables[table].columns, []
    edges: dict[int, Edges] = {}
    for place, (name, how) in enumerate(columns.items()):
        if name not in known:
            raise SpecError(
                f"{table!r} has no column {name!r}.",
                fix=f"Its columns: {', '.join(known)}.",
                about="column",
            )
        column, called = known[name], quoted(name)
        if name in spelled:
            groups.append(spelled[name])
        elif isinstance(how, list | tuple):
            edges[place] = _edges(name, how, column)
            groups.append(_cased(called, edges[place]))
        elif isinstance(how, str) and how in UNITS:
            groups.append(f"DATE_TRUNC('{how}', {called})")
        elif how is None and column.keys is None and column.kind is Kind.DATE:
            groups.append(f"DATE_TRUNC('day', {called})")
        elif how is None:
            _require_keys(name, column)
            groups.append(called)
        else:
            groups.append(f"BIN({called}, {_width(name, how, column)})")
    condition = f" WHERE ({where})" if where else ""
    rows = f"FROM {quoted(table)}{condition}"
    return f"SELECT COUNT(*) {rows} GROUP BY {', '.join(groups)}", edges


def _require_keys(name: str, column: Column) -> None:
    """Refuse a number or a time without bins, in the words of columns."""
    if column.keys is None and column.kind in (Kind.NUMBER, Kind.TIMESTAMP):
        such = "10" if column.kind is Kind.NUMBER else '"day"'
        raise SpecError(
            f"{name!r} has no list of groups.",
            fix=f'Give bins: columns={{"{name}": {such}}}.',
            about="groups",
        )


def _width(name: str, how: Any, column: Column) -> str:  # noqa: ANN401 - as people write it
    if column.kind in (Kind.DATE, Kind.TIMESTAMP):
        raise SpecError(
            f"{name!r} is a date or a time.", fix=f"Use {', '.join(UNITS)}.", about="time"
        )
    if isinstance(how, bool) or not isinstance(how, int | float | str | Fraction):
        raise SpecError(
            f"{how!r} is not a bin width for {name!r}.",
            fix="Use a number, a list of edges, a unit of time, or None for declared keys.",
            about="width",
        )
    width = fraction(how, name=f"the bin width of {name}")
    if width <= 0:
        raise SpecError(
            f"The bins of {name!r} would be empty or overlap.",
            fix="Use a width above 0.",
            about="bins",
        )
    if column.between is not None:
        first, last = (floor(bound / width) for bound in column.between)
        if last - first >= KEYS_MAX:
            raise Unsupported(
                f"{name!r} would have {last - first + 1:,} bins, more than {KEYS_MAX:,}.",
                fix='Use a larger width, or release "sparse".',
                about="many-bins",
            )
    return decimal(width)


def _edges(name: str, how: Sequence[Any], column: Column) -> Edges:
    between = column.between
    if column.kind in (Kind.DATE, Kind.TIMESTAMP):
        raise SpecError(
            f"{name!r} is a date or a time.", fix=f"Use {', '.join(UNITS)}.", about="time"
        )
    edges = tuple(plain_number(fraction(each, name=f"an edge of {name}")) for each in how)
    if len(edges) < 2 or any(b <= a for a, b in pairwise(edges)):
        raise SpecError(
            f"The bins of {name!r} are empty or overlap.",
            fix="Give two or more rising edges.",
            about="bins",
        )
    if between is None:
        raise SpecError(
            f"{name!r} has no declared bounds.",
            fix="Declare between = [low, high] for it.",
            about="bounds",
        )
    if edges[1] <= between[0] or between[1] < edges[-2]:
        raise SpecError(
            f"A bin of {name!r} is outside its declared bounds, so it would be empty.",
            fix=f"Use edges from {float(between[0]):g} to {float(between[1]):g}.",
            about="outside",
        )
    return edges


def _cased(column: str, edges: Edges) -> str:
    """The number of the bin; what is beyond the edges is in the first or the last."""
    inner = [
        f"WHEN {column} < {decimal(Fraction(edge))} THEN {place}"
        for place, edge in enumerate(edges[1:-1])
    ]
    return f"CASE {' '.join(inner)} WHEN {column} IS NOT NULL THEN {len(edges) - 2} END"
