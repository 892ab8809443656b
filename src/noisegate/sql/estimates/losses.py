"""Bounded numbers as estimates of all there is: raised by what the bound loses, with its doubt.

The ± of a number has two parts. What noise may have done is proven. What the contribution bound
loses is estimated by the model of `tails.py`, and has quantiles: it may be much more than thought,
and never less than nothing. Both are independent, so their ± is that of their sum.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from functools import partial
from math import ceil, hypot, lcm, log, sqrt
from statistics import NormalDist
from typing import Any, Final, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from noisegate.algebra.tally import Sums, Values
from noisegate.frozen import dataclass, field, replace
from noisegate.privacy.domain import Kind
from noisegate.sql.drafts.purchase import Purchase
from noisegate.sql.drafts.recipe import COUNTS, Recipe
from noisegate.sql.drafts.terms import is_count
from noisegate.sql.estimates.bounded import Loss
from noisegate.sql.estimates.profiles import Profile
from noisegate.sql.estimates.unseen import even_normal
from noisegate.sql.laws.known import Bars, Known, grains_of
from noisegate.sql.laws.laws import Floats, Interval, combined
from noisegate.sql.question import Function

Numbers: TypeAlias = NDArray[Any]
Ends: TypeAlias = tuple[Floats, Floats]  # how far below, how far above
_NEAR = 2.0  # times less or more than the look says: a number of all rows may be
_APART = 1 / 4  # of the widest spread that a mean allows: how far averages of units differ
_NEARER = 1 / 2  # the same, of how far the mean is off the nearer bound
# By what shares of units' rows below a quantile differ, of the most they can: of each unit, and of
# all large units together. In `bench/truth_held.py` the first is about 3/8. With that, bars held
# 0.25 to 0.9 of medians where one unit has much of all rows (seeds 41 and 57, 6 to 8 draws); caps
# that make the ± least are as they were.
_ALIKE, _UNLIKE_RANKS = 1 / 2, 1 / 16
LESS_UNLIKE: Final = 1 / 32  # as it was: of large aeroplanes, which fly short ways, bars held .4
_SURE: Final = Fraction(95, 100)
_TWO: Final = 1.96  # standard deviations at 95 %
_WIDTH: Final = 3.0  # times 1 / factor: the first rung of even brackets
_PARTS: Final = 100_000  # in which slacks are rounded, as far as levels have room
_DENOMINATOR_MAX: Final = 10**9  # of a level and a slack together
_FORMERLY: Final = 1 / 2  # of the slack of ranks as it once was


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """What a cap of a block loses, for each of its numbers.

    ``units`` are what a row's worth is in direct sums, by piece, where sizes are not rows;
    ``signed`` are pieces of either sign. ``people``: it is about counts of units by group, and else
    about sums over rows; ``apart``: about direct sums that are weighed for themselves; ``own``:
    about such averages; ``is_norm``: sizes are norms. ``wide`` is the loss of numbers that hold all
    which the look has seen: they tell it themselves how much that is. ``spread``, of norms: the
    loss in rows, by how many are left in how many groups; ``partly``: by how many are left in some
    groups, and their norm. ``blind``: the look has seen nothing; ``some``: groups were found, so
    that others may hold rows that it has seen.
    """

    loss: Loss
    people: bool = False
    apart: bool = False
    own: bool = False
    is_norm: bool = False
    units: Mapping[int, float] = field(default_factory=dict)
    signed: frozenset[int] = frozenset()
    wide: Callable[[], Loss] | None = None
    spread: Callable[[float, int], Loss] | None = None
    partly: Callable[[float, float], Loss] | None = None
    blind: bool = False
    some: bool = False

    @property
    def kind(self) -> tuple[bool, bool, bool]:
        """Which numbers it is about."""
        return self.people, self.apart, self.own


def losses_of(bought: Purchase, profiles: Iterable[Profile]) -> tuple[Lost, ...]:
    """What the caps lose, as far as that was looked at."""
    found = (lost_of(bought, each, own=own) for each in profiles for own in (False, True))
    return tuple(each for each in found if each is not None)


def lost_of(bought: Purchase, profile: Profile, *, own: bool = False) -> Lost | None:
    """What the cap loses; None where no number is capped as the profile has it.

    With ``own``, of averages that are weighed for themselves.
    """
    if bought.draft.decided is not None and profile.people and not own:
        loss = profile.loss(bought.keys[0].query.per_unit)
        return Lost(loss=loss, people=True, blind=profile.is_blind)
    for part in bought.draft.parts:
        tally, cap = part.query.tally, Fraction(part.query.per_unit)
        rows = not profile.people and not profile.sums and not own
        if isinstance(tally, Values) and tally.rows_per_unit is not None and rows:
            return Lost(loss=profile.loss(cap), blind=profile.is_blind)
        kind = part.is_people, part.apart is not None, part.own
        if not isinstance(tally, Sums) or kind != (profile.people, profile.sums, own):
            continue
        if not tally.is_weighed:
            continue
        pieces = list(zip(part.pieces, tally.terms, grains_of(part.query), strict=True))
        least = min(part.apart or 1, 1)  # of a row's worth: no row counts more
        reach = {piece: float(term.reach * grain / least) for piece, term, grain in pieces}
        return Lost(
            loss=profile.loss(cap * least),
            people=part.is_people,
            apart=part.apart is not None,
            own=own,
            is_norm=bool(tally.squares_per_unit and tally.by),
            spread=partial(profile.spread, cap * least),
            partly=partial(profile.partly, cap * least),
            units={} if profile.part == 1 or any(map(is_count, tally.sized)) else reach,
            signed=frozenset(piece for piece, term, _ in pieces if term.low < 0 < term.high),
            wide=partial(profile.wide.loss, float(cap * least)),
            blind=profile.is_blind,
            some=any(key.domain.keys is None for key in bought.draft.block.by),
        )
    return None


def rank_slack(profiles: Sequence[Profile], cap: int | None) -> Fraction:
    """By which share of the ranks rows left out could move a quantile, as older ledgers had it.

    Two standard deviations of a share of the rows whose own one is 1/2, the most that there is, and
    half of that, since values of one unit are not all on one side. Rounding: up, to 1/1000.
    """
    rows = _of_rows(profiles)
    if not rows or cap is None:
        return Fraction(0)
    off = float(rows[0].sizes.loss(cap).average_off(np.ones(1))[0]) / 2
    return min(Fraction(ceil(1000 * off), 1000), Fraction(1, 4))


def _of_rows(profiles: Sequence[Profile]) -> list[Profile]:
    return [profile for profile in profiles if not profile.people and not profile.sums]


def slack_of(
    profiles: Sequence[Profile],
    cap: int | None,
    taus: Sequence[Fraction],
    ranks: Fraction,
    *,
    unlike: float = _UNLIKE_RANKS,
) -> Fraction:
    """The slack of even brackets whose factor is 1 / ``ranks``, for rows that a cap leaves out.

    Why: of a unit that loses e of N rows, a share p is below a quantile of level τ, with mean τ and
        a standard deviation of `_ALIKE` √(τ (1 - τ)); the sum of e (p - τ) / N over units is what
        ranks are off. Large units together may differ by ``unlike`` of the widest spread besides.
        Both and the noise are independent: half-widths are added in squares. All of it is a model.
    Rounding: up.
    """
    rows = _of_rows(profiles)
    if not rows or cap is None:
        return Fraction(0)
    loss = rows[0].sizes.loss(cap)  # as caps are chosen: another slack would be paid for again
    among = np.hypot(_ALIKE * np.sqrt(loss.squares), unlike * loss.drawn)
    drawn = np.abs(even_normal(1)) * among / (loss.kept + loss.drawn)
    most = max(sqrt(tau * (1 - tau)) for tau in taus)
    off, noise = float(np.quantile(drawn, 0.95)) * most * loss.kept, _WIDTH * float(ranks)
    share = (hypot(noise, off) - noise) / (2 * max(loss.kept, 1.0))
    wide = any(lcm(tau.denominator, _PARTS) > _DENOMINATOR_MAX for tau in taus)
    parts = 1000 if wide else _PARTS
    return min(Fraction(ceil(parts * share), parts), Fraction(1, 8))


def _former_slack(slack: Fraction, taus: Iterable[Fraction], part: float) -> Fraction:
    """By √(τ (1 - τ)) and a part of a slack. Rounding: up, to 1/1000."""
    most = max(sqrt(tau * (1 - tau)) for tau in taus)
    return Fraction(ceil(1000 * float(slack) * most * part), 1000)


# As older ledgers have it, the oldest first: brackets of that slack are found where they are.
FORMER_SLACKS: Final[tuple[Callable[[Fraction, Sequence[Fraction]], Fraction], ...]] = (
    lambda slack, _: slack,
    lambda slack, taus: _former_slack(slack, taus, 1.0),
    lambda slack, taus: _former_slack(slack, taus, _FORMERLY),
)


def normal(confidence: Fraction) -> float:
    """The half-width of the standard normal law."""
    return NormalDist().inv_cdf((1 + float(confidence)) / 2)


def told(lost: Lost, recipe: Recipe, values: Numbers, bars: Bars) -> Lost:
    """What a cap loses by what was measured under it, if that is all which the look has seen.

    Why: noise of groups is independent, so that of their sum has the norm of their half-widths.
    """
    unit = _unit(lost, recipe)
    if lost.wide is None or unit is None or recipe.sampled:
        return lost
    if is_signed(lost, recipe):
        return lost
    kept, ends = values.astype(np.float64) / unit, bars(_SURE)
    if lost.is_norm and not lost.people:
        wide = (ends.high - ends.low) / 2 / unit
        return spread(lost, kept) if _is_all(lost, recipe) else partly(lost, kept, wide)
    if not _is_all(lost, recipe):
        return lost
    total = float(values.astype(np.float64).sum())
    noise = float(np.linalg.norm(ends.high - ends.low)) / 2 / log(1 / float(1 - _SURE))
    loss = lost.wide().given(total / unit, noise / unit, about=lost.loss.lost)
    return replace(lost, loss=loss)


def spread(lost: Lost, kept: Floats) -> Lost:
    """What a cap on norms loses, by the rows that it keeps in all groups."""
    if not lost.is_norm or lost.spread is None:
        return lost
    if lost.some:
        return partly(lost, kept, np.zeros_like(kept))
    return replace(lost, loss=lost.spread(float(kept.sum()), kept.size))


def partly(lost: Lost, kept: Floats, noise: Floats) -> Lost:
    """The same of some groups, or of some rows, with such half-widths of noise."""
    assert lost.partly is not None  # noqa: S101 - sizes are norms
    off = noise / _TWO
    norm = sqrt(max(float(kept @ kept - off @ off), float(off.max(initial=0.0)) ** 2))
    return replace(lost, loss=lost.partly(float(np.abs(kept).sum()), norm))


def _unit(lost: Lost, recipe: Recipe) -> float | None:
    """What a row's worth is, in the unit of the number; None where that is not known."""
    if recipe.aggregate.function in (*COUNTS, Function.COUNT_UNITS):
        return 1.0
    return lost.units.get(recipe.direct) if recipe.direct is not None else None


def raised(lost: Lost, recipe: Recipe, values: Numbers, bars: Bars) -> tuple[Numbers, Bars, Bars]:
    """Counts or sums of all there is, their bars, and those of the noise alone."""
    centre = values.astype(np.float64)
    factor, gain = factor_of(lost, recipe, centre), _gain(lost, recipe, centre)
    shown: Numbers = centre * factor
    step = 0.0
    if recipe.kind is Kind.INTEGER:
        rounded = np.clip(np.rint(shown), -(2.0**62), 2.0**62).astype(np.int64)
        step = 0.0 if np.array_equal(rounded, values) else 0.5
        shown = rounded

    def around(confidence: Fraction, *, noise: bool) -> Interval:
        inner, at = bars(confidence), shown.astype(np.float64)
        down, up = (centre - inner.low) * gain, (inner.high - centre) * gain
        if not noise:
            down, up = (_reach(lost, recipe, centre, centre, confidence, x) for x in (down, up))
        down, up = down + step, up + step
        if recipe.kind is Kind.INTEGER:
            down, up = np.floor(down), np.floor(up)
        return Interval(at - down, at + up)

    return (
        shown,
        lambda confidence: around(confidence, noise=False),
        lambda confidence: around(confidence, noise=True),
    )


def scaled(lost: Lost, recipe: Recipe, centre: Floats) -> tuple[float, float]:
    """What a cap keeps of all there is, and what a row's worth is, in the unit of the number.

    Why: groups that hold all rows add up to what is kept, with noise of their own and not that of
        the look; where that is mostly noise, or cancels, the look tells more. Where it is not known
        what a row's worth is, all groups together are taken to be what is kept. So they are where
        the look saw nobody, as of values that are all 0: at least one row.
    """
    unit = _unit(lost, recipe)
    measured = max(float(np.abs(centre).sum()), 1e-300)
    if not lost.loss.kept:
        return max(measured, unit or 1.0), unit or 1.0
    if unit is not None and is_signed(lost, recipe):
        return lost.loss.kept * unit, unit
    if unit is None or (lost.is_norm and _is_all(lost, recipe)):
        return measured, measured / lost.loss.kept
    kept = lost.loss.kept * unit
    if _is_all(lost, recipe):
        kept = min(max(measured, kept / _NEAR), kept * _NEAR)
    return kept, unit


def _is_all(lost: Lost, recipe: Recipe) -> bool:
    """Whether the groups of a number hold together all that the look has seen."""
    asked = recipe.aggregate
    counted = lost.apart or asked.function is Function.COUNT
    alone = len(lost.units) == 1 and recipe.direct in lost.units
    return (alone or (counted and asked.where is None)) and not (lost.people or lost.some)


def factor_of(lost: Lost, recipe: Recipe, centre: Floats) -> float:
    """What bounded numbers are multiplied by, so that they estimate all there is."""
    kept, unit = scaled(lost, recipe, centre)
    return 1 + lost.loss.lost * unit / kept


def _gain(lost: Lost, recipe: Recipe, centre: Floats) -> Floats:
    """What the noise of bounded numbers is multiplied by when these are raised.

    Why: let Σ c be what is kept. A group of share p is raised to c + c L / Σ c for a loss L, which
        moves by 1 + (1 - p) L / Σ c with its own noise, and by -p L / Σ c with that of each other
        group. All groups together are raised by L, whatever their noise is.
    """
    kept, unit = scaled(lost, recipe, centre)
    more = lost.loss.lost * unit / kept
    size = np.abs(centre)
    if kept != size.sum():
        return np.full(centre.shape, 1 + more)
    part = size / kept
    return np.hypot(1 + more * (1 - part), more * part * sqrt(centre.size - 1))


def _reach(
    lost: Lost, recipe: Recipe, centre: Floats, of: Floats, confidence: Fraction, noise: Floats
) -> Floats:
    """Half-widths of noise, and of what a cap loses less or more ``of`` some sums, together.

    ``centre`` are all groups.
    """
    kept, unit = scaled(lost, recipe, centre)
    signed = is_signed(lost, recipe)
    return lost.loss.off(of / kept, confidence, signed=signed, noise=noise / unit) * unit


def _ends(lost: Lost, recipe: Recipe, values: Floats, confidence: Fraction) -> Ends:
    """How far below and above, of each of all groups."""
    kept, unit = scaled(lost, recipe, values)
    down, up = lost.loss.ends(values / kept, confidence, signed=is_signed(lost, recipe))
    return down * unit, up * unit


def is_signed(lost: Lost, recipe: Recipe) -> bool:
    """Whether what is lost may be of either sign."""
    return recipe.direct in lost.signed or any(mean.low < 0 < mean.high for mean in recipe.means)


@final
@dataclass(frozen=True, slots=True)
class Quotient:
    """A sum and a count of all there is, and how far off they are by what caps lose of them."""

    total: Known
    count: Known
    doubts: Callable[[Fraction], tuple[Ends, Ends]]


def quotient(recipe: Recipe, total: Known, count: Known, sums: Lost, rows: Lost) -> Quotient:
    """What an average is made of whose sum and count have caps of their own: each raised by its."""
    of_sum, of_rows = (
        replace(
            recipe, aggregate=replace(recipe.aggregate, function=function), direct=piece, means=()
        )
        for function, piece in (
            (Function.SUM, recipe.means[0].piece), (Function.COUNT, recipe.count),
        )
    )  # fmt: skip
    parts = [
        (
            known,
            known.values.astype(np.float64),
            told(lost, each, known.values, known.bars) if lost.is_norm else lost,
            each,
        )
        for known, lost, each in ((total, sums, of_sum), (count, rows, of_rows))
    ]
    factors = [factor_of(lost, each, values) for _, values, lost, each in parts]
    raised_total, raised_count = (
        Known(values * factor, combined([(Fraction(factor), known.law)]))
        for (known, values, _, _), factor in zip(parts, factors, strict=True)
    )

    def doubts(confidence: Fraction) -> tuple[Ends, Ends]:
        first, second = (_ends(lost, each, values, confidence) for _, values, lost, each in parts)
        return first, second

    return Quotient(raised_total, raised_count, doubts)


def average_off(
    point: Floats, low: float, high: Floats | float, rows: Floats, loss: Loss, confidence: Fraction
) -> Floats:
    """How far averages of all rows may be from those of the weighed rows, in [low, high].

    Why: values with mean μ in [low, high] have a variance of at most (μ - low)(high - μ); averages
        of units are taken to differ by a quarter of that spread, or by half of what μ is off the
        nearer end: values that lie far below their bounds differ by about what they are.
    """
    inside = np.clip(point, low, high)
    least, most = inside - low, high - inside
    spread = np.minimum(_APART * np.sqrt(least * most), _NEARER * np.minimum(least, most))
    return normal(confidence) * spread * loss.average_off(rows / loss.kept)


def widened(ratio: Interval, point: Floats, off: Floats, low: float, high: float) -> Interval:
    """Where an average lies that may be ``off`` besides what its bar says."""
    inside = np.clip(point, low, high)
    down = np.hypot(np.maximum(inside - ratio.low, 0), off)
    up = np.hypot(np.maximum(ratio.high - inside, 0), off)
    return Interval(
        np.minimum(ratio.low, inside - down), np.maximum(ratio.high, inside + up)
    ).clipped(low, high)
