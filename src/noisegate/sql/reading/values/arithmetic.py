"""Logarithms, buckets and whole division of SQL, made of functions of the closed list."""

from fractions import Fraction
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, TypeAlias

from sqlglot import exp

from noisegate.algebra.expression import Call, Expression, Literal
from noisegate.errors import Unsupported
from noisegate.privacy.domain import Kind
from noisegate.sql.reading.literals import literal, sql_type, whole
from noisegate.sql.reading.words import Node, require_only

if TYPE_CHECKING:
    from collections.abc import Callable

    from noisegate.sql.reading.values.expressions import Reading

Reader: TypeAlias = "Callable[[Node, Reading], Expression]"


def _whole_division(node: Node, reading: "Reading") -> Expression:
    """Of whole numbers the whole quotient; of others a plain division, as in DuckDB."""
    require_only(node, "this", "expression")
    parts = tuple(reading.operand(part, Kind.INTEGER) for part in (node.this, node.expression))
    for part in parts:
        if not reading.kind(part).is_numeric:
            raise Unsupported(
                "// divides a value that is not a number.",
                fix="Cast it to BIGINT or DOUBLE.",
                about="types",
            )
    types = {sql_type(part, reading.schema) for part in parts}
    return Call("int_divide" if types == {Kind.INTEGER} else "divide", parts)


def _log(node: Node, reading: "Reading") -> Expression:
    """LOG(x) is to base 10, LOG(base, x) to a base."""
    require_only(node, "this", "expression")
    if not node.args.get("expression"):
        return Call("log10", (reading.operand(node.this),))
    base, value = literal(node.this), reading.operand(node.expression)
    named = {2: "log2", 10: "log10"}.get(base.value) if base is not None else None  # type: ignore[arg-type]
    if named is None:
        return Call("divide", (Call("ln", (value,)), Call("ln", (reading.operand(node.this),))))
    return Call(named, (value,))


def _bucket(node: Node, reading: "Reading") -> Expression:
    """WIDTH_BUCKET(x, low, high, n): 0 below, 1 to n, n + 1 from high on."""
    require_only(node, "this", "min_value", "max_value", "num_buckets")
    low, high = literal(node.args["min_value"]), literal(node.args["max_value"])
    count = whole(node.args["num_buckets"], "The number of buckets")
    ends = [end for end in (low, high) if end is not None and end.kind.is_numeric]
    if low is None or high is None or len(ends) < 2 or count < 1 or low.value >= high.value:  # type: ignore[operator]
        raise Unsupported("WIDTH_BUCKET needs low < high.", fix="Swap the two bounds.")
    width = Fraction(high.value) - Fraction(low.value)  # type: ignore[arg-type]
    value = reading.operand(node.this)
    moved = Call("multiply", (Call("subtract", (value, low)), Literal(count)))
    share = Call("divide", (moved, Literal(width)))
    kept = Call("greatest", (Literal(-1), Call("least", (Literal(count), share))))
    place = Call("add", (Call("to_integer", (Call("floor", (kept,)),)), Literal(1)))
    return Call("case", (Call("not", (Call("is_null", (value,)),)), place))


READERS: Final = MappingProxyType[type[exp.Expr], Reader]({
    exp.IntDiv: _whole_division,
    exp.Log: _log,
    exp.WidthBucket: _bucket,
})  # fmt: skip
