"""Whole numbers beyond 64 bits as DECIMAL(38, 0), for engines without a wider whole number.

Claim: nothing here overflows, whatever the rows are. Why: a sum of 64-bit numbers reaches 10**38
    with 10**19 rows and not before; a sum of sums is no larger; squares are of at most 2**50 and
    there are at most 2**24 of them (`writing/weights.py`), which is below 2**124 < 10**38; products
    of a value of at most 2**62 and a bound of at most 2**60 are below 2**122.
"""

from collections.abc import Mapping
from typing import Final

from sqlglot import exp

from noisegate.sources.writing.words import binary, call, case, cast, chain, number, whole

DECIMAL: Final = "DECIMAL(38, 0)"
MOST: Final = "most"  # of a sum: how far from zero a value can be
_PIECE: Final = 24
_WIDE: Final = frozenset({"HUGEINT", "INT128", "UBIGINT", "UINT64"})


def widened(query: exp.Expr) -> exp.Expr:
    """The statement with its sums and wide numbers as decimals. The tree is used up."""
    held = exp.Paren(this=query)  # so that the whole of it can be replaced, too
    for quotient in list(held.find_all(exp.IntDiv)):
        product = quotient.this.unnest()
        if isinstance(product, exp.Mul) and _is_wide(product.this) and not _is_small(product):
            quotient.replace(_quotient(product, quotient.expression))
    for node in list(held.find_all(exp.Sum)):
        if MOST in node.meta:
            node.replace(_in_pieces(node.this, node.meta[MOST]))
        else:
            node.set("this", exp.Cast(this=node.this, to=exp.DataType.build(DECIMAL)))
    for kind in list(held.find_all(exp.DataType)):
        if kind.this.value in _WIDE:
            kind.replace(exp.DataType.build(DECIMAL))
    for each in held.find_all(exp.CTE):
        each.set("materialized", None)
    found: exp.Expr = held.this
    return found


def bounded(query: exp.Query, table: str, most: Mapping[str, int]) -> exp.Query:
    """Say of the sums of these columns of a table how far from zero a value of each can be."""
    for node in query.find_all(exp.Sum):
        value = node.this
        if isinstance(value, exp.Column) and value.table == table and value.name in most:
            node.meta[MOST] = most[value.name]
    return query


def _in_pieces(value: exp.Expr, most: int) -> exp.Expr:
    """A sum of whole numbers that are at most ``most``, in pieces of 24 bits as BIGINT.

    Claim: no piece overflows for fewer than 2**39 rows, and the sum is exact. Why: all pieces but
        the last are from 0 to 2**24, and the last is what is above them, rounded down.
    """
    if most < 1 << _PIECE:
        return call("SUM", value)
    parts: list[exp.Expr] = []
    for low in range(0, most.bit_length(), _PIECE):
        piece: exp.Expr = exp.paren(value.copy())
        if low:
            piece = exp.BitwiseRightShift(this=piece, expression=exp.Literal.number(low))
        if most >> low >= 1 << _PIECE:
            piece = exp.BitwiseAnd(this=exp.paren(piece), expression=whole((1 << _PIECE) - 1))
        total = exp.Cast(this=call("SUM", piece), to=exp.DataType.build(DECIMAL))
        scale = exp.Cast(this=whole(1 << low), to=exp.DataType.build("DECIMAL(19, 0)"))
        parts.append(binary(exp.Mul, total, scale))
    return chain(exp.Add, parts)


def divided(node: exp.IntDiv) -> exp.Expr:
    """A quotient for engines whose ``/`` is a whole number for whole numbers, and not for decimals.

    Why: what is not said to be a decimal is made BIGINT, since an engine may have made one of it
        (of unsigned and signed numbers). Decimals are divided to some digits more than there are,
        rounded as it may be: without the rest these are 0, and `widened` leaves room for four.
    """
    one, other = exp.Paren(this=node.this), exp.Paren(this=node.expression)
    if not any(kind.this is exp.DType.DECIMAL for kind in node.find_all(exp.DataType)):
        return binary(exp.Div, cast(one, "BIGINT"), cast(other, "BIGINT"))
    even = binary(exp.Sub, one, exp.Mod(this=one.copy(), expression=other.copy()))
    return exp.Cast(this=binary(exp.Div, even, other), to=exp.DataType.build(DECIMAL))


def _is_wide(value: exp.Expr) -> bool:
    return isinstance(value, exp.Cast) and value.to.this.value in _WIDE


def _is_small(product: exp.Mul) -> bool:
    """Whether a value times this bound leaves room for four digits: 2**113 · 10**4 < 2**127."""
    bound = product.expression.unnest()
    literal = bound.this if isinstance(bound, exp.Cast) else None
    return isinstance(literal, exp.Literal) and int(literal.this) <= 1 << 51


def _quotient(product: exp.Expr, divisor: exp.Expr) -> exp.Expr:
    """An exact quotient of at most 2**62, rounded towards zero; the divisor is above zero.

    Why: engines divide decimals with some digits behind the point, and stumble where there is no
        room for these. So most of it is guessed in doubles: both arguments and the quotient round
        by less than one part in 2**52, so that the guess less 2**12 is below the truth, by at most
        2**13. What is left is then of at most 2**13 divisors, below 2**99, and divided exactly.
    """
    one, other = exp.paren(product.this), exp.paren(product.expression)
    size = binary(exp.Mul, call("ABS", one), other)
    below = exp.paren(exp.Cast(this=divisor, to=exp.DataType.build(DECIMAL)))
    nonzero = call("NULLIF", cast(below.copy(), "DOUBLE"), number(0))
    double = binary(exp.Div, cast(size.copy(), "DOUBLE"), nonzero)
    near = cast(call("LEAST", double, number(1 << 62)), "BIGINT")
    first = binary(exp.Sub, near, whole(1 << 12))
    left = binary(exp.Sub, size.copy(), binary(exp.Mul, first, below))
    rest = exp.IntDiv(this=left, expression=call("NULLIF", below.copy(), whole(0)))
    negative = exp.LT(this=one.copy(), expression=whole(0))
    sign = case((negative, whole(-1)), otherwise=whole(1))
    return binary(exp.Mul, exp.paren(sign), binary(exp.Add, first.copy(), exp.paren(rest)))
