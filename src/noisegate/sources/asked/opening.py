"""What is checked when tables of an engine are opened; and rows of public ones."""

from collections.abc import Collection, Mapping, Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Any, Final

from noisegate.errors import PolicyError
from noisegate.privacy.domain import Column, Kind, TableDomain

if TYPE_CHECKING:
    import pyarrow as pa

UNREACHABLE: Final = "The engine could not read the table."
AGAIN: Final = "Nothing was released; ask again with the same request id."
NOT_PLANNED: Final = "The engine cannot plan this question, or cannot be reached."
NOT_CHARGED: Final = (
    "What cannot be planned is not charged. Ask again, or in another way; with NOISEGATE_DEBUG=1 a "
    "steward sees the engine's words."
)
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


def require_files(table: TableDomain, engine: str) -> None:
    """Refuse the steward's word for a view, where only stored files are read."""
    if table.views:
        raise PolicyError(
            f"The source of {table.name!r} is not a view.",
            fix=f"Leave out trusted_view: {engine} reads stored files alone.",
            about="no-view",
        )


def require_one_owner(
    parts: Mapping[str, Collection[Any]], tables: Mapping[str, TableDomain]
) -> None:
    """Rows that are reached by two names, or as a part of others, have one owner in both.

    Why: see `policy/tables.py`, which compares names; an engine knows where rows lie.
    """
    for (one, first), (other, second) in combinations(parts.items(), 2):
        said = [
            (t.is_public, t.unit and t.unit.column, t.unit and t.unit.ids, t.path)
            for t in (tables[one], tables[other])
        ]
        if set(first) & set(second) and said[0] != said[1]:
            raise PolicyError(
                f"Tables {one!r} and {other!r} have rows in common, and declare different owners.",
                fix="Declare the rows once, or with the same unit: a row has one owner.",
                about="owner",
            )


def require_public(domain: TableDomain) -> None:
    """Refuse to show a private table."""
    if not domain.is_public:
        raise PolicyError(
            f"{domain.name!r} is not public.", fix="Ask about it with a price.", about="public"
        )


def arrow_types() -> "Mapping[Kind, pa.DataType]":
    """The Arrow type of each kind."""
    import pyarrow as pa  # noqa: PLC0415 - slow to load

    return {
        Kind.BOOLEAN: pa.bool_(), Kind.INTEGER: pa.int64(), Kind.NUMBER: pa.float64(),
        Kind.TEXT: pa.string(), Kind.DATE: pa.date32(), Kind.TIMESTAMP: pa.timestamp("us"),
    }  # fmt: skip


def shown_rows(columns: Sequence[Column], rows: Sequence[Sequence[Any]]) -> "pa.Table":
    """Rows of a public table as Arrow columns of their kinds."""
    import pyarrow as pa  # noqa: PLC0415 - slow to load

    types = arrow_types()
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
