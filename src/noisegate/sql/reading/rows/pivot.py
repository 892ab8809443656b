"""PIVOT as what it means: one column with a FILTER for each value that it lists."""

from sqlglot import exp

from noisegate.errors import Unsupported
from noisegate.sql.reading.literals import literal
from noisegate.sql.reading.words import Node, attempt

_FORM = "Write PIVOT t ON x IN ('a', 'b') USING COUNT(*) GROUP BY y."


def flattened(statement: Node) -> Node:
    """The statement with a SELECT in place of every PIVOT that lists values and names groups."""
    for source in list(statement.find_all(exp.Subquery, exp.Table)):
        pivots: list[exp.Pivot] = source.args.get("pivots") or []
        if len(pivots) == 1:
            pivot, alias = pivots[0], source.args.get("alias")
            source.set("pivots", None)
            source.set("alias", None)
            made = _select(pivot, source.copy(), pivot.args["fields"], "expressions")
            source.replace(exp.Subquery(this=made, alias=alias))
    if isinstance(statement, exp.Pivot):
        return _select(statement, statement.this, statement.expressions, "using")
    for pivot in list(statement.find_all(exp.Pivot)):
        pivot.replace(_select(pivot, pivot.this, pivot.expressions, "using"))
    return statement


def _select(pivot: exp.Pivot, source: Node, on: list[Node], computed: str) -> exp.Select:
    calls = pivot.args.get(computed) or []
    if pivot.args.get("unpivot") or len(on) != 1 or not isinstance(on[0], exp.In):
        raise Unsupported(
            "PIVOT without a list of values would take its columns from the rows.", fix=_FORM
        )
    group = pivot.args.get("group")
    groups = _others(source, [on[0].this, *calls]) if group is None else group.expressions
    if groups is None or not calls or pivot.args.get("include_nulls"):
        raise Unsupported(
            "PIVOT without GROUP BY would group by all other columns.", fix=_FORM, about="pivot"
        )
    items = [each.copy() for each in groups]
    for value in on[0].expressions:
        known = attempt(lambda value=value: literal(value.unalias()))  # type: ignore[misc]
        if known is None or known.value is None:
            raise Unsupported("PIVOT lists something other than values.", fix=_FORM)
        inner = value.unalias()
        plain = isinstance(inner, exp.Literal | exp.Cast)
        shown = value.alias or (inner.name if plain else inner.sql(dialect="duckdb").lower())
        where = exp.Where(this=exp.EQ(this=on[0].this.copy(), expression=value.unalias().copy()))
        for call in calls:
            if len(calls) > 1 and not call.alias:
                raise Unsupported(
                    "PIVOT has several aggregates without names.", fix="Name them with AS."
                )
            name = f"{shown}_{call.alias}" if call.alias else shown
            kept = exp.Filter(this=call.unalias().copy(), expression=where.copy())
            items.append(exp.alias_(kept, name, quoted=True))
    by = exp.Group(expressions=[each.copy() for each in groups]) if groups else None
    return exp.Select(expressions=items, from_=exp.From(this=source), group=by)


def _others(source: Node, used: list[Node]) -> list[Node] | None:
    """The columns of a sub-query that PIVOT does not name, if it lists its columns."""
    inner = source.this if isinstance(source, exp.Subquery) else None
    if not isinstance(inner, exp.Select) or any(item.is_star for item in inner.expressions):
        return None
    names = [item.output_name for item in inner.expressions]
    taken = {column.name.lower() for node in used for column in node.find_all(exp.Column)}
    if not all(names):
        return None
    return [exp.column(name, quoted=True) for name in names if name.lower() not in taken]
