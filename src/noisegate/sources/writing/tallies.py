"""Tallies as queries: clamp, weigh, add; the clamp is the last step before the sum.

Claim: the numbers of a query move by at most the tally's sensitivity when a unit comes or goes.
Why: see `transforms/query.py`; here it is made true. Whole numbers are added in 128 bits, or, where
that is known to be exact, as doubles of at most 2**53 grains: `sums_query` tells when it is not.
"""

from collections.abc import Sequence
from fractions import Fraction
from functools import reduce
from typing import Final

from sqlglot import exp

from noisegate.algebra.expression import Call, Expression, Field, Literal, Schema, domain_of
from noisegate.algebra.relation import Filter, Project, Relation, Table
from noisegate.algebra.schema import schema_of
from noisegate.algebra.tally import (
    Axis,
    Cells,
    Distinct,
    Grouping,
    Keys,
    Marginals,
    Rows,
    Sums,
    Term,
    Values,
)
from noisegate.exact import EXACT_MAX
from noisegate.frozen import replace
from noisegate.privacy.domain import WHOLE_MAX, Domain, Kind
from noisegate.sources.source import SUM_MAX
from noisegate.sources.writing.dialect import Dialect
from noisegate.sources.writing.expressions import write
from noisegate.sources.writing.relations import OWNER, SIZE, Opened, RelationWriter, base_of
from noisegate.sources.writing.words import (
    anchor_of,
    and_,
    as_,
    by_places,
    call,
    case,
    cast,
    clamp,
    col,
    cte,
    is_not_null,
    is_placed,
    named,
    not_null,
    number,
    on_grid,
    raised,
    summed,
    whole,
)

_DOUBLE_MAX: Final = 10**300


def sums_query(tally: Sums, writer: RelationWriter, *, wide: bool) -> exp.Query:
    """Columns i0, i1, … (places of keys) and s0, s1, … (sums); absent cells are 0.

    Unless ``wide``, numbers may be added as doubles on their grid, which is quicker. Column ``w``
    then says where that was not exact: such a query is to be asked again, wide. What is exact holds
    in whatever order rows are added: every partial sum is a whole number of at most 2**53 grains.
    """
    terms, light, by_row = tally.terms, () if wide or tally.is_weighed else _light(tally), False
    if tally.is_weighed:
        from noisegate.sources.writing import weights  # noqa: PLC0415 - where owners have many rows

        by_row = _is_scan(tally.relation) and weights.is_by_row(tally)
        terms = terms if by_row else weights.folded_terms(tally)
    rows, is_owned = _rows(tally.relation, tally.by, terms, writer, light=light)
    if tally.is_weighed and is_owned and not by_row:
        return weights.weighed_sums(tally, rows, writer.dialect)
    by_row = by_row and is_owned
    groups, once = [f"k{place}" for place in range(len(tally.by))], is_placed(tally, writer.dialect)
    sums = exp.select(*(col(name, "r") for name in groups)).from_(named("r"), copy=False)
    for place, term in enumerate(tally.terms):
        is_column = by_row or term.constant is None
        value = col(f"e{place}", "r") if is_column else whole(term.constant or 0)
        sums = sums.select(as_(value if once else summed(value), f"s{place}"), copy=False)
    parts = [*groups, "b"] if by_row else groups
    sums = sums if once else sums.group_by(*(col(name, "r") for name in parts), copy=False)
    sums = weights.weighed_parts(tally, sums) if by_row else sums
    if light:
        sums = sums.select(as_(exp.Count(this=exp.Star()), "n"), copy=False)
    query = _added(sums, tally, light, writer.dialect)
    if by_row:
        return weights.weighed_rows(tally, query, rows)
    return query.with_(cte("r"), as_=rows, materialized=not _is_scan(tally.relation), copy=False)


def marginals_query(tally: Marginals, writer: RelationWriter) -> exp.Query:
    """Columns i0, i1, … and v: for each row the places of its keys, and its number, as in a sum.

    A key in no list has the place behind the last. Where all rows have one number, `constant_of`
    tells it and there is no v.
    """
    constant = constant_of(tally)
    rows, is_owned = _rows(tally.relation, tally.by, [tally.term], writer)
    shown = exp.select(*(col(f"k{place}", "r") for place in range(len(tally.by))))
    shown = shown.from_(named("r"), copy=False)
    cap = tally.rows_per_unit if is_owned else None
    value: exp.Expr = col("e0", "r")
    if cap is not None:
        value, shown = _weighed(value, cap), _with_heavy(shown)
    if constant is None:
        held = exp.Coalesce(this=value, expressions=[whole(0)])
        shown = shown.select(as_(cast(held, "BIGINT"), "v"), copy=False)
    every = [replace(grouping, rest=True) for grouping in tally.by]
    query = by_places(shown, every, ["v"] if constant is None else [])
    twice = cap is not None and not _is_scan(tally.relation)
    query = query.with_(cte("r"), as_=rows, materialized=twice, copy=False)
    if cap is not None:
        query = query.with_(cte("h"), as_=_heavy(cap, rows), materialized=False, copy=False)
    return query


def rows_query(tally: Rows, writer: RelationWriter) -> exp.Query:
    """Columns e0, e1, … (coordinates), i0 with a key, and w with a cap: what a row weighs."""
    rows, is_owned = _rows(tally.relation, tally.by, tally.terms, writer)
    names = [f"e{place}" for place in range(len(tally.terms))]
    cap = tally.rows_per_unit if is_owned else None
    narrow = [as_(cast(col(name, "r"), "INTEGER"), name) for name in names]
    shown = exp.select(*(col(f"k{place}", "r") for place in range(len(tally.by))), *narrow)
    shown = shown.from_(named("r"), copy=False)
    if cap is not None:
        weight = cast(_weighed(whole(tally.whole), cap), "INTEGER")
        shown = _with_heavy(shown.select(as_(weight, "w"), copy=False))
        names.append("w")
    held = and_(*(is_not_null(col(name, "r")) for name in names if name != "w"))
    query = by_places(shown.where(held, copy=False), tally.by, names)
    twice = cap is not None and not _is_scan(tally.relation)
    query = query.with_(cte("r"), as_=rows, materialized=twice, copy=False)
    if cap is not None:
        query = query.with_(cte("h"), as_=_heavy(cap, rows), materialized=False, copy=False)
    return query


def constant_of(tally: Marginals) -> int | None:
    """The one number of all rows, where the rows' owners do not matter."""
    is_one = type(tally.term.expression) is Literal and tally.rows_per_unit is None
    return tally.term.constant if is_one and tally.by else None


def values_query(tally: Values, writer: RelationWriter) -> exp.Query:
    """Columns i0, i1, … and v: one row for each value that takes part."""
    rows, is_owned = _rows(tally.relation, tally.by, [tally.term], writer)
    value = as_(col("e0", "r"), "v")
    groups = [col(f"k{place}", "r") for place in range(len(tally.by))]
    owner = [col(OWNER, "r")] if is_owned else []
    shown = exp.select(*groups, *owner, value).from_(named("r"), copy=False)
    shown = shown.where("r.e0 IS NOT NULL", copy=False)
    extra = ["v", *([OWNER] if is_owned else [])]
    query = by_places(shown, tally.by, extra).with_(cte("r"), as_=rows, copy=False)
    if not is_owned or tally.rows_per_unit is None:
        return query
    places = [f"i{place}" for place in range(len(tally.by))]
    return _evenly(query, [*places, "v"], tally.rows_per_unit, writer.dialect)


def keys_query(tally: Keys, writer: RelationWriter) -> exp.Query:
    """Columns k0, k1, … and n: how many owners hold each key."""
    rows, is_owned = _rows(tally.relation, [], [e for _, e in tally.by], writer)
    names = [f"e{place}" for place in range(len(tally.by))]
    kinds = [domain_of(e, schema_of(tally.relation)).kind for _, e in tally.by]
    held = and_(
        *(
            writer.dialect.can_be_key(col(n, "r"), kind)
            for n, kind in zip(names, kinds, strict=True)
        )
    )
    if is_owned:
        pairs = (
            exp.select(*(col(n, "r") for n in names), col(OWNER, "r"))
            .distinct(copy=False)
            .from_(named("r"), copy=False)
            .where(held, copy=False)
        )
        source: exp.Query = _lowest(pairs, names, tally.keys_per_unit, writer.dialect)
    else:
        source = exp.select(*(col(n, "r") for n in names)).from_(named("r"), copy=False)
        source = source.where(held, copy=False)
    shown = [as_(col(name, "p"), f"k{place}") for place, name in enumerate(names)]
    query = exp.select(*shown, as_(exp.Count(this=exp.Star()), "n")).from_(
        source.subquery("p", copy=False), copy=False
    )
    return query.group_by(*(col(name, "p") for name in names), copy=False).with_(
        cte("r"), as_=rows, copy=False
    )


def distinct_query(tally: Distinct, writer: RelationWriter) -> exp.Query:
    """Columns i0, i1, … and s0: how many different values each cell holds."""
    rows, is_owned = _rows(tally.relation, tally.by, [tally.expression], writer)
    groups = [f"k{place}" for place in range(len(tally.by))]
    places = [f"i{place}" for place in range(len(tally.by))]
    owner = [OWNER] if is_owned else []
    shown = exp.select(*(col(name, "r") for name in (*groups, "e0", *owner))).distinct(copy=False)
    placed = by_places(
        shown.from_(named("r"), copy=False).where("r.e0 IS NOT NULL", copy=False),
        tally.by,
        ["e0", *owner],
    )
    pairs = placed.with_(cte("r"), as_=rows, copy=False)
    source = pairs
    if is_owned:
        source = _lowest(pairs, [*places, "e0"], tally.keys_per_unit, writer.dialect)
    number_of = exp.Count(this=exp.Distinct(expressions=[col("e0", "p")]))
    query = exp.select(*(col(name, "p") for name in places), as_(number_of, "s0"))
    query = query.from_(source.subquery("p", copy=False), copy=False)
    return query.group_by(*(col(name, "p") for name in places), copy=False) if places else query


def cells_query(tally: Cells, writer: RelationWriter) -> exp.Query:
    """Column c, unsigned: for each row that takes part, the number of its cell.

    No step can fail: a value is clamped to its axis before it is counted with, and a place is below
    the size of its axis, so no partial number reaches that of all cells, at most 2**64.
    """
    listed = [axis for axis in tally.by if type(axis) is Grouping]
    axes = [axis for axis in tally.by if type(axis) is Axis]
    rows, is_owned = _rows(tally.relation, listed, [a.expression for a in axes], writer)
    names = [f"e{place}" for place in range(len(axes))] + ([OWNER] if is_owned else [])
    keys = [f"k{place}" for place in range(len(listed))]
    shown = exp.select(*(col(name, "r") for name in (*keys, *names))).from_(named("r"), copy=False)
    placed = by_places(shown, listed, names).subquery("p", copy=False)
    cell: exp.Expr = cast(whole(0), "UBIGINT")
    inside: list[exp.Expr] = []
    for axis in tally.by:
        if type(axis) is Axis:
            value = col(f"e{axes.index(axis)}", "p")
            low, high = whole(axis.low), whole(axis.low + axis.size - 1)
            inside.append(exp.Between(this=value.copy(), low=low.copy(), high=high.copy()))
            wide = "BIGINT" if axis.low >= 0 or axis.size <= WHOLE_MAX else "HUGEINT"
            held = cast(clamp(value, low, high), wide)
            place: exp.Expr = exp.Sub(this=held, expression=cast(whole(axis.low), wide))
        else:
            place = col(f"i{listed.index(axis)}", "p")
        size = exp.Literal.number(axis.size)
        shifted = exp.Mul(this=exp.paren(cell, copy=False), expression=cast(size, "UBIGINT"))
        cell = exp.Add(this=shifted, expression=cast(exp.paren(place, copy=False), "UBIGINT"))
    owner = [col(OWNER, "p")] if is_owned else []
    numbered = exp.select(as_(cell, "c"), *owner).from_(placed, copy=False)
    if inside:
        numbered = numbered.where(and_(*inside), copy=False)
    if is_owned and tally.rows_per_unit is not None:
        numbered = _evenly(numbered, ["c"], tally.rows_per_unit, writer.dialect)
    elif is_owned:
        numbered = exp.select(col("c", "q")).from_(numbered.subquery("q", copy=False), copy=False)
    return numbered.with_(cte("r"), as_=rows, copy=False)


def _rows(
    relation: Relation,
    by: Sequence[Grouping],
    values: Sequence[Expression | Term],
    writer: RelationWriter,
    *,
    light: Sequence[int] = (),
) -> tuple[exp.Select, bool]:
    """Rows with keys k0, …, values e0, … and their owner.

    The value of a term is whole; of a ``light`` one it is the same, as a double of whole grains.
    """
    opened, schema = writer.over(relation), schema_of(relation)
    shown = [as_(_key(grouping, schema, opened), f"k{place}") for place, grouping in enumerate(by)]
    for place, value in enumerate(values):
        if not isinstance(value, Term):
            written = write(value, schema, opened.field, writer.dialect)
        elif place in light:
            written = _light_value(value, relation, opened)
        else:
            written = _value(value, relation, opened)
        shown.append(as_(written, f"e{place}"))
    shown += [as_(col(name, opened.alias), name) for name in opened.below.carried]
    return opened.query.select(*shown, copy=False), opened.is_owned


def _key(grouping: Grouping, schema: Schema, opened: Opened) -> exp.Expr:
    """A key as it is grouped by. Narrow whole numbers stay so: that is quicker."""
    expression = grouping.expression
    is_whole = domain_of(expression, schema).kind is Kind.INTEGER
    if is_whole and type(expression) is Field and expression.name in opened.below.stored:
        return opened.stored(expression)
    return write(expression, schema, opened.field, opened.dialect)


def _light(tally: Sums) -> tuple[int, ...]:
    """The terms that can be added as doubles."""
    terms = enumerate(tally.terms)
    return tuple(place for place, term in terms if _is_light(term, tally.relation))


def _is_light(term: Term, relation: Relation) -> bool:
    """Whether it is about numbers, in steps of a power of two."""
    if type(term.expression) is Literal:
        return False
    grain, kind = term.grain, domain_of(term.expression, schema_of(relation)).kind
    return kind is Kind.NUMBER and grain.numerator.bit_count() == grain.denominator.bit_count() == 1


def _light_value(term: Term, relation: Relation, opened: Opened) -> exp.Expr:
    """A double of whole grains, clamped; NULL where there is none.

    Nearly all values are inside, which one comparison tells. NaN and infinity are not; of a raised
    value, whatever a file's statistics say of it: on the grid, and between ends on the grid. What
    is outside is clamped and then rounded, which gives the same for a value just beyond an end.
    """
    low, high = term.low * term.grain, term.high * term.grain
    bounds = _clamped_to(term, relation)
    if bounds is None:
        value = write(term.expression, schema_of(relation), opened.field, opened.dialect)
        guard = is_not_null(value.copy())
    else:
        value, (low, high) = opened.stored(term.expression), bounds
        guard = opened.dialect.finite(value.copy())
    moved = on_grid(clamp(value.copy(), number(low), number(high)), term.grain)
    compared = value.copy()
    if opened.dialect.compares_raised:
        anchor, compared = anchor_of(term.grain), raised(compared, term.grain)
        low = anchor - (-low // term.grain) * term.grain
        high = anchor + high // term.grain * term.grain
    inside = exp.Between(this=compared, low=number(low), high=number(high))
    return case((inside, on_grid(value, term.grain)), (guard, moved))


def _value(term: Term, relation: Relation, opened: Opened) -> exp.Expr:
    """The whole number of a row: rounded to the grain and clamped, NULL where there is none.

    It is the same however sums are added: else one row more could round all rows otherwise.
    """
    if term.constant is not None:
        return whole(term.constant)
    steps, schema, dialect = 1 / term.grain, schema_of(relation), opened.dialect
    if _is_light(term, relation):
        grains = exp.Mul(this=_light_value(term, relation, opened), expression=number(steps))
        return dialect.on_grid(exp.paren(grains, copy=False))
    if (given := _given(term)) is not None:
        return case((write(given[0], schema, opened.field, dialect), whole(given[1])))
    value = write(term.expression, schema, opened.field, dialect)
    domain = domain_of(term.expression, schema)
    low, high = -(-term.low // steps.numerator), term.high // steps.numerator
    if domain.kind is Kind.INTEGER and steps.denominator == 1 and low <= high:
        inside = clamp(value, whole(max(low, -WHOLE_MAX)), whole(min(high, WHOLE_MAX)))
        if steps > 1:
            inside = exp.Mul(this=inside, expression=whole(steps.numerator))
        return not_null(value.copy(), inside)
    inside = cast(value, "DOUBLE")
    if not _is_moderate(domain, steps):
        ends = term.low * term.grain, term.high * term.grain
        inside = clamp(inside, number(ends[0]), number(ends[1]))
    whole_steps = dialect.rounded(dialect.times(inside, number(steps)))
    bounded = clamp(whole_steps, number(Fraction(term.low)), number(Fraction(term.high)))
    return not_null(value.copy(), cast(bounded, "BIGINT"))


def _given(term: Term) -> tuple[Expression, int] | None:
    """A condition and the number of each row that meets it, where a term is so: it is clamped."""
    steps = 1 / term.grain
    match term.expression:
        case Call("case", (condition, Literal(then) as number_of)) if type(then) is int:
            if steps.denominator == 1 and term.low % steps == term.high % steps == 0:
                return condition, replace(term, expression=number_of).constant or 0
    return None


def _is_moderate(domain: Domain, steps: Fraction) -> bool:
    """Whether the value cannot leave the doubles when it is counted in steps."""
    size = domain.magnitude
    return size is not None and size * max(steps, Fraction(1)) < _DOUBLE_MAX


def _clamped_to(term: Term, relation: Relation) -> tuple[Fraction, Fraction] | None:
    """The bounds of a base column that is clamped on reading, into the ends of the term."""
    table, low, high = base_of(relation), term.low * term.grain, term.high * term.grain
    if table is None or type(term.expression) is not Field:
        return None
    between = table.domain.columns[term.expression.name].between
    exact = all(Fraction(float(end)) == end for end in (low, high))
    inside = between is not None and low <= between[0] and between[1] <= high
    return between if exact and inside else None


def _weighed(value: exp.Expr, cap: int) -> exp.Expr:
    """The value of an owner's row: times cap / rows, rounded towards zero, if it has many."""
    size = col("n", "h")
    product = exp.Mul(this=exp.paren(value, copy=False), expression=whole(cap))
    less = exp.IntDiv(this=exp.paren(product, copy=False), expression=size)
    few = exp.Is(this=size.copy(), expression=exp.null())
    return case((few, value.copy()), otherwise=less)


def _with_heavy(query: exp.Select) -> exp.Select:
    """The rows r, each with the number of its owner's rows where these are many."""
    same = exp.EQ(this=col(OWNER, "r"), expression=col(OWNER, "h"))
    return query.join(named("h"), on=same, join_type="left", copy=False)


def _added(sums: exp.Select, tally: Sums, light: Sequence[int], dialect: Dialect) -> exp.Select:
    """The sums by the places of their keys, clamped. What is in no list is added to the rest."""
    by = tally.by
    added = by_places(sums, by, [])
    if not by:
        added = exp.select().from_(sums.subquery("g", copy=False), copy=False)
    unsure: list[exp.Expr] = []
    for place, term in enumerate(tally.terms):
        part: exp.Expr = col(f"s{place}", "g")
        if place in light:
            finite = dialect.finite(part.copy())
            many = exp.GT(this=col("n", "g"), expression=whole(EXACT_MAX // term.reach))
            unsure += [exp.not_(finite, copy=False), many]
            grains = exp.Mul(this=part, expression=number(1 / term.grain))
            part = dialect.on_grid(exp.paren(grains, copy=False))
        total = exp.Coalesce(this=exp.Sum(this=part), expressions=[whole(0)])
        inside = clamp(total, whole(-SUM_MAX), whole(SUM_MAX))
        added = added.select(as_(cast(inside, "BIGINT"), f"s{place}"), copy=False)
    if unsure:
        here = case((exp.or_(*unsure, copy=False), whole(1)), otherwise=whole(0))
        added = added.select(as_(exp.Max(this=here), "w"), copy=False)
    places = [exp.Literal.number(place + 1) for place in range(len(by))]
    return added.group_by(*places, copy=False) if by else added


def _heavy(cap: int, rows: exp.Select) -> exp.Select:
    """Owners with more rows than the cap, and how many; the others' rows weigh 1."""
    size = exp.Count(this=exp.Star())
    query = exp.select(col(OWNER, "r"), as_(size, "n")).from_(named("r"), copy=False)
    query = query.group_by(col(OWNER, "r"), copy=False)
    if SIZE in rows.named_selects:  # who has no more in all of the table has no more here
        query = query.where(exp.GT(this=col(SIZE, "r"), expression=whole(cap)), copy=False)
    return query.having(exp.GT(this=size.copy(), expression=whole(cap)), copy=False)


def _evenly(query: exp.Select, order: Sequence[str], cap: int, dialect: Dialect) -> exp.Select:
    """At most ``cap`` rows of each owner: every n / cap-th of its order, from any one on.

    Claim: an owner of n > cap rows keeps exactly ``cap`` of them, which its own rows alone decide.
    Why: row i is kept where ⌊(i cap + s) / n⌋ rises, by 1 since cap < n; from 0 to n, by ⌊cap +
        s / n⌋ - ⌊s / n⌋ = cap. Over all s each row is kept as often: quantiles stay in place.
    """
    owner, size = col(OWNER, "v"), exp.Count(this=exp.Star())
    sorted_rows = exp.Order(expressions=[exp.Ordered(this=col(name, "v")) for name in order])
    numbered = exp.select(
        *(col(name, "v") for name in (*order, OWNER)),
        as_(exp.Window(this=exp.RowNumber(), partition_by=[owner], order=sorted_rows), "at"),
        as_(exp.Window(this=size, partition_by=[owner.copy()]), "n"),
    ).from_(query.subquery("v", copy=False), copy=False)
    whose, most, n = col(OWNER, "w"), whole(cap), col("n", "x")
    begin = and_(col("at", "w").eq(whole(1)), exp.GT(this=col("n", "w"), expression=most))
    start = case((begin, _start(whose, col("n", "w"), dialect)))  # in one row of an owner
    of_all = exp.Window(this=exp.Max(this=start), partition_by=[whose.copy()])
    started = exp.select(*(col(name, "w") for name in (*order, "at", "n")), as_(of_all, "s"))
    started = started.from_(numbered.subquery("w", copy=False), copy=False)
    rest = (col("at", "x") * most + col("s", "x")) % n
    kept = exp.or_(exp.LTE(this=n, expression=most), exp.LT(this=rest, expression=most))
    chosen = exp.select(*(col(name, "x") for name in order)).where(kept, copy=False)
    return chosen.from_(started.subquery("x", copy=False), copy=False)


def _start(owner: exp.Expr, size: exp.Expr, dialect: Dialect) -> exp.Expr:
    """One of 256 even steps from 0 to below ``size``, of the owner alone: equal on all engines.

    By the first 8 digits of SHA-256 of the owner as text: is each 8 or above?
    """
    text, steps = dialect.sha256(cast(owner, "VARCHAR")), list[exp.Expr]()
    for place in range(8):
        digit = call("SUBSTR", text.copy(), *map(exp.Literal.number, (place + 1, 1)))
        half = exp.GTE(this=digit, expression=exp.Literal.string("8"))
        steps.append(case((half, whole(1 << place)), otherwise=whole(0)))
    step = exp.paren(reduce(lambda a, b: exp.Add(this=a, expression=b), steps), copy=False)
    return exp.paren(exp.IntDiv(this=exp.paren(size * step), expression=whole(256)), copy=False)


def _lowest(pairs: exp.Query, names: Sequence[str], cap: int, dialect: Dialect) -> exp.Select:
    """At most ``cap`` of each owner's pairs: those with the lowest hashes."""
    hashed = dialect.choice([col(name, "v") for name in names], col(OWNER, "v"))
    order = exp.Order(
        expressions=[exp.Ordered(this=e) for e in (hashed, *(col(n, "v") for n in names))]
    )
    rank = exp.Window(this=exp.RowNumber(), partition_by=[col(OWNER, "v")], order=order)
    numbered = exp.select(*(col(name, "v") for name in names), as_(rank, "at"))
    numbered = numbered.from_(pairs.subquery("v", copy=False), copy=False)
    chosen = exp.select(*(col(name, "w") for name in names)).where(f"at <= {cap}", copy=False)
    return chosen.from_(numbered.subquery("w", copy=False), copy=False)


def _is_scan(relation: Relation) -> bool:
    """Whether reading the rows twice is cheaper than keeping them, and finds the same ones.

    A view may draw its rows, so that an owner would be counted by others than those it adds.
    """
    while isinstance(relation, Filter | Project):
        relation = relation.of
    return isinstance(relation, Table) and not (relation.domain.path or relation.domain.views)
