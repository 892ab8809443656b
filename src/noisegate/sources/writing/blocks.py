"""Rows dealt to blocks by a secret: as a query, and out of the stream of its rows."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray
from sqlglot import exp

from noisegate.algebra.blocks import Blocks
from noisegate.algebra.schema import schema_of
from noisegate.errors import SourceError
from noisegate.privacy.domain import Kind
from noisegate.sources.writing.dialect import TEXT_MAX
from noisegate.sources.writing.folds import told_apart
from noisegate.sources.writing.relations import OWNER, RelationWriter
from noisegate.sources.writing.words import and_, as_, call, case, cast, col

if TYPE_CHECKING:
    import pyarrow as pa

HASH: Final = "h"
_DIGITS: Final = 16  # of a hash, which tell the block
_TYPES: Final = {
    Kind.BOOLEAN: "?", Kind.INTEGER: "i8", Kind.NUMBER: "f8", Kind.TEXT: "O", Kind.DATE: "M8[us]",
    Kind.TIMESTAMP: "M8[us]",
}  # fmt: skip


def kinds_of(tally: Blocks) -> dict[str, Kind]:
    """The columns of the query, in their order."""
    schema = schema_of(tally.relation)
    values = {f"v{place}": schema[name].kind for place, name in enumerate(tally.columns)}
    return {**values, HASH: Kind.TEXT}


def blocks_query(tally: Blocks, writer: RelationWriter, key: str) -> exp.Query:
    """Columns v0, v1, … and h, where a hash begins; sorted by that hash, then by values.

    Claim: owners are dealt to blocks, and rows ordered, independently of each other; each is in
        one block, a range of hashes. Why: both follow from the hash of a key, which is used once,
        and the owner, or the number of a row; such hashes are as good as random to whoever does
        not know the key. Rows of one owner are ordered by their values.
        Rows that are units are numbered in the order of their values, which has nothing to do with
        the key. Equal ones look alike, so that an engine that numbers them again, as clusters do
        when a machine is lost, deals the same rows to the same blocks.
    """
    opened, kinds = writer.over(tally.relation), kinds_of(tally)
    del kinds[HASH]
    owner = [col(OWNER, opened.alias)] if opened.is_owned else []
    rows = opened.query.select(
        *(
            as_(_value(opened.field(name), kind, writer), value)
            for name, (value, kind) in zip(tally.columns, kinds.items(), strict=True)
        ),
        *owner,
        copy=False,
    )
    order = exp.Order(expressions=told_apart(col(value, "r") for value in kinds))
    number = exp.Window(this=exp.RowNumber(), order=order)
    dealt = cast(col(OWNER, "r") if opened.is_owned else number, "VARCHAR")
    secret = exp.DPipe(this=exp.Literal.string(key), expression=dealt, safe=False)
    hashed = exp.select(*(col(v, "r") for v in kinds), as_(writer.dialect.sha256(secret), "x"))
    hashed = hashed.from_(rows.subquery("r", copy=False), copy=False)
    start = call("SUBSTR", col("x", "d"), *map(exp.Literal.number, (1, _DIGITS)))
    query = exp.select(*(col(value, "d") for value in kinds), as_(start, HASH))
    query = query.from_(hashed.subquery("d", copy=False), copy=False)
    return query.order_by(*told_apart(col(name, "d") for name in ("x", *kinds)), copy=False)


def _value(value: exp.Expr, kind: Kind, writer: RelationWriter) -> exp.Expr:
    """A value as its kind's type; a text that is too long, not UTF-8, or has a NUL, is missing."""
    if kind is Kind.TEXT:
        size = call(writer.dialect.octets, value.copy())
        short = exp.LTE(this=size, expression=exp.Literal.number(TEXT_MAX))
        told = exp.paren(writer.dialect.can_be_key(value, kind))
        value = case((and_(short, told), value.copy()))
    return cast(value, kind)


def dealt_rows(
    batches: "Iterable[pa.RecordBatch]", tally: Blocks
) -> Iterator[dict[str, NDArray[Any]]]:
    """The columns of each block, by name, one block after the other.

    How a block's columns are stored depends on that block alone: where a whole number is missing in
    one, numbers of others stay whole.
    """
    ends = [f"{(place << 4 * _DIGITS) // tally.blocks:016x}" for place in range(1, tally.blocks)]
    edges, at = np.array(ends, f"S{_DIGITS}"), 0
    held: list[pa.RecordBatch] = []
    for batch in batches:
        hashes = np.array(batch.column(len(tally.columns)).to_pylist(), edges.dtype)
        places = np.searchsorted(edges, hashes, side="right")
        if np.any(np.diff(places, prepend=at) < 0):
            raise SourceError(
                "The engine does not keep the order that it was asked for.",
                fix="Nothing was released; let the steward look at the engine.",
                about="order",
            )
        for start, end in pairwise(
            [0, *(np.flatnonzero(np.diff(places)) + 1).tolist(), len(places)]
        ):
            while end and at < places[start]:
                yield _columns(held, tally)
                held, at = [], at + 1
            held.append(batch.slice(start, end - start))
    for _ in range(at, tally.blocks):
        yield _columns(held, tally)
        held = []


def _columns(held: "Sequence[pa.RecordBatch]", tally: Blocks) -> dict[str, NDArray[Any]]:
    kinds = kinds_of(tally).values()
    return {
        name: _plain([batch.column(place) for batch in held], kind)
        for place, (name, kind) in enumerate(zip(tally.columns, kinds, strict=False))
    }


def _plain(parts: "Sequence[pa.Array]", kind: Kind) -> NDArray[Any]:
    """A column: NaN, NaT or None where values are missing; zero has no sign."""
    if not parts:
        return np.zeros(0, _TYPES[kind])
    import pyarrow as pa  # noqa: PLC0415 - slow to load

    found: NDArray[Any] = pa.chunked_array(parts).to_numpy()
    if kind is Kind.NUMBER:
        return found + 0.0
    return found.astype(_TYPES[kind]) if found.dtype.kind == "M" else found
