"""SQL text to a tree: one SELECT, not too deep, whose names are its own; and free SQL back to text.

PIVOT becomes what it means: one column with a FILTER for each value that it lists.
"""

import re
from collections.abc import Sequence
from typing import Final

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from noisegate.errors import Unsupported
from noisegate.sql.question import Block
from noisegate.sql.reading.literals import literal
from noisegate.sql.reading.sight import item_of, plain_name
from noisegate.sql.reading.words import FORM, Node, attempt, fold

_DEPTH_MAX: Final = 100
_RESERVED: Final = re.compile(r"noisegate_\d+", re.ASCII)


def statement_of(sql: str) -> Node:
    """The one SELECT that the text is, in a form that can be rewritten."""
    try:
        found = [tree for tree in sqlglot.parse(sql, dialect="duckdb") if tree is not None]
    except (SqlglotError, RecursionError):
        found = None
    if found is None:
        raise Unsupported("The SQL cannot be read.", fix=FORM, about="syntax")
    if len(found) != 1:
        raise Unsupported(
            f"There are {len(found)} statements.",
            fix="Ask one question at a time.",
            about="statements",
        )
    found[0] = flattened(found[0])
    if not isinstance(found[0], exp.Query):
        raise Unsupported(
            f"Only SELECT is answered, not {found[0].key.upper()}.", fix=FORM, about="select"
        )
    if any(not select.expressions for select in found[0].find_all(exp.Select)):
        raise Unsupported("SELECT has no columns.", fix=FORM, about="select-list")
    level, depth = [found[0]], 0
    while level:
        depth += 1
        if depth > _DEPTH_MAX:
            raise too_deep()
        level = [child for node in level for child in node.iter_expressions()]
    for name in found[0].find_all(exp.Identifier):
        if _RESERVED.fullmatch(fold(name.name)):
            raise Unsupported(
                f"The name {name.name!r} is reserved.", fix="Use another name.", about="name"
            )
    return found[0].transform(_extracted, copy=False)


def _extracted(node: Node) -> Node:
    """Write x[1] as a call: the parser counts from 0 or 1 by a type that rewriting may change."""
    if not isinstance(node, exp.Bracket) or len(node.expressions) != 1:
        return node
    if isinstance(node.expressions[0], exp.Slice) or node.expressions[0].is_string:
        return node
    inner, whole = node.this.sql(dialect="duckdb"), node.sql(dialect="duckdb")
    try:
        place = sqlglot.parse_one(whole.removeprefix(inner)[1:-1], dialect="duckdb")
    except SqlglotError:
        raise Unsupported("The SQL cannot be read.", fix=FORM, about="syntax") from None
    return exp.Anonymous(this="array_extract", expressions=[node.this, place])


def too_deep() -> Unsupported:
    """The refusal of SQL that nobody can follow."""
    return Unsupported(
        "The SQL is nested too deeply.", fix="Use IN for long lists of OR.", about="depth"
    )


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


def free_sql(node: Node, *, is_plain: bool) -> str:
    """The text of free SQL, read again: the parser reads more than it can write."""
    try:
        text = node.sql(dialect="duckdb", comments=False)
        if not is_plain:
            sqlglot.parse_one(text, dialect="duckdb")
    except (SqlglotError, RecursionError):
        text = None
    if text is None:
        raise Unsupported("The SQL cannot be read.", fix=FORM, about="syntax")
    return text


def picked_columns(node: Node) -> tuple[str, ...] | None:
    """The columns that a SELECT shows from a table and does nothing to."""
    said = {name for name, arg in node.args.items() if arg}
    items = [item.unalias() for item in node.expressions]
    is_plain = said == {"expressions", "from_"} and all(type(i) is exp.Column for i in items)
    if not is_plain or type(node.args["from_"].this) is not exp.Table:
        return None
    return tuple(item.name for item in items)


def over_groups(node: Node, blocks: list[Block]) -> tuple[str, ...]:
    """What is computed over groups is about those that are shown, and the answer says so."""
    sums = (each for each in node.find_all(exp.AggFunc) if not isinstance(each.parent, exp.Window))
    if next(sums, None) is None:
        return ()
    keys = [key for block in blocks for key in block.by]
    found = []
    if any(key.domain.keys is None for key in keys):
        found.append("Rare groups are not found: results computed over groups leave them out.")
    if any(key.domain.keys is not None for key in keys):
        found.append("Results computed over groups include declared groups without rows.")
    return tuple(found)


def renamed(
    columns: tuple[str, ...] | None, alias: exp.TableAlias | None
) -> tuple[str, ...] | None:
    """The columns as FROM ... AS alias(columns) names them."""
    given = tuple(one.name for one in (alias.args.get("columns") if alias else None) or ())
    return columns if columns is None else (*given, *columns[len(given) :])


def shown_names(
    node: exp.Select, sources: Sequence[tuple[str, ...] | None]
) -> tuple[str, ...] | None:
    """The names of the columns of free SQL, where they can be told before it runs."""
    names: list[str] = []
    for item in node.expressions:
        inner = item_of(item)
        if inner.is_star:
            star = inner.this if isinstance(inner, exp.Column) else inner
            alone = sources[0] if len(sources) == 1 else None
            if alone is None or any(star.args.values()):
                return None
            names += alone
        elif isinstance(inner, exp.Columns):
            return None
        else:
            names.append(item.alias or plain_name(item))
    return tuple(names)


def name_items(node: Node, columns: tuple[str, ...] | None) -> None:
    """Give the items of the last SELECT the names that the answer shows."""
    while isinstance(node, exp.SetOperation | exp.Subquery):
        node = node.this
    if columns is None or len(columns) != len(node.expressions):
        return
    items = [
        item if item.alias or item.is_star else exp.alias_(item, name, quoted=True)
        for item, name in zip(node.expressions, columns, strict=True)
    ]
    node.set("expressions", items)
