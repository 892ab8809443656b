"""SQL text to a tree: one SELECT, not too deep, whose names are its own."""

import re
from typing import Final

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from noisegate.errors import Unsupported
from noisegate.sql.reading.rows.pivot import flattened
from noisegate.sql.reading.words import FORM, Node, fold

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
