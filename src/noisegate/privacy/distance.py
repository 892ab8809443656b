"""How far apart two exact answers can be: sensitivities that cannot be confused with each other."""

from fractions import Fraction
from typing import final

from noisegate.errors import SpecError
from noisegate.exact import Number, fraction
from noisegate.frozen import dataclass


@final
@dataclass(frozen=True, slots=True, order=True)
class L1:
    """Largest sum of absolute changes of the answer when one unit is added or removed."""

    value: Fraction

    def __init__(self, value: Number) -> None:
        object.__setattr__(self, "value", _not_negative(value, "L1 sensitivity"))


@final
@dataclass(frozen=True, slots=True, order=True)
class L2:
    """Largest Euclidean change, kept as its exact square so that no root is ever rounded."""

    squared: Fraction

    def __init__(self, *, squared: Number) -> None:
        object.__setattr__(self, "squared", _not_negative(squared, "squared L2 sensitivity"))


@final
@dataclass(frozen=True, slots=True, order=True)
class LInf1:
    """Largest sum, over cells of numbers, of the largest change in the cell."""

    value: Fraction

    def __init__(self, value: Number) -> None:
        object.__setattr__(self, "value", _not_negative(value, "sensitivity of cells"))


def _not_negative(value: Number, name: str) -> Fraction:
    exact = fraction(value, name=name)
    if exact < 0:
        raise SpecError(f"{name} is {value}.", fix="A distance is at least 0.")
    return exact
