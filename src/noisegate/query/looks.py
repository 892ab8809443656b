"""Paid looks: bounds and caps that nobody declared, found privately for a share of the price.

A look is a measurement like any other: bought once, kept in the ledger, free afterwards. What is
made of it is public, so the question itself is then asked with found bounds as if declared.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import prod, sqrt
from typing import Final, final

from noisegate.algebra.expression import Call, Expression, Field, Literal, domain_of
from noisegate.algebra.relation import Relation, Sampled, Table
from noisegate.algebra.schema import schema_of
from noisegate.algebra.tally import Sums, Term, Values
from noisegate.curator.curator import Curator
from noisegate.curator.measurement import Measurement
from noisegate.errors import SpecError, Unsupported
from noisegate.mechanisms.geometric import Geometric
from noisegate.privacy.domain import TableDomain
from noisegate.privacy.release import Release
from noisegate.query.estimates.draft import Caps, Part, draft
from noisegate.query.estimates.purchase import Purchase, inner_price
from noisegate.query.limits import declared_rows
from noisegate.query.profiles import PART, Profile, range_of, range_query, rows_per_unit_query
from noisegate.query.question import Block, Function, Question, Terms
from noisegate.query.shelf import Shelf
from noisegate.transforms.query import Query
from noisegate.transforms.stability import stability_of

SHARE: Final = Fraction(1, 5)  # of the price of a question, for all its looks together
CHOICES: Final = ("bounds", "caps")
_UNBOUNDED: Final = (Function.COUNT, Function.COUNT_VALUES, Function.COUNT_UNITS,
                     Function.COUNT_DISTINCT)  # fmt: skip
_NO_RANGE: Final = "Pay more, or declare bounds that you know."


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """One thing to find: the bounds of an expression in a block, or the cap on rows."""

    block: Block
    expression: Expression | None
    measurement: Measurement
    epsilon: Fraction

    @property
    def words(self) -> str:
        """What is looked for."""
        if self.expression is None:
            return "the cap on rows per unit"
        if type(self.expression) is Field:
            return f"the bounds of {self.expression.name}"
        return "the bounds of an expression"


def looks_of(question: Question, terms: Terms) -> tuple[Look, ...]:
    """What the question leaves open and says shall be found."""
    choose = terms.choose or ()
    if not choose or not question.blocks:
        return ()
    if unknown := set(choose) - set(CHOICES):
        raise SpecError(
            f"{min(unknown)!r} cannot be chosen.", fix=f"Choose {' or '.join(CHOICES)}."
        )
    if terms.epsilon is None:
        raise SpecError("Looks are paid by a share of ε.", fix="Give epsilon, not an error.")
    wanted: list[tuple[Block, Expression | None]] = []
    if "caps" in choose:
        wanted += [(block, None) for block in _capped(question, terms)]
    if "bounds" in choose:
        wanted += [(block, e) for block in question.blocks for e in _without_bounds(block)]
    each = terms.epsilon * SHARE / max(1, len(wanted))
    return tuple(_look(block, expression, terms, each) for block, expression in wanted)


def _look(block: Block, expression: Expression | None, terms: Terms, epsilon: Fraction) -> Look:
    if expression is None:
        query = rows_per_unit_query(_own_rows(block), _sized(block))
    else:
        rows = None
        if stability_of(block.relation).rows is None:
            rows = terms.rows_per_unit or declared_rows(block.relation) or 1
        query = range_query(block.relation, expression, rows_per_unit=rows)
    noise = Geometric.for_epsilon(epsilon, sensitivity=query.l1s[0])
    measurement = Measurement(query=query, mechanisms=(noise,))
    return Look(block=block, expression=expression, measurement=measurement, epsilon=epsilon)


def seen(
    question: Question, terms: Terms, looks: Sequence[Look], releases: Sequence[Release | None]
) -> tuple[Question, Terms, tuple[str, ...]]:
    """The question with what was found, and words about it; None stands for not looked yet.

    Before a look, values are taken to lie from 0 to 1, and a cap is that of the policy, or 1.
    """
    if not looks or terms.epsilon is None:
        return question, terms, ()
    terms, words = replace(terms, epsilon=terms.epsilon * (1 - SHARE)), []
    bounds: dict[tuple[str, Expression], tuple[Fraction, Fraction]] = {}
    for look, release in zip(looks, releases, strict=True):
        paid = f"{look.words}: found first, for ε = {float(look.epsilon):.3g}"
        if look.expression is None:
            cap = terms.rows_per_unit or declared_rows(look.block.relation) or 1
            if release is not None:
                cells = _cells(look.block)
                cap = _profile(look, release).best(float(terms.epsilon or 1), cells=cells)
            terms = replace(terms, rows_per_unit=cap)
            words.append(f"{paid}; until then {cap}" if release is None else f"{look.words}: {cap}")
            continue
        low, high = Fraction(0), Fraction(1)
        if release is not None:
            low, high = _range(look, release)
        bounds[look.block.name, look.expression] = low, high
        words.append(
            f"{paid}; errors are shown for values from 0 to 1, and grow with the width"
            if release is None
            else f"{look.words}, as found: {float(low):g} to {float(high):g}"
        )
    blocks = tuple(_bounded(block, bounds) for block in question.blocks)
    return replace(question, blocks=blocks), terms, tuple(words)


def _bounded(
    block: Block, bounds: dict[tuple[str, Expression], tuple[Fraction, Fraction]]
) -> Block:
    """The block with its arguments moved into the bounds that were found."""

    def moved(arg: Expression) -> Expression:
        if (block.name, arg) not in bounds:
            return arg
        low, high = bounds[block.name, arg]
        return Call("least", (Call("greatest", (arg, Literal(low))), Literal(high)))

    aggregates = tuple(
        a if a.function in _UNBOUNDED else replace(a, args=tuple(map(moved, a.args)))
        for a in block.aggregates
    )
    return replace(block, aggregates=aggregates)


def _without_bounds(block: Block) -> list[Expression]:
    """Numeric arguments whose values could be any."""
    schema, found = schema_of(block.relation), []
    for aggregate in block.aggregates:
        for arg in () if aggregate.function in _UNBOUNDED else aggregate.args:
            domain = domain_of(arg, schema)
            if domain.kind.is_numeric and (domain.low is None or domain.high is None):
                found.append(arg)
    return list(dict.fromkeys(found))


def _capped(question: Question, terms: Terms) -> list[Block]:
    """One block for the table whose cap is open. Two tables have no common one."""
    if terms.rows_per_unit is not None:
        return []
    blocks = [b for b in question.blocks if stability_of(b.relation).rows is None]
    if len({_owner_table(block).name for block in blocks}) > 1:
        raise SpecError("Caps are chosen for one table.", fix="Ask about one table at a time.")
    return blocks[:1]


def _cells(block: Block) -> int:
    """How many groups are declared, in the largest grouping set."""
    sizes = [len(key.domain.keys or ()) or 1 for key in block.by]
    return max([prod(sizes[place] for place in columns) for columns in block.sets] + [1])


def _owner_table(block: Block) -> TableDomain:
    return next(t for t in stability_of(block.relation).tables if t.unit is not None)


def _profile(look: Look, release: Release) -> Profile:
    units, scale = tuple(release.values[0].tolist()), _scale(look.measurement)
    part = PART if _sized(look.block) else Fraction(1)
    return Profile(table=_owner_table(look.block).name, units=units, scale=scale, part=part)


def _sized(block: Block) -> tuple[Term, ...]:
    """The terms that size a unit up, if it is not its rows; none where bounds are not known yet."""
    try:
        parts = draft(block, Caps(rows_per_unit=1)).parts
    except Unsupported:
        return ()
    sized = next((p.query.tally.sized for p in parts if isinstance(p.query.tally, Sums)), ())
    return () if any(term.constant is not None for term in sized) else sized


def _range(look: Look, release: Release) -> tuple[Fraction, Fraction]:
    found = range_of(release.values[0].tolist(), scale=_scale(look.measurement))
    if found is None:
        raise Unsupported(
            f"Looking for {look.words}, no range stands clear of the noise; it was paid for.",
            fix=_NO_RANGE,
        )
    return found


def _scale(measurement: Measurement) -> float:
    (noise,) = measurement.mechanisms
    assert isinstance(noise, Geometric)  # noqa: S101 - so they are made
    return float(noise.scale)


# looks by themselves


def profile(
    curator: Curator, table: str, epsilon: Fraction, sample: Fraction | None = None
) -> Profile:
    """How many units have how many rows, measured once; of a sample, scaled up."""
    query = rows_per_unit_query(_rows(_private(curator, table), sample))
    release, scale = _measured(curator, query, inner_price(epsilon, sample))
    units = tuple(round(each / (sample or 1)) for each in release.values[0].tolist())
    return Profile(table=table, units=units, scale=scale / float(sample or 1))


def bounds(
    curator: Curator, table: str, column: str, epsilon: Fraction, sample: Fraction | None = None
) -> tuple[Fraction, Fraction]:
    """A range that holds nearly all values of a column, measured once."""
    look = bounds_look(_private(curator, table), column, epsilon, sample)
    return bounds_seen(look, curator.measure(look))


def bounds_look(
    domain: TableDomain, column: str, epsilon: Fraction, sample: Fraction | None = None
) -> Measurement:
    """What to measure for the bounds of a column."""
    cap, price = domain.rows_per_unit_max, inner_price(epsilon, sample)
    query = range_query(_rows(domain, sample), Field(column), rows_per_unit=cap)
    return Measurement(
        query=query, mechanisms=(Geometric.for_epsilon(price, sensitivity=query.l1s[0]),)
    )


def _rows(domain: TableDomain, sample: Fraction | None) -> Relation:
    table = Table(domain)
    return table if sample is None else Sampled(table, sample)


def bounds_seen(look: Measurement, release: Release) -> tuple[Fraction, Fraction]:
    """The range that a look at bounds shows."""
    found = range_of(release.values[0].tolist(), scale=_scale(look))
    if found is None:
        raise Unsupported("No range stands clear of the noise; it was paid for.", fix=_NO_RANGE)
    return found


def _measured(curator: Curator, query: Query, epsilon: Fraction) -> tuple[Release, float]:
    noise = Geometric.for_epsilon(epsilon, sensitivity=query.l1s[0])
    release = curator.measure(Measurement(query=query, mechanisms=(noise,)))
    return release, float(noise.scale)


def _private(curator: Curator, table: str) -> TableDomain:
    found = {name.lower(): each for name, each in curator.tables.items()}
    if table.lower() not in found or found[table.lower()].is_public:
        raise SpecError(f"There is no private table {table!r}.", fix="See gate.tables.")
    return found[table.lower()]


def clipping(shelf: Shelf, bought: Purchase, cap: int | None) -> str | None:
    """What a cap on rows loses of the question's own rows, if that was looked at; else how to look.

    None where no number is about capped rows. Numbers that are scaled by their norm may lose less
    than rows are lost.
    """
    tallies = [part.query.tally for part in bought.draft.parts if not _is_people(part)]
    weighed = [each for each in tallies if isinstance(each, Sums) and each.is_weighed]
    values = any(isinstance(each, Values) and each.rows_per_unit is not None for each in tallies)
    if cap is None or not (weighed or values):
        return None
    block = bought.draft.block
    table, rows, sized = _owner_table(block), _own_rows(block), _sized(block)
    looked = [(terms, shelf.offers(rows_per_unit_query(rows, terms), 0)) for terms in {sized, ()}]
    offers = max(looked, key=lambda pair: (bool(pair[1]), pair[0] == sized))
    if not offers[1]:
        look = 'choose="caps" in place of the cap looks at the rows of this question, and chooses'
        if isinstance(rows, Table):
            look = f"gate.caps({table.name!r}, epsilon=...) finds out, for a price"
        return f"How much a cap of {cap} rows loses is not known: {look}."
    best = min(offers[1], key=lambda offer: offer.law.variance)
    found = Profile(
        table=table.name,
        units=tuple(best.values.tolist()),
        scale=sqrt(best.law.variance / 2),
        part=PART if offers[0] else Fraction(1),
    )
    squared = any(each.squares_per_unit is not None for each in weighed)
    most = "at most about" if squared or offers[0] != sized else "about"
    least = found.best(float(bought.epsilon), cells=_cells(block))
    return (
        f"From a look at these rows, a cap of {cap} rows loses {most} {found.lost(cap):.0%} of "
        f"{'what they add' if offers[0] else 'them'}; {least} would err least here."
    )


def _is_people(part: Part) -> bool:
    return part.other is not None and part.other.function is Function.COUNT_UNITS


def _own_rows(block: Block) -> Relation:
    """The rows of a question; of one about a sample, all of which it holds some."""
    return block.relation.of if isinstance(block.relation, Sampled) else block.relation
