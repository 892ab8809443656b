"""Arithmetic: what is known about results. Whole numbers stay whole where none can overflow."""

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from math import inf

from noisegate.algebra.intervals import (
    KEYS_MAX,
    SCALE_MAX,
    TINY,
    End,
    Span,
    corners,
    doubled,
    ends,
    fits,
    hull,
    is_safe,
    is_unknown,
    listed_keys,
    loosened,
    magnitude,
    mapped,
    number,
    over,
    scales,
    whole,
)
from noisegate.algebra.signature import Literals, Rule, any_nullable
from noisegate.errors import Unsupported
from noisegate.privacy.domain import Domain, Key, Kind


def are_whole(args: Sequence[Domain]) -> bool:
    """Whether all are whole numbers."""
    return all(arg.kind is Kind.INTEGER for arg in args)


def arithmetic(
    spans: Callable[[Span, Span], Span],
    value: Callable[[int, int], int],
    scale: Callable[[list[int]], int] = max,
) -> Rule:
    """Add, subtract, multiply: whole where the result fits, else a number; of decimals, one."""

    def rule(args: Sequence[Domain], literals: Literals) -> Domain:
        nullable = any_nullable(args)
        span = spans(ends(args[0]), ends(args[1]))
        if are_whole(args) and fits(span):
            return whole(span, nullable=nullable, keys=_keys(args, literals, value))
        sides = doubled(args[0]), doubled(args[1])
        span, given = spans(*sides), None if are_whole(args) else scales(args)
        exact = None if given is None else scale(given)
        return number(span, nullable=nullable or not is_safe(span), scale=exact)

    return rule


def divide(args: Sequence[Domain], _literals: Literals) -> Domain:
    """Always a number. No value where the divisor is zero or the quotient overflows."""
    top, bottom = doubled(args[0]), doubled(args[1])
    span = over(top, bottom)
    total = is_safe(span) or bottom[0] >= 1 or bottom[1] <= -1
    return number(span, nullable=any_nullable(args) or not total)


def int_divide(args: Sequence[Domain], literals: Literals) -> Domain:
    """The quotient without its fraction. No value where the divisor is zero."""
    top, bottom = ends(args[0]), ends(args[1])
    if not is_whole_division(args):
        return rounded(math.trunc)([divide(args, literals)], [...])
    parts = [
        (low, high)
        for low, high in ((bottom[0], min(bottom[1], Fraction(-1))), (max(bottom[0], 1), bottom[1]))
        if low <= high
    ]
    spans = [corners(_whole_quotient, top, part) for part in parts]
    span = hull(spans or [(Fraction(0), Fraction(0))])
    partial = bottom[0] <= 0 <= bottom[1]
    keys = _keys(args, literals, lambda a, b: None if b == 0 else _whole_quotient(a, b))
    return whole(span, nullable=any_nullable(args) or partial, keys=keys)


def is_whole_division(args: Sequence[Domain]) -> bool:
    """Whether no quotient of whole numbers overflows: only the lowest by −1 would."""
    bottom = ends(args[1])
    return are_whole(args) and (fits(ends(args[0])) or bottom[0] > 0 or bottom[1] < -1)


def modulo(args: Sequence[Domain], literals: Literals) -> Domain:
    """The rest, with the sign of the dividend. No value where the divisor is zero."""
    top, bottom = ends(args[0]), ends(args[1])
    partial = bottom[0] <= 0 <= bottom[1]
    if is_whole_modulo(args):
        most = max(min(magnitude(top), magnitude(bottom) - 1), Fraction(0))
        span = (Fraction(0) if top[0] >= 0 else -most), (Fraction(0) if top[1] <= 0 else most)
        keys = _keys(args, literals, lambda a, b: None if b == 0 else a - b * _whole_quotient(a, b))
        return whole(span, nullable=any_nullable(args) or partial, keys=keys)
    top, bottom = doubled(args[0]), doubled(args[1])
    most = min(magnitude(top), magnitude(bottom))
    span = (Fraction(0) if top[0] >= 0 else -most), (Fraction(0) if top[1] <= 0 else most)
    partial = not (bottom[0] >= TINY or bottom[1] <= -TINY)
    return number(span, nullable=any_nullable(args) or partial)


def is_whole_modulo(args: Sequence[Domain]) -> bool:
    """Whether a rest of whole numbers is safe: the lowest of them has no rest by −1 in engines."""
    bottom = ends(args[1])
    return are_whole(args) and (fits(ends(args[0])) or bottom[0] > -1 or bottom[1] < -1)


def unary(span_of: Callable[[Span], Span], value: Callable[[int], int]) -> Rule:
    """Negate and abs: exact, but the lowest whole number has no opposite."""

    def rule(args: Sequence[Domain], _literals: Literals) -> Domain:
        (arg,) = args
        if arg.kind is Kind.INTEGER and fits(ends(arg)):
            keys = mapped(listed_keys(arg), value)
            return whole(span_of(ends(arg)), nullable=arg.nullable, keys=keys)
        return number(span_of(doubled(arg)), nullable=arg.nullable, scale=arg.scale)

    return rule


def negated(span: Span) -> Span:
    """−x."""
    return -span[1], -span[0]


def absolute(span: Span) -> Span:
    """|x|."""
    low = Fraction(0) if span[0] <= 0 <= span[1] else min(abs(span[0]), abs(span[1]))
    return low, magnitude(span)


def sign(args: Sequence[Domain], _literals: Literals) -> Domain:
    """−1, 0 or 1."""
    span = corners(lambda x, _: Fraction((x > 0) - (x < 0)), ends(args[0]), (0.0, 0.0))
    return whole(span, nullable=args[0].nullable)


def rounded(function: Callable[[End], int]) -> Rule:
    """Floor, ceil, trunc: a whole number where the bounds allow, else a number."""

    def rule(args: Sequence[Domain], _literals: Literals) -> Domain:
        (arg,) = args
        if arg.kind is Kind.INTEGER:
            return arg
        low, high = (end if is_unknown(end) else Fraction(function(end)) for end in doubled(arg))
        make = whole if fits((low, high)) else number
        return make((low, high), nullable=arg.nullable)

    return rule


def round_to(args: Sequence[Domain], literals: Literals) -> Domain:
    """To a number of digits, halves away from zero. Whole without digits, where bounds allow."""
    digits = literals[1] if len(literals) > 1 else 0
    if not -15 <= digits <= 15:
        raise Unsupported("ROUND has too many digits.", fix="Use from -15 to 15 digits.")
    arg = args[0]
    if (arg.kind is Kind.INTEGER and digits >= 0) or len(args) == 1:
        return rounded(_half_away)(args[:1], literals[:1])
    step = Fraction(10) ** -digits
    if arg.kind is Kind.INTEGER and fits(ends(arg)):
        low, high = (int(step) * _half_away(end / step) for end in ends(arg))
        return whole((Fraction(low), Fraction(high)), nullable=arg.nullable)
    low_end, high_end = doubled(arg)
    span = (
        low_end if is_unknown(low_end) else step * math.floor(low_end / step),
        high_end if is_unknown(high_end) else step * math.ceil(high_end / step),
    )
    return number(loosened(span), nullable=arg.nullable)


def to_decimal(args: Sequence[Domain], literals: Literals) -> Domain:
    """The double next to the nearest decimal with so many digits, halves away from zero.

    Each step of it keeps order (times a power of ten, to a whole number, divided again), so ends
    that are such decimals hold.
    """
    digits = literals[1]
    if not 0 <= digits <= SCALE_MAX:
        raise Unsupported(
            f"A decimal has {digits} digits after the point.", fix=f"Use up to {SCALE_MAX}."
        )
    step = Fraction(10) ** -digits
    low, high = doubled(args[0])
    span = (
        low if is_unknown(low) else step * math.floor(_decimal(low, digits) / step),
        high if is_unknown(high) else step * math.ceil(_decimal(high, digits) / step),
    )
    small = not is_unknown(low) and not is_unknown(high) and magnitude(span) < step * (1 << 50)
    return number(span if small else loosened(span), nullable=args[0].nullable, scale=digits)


def _decimal(end: Fraction, digits: int) -> Fraction:
    """The decimal that a double stands for, where it is the nearest to one."""
    near = Fraction(round(end * 10**digits), 10**digits)
    return near if Fraction(float(near)) == end else end


def square_root(args: Sequence[Domain], _literals: Literals) -> Domain:
    """No value below zero."""
    low, high = doubled(args[0])
    span = _root(max(low, 0.0)), _root(max(high, 0.0))
    return number(span, nullable=args[0].nullable or low < 0)


def logarithm(function: Callable[[float], float]) -> Rule:
    """No value at zero and below."""

    def rule(args: Sequence[Domain], _literals: Literals) -> Domain:
        low, high = (
            -inf if end < TINY else end if is_unknown(end) else _exact(function(float(end)))
            for end in doubled(args[0])
        )
        return number(loosened((low, max(low, high))), nullable=args[0].nullable or is_unknown(low))

    return rule


def exponential(args: Sequence[Domain], _literals: Literals) -> Domain:
    """No value where it overflows."""
    low, high = (
        inf if end > 690 else Fraction(0) if end < -690 else _exact(math.exp(end))
        for end in doubled(args[0])
    )
    low = Fraction(0) if is_unknown(low) else low
    return number(loosened((low, high)), nullable=args[0].nullable or is_unknown(high))


def power(args: Sequence[Domain], literals: Literals) -> Domain:
    """No value where it overflows, or has none: a root of a negative, zero to a negative."""
    base, top = doubled(args[0]), doubled(args[1])
    nullable = any_nullable(args)
    span: Span = (-inf, inf)
    if is_safe(base) and top[0] == top[1] and literals[1] in range(65):
        exponent = int(literals[1])
        found = [end**exponent for end in base]
        is_valley = exponent % 2 == 0 and exponent > 0 and base[0] <= 0 <= base[1]
        span = min([*found, Fraction(0)] if is_valley else found), max(found)
    elif is_safe(base) and is_safe(top) and base[0] >= _least_base(top):
        span = corners(_power, base, top)
    return number(loosened(span), nullable=nullable or not is_safe(span))


def bin_of(args: Sequence[Domain], literals: Literals) -> Domain:
    """The lower edge of the bin that x is in. Whole where width and origin are and x is bounded."""
    width = Fraction(literals[1])
    origin = Fraction(literals[2]) if len(literals) > 2 else Fraction(0)
    if width <= 0:
        raise Unsupported("BIN needs a width above 0.", fix="Use BIN(x, 10).", about="width")
    scale = math.lcm(width.denominator, origin.denominator)
    if scale * max(width, abs(origin), Fraction(1)) >= 1 << 52:
        raise Unsupported("The bin width is too large or too fine.", fix="Use fewer digits.")
    low, high = bin_places(args[0], width, origin)
    span = (low * width + origin, high * width + origin)
    if not is_safe(span) or magnitude((low, high)) * width * scale >= 1 << 52:
        return number((-inf, inf), nullable=True)
    step, shift = int(width * scale), int(origin * scale)
    places = range(int(low), int(high) + 1) if high - low < KEYS_MAX else None
    edges = None if places is None else [place * step + shift for place in places]  # in 1 / scale
    if scale == 1:
        return whole(span, nullable=args[0].nullable, keys=edges, listed=False)
    found = number(span, nullable=args[0].nullable)
    keys = None if edges is None else tuple(Fraction(edge, scale) for edge in edges)
    return Domain(
        kind=found.kind, low=found.low, high=found.high, nullable=found.nullable,
        keys=keys,  # type: ignore[arg-type]
    )  # fmt: skip


def bin_places(x: Domain, width: Fraction, origin: Fraction) -> Span:
    """The numbers of the first and the last bin, in the engine's own steps of doubles."""
    scale = math.lcm(width.denominator, origin.denominator)
    shift, step = float(origin * scale), float(width * scale)
    low, high = (
        end if is_unknown(end) else _floor((float(end) * scale - shift) / step)
        for end in doubled(x)
    )
    return low, high


def _keys(
    args: Sequence[Domain], literals: Literals, value: Callable[[int, int], int | None]
) -> list[Key] | None:
    """The groups of a result with one constant side follow from the groups of the other."""
    left, right = literals
    if type(right) is int:
        return mapped(listed_keys(args[0]), lambda key: value(key, right))
    if type(left) is int:
        return mapped(listed_keys(args[1]), lambda key: value(left, key))
    return None


def _whole_quotient(a: End, b: End) -> End:
    if is_unknown(b) or is_unknown(a):
        return 0 if is_unknown(b) else a if b > 0 else -a
    return math.trunc(Fraction(a) / Fraction(b))


def _half_away(x: End) -> int:
    size: int = math.floor(abs(x) + Fraction(1, 2))
    return size if x >= 0 else -size


def _floor(x: float) -> End:
    return x if is_unknown(x) else Fraction(math.floor(x))


def _root(x: End) -> End:
    return x if is_unknown(x) else Fraction(math.sqrt(x))


def _power(x: End, y: End) -> End:
    try:
        return _exact(math.pow(x, y))
    except OverflowError:
        return inf


def _least_base(top: Span) -> Fraction:
    return Fraction(0) if top[0] >= 0 else TINY


def _exact(x: float) -> End:
    return x if is_unknown(x) else Fraction(x)
