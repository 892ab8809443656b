"""What sizes a unit up in a block, what looks at that cost, and how averages are weighed.

A unit is sized up by its rows, what it adds to sums, or its groups. Few rows of a unit tell an
average, and what a cap leaves out moves it little; a count or a sum needs all of them. Where a look
says that one cap for both would cost either dear, averages and the like have sums and counts with a
cap of their own, in which a unit has one weight; or they are quotients.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from fractions import Fraction
from math import ceil, exp, hypot, inf, prod, sqrt
from typing import Final, TypeAlias, final

from noisegate.algebra.expression import Call, domain_of
from noisegate.algebra.known import remembered
from noisegate.algebra.relation import Filter, PerUnit, Relation, Sampled
from noisegate.algebra.schema import schema_of
from noisegate.algebra.tally import Distinct, Sums, Term, Values
from noisegate.errors import Unsupported
from noisegate.frozen import dataclass, replace
from noisegate.privacy.domain import Domain, Kind, TableDomain
from noisegate.sql.drafts.draft import DraftPart, draft
from noisegate.sql.drafts.groups import Caps, is_single
from noisegate.sql.drafts.recipe import ADDITIVE, CHOSEN, COUNTS
from noisegate.sql.drafts.within import alike
from noisegate.sql.drafts.words import amount, sums_words
from noisegate.sql.estimates.profiles import PART, STEPS, Profile, rows_per_unit_query
from noisegate.sql.estimates.tails import DIFFER
from noisegate.sql.question import Aggregate, Block, Function
from noisegate.transforms.query import Query
from noisegate.transforms.stability import stability_of

LOOSE: Final = 1000  # bounds from here on are seldom near to what is usual
_EVEN: Final = 10  # times the least value: values up to that differ too little for a second look
_RARE: Final = 12  # times as many pairs of unit and value as even values would need
_LOW: Final = 1 / 8  # of its bound: an average below is better a sum over a count


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """What to look at for a cap of a block: units by size, in ``part`` of a row.

    ``step``: all sizes are multiples of that, where it is known; ``least``: the
    largest size that a value of 1 has in a sum of whole numbers. ``people``: the sizes are numbers
    of groups, for counts of units by group. ``sums``: they are what units add to these sums, which
    are weighed apart; ``values``: they are numbers of different values. ``divides``: an average may
    be such a sum over a count. ``sought``: counts of units decide which groups are shown, above a
    threshold that grows with the cap if ``steep``, and else with its root.
    """

    query: Query
    part: Fraction = Fraction(1)
    step: Fraction | None = None
    least: Fraction = Fraction(0)
    people: bool = False
    sums: tuple[Term, ...] = ()
    values: bool = False
    divides: bool = False
    sought: bool = False
    steep: bool = False

    @property
    def words(self) -> str:
        """Which cap it is."""
        if self.sums:
            return f"the cap on what one unit adds to {sums_words(self.sums)}"
        what = "groups" if self.people else "different values" if self.values else "rows"
        return f"the cap on {what} per unit"

    def whole(self, cap: Fraction) -> Fraction:
        """A cap of sums under which a whole number is not rounded to 0, as it would be below 1."""
        return ceil(cap / self.least) * self.least if self.least else cap

    def shown(self, cap: int | Fraction) -> str:
        """A cap in words: of one sum, in its own unit."""
        if len(self.sums) == 1:
            (term,) = self.sums
            return amount(cap * term.reach * term.grain)
        return f"{float(cap):,.3g} times what a row adds at most" if self.sums else str(cap)


@remembered
def counted_of(
    block: Block, accountant: str, *, apart: bool, loose: bool | None = None
) -> tuple[Counted, ...]:
    """What sizes a unit up in a block, if anything does: groups, what it adds, else its rows.

    With ``apart`` direct sums are weighed for themselves, which is a second size beside others:
    where bounds are far out, or ``loose`` says so.
    """
    if stability_of(block.relation).rows is not None:
        return ()
    rows, caps = own_rows(block), Caps(rows_per_unit=1)
    if apart:
        caps = replace(caps, sums_per_unit=Fraction(1), divided=_is_divisible(block, accountant))
    try:
        drafted = draft(block, caps, accountant=accountant, derive=False)
    except Unsupported:  # bounds are not known
        return (Counted(query=rows_per_unit_query(rows)),)
    parts, sought = drafted.parts, drafted.decided is not None
    weighed = [p for p in parts if isinstance(p.query.tally, Sums) and p.query.tally.is_weighed]
    direct = [part for part in weighed if part.apart is not None]
    plain = [part for part in weighed if part.apart is None and not part.is_people]
    if loose is None:
        loose = any(_is_loose(term, block) for part in direct for term in _terms(part))
    counts = any(each.function in COUNTS for each in block.aggregates)
    if direct and plain and not (loose or (has_both(block) and not counts and not block.shared)):
        return counted_of(block, accountant, apart=False)
    sums = [
        replace(_of_sums(part, rows, zeros=block.former), divides=caps.divided) for part in direct
    ]
    people = [part.query.tally.relation for part in weighed if part.is_people]
    listed = any(isinstance(part.query.tally, Values | Distinct) for part in parts)
    sized = _largest(plain, former=block.former, alone=not (people or listed))
    many = len(people) > 1 and not block.former
    if sought or many or (drafted.keys and not (people or sums)):
        people = [PerUnit(rows, tuple((key.name, key.expression) for key in block.by), ())]
    groups = [
        Counted(query=rows_per_unit_query(each), people=True, sought=sought,
                steep=sought and accountant == "pure")
        for each in people[:1]
    ]  # fmt: skip
    if plain or listed:
        if sized is None:
            values = None if block.by_rows else _of_values(parts, rows)
            by_size = values or Counted(query=rows_per_unit_query(rows))
        else:
            by_size = _of_sums(sized, rows, zeros=block.former)
        return (by_size, *sums, *(groups if sought else ()))
    if people and rows is not block.relation:  # about all units, not about a sample
        return counted_of(replace(block, relation=rows), accountant, apart=apart)
    return (*groups, *sums)


def _of_values(parts: Sequence[DraftPart], rows: Relation) -> Counted | None:
    """Where nothing but different values of one kind is asked for: how many a unit has."""
    tally = parts[0].query.tally if len(parts) == 1 else None
    if not isinstance(tally, Distinct):
        return None
    held = Filter(rows, Call("not", (Call("is_null", (tally.expression,)),)))
    keys = tuple((f"key {place}", each.expression) for place, each in enumerate(tally.by))
    pairs = PerUnit(held, (("value", tally.expression), *keys), ())
    return Counted(query=rows_per_unit_query(pairs), values=True)


def counts_values(block: Block) -> bool:
    """Whether different values are asked for."""
    return any(each.function is Function.COUNT_DISTINCT for each in block.aggregates)


def values_cap(block: Block, profile: Profile, epsilon: float, *, cells: int, most: int) -> int:
    """The different values of a unit that count, at most so many, with the least error.

    Why: a value is counted if any unit has it among those that count. Under a cap C let P be the
        pairs of unit and value that are left, of K values that there can be. Even values would be
        in P / K pairs each, and in none with a chance of e^(-P / K); as many as are in `_RARE`
        times fewer pairs are taken to be lost, but no more than pairs are. All of it is a guess of
        the error, which bars do not rest on: an answer under a cap is a lower bound.
    """
    kinds = [
        _kinds(domain_of(each.args[0], schema_of(block.relation)))
        for each in block.aggregates
        if each.function is Function.COUNT_DISTINCT
    ]
    known = [each for each in kinds if each]
    if block.all_values or profile.is_blind or len(known) < len(kinds):
        return most
    number, best, least = max(known), most, inf
    for cap in (*(step for step in STEPS if step < most), most):
        noise, loss = sqrt(2) * cap / epsilon, profile.loss(cap)
        hidden = number * exp(-loss.kept / (_RARE * number * cells))
        error = hypot(noise, min(hidden, loss.lost / cells))
        if noise >= least:
            break
        if error < least:
            best, least = cap, error
    return best


def _kinds(domain: Domain) -> int | None:
    """How many values there can be, if that is known."""
    if domain.keys is not None:
        return len(domain.keys)
    if domain.low is None or domain.high is None or domain.kind not in (Kind.INTEGER, Kind.DATE):
        return None
    return int(domain.high - domain.low) + 1


def _largest(plain: Sequence[DraftPart], *, former: bool, alone: bool) -> DraftPart | None:
    """The part that sizes units up for all parts of a block; None: their rows do.

    What a unit adds to one part says nothing of another: COUNT(y) may be of few rows.
    """
    if former or (alone and len(plain) == 1):
        return plain[0] if plain else None
    return next((part for part in plain if _is_whole(part)), None)


def _is_whole(part: DraftPart) -> bool:
    tally = part.query.tally
    return isinstance(tally, Sums) and any(term.constant is not None for term in tally.sized)


def has_both(block: Block) -> bool:
    """Whether averages are asked for beside counts or sums, which one cap seldom suits."""
    functions = {each.function for each in block.aggregates}
    ratios = functions.intersection(ADDITIVE) - {*COUNTS, Function.SUM}
    totals = functions & {*COUNTS, Function.SUM}
    return bool(ratios and totals) and is_single(block) and not isinstance(block.relation, Sampled)


def _is_loose(term: Term, block: Block) -> bool:
    """Whether a second look gains more than it costs, as far as bounds tell.

    A sum under the cap on rows has noise for rows of the largest value, an average for as many of
    half the range. On three laws of sizes by six of values (ε = 1 and .3) a second look made
    sums 1.2 to 100 times more accurate where values may be near 0 and lie below a quarter of their
    bound, up to 2 times less where they lie at the middle; counts beside them erred by .4 to 2
    times as much. Formerly only bounds far out led to a second look.
    """
    if term.reach * term.grain >= LOOSE:
        return True
    least = 0 if term.low * term.high <= 0 else min(abs(term.low), abs(term.high))
    return not block.near and adds(block) and term.reach > _EVEN * least


def _is_divisible(block: Block, accountant: str) -> bool:
    """Whether averages may be direct sums over counts: of one expression, and of no sample.

    A sum and a count of a sample must be of the same one. Values that lie farther from 0 than from
    the middle of their bounds add more than they differ: there an estimate of sums gains nothing.
    """
    averages = [each for each in block.aggregates if each.function is Function.AVG]
    if not averages or isinstance(block.relation, Sampled) or len(set(block.sets)) > 1:
        return False
    caps = Caps(rows_per_unit=1, sums_per_unit=Fraction(1), divided=True)
    with suppress(Unsupported):  # bounds are not known
        parts = draft(block, caps, accountant=accountant, derive=False).parts
        terms = [term for part in parts if part.apart is not None for term in _terms(part)]
        asked = any(each.function is Function.SUM for each in block.aggregates)
        least = min((min(abs(term.low), abs(term.high)) for term in terms), default=0)
        narrow = all(term.low * term.high > 0 for term in terms) and all(
            2 * least >= term.high - term.low for term in terms
        )
        return len(terms) == 1 and (asked or not narrow)
    return False


def _terms(part: DraftPart) -> tuple[Term, ...]:
    return part.query.tally.terms if isinstance(part.query.tally, Sums) else ()


def _of_sums(part: DraftPart, rows: Relation, *, zeros: bool) -> Counted:
    """Units by what they add to a part, or by their rows where all rows are counted."""
    tally = part.query.tally
    assert isinstance(tally, Sums)  # noqa: S101 - only they are weighed
    sized, by = () if _is_whole(part) else tally.sized, tally.by if tally.squares_per_unit else ()
    steps = [_step(term, rows) for term in sized]
    return Counted(
        query=rows_per_unit_query(rows, sized, by=by, zeros=zeros),
        part=PART if sized else Fraction(1),
        step=None if by or len(steps) != 1 else steps[0] or None,
        least=max(steps, default=Fraction(0)),
        sums=() if part.apart is None else tally.terms,
    )


def _step(term: Term, rows: Relation) -> Fraction:
    """The size of a value of 1, where values are whole; 0 elsewhere, or if looks are coarser."""
    if domain_of(term.expression, schema_of(rows)).kind is not Kind.INTEGER:
        return Fraction(0)
    found = 1 / (term.reach * term.grain)
    return found if found > PART else Fraction(0)


def own_rows(block: Block) -> Relation:
    """The rows of a question; of one about a sample, all of which it holds some."""
    return block.relation.of if isinstance(block.relation, Sampled) else block.relation


def owner_table(block: Block) -> TableDomain:
    """The table whose rows have owners."""
    return next(t for t in stability_of(block.relation).tables if t.unit is not None)


def groups_of(block: Block) -> int | None:
    """How many groups there are in all, where all keys are declared."""
    if any(key.domain.keys is None for key in block.by):
        return None
    sizes = [len(key.domain.keys or ()) + key.domain.nullable for key in block.by]
    return sum(prod(sizes[place] for place in columns) for columns in set(block.sets))


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


def adds(block: Block) -> bool:
    """Whether sums are asked for, or averages, which are made of some."""
    return any(each.function in (Function.SUM, Function.AVG) for each in block.aggregates)


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
    if by_rows is not (counted.part == 1) or all(
        a.function not in COUNTS for a in block.aggregates
    ):
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


def _is_divided(block: Block, found: Seen, price: Paid) -> bool:
    """Whether an average errs less as a sum over a count than around the middle of its bounds.

    Of N units' worth of rows, in sums S = N r with r ≤ 1 of what a row adds at most: noise and loss
    of the sum move the average by 1 / N of themselves, those of the count by r / N.
    """
    if len(found) < len((False, True)) or not found[True][0].divides:
        return False
    counted = found[True][0]
    added, rows = found[True][1].sizes, found[False][1].sizes
    if sums_of(block) and not block.near:  # the sum is bought anyway
        return added.total < _LOW * max(rows.total, 1.0)
    (term,), cells, errors = counted.sums, cells_of(block, found[False][1]), []
    for divided in (False, True):
        parts, ratios = parts_of(block, divided=divided)
        each = price.among(parts)
        differ = _differ(found)
        cap = rows.best(each, cells=cells, ratios=ratios, differ=differ)
        if not divided:
            own = None if block.near else _own_cap(block, found, price)
            if own is not None:
                cap, each = own, price.among(parts_of(block, divided=False, own=True)[0])
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
