"""What sizes a unit up in a block: its rows, what it adds to sums, or its groups."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from math import prod
from typing import Final, final

from noisegate.algebra.expression import domain_of
from noisegate.algebra.known import remembered
from noisegate.algebra.relation import PerUnit, Relation, Sampled
from noisegate.algebra.schema import schema_of
from noisegate.algebra.tally import Distinct, Sums, Term, Values
from noisegate.errors import Unsupported
from noisegate.privacy.domain import Kind
from noisegate.sql.drafts.draft import Part, draft
from noisegate.sql.drafts.groups import Caps, is_single
from noisegate.sql.drafts.recipe import ADDITIVE, COUNTS
from noisegate.sql.drafts.words import amount, sums_words
from noisegate.sql.estimates.profiles import PART, rows_per_unit_query
from noisegate.sql.question import Block, Function
from noisegate.transforms.query import Query
from noisegate.transforms.stability import stability_of

_LOOSE: Final = 1000  # bounds from here on are seldom near to what is usual


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """What to look at for a cap of a block: units by size, in ``part`` of a row.

    ``step``: all sizes are multiples of that, where it is known. ``people``: the sizes are numbers
    of groups, for counts of units by group. ``sums``: they are
    what units add to these sums, which are weighed apart. ``divides``: an average may be such a sum
    over a count. ``sought``: counts of units decide which groups are shown, above a threshold that
    grows with the cap if ``steep``, and else with its root.
    """

    query: Query
    part: Fraction = Fraction(1)
    step: Fraction | None = None
    people: bool = False
    sums: tuple[Term, ...] = ()
    divides: bool = False
    sought: bool = False
    steep: bool = False

    @property
    def words(self) -> str:
        """Which cap it is."""
        if self.sums:
            return f"the cap on what one unit adds to {sums_words(self.sums)}"
        return f"the cap on {'groups' if self.people else 'rows'} per unit"

    def shown(self, cap: int | Fraction) -> str:
        """A cap in words: of one sum, in its own unit."""
        if len(self.sums) == 1:
            (term,) = self.sums
            return amount(cap * term.reach * term.grain)
        return f"{float(cap):,.3g} times what a row adds at most" if self.sums else str(cap)


@remembered
def counted_of(block: Block, accountant: str, *, apart: bool) -> tuple[Counted, ...]:
    """What sizes a unit up in a block, if anything does: groups, what it adds, else its rows.

    With ``apart`` direct sums are weighed for themselves, which is a second size beside others.
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
    weighed = [part for part in parts if _is_weighed(part)]
    direct = [part for part in weighed if part.apart is not None]
    plain = [part for part in weighed if part.apart is None and not part.is_people]
    loose = any(_is_loose(term) for part in direct for term in _terms(part))
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
            by_size = Counted(query=rows_per_unit_query(rows))
        else:
            by_size = _of_sums(sized, rows, zeros=block.former)
        return (by_size, *sums, *(groups if sought else ()))
    if people and rows is not block.relation:  # about all units, not about a sample
        return counted_of(replace(block, relation=rows), accountant, apart=apart)
    return (*groups, *sums)


def _largest(plain: Sequence[Part], *, former: bool, alone: bool) -> Part | None:
    """The part that sizes units up for all parts of a block; None: their rows do.

    What a unit adds to one part says nothing of another: COUNT(y) may be of few rows.
    """
    if former or (alone and len(plain) == 1):
        return plain[0] if plain else None
    return next((part for part in plain if _is_whole(part)), None)


def _is_whole(part: Part) -> bool:
    tally = part.query.tally
    return isinstance(tally, Sums) and any(term.constant is not None for term in tally.sized)


def has_both(block: Block) -> bool:
    """Whether averages are asked for beside counts or sums, which one cap seldom suits."""
    functions = {each.function for each in block.aggregates}
    ratios = functions.intersection(ADDITIVE) - {*COUNTS, Function.SUM}
    totals = functions & {*COUNTS, Function.SUM}
    return bool(ratios and totals) and is_single(block) and not isinstance(block.relation, Sampled)


def _is_loose(term: Term) -> bool:
    """Whether bounds may lie far from most values, as far as numbers tell: ages end at 100 or so.

    Where they do not, sums are about as long as their rows, and a second estimate gains nothing,
    unless rows are looked at for averages alone.
    """
    return term.reach * term.grain >= _LOOSE


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


def _terms(part: Part) -> tuple[Term, ...]:
    return part.query.tally.terms if isinstance(part.query.tally, Sums) else ()


def _is_weighed(part: Part) -> bool:
    return isinstance(part.query.tally, Sums) and part.query.tally.is_weighed


def _of_sums(part: Part, rows: Relation, *, zeros: bool) -> Counted:
    """Units by what they add to a part, or by their rows where all rows are counted."""
    tally = part.query.tally
    assert isinstance(tally, Sums)  # noqa: S101 - only they are weighed
    sized, by = () if _is_whole(part) else tally.sized, tally.by if tally.squares_per_unit else ()
    return Counted(
        query=rows_per_unit_query(rows, sized, by=by, zeros=zeros),
        part=PART if sized else Fraction(1),
        step=None if by else _step(sized, rows),
        sums=() if part.apart is None else tally.terms,
    )


def _step(sized: Sequence[Term], rows: Relation) -> Fraction | None:
    """A part of what a row adds at most: all units add multiples of it, if values are whole."""
    if len(sized) != 1 or domain_of(sized[0].expression, schema_of(rows)).kind is not Kind.INTEGER:
        return None
    found = 1 / (sized[0].reach * sized[0].grain)
    return found if found > PART else None


def own_rows(block: Block) -> Relation:
    """The rows of a question; of one about a sample, all of which it holds some."""
    return block.relation.of if isinstance(block.relation, Sampled) else block.relation


def groups_of(block: Block) -> int | None:
    """How many groups there are in all, where all keys are declared."""
    if any(key.domain.keys is None for key in block.by):
        return None
    sizes = [len(key.domain.keys or ()) + key.domain.nullable for key in block.by]
    return sum(prod(sizes[place] for place in columns) for columns in set(block.sets))
