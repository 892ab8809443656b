"""What looks cost, and how averages are weighed beside counts and sums.

Averages are weighed with these, for themselves, or as quotients.

Few rows of a unit tell an average, and what a cap leaves out moves it little; a count or a sum
needs all of them. Where a look says that one cap for both would cost either dear, averages and the
like have sums and counts with a cap of their own, in which a unit has one weight.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import hypot, prod, sqrt
from typing import Final, TypeAlias, final

from noisegate.sql.bounds.sized import Counted, has_both
from noisegate.sql.drafts.recipe import CHOSEN, COUNTS
from noisegate.sql.drafts.within import alike
from noisegate.sql.estimates.profiles import Profile
from noisegate.sql.estimates.tails import DIFFER
from noisegate.sql.question import Aggregate, Block, Function

_LEAST: Final = Fraction(1, 8)
_MOST: Final = Fraction(1, 2)
# an ε with which a look sees a hundred units, or two dozen, for up to such a share of the price
_SEEN: Final = (Fraction(6, 125), Fraction(12, 25)), (Fraction(1, 5), Fraction(1, 5))
_TWO: Final = Fraction(3, 2)  # times that for two sizes
_RATIOS: Final = Fraction(3, 4)  # where averages alone are asked, which depend less on their cap


# Which share of the price of a question is for looks at its caps was chosen on tables of made-up
# shapes (`bench/truth.py`): a look that sees fewer units leaves more of what a cap loses to a
# model, and one that costs more leaves less for the numbers.


def share_of(epsilon: Fraction, *, two: bool, ratios: bool, rho: bool = False) -> Fraction:
    """More of a small price, which else would show nothing. With ``rho``, the share of that.

    Why: a look that sees as much is the same step ε in both, and costs (seen / ε)² of ρ.
    """
    power = 2 if rho else 1
    share = max(_LEAST, *(min((seen / epsilon) ** power, most) for seen, most in _SEEN))
    if ratios:
        return share * _RATIOS
    return min(share * _TWO, _MOST) if two else share


def is_tight(epsilon: Fraction, *, rho: bool = False) -> bool:
    """Whether two looks would take all that looks may."""
    return share_of(epsilon, two=True, ratios=False, rho=rho) >= _MOST


def former_share_of(epsilon: Fraction, *, two: bool) -> Fraction:
    """What it once was, of counts and sums: looks of that price are on ledgers."""
    seen, most = _SEEN[0]
    share = max(_LEAST, min(seen / epsilon, most))
    return min(2 * share, _MOST) if two else share


# What looks at a block say of its rows (False), and of what these add to direct sums.
Seen: TypeAlias = Mapping[bool, tuple[Counted, Profile]]
UNBOUNDED: Final = (*COUNTS, Function.COUNT_UNITS, Function.COUNT_DISTINCT)
RANKS: Final = 4.5  # times the noise of a count, of a quantile
_AVERAGES: Final = 2.0  # the same of an average
_UNLISTED: Final = 100  # groups, where nobody knows how many there are; fewer if units are in few
_CLEARLY: Final = 0.5  # of an error that is guessed: what is smaller for sure


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Paid:
    """The step that all ``blocks`` of a question share, with geometric noise or Gaussian."""

    step: float
    blocks: int
    gaussian: bool

    def among(self, parts: int) -> float:
        """The ε whose geometric noise has the variance of that of one number among so many.

        Why: a cap C has noise of variance 2 (C / ε)² for an ε, and of (C / s)² for a step s of ρ;
            shares of ε are shares of a step, and those of ρ of its square.
        """
        if self.gaussian:
            return self.step * sqrt(2 / (parts * self.blocks))
        return self.step / self.blocks / parts


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Weighed:
    """How averages of a block are weighed: as quotients, with a cap of their ``own``, or neither.

    ``differ``: by how much of the half-width of their bounds those of units differ, about.
    """

    divided: bool
    own: int | None
    differ: float


def weighed_of(block: Block, seen: Seen, price: Paid) -> Weighed:
    """By what looks say, for a price."""
    divided = _is_divided(block, seen, price)
    own = None if divided else _own_cap(block, seen, price)
    return Weighed(divided=divided, own=own, differ=_differ(seen))


def parts_of(block: Block, *, divided: bool, own: bool = False) -> tuple[int, float]:
    """Among how many numbers the price of a block is shared, about, and the noise of its ratios.

    With ``own``, that of counts and sums: averages are weighed for themselves.
    """
    functions = [each.function for each in block.aggregates if each.function is not Function.SUM]
    sums = len(sums_of(block))
    if own:
        return sums + len(functions) + 1, 0
    if divided:
        functions, sums = [each for each in functions if each is not Function.AVG], max(1, sums)
        functions = functions or [Function.COUNT]
    totals, ranks = {*functions} & {*UNBOUNDED}, {*functions} & {*CHOSEN}
    if totals or not functions:
        return max(1, sums + len(functions)), 0
    return sums + 1, RANKS if ranks else _AVERAGES


def sums_of(block: Block) -> list[Aggregate]:
    """The sums of a block."""
    return [each for each in block.aggregates if each.function is Function.SUM]


def _own_cap(block: Block, seen: Seen, price: Paid) -> int | None:
    """The cap on rows of averages, if it is another one than that of counts beside them.

    That is so where with one cap averages would err by twice as much or more. What was looked at
    must size all up: rows, or those that all numbers are about.
    """
    if block.shared or not has_both(block) or False not in seen:
        return None
    counted, rows = seen[False]
    by_rows = not alike(block, apart=True in seen)
    if by_rows is not (counted.part == 1) or not any(_is_counted(a) for a in block.aggregates):
        return None
    cells, differ = cells_of(block, rows), _differ(seen)
    each, less = (price.among(parts_of(block, divided=False, own=own)[0]) for own in (False, True))
    shared = rows.best(each, cells=cells)
    own = rows.best(less, cells=cells, ratios=_AVERAGES, differ=differ)
    both, alone = (
        rows.sizes.error(cap, step, cells=cells, ratios=_AVERAGES, differ=differ)
        for cap, step in ((shared, each), (own, less))
    )
    return own if alone < _CLEARLY * both else None


def _is_counted(aggregate: Aggregate) -> bool:
    return aggregate.function in COUNTS


def _is_divided(block: Block, found: Seen, price: Paid) -> bool:
    """Whether an average errs less as a sum over a count than around the middle of its bounds.

    Of N units' worth of rows, in sums S = N r with r ≤ 1 of what a row adds at most: noise and loss
    of the sum move the average by 1 / N of themselves, those of the count by r / N.
    """
    if len(found) < len((False, True)) or not found[True][0].divides:
        return False
    counted = found[True][0]
    added, rows = found[True][1].sizes, found[False][1].sizes
    (term,), cells, errors = counted.sums, cells_of(block, found[False][1]), []
    for divided in (False, True):
        parts, ratios = parts_of(block, divided=divided)
        each = price.among(parts)
        differ = _differ(found)
        cap = rows.best(each, cells=cells, ratios=ratios, differ=differ)
        if not divided:
            half = (term.high - term.low) / 2 / term.reach
            off = rows.error(cap, each, cells=cells, ratios=_AVERAGES, differ=differ)
            errors.append(half * off)
            continue
        off = added.error(added.best(each, cells=cells), each, cells=cells)
        held = max(rows.total, 1.0)
        ratio = min(1.0, added.total / held)
        errors.append(cells / held * hypot(off, ratio * rows.error(cap, each, cells=cells)))
    return errors[1] < _CLEARLY * errors[0]


def _differ(found: Seen) -> float:
    """By how much of the half-width of their bounds averages of units differ, about.

    By half of what values are, where looks at rows and at one sum say that: most lie far below
    their bounds. The ± takes as much, see `average_off`.
    """
    if len(found) < len((False, True)) or len(found[True][0].sums) > 1:
        return DIFFER
    (term,), added, rows = found[True][0].sums, found[True][1].sizes, found[False][1].sizes
    usual = added.total / max(rows.total, 1.0) * term.reach
    return min(usual / (term.high - term.low), DIFFER)


def cells_of(block: Block, profile: Profile) -> int:
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
