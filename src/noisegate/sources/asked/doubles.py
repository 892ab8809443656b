"""Steps on doubles and texts that engines say in one way, whatever their own functions mean."""

from collections.abc import Sequence
from fractions import Fraction
from math import lcm
from typing import Final

from sqlglot import exp

from noisegate.privacy.domain import Domain, Kind
from noisegate.sources.writing.dialect import Args
from noisegate.sources.writing.words import and_, as_kind, binary, call, case, cast, number

_WHOLE: Final = number(Fraction(1 << 52))  # all doubles from here on are whole
_BEYOND: Final = number(Fraction(1 << 63))


def one_zero(value: exp.Expr) -> exp.Expr:
    """The value with one zero, not two."""
    return binary(exp.Add, value, number(Fraction(0)))


def not_zero(value: exp.Expr) -> exp.Expr:
    """NULL instead of a zero of either sign."""
    some = exp.GT(this=call("ABS", value.copy()), expression=number(Fraction(0)))
    return exp.paren(case((some, value)))


def finite(value: exp.Expr) -> exp.Expr:
    """Whether a double is neither NaN, wherever the engine sorts it, nor infinite."""
    low, high = (
        exp.Cast(this=exp.Literal.string(name), to=exp.DataType.build("DOUBLE"))
        for name in ("-Infinity", "Infinity")
    )
    above = exp.GT(this=exp.paren(value), expression=low)
    return exp.paren(and_(above, exp.LT(this=exp.paren(value.copy()), expression=high)))


def cut(value: exp.Expr) -> exp.Expr:
    """The whole part of a double."""
    part = cast(cast(value.copy(), "BIGINT", may_fail=True), "DOUBLE")
    return case((_is_small(value), part), otherwise=value)


def to_even(value: exp.Expr) -> exp.Expr:
    """The nearest whole double, halves to even: next to 2**52, doubles are 1 apart."""
    up = binary(exp.Sub, binary(exp.Add, value.copy(), _WHOLE.copy()), _WHOLE.copy())
    down = binary(exp.Add, binary(exp.Sub, value.copy(), _WHOLE.copy()), _WHOLE.copy())
    above = exp.GTE(this=exp.paren(value.copy()), expression=number(Fraction(0)))
    return case((_is_small(value), case((above, up), otherwise=down)), otherwise=value)


def rounded(value: exp.Expr) -> exp.Expr:
    """The nearest whole double, halves away from zero."""
    return call("ROUND", value)


def lower_whole(value: exp.Expr) -> exp.Expr:
    """The next whole double below."""
    part = cut(value)
    less = binary(exp.Sub, part.copy(), number(1))
    return case(
        (exp.LT(this=exp.paren(value.copy()), expression=part), less), otherwise=part.copy()
    )


def upper_whole(value: exp.Expr) -> exp.Expr:
    """The next whole double above."""
    part = cut(value)
    more = binary(exp.Add, part.copy(), number(1))
    return case(
        (exp.GT(this=exp.paren(value.copy()), expression=part), more), otherwise=part.copy()
    )


def whole_of(value: exp.Expr) -> exp.Expr:
    """A double as BIGINT, halves to even; NULL beyond 64 bits."""
    below = exp.LT(this=exp.paren(value.copy()), expression=_BEYOND.copy())
    above = exp.GTE(this=exp.paren(value.copy()), expression=number(Fraction(-(1 << 63))))
    return case((and_(above, below), cast(to_even(value), "BIGINT", may_fail=True)))


def to_digits(value: exp.Expr, digits: int) -> exp.Expr:
    """As DuckDB does it: times a power of ten, to the nearest whole number, and divided again.

    Where the product is infinite the number itself is as near.
    """
    power = number(10 ** abs(digits))
    if digits < 0:
        steps = rounded(binary(exp.Div, value, power))
        found, otherwise = binary(exp.Mul, steps, power.copy()), number(0)
    else:
        steps = rounded(binary(exp.Mul, value, power))
        found, otherwise = binary(exp.Div, steps, power.copy()), value.copy()
    return one_zero(case((finite(found), found.copy()), (finite(value.copy()), otherwise)))


def bin_of(args: Args, made: Domain) -> exp.Expr:
    """In whole steps of the common denominator, so that an edge is the double nearest to it."""
    width = Fraction(args[1].literal)
    origin = Fraction(args[2].literal) if len(args) > 2 else Fraction(0)
    scale = lcm(width.denominator, origin.denominator)
    step, shift = number(width * scale), number(origin * scale)
    scaled = binary(exp.Mul, as_kind(args[0], Kind.NUMBER), number(scale))
    place = lower_whole(binary(exp.Div, binary(exp.Sub, scaled, shift), step))
    edge = binary(exp.Add, binary(exp.Mul, place, step.copy()), shift.copy())
    if made.kind is Kind.INTEGER:
        return cast(edge, "BIGINT", may_fail=True)
    return one_zero(binary(exp.Div, edge, number(scale)))


def pattern(said: str, escape: str | None, sign: str | None = None) -> tuple[str, str]:
    """A pattern of LIKE, escaped only where it must be, by a letter that it does not have.

    Or by ``sign``, which is then escaped, too.
    """
    parts: list[tuple[str, bool]] = []
    letters = iter(said)
    for letter in letters:
        quoted = letter == escape
        parts.append((next(letters, "") if quoted else letter, not quoted))
    sign = sign or next(each for each in _signs() if each not in said)
    marked = (
        f"{sign}{letter}" if letter == sign or (letter in ("%", "_") and not special) else letter
        for letter, special in parts
    )
    return "".join(marked), sign


def _signs() -> Sequence[str]:
    return [chr(code) for code in range(0x21, 0x7F) if chr(code) not in "%_\\'\""]


def _is_small(value: exp.Expr) -> exp.Expr:
    return exp.LT(this=call("ABS", value.copy()), expression=_WHOLE.copy())
