"""Paid looks: bounds and caps that nobody declared, found privately for a share of the price.

A look is a measurement like any other: bought once, kept in the ledger, free afterwards. What is
made of it is public, so the question itself is then asked with found bounds as if declared.
"""

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from fractions import Fraction
from math import ceil, inf
from typing import Any, Final, final

from noisegate.algebra.expression import Expression
from noisegate.curator.measurement import Measurement
from noisegate.desk.terms.price import Funds
from noisegate.desk.terms.price import share_of as part_of
from noisegate.desk.terms.terms import Terms
from noisegate.errors import SpecError
from noisegate.frozen import dataclass, field, replace
from noisegate.privacy.release import Release
from noisegate.sql.bounds.limits import caps_of, thins
from noisegate.sql.bounds.look import About, Look, Sight, first_of
from noisegate.sql.bounds.ranges import (
    Bounds,
    Range,
    bounded,
    bounds_looks,
    found_of,
    known_of,
    moved_into,
    open_bounds,
)
from noisegate.sql.bounds.sized import (
    RANKS,
    Counted,
    Paid,
    Seen,
    Weighed,
    cells_of,
    counted_of,
    counts_values,
    former_share_of,
    groups_of,
    has_both,
    is_tight,
    owner_table,
    parts_of,
    share_of,
    sums_of,
    values_cap,
    weighed_of,
)
from noisegate.sql.estimates.clipped import Clipped
from noisegate.sql.estimates.profiles import BIN, Profile
from noisegate.sql.question import Block, Question
from noisegate.sql.reuse.shelf import Shelf
from noisegate.transforms.checks import CAP_MAX

SHARE: Final = Fraction(1, 5)  # of the price of synthetic rows, for all their bounds together
CHOICES: Final = ("bounds", "caps")
_FOUND: Final = 20  # a group that one of so many units holds should be found
_SCALES: Final = 15  # of the noise, that a threshold is away for a δ of 1e-6
_FEW: Final = 8  # rows per unit: so many groups at most are no reason to look how many there are
_SIDES: Final = 0.25  # of the ranks: by what shares of units' rows below a quantile differ, about
_GUESSED: Final = "until then errors are guesses, by an earlier and coarser estimate"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """The question with what was found, words about it, and for blocks by name: caps, profiles.

    ``caps`` are the fields of `Caps` that were found, ``clips`` what bounds lose. ``guessed``: of
    which blocks no look says the cap, by what it is on (`Look.about`), or the bounds of values.
    """

    question: Question
    terms: Terms
    words: tuple[str, ...] = ()
    caps: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    profiles: Mapping[str, tuple[Profile, ...]] = field(default_factory=dict)
    clips: Mapping[str, Mapping[Expression, Clipped]] = field(default_factory=dict)
    guessed: frozenset[tuple[str, About]] = frozenset()


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
                fix="Give epsilon; beside an error, it is the most that may be spent.",
                about="share",
            )
        return ()
    ranges: list[Look] = []
    if "bounds" in (terms.choose or ()):
        missing = [(block, e) for block in question.blocks for e in open_bounds(block, terms)]
        asked = (bounds_looks(*each, terms, count=len(missing), rho=gaussian) for each in missing)
        ranges = [known_of(each, sight) for each in asked]
    if terms.choose is not None and not terms.choose:
        return ()
    sights = [sight(look) for look in ranges]
    bounds = _bounds(ranges, sights)
    unseen = {look.block.name for look, at in zip(ranges, sights, strict=True) if at is None}
    found = {look.block.name for look in ranges}
    blocks = [bounded(each, bounds) for each in question.blocks]

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
    bounds = dict[tuple[str, Expression], Range]()
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
            words += said if sight is guess else [f"{look.paid}; {_GUESSED}"]
            if sight is not None:
                found = _profile(look.block, look.counted, sight)
                profiles[name] = (*profiles.get(name, ()), found)
            continue
        assert look.expression is not None  # noqa: S101 - bounds are of one
        shown = found_of(look, sight)
        words.append(shown.words)
        if shown.bounds is not None:
            bounds[name, look.expression] = shown.bounds
        if shown.bounds is not None and shown.clipped is not None:
            at = moved_into(look.block, look.expression, *shown.bounds)
            clips.setdefault(name, {})[at] = shown.clipped
    blocks = tuple(bounded(block, bounds) for block in question.blocks)
    return Chosen(
        question=replace(question, blocks=blocks), terms=terms,
        words=tuple(dict.fromkeys(words)), caps=caps, profiles=profiles, clips=clips,
        guessed=frozenset(
            (look.block.name, look.about)
            for look, sight in zip(looks, likely, strict=True)
            if sight is None and not _is_declared(look, terms)
        ),
    )  # fmt: skip


def _is_declared(look: Look, terms: Terms) -> bool:
    """Whether the policy says what is looked for, so that errors are shown for that."""
    if look.counted is None:
        return found_of(look, None).bounds is None
    limits = caps_of(look.block, terms)
    declared = limits.groups_per_unit if look.counted.people else limits.rows_per_unit
    return declared is not None and not look.counted.sums


def _bounds(ranges: Sequence[Look], sights: Sequence[Sight | None]) -> Bounds:
    """What looks at bounds found, for expressions of blocks by name."""
    found = zip(ranges, map(found_of, ranges, sights), strict=True)
    return {
        (look.block.name, look.expression): shown.bounds
        for look, shown in found
        if look.expression is not None and shown.bounds is not None
    }


def steps_of(looks: Sequence[Look]) -> tuple[Fraction, ...]:
    """The steps of looks, equal ones once."""
    return tuple({look.measurement.question(): look.epsilon for look in looks}.values())


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
    rows = counted.part == 1 and not counted.people and not counted.values
    if sight is not None and rows and counts_values(look.block):
        profile = _profile(look.block, counted, sight)
        parts = parts_of(look.block, divided=weighed.divided, own=weighed.own is not None)[0]
        held["values_per_unit"] = values_cap(
            look.block, profile, price.among(parts), cells=cells_of(look.block, profile),
            most=ceil(cap),
        )  # fmt: skip
    if not counted.sums or weighed.divided or sight is None or sums_of(look.block):
        shown = counted.shown(cap)
        words.append(
            f"{look.paid}; how far off numbers may be depends on what it finds. Errors are shown "
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
    best = min(profile.best(each, cells=cells, ratios=ratios, differ=differ), most, CAP_MAX)
    if counted.values:
        return values_cap(block, profile, each, cells=cells, most=best)
    return best


def _beside(pairs: Sequence[tuple[Look, Sight | None]]) -> Seen:
    """What looks at a block say of its rows, and of what they add to direct sums."""
    return {
        bool(look.counted.sums): (look.counted, _profile(look.block, look.counted, sight))
        for look, sight in pairs
        if look.counted is not None and not look.counted.people and sight is not None
    }


def _profile(block: Block, counted: Counted, sight: Sight) -> Profile:
    return Profile(
        table=owner_table(block).name, units=sight.values, scale=sight.scale,
        part=counted.part, step=counted.step, people=counted.people, sums=bool(counted.sums),
        former=block.former,
        most=groups_of(block) if counted.people and not block.former else None,
        filtered=thins(block.relation),
    )  # fmt: skip


def known_profile(
    shelf: Shelf, block: Block, accountant: str
) -> tuple[tuple[Profile, ...], Release | None]:
    """How large units are in a block, if that was ever looked at: the first look, released."""
    for counted in counted_of(block, accountant, apart=False) if shelf.is_grouped_by(BIN) else ():
        if sight := first_of(shelf, counted.query):
            return (_profile(block, counted, sight),), sight.release
    return (), None
