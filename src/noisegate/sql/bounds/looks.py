"""Paid looks: bounds and caps that nobody declared, found privately for a share of the price.

A look is a measurement like any other: bought once, kept in the ledger, free afterwards. What is
made of it is public, so the question itself is then asked with found bounds as if declared.
"""

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from math import ceil, inf, sqrt
from typing import Any, Final, TypeAlias, final

from noisegate.algebra.expression import Call, Expression, Field, Literal, domain_of
from noisegate.algebra.schema import schema_of
from noisegate.curator.measurement import Measurement
from noisegate.desk.terms.price import Funds
from noisegate.desk.terms.price import share_of as part_of
from noisegate.desk.terms.terms import Terms
from noisegate.errors import SpecError, Unsupported
from noisegate.mechanisms.additive.gaussian import DiscreteGaussian
from noisegate.mechanisms.additive.geometric import Geometric
from noisegate.privacy.release import Release
from noisegate.sql.bounds.limits import caps_of, thins
from noisegate.sql.bounds.sized import (
    RANKS,
    UNBOUNDED,
    Counted,
    Paid,
    Seen,
    Weighed,
    cells_of,
    counted_of,
    former_share_of,
    groups_of,
    has_both,
    is_tight,
    owner_table,
    parts_of,
    share_of,
    sums_of,
    weighed_of,
)
from noisegate.sql.drafts.declared import declared_rows
from noisegate.sql.drafts.within import schema_within
from noisegate.sql.estimates.columns import Clipped, clipped_of
from noisegate.sql.estimates.profiles import BIN, DIGITS, Profile, range_of, range_query, valued
from noisegate.sql.question import Block, Question
from noisegate.sql.reuse.shelf import Shelf
from noisegate.transforms.checks import CAP_MAX
from noisegate.transforms.query import Query
from noisegate.transforms.stability import stability_of

Bounds: TypeAlias = Mapping[tuple[str, Expression], tuple[Fraction, Fraction]]
SHARE: Final = Fraction(1, 5)  # of the price of synthetic rows, for all their bounds together
CHOICES: Final = ("bounds", "caps")
_NOISES: Final = (Geometric, DiscreteGaussian)
_FOUND: Final = 20  # a group that one of so many units holds should be found
_SCALES: Final = 15  # of the noise, that a threshold is away for a δ of 1e-6
_FEW: Final = 8  # rows per unit: so many groups at most are no reason to look how many there are
BOUNDS: Final = Fraction(1, 8)  # of the price, for looks at bounds
_SIDES: Final = 0.25  # of the ranks: by what shares of units' rows below a quantile differ, about
_UNSEEN: Final = "errors are shown for values from 0 to 1, and grow with the width"
_GUESSED: Final = "until then errors are guesses, by an earlier and coarser estimate"
_BEYOND: Final = (
    "values beyond are clipped; the ± of sums and averages includes what that loses, by a model"
)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """Bounds of an expression in a block, or a cap; ``waits`` for bounds that are still to find."""

    block: Block
    expression: Expression | None
    counted: Counted | None
    measurement: Measurement
    epsilon: Fraction  # of the step
    price: Fraction = Fraction(0)  # for which it could be asked for
    waits: bool = False

    @property
    def words(self) -> str:
        """What is looked for."""
        if self.counted is not None:
            return self.counted.words
        if type(self.expression) is Field:
            return f"the bounds of {self.expression.name}"
        return "the bounds of an expression"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """What a look showed: noisy numbers, the scale of their noise, and whether that is Gaussian."""

    release: Release
    seq: int  # of its entry in the ledger
    values: tuple[int, ...]
    scale: float
    gaussian: bool = False


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """The question with what was found, words about it, and for blocks by name: caps, profiles.

    ``caps`` are the fields of `Caps` that were found, ``clips`` what bounds lose.
    """

    question: Question
    terms: Terms
    words: tuple[str, ...] = ()
    caps: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    profiles: Mapping[str, tuple[Profile, ...]] = field(default_factory=dict)
    clips: Mapping[str, Mapping[Expression, Clipped]] = field(default_factory=dict)


def looks_of(
    question: Question,
    terms: Terms,
    accountant: str,
    sight: Callable[[Look], Sight | None] = lambda _: None,
    *,
    gaussian: bool = False,
) -> tuple[Look, ...]:
    """What the question leaves open and is to be found: a cap that nobody declared, always.

    Bounds are found where that is asked for: values beyond them are lost. Caps are those of values
    within them, as far as looks at bounds had a ``sight``. ``gaussian``: ρ adds up, and noise may
    be Gaussian.
    """
    if terms.choose and (unknown := set(terms.choose) - set(CHOICES)):
        raise SpecError(
            f"{min(unknown)!r} cannot be chosen.",
            fix=f"Choose {' or '.join(CHOICES)}.",
            about="choice",
        )
    if terms.epsilon is None:
        if terms.choose and question.blocks:
            raise SpecError(
                "Private estimates of bounds and caps are paid for with a share of ε.",
                fix="Give epsilon, not an error.",
                about="share",
            )
        return ()
    ranges: list[Look] = []
    if "bounds" in (terms.choose or ()):
        missing = [(block, e) for block in question.blocks for e in _without_bounds(block)]
        each = terms.epsilon * BOUNDS / max(1, len(missing))
        ranges = [_bounds_look(block, e, terms, each) for block, e in missing]
    if terms.choose is not None and not terms.choose:
        return ()
    sights = [sight(look) for look in ranges]
    bounds = _bounds(ranges, sights)
    unseen = {look.block.name for look, at in zip(ranges, sights, strict=True) if at is None}
    found = {name for name, _ in bounds}
    blocks = [_bounded(each, bounds) for each in question.blocks]

    def ways() -> Iterator[list[Look]]:
        """As looks are, and as they were when ledgers were written, the newest first.

        Where ρ adds up, they once had a share of the step, and noise as where ε does.
        """
        for rho in (True, False) if gaussian else (False,):
            wanted = [(block, counted) for block in blocks
                      for counted in _open(block, terms, accountant, found, rho=rho)]  # fmt: skip
            for funds in _funds(wanted, terms.epsilon or Fraction(1), rho=rho):
                yield [
                    replace(
                        _cap_look(block, counted, funds),
                        waits=block.name in unseen and counted.part < 1,
                    )
                    for block, counted in wanted
                ]

    def since(looks: list[Look]) -> float:
        """When the last of them was seen: a later look, of any way, changes no question."""
        return max((inf if at is None else at.seq for at in map(sight, looks)), default=0)

    return (*min(ways(), key=since), *ranges)


def _funds(
    wanted: Sequence[tuple[Block, Counted]], epsilon: Fraction, *, rho: bool
) -> Iterator[Funds]:
    """For each look at caps: as it is, and as it once was."""
    count = min(len(wanted), 1)
    if len(wanted) > 1:
        count = len({str(counted.query.to_record()) for _, counted in wanted})
    two = count > 1 and any(counted.sums for _, counted in wanted)
    beside = any(each.sums and sums_of(block) and not block.shared for block, each in wanted)
    ratios = not beside and all(parts_of(block, divided=False)[1] for block, _ in wanted)
    share = share_of(epsilon, two=two, ratios=ratios, rho=rho) / max(1, count)
    yield Funds(epsilon=Fraction(part_of(epsilon, share, rho=rho)), gaussian=rho)
    if not rho:
        share = former_share_of(epsilon, two=two) / max(1, count)
        yield Funds(epsilon=epsilon * share, gaussian=False)


def _open(
    block: Block, terms: Terms, accountant: str, found: Container[str], *, rho: bool
) -> list[Counted]:
    """What to look at, if the block has a cap and nobody said which; if asked, but the policy."""
    said = terms if "caps" in (terms.choose or ()) else caps_of(block, terms)
    rows, looks = said.rows_per_unit, list[Counted]()
    if rows is not None and not any(key.domain.keys is None for key in block.by):
        return looks
    if has_both(block) and is_tight(terms.epsilon or Fraction(1), rho=rho):
        block = replace(block, shared=True)  # a second look would leave too little for averages
    loose = None if block.near or block.name not in found else bool(sums_of(block))  # one price
    sizes = counted_of(block, accountant, apart=True, loose=loose)
    for counted in sizes:
        fixed = rows
        if counted.sought and terms.rows_per_unit is None and (rows or 0) > _FEW:
            fixed = None  # so many rows may be in few groups, and noise is for as many as count
        if fixed is None and not (counted.people and said.groups_per_unit is not None):
            looks.append(counted)
    return looks


def _cap_look(block: Block, counted: Counted, funds: Funds) -> Look:
    query = counted.query
    noise = funds.noise(Fraction(1), l1=query.l1s[0], l2=query.l2s[0])
    measurement = Measurement(query=query, mechanisms=(noise,))
    return Look(block=block, expression=None, counted=counted, measurement=measurement,
                epsilon=funds.epsilon)  # fmt: skip


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
    (noise,) = look.measurement.mechanisms
    return _first(shelf, look.measurement.query, (type(noise),), scale_of(look.measurement))


def guess_of(look: Look, shelf: Shelf) -> Sight | None:
    """What an earlier look showed, however noisy: a guess for plans, until this one is paid for."""
    return None if look.counted is None else _first(shelf, look.measurement.query)


def _first(
    shelf: Shelf, query: Query, kinds: tuple[type, ...] = _NOISES, scale: float = inf
) -> Sight | None:
    """The first look of a query on the shelf that has no more noise than this, of these kinds."""
    for offer in shelf.offers(query, 0):
        noise = offer.noise
        if offer.cells == 1 and isinstance(noise, kinds) and _scale(noise) <= scale:
            return Sight(
                release=offer.release, seq=offer.seq, values=tuple(offer.values.tolist()),
                scale=_scale(noise), gaussian=type(noise) is DiscreteGaussian,
            )  # fmt: skip
    return None


def seen(
    question: Question,
    terms: Terms,
    looks: Sequence[Look],
    sights: Sequence[Sight | None],
    guesses: Sequence[Sight | None] = (),
) -> Chosen:
    """The question with what was found, for ``terms`` without the price of the looks; and words.

    Before a look (None), values are taken to lie from 0 to 1, and a cap is what ``guesses`` make
    likely, else the policy's, or 1.
    """
    if not looks or terms.epsilon is None:
        return Chosen(question=question, terms=terms)
    words: list[str] = []
    bounds = _bounds(looks, sights)
    caps: dict[str, dict[str, Any]] = {}
    profiles: dict[str, tuple[Profile, ...]] = {}
    clips: dict[str, dict[Expression, Clipped]] = {}
    likely = [one or other for one, other in zip(sights, guesses or sights, strict=True)]
    pairs = list(zip(looks, likely, strict=True))
    gaussian = any(sight is not None and sight.gaussian for sight in likely)
    price = Paid(step=float(terms.epsilon), blocks=len(question.blocks), gaussian=gaussian)
    for look, sight, guess in zip(looks, sights, likely, strict=True):
        name = look.block.name
        if look.counted is not None:
            beside = _beside([pair for pair in pairs if pair[0].block.name == name])
            weighed = weighed_of(look.block, beside, price)
            said = _take(look, guess, terms, price, weighed, caps.setdefault(name, {}))
            words += said if sight is guess else [f"{_paid(look)}; {_GUESSED}"]
            if sight is not None:
                found = _profile(look.block, look.counted, sight)
                profiles[name] = (*profiles.get(name, ()), found)
            continue
        assert look.expression is not None  # noqa: S101 - bounds are of one
        low, high = bounds[name, look.expression]
        if sight is None:
            words.append(f"{_paid(look)}; {_UNSEEN}")
            continue
        words.append(f"{look.words}, as estimated: {float(low):g} to {float(high):g}; {_BEYOND}")
        clips.setdefault(name, {})[_moved(look.block, look.expression, low, high)] = clipped_of(
            valued(sight.values), sight.scale, low, high, digits=DIGITS
        )
    blocks = tuple(_bounded(block, bounds) for block in question.blocks)
    return Chosen(
        question=replace(question, blocks=blocks), terms=terms,
        words=tuple(dict.fromkeys(words)), caps=caps, profiles=profiles, clips=clips,
    )  # fmt: skip


def _bounds(looks: Sequence[Look], sights: Sequence[Sight | None]) -> Bounds:
    """What looks at bounds found, for expressions of blocks by name; before that, 0 to 1."""
    return {
        (look.block.name, look.expression): (
            (Fraction(0), Fraction(1))
            if sight is None
            else range_seen(sight.values, sight.scale, look.words)
        )
        for look, sight in zip(looks, sights, strict=True)
        if look.expression is not None
    }


def steps_of(looks: Sequence[Look]) -> tuple[Fraction, ...]:
    """The steps of looks, equal ones once."""
    return tuple({look.measurement.question(): look.epsilon for look in looks}.values())


def _paid(look: Look) -> str:
    return f"{look.words}: estimated first, for ε = {float(look.price):.3g}"


def _take(
    look: Look,
    sight: Sight | None,
    terms: Terms,
    price: Paid,
    weighed: Weighed,
    held: dict[str, Any],
) -> list[str]:
    """Add to the caps of a block what a look says, and words about it."""
    counted = look.counted
    assert counted is not None  # noqa: S101 - it is about a cap
    cap = _cap(look, sight, terms, price, weighed)
    held["divided"] = weighed.divided
    if counted.sums:
        held["sums_per_unit"] = cap
    if counted.people:
        held["groups_per_unit"] = cap
    if caps_of(look.block, terms).rows_per_unit is None or not counted.people:
        held.setdefault("rows_per_unit", ceil(cap))
    words = []
    if not counted.sums or weighed.divided or sight is None or sums_of(look.block):
        shown = counted.shown(cap)
        words.append(
            f"{_paid(look)}; how far off numbers may be depends on what it finds. Errors are shown "
            f"for a cap of {shown}, and grow with it"
            if sight is None
            else f"{look.words}, as estimated: {shown}"
        )
    if weighed.own is not None and not counted.sums and not counted.people:
        held["averages_per_unit"] = min(weighed.own, CAP_MAX)
        words.append(f"{look.words} in averages, as estimated: {weighed.own}")
    return words


def _cap(
    look: Look, sight: Sight | None, terms: Terms, price: Paid, weighed: Weighed
) -> int | Fraction:
    """The cap that errs least, by what was seen; before that, the policy's, or 1."""
    block, counted = look.block, look.counted
    assert counted is not None  # noqa: S101 - it is about a cap
    limits = caps_of(block, terms)
    limit = limits.groups_per_unit if counted.people else limits.rows_per_unit
    if sight is None:
        return Fraction(1) if counted.sums else limit or 1
    parts, ratios = parts_of(block, divided=weighed.divided, own=weighed.own is not None)
    profile, each = _profile(block, counted, sight), price.among(parts)
    cells = cells_of(block, profile)
    if counted.sums:
        part = profile.best_part(each, cells=cells)
        return min(part if block.near else counted.whole(part), Fraction(CAP_MAX))
    most = limits.rows_per_unit or CAP_MAX if counted.sought else CAP_MAX
    if counted.steep:
        most = min(most, max(1, int(sum(sight.values) * each / (_FOUND * _SCALES))))
    differ = _SIDES if ratios == RANKS else weighed.differ
    if profile.most is not None and profile.is_best_whole(each, cells=cells):
        return min(profile.most, most, CAP_MAX)
    best = profile.best(each, cells=cells, ratios=ratios, differ=differ)
    return min(best, most, CAP_MAX)


def _beside(pairs: Sequence[tuple[Look, Sight | None]]) -> Seen:
    """What looks at a block say of its rows, and of what they add to direct sums."""
    return {
        bool(look.counted.sums): (look.counted, _profile(look.block, look.counted, sight))
        for look, sight in pairs
        if look.counted is not None and not look.counted.people and sight is not None
    }


def _bounded(block: Block, bounds: Bounds) -> Block:
    """The block with its arguments moved into the bounds that were found."""
    if not any(name == block.name for name, _ in bounds):
        return block

    def moved(arg: Expression) -> Expression:
        if (block.name, arg) not in bounds:
            return arg
        return _moved(block, arg, *bounds[block.name, arg])

    aggregates = tuple(
        a if a.function in UNBOUNDED else replace(a, args=tuple(map(moved, a.args)))
        for a in block.aggregates
    )
    return replace(block, aggregates=aggregates)


def _moved(block: Block, arg: Expression, low: Fraction, high: Fraction) -> Expression:
    """A value within bounds; NULL stays so, which LEAST and GREATEST pass over."""
    moved = Call("least", (Call("greatest", (arg, Literal(low))), Literal(high)))
    schema = schema_of(block.relation)
    if not domain_of(arg, schema).may_lack:
        return moved
    kind = domain_of(moved, schema).kind
    return Call("case", (Call("is_null", (arg,)), Literal(None, kind), moved))


def _without_bounds(block: Block) -> list[Expression]:
    """Numeric arguments whose values could be any."""
    found = []
    for aggregate in block.aggregates:
        schema = schema_within(block, aggregate.where)
        for arg in () if aggregate.function in UNBOUNDED else aggregate.args:
            domain = domain_of(arg, schema)
            if domain.kind.is_numeric and (domain.low is None or domain.high is None):
                found.append(arg)
    return list(dict.fromkeys(found))


def _profile(block: Block, counted: Counted, sight: Sight) -> Profile:
    return Profile(
        table=owner_table(block).name, units=sight.values, scale=sight.scale,
        part=counted.part, step=counted.step, people=counted.people, sums=bool(counted.sums),
        former=block.former,
        most=groups_of(block) if counted.people and not block.former else None,
        filtered=thins(block.relation),
    )  # fmt: skip


def range_seen(values: Sequence[int], scale: float, what: str) -> tuple[Fraction, Fraction]:
    """The range that a look at bounds shows."""
    found = range_of(valued(values), scale=scale)
    if found is None:
        raise Unsupported(
            f"In the private estimate of {what}, no range stands out from the noise; the estimate "
            "was paid for.",
            fix="Use a larger epsilon, or declare bounds that you know.",
            about="no-range",
        )
    return found


def scale_of(measurement: Measurement) -> float:
    """The scale of the noise of a look."""
    (noise,) = measurement.mechanisms
    return _scale(noise)


def _scale(noise: object) -> float:
    """Of two-sided geometric noise, or of such noise with the variance of this one."""
    assert isinstance(noise, _NOISES)  # noqa: S101 - so they are made
    if isinstance(noise, DiscreteGaussian):
        return sqrt(noise.variance / 2)
    return float(noise.scale)


def known_profile(
    shelf: Shelf, block: Block, accountant: str
) -> tuple[tuple[Profile, ...], Release | None]:
    """How large units are in a block, if that was ever looked at: the first look, released."""
    for counted in counted_of(block, accountant, apart=False) if shelf.is_grouped_by(BIN) else ():
        if sight := _first(shelf, counted.query):
            return (_profile(block, counted, sight),), sight.release
    return (), None
