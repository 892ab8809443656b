"""Questions as others that ask the same.

Disjoint FILTERs become groups of one aggregate, and counting distinct values by a sub-query is
COUNT(DISTINCT x), which needs no groups.

A released table has all declared groups, with rows or without, and of others those that many units
hold. To count its rows would count that; what SQL means is how many values there are.
"""

from collections.abc import Sequence
from itertools import combinations
from typing import Final

import sqlglot
from sqlglot import exp

from noisegate.algebra.expression import Call, Expression, Field, Literal, domain_of
from noisegate.algebra.relation import Filter, PerUnit, Project, Relation, Table
from noisegate.algebra.schema import schema_of
from noisegate.frozen import replace
from noisegate.privacy.domain import Domain
from noisegate.sql.question import Aggregate, Block, Function, GroupKey
from noisegate.sql.reading.conditions.narrowing import Public, facts_of
from noisegate.sql.reading.sight import Name, Rows, find, item_of, outermost_aggregates, plain_name
from noisegate.sql.reading.words import Node, attempt, fold


def inlined(statement: exp.Expr) -> None:
    """Put a CTE that is read once, by a SELECT from it alone, into that SELECT's FROM."""
    for select in list(statement.find_all(exp.Select)):
        clause, start = select.args.get("with_"), select.args.get("from_")
        if clause is None or start is None or clause.args.get("recursive"):
            continue
        table = start.this
        if type(table) is not exp.Table or select.args.get("joins"):
            continue
        cte = next((c for c in clause.expressions if fold(c.alias) == fold(table.name)), None)
        read = [t for t in statement.find_all(exp.Table) if fold(t.name) == fold(table.name)]
        if cte is None or len(read) > 1 or cte.args["alias"].args.get("columns"):
            continue
        if _distinct_item(cte.this) is None:
            continue
        start.set("this", exp.Subquery(this=cte.this, alias=_alias(table)))
        clause.set("expressions", [one for one in clause.expressions if one is not cte])
        if not clause.expressions:
            select.set("with_", None)


def _alias(table: exp.Table) -> exp.TableAlias:
    return exp.TableAlias(this=exp.to_identifier(table.alias or table.name))


def counted(select: exp.Select) -> exp.Select | None:
    """The SELECT with COUNT(DISTINCT x) instead of counts over SELECT DISTINCT x, if it is one."""
    source = select.args["from_"].this if _said(select) == {"expressions", "from_"} else None
    item = _distinct_item(source.this) if isinstance(source, exp.Subquery) else None
    if source is None or item is None or _said(source) - {"this", "alias"}:
        return None
    alias = source.args.get("alias")
    if alias is not None and alias.args.get("columns"):
        return None
    made = select.copy()
    inner = made.args["from_"].this.this
    inner.set("distinct", None)
    inner.set("group", None)
    name = item.alias or plain_name(item)
    column = exp.column(name, quoted=True)
    if not isinstance(item, exp.Alias):
        inner.set("expressions", [exp.alias_(item_of(inner.expressions[0]), name, quoted=True)])
    for count in list(made.find_all(exp.Count)):
        if count.parent_select is not made:
            continue
        of = count.this
        inside = of.expressions[0] if isinstance(of, exp.Distinct) and of.expressions else of
        if isinstance(of, exp.Star):
            value = _even_null(column)
        elif isinstance(inside, exp.Column) and fold(inside.name) == fold(name):
            value = column.copy()
        else:
            return None
        count.set("this", exp.Distinct(expressions=[value]))
    others = (each for one in made.expressions for each in one.find_all(exp.AggFunc, exp.Column))
    loose = (
        each
        for each in others
        if not isinstance(each, exp.Count) and not each.find_ancestor(exp.Count)
    )
    counts = any(each.parent_select is made for each in made.find_all(exp.Count))
    return made if counts and next(loose, None) is None else None


def _even_null(column: exp.Column) -> exp.Expr:
    """A text for each value and one for NULL, which COUNT(*) counts as a row too."""
    name = column.sql(dialect="duckdb")
    text = f"CASE WHEN {name} IS NULL THEN '' ELSE '=' || CAST({name} AS VARCHAR) END"
    return sqlglot.parse_one(text, dialect="duckdb")


def _distinct_item(query: exp.Expr) -> exp.Expr | None:
    """The one item of SELECT DISTINCT x, or of SELECT x ... GROUP BY x."""
    if not isinstance(query, exp.Select) or len(query.expressions) != 1:
        return None
    said = _said(query) - {"expressions", "from_", "joins", "where", "with_"}
    item = query.expressions[0]
    if item_of(item).is_star or any(item.find_all(exp.AggFunc, exp.Window, exp.Query)):
        return None
    if said == {"distinct"}:
        return None if query.args["distinct"].args.get("on") else item
    if said == {"group"} and not _said(query.args["group"]) - {"expressions"}:
        (*more, key) = query.args["group"].expressions
        same = key in (item_of(item), exp.Literal.number(1)) or (
            isinstance(key, exp.Column) and fold(key.name) == fold(item.alias)
        )
        return item if same and not more else None
    return None


def _said(node: exp.Expr) -> set[str]:
    return {name for name, arg in node.args.items() if arg}


_PLACE = "noisegate_filter"
_FUNCTIONS = frozenset(
    {Function.COUNT, Function.COUNT_VALUES, Function.SUM, Function.COUNT_UNITS, Function.AVG}
)
_MOST = 200  # filters


def grouped(block: Block, public: Public | None) -> tuple[Block, exp.Select | None]:
    """The block with one group for each filter, and a SELECT over it as it was; else unchanged.

    ``COUNT(*) FILTER (WHERE a = 1), COUNT(*) FILTER (WHERE a = 2)`` asks for one count of two
    groups, and is priced like that: the door sees which group a row is in, and needs no proof from
    here. What is not provably disjoint is asked as it is written. A mistake here could misread a
    question, and could not leak.
    """
    wheres = tuple(dict.fromkeys(each.where for each in block.aggregates))
    kinds = dict.fromkeys(replace(each, name="", where=None) for each in block.aggregates)
    plain = len(block.sets) == 1 and all(key.domain.keys is not None for key in block.by)
    known = all(each.function in _FUNCTIONS for each in kinds)
    if None in wheres or not 1 < len(wheres) <= _MOST or not plain or not known:
        return block, None
    conditions: list[Expression] = [each for each in wheres if each is not None]
    if len(kinds) * len(wheres) > len(block.aggregates):
        return block, None
    for pair in combinations(conditions, 2):  # no row may meet two, by the question and the policy
        if not facts_of(Filter(block.relation, Call("and", pair)), public).none:
            return block, None
    pairs = [each for place, one in enumerate(conditions) for each in (one, Literal(place))]
    place = Call("case", tuple(pairs))
    relation = Filter(block.relation, Call("or", tuple(conditions)))
    domain = replace(domain_of(place, schema_of(block.relation)), nullable=False)
    key = GroupKey(name=_PLACE, expression=place, domain=domain, closed=True)
    made = replace(
        block, relation=relation, by=(*block.by, key), sets=(tuple(range(len(block.by) + 1)),),
        aggregates=tuple(replace(each, name=f"c{n}") for n, each in enumerate(kinds)),
    )  # fmt: skip
    return made, _shown(block, list(kinds), conditions)


def shown_over(select: exp.Select, table: exp.Table, block: Block) -> exp.Subquery:
    """That SELECT in place of the block's table."""
    return select.from_(table).subquery(alias=block.name)


def _shown(block: Block, kinds: list[Aggregate], conditions: list[Expression]) -> exp.Select:
    """One row for each group, with a column for each aggregate as it was written."""
    keys = [exp.column(key.name, quoted=True) for key in block.by]
    items = [
        exp.alias_(
            _picked(each, kinds.index(replace(each, name="", where=None)), conditions),
            each.name,
            quoted=True,
        )
        for each in block.aggregates
    ]
    select = exp.select(*keys, *items)
    return select.group_by(*keys) if keys else select


def _picked(aggregate: Aggregate, column: int, conditions: list[Expression]) -> exp.Expr:
    """One aggregate, from the group of its filter; a count is 0 where there is no such group."""
    place = exp.Literal.number(conditions.index(aggregate.where))  # type: ignore[arg-type]
    where = exp.Where(this=exp.EQ(this=exp.column(_PLACE), expression=place))
    found = exp.Filter(this=exp.Sum(this=exp.column(f"c{column}")), expression=where)
    if aggregate.function in (Function.SUM, Function.AVG):  # NULL of no rows
        return found
    return exp.Coalesce(this=found, expressions=[exp.Literal.number(0)])


_LEAVES_NULLS_OUT: Final = (
    exp.Count, exp.Sum, exp.Avg, exp.Min, exp.Max, exp.Median, exp.Variance, exp.VariancePop,
    exp.Stddev, exp.StddevPop, exp.StddevSamp,
)  # fmt: skip
_OF_NULL_NULL: Final = (
    exp.Column, exp.Identifier, exp.Literal, exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Neg, exp.Paren,
    exp.Distinct,
)  # fmt: skip


def join_instead(select: exp.Select, sources: Sequence[Rows]) -> None:
    """Make JOIN of the first LEFT JOIN with a private table, where that asks the same.

    FROM public LEFT JOIN private: public rows without a partner are groups without rows. Grouped by
    public columns, and with aggregates that leave NULLs out, such a question differs from the one
    with JOIN by empty groups; and keys of public tables are shown with rows or without.
    """
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
