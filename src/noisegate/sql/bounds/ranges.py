"""Bounds of values that are found: where nobody declared any, and where declared ones are far out.

A look counts values by sign and size. Where bounds are missing they become the range that stands
clear of noise: powers of two. Declared ones that are far out are narrowed to where noise and what
lies beyond err least together, or stay as they are where the look shows nothing. Of units with many
rows under a cap it counts units, by the value that lies farthest from 0: one bin for each.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from math import prod, sqrt
from typing import Final, TypeAlias, final

from noisegate.algebra.expression import Call, Expression, Literal, domain_of
from noisegate.algebra.schema import schema_of
from noisegate.algebra.tally import Sums
from noisegate.curator.measurement import Measurement
from noisegate.desk.terms.price import Funds, share_of
from noisegate.desk.terms.terms import Terms
from noisegate.errors import Unsupported
from noisegate.frozen import dataclass, replace
from noisegate.mechanisms.additive.gaussian import DiscreteGaussian
from noisegate.sql.bounds.limits import caps_of
from noisegate.sql.bounds.look import Look, Sight
from noisegate.sql.bounds.sized import LOOSE, UNBOUNDED
from noisegate.sql.drafts.declared import declared_rows
from noisegate.sql.drafts.recipe import ADDITIVE, CHOSEN
from noisegate.sql.drafts.within import schema_within
from noisegate.sql.estimates.clipped import Clipped, Side, clipped_of, sides_of
from noisegate.sql.estimates.profiles import (
    DIGIT_BINS,
    farthest_query,
    range_of,
    range_query,
    reach_bins,
    valued,
)
from noisegate.sql.question import Aggregate, Block, Function
from noisegate.transforms.stability import stability_of

Range: TypeAlias = tuple[Fraction, Fraction]
Bounds: TypeAlias = Mapping[tuple[str, Expression], Range]  # by the names of blocks
BOUNDS: Final = Fraction(1, 8)  # of the price, for looks at bounds where none are declared
# For looks that narrow declared ones, which are at finer bins. With 1/8, ± under contribution
# bounds were several times as wide, for what noise hides beyond; with 2/5 no narrower.
_FAR: Final = Fraction(1, 4)
_SUMS: Final = (Function.SUM, Function.AVG)  # looks at what units add size them up
_NARROWED: Final = tuple(each for each in ADDITIVE if each not in UNBOUNDED)
_UNLISTED: Final = 10  # groups, where nobody knows how many there are
_UNSEEN: Final = "errors are shown for values from 0 to 1, and grow with the width"
_DECLARED: Final = "errors are shown for the declared ones, and shrink if values lie far below"
_KEPT: Final = "the private estimate shows none that are narrower than declared"
_BEYOND: Final = "values beyond are clipped; the ± includes what that loses, by a model"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Bounds of an expression, what they lose, and words; no ``bounds``: those it has are kept."""

    bounds: Range | None
    words: str
    clipped: Clipped | None = None


def open_bounds(block: Block, terms: Terms) -> list[Expression]:
    """Arguments whose values could be any, or whose declared bounds are to be narrowed."""
    found = []
    for aggregate in block.aggregates:
        for arg in () if aggregate.function in UNBOUNDED else aggregate.args:
            domain = domain_of(arg, schema_within(block, aggregate.where))
            missing = domain.low is None or domain.high is None
            if domain.kind.is_numeric and (missing or is_far(block, aggregate, arg, terms)):
                found.append(arg)
    return list(dict.fromkeys(found))


def is_far(block: Block, aggregate: Aggregate, arg: Expression, terms: Terms) -> bool:
    """Whether declared bounds may be far out, where no look at what units add sizes them up."""
    declared = _declared(block, arg)
    if block.near or aggregate.function not in _NARROWED or declared is None:
        return False
    sized = stability_of(block.relation).rows is None and _cap(block, terms) is None
    if sized and aggregate.function in _SUMS:
        return False
    magnitude = domain_of(arg, schema_within(block, aggregate.where)).magnitude
    return magnitude is not None and magnitude >= LOOSE


def _cap(block: Block, terms: Terms) -> int | None:
    """How many rows of a unit count, unless that is to be found too."""
    said = terms if "caps" in (terms.choose or ()) else caps_of(block, terms)
    return said.rows_per_unit


def bounds_looks(
    block: Block, expression: Expression, terms: Terms, *, count: int, rho: bool
) -> Iterator[Look]:
    """What to look at for bounds, one of ``count`` looks, and what it once was.

    With ``rho`` shares are of that, and noise may be Gaussian; once they were of ε.
    """
    relation, rows, times = block.relation, None, None
    whole, reach = terms.epsilon or Fraction(1), _reach(_declared(block, expression))
    if stability_of(relation).rows is None:
        rows, times = terms.rows_per_unit or declared_rows(relation) or 1, _cap(block, terms)
    for former in (False, True) if reach is None else (False,):
        if reach is None or times is None:
            query = range_query(
                relation, expression, rows_per_unit=rows, reach=reach, former=former
            )
        else:
            query = farthest_query(relation, expression, reach)
        is_rho = rho and not former
        share = (BOUNDS if reach is None else _FAR) / count
        epsilon = Fraction(share_of(whole, share, rho=is_rho))
        noise = Funds(epsilon=epsilon, gaussian=is_rho).noise(
            Fraction(1), l1=query.l1s[0], l2=query.l2s[0]
        )
        measurement = Measurement(query=query, mechanisms=(noise,))
        yield Look(block=block, expression=expression, counted=None, measurement=measurement,
                   epsilon=epsilon, whole=whole,
                   times=None if reach is None else times)  # fmt: skip


def known_of(looks: Iterator[Look], sight: Callable[[Look], Sight | None]) -> Look:
    """The look of those that is known, or else the first."""
    first = next(looks)
    if sight(first) is not None:
        return first
    return next((each for each in looks if sight(each) is not None), first)


def found_of(look: Look, sight: Sight | None) -> Found:
    """What a look at bounds shows; before that, 0 to 1, where none are declared."""
    assert look.expression is not None  # noqa: S101 - bounds are of one
    declared = _declared(look.block, look.expression)
    if sight is None:
        unit = None if declared else (Fraction(0), Fraction(1))
        return Found(bounds=unit, words=f"{look.paid}; {_DECLARED if declared else _UNSEEN}")
    grain = _grain(look)
    if declared is not None:
        values, reach = sight.values, max(map(abs, declared))
        ends = float(declared[0]), float(declared[1])
        if look.times is not None:
            ends = 0.0, float(reach)
        sides = sides_of(values, sight.scale, grain, reach_bins(reach), ends)
        low, high = _narrowed(look, sides, declared)
        if (low, high) == declared:
            return Found(bounds=None, words=f"{look.words}: {_KEPT}")
    else:
        values = valued(sight.values)
        low, high = range_seen(sight.values, sight.scale, look.words)
        sides = sides_of(values, sight.scale, grain, DIGIT_BINS)
    words = f"{look.words}, as estimated: {float(low):g} to {float(high):g}; {_BEYOND}"
    clipped = clipped_of(
        sides, sum(values) * grain, sight.scale * grain, low, high, times=look.times
    )
    return Found(bounds=(low, high), words=words, clipped=clipped)


def _grain(look: Look) -> float:
    """What a row is counted as."""
    tally = look.measurement.query.tally
    assert isinstance(tally, Sums)  # noqa: S101 - rows by size
    return float(tally.terms[0].grain)


def _declared(block: Block, expression: Expression) -> Range | None:
    """The bounds that the expression has anyway, if it has both."""
    domain = domain_of(expression, schema_within(block))
    return None if domain.low is None or domain.high is None else (domain.low, domain.high)


def _reach(bounds: Range | None) -> Fraction | None:
    return None if bounds is None else max(abs(end) for end in bounds)


def _narrowed(look: Look, sides: tuple[Side, Side], declared: Range) -> Range:
    """Where noise and what lies beyond err least together, within declared bounds.

    A side of which the look shows nothing has the end of the other one. How much less noise an
    earlier look had changes nothing of what the numbers of this question cost.
    """
    block, (low, high) = look.block, declared
    squared = any(
        each.function not in _SUMS and each.function in _NARROWED and look.expression in each.args
        for each in block.aggregates
    )
    parts = len(block.aggregates) + 1
    gaussian = type(look.measurement.mechanisms[0]) is DiscreteGaussian
    price = float(look.whole) / (sqrt(2 * parts) if gaussian else parts)
    noise = sqrt(2) * (look.times or look.measurement.query.per_unit) / price
    cells = prod(_UNLISTED if key.domain.keys is None else len(key.domain.keys) for key in block.by)
    ends = [
        None if side.is_blind else side.best(noise, cells=max(cells, 1), squared=squared)
        for side in sides
    ]
    known = [Fraction(end) for end in ends if end is not None]
    if not known:
        return declared
    below, above = (max(known) if end is None else Fraction(end) for end in ends)
    return max(low, -below), min(high, above)


def bounded(block: Block, bounds: Bounds) -> Block:
    """The block with its arguments moved into the bounds that were found.

    Of quantiles only those that had none: narrower ones help them little, and end extremes.
    """
    if not any(name == block.name for name, _ in bounds):
        return block

    def moved(aggregate: Aggregate, arg: Expression) -> Expression:
        if (block.name, arg) not in bounds or aggregate.function in UNBOUNDED:
            return arg
        domain = domain_of(arg, schema_within(block, aggregate.where))
        if aggregate.function in CHOSEN and None not in (domain.low, domain.high):
            return arg
        return moved_into(block, arg, *bounds[block.name, arg])

    aggregates = tuple(
        replace(each, args=tuple(moved(each, arg) for arg in each.args))
        for each in block.aggregates
    )
    return replace(block, aggregates=aggregates)


def moved_into(block: Block, arg: Expression, low: Fraction, high: Fraction) -> Expression:
    """A value within bounds; NULL stays so, which LEAST and GREATEST pass over."""
    moved = Call("least", (Call("greatest", (arg, Literal(low))), Literal(high)))
    schema = schema_of(block.relation)
    if not domain_of(arg, schema).may_lack:
        return moved
    kind = domain_of(moved, schema).kind
    return Call("case", (Call("is_null", (arg,)), Literal(None, kind), moved))


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
