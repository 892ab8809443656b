"""Expressions over one row: literals, fields, and calls of a closed list of functions.

Every expression is total: it has a value, or NULL, for every row whatever the row holds. What a
function means is said once, in `functions.py`, and written per engine in `sources`.
"""

from collections.abc import Collection, Iterator, Mapping
from datetime import date, datetime
from fractions import Fraction
from functools import lru_cache
from typing import Any, Final, TypeAlias, final

from noisegate.algebra.functions import function_named
from noisegate.algebra.intervals import LARGE, decimals
from noisegate.errors import SpecError, Unsupported
from noisegate.frozen import dataclass, replace
from noisegate.privacy.domain import WHOLE_MAX, Domain, Kind, ordinal, require_plain

Value: TypeAlias = bool | int | Fraction | str | date | datetime | None
_PLAIN: Final = frozenset({type(None), bool, int, str})  # as they are in JSON
Schema: TypeAlias = Mapping[str, Domain]

_KIND_OF_LITERAL: dict[type, Kind] = {
    bool: Kind.BOOLEAN,
    int: Kind.INTEGER,
    Fraction: Kind.NUMBER,
    str: Kind.TEXT,
    date: Kind.DATE,
    datetime: Kind.TIMESTAMP,
}


@final
@dataclass(frozen=True, slots=True, eq=False)
class Literal:
    """A constant. NULL needs its kind said, such as ``Literal(None, Kind.TEXT)``.

    >>> Literal(1) == Literal(True)  # as Python has it of their values
    False
    """

    value: Value
    null_kind: Kind | None = None

    def __post_init__(self) -> None:
        require_plain(self.value)
        if self.value is not None and type(self.value) not in _KIND_OF_LITERAL:
            raise SpecError(
                "A literal is of an unknown type.", fix="Use strings, numbers or dates."
            )
        if type(self.value) is int and abs(self.value) > WHOLE_MAX:
            raise SpecError("A whole number exceeds 64 bits.", fix="Write it as 1e30.")
        if type(self.value) is Fraction and abs(self.value) > LARGE:
            raise SpecError("A number exceeds the range of doubles.", fix="Use a smaller one.")
        if type(self.value) is datetime and self.value.tzinfo is not None:
            raise SpecError("A timestamp has a time zone.", fix="Give timestamps without one.")

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Literal)
            and type(self.value) is type(other.value)
            and (self.value, self.null_kind) == (other.value, other.null_kind)
        )

    def __hash__(self) -> int:
        return hash((type(self.value), self.value, self.null_kind))

    @property
    def kind(self) -> Kind:
        """The kind of the value."""
        if self.value is None:
            return self.null_kind or Kind.TEXT
        return _KIND_OF_LITERAL[type(self.value)]


@final
@dataclass(frozen=True, slots=True)
class Field:
    """The value of a column of the relation below."""

    name: str


@final
@dataclass(frozen=True, slots=True)
class Call:
    """A function of the closed list, such as ``Call("add", (Field("x"), Literal(1)))``."""

    function: str
    args: "tuple[Expression, ...]"


Expression: TypeAlias = Literal | Field | Call


def domain_of(expression: Expression, schema: Schema) -> Domain:
    """The facts about the expression's value, computed from those of its fields.

    Claim: for every row whose fields keep their domains, the value is NULL (only where it may lack)
        or of this kind and within these bounds. Why: each function's rule is interval arithmetic.
    """
    if type(expression) is Literal:
        return _literal_domain(expression)
    if type(expression) is Field:
        found = schema.get(expression.name)
        if found is None:
            raise Unsupported(
                f"There is no column {expression.name!r}.",
                fix=f"There are: {', '.join(sorted(schema))}.",
                about="column",
            )
        return found
    if type(expression) is Call:
        arguments = [domain_of(arg, schema) for arg in expression.args]
        literals = [arg.value if type(arg) is Literal else ... for arg in expression.args]
        rule = function_named(expression.function).domain
        found = rule(arguments, literals)
        if found.nullable or not any(arg.unlisted for arg in arguments):
            return found
        missing = [replace(arg, nullable=arg.may_lack) for arg in arguments]
        return replace(found, unlisted=rule(missing, literals).nullable)
    raise Unsupported("This is not an expression.", fix="Use Literal, Field and Call.")


@lru_cache(maxsize=4096)
def _literal_domain(literal: Literal) -> Domain:
    if literal.value is None:
        return Domain(kind=literal.kind)
    bound = ordinal(literal.value) if literal.kind.is_ordered else None
    if bound is not None and literal.kind is Kind.NUMBER:
        bound = Fraction(float(bound))  # as an engine reads it
    if isinstance(literal.value, Fraction):
        scale = decimals(literal.value)
        return Domain(kind=literal.kind, low=bound, high=bound, nullable=False, scale=scale)
    keys = (literal.value,)
    return Domain(kind=literal.kind, low=bound, high=bound, keys=keys, nullable=False)


def fields_of(expression: Expression) -> Iterator[str]:
    """The names of the fields that the expression reads, with repetitions."""
    if type(expression) is Field:
        yield expression.name
    elif type(expression) is Call:
        for arg in expression.args:
            yield from fields_of(arg)


def to_plain(expression: Expression) -> Any:  # noqa: ANN401 - JSON
    """The expression as JSON values; equal exactly for equal expressions."""
    if type(expression) is Field:
        return {"field": expression.name}
    if type(expression) is Literal:
        return {expression.kind.value: plain_value(expression.value)}
    return [expression.function, *map(to_plain, expression.args)]


def plain_value(value: Value) -> Any:  # noqa: ANN401 - JSON
    """A value as JSON: dates and fractions as text."""
    return value if type(value) in _PLAIN else str(value)


def plain_values(values: Collection[Value]) -> list[Any]:
    """The same for many: mostly all are plain."""
    return list(values) if _PLAIN.issuperset(map(type, values)) else [*map(plain_value, values)]
