"""Bisection on certified tests, and decimals of twelve digits in a stated direction."""

from collections.abc import Callable
from fractions import Fraction
from typing import Final

DIGITS: Final = 12
_STEPS: Final = 44  # halvings of a factor of two: finer than twelve digits


def least(holds: Callable[[Fraction], bool], *, guess: Fraction) -> Fraction:
    """The least positive number for which a rising test holds, from above, to twelve digits."""
    return digits_up(_bracket(holds, guess)[1])


def largest(holds: Callable[[Fraction], bool], *, guess: Fraction) -> Fraction:
    """The largest positive number for which a falling test holds, from below, to twelve digits."""
    return digits_down(_bracket(lambda value: not holds(value), guess)[0])


def _bracket(holds: Callable[[Fraction], bool], guess: Fraction) -> tuple[Fraction, Fraction]:
    low = high = digits_up(guess)
    while not holds(high):
        low, high = high, 2 * high
    while holds(low):
        low, high = low / 2, low
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return low, high


def digits_up(value: Fraction, digits: int = DIGITS) -> Fraction:
    """The next decimal of so many significant digits towards plus infinity."""
    return -digits_down(-value, digits)


def digits_down(value: Fraction, digits: int = DIGITS) -> Fraction:
    """The next decimal of so many significant digits towards minus infinity."""
    if value == 0:
        return value
    size = len(str(abs(value.numerator))) - len(str(value.denominator))
    grid = Fraction(10) ** (size - digits)
    return (value // grid) * grid
