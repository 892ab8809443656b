"""Exact numbers in, certified bounds out.

Parameters and losses are `Fraction`; floats enter through `fraction`, which keeps their decimal
text, so 0.1 means one tenth. Where a root, logarithm or exponential is needed it is computed in
ball arithmetic (Arb, through python-flint), whose results carry a proven error radius, and leaves
this module as an enclosure or rounded in a stated direction. python-flint keeps its working
precision in a process-wide variable, so every evaluation happens under one lock.
"""

from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from threading import RLock
from typing import Any, Final, TypeAlias

from flint import arb, ctx, fmpq

from noisegate.errors import Bug, SpecError

Number: TypeAlias = int | float | str | Decimal | Fraction
Real: TypeAlias = Any  # flint.arb, which ships without types

PRECISION_MAX: Final = 1 << 22
_arb_lock = RLock()


def fraction(value: Number, *, name: str = "value") -> Fraction:
    """The exact number a person meant: decimal text counts, not the nearest double.

    >>> fraction(0.1), fraction("1/3"), fraction("1e-6")
    (Fraction(1, 10), Fraction(1, 3), Fraction(1, 1000000))
    """
    refusal = SpecError(f"{name} is {value!r}.", fix="Give a finite number, such as 0.5 or 1/3.")
    if isinstance(value, bool) or not isinstance(value, (int, float, str, Decimal, Fraction)):
        raise refusal
    if isinstance(value, (int, Fraction)):
        return Fraction(value)
    try:
        text = repr(float(value)) if isinstance(value, float) else str(value)
        if "/" not in text and abs(Decimal(text).adjusted()) > 10_000:
            raise refusal  # "1e999999999" would fill the memory
        return Fraction(text)
    except (ValueError, InvalidOperation, OverflowError, ZeroDivisionError):
        raise refusal from None


def positive(value: Number, *, name: str) -> Fraction:
    """The same, and above zero."""
    exact = fraction(value, name=name)
    if exact <= 0:
        raise SpecError(f"{name} is {value}.", fix=f"Use a {name} above 0.")
    return exact


def real(value: int | Fraction) -> Real:
    """An exact number as a ball at the working precision; only inside a `compute` function."""
    if isinstance(value, int):
        return arb(value)
    return arb(fmpq(value.numerator, value.denominator))


def enclose(compute: Callable[[], Real], *, bits: int) -> tuple[int, int]:
    """Integers around a real number x: ``lo <= x * 2**bits <= hi`` and ``hi - lo <= 2``.

    Claim: the bounds hold for the real number that ``compute`` denotes, whatever precision it is
        evaluated at, because Arb's balls always contain the exact value [Joh17].
    Why: the precision is doubled until the ball is narrower than one unit; the ends are exact
        binary numbers, rounded outwards.

    >>> enclose(lambda: real(1).exp(), bits=10)
    (2783, 2784)
    """
    precision = max(bits, 0) + 64
    while precision <= PRECISION_MAX:
        low, high = _ends(compute, precision)
        lo, hi = _scaled_floor(low, bits), -_scaled_floor((-high[0], high[1]), bits)
        if hi - lo <= 2:
            return lo, hi
        precision *= 2
    raise Bug("A real number could not be enclosed.", fix="Report its formula.")


def lower(compute: Callable[[], Real], *, digits_bits: int = 96) -> Fraction:
    """A rational just below (or equal to) the real number, to about ``digits_bits`` bits."""
    return _rounded(compute, digits_bits)[0]


def upper(compute: Callable[[], Real], *, digits_bits: int = 96) -> Fraction:
    """A rational just above (or equal to) the real number, to about ``digits_bits`` bits.

    >>> float(upper(lambda: real(2).sqrt())), upper(lambda: real(2).sqrt()) ** 2 >= 2
    (1.4142135623730951, True)
    """
    return _rounded(compute, digits_bits)[1]


def exp_up(x: Fraction) -> Fraction:
    """At least e^x."""
    return upper(lambda: real(x).exp())


def exp_down(x: Fraction) -> Fraction:
    """At most e^x."""
    return lower(lambda: real(x).exp())


def log_up(x: Fraction) -> Fraction:
    """At least ln x."""
    return Fraction(0) if x == 1 else upper(lambda: real(x).log())


def log_down(x: Fraction) -> Fraction:
    """At most ln x."""
    return Fraction(0) if x == 1 else lower(lambda: real(x).log())


def sqrt_up(x: Fraction) -> Fraction:
    """At least the square root of x."""
    return Fraction(0) if x == 0 else upper(lambda: real(x).sqrt())


def sqrt_down(x: Fraction) -> Fraction:
    """At most the square root of x."""
    return Fraction(0) if x == 0 else lower(lambda: real(x).sqrt())


def _rounded(compute: Callable[[], Real], digits_bits: int) -> tuple[Fraction, Fraction]:
    """Both ends, with a relative (near zero: absolute) gap of about 2**-digits_bits."""
    precision = digits_bits + 32
    while precision <= PRECISION_MAX:
        (low, low_exp), (high, high_exp) = _ends(compute, precision)
        ends = _dyadic(low, low_exp), _dyadic(high, high_exp)
        size = max(abs(ends[0]), abs(ends[1]), Fraction(1, 1 << digits_bits))
        if (ends[1] - ends[0]) * (1 << digits_bits) <= size:
            return ends
        precision *= 2
    raise Bug("A real number could not be enclosed.", fix="Report its formula.")


def _ends(compute: Callable[[], Real], precision: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """Both ends of the ball as (mantissa, exponent); wider than any bound if it is not finite."""
    with _arb_lock:
        before = ctx.prec
        ctx.prec = precision
        try:
            ball = compute()
            if not ball.is_finite():
                return (-1, precision), (1, precision)
            (low, low_exp), (high, high_exp) = ball.lower().man_exp(), ball.upper().man_exp()
        finally:
            ctx.prec = before
    return (int(low), int(low_exp)), (int(high), int(high_exp))


def _scaled_floor(end: tuple[int, int], bits: int) -> int:
    mantissa, shift = end[0], end[1] + bits
    return mantissa << shift if shift >= 0 else mantissa >> -shift


def _dyadic(mantissa: int, exponent: int) -> Fraction:
    if exponent >= 0:
        return Fraction(mantissa << exponent)
    return Fraction(mantissa, 1 << -exponent)
