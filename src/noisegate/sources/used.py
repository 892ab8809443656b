"""The columns of a table that questions, or the way to a unit, can use."""

from collections.abc import Mapping

from noisegate.errors import PolicyError
from noisegate.privacy.domain import TableDomain


def used_columns(
    table: str, tables: Mapping[str, TableDomain], stored: Mapping[str, str]
) -> tuple[str, ...]:
    """Their names, each once. Refuses one that is not ``stored`` as a type that can be read."""
    domain = tables[table]
    used = [name for name, column in domain.columns.items() if not column.hidden]
    for other in tables.values():
        at = other.name
        for step in other.path:
            used += [step.column] if at == table else []
            used += [step.key] if step.table == table else []
            at = step.table
        if at == table and other.unit is not None and other.unit.column is not None:
            used.append(other.unit.column)
    if missing := [name for name in used if name not in stored]:
        raise PolicyError(
            f"{table!r} has no column {missing[0]!r} of a supported type.",
            fix=f"Its columns are: {', '.join(stored)}.",
            about="column",
        )
    return tuple(dict.fromkeys(used))
