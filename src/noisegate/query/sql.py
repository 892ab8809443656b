"""SQL text to a query, by allow-list. What is not on the list is refused by name."""

from dataclasses import dataclass
from typing import Final, final

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from noisegate.errors import Unsupported
from noisegate.privacy.domain import Key, TableDomain
from noisegate.transforms.count import count
from noisegate.transforms.query import Query
from noisegate.transforms.restrict import restrict

_FORM: Final = (
    "The form is SELECT [column,] COUNT(*) [AS name] FROM table "
    "[WHERE column = 'key' [AND ...]] [GROUP BY column]."
)
_LENGTH_MAX: Final = 10_000
_CLAUSES: Final = frozenset({"kind", "expressions", "from_", "where", "group"})


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """A query and the names of the columns that its answer shows."""

    query: Query
    key_column: str | None
    count_column: str


def parse(sql: str, table: TableDomain) -> Selection:
    """The question that the SQL asks about the table."""
    select = _single_select(sql)
    _require_table(select, table)
    grouped = _group_column(select)
    key_column, count_column = _shown(select, grouped)
    query = count(table, by=_declared_name(grouped, table) if grouped else None)
    for column, key in _conditions(select):
        query = restrict(query, column=_declared_name(column, table), key=key)
    return Selection(query=query, key_column=key_column, count_column=count_column)


def _single_select(sql: str) -> exp.Select:
    if not isinstance(sql, str) or len(sql) > _LENGTH_MAX:
        raise Unsupported("The SQL is not text of readable length.", fix=_FORM)
    try:
        statements = [tree for tree in sqlglot.parse(sql, dialect="duckdb") if tree is not None]
    except (SqlglotError, RecursionError):
        raise Unsupported("The SQL cannot be read.", fix=_FORM) from None
    if len(statements) != 1:
        raise Unsupported(f"There are {len(statements)} statements.", fix="Ask one question.")
    select = statements[0]
    if not isinstance(select, exp.Select):
        raise _refusal(select)
    for name, value in select.args.items():
        if value and name not in _CLAUSES:
            raise Unsupported(f"{name.rstrip('_').upper()} is not offered yet.", fix=_FORM)
    return select


def _require_table(select: exp.Select, table: TableDomain) -> None:
    clause = select.args.get("from_")
    source = clause.this if isinstance(clause, exp.From) else None
    if not isinstance(source, exp.Table) or any(
        value for name, value in source.args.items() if name != "this"
    ):
        raise Unsupported("FROM must name one table, without alias.", fix=_FORM)
    if source.name.lower() != table.name.lower():
        raise Unsupported(f"There is no table {source.name!r}.", fix=f"Ask about {table.name!r}.")


def _group_column(select: exp.Select) -> str | None:
    group = select.args.get("group")
    if group is None:
        return None
    extras = [name for name, value in group.args.items() if value and name != "expressions"]
    if extras or len(group.expressions) != 1:
        raise Unsupported("GROUP BY must name one column.", fix=_FORM)
    return _plain_column(group.expressions[0])


def _shown(select: exp.Select, grouped: str | None) -> tuple[str | None, str]:
    key_column = count_column = None
    for item in select.expressions:
        inner, name = (item.this, item.alias) if isinstance(item, exp.Alias) else (item, None)
        if isinstance(inner, exp.Count) and isinstance(inner.this, exp.Star):
            if count_column is not None or inner.args.get("distinct"):
                raise Unsupported("COUNT(*) stands more than once.", fix=_FORM)
            count_column = name or "count"
        else:
            column = _plain_column(inner)
            if grouped is None or column.lower() != grouped.lower() or key_column is not None:
                raise Unsupported(f"Column {column!r} is not what GROUP BY names.", fix=_FORM)
            key_column = name or column
    if count_column is None:
        raise Unsupported("No COUNT(*) is asked for.", fix=_FORM)
    if key_column is not None and key_column.lower() == count_column.lower():
        raise Unsupported(f"Two columns are called {count_column!r}.", fix="Name one of them.")
    if key_column is None and grouped is not None:
        raise Unsupported("The grouped column is not shown.", fix=_FORM)
    return key_column, count_column


def _conditions(select: exp.Select) -> list[tuple[str, Key]]:
    where = select.args.get("where")
    if where is None:
        return []
    found: list[tuple[str, Key]] = []
    for part in where.this.flatten() if isinstance(where.this, exp.And) else [where.this]:
        if not isinstance(part, exp.EQ) or not isinstance(part.expression, exp.Literal):
            raise _refusal(part)
        value = part.expression
        found.append((_plain_column(part.this), value.name if value.is_string else _whole(value)))
    if len({column.lower() for column, _ in found}) < len(found):
        raise Unsupported("WHERE names a column twice.", fix=_FORM)
    return found


def _whole(value: exp.Literal) -> int:
    try:
        return int(value.name)
    except ValueError:
        raise Unsupported(f"{value.name} is not a declared key.", fix=_FORM) from None


def _plain_column(node: exp.Expr) -> str:
    if not isinstance(node, exp.Column) or len(node.parts) != 1 or isinstance(node.this, exp.Star):
        raise _refusal(node)
    return node.name


def _declared_name(column: str, table: TableDomain) -> str:
    """The declared spelling: names in SQL do not mind upper and lower case."""
    matches = [name for name in table.columns if name.lower() == column.lower()]
    return matches[0] if len(matches) == 1 else column


def _refusal(node: exp.Expr) -> Unsupported:
    return Unsupported(f"{node.key.upper()} is not offered yet.", fix=_FORM)
