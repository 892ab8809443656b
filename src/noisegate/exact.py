"""Exact numbers in, certified bounds out.

Parameters and losses are `Fraction`; floats enter through `fraction`, which keeps their decimal
text, so 0.1 means one tenth. Where a root, logarithm or exponential is needed it is computed in
ball arithmetic (Arb, through python-flint), whose results carry a proven error radius, and leaves
this module as an enclosure or rounded in a stated direction. python-flint keeps its working
precision in a process-wide variable, so every evaluation happens under one lock.
"""

import os
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from numbers import Rational
from numbers import Real as AnyReal
from threading import RLock
from typing import Any, Final, TypeAlias

from flint import arb, ctx, fmpq

from noisegate.errors import Bug, SpecError

Number: TypeAlias = int | float | str | Decimal | Fraction
Real: TypeAlias = Any  # flint.arb, which ships without types

EXACT_MAX: Final = 1 << 53  # whole numbers up to here are doubles
PRECISION_MAX: Final = 1 << 22
EXPONENT_MAX: Final = 1 << 20
DIGITS_BITS_MAX: Final = 14_000  # numbers that Python still writes out as text
_arb_lock = RLock()


def _renew_lock() -> None:
    """A child process must not wait for a thread that exists only in its parent."""
    global _arb_lock  # noqa: PLW0603 - rebound right after a fork, before any other thread exists
    _arb_lock = RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_lock)


def fraction(value: Number, *, name: str = "value") -> Fraction:
    """The exact number a person meant: decimal text counts, not the nearest double.

    >>> fraction(0.1), fraction("1/3"), fraction("1e-6")
    (Fraction(1, 10), Fraction(1, 3), Fraction(1, 1000000))
    """
    if isinstance(value, bool) or not isinstance(value, (int, Fraction, str, AnyReal, Decimal)):
        raise _not_a_number(value, name)
    try:
        if isinstance(value, (int, Fraction, Rational)):  # the first two need no look at a registry
            exact = Fraction(int(value.numerator), int(value.denominator))
        else:
            text = str(value)
            if "/" not in text and abs(Decimal(text).adjusted()) > 4_200:
                raise _not_a_number(value, name)  # "1e999999999" would fill the memory
            exact = Fraction(text)
    except (ValueError, InvalidOperation, OverflowError, ZeroDivisionError):
        raise _not_a_number(value, name) from None
    if max(exact.numerator.bit_length(), exact.denominator.bit_length()) > DIGITS_BITS_MAX:
        raise _not_a_number(value, name)
    return exact


def positive(value: Number, *, name: str) -> Fraction:
    """The same, and above zero."""
    exact = fraction(value, name=name)
    if exact <= 0:
        raise SpecError(
            f"{name} is {shown(exact)}.", fix=f"Give {name} a value above 0.", about="positive"
        )
    return exact


def shown(value: object) -> str:
    """A short text for a message, also for numbers of thousands of digits."""
    try:
        text = str(value)
    except ValueError:
        return "a number of thousands of digits"
    return text if len(text) <= 80 else f"{text[:60]}…"


def _not_a_number(value: object, name: str) -> SpecError:
    fix = "Give a finite number, such as 0.5 or 1/3."
    return SpecError(f"{name} is {shown(value)!r}.", fix=fix, about="number")


def real(value: int | Fraction) -> Real:
    """An exact number as a ball at the working precision; only inside a `compute` function."""
    if isinstance(value, int):
        return arb(value)
    return arb(fmpq(value.numerator, value.denominator))


def multiples(value: Fraction) -> Callable[[int], Real]:
    """``real(times * value)`` for whole ``times``: the fraction is read once, and not reduced anew.

    A law of noise is asked about hundreds of multiples of one number, and Python's fractions take
    longer over them than Arb over all else.
    """
    exact = fmpq(value.numerator, value.denominator)
    return lambda times: arb(times * exact)


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
        ends = _ends(compute, precision)
        if ends is not None:
            (low, low_exp), (high, high_exp) = ends
            lo, hi = _scaled_floor(low, low_exp + bits), -_scaled_floor(-high, high_exp + bits)
            if hi - lo <= 2:
                return lo, hi
        precision *= 2
    raise Bug("A real number could not be enclosed.", fix="Report its formula.", about="enclosure")


def progression(
    first: Callable[[], Real], ratio: Callable[[], Real], bend: Callable[[], Real] | None = None,
    *, count: int, bits: int, summed: bool = False,
) -> list[tuple[int, int]]:  # fmt: skip
    """Enclosures, as `enclose` gives them, of x, x r, x r² s, x r³ s³, … or of their partial sums.

    Claim: where x, r, s and sums are from 0 to 1, so are the ends, and hi - lo <= 2.
    Why: ends are multiplied as whole numbers of more bits, rounded outwards. After n steps those of
        a ratio are at most 4 n + 2 units apart, of a term 3 (n + 1)², of a sum (n + 2)³.

    >>> progression(lambda: real(1) / 2, lambda: real(1) / 2, count=3, bits=4, summed=True)
    [(8, 8), (12, 12), (14, 14)]
    """
    fine = bits + (more := 3 * (count + 2).bit_length() + 24)
    (low, high), (low_ratio, high_ratio) = enclose(first, bits=fine), enclose(ratio, bits=fine)
    low_bend, high_bend = (1 << fine,) * 2 if bend is None else enclose(bend, bits=fine)
    found, below, above, most = [], 0, 0, 1 << bits
    for _ in range(count):
        below, above = (below + low, above + high) if summed else (low, high)
        found.append((below >> more, min(-(-above >> more), most)))
        low, high = low * low_ratio >> fine, -(-high * high_ratio >> fine)
        low_ratio, high_ratio = low_ratio * low_bend >> fine, -(-high_ratio * high_bend >> fine)
    return found


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
        ends = _ends(compute, precision)
        if ends is not None:
            low, high = _dyadic_down(*ends[0]), -_dyadic_down(-ends[1][0], ends[1][1])
            size = max(abs(low), abs(high), Fraction(1, 1 << digits_bits))
            if (high - low) * (1 << digits_bits) <= size:
                return low, high
        precision *= 2
    raise Bug("A real number could not be enclosed.", fix="Report its formula.", about="enclosure")


def _ends(
    compute: Callable[[], Real], precision: int
) -> tuple[tuple[int, int], tuple[int, int]] | None:
    """Both ends of the ball as (mantissa, exponent); None if the ball is not finite."""
    with _arb_lock:
        before = ctx.prec
        ctx.prec = precision
        try:
            ball = compute()
            if not ball.is_finite():
                return None
            (low, low_exp), (high, high_exp) = ball.lower().man_exp(), ball.upper().man_exp()
        finally:
            ctx.prec = before
    return (int(low), int(low_exp)), (int(high), int(high_exp))


def _scaled_floor(mantissa: int, exponent: int) -> int:
    return mantissa << exponent if exponent >= 0 else mantissa >> -exponent


def _dyadic_down(mantissa: int, exponent: int) -> Fraction:
    """At most mantissa · 2**exponent: numbers nearer to 0 than 2**-EXPONENT_MAX are cut."""
    if mantissa.bit_length() + exponent > EXPONENT_MAX:
        raise SpecError("A number is far outside the usable range.", fix="Use smaller parameters.")
    if exponent >= 0:
        return Fraction(mantissa << exponent)
    if exponent < -EXPONENT_MAX:
        mantissa, exponent = mantissa >> (-exponent - EXPONENT_MAX), -EXPONENT_MAX
    return Fraction(mantissa, 1 << -exponent)
