"""Double arithmetic that never fails: Postgres raises where a result overflows or underflows.

Claim: each step gives the double that IEEE 754 rounds to, NULL where that is infinite or there is
    none, and raises nothing. A result that rounds to zero is 0; within one part in 2**53 of
    2**-1075, half of the least double, it may be 0 where IEEE 754 has that least double.
Why: Postgres computes with the machine's doubles and then looks whether a finite operation became
    infinite, or a product or quotient of numbers that are not zero became zero. Both are ruled out
    before: where arguments are moderate nothing can happen; elsewhere the same operation on
    arguments that are scaled by powers of two, which is exact, tells where the result would lie.
    CASE runs no branch but the one it takes; what a planner computes beforehand are constants, and
    a condition of constants is decided first.
"""

from collections.abc import Callable
from fractions import Fraction

from sqlglot import exp

from noisegate.sources.writing.words import and_, as_, binary, case, cast, col, number, within

Two = Callable[[exp.Expr, exp.Expr], exp.Expr]


def power(exponent: int) -> exp.Expr:
    """A power of two."""
    return number(Fraction(2) ** exponent)


def finite(value: exp.Expr) -> exp.Expr:
    """Whether a double is neither NaN, which comes after all others here, nor infinite."""
    low, high = (_special(name) for name in ("-Infinity", "Infinity"))
    above = exp.GT(this=exp.paren(value), expression=low)
    return exp.paren(and_(above, exp.LT(this=exp.paren(value.copy()), expression=high)))


def added(one: exp.Expr, other: exp.Expr, operator: type[exp.Expr], *, safe: bool) -> exp.Expr:
    """A sum or a difference; ``safe`` where bounds rule out that it overflows."""
    if safe:
        return binary(operator, one, other)

    def large(x: exp.Expr, y: exp.Expr) -> exp.Expr:
        halves = (binary(exp.Mul, each.copy(), power(-1)) for each in (x, y))
        half = _size(binary(operator, *halves))
        tiny = exp.LT(this=_least(x, y), expression=power(0))
        beyond = exp.GTE(this=half, expression=power(1023))
        return case(
            (tiny, binary(operator, x, y)),  # it changes nothing of a number near the last
            (beyond, exp.null()),
            otherwise=binary(operator, x, y),
        )

    limit = power(1022)
    small = and_(*(exp.LT(this=_size(each), expression=limit.copy()) for each in (one, other)))
    return case((small, binary(operator, one, other)), otherwise=_bound(large, one, other))


def multiplied(one: exp.Expr, other: exp.Expr, *, safe: bool, coarse: bool) -> exp.Expr:
    """A product; ``coarse`` where one of the two is always 0 or at least 1 in size."""
    if safe and coarse:
        return binary(exp.Mul, one, other)

    def odd(x: exp.Expr, y: exp.Expr) -> exp.Expr:
        high, low = _most(x, y), _least(x, y)
        product = binary(exp.Mul, x, y)
        up = binary(exp.Mul, binary(exp.Mul, high, power(-600)), low)  # only of 2**500 and more
        down = binary(exp.Mul, binary(exp.Mul, low, power(600)), high)
        overflow = case((exp.GTE(this=up, expression=power(424)), exp.null()), otherwise=product)
        vanish = case((exp.LTE(this=down, expression=power(-475)), number(0)), otherwise=product)
        return case(
            (_missing(x, y), exp.null()),
            (exp.EQ(this=low, expression=number(0)), number(0)),
            (exp.GTE(this=low, expression=power(512)), exp.null()),
            (exp.LTE(this=high, expression=power(-538)), number(0)),
            (and_(_at_least(high, 500), _at_least(low, 0)), overflow),
            (exp.LTE(this=high, expression=power(0)), vanish),
            otherwise=product,
        )

    usual = binary(exp.Mul, one, other)
    return case((_moderate(one, other), usual), otherwise=_bound(odd, one, other))


def divided(top: exp.Expr, bottom: exp.Expr, *, plain: bool) -> exp.Expr:
    """A quotient; NULL by zero. ``plain`` where no other quotient overflows or underflows."""
    zero = number(0)
    if plain:
        return _quotient(top, exp.Nullif(this=bottom, expression=zero))

    def odd(x: exp.Expr, y: exp.Expr) -> exp.Expr:
        a, b, quotient = _size(x), _size(y), _quotient(x, y)
        up = _quotient(binary(exp.Mul, a, power(-540)), binary(exp.Mul, b, power(540)))
        down = _quotient(binary(exp.Mul, a, power(540)), binary(exp.Mul, b, power(-540)))
        overflow = case((exp.GTE(this=up, expression=power(-56)), exp.null()), otherwise=quotient)
        vanish = case((exp.LTE(this=down, expression=power(5)), zero), otherwise=quotient)
        far = binary(exp.Mul, b, power(900))
        near = binary(exp.Mul, b, power(-900))
        below = case((exp.GTE(this=a, expression=far), overflow), otherwise=quotient)
        above = case((exp.LTE(this=a, expression=near), vanish), otherwise=quotient)
        return case(
            (_missing(x, y), exp.null()),
            (exp.EQ(this=b, expression=zero), exp.null()),
            (exp.EQ(this=a, expression=zero), zero),
            (exp.LT(this=b, expression=power(0)), below),
            otherwise=above,
        )

    usual = _quotient(top, bottom)
    return case((_moderate(top, bottom), usual), otherwise=_bound(odd, top, bottom))


def whole_quotient(top: exp.Expr, bottom: exp.Expr) -> exp.Expr:
    """A quotient of whole numbers of 64 bits, cut off: DIV would make decimals of them."""
    return _quotient(*(cast(exp.paren(each), "BIGINT") for each in (top, bottom)))


def rounded(value: exp.Expr) -> exp.Expr:
    """The nearest whole number, halves away from zero: what is cut off is exact."""

    def away(x: exp.Expr, _: exp.Expr) -> exp.Expr:
        cut = exp.Anonymous(this="TRUNC", expressions=[x])
        rest = _size(binary(exp.Sub, x, cut))
        more = binary(exp.Add, cut, exp.Anonymous(this="SIGN", expressions=[x]))
        return case((exp.GTE(this=rest, expression=power(-1)), more), otherwise=cut)

    return _bound(away, value, number(0))


def exponential(value: exp.Expr) -> exp.Expr:
    """Its power of e: 0 below what doubles hold, NULL above."""
    low, high = -745.1332191019411, 709.782712893384
    return case(
        (exp.GT(this=value, expression=number(Fraction(high))), exp.null()),
        (exp.LT(this=value.copy(), expression=number(Fraction(low))), number(0)),
        otherwise=exp.Anonymous(this="EXP", expressions=[value.copy()]),
    )


def _special(name: str) -> exp.Expr:
    return exp.Cast(this=exp.Literal.string(name), to=exp.DataType.build("DOUBLE"))


def _quotient(top: exp.Expr, bottom: exp.Expr) -> exp.Expr:
    quotient = exp.Div(this=top.copy(), expression=bottom.copy(), typed=True, safe=False)
    return exp.paren(quotient, copy=False)


def _size(value: exp.Expr) -> exp.Expr:
    return exp.Abs(this=value.copy())


def _most(one: exp.Expr, other: exp.Expr) -> exp.Expr:
    return exp.Anonymous(this="GREATEST", expressions=[_size(one), _size(other)])


def _least(one: exp.Expr, other: exp.Expr) -> exp.Expr:
    return exp.Anonymous(this="LEAST", expressions=[_size(one), _size(other)])


def _at_least(value: exp.Expr, exponent: int) -> exp.Expr:
    return exp.GTE(this=value.copy(), expression=power(exponent))


def _missing(one: exp.Expr, other: exp.Expr) -> exp.Expr:
    return exp.or_(*(exp.Is(this=each.copy(), expression=exp.null()) for each in (one, other)))


def _moderate(one: exp.Expr, other: exp.Expr) -> exp.Expr:
    """Whether both are far from where a product or a quotient could leave the doubles."""
    return and_(*(within(_size(each), power(-500), power(500)) for each in (one, other)))


def _bound(step: Two, one: exp.Expr, other: exp.Expr) -> exp.Expr:
    """The step on two values that are computed once: OFFSET keeps the planner from copying them."""
    values = exp.select(as_(one.copy(), "x"), as_(other.copy(), "y"), copy=False)
    values = values.offset(0, copy=False)
    query = exp.select(step(col("x", "q"), col("y", "q")), copy=False)
    return query.from_(values.subquery("q", copy=False), copy=False).subquery(copy=False)
