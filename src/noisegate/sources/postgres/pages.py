"""Rows of one table, a few pages of it at a time: what `found.py` packs is not numbered and sorted.

Claim: the texts hold each row of the statement once. Why: the statement is a chain of SELECTs, each
    of which shows some rows of the one before, row by row; the first reads the table. A row that
    the transaction sees has one place (ctid) there, so it is in one range of pages and in no other.
    All such pages are there when the table's size is asked for, in the same statement: nothing
    shortens a table that is locked. Tables that keep rows otherwise than in pages of the usual kind
    (`Stored.in_pages`), or that others inherit from, are read as before.
"""

from typing import Final

from sqlglot import exp

from noisegate.sources.writing.words import call, col

_PAGES: Final = 16  # of one text: some thousand rows
_OF_MANY: Final = (  # what makes a row of others, or others of a row
    exp.AggFunc, exp.Distinct, exp.Fetch, exp.Group, exp.Join, exp.Lateral, exp.Limit, exp.Offset,
    exp.Order, exp.SetOperation, exp.TableSample, exp.Unnest, exp.Values, exp.Window,
)  # fmt: skip


def in_ranges(query: exp.Query, base: str) -> bool:
    """Have the statement read a range of the pages of ``base``; False where that is not all."""
    tables = list(query.find_all(exp.Table))
    bases = [each for each in tables if each.name == base]
    others = sorted(each.name for each in tables if each.name != base)
    parts = sorted(each.alias for each in query.find_all(exp.CTE))
    if len(bases) != 1 or others != parts or query.find(*_OF_MANY) is not None:
        return False
    select, place = bases[0].parent_select, col("ctid", bases[0].alias)
    if not isinstance(select, exp.Select) or not bases[0].alias:
        return False
    select.where(exp.GTE(this=place, expression=_first("at")), copy=False)
    select.where(exp.LT(this=place.copy(), expression=_first("next")), copy=False)
    return True


def by_ranges(text: str, oid: int) -> str:
    """A statement `in_ranges` of the table of this number, about one 64-bit number a row, packed.

    A range without rows is an empty text.
    """
    packed = f"SELECT string_agg(int8send(q.c0), '') FROM ({text}) AS q(c0)"  # noqa: S608 - ours
    length = f"pg_relation_size('{oid}')"
    last = f"{length} / (pg_size_bytes(current_setting('block_size')) * {_PAGES})"
    ranges = f"SELECT n * {_PAGES}, (n + 1) * {_PAGES} FROM generate_series(0, {last}) AS s(n)"  # noqa: S608
    return f"SELECT COALESCE(({packed}), '') FROM ({ranges}) AS pages(at, next)"  # noqa: S608


def _first(page: str) -> exp.Expr:
    """Before the first place of a page. No cast is looked up for it."""
    left, right = map(exp.Literal.string, ("(", ",0)"))
    text = call("CONCAT", left, col(page, "pages"), right)
    return call("TIDIN", call("TEXTOUT", text))
