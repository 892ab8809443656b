"""Constants of SQL, and how values of two kinds come to agree."""

from datetime import date, datetime
from fractions import Fraction
from typing import Final

from sqlglot import exp

from noisegate.algebra.expression import Call, Expression, Field, Literal, Schema, domain_of
from noisegate.algebra.intervals import SCALE_MAX
from noisegate.algebra.rules_logic import case_values
from noisegate.errors import Unsupported
from noisegate.exact import fraction
from noisegate.privacy.domain import WHOLE_MAX, Kind
from noisegate.sql.reading.values import decimals
from noisegate.sql.reading.words import Node, refusal

CAST_TO: Final[dict[Kind, str]] = {
    Kind.INTEGER: "to_integer",
    Kind.NUMBER: "to_number",
    Kind.TEXT: "to_text",
    Kind.BOOLEAN: "to_boolean",
    Kind.DATE: "to_date",
    Kind.TIMESTAMP: "to_timestamp",
}
_WHOLE_DOUBLES: Final = ("floor", "ceil", "round", "trunc", "bin")
_ALIKE: Final = (  # whose type is that of their arguments
    "add", "subtract", "multiply", "modulo", "int_divide", "negate", "abs", "case", "coalesce",
    "least", "greatest", "nullif",
)  # fmt: skip
_WHOLE_ARITHMETIC: Final = (
    "add", "subtract", "multiply", "modulo", "negate", "abs", "to_number", "least", "greatest",
    "coalesce", "nullif",
)  # fmt: skip
_TRUTH: Final = {"true": True, "t": True, "1": True, "false": False, "f": False, "0": False}


def number(text: str) -> int | Fraction:
    """A number as it is written: whole ones are whole, others exact decimals."""
    if text.isdecimal() and text.isascii() and int(text) <= WHOLE_MAX:
        return int(text)
    return fraction(text, name="A number")


def literal(node: Node) -> Literal | None:
    """The constant that a node is, if it is one."""
    if isinstance(node, exp.Paren):
        return literal(node.this)
    if isinstance(node, exp.Literal):
        return Literal(node.name if node.is_string else number(node.name))
    if isinstance(node, exp.Boolean):
        return Literal(bool(node.this))
    if isinstance(node, exp.Null):
        return Literal(None)
    if isinstance(node, exp.Neg):
        below = literal(node.this)
        if below is not None and isinstance(below.value, int | Fraction):
            return Literal(-below.value)
    return None


def whole(node: Node, what: str) -> int:
    """A constant whole number."""
    found = literal(node)
    if found is None or type(found.value) is not int:
        raise Unsupported(
            f"{what} is not a whole number.", fix="Write it as a number.", about="whole"
        )
    return found.value


def converted(text: Literal, kind: Kind) -> Literal:
    """A text constant as another kind, as SQL reads it beside a column of that kind."""
    value = str(text.value).strip()
    try:
        if kind is Kind.DATE:
            return Literal(date.fromisoformat(value))
        if kind is Kind.TIMESTAMP:
            moment = datetime.fromisoformat(value)
            if not moment.utcoffset():  # none, or that of UTC
                return Literal(moment.replace(tzinfo=None))
        elif kind.is_numeric and "_" not in value and "/" not in value:
            return Literal(int(value) if kind is Kind.INTEGER else Fraction(value))
        elif kind is Kind.BOOLEAN and value.lower() in _TRUTH:
            return Literal(_TRUTH[value.lower()])
    except (ValueError, ZeroDivisionError):
        pass
    raise Unsupported(
        f"{text.value!r} is not a {kind.value}.", fix="Write one, or cast it.", about="literal"
    )


def is_moment(constant: Literal | None) -> bool:
    """Whether a constant is a text that says a day, or a time of one."""
    if constant is None or type(constant.value) is not str:
        return False
    try:
        return len(constant.value) >= 10 and converted(constant, Kind.TIMESTAMP) is not None
    except Unsupported:
        return False


def kind_of(expression: Expression, schema: Schema) -> Kind:
    """The kind of an expression's value."""
    return domain_of(expression, schema).kind


def agreed(values: list[Expression], schema: Schema) -> list[Expression]:
    """The values in kinds that can be compared or stand in one column.

    NULL and text constants take the kind of the others; dates may stand beside timestamps.
    """
    kinds = {kind_of(value, schema) for value in values if not _gives_way(value)}
    if kinds == {Kind.DATE, Kind.TIMESTAMP}:
        kinds = {Kind.TIMESTAMP}
    if len(kinds) > 1 and not all(kind.is_numeric for kind in kinds):
        names = sorted(kind.value for kind in kinds)
        raise Unsupported(
            f"{names[0].capitalize()} and {names[1]} cannot be combined.",
            fix="Cast one of them.",
            about="types",
        )
    if not kinds:
        texts = [value for value in values if type(value) is Literal and value.value is not None]
        kinds = {texts[0].kind} if texts else {Kind.TEXT}
    kind = Kind.NUMBER if len(kinds) > 1 else next(iter(kinds))
    return [_given_way(value, kind) if _gives_way(value) else value for value in values]


def _gives_way(value: Expression) -> bool:
    return type(value) is Literal and (value.value is None or type(value.value) is str)


def _given_way(value: Expression, kind: Kind) -> Expression:
    if type(value) is not Literal:
        return value
    if value.value is None:
        return Literal(None, kind)
    return value if kind is Kind.TEXT else converted(value, kind)


def is_whole_in_sql(value: Expression) -> bool:
    """Whether a whole number is of a whole type in SQL too: FLOOR and the like give doubles."""
    if type(value) is not Call or value.function == "to_integer":
        return True
    return value.function not in _WHOLE_DOUBLES and all(map(is_whole_in_sql, value.args))


def is_whole_arithmetic(value: object) -> bool:
    """Whether it is made of columns and whole constants by + − × % and choices alone."""
    if type(value) is not Call:
        return type(value) is Field or (type(value) is Literal and type(value.value) is int)
    return value.function in _WHOLE_ARITHMETIC and all(map(is_whole_arithmetic, value.args))


def sql_type(value: Expression, schema: Schema) -> Kind:
    """The kind of a number's type in SQL: whole where nothing in it makes a double.

    Sums of whole numbers without bounds are computed as doubles here, and are whole in SQL.
    """
    kind = kind_of(value, schema)
    if kind is Kind.INTEGER:
        return kind if is_whole_in_sql(value) else Kind.NUMBER
    if type(value) is not Call or value.function not in _ALIKE:
        return kind
    places = case_values(len(value.args)) if value.function == "case" else range(len(value.args))
    args = [value.args[place] for place in places]
    types = {
        sql_type(arg, schema) for arg in args if type(arg) is not Literal or arg.value is not None
    }
    return Kind.INTEGER if types == {Kind.INTEGER} else kind


def as_text(value: Expression, schema: Schema) -> Expression:
    """The value as text, written as SQL writes it."""
    kind = kind_of(value, schema)
    if kind is Kind.TEXT:
        return value
    if decimals.scale_of(value, schema) is not None:
        raise Unsupported(
            "A decimal cast to text would show the scale of its type.",
            fix="Cast it to BIGINT or DOUBLE first.",
        )
    if kind is Kind.INTEGER and not is_whole_in_sql(value) and not _is_rounded(value, schema):
        value = Call("to_number", (value,))
    elif kind is Kind.NUMBER and sql_type(value, schema) is Kind.INTEGER:
        value = Call("to_integer", (value,))
    return Call("to_text", (value,))


def _is_rounded(value: Expression, schema: Schema) -> bool:
    """FLOOR and the like of a decimal, which is one without digits behind the point."""
    one = type(value) is Call and value.function in _WHOLE_DOUBLES
    return one and decimals.scale_of(value.args[0], schema) is not None  # type: ignore[union-attr]


_KINDS: Final[dict[exp.DType, Kind]] = {
    **dict.fromkeys(exp.DataType.INTEGER_TYPES - {exp.DType.BIT}, Kind.INTEGER),
    **dict.fromkeys((exp.DType.FLOAT, exp.DType.DOUBLE, exp.DType.DECIMAL), Kind.NUMBER),
    **dict.fromkeys((exp.DType.TEXT, exp.DType.VARCHAR, exp.DType.CHAR), Kind.TEXT),
    exp.DType.BOOLEAN: Kind.BOOLEAN,
    exp.DType.DATE: Kind.DATE,
    exp.DType.TIMESTAMP: Kind.TIMESTAMP,
    exp.DType.TIMESTAMPNTZ: Kind.TIMESTAMP,
}


def cast(value: Expression, to: exp.DataType, schema: Schema) -> Expression:
    """CAST(value AS type). DECIMAL(p, s) rounds to s digits, as in SQL."""
    kind = _KINDS.get(to.this)
    if kind is None or to.args.get("nested"):
        raise refusal(f"CAST AS {to.sql(dialect='duckdb')}")
    if type(value) is Literal and value.value is None:
        return Literal(None, kind)
    if type(value) is Literal and type(value.value) is str and kind in (Kind.DATE, Kind.TIMESTAMP):
        return converted(value, kind)
    if kind is Kind.TEXT:
        return as_text(value, schema)
    if to.this is exp.DType.DECIMAL:
        return _as_decimal(
            value, [whole(each.this, "A precision") for each in to.expressions], schema
        )
    if kind is Kind.INTEGER and decimals.scale_of(value, schema) is not None:
        value = Call("round", (decimals.exact(value, schema),))  # halves away from zero
    if kind is Kind.NUMBER and decimals.scale_of(value, schema) is not None:
        return Call("to_number", (decimals.exact(value, schema),))
    same = kind_of(value, schema) is kind
    return value if same else Call(CAST_TO[kind], (value,))


def _as_decimal(value: Expression, given: list[int], schema: Schema) -> Expression:
    """CAST(value AS DECIMAL(precision, scale)): NULL where it has more digits before the point."""
    precision, scale = (*given, *((18, 3) if not given else (0,)))[:2]
    if not 0 <= scale <= min(precision, SCALE_MAX):
        raise Unsupported(
            f"DECIMAL({precision}, {scale}) has too many digits.", fix="Use up to 15 digits."
        )
    if not kind_of(value, schema).is_numeric:
        value = Call("to_number", (value,))
    known = decimals.scale_of(value, schema)
    if known is not None and known > scale:
        value = decimals.rounded(value, scale, schema)
    made = decimals.to_scale(value, scale)
    limit, most = 10 ** (precision - scale), domain_of(made, schema).magnitude
    if most is not None and most < limit:
        return made
    return Call("case", (Call("lt", (Call("abs", (made,)), Literal(Fraction(limit)))), made))
