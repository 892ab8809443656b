"""Lists of keys as Postgres takes them: one array."""

from datetime import date, datetime

from sqlglot import exp

from noisegate.algebra.tally import Grouping
from noisegate.privacy.domain import Key, Kind
from noisegate.sources.asked.statements import plain_equality
from noisegate.sources.writing.words import TYPES, as_, cast, col, keys_table, range_of


def keys_list(query: exp.Query, place: int, grouping: Grouping, kind: Kind) -> None:
    """Put the list (i, x) of a grouping's keys before all other parts of the statement."""
    if range_of(grouping):
        return
    texts = ",".join(_element(key) for key in grouping.keys)
    listed = exp.Cast(
        this=exp.Literal.string(f"{{{texts}}}"),
        to=exp.DataType.build(f"{TYPES[kind]}[]", dialect="duckdb"),
    )
    value: exp.Expr = col("x", "k")
    if kind is Kind.TEXT:
        value = cast(value, kind)
    numbered = exp.Sub(this=col("i", "k"), expression=exp.Literal.number(1))
    names = exp.TableAlias(this=exp.to_identifier("k"),
                           columns=[exp.to_identifier("x"), exp.to_identifier("i")])  # fmt: skip
    rows = exp.Unnest(expressions=[listed], alias=names, offset=True)
    found = exp.select(as_(numbered, "i"), as_(value, "x")).from_(rows)
    if None not in grouping.keys:  # then no NULL has a place, and plain equality is quicker
        plain_equality(query, place)
    query.with_(keys_table(place), as_=found, materialized=True, copy=False)
    parts = query.args["with_"].expressions
    parts.insert(0, parts.pop())


def _element(key: Key | None) -> str:
    """A key as an element of an array's text."""
    if key is None:
        return "NULL"
    if isinstance(key, bool):
        return "t" if key else "f"
    if isinstance(key, date | datetime):
        return f'"{key.isoformat()}"'
    if isinstance(key, str):
        text = key.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{text}"'
    return str(key) if isinstance(key, int) else repr(float(key))
