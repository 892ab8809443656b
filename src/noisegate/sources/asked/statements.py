"""Statements that are the same on all engines that are asked: tallies that fold to few numbers."""

from collections.abc import Sequence
from typing import Final

from sqlglot import exp

from noisegate.algebra.tally import Cells, Grouping, Marginals, Values
from noisegate.privacy.domain import Key, Kind
from noisegate.sources.asked.dialect import DecimalDialect
from noisegate.sources.source import SUM_MAX
from noisegate.sources.writing.dialect import Dialect
from noisegate.sources.writing.relations import RelationWriter
from noisegate.sources.writing.tallies import (
    cells_query,
    constant_of,
    marginals_query,
    values_query,
)
from noisegate.sources.writing.words import (
    as_,
    call,
    cast,
    clamp,
    col,
    cte,
    is_not_null,
    keys_table,
    range_of,
    whole,
    write_value,
)

_LOW: Final = 1 << 32
_MANY: Final = 1 << 16  # different values
_SHORT: Final = 64  # keys that each group is compared with


def values_list(
    query: exp.Query, place: int, grouping: Grouping, kind: Kind, dialect: DecimalDialect
) -> None:
    """Put the list (i, x) of a grouping's keys before all other parts of the statement.

    Where a number or a short list tells the place, no table is joined: that is a stage of a job.
    """
    if range_of(grouping) or _found(query, place, grouping, kind, dialect):
        return
    if kind is Kind.INTEGER and None not in grouping.keys:
        texts = exp.Literal.string(",".join(str(key) for key in grouping.keys))
        rows: exp.Expr = dialect.split(texts, len(grouping.keys)).subquery("k", copy=False)
    else:
        columns = [exp.to_identifier(name) for name in ("i", "x")]
        names = exp.TableAlias(this=exp.to_identifier("k"), columns=columns)
        tuples = [
            exp.Tuple(expressions=[exp.Literal.number(i), _key(key, kind)])
            for i, key in enumerate(grouping.keys)
        ]
        rows = exp.Values(expressions=tuples, alias=names)
    found = exp.select(as_(cast(col("i", "k"), "BIGINT"), "i"), as_(cast(col("x", "k"), kind), "x"))
    found = found.from_(rows)
    if None not in grouping.keys:  # then no NULL has a place, and plain equality is quicker
        plain_equality(query, place)
    query.with_(cte(keys_table(place)), as_=found, copy=False)
    parts = query.args["with_"].expressions
    parts.insert(0, parts.pop())


def _found(
    query: exp.Query, place: int, grouping: Grouping, kind: Kind, dialect: DecimalDialect
) -> bool:
    """Write the places of keys as expressions, if that is quick whatever the rows hold."""
    keys, table = grouping.keys, keys_table(place)
    is_short = dialect.finds_places and len(keys) <= _SHORT and None not in keys
    if not is_short or kind not in (Kind.INTEGER, Kind.TEXT):
        return False

    def at(value: exp.Expr) -> exp.Expr:
        found = call("ARRAY_POSITION", call("ARRAY", *(_key(each, kind) for each in keys)), value)
        zero, one = map(exp.Literal.number, (0, 1))
        return cast(exp.Sub(this=call("NULLIF", found, zero), expression=one), "BIGINT")

    for join in [each for each in query.find_all(exp.Join) if each.this.name == table]:
        select, same = join.parent_select or exp.Select(), join.args["on"]
        if join.side != "LEFT":
            select.where(is_not_null(at(same.this.copy())), copy=False)
        join.pop()
        for column in [each for each in select.find_all(exp.Column) if each.table == table]:
            column.replace(at(same.this.copy()))
    return True


def _key(key: Key | None, kind: Kind) -> exp.Expr:
    if key is None:
        return exp.null()
    if isinstance(key, str):
        return exp.Literal.string(key)
    if isinstance(key, int) and not isinstance(key, bool):
        return whole(key)
    return write_value(key, kind)


def plain_equality(query: exp.Query, place: int) -> None:
    """Compare with the keys of this list as if there were no NULL."""
    for same in list(query.find_all(exp.NullSafeEQ)):
        if same.expression.table == keys_table(place):
            same.replace(exp.EQ(this=same.this, expression=same.expression))


def is_grouped(tally: Values, dialect: Dialect) -> bool:
    """Whether there are so few possible values that grouping them is quicker than sending them."""
    return not dialect.sends_values or tally.term.high - tally.term.low < _MANY


def values_statement(tally: Values, writer: RelationWriter) -> exp.Query:
    """Columns i0, …, v and n: the different values of each cell, and how often each comes.

    Those that are sent one by one have no n.
    """
    rows = values_query(tally, writer)
    if not is_grouped(tally, writer.dialect):
        return rows
    ctes = rows.args.pop("with_", None)
    names = [*(f"i{place}" for place in range(len(tally.by))), "v"]
    query = exp.select(*(col(name, "m") for name in names), as_(exp.Count(this=exp.Star()), "n"))
    query = query.from_(rows.subquery("m", copy=False), copy=False)
    query = query.group_by(*(col(name, "m") for name in names), copy=False)
    if ctes is not None:
        query.set("with_", ctes)
    return query


def whole_rows(query: exp.Query, names: Sequence[str]) -> exp.Select:
    """These columns of a statement as 64-bit numbers."""
    shown = (as_(cast(col(name, "answer"), "BIGINT"), name) for name in names)
    return exp.select(*shown).from_(query.subquery("answer", copy=False), copy=False)


def marginals_statement(tally: Marginals, writer: RelationWriter) -> exp.Query:
    """Columns i0, … and v: for each set its sums, where the place of a folded column is −1.

    A key in no list has the place behind the last, as in `marginals_query`; none is NULL.
    """
    rows, constant = marginals_query(tally, writer), constant_of(tally)
    value: exp.Expr = exp.Sum(this=col("v", "m"))
    if constant is not None:
        wide = cast(exp.Count(this=exp.Star()), "HUGEINT")
        value = exp.Mul(this=wide, expression=whole(constant))
    names = [f"i{place}" for place in range(len(tally.by))]
    total = clamp(exp.Coalesce(this=value, expressions=[whole(0)]), whole(-SUM_MAX), whole(SUM_MAX))
    shown = [as_(exp.Coalesce(this=col(n, "m"), expressions=[whole(-1)]), n) for n in names]
    query = exp.select(*shown, as_(total, "v"))
    ctes = rows.args.pop("with_", None)
    query = query.from_(rows.subquery("m", copy=False), copy=False)
    if ctes is not None:
        query.set("with_", ctes)
    if names:
        sets = [
            exp.Tuple(expressions=[col(names[place], "m") for place in each])
            for each in dict.fromkeys(tally.sets)
        ]
        query.set("group", exp.Group(grouping_sets=[exp.GroupingSets(expressions=sets)]))
    return query


def cells_statement(tally: Cells, writer: RelationWriter) -> exp.Query:
    """Columns h and c, the high and the low 32 bits of a cell's number, and n, its rows."""
    rows = cells_query(tally, writer)
    ctes = rows.args.pop("with_", None)
    number, low = col("c", "m"), exp.Literal.number(_LOW)
    wide = cast(number, "UBIGINT")  # so that an engine knows what it divides
    query = exp.select(
        as_(exp.IntDiv(this=wide, expression=low), "h"),
        as_(exp.Mod(this=wide.copy(), expression=low.copy()), "c"),
        as_(exp.Count(this=exp.Star()), "n"),
    )
    query = query.from_(rows.subquery("m", copy=False), copy=False)
    query = query.group_by(number.copy(), copy=False)
    if ctes is not None:
        query.set("with_", ctes)
    return query
