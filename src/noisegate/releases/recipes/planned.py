"""A few flat partitions, each planned from the noisy past: best for one dimension."""

from fractions import Fraction
from math import exp
from typing import ClassVar, Final, NamedTuple, final

import numpy as np

from noisegate.errors import Bug, SpecError
from noisegate.frozen import dataclass
from noisegate.mechanisms.partitions.unevenness import Unevenness
from noisegate.releases.ask.asking import Ask
from noisegate.releases.ask.shares import Law
from noisegate.releases.cells.estimate import Estimate, Guess, Predicted
from noisegate.releases.cells.workload import Floats, Ints, Workload
from noisegate.releases.fit.plausible import DRAWS
from noisegate.releases.recipes import require_same
from noisegate.releases.trees.design import Asked, Designer
from noisegate.releases.trees.dyadic_row import Bins, Halves
from noisegate.releases.trees.prior import UNKNOWN, Evidence, fit, least_squares
from noisegate.releases.trees.risk import Singles

_GRAIN: Final = 1_000_000  # shares are whole millionths, which every account can add up exactly
_PARTS: Final = 8  # stretches by which a table is felt to be even or not
# What feeling costs, and by how many deviations an excess is beyond the edge that settles it. The
# first is for many rows: it costs them little, and few rows go on to the second.
_TRIES: Final = ((Fraction(1, 100), 3.0), (Fraction(1, 10), 0.0))
_EDGE: Final = 19.0  # deviations of a total: from that excess on, a few bins err less than one
_CHANCE: Final = 3.2  # times the root of its rows is what an even table hardly exceeds, by chance
_LIKELY: Final = 0.92  # how likely a table is even, unless more than both is felt: then it falls
_FALL: Final = 1.4  # by this power for each deviation beyond,
_LEAST: Final = 0.05  # but not below
_LOOK: Final = 4  # the first look asks for 16 equal bins
_LOOK_SHARE: Final = Fraction(3, 20)
_LOOK_SINGLES: Final = Fraction(1, 10)  # a tenth, where single cells are asked for
_ROUNDS: Final = 4
_FINE: Final = 8  # a partition with more bins that is all of a plan is not bought at once:
_FIRST: Final = Fraction(3, 10)  # so much of what is left, unless that is little:
_LITTLE: Final = Fraction(1, 10)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """Measure, fit, plan, measure: each round asks for the sums of one partition of the row.

    Before it, the table is felt: by how much does the fuller half of it outweigh the emptier half?
    If that is no more than a few bins would err, the table is taken to be even, and all that is
    left goes to its total. Else the first look is coarse. What it says goes into a fit, the fit
    into a plan for what is left of the price, and the coarsest part of that plan is measured next;
    the last round carries out all of its plan. Looks are measurements too. Many rows give a
    hierarchy with tuned levels, few rows a handful of bins, and between these only heavy or rough
    stretches are refined.
    """

    name: ClassVar[str] = "planned"

    def require(self, shape: tuple[int, ...], workload: Workload) -> None:
        """One dimension."""
        require_same(shape, workload, axes=1)

    def predict(self, ask: Ask, workload: Workload) -> Predicted:
        """What a table has that is uneven everywhere; the plan then is the same for any rows."""
        designer = _designer(ask, workload)
        tree, share = designer.tree, _look(designer)
        evidence = Evidence.none(tree)
        bins = tree.level(min(_LOOK, tree.depth))
        evidence.expect(bins, ask.variance(bins.groups(), share))
        left = 1 - share - sum(each for each, _ in _tries(ask, designer))
        rough = [np.full(even.size, UNKNOWN) for even in tree.even]
        variance = designer.now(evidence, tree.even, rough)
        if left:
            _, variance = designer.plan(evidence, tree.even, rough, float(left))
        words = "that is for a table that is uneven everywhere; it is smaller for any other"
        return Predicted(rms=None, words=words, most=float(np.sqrt(variance)))

    def build(self, ask: Ask, workload: Workload) -> Estimate:
        """At most four rounds after feeling; the whole price is used."""
        designer = _designer(ask, workload)
        felt = _felt(ask, designer)
        if felt.even:
            return _even(ask, designer.tree, felt)
        return _measured(ask, designer, felt)


class _Felt(NamedTuple):
    """What feeling left of the price, and the excess that was felt, if any, with its variance.

    ``edge`` is what it is held against; ``even``: it is not beyond, and the table taken as even.
    """

    left: Fraction
    excess: float = 0.0
    variance: float = 1.0
    edge: float = 0.0
    even: bool = False

    @property
    def square(self) -> float:
        """The mean square of the excess, if any size from 0 on is as likely as another.

        That many tables are even is no reason here: the ± is for those, too, that are not, and
        were taken to be by the noise of feeling.
        """
        above = max(0.0, self.excess)
        return self.variance + 2 * above**2 / (2 - exp(-above * (2 / self.variance) ** 0.5))

    def likely(self, total: float, step: float) -> float:
        """How likely a table of that total is even, if one row adds such a step to it."""
        chance = _CHANCE * (max(0.0, total) * step) ** 0.5
        above = max(0.0, self.excess - max(self.edge, chance)) / self.variance**0.5
        return max(_LEAST, _LIKELY * exp(-_FALL * above))


def _tries(ask: Ask, designer: Designer) -> tuple[tuple[Fraction, float], ...]:
    """None for single cells, for hardly any cells, and where so little buys no noise at all."""
    if designer.tree.cells < 2 * _PARTS or isinstance(designer.asked.boxes, Singles):
        return ()
    return _TRIES if _buys(ask, designer.tree.level(0), _TRIES[0][0]) else ()


def _buys(ask: Ask, bins: Bins, share: Fraction) -> bool:
    """Whether a share is enough for noise that can be drawn."""
    try:
        ask.variance(bins.groups(), share)
    except SpecError:
        return False
    return True


def _felt(ask: Ask, designer: Designer) -> _Felt:
    felt, whole = _Felt(Fraction(1)), designer.tree.level(0).groups()
    edge = _EDGE * ask.variance(whole, felt.left) ** 0.5
    for share, enough in _tries(ask, designer):
        variance = ask.variance(whole, share)
        found = ask.choose(lambda epsilon: Unevenness(scale=1 / epsilon, parts=_PARTS), share)
        if found.size != 1:
            raise Bug(
                "The answers do not belong to this recipe.",
                fix="Release the table again.",
                about="answers",
            )
        felt = _Felt(felt.left - share, float(found[0]), variance, edge)
        if felt.excess > edge + enough * variance**0.5:
            return felt
    return felt._replace(even=felt.left < 1)  # if anything was felt


def _even(ask: Ask, tree: Halves, felt: _Felt) -> Estimate:
    """All that is left goes to the total, which is spread evenly.

    A part p of the cells is off by p of the total's noise, by the chance of rows to fall into it,
    and by what an uneven table has there: p (1 - p) of the squared excess, which is a quarter of it
    for a half of the cells.
    """
    ask.done(1 / 2, "measuring")
    (noisy,) = ask.sums([tree.level(0).groups()], [felt.left])
    total = max(0.0, float(noisy.values[0]))
    square = min(felt.square, total**2 + noisy.variance)  # no excess is more than all there is

    def guess(lows: Ints, highs: Ints) -> Guess:
        part = (highs - lows + 1)[:, 0] / tree.cells
        beside = part * (1 - part) * (total * float(ask.moved) + square)
        return Guess(part * total, np.sqrt(part**2 * noisy.variance + beside), DRAWS)

    words = "no part of it stands out from the noise, so it was measured as one and spread evenly"
    return Estimate(np.full(tree.cells, total / tree.cells), words=(words,), guess=guess)


def _measured(ask: Ask, designer: Designer, felt: _Felt) -> Estimate:
    """Rounds of looking and planning."""
    tree, left = designer.tree, felt.left
    evidence = Evidence.none(tree)
    planned = [(tree.level(min(_LOOK, tree.depth)), _look(designer))]
    sizes: list[int] = []
    even, cuts = _LIKELY, np.zeros(tree.cells, np.int64)
    for number in range(1, _ROUNDS + 1):
        ask.done(number / (_ROUNDS + 1), "measuring")
        blocks, shares = [bins.groups() for bins, _ in planned], [part for _, part in planned]
        for (bins, _), noisy in zip(planned, ask.sums(blocks, shares), strict=True):
            evidence.add(bins, noisy)
            sizes.append(bins.size)
            if number == 1:
                even = felt.likely(float(noisy.values.sum()), float(ask.moved))
            else:
                cuts[bins.starts[1:]] = 1
        left -= sum(shares)
        fitted = fit(evidence, even)
        if not left:
            break
        plan, _ = designer.plan(evidence, fitted.shares, fitted.spreads, float(left))
        planned = _next(plan, left, last=number == _ROUNDS - 1, wary=felt.left < 1)
        if not all(_buys(ask, bins, share) for bins, share in planned):
            planned = [(plan[0][0], left)]
            if not _buys(ask, *planned[0]):
                break
    words = f"measured in {', '.join(map(str, sizes))} bins, then fitted"
    cells = fitted.sums[-1][: tree.cells]
    if felt.left < 1 and len(sizes) > 1:
        plain = _flattened(least_squares(evidence), np.cumsum(cuts))
        cells = cells + (1 - even) / 2 * (plain - cells)
    return Estimate(cells, words=(words,))


def _flattened(cells: Floats, labels: Ints) -> Floats:
    """The mean of each planned bin.

    The fit believes too little where bins are few, least squares too much: half of each errs less
    than either (2 to 9 % on rows of 4,096 cells at low prices, as much as the fit at high ones),
    unless the table may be even all the same.
    """
    return (np.bincount(labels, cells) / np.bincount(labels))[labels]


def _designer(ask: Ask, workload: Workload) -> Designer:
    tree = Halves.over(ask.shape[0])
    return Designer(tree, Asked.of(tree, workload), Law.of(ask))


def _look(designer: Designer) -> Fraction:
    if designer.tree.depth == 0:
        return Fraction(1)
    return _LOOK_SINGLES if isinstance(designer.asked.boxes, Singles) else _LOOK_SHARE


def _next(
    plan: list[tuple[Bins, float]], left: Fraction, *, last: bool, wary: bool
) -> list[tuple[Bins, Fraction]]:
    """The first of the plan, or all of it. The total alone teaches nothing: it takes one along.

    Who is wary measures many bins that are all of the plan in two goes: the first may show that a
    few rough ones should be cut and all others left.
    """
    if wary and not last and len(plan) == 1 and plan[0][0].size > _FINE and left > _LITTLE:
        return [(plan[0][0], left * _FIRST)]
    count = len(plan) if last else min(len(plan), 1 if plan[0][0].size > 1 else 2)
    shares = [Fraction(max(1, int(share * _GRAIN)), _GRAIN) for _, share in plan[:count]]
    if count == len(plan):
        shares[-1] = left - sum(shares[:-1])
    if shares[-1] <= 0 or sum(shares) > left:  # nothing worth dividing is left
        return [(plan[0][0], left)]
    return [(bins, share) for (bins, _), share in zip(plan, shares, strict=False)]
