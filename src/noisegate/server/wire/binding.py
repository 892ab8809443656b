"""Parameters: which type each has, and values as literals of a tree, never as a part of a text."""

from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from math import isfinite
from typing import Any, Final, final

from sqlglot import exp

from noisegate.privacy.domain import Column, Kind, TableDomain
from noisegate.server.wire import types
from noisegate.server.wire.messages import Malformed
from noisegate.server.wire.statements import DIALECT, parameters_of
from noisegate.server.wire.types import Type

Facts = Callable[[str], tuple[Type, Any] | None]  # a column's type, and a value it may have
OF_KIND: Final = {
    Kind.BOOLEAN: types.BOOL,
    Kind.INTEGER: types.INT8,
    Kind.NUMBER: types.FLOAT8,
    Kind.TEXT: types.TEXT,
    Kind.DATE: types.DATE,
    Kind.TIMESTAMP: types.TIMESTAMP,
}
_SAMPLES: Final[Mapping[int, Any]] = {
    types.BOOL.oid: True, types.DATE.oid: date(2020, 1, 1), types.TIME.oid: time(0),
    types.TIMESTAMP.oid: datetime(2020, 1, 1), types.TIMESTAMPTZ.oid: datetime(2020, 1, 1),  # noqa: DTZ001
    **dict.fromkeys((each.oid for each in (
        types.INT2, types.INT4, types.INT8, types.OID, types.FLOAT4, types.FLOAT8, types.NUMERIC,
    )), 1),
}  # fmt: skip
_CASTS: Final = {
    "BOOLEAN": types.BOOL, "SMALLINT": types.INT2, "INT": types.INT4, "BIGINT": types.INT8,
    "FLOAT": types.FLOAT4, "DOUBLE": types.FLOAT8, "DECIMAL": types.NUMERIC, "DATE": types.DATE,
    "TIMESTAMP": types.TIMESTAMP, "TIMESTAMPTZ": types.TIMESTAMPTZ, "TIME": types.TIME,
    "OID": types.OID, "TEXT": types.TEXT, "VARCHAR": types.TEXT, "UUID": types.UUID_,
}  # fmt: skip


def literal(value: Any) -> exp.Expr:  # noqa: ANN401, PLR0911 - of any type, one for each
    """A value as a node of a tree."""
    if value is None:
        return exp.Null()
    if isinstance(value, bool):
        return exp.Boolean(this=value)
    if isinstance(value, float) and not isfinite(value):
        return exp.cast(exp.Literal.string(str(value)), "DOUBLE", dialect=DIALECT)
    if isinstance(value, int | float | Decimal):
        whole = exp.Literal.number(_digits(abs(value)))
        return exp.Neg(this=whole) if value < 0 else whole
    for python, kind in ((datetime, "TIMESTAMP"), (date, "DATE"), (time, "TIME")):
        if isinstance(value, python):
            plain = value.replace(tzinfo=None) if isinstance(value, datetime) else value
            return exp.cast(exp.Literal.string(plain.isoformat()), kind, dialect=DIALECT)
    if isinstance(value, list):
        return exp.Array(expressions=[literal(each) for each in value])
    return exp.Literal.string(str(value))


def _digits(value: Any) -> str:  # noqa: ANN401 - a number
    return f"{value:f}" if isinstance(value, Decimal) else repr(value)


def type_of(tree: exp.Expr, facts: Facts, given: Sequence[int]) -> list[Type]:
    """The type of each parameter: as the client says, else by what it stands beside."""
    nodes = dict(reversed(list(parameters_of(tree))))
    count = max((*nodes, len(given)), default=0)
    found = []
    for place in range(1, count + 1):
        said = given[place - 1] if place <= len(given) else 0
        known = types.KNOWN.get(said)
        if said and known is None:
            raise Malformed(f"Parameters of type {said} are not supported.", "0A000")
        node = nodes.get(place)
        found.append(known or (types.TEXT if node is None else _beside(node, facts)[0]))
    return found


def samples(tree: exp.Expr, facts: Facts, kinds: Sequence[Type]) -> list[Any]:
    """A value for each parameter that it may have: for learning columns before values are known."""
    nodes = dict(reversed(list(parameters_of(tree))))
    found = []
    for place, kind in enumerate(kinds, 1):
        node = nodes.get(place)
        beside, value = (kind, None) if node is None else _beside(node, facts)
        sample = [] if kind.item is not None else _SAMPLES.get(kind.oid, "")
        found.append(value if value is not None and beside == kind else sample)
    return found


def _cast(to: exp.Expr) -> Type:
    name = getattr(to.this, "name", str(to.this))
    if name == "ARRAY" and to.expressions:
        return _array(_cast(to.expressions[0]))
    return _CASTS.get(name, types.TEXT)


def _array(item: Type) -> Type:
    return next((each for each in types.KNOWN.values() if each.item == item), types.KNOWN[1009])


def _beside(node: exp.Expr, facts: Facts) -> tuple[Type, Any]:
    parent = node.parent
    while isinstance(parent, exp.Paren | exp.Neg):
        parent = parent.parent
    if isinstance(parent, exp.Cast):
        return _cast(parent.to), None
    if isinstance(parent, exp.Limit | exp.Offset | exp.Fetch):
        return types.INT8, None
    if isinstance(parent, exp.Any | exp.All):
        return _array(_beside(parent, facts)[0]), None
    others = () if parent is None else parent.find_all(exp.Column)
    for column in others:
        if (known := facts(column.name)) is not None:
            return known
    if parent is not None and parent.find(exp.AggFunc) is not None:
        return types.FLOAT8, None
    return types.TEXT, None


@final
class Declared:
    """What is declared about columns of any table, by their names alone."""

    def __init__(self, tables: Mapping[str, TableDomain]) -> None:
        self._columns: dict[str, Column] = {}
        for table in tables.values():
            for name, column in table.columns.items():
                self._columns.setdefault(name.lower(), column)

    def __call__(self, name: str) -> tuple[Type, Any] | None:
        """The type of a column, and one of its keys."""
        column = self._columns.get(name.lower())
        if column is None:
            return None
        keys = column.domain.keys
        return OF_KIND[column.kind], keys[0] if keys else None
