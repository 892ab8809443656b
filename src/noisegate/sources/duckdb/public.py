"""Public tables: all their rows, exact and free, and keys that do not repeat."""

from collections.abc import Callable, Mapping
from typing import Any

from sqlglot import exp

from noisegate.errors import PolicyError
from noisegate.privacy.domain import TableDomain
from noisegate.sources.duckdb.dialect import DUCKDB
from noisegate.sources.writing.words import base_value, col, shown_value


def public_query(domain: TableDomain, types: Mapping[str, str]) -> exp.Select:
    """What is shown of a public table; refuses any other."""
    if not domain.is_public:
        raise PolicyError(
            f"{domain.name!r} is not public.", fix="Ask about it with a price.", about="public"
        )
    return exp.select(*(
        exp.alias_(
            shown_value(column, types[name], col(name), DUCKDB),
            exp.to_identifier(name, quoted=True),
        )
        for name, column in domain.columns.items()
        if not column.hidden
    ))  # fmt: skip


def require_key(
    domain: TableDomain, types: Mapping[str, str], view: str, run: Callable[..., list[Any]]
) -> None:
    """Refuse a declared key that repeats; ``run`` has work done on a line to the engine."""
    values = [
        base_value(domain.columns[name], types[name], col(name), DUCKDB) for name in domain.key
    ]
    query = exp.select(exp.Count(this=exp.Star())).from_(view)
    for value in values:
        query = query.where(exp.not_(exp.Is(this=exp.paren(value), expression=exp.null())))
    query = query.group_by(*values).having("COUNT(*) > 1").limit(1)
    text = query.sql(dialect="duckdb")
    if run(lambda connection: connection.execute(text).fetchall(), ()):
        raise PolicyError(
            f"The key of {domain.name!r} has duplicates: {', '.join(domain.key)}.",
            fix="Name columns without duplicates, or leave out key.",
            about="key",
        )
