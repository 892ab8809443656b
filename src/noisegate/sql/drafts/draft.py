"""Which tallies a block needs. Public facts only: no row, no price.

Sums of all additive aggregates share one tally, and a unit has one weight in it: what it adds to
all groups and all aggregates is scaled down together, to the norm that its noise hides. Where caps
are found, direct sums are a tally of their own with a weight of its own, by what a unit adds: how
many rows it has says little of that where values lie far below their bounds. So are averages beside
counts: few rows of a unit tell an average, and many are needed to count. The bound
is the largest norm of a unit within the caps, so such a unit is never scaled, and no group is left
out: `rows` rows at the reach of a term in L1. Gaussian noise hides an L2 norm, which is as large
where all rows are in one group and smaller otherwise, so fewer units are scaled. Which terms size a
unit up is part of the question: its rows where all rows are counted; else what each number adds.
People by group have one row in each of their groups, so their L2 norm grows with √groups only.
Several grouping sets add up only if a unit weighs the same in all: there its rows decide, in L1.

Groups that nobody declared are found first. Where the units of a group are asked for anyway, one
draw does both: their noisy count is the answer, and decides whether the group is shown.
"""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import partial
from itertools import product
from math import ceil, prod
from typing import Final, final

import numpy as np
from numpy.typing import NDArray

from noisegate.algebra.expression import Call, Field, domain_of
from noisegate.algebra.relation import Filter, PerUnit, Relation, sample_of
from noisegate.algebra.schema import schema_of
from noisegate.algebra.tally import Distinct, Grouping, Sums, Tally, Term, Values
from noisegate.frozen import dataclass, replace
from noisegate.privacy.domain import Key, Kind
from noisegate.sql.drafts.groups import (
    Caps,
    Columns,
    Found,
    Shown,
    closed,
    groups_of,
    is_single,
    key_questions,
    no_cap,
    to_measure,
)
from noisegate.sql.drafts.recipe import (
    ADDITIVE,
    COUNTS,
    Book,
    Other,
    Recipe,
    Weight,
    others_of,
    recipe,
    recipe_of,
)
from noisegate.sql.drafts.split import Split, split
from noisegate.sql.drafts.terms import count_term
from noisegate.sql.drafts.within import alike, schema_within
from noisegate.sql.drafts.words import Drawn, capped_words, caveats
from noisegate.sql.question import Aggregate, Block, Function
from noisegate.transforms.query import Query
from noisegate.transforms.stability import stability_of

_FAR: Final = 4.0  # times the variance: a sum may err twice as much if that helps all else
KEY_SHARE: Final = Fraction(1, 4)  # of the price of a question, for finding its groups


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class DraftPart:
    """One tally: over which key columns, for which pieces, and what it draws where not sums.

    A piece that several parts measure (one for each grouping set) pays its share in equal parts.
    ``apart`` is the cap of direct sums that are weighed for themselves, in rows' worth. ``own``: it
    is about averages that are.
    """

    query: Query
    columns: Columns
    pieces: tuple[int, ...]
    other: Other | None = None
    copies: int = 1
    apart: Fraction | None = None
    own: bool = False

    @property
    def is_people(self) -> bool:
        """Whether it counts units by group."""
        return self.other is not None and self.other.function is Function.COUNT_UNITS

    @property
    def drawn(self) -> Drawn:
        """What words about its cap follow from."""
        function = None if self.other is None else self.other.function
        return self.query, Function.AVG if self.own else function, self.apart is not None


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """What is to be measured for a block, and how its aggregates are made of it.

    ``keys`` are measured first; ``decided`` is the piece that they release, the units of each
    group, and ``counts`` are these by key, once found. ``groups`` are the keys of each column;
    ``shown`` are the combinations that were found, where several columns were looked for together.
    The first pieces are sums, in multiples of ``grains``; all others are drawn for themselves.
    ``gaussian``: shares are of ρ; ``amplified``: they are of ε, but sums about a sample may have
    Gaussian noise too, by this accountant.
    """

    block: Block
    keys: tuple[Query, ...]
    groups: tuple[tuple[Key, ...], ...]
    shown: Shown | None
    parts: tuple[DraftPart, ...]
    grains: tuple[Fraction, ...]
    recipes: tuple[Recipe, ...]
    split: Split
    gaussian: bool
    amplified: str | None = None
    decided: int | None = None
    counts: Mapping[tuple[Key, ...], int] | None = None
    caveats: tuple[str, ...] = ()

    @property
    def is_found(self) -> bool:
        """Whether the keys of all columns are known."""
        return not any(is_sought(self, j) for j in range(len(self.groups)))

    def cells(self, columns: Columns) -> int:
        """How many groups a grouping set has."""
        return prod(len(self.groups[j]) for j in columns)

    def counted(self, guess: int) -> NDArray[np.int64]:
        """The units of each group; ``guess``, before they are known."""
        cells = product(*(self.groups[j] for j in self.block.sets[0]))
        known = self.counts
        return np.array(
            [guess if known is None else known.get(cell, 0) for cell in cells], np.int64
        )

    @property
    def drawn(self) -> list[Drawn]:
        """All queries that numbers come from, with the function of what is drawn for itself."""
        found = [part.drawn for part in self.parts]
        deciding = (self.keys[0], Function.COUNT_UNITS, False) if self.decided is not None else None
        return found if deciding is None else [*found, deciding]

    @property
    def is_ranked(self) -> bool:
        """Whether all numbers are quantiles."""
        ranked = {isinstance(part.query.tally, Values) for part in self.parts}
        return self.decided is None and ranked == {True}

    @property
    def capped(self) -> tuple[str, ...]:
        """How much of a unit counts, in words."""
        return capped_words(self.block, self.drawn)

    @property
    def finding(self) -> Fraction:
        """The share of the price for finding groups: all, if nothing else is asked.

        A count that decides has its own share, but no less than finding alone would have.
        """
        own = Fraction(not self.block.aggregates)
        if self.decided is not None:
            own = self.split.shares[self.decided]
        return max(KEY_SHARE, own) if self.keys else Fraction(0)

    def share(self, piece: int) -> Fraction:
        """The share of the price of a piece that is measured after the keys."""
        own = Fraction(0) if self.decided is None else self.split.shares[self.decided]
        return self.split.shares[piece] * (1 - self.finding) / (1 - own)


def draft(
    block: Block,
    caps: Caps,
    *,
    found: Found | None = None,
    counts: Sequence[int] | None = None,
    accountant: str = "pure",
    derive: bool = True,
) -> Draft:
    """The tallies of a block, with as little noise as the price allows.

    ``found`` are the keys that `key_questions` gave; None stands for a plan before they are known.
    ``counts`` are the units that hold each, where these decided which are shown.
    Where sums could also be derived from averages, the way with the smaller error is taken, unless
    ``derive`` is False. Sums of a sample that may be negative are derived, as what sampling adds to
    their error follows from how many rows there are.
    """
    drafting = _Drafting(block, caps, found, accountant)
    if found and counts is not None:
        drafting.counts = dict(zip(found[0], counts, strict=True))
    plain = drafting.sketch(derived=False)
    if not derive or all(each.function is not Function.SUM for each in block.aggregates):
        return drafting.draft(plain)
    derived = drafting.sketch(derived=True)
    better = drafting.is_better(derived, plain) or drafting.is_signed(plain)
    return drafting.draft(derived if better else plain)


@final
@dataclass(frozen=True, slots=True)
class _Sketch:
    """What the aggregates are made of, and how the price is split: no tally yet."""

    book: Book
    others: tuple[Other, ...]
    recipes: tuple[Recipe, ...]
    split: Split


@final
class _Drafting:
    """The public facts about a block that all its tallies share."""

    def __init__(self, block: Block, caps: Caps, found: Found | None, accountant: str) -> None:
        self.block, self.caps = block, caps
        self.rows = stability_of(block.relation).rows
        sampled = sample_of(block.relation)
        self.sample = Fraction(1) if sampled is None else sampled.probability
        self.gaussian = accountant != "pure" and sampled is None
        self.amplified = None if accountant == "pure" or sampled is None else accountant
        self.keys = key_questions(block, caps)
        self.groups, self.shown = groups_of(block, self.keys, found)
        # A group column without any key has no cells; nothing is measured then, only planned.
        self.listed = tuple(keys or (None,) for keys in self.groups)
        self.relation = closed(block, self.listed)
        self.counts: Mapping[tuple[Key, ...], int] | None = None
        self.deciding = {a.name for a in block.aggregates if self._decides(a)}
        self.sums = [
            a for a in block.aggregates if self._is_additive(a) and a.name not in self.deciding
        ]
        weighed = self.rows is None and is_single(block)
        self.apart = caps.sums_per_unit if weighed else None
        self.own = caps.averages_per_unit if weighed else None

    def sketch(self, *, derived: bool) -> _Sketch:
        block, schema = self.block, partial(schema_within, self.block)
        cap = self._row_cap() if self.sums else None
        book = Book(schema, cap=cap, apart=self.apart, own=self.own)
        made = {a.name: self._recipe(a, book, derived=derived) for a in self.sums}
        rest = [
            replace(a, function=Function.COUNT_UNITS) if a.name in self.deciding else a
            for a in block.aggregates
            if a.name not in made
        ]
        others, base = others_of(rest), len(book.terms)
        made |= {a.name: recipe_of(a, others, schema(a.where), base=base) for a in rest}
        held = (*ADDITIVE, Function.COUNT_UNITS) if self.sample < 1 and is_single(block) else ()
        recipes = tuple(
            made[each.name].of_sample() if each.function in held else made[each.name]
            for each in block.aggregates
        )
        errors = [recipe.errors for recipe in recipes]
        shares = split(errors, pieces=base + len(others), gaussian=self.gaussian)
        return _Sketch(book, tuple(others), recipes, shares)

    def is_better(self, one: _Sketch, other: _Sketch) -> bool:
        """Whether what is asked for errs less in one sketch, by its worst number.

        Where sums are weighed apart, nobody knows what they are beside what else is asked for: none
        may then be far worse. Beside averages without a count, the cap on rows suits these alone:
        it loses what a sum needs.
        """
        better = one.split.worst < other.split.worst
        if not better or self.apart is None:
            return better
        if not self.block.shared and all(a.function not in COUNTS for a in self.sums):
            return False
        pairs = zip(self._sum_errors(one), self._sum_errors(other), strict=True)
        return max(mine / yours for mine, yours in pairs) < _FAR

    def _sum_errors(self, sketch: _Sketch) -> list[float]:
        """What noise does to each sum, squared, in parts of what it is guessed to be."""
        rows, power = float(self.caps.rows_per_unit or 1), 1 if self.gaussian else 2
        apart, shares = float(self.apart or 1), sketch.split.shares
        sums = sketch.book.weighed(Weight.SUMS)
        return [
            sum(
                (weight * (apart if piece in sums else rows)) ** 2 / float(shares[piece]) ** power
                for piece, weight in recipe.errors.items()
            )
            for recipe in sketch.recipes
            if recipe.aggregate.function is Function.SUM
        ]

    def is_signed(self, sketch: _Sketch) -> bool:
        """Whether a sum of a sample may be negative, so that it does not tell how it may be off."""
        terms = sketch.book.terms
        pieces = {recipe.direct for recipe in sketch.recipes if recipe.sampled}
        return any(term.low < 0 for piece, term in enumerate(terms) if piece in pieces)

    def draft(self, sketch: _Sketch) -> Draft:
        block, book, base = self.block, sketch.book, len(sketch.book.terms)
        parts = self._sum_parts(sketch) if base else []
        units = Other(function=Function.COUNT_UNITS)
        decided = base + sketch.others.index(units) if self.deciding else None
        sets = tuple(dict.fromkeys(block.sets))
        for (piece, other), columns in product(enumerate(sketch.others, base), sets):
            if piece != decided:
                query, own = Query(self._tally(other, columns)), (piece,)
                parts.append(DraftPart(query=query, columns=columns, pieces=own, other=other,
                                  copies=len(sets)))  # fmt: skip
        return Draft(
            block=block,
            keys=tuple(Query(tally) for tally in self.keys),
            groups=self.groups,
            shown=self.shown,
            parts=tuple(parts) if all(self.groups) else (),
            grains=tuple(term.grain / self.sample for term in book.terms),
            recipes=sketch.recipes,
            split=sketch.split,
            gaussian=self.gaussian,
            amplified=self.amplified,
            decided=decided,
            counts=self.counts,
            caveats=caveats(block, kinds={recipe.kind for recipe in sketch.recipes}),
        )

    def _is_additive(self, aggregate: Aggregate) -> bool:
        """Where a unit has one row, units are rows."""
        return aggregate.function in ADDITIVE or (
            aggregate.function is Function.COUNT_UNITS and self.rows == 1
        )

    def _decides(self, aggregate: Aggregate) -> bool:
        """Whether it counts the units of each group, by which groups are found too.

        Rows are units where no unit has two of them in a group. With a condition of its own it
        would count others than those who make a group.
        """
        if not self.keys or not is_single(self.block) or self.sample < 1:
            return False
        if aggregate.where is not None or aggregate.function is not Function.COUNT:
            return aggregate.where is None and aggregate.function is Function.COUNT_UNITS
        named = {k.expression.name for k in self.block.by if type(k.expression) is Field}
        identity = stability_of(self.block.relation).identity
        return self.rows == 1 or (identity is not None and identity <= named)

    def _recipe(self, aggregate: Aggregate, book: Book, *, derived: bool) -> Recipe:
        """Whole numbers stay whole, but several grouping sets add up only in fractions."""
        is_units = aggregate.function is Function.COUNT_UNITS
        asked = replace(aggregate, function=Function.COUNT) if is_units else aggregate
        divided = self.apart is not None and self.caps.divided
        made = recipe(asked, book, derived=derived, divided=divided)
        kind = made.kind if is_single(self.block) else Kind.NUMBER
        return replace(made, aggregate=aggregate, kind=kind)

    def _sum_parts(self, sketch: _Sketch) -> list[DraftPart]:
        sizes = [len(keys) for keys in self.listed]
        sets: Sequence[Columns] = tuple(dict.fromkeys(self.block.sets))
        if not self.keys:  # what is measured must not depend on how many groups are found
            sets = to_measure(self.block.sets, sizes, gaussian=self.gaussian)
        single, terms = is_single(self.block), sketch.book.terms
        caps = {Weight.ROWS: self._row_cap(), Weight.SUMS: ceil(self.apart or 0)}
        caps[Weight.OWN] = self.own
        found = []
        for columns, (weight, cap) in product(sets, caps.items()):
            pieces = tuple(sorted(sketch.book.weighed(weight)))
            if not pieces:
                continue
            squared = self.gaussian and single and cap is not None
            tally = Sums(
                relation=self.relation,
                by=self._by(columns, folded=False, rest=single),
                terms=tuple(terms[piece] for piece in pieces),
                rows_per_unit=None if squared else cap,
                squares_per_unit=cap**2 if squared and cap is not None else None,
                sized=() if cap is None else self._sized(sketch, pieces, cap),
            )
            found.append(
                DraftPart(
                    query=Query(tally), columns=columns, pieces=pieces, copies=len(sets),
                    apart=self.apart if weight is Weight.SUMS else None,
                    own=weight is Weight.OWN,
                )
            )  # fmt: skip
        return found

    def _sized(self, sketch: _Sketch, pieces: Sequence[int], cap: int) -> tuple[Term, ...]:
        """The terms whose norms decide a unit's weight: counts and direct sums; of all rows, alone.

        A centred sum is no longer than its count in rows, so the count speaks for it. Beside
        averages that are weighed for themselves, one count is what was looked at for all.
        """
        terms, rows = sketch.book.terms, count_term((), cap=cap)
        sums = sketch.book.weighed(Weight.SUMS)
        if self.own is not None and not sums.intersection(pieces):
            return (count_term(alike(self.block, apart=self.apart is not None), cap=cap),)
        direct = sums | {
            recipe.count if recipe.direct is None else recipe.direct for recipe in sketch.recipes
        }
        asked = {terms[piece] for piece in pieces if piece in direct}
        if rows in asked or not is_single(self.block):
            return (rows,)
        return tuple(sorted(asked, key=repr))

    def _tally(self, other: Other, columns: Columns) -> Tally:
        where = self.relation
        if other.function is Function.COUNT_UNITS:
            if other.where is not None:
                where = Filter(where, other.where)
            keys = tuple((self.block.by[j].name, self.block.by[j].expression) for j in columns)
            units = PerUnit(of=where, keys=keys, folded=())
            return self._people(units, self._by(columns, folded=True))
        by = self._by(columns, folded=False)
        if other.function is Function.COUNT_DISTINCT:
            assert other.expression is not None  # noqa: S101 - it has an argument
            value = other.expression
            if other.where is not None:
                value = Call("case", (other.where, value))
            caps = self.caps
            most = self.rows or caps.keys_per_unit or caps.values_per_unit or self._required_rows()
            listed = domain_of(other.expression, schema_of(where)).keys
            if listed is not None and self.rows is None and not self.keys:  # few pairs exist
                most = min(most, len(listed) * prod(len(g.keys) for g in by))
            return Distinct(relation=where, by=by, expression=value, keys_per_unit=most)
        term = other.term(schema_within(self.block, other.where))
        return Values(relation=where, by=by, term=term, rows_per_unit=self._row_cap())

    def _people(self, units: Relation, by: tuple[Grouping, ...]) -> Sums:
        """Units by group, of which one unit is in at most as many as there are."""
        if stability_of(units).rows is not None:
            return Sums(relation=units, by=by, terms=(count_term((), cap=None),))
        cap = self.caps.groups_per_unit or self.rows or self._required_rows()
        if not self.keys:
            cap = min(cap, prod(grouping.size for grouping in by))
        return Sums(
            relation=units,
            by=by,
            terms=(count_term((), cap=cap),),
            rows_per_unit=None if self.gaussian else cap,
            squares_per_unit=cap if self.gaussian else None,
        )

    def _by(self, columns: Columns, *, folded: bool, rest: bool = False) -> tuple[Grouping, ...]:
        """The groupings of a set of columns. ``rest``: later questions can add up all cells."""
        keys = [(self.block.by[j], self.listed[j]) for j in columns]
        return tuple(
            Grouping(
                name=key.name,
                expression=Field(key.name) if folded else key.expression,
                keys=listed,
                rest=rest and not key.closed,
            )
            for key, listed in keys
        )

    def _row_cap(self) -> int | None:
        """The weight that one unit's rows have at most; None where there are few by structure."""
        if self.rows is not None:
            asked = self.caps.rows_per_unit
            return asked if asked is not None and asked < self.rows else None
        return self._required_rows()

    def _required_rows(self) -> int:
        if self.caps.rows_per_unit is None:
            raise no_cap("The rows of one unit have", "rows_per_unit")
        return self.caps.rows_per_unit


def is_sought(draft: Draft, column: int) -> bool:
    """Whether the keys of a column are still to be found."""
    return draft.block.by[column].domain.keys is None and draft.groups[column] == (None,)
