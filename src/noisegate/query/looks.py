"""Paid looks: bounds and caps that nobody declared, found privately for a share of the price.

A look is a measurement like any other: bought once, kept in the ledger, free afterwards. What is
made of it is public, so the question itself is then asked with found bounds as if declared.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from math import inf, prod, sqrt
from typing import Final, final

from noisegate.algebra.expression import Call, Expression, Field, Literal, domain_of
from noisegate.algebra.relation import PerUnit, Relation, Sampled, Table
from noisegate.algebra.schema import schema_of
from noisegate.algebra.tally import Distinct, Sums, Values
from noisegate.curator.curator import Curator
from noisegate.curator.measurement import Measurement
from noisegate.errors import SpecError, Unsupported
from noisegate.mechanisms.geometric import Geometric
from noisegate.privacy.domain import TableDomain
from noisegate.privacy.release import Release
from noisegate.query.estimates.draft import Caps, Part, draft
from noisegate.query.estimates.purchase import Purchase, inner_price
from noisegate.query.estimates.recipe import CHOSEN
from noisegate.query.estimates.words import capped_words
from noisegate.query.limits import caps_of, declared_rows
from noisegate.query.profiles import PART, Profile, range_of, range_query, rows_per_unit_query
from noisegate.query.question import Block, Function, Question, Terms
from noisegate.query.shelf import Shelf
from noisegate.transforms.checks import CAP_MAX
from noisegate.transforms.query import Query
from noisegate.transforms.stability import stability_of

SHARE: Final = Fraction(1, 5)  # of the price of synthetic rows, for all their bounds together
CHOICES: Final = ("bounds", "caps")
_CAPS: Final = (Fraction(1, 8), Fraction(2, 5))  # of the price of a question, for looks at caps
_CAPS_SEEN: Final = Fraction(1, 25)  # an ε with which a look sees a hundred units, if it can be
_UNLISTED: Final = 100  # groups, where nobody knows how many there are; fewer if units are in few
_FOUND: Final = 20  # a group that one of so many units holds should be found
_SCALES: Final = 15  # of the noise, that a threshold is away for a δ of 1e-6
_FEW: Final = 8  # rows per unit: so many groups at most are no reason to look how many there are
_BOUNDS: Final = Fraction(1, 8)  # of the price, for looks at bounds
_UNBOUNDED: Final = (Function.COUNT, Function.COUNT_VALUES, Function.COUNT_UNITS,
                     Function.COUNT_DISTINCT)  # fmt: skip
_TOTALS: Final = (*_UNBOUNDED, Function.SUM)
_AVERAGES, _RANKS = 2.0, 4.5  # times the noise of a count, of an average and of a quantile
_MODEL: Final = (
    "A look at these rows says that the cap loses about {share:.1%} of them: counts and sums are "
    "raised by that, and the ± holds its uncertainty. This part rests on a model of how rows are "
    "spread over units, and is not proven."
)
_NO_RANGE: Final = "Pay more, or declare bounds that you know."


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """What to look at for the cap of a block: units by size, in ``part`` of a row.

    ``people``: the sizes are numbers of groups, for counts of units by group; ``sought``: these
    counts decide which groups are shown, above a threshold that grows with the cap if ``steep``,
    and else with its root.
    """

    query: Query
    part: Fraction = Fraction(1)
    people: bool = False
    sought: bool = False
    steep: bool = False


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """One thing to find: the bounds of an expression in a block, or the cap on rows."""

    block: Block
    expression: Expression | None
    counted: Counted | None
    measurement: Measurement
    epsilon: Fraction

    @property
    def words(self) -> str:
        """What is looked for."""
        if self.counted is not None:
            return f"the cap on {'groups' if self.counted.people else 'rows'} per unit"
        if type(self.expression) is Field:
            return f"the bounds of {self.expression.name}"
        return "the bounds of an expression"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """What a look showed: noisy numbers, and the scale of their noise."""

    release: Release
    values: tuple[int, ...]
    scale: float


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """The question with what was found, words about it, and for blocks by name: caps, profiles."""

    question: Question
    terms: Terms
    words: tuple[str, ...] = ()
    caps: Mapping[str, int] = field(default_factory=dict)
    profiles: Mapping[str, Profile] = field(default_factory=dict)
    people: frozenset[str] = frozenset()  # blocks whose cap is one of groups

    def caps_of(self, block: Block) -> Caps:
        """The caps of a block: as found, else as declared."""
        declared, found = caps_of(block, self.terms), self.caps.get(block.name)
        if found is None:
            return declared
        groups = found if block.name in self.people else declared.groups_per_unit
        return replace(declared, rows_per_unit=found, groups_per_unit=groups)


def looks_of(question: Question, terms: Terms, accountant: str) -> tuple[Look, ...]:
    """What the question leaves open and is to be found: a cap that nobody declared, always.

    Bounds are found where that is asked for: values beyond them are lost, and nothing tells how
    much.
    """
    if terms.choose and (unknown := set(terms.choose) - set(CHOICES)):
        raise SpecError(
            f"{min(unknown)!r} cannot be chosen.", fix=f"Choose {' or '.join(CHOICES)}."
        )
    if terms.epsilon is None:
        if terms.choose and question.blocks:
            raise SpecError("Looks are paid by a share of ε.", fix="Give epsilon, not an error.")
        return ()
    choose = ("caps",) if terms.choose is None else terms.choose
    found: list[Look] = []
    if "caps" in choose:
        asked = terms.choose is not None
        wanted = [(b, c) for b in question.blocks if (c := _open(b, terms, accountant, asked))]
        count = len({str(counted.query.to_record()) for _, counted in wanted})
        each = terms.epsilon * _share(terms.epsilon) / max(1, count)
        found += [_cap_look(block, counted, each) for block, counted in wanted]
    if "bounds" in choose:
        missing = [(block, e) for block in question.blocks for e in _without_bounds(block)]
        each = terms.epsilon * _BOUNDS / max(1, len(missing))
        found += [_bounds_look(block, e, terms, each) for block, e in missing]
    return tuple(found)


def _share(epsilon: Fraction) -> Fraction:
    """Of the price, for looks at caps: more of a small one, which else would show nothing."""
    return min(max(_CAPS_SEEN / epsilon, _CAPS[0]), _CAPS[1])


def _open(block: Block, terms: Terms, accountant: str, asked: bool) -> Counted | None:  # noqa: FBT001
    """What to look at, if the block has a cap and nobody said which; ``asked``: but the policy."""
    counted = None if terms.rows_per_unit is not None else counted_of(block, accountant)
    if counted is None or (counted.people and terms.groups_per_unit is not None):
        return None
    declared = caps_of(block, terms)
    fixed = declared.rows_per_unit or (declared.groups_per_unit if counted.people else None)
    if counted.sought and declared.groups_per_unit is None and (fixed or 0) > _FEW:
        fixed = None  # so many rows may be in few groups, and noise is for as many as count
    return None if fixed is not None and not asked else counted


def counted_of(block: Block, accountant: str) -> Counted | None:
    """What sizes a unit up in a block, if anything does: groups, what it adds, else its rows."""
    if stability_of(block.relation).rows is not None:
        return None
    rows = _own_rows(block)
    try:
        drafted = draft(block, Caps(rows_per_unit=1), accountant=accountant, derive=False)
    except Unsupported:  # bounds are not known yet
        return Counted(query=rows_per_unit_query(rows))
    parts = drafted.parts
    people = [part.query.tally.relation for part in parts if _is_people(part) and _weighed(part)]
    sums = [part.query.tally for part in parts if not _is_people(part) and _weighed(part)]
    for tally in sums:
        assert isinstance(tally, Sums)  # noqa: S101 - only they are weighed
        whole = any(term.constant is not None for term in tally.sized)
        sized, by = () if whole else tally.sized, tally.by if tally.squares_per_unit else ()
        query = rows_per_unit_query(rows, sized, by=by)
        return Counted(query=query, part=PART if sized else Fraction(1))
    if any(isinstance(part.query.tally, Values | Distinct) for part in parts):
        return Counted(query=rows_per_unit_query(rows))
    if people and rows is not block.relation:  # about all units, not about a sample
        return counted_of(replace(block, relation=rows), accountant)
    if drafted.decided is not None or (drafted.keys and not people):
        people = [PerUnit(rows, tuple((key.name, key.expression) for key in block.by), ())]
    sought = drafted.decided is not None
    steep = sought and accountant == "pure"
    queries = map(rows_per_unit_query, people)
    return next((Counted(query=each, people=True, sought=sought, steep=steep)
                 for each in queries), None)  # fmt: skip


def _weighed(part: Part) -> bool:
    return isinstance(part.query.tally, Sums) and part.query.tally.is_weighed


def _cap_look(block: Block, counted: Counted, epsilon: Fraction) -> Look:
    noise = Geometric.for_epsilon(epsilon, sensitivity=counted.query.l1s[0])
    measurement = Measurement(query=counted.query, mechanisms=(noise,))
    return Look(block=block, expression=None, counted=counted, measurement=measurement,
                epsilon=epsilon)  # fmt: skip


def _bounds_look(block: Block, expression: Expression, terms: Terms, epsilon: Fraction) -> Look:
    rows = None
    if stability_of(block.relation).rows is None:
        rows = terms.rows_per_unit or declared_rows(block.relation) or 1
    query = range_query(block.relation, expression, rows_per_unit=rows)
    noise = Geometric.for_epsilon(epsilon, sensitivity=query.l1s[0])
    measurement = Measurement(query=query, mechanisms=(noise,))
    return Look(block=block, expression=expression, counted=None, measurement=measurement,
                epsilon=epsilon)  # fmt: skip


def sight_of(look: Look, shelf: Shelf) -> Sight | None:
    """What the first look showed that was paid for and is no noisier than this one.

    Always the same one, so that a question that is asked again is the same question.
    """
    return _first(shelf, look.measurement.query, _scale(look.measurement))


def _first(shelf: Shelf, query: Query, scale: float = inf) -> Sight | None:
    """The first look of a query on the shelf that has no more noise than this."""
    for offer in shelf.offers(query, 0):
        noise = offer.noise
        if offer.cells == 1 and isinstance(noise, Geometric) and float(noise.scale) <= scale:
            values = tuple(offer.values.tolist())
            return Sight(release=offer.release, values=values, scale=float(noise.scale))
    return None


def seen(
    question: Question, terms: Terms, looks: Sequence[Look], sights: Sequence[Sight | None]
) -> Chosen:
    """The question with what was found, and words about it; None stands for not looked yet.

    Before a look, values are taken to lie from 0 to 1, and a cap is that of the policy, or 1.
    """
    if not looks or terms.epsilon is None:
        return Chosen(question=question, terms=terms)
    terms, words = replace(terms, epsilon=terms.epsilon - price_of(looks)), []
    bounds: dict[tuple[str, Expression], tuple[Fraction, Fraction]] = {}
    caps: dict[str, int] = {}
    profiles: dict[str, Profile] = {}
    for look, sight in zip(looks, sights, strict=True):
        name = look.block.name
        if look.counted is not None:
            caps[name] = _cap(look, sight, terms, len(question.blocks))
            if sight is not None:
                profiles[name] = _profile(look.block, look.counted, sight)
            words.append(_cap_words(look, sight, caps[name]))
            continue
        assert look.expression is not None  # noqa: S101 - bounds are of one
        low, high = (Fraction(0), Fraction(1)) if sight is None else _range(look, sight)
        bounds[name, look.expression] = low, high
        words.append(
            f"{_paid(look)}; errors are shown for values from 0 to 1, and grow with the width"
            if sight is None
            else f"{look.words}, as found: {float(low):g} to {float(high):g}"
        )
    blocks = tuple(_bounded(block, bounds) for block in question.blocks)
    return Chosen(
        question=replace(question, blocks=blocks), terms=terms,
        words=tuple(dict.fromkeys(words)), caps=caps, profiles=profiles,
        people=frozenset(look.block.name for look in looks if look.counted and look.counted.people),
    )  # fmt: skip


def price_of(looks: Sequence[Look]) -> Fraction:
    """What looks cost together, equal ones once."""
    return sum({look.measurement.question(): look.epsilon for look in looks}.values(), Fraction(0))


def _paid(look: Look) -> str:
    return f"{look.words}: found first, for ε = {float(look.epsilon):.3g}"


def _cap_words(look: Look, sight: Sight | None, cap: int) -> str:
    if sight is not None:
        return f"{look.words}, as found: {cap}"
    return f"{_paid(look)}; errors are shown for a cap of {cap}, and grow with it"


def _cap(look: Look, sight: Sight | None, terms: Terms, blocks: int) -> int:
    """The cap that errs least, by what was seen; before that, the policy's, or 1."""
    assert look.counted is not None  # noqa: S101 - it is about a cap
    limits = caps_of(look.block, terms)
    limit = limits.groups_per_unit if look.counted.people else limits.rows_per_unit
    if sight is None:
        return limit or 1
    block = look.block
    functions = {aggregate.function for aggregate in block.aggregates}
    ratios = 0 if functions & {*_TOTALS} else _RANKS if functions & {*CHOSEN} else _AVERAGES
    price = float(terms.epsilon or 1) / blocks / (1 if ratios else max(1, len(block.aggregates)))
    profile = _profile(block, look.counted, sight)
    most = limits.rows_per_unit or CAP_MAX if look.counted.sought else CAP_MAX
    if look.counted.steep:
        most = min(most, max(1, int(sum(sight.values) * price / (_FOUND * _SCALES))))
    return min(profile.best(price, cells=_cells(block, profile), ratios=ratios), most, CAP_MAX)


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


def _cells(block: Block, profile: Profile) -> int:
    """How many groups the largest grouping set has; a guess where they are not declared.

    There are as many as the largest unit is in, or more: the guess lies between that and many. Of
    few groups each has many units, and a loss tells more than noise.
    """
    listed = [key.domain.keys for key in block.by]
    sizes = [_UNLISTED if keys is None else len(keys) or 1 for keys in listed]
    most = max([prod(sizes[place] for place in columns) for columns in block.sets] + [1])
    if None not in listed:
        return most
    least = min(profile.sizes.largest, _UNLISTED) if profile.people else _UNLISTED
    return min(most, round(sqrt(least * _UNLISTED)))


def _owner_table(block: Block) -> TableDomain:
    return next(t for t in stability_of(block.relation).tables if t.unit is not None)


def _profile(block: Block, counted: Counted, sight: Sight) -> Profile:
    return Profile(
        table=_owner_table(block).name, units=sight.values, scale=sight.scale,
        part=counted.part, people=counted.people,
    )  # fmt: skip


def _range(look: Look, sight: Sight) -> tuple[Fraction, Fraction]:
    found = range_of(sight.values, scale=sight.scale)
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
    value: Expression = Field(column)
    if column in domain.columns and domain.columns[column].untyped:
        value = Call("to_number", (value,))
    query = range_query(_rows(domain, sample), value, rows_per_unit=cap)
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


def known_profile(
    shelf: Shelf, block: Block, accountant: str
) -> tuple[Profile | None, Release | None]:
    """How large units are in a block, if that was ever looked at: the first look, released."""
    counted = counted_of(block, accountant)
    sight = None if counted is None else _first(shelf, counted.query)
    if counted is None or sight is None:
        return None, None
    return _profile(block, counted, sight), sight.release


def clipping(bought: Purchase, profile: Profile | None, cap: int | None) -> tuple[str, ...]:
    """What a cap does to the numbers of a block, in words: what it loses, or how to find out.

    None where no number is about capped rows.
    """
    block = bought.draft.block
    capped = capped_words(block, bought.draft.drawn, known=profile is not None)
    if not capped or cap is None:
        return capped
    if profile is not None:
        loss = profile.loss(cap)
        return (
            *capped,
            _MODEL.format(share=loss.share),
        )
    look = 'choose="caps" in place of the cap looks at the rows of this question, and chooses'
    if isinstance(_own_rows(block), Table):
        look = f"gate.caps({_owner_table(block).name!r}, epsilon=...) finds out, for a price"
    return (*capped, f"How much a cap of {cap} rows loses is not known: {look}.")


def _is_people(part: Part) -> bool:
    return part.other is not None and part.other.function is Function.COUNT_UNITS


def _own_rows(block: Block) -> Relation:
    """The rows of a question; of one about a sample, all of which it holds some."""
    return block.relation.of if isinstance(block.relation, Sampled) else block.relation
