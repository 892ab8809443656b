"""Interval arithmetic for the forms of SQL that error bars can follow.

An interval is a pair of arrays, one end for each row; NaN is an unknown end and stays unknown.
"""

from collections.abc import Callable, Mapping
from functools import reduce
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray
from sqlglot import exp

Array: TypeAlias = NDArray[np.float64]
Ends: TypeAlias = tuple[Array, Array]
Rule: TypeAlias = Callable[..., Ends]

TWO_SIDED: Final = (exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Greatest, exp.Least)  # noise anywhere
KEEPING: Final = (exp.Paren, exp.Neg, exp.Nullif, exp.Coalesce)  # as wide as their first operand
_WHOLE: Final = frozenset(
    exp.DataType.Type[name] for name in ("TINYINT", "SMALLINT", "INT", "BIGINT", "INT128")
)


def rule_of(node: exp.Expr) -> Rule | None:
    """The rule that makes the ends of an expression from those of its operands; None: no rule.

    Outside `TWO_SIDED` only the first operand may be noisy; the others are exact.
    """
    if isinstance(node, exp.Cast):
        return _cast(node.to)
    return _RULES.get(type(node))


def _add(a: Ends, b: Ends) -> Ends:
    return a[0] + b[0], a[1] + b[1]


def _negative(a: Ends) -> Ends:
    return -a[1], -a[0]


def _multiply(a: Ends, b: Ends) -> Ends:
    corners = [x * y for x in a for y in b]
    return reduce(np.minimum, corners), reduce(np.maximum, corners)


def _divide(a: Ends, b: Ends) -> Ends:
    """The divisor must be clear of 0."""
    clear = (b[0] > 0) | (b[1] < 0)
    return _multiply(a, (np.where(clear, 1 / b[1], np.nan), np.where(clear, 1 / b[0], np.nan)))


def _absolute(a: Ends) -> Ends:
    return np.maximum(np.maximum(a[0], -a[1]), 0.0), np.maximum(-a[0], a[1])


def _rounded(a: Ends, digits: Ends | None = None) -> Ends:
    """Half away from 0, as the engine rounds; rounding keeps the order of the ends."""
    unit = 10.0 ** -(digits[0] if digits is not None else np.zeros(1))
    low, high = (np.copysign(np.floor(np.abs(end) / unit + 0.5) * unit, end) for end in a)
    return low, high


def _each_end(rising: Callable[..., Array]) -> Rule:
    """A function that rises in all its operands: its ends are those of its operands' ends."""
    return lambda *all_ends: (
        reduce(rising, [ends[0] for ends in all_ends]),
        reduce(rising, [ends[1] for ends in all_ends]),
    )


def _keep(a: Ends, *_: Ends) -> Ends:
    return a


def _cast(kind: exp.DataType) -> Rule | None:
    if kind.this in _WHOLE:
        return _rounded
    if kind.this == exp.DataType.Type.DOUBLE:
        return _keep
    if kind.this == exp.DataType.Type.DECIMAL and len(kind.expressions) == 2:
        digits = np.array([float(kind.expressions[1].name)])
        return lambda a: _rounded(a, (digits, digits))
    return None


_RULES: Final[Mapping[type[exp.Expr], Rule]] = {
    exp.Paren: _keep,
    exp.Nullif: _keep,
    exp.Coalesce: _keep,
    exp.Neg: _negative,
    exp.Abs: _absolute,
    exp.Add: _add,
    exp.Sub: lambda a, b: _add(a, _negative(b)),
    exp.Mul: _multiply,
    exp.Div: _divide,
    exp.Greatest: _each_end(np.maximum),
    exp.Least: _each_end(np.minimum),
    exp.Round: _rounded,
    exp.Floor: lambda a: (np.floor(a[0]), np.floor(a[1])),
    exp.Ceil: lambda a: (np.ceil(a[0]), np.ceil(a[1])),
}
