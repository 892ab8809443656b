"""Samples of rows that are units: by the number of a row, which is the same in every reading."""

from collections.abc import Callable, Iterable
from typing import Final, final

from sqlglot import exp

from noisegate.sources.used import used_columns
from noisegate.sources.writing.folds import told_apart
from noisegate.sources.writing.relations import RelationWriter
from noisegate.sources.writing.words import as_, cast, col

_TEXTS: Final = frozenset({"text", "varchar", "bpchar", "string"})  # stored types


def with_heads(
    query: exp.Select, heads: Callable[[exp.Expr], exp.Expr], order: Iterable[exp.Expr] = ()
) -> exp.Select:
    """The rows whose number has heads: their place in an order, by default that of their columns.

    Claim: each row has a number of its own, so coins are independent; and whoever reads the same
        rows again finds the same sample. Why: rows that the order does not tell apart are equal in
        all that can be read of them, so it does not show which of them has which number.
    """
    names = list(query.named_selects)
    order = list(order) or [each.unalias() for each in query.expressions]
    number = exp.Window(this=exp.RowNumber(), order=exp.Order(expressions=told_apart(order)))
    numbered = query.copy().select(as_(number, "number"), copy=False)
    shown = exp.select(*(col(name, "h") for name in names))
    shown = shown.from_(numbered.subquery("h", copy=False), copy=False)
    return shown.where(heads(col("number", "h")), copy=False)


@final
class SampleWriter(RelationWriter):
    """Writes relations; with coins, over the rows with heads of tables whose rows are units."""

    def _base(self, name: str) -> exp.Expr:
        table = self._tables[name]
        if self._coins is None or table.unit is None or table.unit.column is not None:
            return super()._base(name)
        types, columns = self.types[name], used_columns(name, self._tables, self.types[name])
        coins = self._coins.apart(f"rows of table {list(self._tables).index(name)}")
        names: list[exp.Expr] = [col(each, "b") for each in columns]
        rows = exp.select(*(names or [as_(exp.true(), "row")]))
        rows = rows.from_(as_(super()._base(name), "b"), copy=False)
        order = [
            cast(col(each, "b"), "VARCHAR") if types[each] in _TEXTS else col(each, "b")
            for each in columns
        ]
        chosen = with_heads(rows, lambda number: coins.heads(number, self._dialect), order)
        return chosen.subquery(copy=False)
