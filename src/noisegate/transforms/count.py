"""Counting rows, per declared key or in all."""

from noisegate.errors import Unsupported
from noisegate.privacy.distance import L1, L2
from noisegate.privacy.domain import TableDomain
from noisegate.sources.source import Tally
from noisegate.transforms.query import Query


def count(table: TableDomain, *, by: str | None = None) -> Query:
    """The number of rows, or one number for each declared key of the column ``by``.

    Claim: if every row is one unit, one unit moves one cell by one: L1 = L2 = 1. If a unit has a
        column and counts for at most k rows, it moves the total by at most k: L1 = L2 = k.
    Adjacency: add/remove one unit.
    Why: each row falls into at most one cell; Σ min(rows of u, k) has one term per unit u.
    Requires: keys declared, because an undeclared key would show who is there.
    """
    cap = table.rows_per_unit_max
    if by is None:
        tally = Tally(table=table.name, unit=table.unit.column, rows_per_unit_max=cap)
        moved = cap or 1
        path = "count of rows: one unit moves it by at most " + str(moved)
        return _query(table, tally, moved, path)
    column = table.columns.get(by)
    if column is None or column.keys is None:
        raise Unsupported(
            f"The keys of {by!r} are not declared, and showing them would show who is there.",
            fix=f"Declare them: columns={{{by!r}: {{'in': [...]}}}}.",
        )
    if cap is not None:
        raise Unsupported(
            "Counting per key needs a bound on the keys of one unit, which is not offered yet.",
            fix="Ask for the total, or declare that every row is one person if that is true.",
        )
    path = f"count per declared key of {by!r}: one row moves one cell by 1"
    return _query(table, Tally(table=table.name, by=column), 1, path)


def _query(table: TableDomain, tally: Tally, moved: int, path: str) -> Query:
    l1, l2 = L1(moved), L2(squared=moved * moved)
    return Query(table=table, tally=tally, l1=l1, l2=l2, path=(path,))
