"""Keeping only the rows with one key: how a table is cut into disjoint parts."""

from dataclasses import replace

from noisegate.privacy.domain import Key
from noisegate.transforms.query import Query, declared, require_key


def restrict(query: Query, *, column: str, key: Key) -> Query:
    """The same question about the rows whose ``column`` holds ``key``.

    Claim: keeps the sensitivity. Why: a row-wise filter keeps or drops each row by its own value.
    Requires: a declared key, so that asking says nothing about which keys exist.
    """
    found = declared(query.table, column)
    require_key(found, key)
    tally = replace(query.tally, where=(*query.tally.where, (found, key)))
    return replace(query, tally=tally, path=(*query.path, f"only rows with {column!r} = {key!r}"))
