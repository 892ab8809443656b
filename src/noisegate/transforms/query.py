"""An exact question with its sensitivity: what a rule returns and a measurement takes."""

from dataclasses import asdict, dataclass
from typing import Any, final

from noisegate.errors import Unsupported
from noisegate.privacy.distance import L1, L2
from noisegate.privacy.domain import Column, Key, TableDomain
from noisegate.sources.source import Tally


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """A tally of a table, and the words of the rules that made it.

    Its sensitivity is computed from the two, never stated by a caller, so a query cannot claim
    less than it moves. A tally that does not fit its table is refused.
    """

    table: TableDomain
    tally: Tally
    path: tuple[str, ...]

    def __post_init__(self) -> None:
        table, tally = self.table, self.tally
        unit = (tally.table, tally.unit, tally.rows_per_unit_max)
        if type(tally) is not Tally or unit != (
            table.name,
            table.unit.column,
            table.rows_per_unit_max,
        ):
            raise Unsupported("The tally does not fit the table.", fix="Make it with `count`.")
        if table.unit.column is not None and table.rows_per_unit_max is None:
            raise Unsupported(
                f"One {table.unit.noun} may have any number of rows, so a count has no bound.",
                fix="Give rows_per_unit: how many rows of one person count.",
            )
        if tally.by is not None:
            _require_same(tally.by, declared(table, tally.by.name))
            if table.unit.column is not None:
                raise Unsupported(
                    "Counting per key needs a bound on the keys of one unit, which is not offered "
                    "yet.",
                    fix="Ask for the total, or declare that every row is one person if that is so.",
                )
        for column, key in tally.where:
            _require_same(column, declared(table, column.name))
            require_key(column, key)

    @property
    def moved(self) -> int:
        """How far one unit can move the tally.

        Claim: if every row is one unit, adding it raises one cell by one. If a unit has a column
            and counts for at most k rows, adding it changes the total by at most k.
        Adjacency: add/remove one unit.
        Why: a row falls into at most one cell, since a key is one value of one column and a filter
            looks at the row alone; Σ min(rows of u, k) has one term per unit u, and rows without a
            unit count as one unit together.
        """
        return self.table.rows_per_unit_max or 1

    @property
    def l1(self) -> L1:
        """The largest sum of absolute changes of all cells."""
        return L1(self.moved)

    @property
    def l2(self) -> L2:
        """The largest Euclidean change: the same, because one unit moves one cell."""
        return L2(squared=self.moved**2)

    def to_record(self) -> dict[str, Any]:
        """The question as plain values; equal for equal questions, so the ledger can compare."""
        tally = {name: value for name, value in asdict(self.tally).items() if value}
        return {
            "dataset": self.table.dataset,
            "origin": self.table.origin,
            "snapshot": self.table.snapshot,
            "unit": self.table.unit.column or "row",
            "count": _plain(tally),
        }


def declared(table: TableDomain, name: str) -> Column:
    """The column of that name, which must have declared keys."""
    column = table.columns.get(name)
    if column is None or column.keys is None:
        raise Unsupported(
            f"The keys of {name!r} are not declared, and showing them would show who is there.",
            fix=f"Declare them: columns={{{name!r}: {{'in': [...]}}}}.",
        )
    return column


def _require_same(column: Column, known: Column) -> None:
    if type(column) is not Column or column != known:
        raise Unsupported("The tally has columns of its own.", fix="Make it with `count`.")


def require_key(column: Column, key: Key) -> None:
    """Refuse a key that is not one of the column's."""
    if type(key) not in (str, int) or key not in (column.keys or ()):
        raise Unsupported(
            f"{key!r} is not a declared key of {column.name!r}.",
            fix=f"Declare it: columns={{{column.name!r}: {{'in': [...]}}}}.",
        )


def _plain(value: Any) -> Any:  # noqa: ANN401 - JSON
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items() if item is not None}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value if isinstance(value, str | int) else str(value)
