"""What is checked when tables of an engine are opened; and rows of public ones."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from noisegate.errors import PolicyError
from noisegate.privacy.domain import Column, Kind, TableDomain

if TYPE_CHECKING:
    import pyarrow as pa

_OWNER_KINDS: Final = (Kind.INTEGER, Kind.TEXT)


def require_kinds(
    table: TableDomain,
    types: Mapping[str, Mapping[str, str]],
    kind_of: Mapping[str, Kind],
    read_as: Mapping[Kind, Sequence[Kind]],
    engine: str,
) -> None:
    """Refuse columns declared as what they cannot be read as, and ids that could be rounded."""
    for name, column in table.columns.items():
        stored = kind_of.get(types[table.name].get(name, ""))
        if stored is not None and not column.hidden and column.kind not in read_as[stored]:
            raise PolicyError(
                f"{name!r} of {table.name!r} is stored as {stored.value}, and cannot be read as "
                f"{column.kind.value} on {engine}.",
                fix=f"Declare it as {' or '.join(k.value for k in read_as[stored])}.",
                about="stored",
            )
    at, ids = table.name, []
    for step in table.path:
        ids += [(at, step.column), (step.table, step.key)]
        at = step.table
    if table.unit is not None and table.unit.column is not None:
        ids.append((at, table.unit.column))
    for where, column_name in ids:
        if kind_of[types[where][column_name]] not in _OWNER_KINDS:
            raise PolicyError(
                f"{column_name!r} of {where!r} is {types[where][column_name]}, which cannot name "
                "a unit.",
                fix="Store it as text or as a whole number.",
                about="id",
            )


def require_public(domain: TableDomain) -> None:
    """Refuse to show a private table."""
    if not domain.is_public:
        raise PolicyError(
            f"{domain.name!r} is not public.", fix="Ask about it with a price.", about="public"
        )


def shown_rows(columns: Sequence[Column], rows: Sequence[Sequence[Any]]) -> "pa.Table":
    """Rows of a public table as Arrow columns of their kinds."""
    import pyarrow as pa  # noqa: PLC0415 - slow to load

    types = {
        Kind.BOOLEAN: pa.bool_(), Kind.INTEGER: pa.int64(), Kind.NUMBER: pa.float64(),
        Kind.TEXT: pa.string(), Kind.DATE: pa.date32(), Kind.TIMESTAMP: pa.timestamp("us"),
    }  # fmt: skip
    if not columns:
        return pa.table({"row": pa.repeat(True, len(rows))})  # noqa: FBT003 - a value
    listed = zip(*rows, strict=True) if rows else ((),) * len(columns)
    return pa.table({
        column.name: pa.array(
            list(values),
            types[column.kind] if column.scale is None else pa.decimal128(38, column.scale),
        )
        for column, values in zip(columns, listed, strict=True)
    })  # fmt: skip
