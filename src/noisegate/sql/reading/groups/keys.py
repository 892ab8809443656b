"""Keys as multiples of whole numbers: only whole numbers, days, texts and conditions have groups.

FLOOR(x / 2.5) * 2.5 makes the groups of FLOOR(x / 2.5), ROUND(x, 1) those of ROUND(10 * x), and a
decimal those of its last digits. The free SQL multiplies again.
"""

from fractions import Fraction
from math import lcm

from sqlglot import exp

from noisegate.algebra.expression import Call, Expression, Field, Literal, domain_of
from noisegate.algebra.intervals import decimals
from noisegate.algebra.relation import Filter, Project, Relation
from noisegate.algebra.schema import schema_of
from noisegate.privacy.domain import Kind
from noisegate.sql.reading.groups.aggregates import Line, constant_of, line_of, moved, written
from noisegate.sql.reading.values.decimals import exact, scale_of, units
from noisegate.sql.reading.words import Node


def core_of_key(key: Expression, relation: Relation, *, steps: bool = True) -> Expression:
    """The key without the constants that it is multiplied with or moved by: the same groups."""
    return line_of_key(key, relation, steps=steps)[0]


def line_of_key(key: Expression, relation: Relation, *, steps: bool = True) -> Line:
    """The key as factor · core + shift, if the core is a whole number; ``steps``: of any number."""
    if steps and domain_of(key, schema_of(relation)).kind is Kind.NUMBER:
        line = _stepped(key, relation)
        plain = True
    else:
        line = line_of(key)
        plain = line[1].denominator == line[2].denominator == 1
    return line if plain and _is_whole(line[0], relation) else (key, Fraction(1), Fraction(0))


def _is_whole(core: Expression, relation: Relation) -> bool:
    kind = domain_of(core, schema_of(relation)).kind
    return type(core) is not Literal and kind is Kind.INTEGER


def _stepped(number: Expression, relation: Relation) -> Line:
    """A number as factor · core + shift. Steps of any width are counted as SQL counts them."""
    core, factor, shift = line_of(number)
    if type(core) is Literal or _is_whole(core, relation):
        return core, factor, shift
    inner = _of_column(core, relation) if type(core) is Field else _of_call(core, relation)
    return moved(inner, factor, shift)


def _of_call(call: Expression, relation: Relation) -> Line:
    """A number that a function makes in steps."""
    as_it_is = call, Fraction(1), Fraction(0)
    if type(call) is not Call or type(call.args[0]) is Literal:
        return as_it_is
    schema = schema_of(relation)
    of, *rest = call.args
    constants = [constant_of(each) for each in rest]
    if call.function == "to_decimal":
        return _of_decimal(call, relation)
    if call.function == "divide" and constants[0]:
        return moved(_stepped(of, relation), 1 / constants[0], Fraction(0))
    if call.function == "round" and rest:
        step = 1 / Fraction(10) ** int(constants[0] or 0)
        return Call("round", (_per(exact(of, schema), step),)), step, Fraction(0)
    if call.function == "bin" and constants[0]:
        origin = constants[1] if len(rest) > 1 and constants[1] else Fraction(0)
        above = Call("subtract", (of, rest[1])) if origin else of
        return Call("floor", (Call("divide", (above, rest[0])),)), constants[0], origin
    return as_it_is


def _of_decimal(number: Call, relation: Relation) -> Line:
    """A decimal as what it is made of, if that needs no more digits, or else by its last digit."""
    line, scale = _stepped(number.args[0], relation), scale_of(number, schema_of(relation)) or 0
    digits = [decimals(each) for each in line[1:]]
    if _is_whole(line[0], relation) and all(each is not None and each <= scale for each in digits):
        return line
    return units(number, scale), Fraction(1, 10**scale), Fraction(0)


def _of_column(column: Field, relation: Relation) -> Line:
    """A decimal by its last digit; another number by the steps that a sub-query makes of it."""
    scale = scale_of(column, schema_of(relation))
    if scale is not None:
        return units(column, scale), Fraction(1, 10**scale), Fraction(0)
    while type(relation) is Filter:
        relation = relation.of
    if type(relation) is Project:
        meant = dict(relation.columns)[column.name]
        core, factor, shift = line_of_key(meant, relation.of)
        if core != meant and factor:
            above = Call("subtract", (column, Literal(shift))) if shift else column
            return Call("round", (_per(above, factor),)), factor, shift
    return column, Fraction(1), Fraction(0)


def _per(number: Expression, step: Fraction) -> Expression:
    """How many steps a number is."""
    up, down = step.denominator, step.numerator
    number = number if up == 1 else Call("multiply", (number, Literal(up)))
    return number if down == 1 else Call("divide", (number, Literal(down)))


def written_key(column: Node, line: Line) -> Node:
    """A released column times the factor, plus the shift; what is not whole is rounded once."""
    core, factor, shift = line
    per = lcm(factor.denominator, shift.denominator)
    made = written(column, (core, factor * per, shift * per), None)
    if per == 1:
        return made
    by = exp.Literal.number(per)
    return exp.Paren(this=exp.Div(this=made, expression=by, typed=False, safe=False))
