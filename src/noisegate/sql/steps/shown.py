"""The free SQL of a question: tried on made-up numbers before paying, then on released ones."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

import sqlglot
from sqlglot import exp

from noisegate.curator.curator import Curator
from noisegate.errors import Unsupported
from noisegate.sql.outer.engine import shown_table
from noisegate.sql.outer.items import ReleasedBlock
from noisegate.sql.outer.margins import Margins
from noisegate.sql.question import Question
from noisegate.sql.reuse.released import blank_table, released_block
from noisegate.sql.steps.first import after_paying
from noisegate.sql.steps.ordered import Order, Parcel

if TYPE_CHECKING:
    import pyarrow as pa

Shown: TypeAlias = "tuple[pa.Table, Margins, Margins | None]"


def rehearsed(curator: Curator, question: Question, orders: Sequence[Order]) -> "pa.Table":
    """Run the free SQL on made-up numbers: what it refuses is refused before it is paid."""
    drafts = [order.bought.draft for order in orders]
    blank = {draft.block.name: blank_table(draft) for draft in drafts}
    public = public_tables(curator, question)
    try:
        return shown_table(question, blank, public)
    except Unsupported as refusal:
        words = "Tried on made-up numbers, before paying: "
        refused = Unsupported(words + refusal.problem, fix=refusal.fix, about=refusal.about)
    raise refused


def shown_of(curator: Curator, question: Question, parcels: Sequence[Parcel]) -> Shown:
    """The table of an answer, its error bars, and those of the noise alone where they differ."""
    public, drafts = public_tables(curator, question), [each.bought.draft for each in parcels]

    def blocks(*, noise: bool) -> dict[str, ReleasedBlock]:
        pairs = zip(drafts, parcels, strict=True)
        return {d.block.name: released_block(d, each.estimates, noise=noise) for d, each in pairs}

    released = blocks(noise=False)
    try:
        tables = {name: block.table for name, block in released.items()}
        table = shown_table(question, tables, public)
    except Unsupported as refusal:
        raise after_paying(refusal) from None
    noise = None
    if any(each.estimates.is_raised or each.estimates.is_clipped for each in parcels):
        noise = Margins(question.outer, blocks(noise=True), public, table, question.picked)
    return table, Margins(question.outer, released, public, table, question.picked), noise


def public_tables(curator: Curator, question: Question) -> "dict[str, pa.Table]":
    """The public tables that the free SQL names."""
    public = [name for name, table in curator.tables.items() if table.is_public]
    if not public:
        return {}
    tree = sqlglot.parse_one(question.outer, dialect="duckdb")
    named = {table.name.lower() for table in tree.find_all(exp.Table)}
    return {name: curator.public(name) for name in public if name.lower() in named}
