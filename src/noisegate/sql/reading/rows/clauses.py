"""FROM and WHERE by themselves: tables that are joined, and what a SELECT of rows may say."""

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, TypeAlias

from sqlglot import exp

from noisegate.algebra.expression import Expression
from noisegate.errors import Unsupported
from noisegate.frozen import dataclass, replace
from noisegate.sql.reading.rows.joins import joined
from noisegate.sql.reading.sight import Name, Rows, conjuncts, find
from noisegate.sql.reading.words import Node, at, fold, refusal, require_only

Env: TypeAlias = Mapping[str, Any]  # what names of tables mean: tables, rows, released tables
SourceOf: TypeAlias = Callable[[Node, Env], Rows]
_ROW_PARTS: Final = (
    "with_", "expressions", "distinct", "from_", "joins", "where", "group", "having",
)  # fmt: skip
ROW_CLAUSES = {
    "order": "ORDER BY",
    "limit": "LIMIT",
    "offset": "OFFSET",
    "sample": "SAMPLE",
    "qualify": "QUALIFY",
    "windows": "WINDOW",
}


@dataclass(frozen=True, slots=True)
class Clauses:
    """Reads tables; ``source`` and ``rows`` read what stands in FROM and sub-queries.

    ``first`` gives the number of a sub-query that is measured before the question, if it can be.
    """

    source: SourceOf
    rows: SourceOf
    first: Callable[[exp.Select, Env], Expression | None] | None = None

    def together(self, select: exp.Select, sources: list[Rows]) -> tuple[Rows, list[Node]]:
        """The joined tables of FROM, and the parts of WHERE that are left."""
        where = select.args.get("where")
        pool = conjuncts(None if where is None else where.this)
        joins = select.args.get("joins") or []
        tables = [fold_table(rows) for rows in sources]
        if len(set(tables)) < len(tables):
            raise Unsupported(
                "Two tables have the same name.", fix="Name one of them with AS.", about="name"
            )
        names = [name for rows in sources for name in rows.names]
        commas = [join for join in joins if not join.args.get("on") and not join.args.get("using")]
        if commas and any(join.side == "RIGHT" for join in joins):
            raise Unsupported("RIGHT JOIN follows a comma.", fix="Write every join as JOIN ... ON.")
        usable = [part for part in pool if commas and _plain(part, names)]
        rest = [part for part in pool if part not in usable]
        pairs = list(zip(sources[1:], joins, strict=True))
        rows, order = sources[0], [sources[0]]
        while pairs:
            tied = (pair for pair in pairs if _tied(order, pair[0], usable))
            free = len(commas) == len(joins) and not any(join.side or join.kind for join in joins)
            right, join = next(tied, pairs[0]) if free else pairs[0]
            pairs = [pair for pair in pairs if pair[0] is not right]
            with at(join):
                rows = joined(rows, right, join, usable)
            order.append(right)
        if order != sources:  # names stand as FROM lists them
            places = {fold_table(one): place for place, one in enumerate(sources)}
            shown = sorted(rows.names, key=lambda name: places.get(fold(name.table), 0))
            rows = replace(rows, names=tuple(shown))
        return rows, usable + rest

    def refuse_more(self, select: exp.Select) -> None:
        """Refuse a sub-query that says more than FROM and WHERE."""
        refuse_row_clauses(select)
        require_only(select, "expressions", "from_", "joins", "where", "distinct")
        if select.args.get("from_") is None:
            raise refusal("SUBQUERY")


def _tied(joined_so_far: list[Rows], other: Rows, parts: list[Node]) -> bool:
    """Whether an equality ties a table to those before it, whatever their order in FROM."""
    names = [name for rows in joined_so_far for name in rows.names]
    for part in parts:
        if isinstance(part, exp.EQ):
            sides = (part.this, part.expression)
            for one, two in (sides, sides[::-1]):
                here = [find(column, names) for column in columns_of(one)]
                there = [find(column, other.names) for column in columns_of(two)]
                if here and there and None not in (*here, *there):
                    return True
    return False


def fold_table(rows: Rows) -> object:
    """What a source is called, to tell two of one name apart."""
    return fold(rows.names[0].table) if rows.names and rows.names[0].table else object()


def refuse_row_clauses(select: Node, *, but: Collection[str] = ()) -> None:
    """Refuse what would let rows decide which rows count."""
    for part, word in ROW_CLAUSES.items():
        clause = select.args.get(part)
        if clause and part not in but:
            with at(clause if isinstance(clause, exp.Expr) else clause[0]):
                raise refusal(word)
    distinct = select.args.get("distinct")
    if isinstance(distinct, exp.Distinct) and distinct.args.get("on"):
        raise refusal("DISTINCT ON")


def refuse_inner_clauses(select: exp.Select, *but: str) -> None:
    """The same of a SELECT inside another; of the outermost, all rows are refused."""
    if select.parent is not None:
        refuse_row_clauses(select, but=but)
        require_only(select, *_ROW_PARTS, *but)


def columns_of(node: Node) -> list[exp.Column]:
    """All columns that something names."""
    return list(node.find_all(exp.Column))


def _plain(part: Node, names: list[Name]) -> bool:
    """Whether a condition has no sub-query; refuses ambiguous names before tables are joined."""
    if part.find(exp.Query):
        return False
    for column in columns_of(part):
        find(column, names)
    return True
