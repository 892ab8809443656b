"""The free SQL of a question: its text, the names that it shows, and what it is computed over."""

from collections.abc import Sequence

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from noisegate.errors import Unsupported
from noisegate.sql.question import Block
from noisegate.sql.reading.sight import item_of, plain_name
from noisegate.sql.reading.words import FORM, Node


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
