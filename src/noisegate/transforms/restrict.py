"""Keeping only the rows with one key: how a table is cut into disjoint parts."""

from dataclasses import replace

from noisegate.errors import Unsupported
from noisegate.privacy.domain import Key
from noisegate.transforms.query import Query


def restrict(query: Query, *, column: str, key: Key) -> Query:
    """The same question about the rows whose ``column`` holds ``key``.

    Claim: keeps the sensitivity. Why: a row-wise filter keeps or drops each row by its own value.
    Requires: a declared key, so that asking says nothing about which keys exist.
    """
    declared = query.table.columns.get(column)
    if declared is None or declared.keys is None or key not in declared.keys:
        raise Unsupported(
            f"{key!r} is not a declared key of {column!r}.",
            fix=f"Declare it: columns={{{column!r}: {{'in': [...]}}}}.",
        )
    tally = replace(query.tally, where=(*query.tally.where, (declared, key)))
    return replace(query, tally=tally, path=(*query.path, f"only rows with {column!r} = {key!r}"))
