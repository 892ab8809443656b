"""Rows dealt to blocks by a secret, as queries."""

from collections.abc import Mapping
from itertools import pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from sqlglot import exp

from noisegate.algebra.blocks import Blocks
from noisegate.algebra.schema import schema_of
from noisegate.sources.writing.relations import OWNER, RelationWriter
from noisegate.sources.writing.words import as_, cast, col

_DIGITS: Final = 15  # of a hash, as a number


def blocks_query(tally: Blocks, writer: RelationWriter, key: str) -> exp.Query:
    """Columns v0, v1, … and b, the row's block; sorted by block, and inside by a secret order.

    Claim: owners are dealt to blocks, and rows ordered, independently of each other. Why: both
        follow from the hash of a key, which is used once, and the owner, or the number that the
        engine gives a row; such hashes are as good as random to whoever does not know the key.
        Rows of one owner are ordered by their values.
    """
    opened, schema = writer.over(tally.relation), schema_of(tally.relation)
    values = [f"v{place}" for place in range(len(tally.columns))]
    dealt = col(OWNER, opened.alias) if opened.is_owned else exp.Window(this=exp.RowNumber())
    secret = exp.DPipe(this=exp.Literal.string(key), expression=cast(dealt, "VARCHAR"), safe=False)
    rows = opened.query.select(
        *(
            as_(cast(opened.field(name), schema[name].kind, may_fail=True), value)
            for name, value in zip(tally.columns, values, strict=True)
        ),
        as_(writer.dialect.sha256(secret), "h"),
        copy=False,
    )
    block = f"CAST('0x' || SUBSTR(r.h, 1, {_DIGITS}) AS BIGINT) % {tally.blocks}"
    return (
        exp.select(*(col(value, "r") for value in values))
        .select(as_(exp.maybe_parse(block, dialect="duckdb"), "b"), copy=False)
        .from_(rows.subquery("r", copy=False), copy=False)
        .order_by("b", "r.h", *(col(value, "r") for value in values), copy=False)
    )


def dealt_rows(found: Mapping[str, Any], tally: Blocks) -> list[dict[str, NDArray[Any]]]:
    """The columns of each block, by name.

    How a block's columns are stored depends on that block alone: where a whole number is missing in
    one, numbers of others stay whole.
    """
    ends = np.searchsorted(found["b"], np.arange(tally.blocks + 1))
    return [
        {name: _plain(found[f"v{place}"][start:end]) for place, name in enumerate(tally.columns)}
        for start, end in pairwise(ends.tolist())
    ]


def _plain(column: NDArray[Any]) -> NDArray[Any]:
    """A column without a mask: NaN, NaT or None where values are missing; zero has no sign."""
    missing, values = np.ma.getmaskarray(column), np.ma.getdata(column)
    if values.dtype.kind == "f":
        values = np.where(missing, np.nan, values + 0.0)
    elif not missing.any():
        return values
    elif values.dtype.kind in "iu":
        values = np.where(missing, np.nan, values.astype(np.float64))
    elif values.dtype.kind == "M":
        values = np.where(missing, np.datetime64("NaT"), values)
    else:
        values = values.astype(object)
        values[missing] = None
    return values
