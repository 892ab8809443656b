"""FROM public LEFT JOIN private: public rows without a partner are groups without rows.

Grouped by public columns, and with aggregates that leave NULLs out, such a question differs from
the one with JOIN by empty groups; and keys of public tables are shown with rows or without.
"""

from collections.abc import Sequence
from typing import Final

from sqlglot import exp

from noisegate.algebra.expression import Field
from noisegate.algebra.relation import PerUnit, Project, Relation, Table
from noisegate.privacy.domain import Domain
from noisegate.sql.reading.names import Name, Rows, find
from noisegate.sql.reading.sight import outermost_aggregates
from noisegate.sql.reading.words import Node, attempt, fold

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
        and (
            not select.args.get("group")
            or (
                _is_whole(sources[place].relation)
                and _leaves_keys(joins[place - 1].args.get("on"), public, private)
                and _reaches(joins[place - 1], sources[:place], sources[place])
            )
        )
    ):
        joins[place - 1].set("side", None)


def _is_whole(relation: Relation) -> bool:
    """Whether nothing is known of a column's values but what is declared: no step chose rows."""
    if isinstance(relation, Project | PerUnit):
        made = relation.columns if isinstance(relation, Project) else relation.keys
        return all(type(each) is Field for _, each in made) and _is_whole(relation.of)
    return type(relation) is Table


def _leaves_keys(on: Node | None, public: Sequence[Name], private: Sequence[Name]) -> bool:
    """Whether a condition says nothing of public columns but what they equal.

    With JOIN, all else would decide which keys there are, and empty groups would be left out.
    """
    parts = _parts(on)
    pairs = [part for part in parts if isinstance(part, exp.EQ) and _is_pair(part, public)]
    equal = {fold(each.name) for part in pairs for each in part.find_all(exp.Column)}
    others = [each for part in parts if part not in pairs for each in part.find_all(exp.Column)]
    return all(
        _is_of(one, private) and not _is_of(one, public) and fold(one.name) not in equal
        for one in others
    )


def _reaches(join: exp.Join, public: Sequence[Rows], private: Rows) -> bool:
    """Whether what is equal to public columns has no bounds, or wider ones than these.

    With JOIN, keys beyond them would be left out.
    """
    using = [exp.column(each.name) for each in join.args.get("using") or ()]
    pairs = [list(each.find_all(exp.Column)) for each in _parts(join.args.get("on"))]
    for columns in (*pairs, *([each] for each in using)):
        wide = [domain for each in columns if (domain := _domain(each, [private])) is not None]
        near = [domain for each in columns if (domain := _domain(each, public)) is not None]
        for inner in wide if near else ():
            low, high = inner.low, inner.high
            if (low is not None and any(each.low is None or each.low < low for each in near)) or (
                high is not None and any(each.high is None or each.high > high for each in near)
            ):
                return False
    return True


def _domain(column: exp.Column, sources: Sequence[Rows]) -> Domain | None:
    for rows in sources:
        name = attempt(lambda rows=rows: find(column, rows.names))  # type: ignore[misc]
        if name is not None and name.field is not None:
            return rows.schema[name.field]
    return None


def _parts(on: Node | None) -> list[Node]:
    """The conditions that hold together."""
    if on is None:
        return []
    inner = on.unnest()
    if isinstance(inner, exp.And):
        return [*_parts(inner.this), *_parts(inner.expression)]
    return [inner]


def _is_pair(equality: exp.EQ, public: Sequence[Name]) -> bool:
    """Whether one side is of public columns and the other of none."""
    sides = [list(side.find_all(exp.Column)) for side in (equality.this, equality.expression)]
    shares = {sum(_is_of(one, public) for one in side) / len(side) for side in sides if side}
    return all(sides) and shares == {0, 1}


def _is_of(column: exp.Column, names: Sequence[Name]) -> bool:
    return attempt(lambda: find(column, names)) is not None


def _outside(sums: Sequence[Node], clauses: Sequence[Node]) -> list[exp.Column]:
    """The columns that stand in no aggregate."""
    inside = {id(column) for each in sums for column in each.find_all(exp.Column)}
    found = (column for clause in clauses for column in clause.find_all(exp.Column))
    return [column for column in found if id(column) not in inside]
