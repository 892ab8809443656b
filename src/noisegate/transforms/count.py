"""Counting rows, per declared key or in all."""

from noisegate.privacy.domain import TableDomain
from noisegate.sources.source import Tally
from noisegate.transforms.query import Query, declared


def count(table: TableDomain, *, by: str | None = None) -> Query:
    """The number of rows, or one number for each declared key of the column ``by``.

    Claim: the sensitivity of `Query.moved`. Requires: keys declared, because an undeclared key
        would show who is there; and where a unit has a column, a total, because its rows may have
        many keys.
    """
    column = None if by is None else declared(table, by)
    tally = Tally(
        table=table.name,
        by=column,
        unit=table.unit.column,
        rows_per_unit_max=table.rows_per_unit_max,
    )
    if column is not None:
        path = f"count per declared key of {by!r}: one row moves one cell by 1"
    else:
        path = f"count of rows: one unit moves it by at most {table.rows_per_unit_max or 1}"
    return Query(table=table, tally=tally, path=(path,))
