"""Logarithms, buckets and whole division, what SQL makes of texts, and texts of dates.

All are made of functions of the closed list.
"""

import re
from collections.abc import Callable, Sequence
from fractions import Fraction
from types import MappingProxyType
from typing import Final, TypeAlias

from sqlglot import exp

from noisegate.algebra.expression import Call, Expression, Literal, domain_of
from noisegate.errors import Unsupported
from noisegate.privacy.domain import Kind
from noisegate.sql.reading.literals import as_text, literal, sql_type, whole
from noisegate.sql.reading.values.operands import Operands
from noisegate.sql.reading.words import Node, refusal, require_only


def _whole_division(node: Node, reading: Operands) -> Expression:
    """Of whole numbers the whole quotient; of others a plain division, as in DuckDB."""
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


def _log(node: Node, reading: Operands) -> Expression:
    """LOG(x) is to base 10, LOG(base, x) to a base."""
    if not node.args.get("expression"):
        return Call("log10", (reading.operand(node.this),))
    base, value = literal(node.this), reading.operand(node.expression)
    named = {2: "log2", 10: "log10"}.get(base.value) if base is not None else None  # type: ignore[arg-type]
    if named is None:
        return Call("divide", (Call("ln", (value,)), Call("ln", (reading.operand(node.this),))))
    return Call(named, (value,))


def _bucket(node: Node, reading: Operands) -> Expression:
    """WIDTH_BUCKET(x, low, high, n): 0 below, 1 to n, n + 1 from high on."""
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


Reader: TypeAlias = Callable[[Node, Operands], Expression]
_QUIET: Final = ("safe", "coalesce")
_BOTH: Final = ("this", "expression")
_LIKE: Final = (*_BOTH, "negate")


def _escaped(node: Node, reading: Operands) -> Expression:
    if not isinstance(node.this, exp.Like | exp.ILike):
        raise refusal(node)
    require_only(node.this, *_LIKE)
    return _like(node.this, reading, reading.read(node.expression))


def _like(node: Node, reading: Operands, *escape: Expression) -> Expression:
    name = "ilike" if isinstance(node, exp.ILike) else "like"
    text, pattern = (reading.taken(each, Kind.TEXT) for each in (node.this, node.expression))
    found = Call(name, (text, pattern, *escape))
    return Call("not", (found,)) if node.args.get("negate") else found


def _texts(nodes: Sequence[Node], reading: Operands) -> list[Expression]:
    return [as_text(reading.raw(node), reading.schema) for node in nodes]


def _concat(node: Node, reading: Operands) -> Expression:
    """CONCAT leaves NULLs out, unlike ||."""
    filled: list[Expression] = [
        Call("coalesce", (text, Literal(""))) if domain_of(text, reading.schema).may_lack else text
        for text in _texts(node.expressions, reading)
    ]
    return Call("concat", tuple(filled))


def _trim(node: Node, reading: Operands) -> Expression:
    name = {"LEADING": "ltrim", "TRAILING": "rtrim"}.get(node.text("position"), "trim")
    return Call(name, (reading.taken(node.this, Kind.TEXT),))


def _pad(node: Node, reading: Operands) -> Expression:
    if not node.args.get("fill_pattern"):
        raise Unsupported(
            "LPAD and RPAD need the text to pad with.", fix="For example: LPAD(x, 5, '0')."
        )
    name = "lpad" if node.args.get("is_left") else "rpad"
    return _of_text(name, "expression", "fill_pattern")(node, reading)


def _of_text(name: str, *parts: str, may: tuple[str, ...] = ()) -> Reader:
    """A function of a text, of other parts, and of those that ``may`` be said."""

    def read(node: Node, reading: Operands) -> Expression:
        said = (*parts, *(part for part in may if node.args.get(part)))
        others = (reading.read(node.args[part]) for part in said)
        return Call(name, (reading.taken(node.this, Kind.TEXT), *others))

    return read


def _strftime(node: Node, reading: Operands) -> Expression:
    """STRFTIME(x, format), or the other way round, as DuckDB has it too."""
    moment, form = node.this, node.args["format"]
    if moment.is_string:
        moment, form = form, moment
    return Call("strftime", (reading.taken(moment, Kind.TIMESTAMP), reading.read(form)))


_WRITTEN: Final = {"YYYY": "%Y", "MM": "%m", "DD": "%d", "HH24": "%H", "MI": "%M", "SS": "%S"}
_FORMAT: Final = re.compile(rf"(?:{'|'.join(_WRITTEN)}|[^\w\"%])+", re.ASCII)


def _to_char(node: Node, reading: Operands) -> Expression:
    """TO_CHAR(x, 'YYYY-MM') of Postgres, where all that it writes are numbers and signs."""
    text = literal(node.args["format"])
    if text is None or type(text.value) is not str or not _FORMAT.fullmatch(text.value):
        raise refusal(node)
    form = re.sub("|".join(_WRITTEN), lambda each: _WRITTEN[each[0]], text.value)
    return Call("strftime", (reading.taken(node.this, Kind.TIMESTAMP), Literal(form)))


def _epoch_ms(node: Node, reading: Operands) -> Expression:
    """EPOCH_MS of a date or time; of a number it would make one."""
    return Call("epoch_ms", (reading.taken(node.this, Kind.TIMESTAMP),))


READERS: Final = MappingProxyType[type[exp.Expr], tuple[tuple[str, ...], Reader]]({
    exp.IntDiv: (_BOTH, _whole_division),
    exp.Log: (_BOTH, _log),
    exp.WidthBucket: (("this", "min_value", "max_value", "num_buckets"), _bucket),
    exp.Like: (_LIKE, _like),
    exp.ILike: (_LIKE, _like),
    exp.Escape: (_BOTH, _escaped),
    exp.DPipe: (
        (*_BOTH, *_QUIET),
        lambda node, reading: Call(
            "concat", tuple(_texts([node.this, node.expression], reading))
        ),
    ),
    exp.Concat: (("expressions", *_QUIET), _concat),
    exp.Trim: (("this", "position"), _trim),
    exp.SplitPart: (
        ("this", "delimiter", "part_index"), _of_text("split_part", "delimiter", "part_index"),
    ),
    exp.Pad: ((*_BOTH, "fill_pattern", "is_left"), _pad),
    exp.RegexpLike: ((*_BOTH, "flag"), _of_text("regexp_matches", may=("expression", "flag"))),
    exp.RegexpExtract: (
        (*_BOTH, "group", "null_if_pos_overflow"),
        _of_text("regexp_extract", may=("expression", "group")),
    ),
    exp.RegexpReplace: (
        (*_BOTH, "replacement", "modifiers", "single_replace"),
        _of_text("regexp_replace", may=("expression", "replacement", "modifiers")),
    ),
    exp.TimeToStr: (("this", "format"), _strftime),
    exp.ToChar: (("this", "format"), _to_char),
    exp.UnixToTime: (("this", "scale"), _epoch_ms),
})  # fmt: skip
