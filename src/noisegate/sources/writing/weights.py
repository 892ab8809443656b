"""Sums of owners that have weights: fold per owner and cell, scale, add.

Claim: an owner adds at most `Sums.bound` to the cells of each term, in L1, or in L2 where squares
    are bounded; where a constant sizes owners up, in L2 at most √squares · reach.
Adjacency: add/remove one unit, which is all rows of one owner.
Why: let v be what the owner adds to the cells of a term, N a whole number of at least its norm, B
    the bound, and w ≤ B / N a weight in [0, 1] that its own rows alone decide. It adds w·v, each
    component rounded towards zero and so none enlarged: ‖w·v‖ ≤ B ‖v‖ / N ≤ B. No one else's rows
    enter. Where a constant sizes it up, let c count its rows per cell: then w ≤ b / ‖c‖, and as
    |vᵢ| ≤ reach · cᵢ, ‖w·v‖ ≤ reach · b for every term, b rows or √squares.
Whole numbers: an owner's sum in a cell is in 128 bits, then clamped to ±2**62, or to ±2**50 where
    squares are added; rows and what they add are clamped alike, which keeps |vᵢ| ≤ reach · cᵢ.
    Bounds are at most 2**60, or 2**48, so nobody within them is clamped, and no product reaches
    2**127. A root is guessed in doubles and taken only where its square is enough in whole numbers;
    else N is the L1 norm, which is no smaller.
Few rows: an owner of n rows has ‖v‖₂ ≤ ‖v‖₁ ≤ n · reach in every term, so with n of at most
    `rows_per_unit`, or ⌊√squares⌋, it is within all bounds: w = 1, and it adds v whether or not it
    is folded. A copy states with each row how many its owner has in the whole table (``SIZE``), of
    which n are some: that decides whether rows are added as they are, or folded as all others are.
Row by row: in L1, where a constant C sizes owners up and every row is in a cell, w is cap / n, here
    rounded down to W = ⌊C · cap / n⌋ parts of C, and C parts of others. Each row adds its e times
    that over C, rounded towards zero: at most reach · cap / n, and e itself of others, exactly; 64
    bits hold reach · C. Rows of C add W exactly: averages are
    of rows of one weight. It is done where C ≥ 32 (cap + 1): of n > cap rows the bound loses n -
    cap ≥ n / (cap + 1), and rounding W n / C at most. An owner with W below 64 is folded instead.
Cells: keys that are in no list are in no cell, or in the rest. Folded by themselves they make an
    L1 norm no smaller; before squares are taken, the rest is added up to one cell.
Citation: bounds per user [AKMV19]; here all of a user is scaled, and no group is left out.
"""

from math import isqrt
from typing import Final

from sqlglot import exp

from noisegate.algebra.tally import Sums, Term
from noisegate.sources.source import SUM_MAX
from noisegate.sources.writing.dialect import Dialect
from noisegate.sources.writing.relations import OWNER, SIZE
from noisegate.sources.writing.words import (
    as_,
    by_places,
    call,
    case,
    cast,
    clamp,
    col,
    cte,
    joined,
    named,
    summed,
    whole,
)

FOLDED_MAX: Final = 1 << 62  # what an owner adds to a cell, before it is scaled
SQUARED_MAX: Final = 1 << 50  # the same where squares are added: 2**24 of them fit into 128 bits
WEIGHED: Final = "q"  # the rows that are weighed one by one, as they were
_LITTLE: Final = 32  # rounding row by row loses at most so small a part of what the bound loses
_FINE: Final = 64  # parts that a row's weight has at least
_MOST: Final = (1 << 63) - 1


def folded_terms(tally: Sums) -> tuple[Term, ...]:
    """What is folded per owner and cell: all that is asked for, each at its place; then the rest.

    A term may be asked for twice, and no other may then stand at the second one's place.
    """
    others = (term for term in dict.fromkeys(tally.sized) if term not in tally.terms)
    return (*tally.terms, *others)


def weighed_sums(tally: Sums, rows: exp.Select, dialect: Dialect) -> exp.Select:
    """Columns i0, i1, … and s0, s1, … of rows k0, …, e0, … (`folded_terms`) with their owners."""
    limits, sized = _limits(tally), SIZE in rows.named_selects
    if not tally.by and not sized:
        parts = exp.select(col(OWNER, "r")).select(*_folded(tally, limits), copy=False)
        parts = parts.from_(named("r"), copy=False).group_by(col(OWNER, "r"), copy=False)
        query = _added(tally, _scaled_parts(tally))
        query = query.with_(cte("r"), as_=rows, materialized=False, copy=False)
        return query.with_(cte("p"), as_=parts, materialized=False, copy=False)
    many = _many(col(SIZE, "r"), tally) if sized else exp.true()
    parts = _of(tally, [OWNER], _folded(tally, limits), many)
    parts = by_places(parts, tally.by, [OWNER, *(f"v{place}" for place in range(len(limits)))])
    if tally.squares_per_unit is not None and any(grouping.rest for grouping in tally.by):
        parts = _merged(parts, tally, limits)
    both: exp.Query = _added(tally, _scaled_parts(tally), limit=None)
    if sized:
        sums = [as_(_total(tally.terms, place), f"s{place}") for place in range(len(tally.terms))]
        names = [f"s{place}" for place in range(len(sums))]
        plain = by_places(_of(tally, [], sums, exp.not_(many)), tally.by, names)
        both = exp.union(both, plain, distinct=False, copy=False)
    query = _added(tally, both).with_(cte("r"), as_=rows, materialized=False, copy=False)
    query = query.with_(cte("p"), as_=parts, materialized=True, copy=False)
    return query.with_(cte("h"), as_=_heavy(tally, dialect), materialized=False, copy=False)


def is_by_row(tally: Sums) -> bool:
    """Whether rows are weighed one by one: see "Row by row"."""
    cap, first = tally.rows_per_unit, _sizes(tally)[0][1]
    if cap is None or not tally.by or not all(grouping.rest for grouping in tally.by):
        return False
    most = first.reach * max(term.reach for term in folded_terms(tally))
    return abs(first.constant or 0) == first.reach >= _LITTLE * (cap + 1) and most <= _MOST


def weighed_rows(tally: Sums, query: exp.Select, rows: exp.Select) -> exp.Select:
    """The query over r: the ``rows``, values e0, e1, … weighed, or as they are of an owner b."""
    owner, size, first = col(OWNER, WEIGHED), exp.Count(this=exp.Star()), _sizes(tally)[0][1]
    owners = exp.select(owner, as_(size, "n")).from_(named(WEIGHED), copy=False)
    if SIZE in rows.named_selects:  # who has no more in all of the table has no more here
        owners = owners.where(_many(col(SIZE, WEIGHED), tally), copy=False)
    owners = owners.group_by(owner.copy(), copy=False).having(_many(size.copy(), tally), copy=False)
    bound, many = tally.bound(first), col("n", "s")
    some = exp.LTE(this=many, expression=whole(bound // _FINE))
    parts = exp.IntDiv(this=whole(bound), expression=many.copy())
    sized = exp.select(col(OWNER, "s"), many.copy()).select(
        as_(case((some, cast(parts, "BIGINT"))), "w"),
        as_(case((exp.not_(some.copy()), col(OWNER, "s"))), "b"),
        copy=False,
    )
    sized = sized.from_(owners.subquery("s", copy=False), copy=False)
    names = [*(col(f"k{place}", WEIGHED) for place in range(len(tally.by))), col("n", "c")]
    weighed = exp.select(*names, col("b", "c"))
    weight = exp.Coalesce(this=col("w", "c"), expressions=[whole(first.reach)])  # 1 of all others
    for place, term in enumerate(tally.terms):
        shown: exp.Expr = weight.copy()
        if abs(term.constant or 0) != first.reach:
            value = col(f"e{place}", WEIGHED) if term.constant is None else whole(term.constant)
            product = exp.paren(exp.Mul(this=value, expression=weight.copy()), copy=False)
            shown = cast(_by_reach(product, first.reach, signed=term.low < 0), "BIGINT")
        elif term.constant != first.reach:
            shown = exp.Neg(this=shown)
        weighed = weighed.select(as_(shown, f"e{place}"), copy=False)
    same = exp.EQ(this=owner.copy(), expression=col(OWNER, "c"))
    weighed = joined(weighed.from_(named(WEIGHED), copy=False), named("c"), same, left=True)
    query = query.with_(cte(WEIGHED), as_=rows, materialized=True, copy=False)
    query = query.with_(cte("c"), as_=sized, materialized=False, copy=False)
    return query.with_(cte("r"), as_=weighed, materialized=False, copy=False)


def _by_reach(product: exp.Expr, reach: int, *, signed: bool) -> exp.Expr:
    """A product over the reach, rounded towards zero; a shift is that, and quicker, from 0 on."""
    if signed or reach.bit_count() != 1:
        return exp.IntDiv(this=product, expression=whole(reach))
    places = exp.Literal.number(reach.bit_length() - 1)
    return exp.BitwiseRightShift(this=product, expression=places)


def weighed_parts(tally: Sums, sums: exp.Select) -> exp.Select:
    """Sums of r by key and b: those of an owner b of n rows times cap / n."""
    size, others = exp.Max(this=col("n", "r")), exp.Is(this=col("b", "u"), expression=exp.null())
    parts = sums.select(col("b", "r"), as_(size, "n"), copy=False).subquery("u", copy=False)
    found = exp.select(*(col(f"k{place}", "u") for place in range(len(tally.by))))
    for place in range(len(tally.terms)):
        held = _clamped(col(f"s{place}", "u"), FOLDED_MAX)
        part = _exactly(held, tally.rows_per_unit or 0, cast(col("n", "u"), "HUGEINT"))
        part = cast(part, "HUGEINT")
        shown = case((others.copy(), col(f"s{place}", "u")), otherwise=part)
        found = found.select(as_(shown, f"s{place}"), copy=False)
    return found.from_(parts, copy=False)


def _of(tally: Sums, others: list[str], sums: list[exp.Expr], which: exp.Expr) -> exp.Select:
    """Sums of some of the rows r, by keys and ``others``."""
    names = [*(f"k{place}" for place in range(len(tally.by))), *others]
    groups = [col(name, "r") for name in names]
    query = exp.select(*groups, *sums).from_(named("r"), copy=False).where(which, copy=False)
    return query.group_by(*(group.copy() for group in groups), copy=False)


def _many(size: exp.Expr, tally: Sums) -> exp.Expr:
    """Whether these are more rows than any bound has room for; fewer are within all of them."""
    squares = tally.squares_per_unit
    most = tally.rows_per_unit or 0 if squares is None else isqrt(squares)
    return exp.GT(this=size, expression=whole(most))


def _folded(tally: Sums, limits: list[int]) -> list[exp.Expr]:
    """What an owner adds to a cell of each term, clamped; of constants, by the number of rows."""
    terms, folded = folded_terms(tally), list[exp.Expr]()
    for place, (term, limit) in enumerate(zip(terms, limits, strict=True)):
        constant, name = term.constant, f"v{place}"
        if constant and limit % constant == 0:
            rows = call("LEAST", exp.Count(this=exp.Star()), whole(limit // abs(constant)))
            folded.append(as_(exp.Mul(this=rows, expression=whole(constant)), name))
        else:
            folded.append(_held(_total(terms, place), limit, name))
    return folded


def _total(terms: tuple[Term, ...], place: int) -> exp.Expr:
    """The sum of a term over some rows r."""
    constant = terms[place].constant
    return summed(col(f"e{place}", "r") if constant is None else whole(constant))


def _limits(tally: Sums) -> list[int]:
    """What each folded term is clamped to, per owner and cell; rows and what they add alike."""
    terms, (_, first) = folded_terms(tally), _sizes(tally)[0]
    most = FOLDED_MAX if tally.squares_per_unit is None else SQUARED_MAX
    if abs(first.constant or 0) != first.reach:
        return [most] * len(terms)
    rows = min(most // first.reach, FOLDED_MAX // max(term.reach for term in terms))
    return [rows * term.reach for term in terms]


def _held(total: exp.Expr, limit: int, name: str) -> exp.Expr:
    """A sum as BIGINT, clamped; 0 of no values."""
    return as_(cast(_clamped(total, limit), "BIGINT"), name)


def _clamped(total: exp.Expr, limit: int) -> exp.Expr:
    some = exp.Coalesce(this=total, expressions=[whole(0)])
    return clamp(some, whole(-limit), whole(limit))


def _merged(parts: exp.Select, tally: Sums, limits: list[int]) -> exp.Select:
    """The parts with one row for each owner and cell."""
    keys = [col(name, "m") for name in (*_places(tally), OWNER)]
    sums = (
        _held(exp.Sum(this=col(f"v{place}", "m")), limit, f"v{place}")
        for place, limit in enumerate(limits)
    )
    query = exp.select(*keys, *sums).from_(parts.subquery("m", copy=False), copy=False)
    return query.group_by(*(key.copy() for key in keys), copy=False)


def _heavy(tally: Sums, dialect: Dialect) -> exp.Select:
    """Owners beyond a bound, and for each bound a number of at least it and the largest norm."""
    owner, squares = col(OWNER, "p"), tally.squares_per_unit
    found = exp.select(owner).from_(named("p"), copy=False).group_by(owner.copy(), copy=False)
    beyond: list[exp.Expr] = []
    norms: dict[int, list[exp.Expr]] = {}
    for name, term in _sizes(tally):
        value, bound = col(name, "p"), tally.bound(term)
        size = exp.Sum(this=exp.Abs(this=value.copy()))
        found = found.select(as_(size, f"a_{name}"), copy=False)
        norm: exp.Expr = col(f"a_{name}", "b")
        if squares is not None:
            wide = cast(value, "HUGEINT")
            size = exp.Sum(this=exp.Mul(this=wide, expression=wide.copy()))
            found = found.select(as_(size, f"q_{name}"), copy=False)
            norm = _root(col(f"q_{name}", "b"), norm, dialect)
        most = bound if squares is None else squares * term.reach**2  # no root is rounded here
        limit = cast(exp.Literal.number(most), "HUGEINT")
        beyond.append(exp.GT(this=size.copy(), expression=limit))
        norms.setdefault(bound, [whole(bound)]).append(norm)
    found = found.having(exp.or_(*beyond, copy=False), copy=False)
    query = exp.select(col(OWNER, "b")).from_(found.subquery("b", copy=False), copy=False)
    for place, each in enumerate(norms.values()):
        norm = call("GREATEST", *each)
        near = cast(call("LEAST", norm.copy(), whole(_MOST)), "BIGINT")
        query = query.select(as_(norm, f"n{place}"), as_(near, f"m{place}"), copy=False)
    return query


def _root(square: exp.Expr, otherwise: exp.Expr, dialect: Dialect) -> exp.Expr:
    """A whole number whose square is at least ``square``, mostly the least; or ``otherwise``."""
    double = cast(square, "DOUBLE")
    near = dialect.wide(exp.Ceil(this=exp.Sqrt(this=double)))
    little = exp.IntDiv(this=near.copy(), expression=whole(1 << 40))
    above = exp.Add(this=exp.Add(this=near.copy(), expression=little), expression=whole(1))

    def enough(root: exp.Expr) -> exp.Expr:
        product = exp.Mul(this=exp.paren(root), expression=exp.paren(root))
        return exp.GTE(this=product, expression=square.copy())

    return case((enough(near), near), (enough(above), above), otherwise=otherwise)


def _scaled_parts(tally: Sums) -> exp.Select:
    """The parts p of owners, each scaled: s0, s1, … by place.

    Of sizing terms with one bound the largest norm has the least weight: it decides for all.
    """
    bounds: dict[int, list[exp.Expr]] = {}
    for name, term in _sizes(tally):
        bounds.setdefault(tally.bound(term), []).append(exp.Abs(this=col(name, "p")))
    values = [col(f"v{place}", "p") for place in range(len(tally.terms))]
    norms = [col(f"n{place}", "h") for place in range(len(bounds))]
    near = [col(f"m{place}", "h") for place in range(len(bounds))]
    parts: exp.Expr = named("p")
    few: exp.Expr = exp.Is(this=norms[0].copy(), expression=exp.null())
    if not tally.by:  # one cell: its norm is the number itself
        sized = (
            as_(call("GREATEST", whole(bound), *spans), f"n{place}")
            for place, (bound, spans) in enumerate(bounds.items())
        )
        inner = exp.select(*values, *sized).from_(parts, copy=False)
        parts, near = inner.subquery("h", copy=False), norms
        values = [col(value.name, "h") for value in values]
        pairs = zip(norms, bounds, strict=True)
        few = exp.and_(*(exp.LTE(this=n.copy(), expression=whole(b)) for n, b in pairs), copy=False)
    query = exp.select(*(col(name, "p") for name in _places(tally))).from_(parts, copy=False)
    for place, value in enumerate(values):
        scaled = [
            _scaled(value.copy(), bound, norm.copy(), cut.copy())
            for bound, norm, cut in zip(bounds, norms, near, strict=True)
        ]
        shown = case((few.copy(), value), otherwise=_least(value.copy(), scaled))
        query = query.select(as_(shown, f"s{place}"), copy=False)
    if not tally.by:
        return query
    same = exp.EQ(this=col(OWNER, "p"), expression=col(OWNER, "h"))
    return joined(query, named("h"), same, left=True)


def _added(tally: Sums, parts: exp.Query, *, limit: int | None = SUM_MAX) -> exp.Select:
    """Parts added up per cell, and clamped."""
    places = [col(name, "a") for name in _places(tally)]
    query = exp.select(*places).from_(parts.subquery("a", copy=False), copy=False)
    for place in range(len(tally.terms)):
        total, name = exp.Sum(this=col(f"s{place}", "a")), f"s{place}"
        shown = as_(total, name) if limit is None else _held(total, limit, name)
        query = query.select(shown, copy=False)
    return query.group_by(*(place.copy() for place in places), copy=False) if places else query


def _scaled(value: exp.Expr, bound: int, norm: exp.Expr, near: exp.Expr) -> exp.Expr:
    """The value times bound / norm, rounded towards zero; the norm is at least the bound.

    Where the product is below 2**63 - 1, so is the quotient by a norm that is cut there (``near``).
    """
    fits = exp.LTE(this=exp.Abs(this=value.copy()), expression=whole((_MOST - 1) // bound))
    narrow = exp.Mul(this=value.copy(), expression=whole(bound))
    quick = exp.IntDiv(this=exp.paren(narrow), expression=near)
    return case(
        (fits, cast(quick, "BIGINT")), otherwise=cast(_exactly(value, bound, norm), "BIGINT")
    )


def _exactly(value: exp.Expr, bound: int, norm: exp.Expr) -> exp.Expr:
    """The same in 128 bits alone."""
    product = exp.Mul(this=cast(value, "HUGEINT"), expression=whole(bound))
    return exp.IntDiv(this=exp.paren(product), expression=exp.paren(norm))


def _least(value: exp.Expr, parts: list[exp.Expr]) -> exp.Expr:
    """The part nearest to zero: that of the least weight. All have the value's sign."""
    if len(parts) == 1:
        return parts[0]
    positive = exp.GTE(this=value, expression=whole(0))
    low, high = (call(name, *(part.copy() for part in parts)) for name in ("LEAST", "GREATEST"))
    return case((positive, low), otherwise=high)


def _sizes(tally: Sums) -> list[tuple[str, Term]]:
    """The columns of the terms that decide a weight: all, or a constant, which none exceeds."""
    found = [(f"v{place}", term) for place, term in enumerate(folded_terms(tally))]
    constant = (each for each in found if abs(each[1].constant or 0) == each[1].reach)
    first = next(constant, None)
    return found if first is None else [first]


def _places(tally: Sums) -> list[str]:
    return [f"i{place}" for place in range(len(tally.by))]
