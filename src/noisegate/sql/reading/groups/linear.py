"""What is the same up to constants is measured once: SUM(x + 1), SUM(2 * x), a shifted key."""

from collections.abc import Iterable
from fractions import Fraction
from typing import Final, TypeAlias

from sqlglot import exp

from noisegate.algebra.expression import Call, Expression, Field, Literal, Schema, domain_of
from noisegate.algebra.intervals import decimals
from noisegate.algebra.relation import Filter, PerUnit, Project, Relation
from noisegate.privacy.domain import Kind
from noisegate.sql.question import Function
from noisegate.sql.reading.groups.aggregates import Asked
from noisegate.sql.reading.words import Node
from noisegate.sql.spelling import decimal

Line: TypeAlias = tuple[Expression, Fraction, Fraction]  # core, factor, shift
Core: TypeAlias = tuple[Expression, Expression | None]  # and FILTER
_LINEAR: Final = (Function.SUM, Function.AVG)


def line_of(expression: Expression) -> Line:  # noqa: PLR0911 - one case after the other
    """The expression as factor · core + shift, with constants as far outside as they go."""
    if type(expression) is not Call:
        return expression, Fraction(1), Fraction(0)
    first = expression.args[0]
    second = expression.args[1] if len(expression.args) == 2 else first
    left, right = _constant(first), _constant(second)
    if expression.function == "negate":
        return _moved(line_of(first), Fraction(-1), Fraction(0))
    if expression.function in ("add", "subtract") and right is not None:
        sign = 1 if expression.function == "add" else -1
        return _moved(line_of(first), Fraction(1), sign * right)
    if expression.function == "add" and left is not None:
        return _moved(line_of(second), Fraction(1), left)
    if expression.function == "subtract" and left is not None:
        return _moved(line_of(second), Fraction(-1), left)
    if expression.function == "multiply" and (left or right):
        constant, other = (left, second) if left else (right, first)
        return _moved(line_of(other), constant or Fraction(1), Fraction(0))
    return expression, Fraction(1), Fraction(0)


def _moved(line: Line, factor: Fraction, shift: Fraction) -> Line:
    core, inner, moved = line
    return core, factor * inner, factor * moved + shift


def _constant(expression: Expression) -> Fraction | None:
    value = expression.value if type(expression) is Literal else None
    return Fraction(value) if type(value) in (int, Fraction) else None  # type: ignore[arg-type]


def shared_cores(asked: Iterable[Asked]) -> frozenset[Core]:
    """What several sums or averages are lines of."""
    seen: dict[Core, set[Expression]] = {}
    for ask in asked:
        if ask.function in _LINEAR:
            core, factor, shift = line_of(ask.args[0])
            if decimals(factor) is not None and decimals(shift) is not None:
                seen.setdefault((core, ask.where), set()).add(ask.args[0])
    return frozenset(core for core, of in seen.items() if len(of) > 1)


def on_line(
    ask: Asked, shared: frozenset[Core], schema: Schema
) -> tuple[Asked, Asked, Line] | None:
    """Of a sum or average that shares its core: that of the core, and how many values there are."""
    if ask.function not in _LINEAR:
        return None
    line = line_of(ask.args[0])
    if (line[0], ask.where) not in shared:
        return None
    may_lack = domain_of(line[0], schema).may_lack
    counted = Asked(Function.COUNT_VALUES, (line[0],), where=ask.where)
    count = counted if may_lack else Asked(Function.COUNT, where=ask.where)
    return Asked(ask.function, (line[0],), where=ask.where), count, line


def written(column: Node, line: Line, count: Node | None) -> Node:
    """The factor times a released column, plus the shift (for each value, of a sum)."""
    _, factor, shift = line
    if factor != 1:
        column = exp.Mul(this=_number(factor), expression=column)
    if not shift:
        return exp.Paren(this=column)
    moved = _number(shift)
    more = moved if count is None else exp.Mul(this=moved, expression=count)
    return exp.Paren(this=exp.Add(this=column, expression=more))


def _number(value: Fraction) -> Node:
    """An exact constant, as SQL writes it."""
    made = exp.Literal.number(decimal(abs(value)))
    return exp.Paren(this=exp.Neg(this=made)) if value < 0 else made


def core_of_key(key: Expression, schema: Schema) -> Expression:
    """The key without whole numbers that it is multiplied with or moved by: the same groups."""
    core, factor, shift = line_of(key)
    plain = factor.denominator == shift.denominator == 1 and type(core) is not Literal
    kinds = {domain_of(each, schema).kind for each in (core,)}
    return core if plain and kinds == {Kind.INTEGER} else key


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
