"""Released tables, and items of the free SQL on them: how the ends of each follow.

An item needs hidden columns beside what is shown: see `following.py`. Its ends follow by interval
arithmetic for the forms of SQL that error bars can follow: an interval is a pair of arrays, one end
for each row; NaN is an unknown end and stays unknown. Weighted sums of released numbers, and ratios
of two of them, err by one noise, which has a law of its own: see `forms.py`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from functools import reduce
from typing import Any, Final, TypeAlias, final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from sqlglot import exp

from noisegate.frozen import dataclass, field, replace
from noisegate.sql.outer.forms import Array, Form, Leaves, Weights

Ends: TypeAlias = tuple[Array, Array]
Rule: TypeAlias = Callable[..., Ends]

TWO_SIDED: Final = (  # noise anywhere
    exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Greatest, exp.Least, exp.Pow, exp.Log,
)  # fmt: skip
KEEPING: Final = (exp.Paren, exp.Neg, exp.Nullif, exp.Coalesce)  # as wide as their first operand
_ROOTS: Final = (exp.Sqrt, exp.Pow)  # of which some are of numbers from 0 on alone
_SINGLE: Final = 2.0**-22  # of a number: four roundings to single precision, here and above
_WHOLE_TYPES: Final = frozenset(
    exp.DataType.Type[name] for name in ("TINYINT", "SMALLINT", "INT", "BIGINT", "INT128")
)


def rule_of(node: exp.Expr) -> Rule | None:
    """The rule that makes the ends of an expression from those of its operands; None: no rule.

    Outside `TWO_SIDED` only the first operand may be noisy; the others are exact.
    """
    if isinstance(node, exp.Cast):
        return _cast(node.to)
    if isinstance(node, exp.Trunc) and node.args.get("decimals"):
        return None
    return _RULES.get(type(node))


def _add(a: Ends, b: Ends) -> Ends:
    return a[0] + b[0], a[1] + b[1]


def _negative(a: Ends) -> Ends:
    return -a[1], -a[0]


def _multiply(a: Ends, b: Ends) -> Ends:
    return _corners(np.multiply, a, b)


def _corners(function: Callable[[Array, Array], Array], a: Ends, b: Ends) -> Ends:
    found = [function(x, y) for x in a for y in b]
    return reduce(np.minimum, found), reduce(np.maximum, found)


def _divide(a: Ends, b: Ends) -> Ends:
    """The divisor must be clear of 0."""
    clear = (b[0] > 0) | (b[1] < 0)
    return _multiply(a, (np.where(clear, 1 / b[1], np.nan), np.where(clear, 1 / b[0], np.nan)))


def _rounded(a: Ends, digits: Ends | None = None) -> Ends:
    """Half away from 0, as the engine rounds; rounding keeps the order of the ends."""
    unit = 10.0 ** -(digits[0] if digits is not None else np.zeros(1))
    low, high = (np.copysign(np.floor(np.abs(end) / unit + 0.5) * unit, end) for end in a)
    return low, high


def _whole(a: Ends) -> Ends:
    """A whole number next to it. Halves of decimals go away from 0, of doubles to even ones."""
    return np.ceil(a[0] - 0.5), np.floor(a[1] + 0.5)


def _rising(function: Callable[[Array], Array]) -> Rule:
    """A function of one number that rises where it has a value; NaN and infinite elsewhere."""
    return lambda a: (function(a[0]), function(a[1]))


def _logarithm(base: Ends, a: Ends | None = None) -> Ends:
    """LOG(x) to base 10, or LOG(base, x)."""
    if a is None:
        return np.log10(base[0]), np.log10(base[1])
    return _divide((np.log(a[0]), np.log(a[1])), (np.log(base[0]), np.log(base[1])))


def _power(a: Ends, b: Ends) -> Ends:
    """Of a base from 0 on, or to a whole number; a base that may be 0 to none below 0."""
    low, high = _corners(np.power, a, b)
    whole = (b[0] == b[1]) & (b[0] % 1 == 0)
    valley = (a[0] < 0) & (a[1] > 0) & (b[0] > 0) & (b[0] % 2 == 0)
    known = (a[0] > 0) | ((b[0] >= 0) & ((a[0] >= 0) | whole)) | (whole & (a[1] < 0))
    return np.where(known, np.where(valley, 0.0, low), np.nan), np.where(known, high, np.nan)


def _each_end(rising: Callable[..., Array]) -> Rule:
    """A function that rises in all its operands: its ends are those of its operands' ends."""
    return lambda *all_ends: (
        reduce(rising, [ends[0] for ends in all_ends]),
        reduce(rising, [ends[1] for ends in all_ends]),
    )


def _keep(a: Ends, *_: Ends) -> Ends:
    return a


def _cast(kind: exp.DataType) -> Rule | None:
    if kind.this in _WHOLE_TYPES:
        return _whole
    if kind.this == exp.DataType.Type.DOUBLE:
        return _keep
    if kind.this == exp.DataType.Type.FLOAT:
        return lambda a: (a[0] - _SINGLE * np.abs(a[0]), a[1] + _SINGLE * np.abs(a[1]))
    if kind.this == exp.DataType.Type.DECIMAL and len(kind.expressions) == 2:
        digits = np.array([float(kind.expressions[1].name)])
        return lambda a: _rounded(a, (digits, digits))
    return None


_RULES: Final[Mapping[type[exp.Expr], Rule]] = {
    exp.Paren: _keep,
    exp.Nullif: _keep,
    exp.Coalesce: _keep,
    exp.Neg: _negative,
    exp.Abs: lambda a: (np.maximum(np.maximum(a[0], -a[1]), 0.0), np.maximum(-a[0], a[1])),
    exp.Add: _add,
    exp.Sub: lambda a, b: _add(a, _negative(b)),
    exp.Mul: _multiply,
    exp.Div: _divide,
    exp.Greatest: _each_end(np.maximum),
    exp.Least: _each_end(np.minimum),
    exp.Round: _rounded,
    exp.Floor: _rising(np.floor),
    exp.Ceil: _rising(np.ceil),
    exp.Trunc: _rising(np.trunc),
    exp.Sqrt: _rising(np.sqrt),
    exp.Cbrt: _rising(np.cbrt),
    exp.Exp: _rising(np.exp),
    exp.Ln: _rising(np.log),
    exp.Log: _logarithm,
    exp.Pow: _power,
}


ROW: Final = "# row"  # the hidden column with the place of a row in its released table


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ReleasedBlock:
    """A released table, and the half-widths of its noisy columns at a confidence.

    ``table`` has the block's key columns and aggregates by their names. ``noisy`` are the
    aggregates; ``half_widths(name, confidence)`` gives one for each row, or None for a column
    that has none: in its own unit, of dates in days, of times in hours. ``unsigned`` are aggregates
    that cannot be negative before noise; ``amounts`` are those of them that count or add up, so
    that 0 means that nothing is there; ``lower`` are those of which a cap cuts off nobody knows
    how much. ``weighted(weights, confidence)`` is the half-width of a weighted sum over columns and
    rows, which are given by their places; ``added`` are columns that it knows.
    """

    table: pa.Table
    noisy: tuple[str, ...]
    half_widths: Callable[[str, Fraction], Sequence[float | int | None] | NDArray[Any] | None]
    unsigned: frozenset[str] = frozenset()
    amounts: frozenset[str] = frozenset()
    lower: frozenset[str] = frozenset()
    added: frozenset[str] = frozenset()
    weighted: Callable[[Weights, Fraction], float | None] = lambda *_: None


@final
@dataclass(frozen=True, slots=True)
class Item:
    """An item of a SELECT: how its ends follow from hidden columns of the same row.

    ``parts`` are the released numbers in it; without any it is exact. ``leaves`` are the hidden
    columns that it needs, as SQL by name. ``own`` is the half-width's column of an item that is a
    released number itself, ``row`` that of its row, ``of`` its block and column. ``sums`` are those
    leaves that list rows, with the block and the column that they add up. ``unsigned``: it cannot
    be negative before noise. ``amount``: nor is it an average or a ratio, so that 0 means that
    nothing is there. ``lower``: a cap cuts off some of it, nobody knows how much. ``form`` is what
    it is as a ratio of weighted sums, and ``joint`` the item whose ends follow from such ``forms``,
    by name.
    """

    parts: frozenset[str]
    leaves: Mapping[str, str]
    ends: Callable[[Leaves], Ends]
    own: str | None = None
    unsigned: bool = False
    amount: bool = False
    lower: bool = False
    row: str | None = None
    of: tuple[str, str] | None = None
    sums: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    form: Form | None = None
    forms: Mapping[str, Form] = field(default_factory=dict)
    joint: "Item | None" = None

    def under(self, alias: str, inner: Callable[[str], str] | None = None) -> "Item":
        """The same, seen through the alias that its SELECT has outside.

        ``inner`` makes the SQL of a leaf outside of its SQL inside: by default it is a column.
        """
        return replace(
            self,
            parts=frozenset(f"{alias}.{part}" for part in self.parts),
            leaves={
                f"{alias}.{leaf}": column_sql(alias, leaf) if inner is None else inner(sql)
                for leaf, sql in self.leaves.items()
            },
            ends=lambda leaves: self.ends(lambda leaf: leaves(f"{alias}.{leaf}")),
            own=self.own and f"{alias}.{self.own}",
            row=self.row and f"{alias}.{self.row}",
            sums={f"{alias}.{leaf}": of for leaf, of in self.sums.items()},
            form=self.form and self.form.under(alias),
            forms={f"{alias}.{name}": form.under(alias) for name, form in self.forms.items()},
            joint=self.joint and self.joint.under(alias, inner),
        )


def width_of(name: str) -> str:
    """The hidden column with the half-widths of a released one."""
    return f"± {name}"


def noisy(block: ReleasedBlock, name: str, alias: str, table: str) -> Item:
    """A released number itself, of a table that the statement calls ``alias``."""
    value, width, row = (f"{alias}.{each}" for each in (name, width_of(name), ROW))
    return Item(
        frozenset({value}),
        {
            value: column_sql(alias, name),
            width: column_sql(alias, width_of(name)),
            row: column_sql(alias, ROW),
        },
        lambda leaves: (leaves(value) - leaves(width), leaves(value) + leaves(width)),
        own=width,
        row=row,
        of=(table, name),
        unsigned=name in block.unsigned,
        amount=name in block.amounts,
        lower=name in block.lower,
        form=Form.of((table, name), value, row) if name in block.added else None,
    )


def exact(node: exp.Expr) -> Item:
    """A value without noise: both ends are itself."""
    sql = node.sql(dialect="duckdb")
    leaf = f"TRY_CAST({sql} AS DOUBLE)"
    ends: Callable[[Leaves], Ends] = lambda leaves: (leaves(leaf), leaves(leaf))  # noqa: E731
    from_zero = (isinstance(node, exp.Literal) and not node.is_string) or isinstance(node, exp.Null)
    return Item(
        frozenset(), {leaf: leaf}, ends, unsigned=from_zero, amount=from_zero,
        form=Form.exact(leaf),
    )  # fmt: skip


def made_of(items: Iterable[Item], ends: Callable[[Leaves], Ends]) -> Item:
    """An item that is calculated from others."""
    known = list(items)
    return Item(
        frozenset[str]().union(*(each.parts for each in known)),
        {name: sql for each in known for name, sql in each.leaves.items()},
        ends,
        sums={leaf: of for each in known for leaf, of in each.sums.items()},
        forms={name: form for each in known for name, form in each.forms.items()},
    )


def by_rule(
    node: exp.Expr, rule: Rule, items: Sequence[Item], known: Sequence[Item] | None = None
) -> Item:
    """What a rule makes of items, of which is ``known`` what they are before noise."""
    from_zero = isinstance(node, _ROOTS) and (known or items)[0].unsigned

    def ends(leaves: Leaves) -> Ends:
        given = [each.ends(leaves) for each in items]
        if from_zero:
            given[0] = np.maximum(given[0][0], 0.0), np.maximum(given[0][1], 0.0)
        return rule(*given)

    return made_of(items, ends)


def ends_of(name: str) -> tuple[str, str]:
    """What the ends of a form are called."""
    return f"{name} at least", f"{name} at most"


def joined(node: exp.Expr, known: Sequence[Item], form: Form | None) -> Item | None:
    """An item whose ends follow from one law; None where none of its numbers share one."""
    if form is not None and form.is_joint:
        name = f"form of {node.sql(dialect='duckdb')}"
        low, high = ends_of(name)
        whole = made_of(known, lambda leaves: (leaves(low), leaves(high)))
        return replace(whole, parts=frozenset({name}), forms={name: form})
    rule = rule_of(node)
    if rule is None or not any(each.joint for each in known):
        return None
    return by_rule(node, rule, [each.joint or each for each in known], known)


def either(branch: str, left: Item | None, right: Item | None) -> Item | None:
    """What stands in one place of both branches of a union."""
    if left is None or right is None:
        return None
    if not left.parts and not right.parts:
        return left
    other = {leaf: f"1.{leaf}" for leaf in right.leaves}

    def ends(leaves: Leaves) -> Ends:
        one, two = left.ends(leaves), right.ends(lambda leaf: leaves(other[leaf]))
        first = leaves(branch) == 0
        return np.where(first, one[0], two[0]), np.where(first, one[1], two[1])

    names = [*left.leaves, *other.values(), branch]
    return Item(
        max(left.parts, right.parts, key=len),
        dict.fromkeys(names, ""),
        ends,
        unsigned=left.unsigned and right.unsigned,
        amount=left.amount and right.amount,
        lower=left.lower or right.lower,
        sums={**left.sums, **{other[leaf]: of for leaf, of in right.sums.items()}},
    )


def column_sql(table: str, name: str) -> str:
    """A column under the name of its table."""
    return exp.column(name, table=table, quoted=True).sql(dialect="duckdb")
