"""Which noise a price buys.

Under the pure accountant the shares are shares of ε and sums carry geometric noise. Under others an
ε buys ρ = ε² / 2, the shares are shares of ρ, and sums carry Gaussian or geometric noise, whichever
errs less for its share at 95 %.
"""

from collections.abc import Callable, Sequence
from fractions import Fraction
from math import ceil, isqrt, log
from typing import TYPE_CHECKING, Any, Final, TypeAlias, final

from noisegate.accounting.search import digits_down
from noisegate.algebra.tally import Keys, Sums, Values
from noisegate.curator.measurement import Measurement
from noisegate.desk.terms.price import Funds, inner_delta, inner_price
from noisegate.desk.terms.terms import USUAL
from noisegate.errors import Unsupported
from noisegate.exact import Number, fraction, positive, sqrt_down
from noisegate.frozen import dataclass, replace
from noisegate.mechanisms.additive.gaussian import DiscreteGaussian
from noisegate.mechanisms.additive.geometric import Geometric
from noisegate.mechanisms.base import Mechanism, smallest_whole
from noisegate.sql.drafts.draft import Draft, DraftPart
from noisegate.sql.drafts.recipe import BRACKETS_MAX
from noisegate.sql.drafts.words import EVENLY, extreme, quantiles, ranks, rare
from noisegate.sql.question import Function
from noisegate.transforms.query import Query

if TYPE_CHECKING:
    from noisegate.mechanisms.keys.key_selection import Finder
    from noisegate.mechanisms.quantiles.brackets import Brackets

# The slack of brackets, by their levels and 1 / factor in ranks.
Slack: TypeAlias = Callable[[Sequence[Fraction], Fraction], Fraction]
_HOPE: Final = Fraction(1, 100)  # the least chance to find a group that is looked for
EXTREME: Final = Fraction(1, 100)  # the level of MIN where the number of rows is not known


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Purchase:
    """A draft with its noise: how each key question is asked, for each part its mechanisms.

    A part of sums has one mechanism per term; every other part has one. With a ``top``, counts are
    shown between 0 and that.
    """

    draft: Draft
    epsilon: Fraction
    keys: tuple[Measurement, ...]
    mechanisms: tuple[tuple[Mechanism[Any], ...], ...]
    caveats: tuple[str, ...]
    top: int | None = None


def purchase(
    draft: Draft,
    *,
    epsilon: Number,
    delta: Number = 0,
    rows: int | None = None,
    slack: Slack = lambda *_: Fraction(0),
    former: bool = False,
) -> Purchase:
    """The noise that ε (and, where groups must be found, δ) buys.

    ``rows`` is a released or otherwise known number of rows: MIN and MAX go as far out as the noise
    then allows. An upper bound would send them too far. ``slack`` is about a share of the ranks by
    which quantiles may be off besides noise. ``former``: brackets as older ledgers have them.
    """
    funds = Funds(epsilon=positive(epsilon, name="epsilon"), gaussian=draft.gaussian)
    words: list[str] = []
    keys = key_questions_of(draft, epsilon=epsilon, delta=delta)
    shown = draft.decided is not None
    words += [rare(each.query, finder_of(each), shown=shown) for each in keys]
    choosing = _Choosing(rows=rows, slack=slack, former=former)
    bought = tuple(_mechanisms(draft, part, funds, choosing, words) for part in draft.parts)
    return Purchase(
        draft=draft,
        epsilon=funds.epsilon,
        keys=keys,
        mechanisms=bought,
        caveats=(*draft.caveats, *dict.fromkeys(words)),
    )


def key_questions_of(draft: Draft, *, epsilon: Number, delta: Number) -> tuple[Measurement, ...]:
    """How the groups are found: for their share of the price, and δ."""
    if not draft.keys:
        return ()
    chance = fraction(delta, name="delta")
    if chance <= 0:
        raise Unsupported(
            "The groups are not declared, and partition selection needs a δ.",
            fix="Declare the column's keys, or give delta=1e-6 from an account that has δ.",
            about="delta",
        )
    funds = Funds(epsilon=positive(epsilon, name="epsilon"), gaussian=draft.gaussian)
    share, part = draft.finding / len(draft.keys), chance / len(draft.keys)
    return tuple(_finding(draft, query, funds, share, part) for query in draft.keys)


def _finding(
    draft: Draft, query: Query, funds: Funds, share: Fraction, delta: Fraction
) -> Measurement:
    """How one set of keys is found.

    Where the units of each are asked for, in as many groups of a unit as are counted. Else in so
    few that small groups are found. Why: let units be in n groups each, of which c count. A group
    then needs n / c times what the finder needs, t(c), or t(c) if n < c. Over all n up to the cap C
    the worst ratio to the best c for that n is least at c = 1 where t grows with c, and at √C where
    it grows with √c, as with Gaussian noise. More count where that costs nothing, at a large ε.
    """
    from noisegate.mechanisms.keys.key_selection import (  # noqa: PLC0415 - where groups are found
        KeySelection,
        ThresholdedGaussian,
        ThresholdedGeometric,
    )

    price = inner_price(funds.share(share), query.sample)
    within = inner_delta(delta, query.sample)
    kind = KeySelection if draft.decided is None else ThresholdedGeometric

    def finder(keys: int) -> "Finder":
        found: list[Finder] = [kind.for_budget(price, within, keys_per_unit=keys)]
        if funds.gaussian:
            rho = share * funds.epsilon**2 / 2
            found.append(ThresholdedGaussian.for_budget(rho, within, keys_per_unit=keys))
        return min(found, key=lambda each: each.turn)

    tally, most = query.tally, query.per_unit
    if draft.decided is not None or most == 1 or not isinstance(tally, Keys):
        return Measurement(query=query, mechanisms=(finder(most),))
    least = isqrt(most) if funds.gaussian else 1
    limit = finder(least).turn + 1
    beyond = smallest_whole(lambda keys: keys > most or finder(keys).turn > limit, least=least)
    groups = max(least, beyond - 1)
    few = Query(replace(tally, keys_per_unit=groups))
    return Measurement(query=few, mechanisms=(finder(groups),))


def finder_of(measurement: Measurement) -> "Finder":
    """What decides which groups are shown."""
    from noisegate.mechanisms.keys.key_selection import Finder  # noqa: PLC0415 - groups are found

    (found,) = measurement.mechanisms
    assert isinstance(found, Finder)  # noqa: S101 - so they are bought
    return found


def require_findable(keys: Sequence[Measurement], *units: int | None) -> None:
    """Refuse to look for groups that no number of units is enough for, before it is charged.

    ``units`` are what is known of how many there are at most.
    """
    most = min((each for each in units if each is not None), default=None)
    for finder in map(finder_of, keys):
        if most is not None and finder.probability(most)[1] < _HOPE:
            raise Unsupported(
                f"Partition selection finds no group among {most:,} units: at this price, a group "
                f"of {finder.turn:,} units is shown about half of the time.",
                fix="Ask with a larger epsilon or delta, a smaller groups_per_unit, or declare the "
                "column's keys.",
                about="no-group",
            )


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class _Choosing:
    """How quantiles are chosen; see `purchase`."""

    rows: int | None
    slack: Slack
    former: bool

    def brackets(
        self, epsilon: Fraction, *, taus: Sequence[Fraction], low: int, high: int, units: int
    ) -> "Brackets":
        """Those of some levels, for equal shares of ε."""
        from noisegate.mechanisms.quantiles.brackets import (  # noqa: PLC0415 - for quantiles
            Brackets,
            EvenBrackets,
            moved,
        )

        widest = max(moved(tau, Fraction(0)) for tau in taus)
        slack = self.slack(taus, len(taus) * units * widest / epsilon)
        kind = Brackets if self.former else EvenBrackets
        return kind.for_epsilon(
            epsilon, taus=taus, low=low, high=high, values_per_unit=units, slack=slack
        )


def _mechanisms(
    draft: Draft, part: DraftPart, funds: Funds, choosing: _Choosing, words: list[str]
) -> tuple[Mechanism[Any], ...]:
    query, tally = part.query, part.query.tally
    shares = [draft.share(piece) / part.copies for piece in part.pieces]
    if isinstance(tally, Sums):
        triples = zip(shares, query.l1s, query.l2s, strict=True)
        noises = tuple(funds.noise(share, l1=l1, l2=l2) for share, l1, l2 in triples)
        return _sharpened(query, noises, amplified=draft.amplified)
    if not isinstance(tally, Values) or part.other is None:
        price = inner_price(funds.share(shares[0]), query.sample)
        return (Geometric.for_epsilon(price, sensitivity=query.l1s[0]),)
    from noisegate.mechanisms.quantiles.quantiles import Quantiles, depth  # noqa: PLC0415

    low, high, units = tally.term.low, tally.term.high, query.per_unit
    price = inner_price(funds.choice(shares[0]), query.sample)
    if part.other.levels:
        taus = part.other.levels
        bracketed = part.other.is_bracketed
        steps = len(taus) if bracketed else depth(len(taus))
        if funds.gaussian and steps > 1:  # they add up in ρ, not in ε
            price = digits_down(price * steps * sqrt_down(Fraction(1, steps)))
        choice: Brackets | Quantiles = (
            choosing.brackets(price, taus=taus, low=low, high=high, units=units)
            if bracketed
            else Quantiles.for_epsilon(price, taus=taus, low=low, high=high, values_per_unit=units)
        )
        errors = dict(zip(taus, choice.rank_errors(USUAL), strict=True))
        sampled = query.sample is not None
        words.append(quantiles(part.other.expression, errors, USUAL, sampled=sampled))
        if bracketed and not choosing.former:
            words.append(EVENLY)
        if not bracketed:
            words.append(f"Of more than {BRACKETS_MAX} levels at once, errors are in ranks alone.")
        return (choice,)
    cells, rows = max(1, draft.cells(part.columns)), choosing.rows
    level = extreme_level(
        price / units,
        points=high - low + 1,
        rows=None if rows is None or part.other.where is not None else rows // cells,
        former=choosing.former,
    )
    tau = 1 - level if part.other.function is Function.MAX else level
    end = choosing.brackets(price, taus=(tau,), low=low, high=high, units=units)
    error = ranks(end.rank_error(USUAL), USUAL, sampled=query.sample is not None)
    words.append(extreme(part.other.function, part.other.expression, level, error))
    words += [] if choosing.former else [EVENLY]
    return (end,)


def _sharpened(
    query: Query, noises: tuple[Mechanism[Any], ...], *, amplified: str | None
) -> tuple[Mechanism[Any], ...]:
    """Noise about a sample, so much smaller that its price is the same as about all rows.

    Gaussian noise instead, where the account has a price for it and it errs less in every sum.
    """
    scales = [noise.scale for noise in noises if isinstance(noise, Geometric)]
    if query.sample is None or len(scales) < len(noises):
        return noises
    paid = [l1.value / scale for l1, scale in zip(query.l1s, scales, strict=True)]
    price = sum(paid, Fraction(0))
    factor = price / inner_price(price, query.sample)
    found = tuple(Geometric(scale=scale * factor) for scale in scales)
    if amplified is None:
        return found
    from noisegate.planning.calibrate import inner_rho_down  # noqa: PLC0415 - of samples

    rho = inner_rho_down(price, probability=query.sample, accountant=amplified)
    if rho is None:
        return found
    bells = tuple(
        DiscreteGaussian.for_rho(rho * each / price, sensitivity=l2)
        for each, l2 in zip(paid, query.l2s, strict=True)
    )
    pairs = zip(bells, found, strict=True)
    better = all(bell.interval(USUAL) < each.interval(USUAL) for bell, each in pairs)
    return bells if better else found


def extreme_level(
    epsilon: Fraction, *, points: int, rows: int | None, former: bool = False
) -> Fraction:
    """How far out a private minimum can be: the lowest level that stands clear of the lower bound.

    Grid points below all values err by the goal's rank r alone, and there may be as many as
    ``points``, so r must exceed ln(points) / factor by some; factor = ε / 2 for low levels. Its ±
    ends above the bound only if r is more than all rungs of its bracket need.
    """
    if rows is None:
        return EXTREME
    from noisegate.mechanisms.quantiles.brackets import (  # noqa: PLC0415 - for extremes
        LADDER,
        fine_radii_below,
        radii_below,
    )

    radii = radii_below(points - 1) if former else fine_radii_below(points - 1)
    rungs = log(radii.size / LADDER[-1]) + 1
    ranks = 2 * max(log(points) + 3, rungs) / float(epsilon) + 3
    thousandths = ceil(10_000 * ranks / max(rows, 1))
    return min(Fraction(thousandths, 10_000), Fraction(1, 2))
