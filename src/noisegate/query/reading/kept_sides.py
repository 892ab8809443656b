"""FROM public LEFT JOIN private: public rows without a partner are groups without rows.

Grouped by public columns, and with aggregates that leave NULLs out, such a question differs from
the one with JOIN by empty groups; and keys of public tables are shown with rows or without.
"""

from collections.abc import Sequence
from typing import Final

from sqlglot import exp

from noisegate.query.reading.names import Name, Rows, find
from noisegate.query.reading.sight import outermost_aggregates
from noisegate.query.reading.words import Node, attempt

_LEAVES_NULLS_OUT: Final = (
    exp.Count, exp.Sum, exp.Avg, exp.Min, exp.Max, exp.Median, exp.Variance, exp.VariancePop,
    exp.Stddev, exp.StddevPop, exp.StddevSamp,
)  # fmt: skip
_OF_NULL_NULL: Final = (
    exp.Column, exp.Identifier, exp.Literal, exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Neg, exp.Paren,
    exp.Distinct,
)  # fmt: skip


def join_instead(select: exp.Select, sources: Sequence[Rows]) -> None:
    """Make JOIN of the first LEFT JOIN with a private table, where that asks the same."""
    joins = select.args.get("joins") or []
    place = next((i for i, rows in enumerate(sources) if rows.unit is not None), 0)
    if not place or joins[place - 1].side != "LEFT" or joins[place - 1].kind:
        return
    public = [name for rows in sources[:place] for name in rows.names]
    private = [name for rows in sources[place:] for name in rows.names]

    def counts(node: Node) -> bool:
        call = node.this if isinstance(node, exp.Filter) else node
        inside = [each for each in call.walk() if each is not call]
        columns = [each for each in inside if isinstance(each, exp.Column)]
        return (
            isinstance(call, _LEAVES_NULLS_OUT)
            and all(isinstance(each, _OF_NULL_NULL) for each in inside)
            and any(_is_of(each, private) and not _is_of(each, public) for each in columns)
        )

    parts = (*select.expressions, *(select.args.get(one) for one in ("group", "having", "order")))
    clauses = [each for each in parts if each is not None]
    sums = [each for clause in clauses for each in outermost_aggregates(clause)]
    where = select.args.get("where")
    named = {item.alias for item in select.expressions}
    outside = _outside(sums, clauses if where is None else [*clauses, where])
    if (
        (select.args.get("group") or sums)
        and not select.find(exp.Window)
        and all(map(counts, sums))
        and all(_is_of(one, public) or (not one.table and one.name in named) for one in outside)
        and (where is None or not where.find(exp.Query))
    ):
        joins[place - 1].set("side", None)


def _is_of(column: exp.Column, names: Sequence[Name]) -> bool:
    return attempt(lambda: find(column, names)) is not None


def _outside(sums: Sequence[Node], clauses: Sequence[Node]) -> list[exp.Column]:
    """The columns that stand in no aggregate."""
    inside = {id(column) for each in sums for column in each.find_all(exp.Column)}
    found = (column for clause in clauses for column in clause.find_all(exp.Column))
    return [column for column in found if id(column) not in inside]
