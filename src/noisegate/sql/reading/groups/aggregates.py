"""Aggregate calls of SQL: which function, of what, over which rows.

REGR_SLOPE and its like are made of averages, variances and covariances of the rows that have both.
What is the same up to constants is measured once: SUM(x + 1), SUM(2 * x), a shifted key.
"""

from collections.abc import Iterable
from fractions import Fraction
from typing import Final, TypeAlias, final

import sqlglot
from sqlglot import exp

from noisegate.algebra.expression import Call, Expression, Field, Literal, Schema, domain_of
from noisegate.algebra.intervals import decimals
from noisegate.algebra.relation import Filter, PerUnit, Project, Relation
from noisegate.errors import Unsupported
from noisegate.frozen import dataclass, replace
from noisegate.privacy.domain import Kind
from noisegate.sql.question import Function
from noisegate.sql.reading.literals import kind_of, literal
from noisegate.sql.reading.sight import Name, SelectReader
from noisegate.sql.reading.values.operands import both
from noisegate.sql.reading.words import Node, at, refusal, require_only
from noisegate.sql.spelling import decimal

_ONE: Final[dict[type[exp.Expr], Function]] = {
    exp.Sum: Function.SUM,
    exp.Avg: Function.AVG,
    exp.Variance: Function.VAR_SAMP,
    exp.VariancePop: Function.VAR_POP,
    exp.Stddev: Function.STDDEV_SAMP,
    exp.StddevSamp: Function.STDDEV_SAMP,
    exp.StddevPop: Function.STDDEV_POP,
    exp.Min: Function.MIN,
    exp.Max: Function.MAX,
}
_TWO: Final[dict[type[exp.Expr], Function]] = {
    exp.CovarSamp: Function.COVAR_SAMP,
    exp.CovarPop: Function.COVAR_POP,
    exp.Corr: Function.CORR,
}
_QUANTILES: Final = (exp.Quantile, exp.PercentileCont, exp.PercentileDisc, exp.ApproxQuantile)
_ORDERED: Final = (Function.MIN, Function.MAX, Function.QUANTILE)


@final
@dataclass(frozen=True, slots=True)
class AskedAggregate:
    """An aggregate as asked: several ``levels`` where a list of quantiles is wanted.

    COUNT_IF of nothing is 0 here, as COUNT is, where DuckDB says NULL.
    """

    function: Function
    args: tuple[Expression, ...] = ()
    levels: tuple[Fraction, ...] = ()
    listed: bool = False
    where: Expression | None = None


def asked(node: Node, sight: SelectReader) -> AskedAggregate:
    """What an aggregate call asks for."""
    with at(node):
        return _asked(node, sight)


def _asked(node: Node, sight: SelectReader) -> AskedAggregate:  # noqa: PLR0911 - one case after the other
    if isinstance(node, exp.Filter):
        found = asked(node.this, sight)
        condition = sight.reading.condition(node.expression.this)
        where = condition if found.where is None else both(found.where, condition)
        return replace(found, where=where)
    if isinstance(node, exp.Count):
        return _count(node, sight)
    if isinstance(node, exp.CountIf):
        require_only(node, "this")
        return AskedAggregate(Function.COUNT, where=sight.reading.condition(node.this))
    if isinstance(node, exp.Anonymous) and node.name.lower() == "mean":
        return asked(exp.Avg(this=node.expressions[0]), sight)
    if type(node) in _ONE:
        require_only(node, "this")
        return AskedAggregate(_ONE[type(node)], (_value(node.this, _ONE[type(node)], sight),))
    if type(node) in _TWO:
        require_only(node, "this", "expression")
        function = _TWO[type(node)]
        args = tuple(_value(arg, function, sight) for arg in (node.this, node.expression))
        return AskedAggregate(function, args)
    if isinstance(node, exp.Median):
        require_only(node, "this")
        return AskedAggregate(
            Function.QUANTILE, (_value(node.this, Function.QUANTILE, sight),), (Fraction(1, 2),)
        )
    if isinstance(node, exp.WithinGroup) or type(node) in _QUANTILES:
        return _quantile(node, sight)
    raise refusal(node)


def _count(node: exp.Count, sight: SelectReader) -> AskedAggregate:
    require_only(node, "this", "big_int")
    of = node.args.get("this")
    if of is None or isinstance(of, exp.Star):
        return AskedAggregate(Function.COUNT)
    if isinstance(of, exp.Distinct):
        if len(of.expressions) != 1 or of.args.get("on"):
            raise Unsupported(
                "COUNT(DISTINCT ...) takes one column.",
                fix="For pairs: SELECT COUNT(*) FROM (SELECT DISTINCT x, y FROM t).",
                about="distinct",
            )
        target, where = _of_owner(of.expressions[0], sight)
        if isinstance(target, Name):
            return AskedAggregate(Function.COUNT_UNITS, where=where)
        if type(target) is Field and target.name in sight.untyped:
            sight.untyped[target.name].mark(grouped=True)
        return AskedAggregate(Function.COUNT_DISTINCT, (target,))
    target = sight.target(of)
    if type(target) is Field:
        target = sight.reading.read(of)
    if isinstance(target, Name) or (type(target) is Literal and target.value is not None):
        return AskedAggregate(Function.COUNT)
    if type(target) is Call and target.function == "case" and len(target.args) == 2:
        condition, value = target.args
        if type(value) is Literal and value.value is not None:
            return AskedAggregate(Function.COUNT, where=condition)
    return AskedAggregate(Function.COUNT_VALUES, (target,))


def _of_owner(node: Node, sight: SelectReader) -> tuple[Name | Expression, Expression | None]:
    """What distinct values are counted of; CASE WHEN c THEN unit END is the unit where c is true.

    FILTER says the same with less noise: a count of units is not one of any values.
    """
    inner = node.unnest()
    if isinstance(inner, exp.If):
        inner = exp.Case(ifs=[inner], default=inner.args.get("false"))
    cases = inner.args["ifs"] if isinstance(inner, exp.Case) else []
    if len(cases) == 1 and inner.this is None and _is_null(inner.args.get("default")):
        then, case = cases[0].args["true"].unnest(), cases[0].this
        if isinstance(then, exp.Column) and isinstance(found := sight.target(then), Name):
            return found, sight.reading.condition(case)
    return sight.target(node), None


def _is_null(node: Node | None) -> bool:
    return node is None or isinstance(node.unnest(), exp.Null)


def _value(node: Node, function: Function, sight: SelectReader) -> Expression:
    if isinstance(node, exp.Distinct):
        raise Unsupported(
            f"{function.value}(DISTINCT ...) is not supported.",
            fix="Use COUNT(DISTINCT x).",
            about="distinct",
        )
    if isinstance(node, exp.Order):
        raise refusal("ORDER BY")
    found = sight.reading.read(node, None if function in _ORDERED else Kind.NUMBER)
    kind = kind_of(found, sight.reading.schema)
    if kind is Kind.BOOLEAN and function not in _ORDERED:
        return Call("to_integer", (found,))
    if not (kind.is_ordered if function in _ORDERED else kind.is_numeric):
        timed = kind in (Kind.DATE, Kind.TIMESTAMP)
        raise Unsupported(
            f"{function.value} of {kind.value} is not supported.",
            fix="Use MEDIAN(x), or the number of seconds EPOCH(x)."
            if timed
            else "Declare the column's bounds (between), which makes it numeric, or CAST it.",
            about="type",
        )
    return found


def _quantile(node: Node, sight: SelectReader) -> AskedAggregate:
    """QUANTILE_CONT(x, q), or PERCENTILE_CONT(q) WITHIN GROUP (ORDER BY x)."""
    descending = False
    if isinstance(node, exp.WithinGroup):
        require_only(node, "this", "expression")
        call, (ordered, *more) = node.this, node.expression.expressions
        if type(call) not in _QUANTILES or more or call.args.get("expression"):
            raise refusal(call)
        of, level = ordered.this, call.this
        descending = bool(ordered.args.get("desc"))
    else:
        require_only(node, "this", "expression", "quantile")
        of, level = node.this, node.args.get("quantile") or node.args.get("expression")
    listed = isinstance(level, exp.Array)
    levels = [_level(one) for one in (level.expressions if listed else [level])]
    if not levels:
        raise Unsupported("The quantile has no level.", fix="Give a level such as 0.5.")
    return AskedAggregate(
        Function.QUANTILE,
        (_value(of, Function.QUANTILE, sight),),
        tuple(1 - one if descending else one for one in levels),
        listed,
    )


def _level(node: Node | None) -> Fraction:
    found = None if node is None else literal(node)
    if found is None or not found.kind.is_numeric or not 0 <= found.value <= 1:  # type: ignore[operator]
        raise Unsupported(
            "The level of a quantile must be from 0 to 1.", fix="For example: 0.5.", about="level"
        )
    return Fraction(found.value)  # type: ignore[arg-type]


_SLOPE: Final = "COVAR_POP(y, x) / NULLIF(VAR_POP(x), 0)"
_MADE_OF: Final[dict[type[exp.Expr], str]] = {
    exp.RegrSlope: _SLOPE,
    exp.RegrIntercept: f"AVG(y) - ({_SLOPE}) * AVG(x)",
    exp.RegrR2: "CORR(y, x) * CORR(y, x)",
    exp.RegrCount: "COUNT(*)",
    exp.RegrAvgx: "AVG(x)",
    exp.RegrAvgy: "AVG(y)",
    exp.RegrSxx: "COUNT(*) * VAR_POP(x)",
    exp.RegrSyy: "COUNT(*) * VAR_POP(y)",
    exp.RegrSxy: "COUNT(*) * COVAR_POP(y, x)",
}


def made_of(node: Node) -> Node | None:
    """An aggregate that is arithmetic on others, as regressions are; None of any other call.

    Regressions are about rows where neither argument is NULL, so that is the FILTER of each.
    """
    call = node.this if isinstance(node, exp.Filter) else node
    if isinstance(call, exp.Avg) and _is_of_others(call):
        return _divided(node, call)
    if type(call) not in _MADE_OF:
        return None
    require_only(call, "this", "expression")
    y, x = call.this, call.args["expression"]
    held: list[Node] = [
        exp.Not(this=exp.Is(this=exp.Paren(this=each.copy()), expression=exp.null()))
        for each in (y, x)
    ]
    if isinstance(node, exp.Filter):
        held.append(exp.Paren(this=node.expression.this.copy()))
    made = exp.Paren(this=sqlglot.parse_one(_MADE_OF[type(call)], dialect="duckdb"))
    for column in list(made.find_all(exp.Column)):
        column.replace((y if column.name == "y" else x).copy())
    for each in list(made.find_all(exp.AggFunc)):
        where = exp.Where(this=exp.and_(*(part.copy() for part in held)))
        each.replace(exp.Filter(this=each.copy(), expression=where))
    return made


def _is_of_others(call: exp.Avg) -> bool:
    """Whether what is averaged asks for other rows of the same table, as a rate of return does.

    It is larger where a unit has many rows, so a cap on rows would move the average.
    """
    select = call.find_ancestor(exp.Select)
    start = None if select is None else select.args.get("from_")
    joins = [] if select is None else select.args.get("joins") or []
    outer = {each.this.name for each in (start, *joins) if each is not None}
    inner = (query.find_all(exp.Table) for query in call.find_all(exp.Select))
    return any(table.name in outer for tables in inner for table in tables)


def _divided(node: Node, call: exp.Avg) -> Node:
    """The same as a sum over a count, each with the cap that fits it."""
    parts: list[Node] = [exp.Sum(this=call.this.copy()), exp.Count(this=call.this.copy())]
    if isinstance(node, exp.Filter):
        parts = [exp.Filter(this=part, expression=node.expression.copy()) for part in parts]
    divisor = exp.Nullif(this=parts[1], expression=exp.Literal.number(0))
    return exp.Paren(this=exp.Div(this=parts[0], expression=divisor, typed=False, safe=False))


Line: TypeAlias = tuple[Expression, Fraction, Fraction]  # core, factor, shift
Core: TypeAlias = tuple[Expression, Expression | None]  # and FILTER
_LINEAR: Final = (Function.SUM, Function.AVG)


def line_of(expression: Expression) -> Line:  # noqa: PLR0911 - one case after the other
    """The expression as factor · core + shift, with constants as far outside as they go."""
    if type(expression) is not Call:
        return expression, Fraction(1), Fraction(0)
    first = expression.args[0]
    second = expression.args[1] if len(expression.args) == 2 else first
    left, right = constant_of(first), constant_of(second)
    if expression.function == "negate":
        return moved(line_of(first), Fraction(-1), Fraction(0))
    if expression.function in ("add", "subtract") and right is not None:
        sign = 1 if expression.function == "add" else -1
        return moved(line_of(first), Fraction(1), sign * right)
    if expression.function == "add" and left is not None:
        return moved(line_of(second), Fraction(1), left)
    if expression.function == "subtract" and left is not None:
        return moved(line_of(second), Fraction(-1), left)
    if expression.function == "multiply" and (left or right):
        constant, other = (left, second) if left else (right, first)
        return moved(line_of(other), constant or Fraction(1), Fraction(0))
    return expression, Fraction(1), Fraction(0)


def moved(line: Line, factor: Fraction, shift: Fraction) -> Line:
    """A multiple of a line, plus a shift."""
    core, inner, more = line
    return core, factor * inner, factor * more + shift


def constant_of(expression: Expression) -> Fraction | None:
    """The number that it always is."""
    value = expression.value if type(expression) is Literal else None
    return Fraction(value) if type(value) in (int, Fraction) else None  # type: ignore[arg-type]


def shared_cores(asked: Iterable[AskedAggregate]) -> frozenset[Core]:
    """What several sums or averages are lines of."""
    seen: dict[Core, set[Expression]] = {}
    for ask in asked:
        if ask.function in _LINEAR:
            core, factor, shift = line_of(ask.args[0])
            if decimals(factor) is not None and decimals(shift) is not None:
                seen.setdefault((core, ask.where), set()).add(ask.args[0])
    return frozenset(core for core, of in seen.items() if len(of) > 1)


def on_line(
    ask: AskedAggregate, shared: frozenset[Core], schema: Schema
) -> tuple[AskedAggregate, AskedAggregate, Line] | None:
    """Of a sum or average that shares its core: that of the core, and how many values there are."""
    if ask.function not in _LINEAR:
        return None
    line = line_of(ask.args[0])
    if (line[0], ask.where) not in shared:
        return None
    may_lack = domain_of(line[0], schema).may_lack
    counted = AskedAggregate(Function.COUNT_VALUES, (line[0],), where=ask.where)
    count = counted if may_lack else AskedAggregate(Function.COUNT, where=ask.where)
    return AskedAggregate(ask.function, (line[0],), where=ask.where), count, line


def written(column: Node, line: Line, count: Node | None) -> Node:
    """The factor times a released column, plus the shift (for each value, of a sum)."""
    _, factor, shift = line
    if factor != 1:
        column = exp.Mul(this=_number(factor), expression=column)
    if not shift:
        return exp.Paren(this=column)
    more = _number(shift)
    more = more if count is None else exp.Mul(this=more, expression=count)
    return exp.Paren(this=exp.Add(this=column, expression=more))


def _number(value: Fraction) -> Node:
    """An exact constant, as SQL writes it."""
    made = exp.Literal.number(decimal(abs(value)))
    return exp.Paren(this=exp.Neg(this=made)) if value < 0 else made


def without_names(relation: Relation) -> tuple[Relation, dict[str, Expression]]:
    """The relation below columns that are only named anew, and what those names mean there."""
    plain = type(relation) is Project and type(relation.of) is not PerUnit  # it has no names yet
    if type(relation) is Project and plain and all(type(e) is Field for _, e in relation.columns):
        below, names = without_names(relation.of)
        return below, {name: in_terms(each, names) for name, each in relation.columns}
    if type(relation) is Filter:
        below, names = without_names(relation.of)
        condition = in_terms(relation.condition, names)
        if type(below) is Filter:
            condition = Call("and", (*_parts(below.condition), *_parts(condition)))
            below = below.of
        return Filter(below, condition), names
    return relation, {}


def _parts(condition: Expression) -> tuple[Expression, ...]:
    is_and = type(condition) is Call and condition.function == "and"
    return condition.args if is_and else (condition,)  # type: ignore[union-attr]


def in_terms(expression: Expression, names: dict[str, Expression]) -> Expression:
    """The expression with what names mean instead of them."""
    if type(expression) is Field:
        return names.get(expression.name, expression)
    if type(expression) is Call:
        return Call(expression.function, tuple(in_terms(arg, names) for arg in expression.args))
    return expression
