"""Sums of owners that have weights, on engines that compute a part anew wherever it is named.

Claim: the numbers of `writing/weights.py`, to the unit. Why: there, owners of few rows are added as
    they are, and the others folded and scaled by what further readings say of them: such an engine
    would read the rows six times. Here every owner is folded, and its norm is a window over its own
    parts. An owner of few rows is within all bounds: its weight is 1 in both ways, and what it adds
    to a cell is the same sum, which is not clamped.
Counted owners: where a constant sizes owners up and every row is in a cell, bound and norm are that
    constant times the cap and times the owner's n rows, so that w·v is v · cap / max(n, cap),
    rounded towards zero: v itself for n of at most the cap. Keys find their places last. With 2**32
    rows in a cell, the norm may be above that of what is clamped.
Row by row: what is written so there is written so here. The rows of one table are then read twice
    by one statement, as files that do not change meanwhile.
Whole numbers: of a term of less than 2**27, 64 bits have room for what an owner adds to a cell with
    fewer than 2**36 rows, and a bound below 2**27 leaves room for what 2**36 owners add.
"""

from sqlglot import exp

from noisegate.algebra.tally import Sums
from noisegate.sources.asked.decimals import bounded
from noisegate.sources.writing.dialect import Dialect
from noisegate.sources.writing.relations import OWNER, RelationWriter
from noisegate.sources.writing.tallies import _is_scan, _rows, sums_query
from noisegate.sources.writing.weights import (
    _added,
    _folded,
    _least,
    _limits,
    _merged,
    _of,
    _places,
    _root,
    _scaled,
    _sizes,
    folded_terms,
    is_by_row,
)
from noisegate.sources.writing.words import (
    as_,
    by_places,
    call,
    case,
    cast,
    col,
    cte,
    is_placed,
    named,
    whole,
)

_MOST = (1 << 63) - 1
_NARROW = 1 << 27
_ROWS_MAX = 1 << 32  # of one owner in one cell, that are counted without a clamp


def sums_once(tally: Sums, writer: RelationWriter) -> exp.Query:
    """The query of sums; it says of those of rows and of parts how far their values can be."""
    terms = folded_terms(tally)
    query = counted_once(tally, writer)
    if query is None and tally.is_weighed and tally.by and not _is_by_row(tally):
        rows, is_owned = _rows(tally.relation, tally.by, terms, writer)
        query = weighed_once(tally, rows, writer.dialect) if is_owned else None
    if query is None:
        query = sums_query(tally, writer, wide=True)
    if is_placed(tally, writer.dialect):
        bounded(query, "g", {f"s{place}": term.reach for place, term in enumerate(tally.terms)})
    return bounded(query, "r", {f"e{place}": term.reach for place, term in enumerate(terms)})


def counted_once(tally: Sums, writer: RelationWriter) -> exp.Query | None:
    """The query of counted owners, which reads their rows once; None where others are asked for."""
    limits, cap = _limits(tally) if tally.is_weighed else [], tally.rows_per_unit
    if cap is None or not tally.by or _is_by_row(tally) or not _is_counted(tally, limits):
        return None
    rows, is_owned = _rows(tally.relation, tally.by, tally.terms, writer)
    if not is_owned:
        return None
    keys = [f"k{place}" for place in range(len(tally.by))]
    values = [f"v{place}" for place in range(len(tally.terms))]
    folded = _folded(tally, limits)[: len(values)]
    for place, term in enumerate(tally.terms):
        if term.constant is None and term.reach < _NARROW:
            few = exp.Coalesce(this=_narrow(col(f"e{place}", "r")), expressions=[whole(0)])
            folded[place] = as_(few, values[place])
    groups = [col(name, "r") for name in (OWNER, *keys)]  # in the order of the window
    parts = exp.select(*groups, as_(exp.Count(this=exp.Star()), "n"), *folded)
    parts = parts.from_(named("r"), copy=False).group_by(*(g.copy() for g in groups), copy=False)
    size = cast(_over(call("SUM", col("n", "p"))), "BIGINT")
    sized = exp.select(*(col(name, "p") for name in (*keys, *values)), as_(size, "n"))
    sized = sized.from_(parts.subquery("p", copy=False), copy=False)
    added = exp.select(*(col(name, "w") for name in keys))
    for place, term in enumerate(tally.terms):
        divisor = call("GREATEST", col("n", "w"), whole(cap))
        wide = cast(divisor.copy(), "HUGEINT")
        part = _scaled(col(values[place], "w"), cap, wide, divisor)
        total = call("SUM", part) if tally.bound(term) < _NARROW else exp.Sum(this=part)
        added = added.select(as_(total, f"s{place}"), copy=False)
    added = added.from_(sized.subquery("w", copy=False), copy=False)
    added = added.group_by(*(col(name, "w") for name in keys), copy=False)
    query = _added(tally, by_places(added, tally.by, [f"s{place}" for place in range(len(values))]))
    return query.with_(cte("r"), as_=rows, copy=False)


def _is_by_row(tally: Sums) -> bool:
    """Whether `sums_query` weighs the rows one by one."""
    return _is_scan(tally.relation) and is_by_row(tally)


def _is_counted(tally: Sums, limits: list[int]) -> bool:
    """Whether the number of an owner's rows tells its norm."""
    first, squares = _sizes(tally)[0][1], tally.squares_per_unit
    roomy = limits[folded_terms(tally).index(first)] >= _ROWS_MAX * first.reach
    is_counted = abs(first.constant or 0) == first.reach > 0 and squares is None and roomy
    return is_counted and all(grouping.rest for grouping in tally.by)


def _narrow(value: exp.Expr) -> exp.Expr:
    """The sum of whole numbers of 32 bits in 64."""
    return call("SUM", cast(value, "INTEGER"))


def weighed_once(tally: Sums, rows: exp.Select, dialect: Dialect) -> exp.Select:
    """Columns i0, … and s0, … of rows k0, …, e0, … with their owners, which are read once."""
    limits = _limits(tally)
    parts = _of(tally, [OWNER], _folded(tally, limits), exp.true())
    parts = by_places(parts, tally.by, [OWNER, *(f"v{place}" for place in range(len(limits)))])
    if tally.squares_per_unit is not None and any(grouping.rest for grouping in tally.by):
        parts = _merged(parts, tally, limits)
    query = _added(tally, _scaled_once(tally, _sized(tally, parts, dialect)))
    most = {f"s{place}": tally.bound(term) for place, term in enumerate(tally.terms)}
    bounded(query, "a", most)
    return query.with_(cte("r"), as_=rows, copy=False)


def _sized(tally: Sums, parts: exp.Select, dialect: Dialect) -> exp.Select:
    """The parts, each with what its owner has: norms n0, …, one for each bound, and whether few.

    A norm is at least its bound; ``few`` says that none is above it.
    """
    names = [*_places(tally), *(f"v{place}" for place in range(len(_limits(tally))))]
    shown: list[exp.Expr] = [col(name, "p") for name in names]
    norms, within = dict[int, list[exp.Expr]](), list[exp.Expr]()
    for name, term in _sizes(tally):
        value, constant = col(name, "p"), abs(term.constant or 0)
        size: exp.Expr = exp.Abs(this=value)
        if constant and constant == term.reach:
            count = exp.IntDiv(this=size, expression=whole(constant))
            rows = cast(_over(dialect.added(count)), "HUGEINT")  # times 2**40 or less, below 10**38
            norm: exp.Expr = exp.Mul(this=rows, expression=cast(whole(constant), "HUGEINT"))
        else:
            norm = _over(exp.Sum(this=size))
        shown.append(as_(norm, f"a_{name}"))
        norm = size = col(f"a_{name}", "b")
        most = bound = tally.bound(term)
        if tally.squares_per_unit is not None:
            wide = cast(value.copy(), "HUGEINT")
            square = _over(exp.Sum(this=exp.Mul(this=wide, expression=wide.copy())))
            shown.append(as_(square, f"q_{name}"))
            size, most = col(f"q_{name}", "b"), tally.squares_per_unit * term.reach**2
            norm = _root(size.copy(), norm, dialect)  # while what is within is told exactly
        limit = whole(most) if most <= _MOST else cast(exp.Literal.number(most), "HUGEINT")
        within.append(exp.LTE(this=size.copy(), expression=limit))
        norms.setdefault(bound, [whole(bound)]).append(norm)
    found = exp.select(*shown).from_(parts.subquery("p", copy=False), copy=False)
    largest = [as_(call("GREATEST", *each), f"n{n}") for n, each in enumerate(norms.values())]
    few = as_(exp.and_(*within, copy=False), "few")
    query = exp.select(*(col(name, "b") for name in names), few, *largest)
    return query.from_(found.subquery("b", copy=False), copy=False)


def _over(total: exp.Expr) -> exp.Expr:
    return exp.Window(this=total, partition_by=[col(OWNER, "p")])


def _scaled_once(tally: Sums, parts: exp.Select) -> exp.Select:
    """Each part times the least weight of its owner: s0, s1, … by place."""
    bounds = list(dict.fromkeys(tally.bound(term) for _, term in _sizes(tally)))
    norms = [col(f"n{place}", "w") for place in range(len(bounds))]
    query = exp.select(*(col(name, "w") for name in _places(tally)))
    for place in range(len(tally.terms)):
        value = col(f"v{place}", "w")
        scaled = [
            _scaled(value.copy(), bound, norm.copy(), _near(norm.copy()))
            for bound, norm in zip(bounds, norms, strict=True)
        ]
        many = _least(value.copy(), scaled)
        shown = case((col("few", "w"), value), otherwise=many)
        query = query.select(as_(shown, f"s{place}"), copy=False)
    return query.from_(parts.subquery("w", copy=False), copy=False)


def _near(norm: exp.Expr) -> exp.Expr:
    return cast(call("LEAST", norm, whole(_MOST)), "BIGINT")
