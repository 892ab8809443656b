"""A few flat partitions, each planned from the noisy past: best for one dimension."""

from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Final, final

import numpy as np

from noisegate.errors import SpecError
from noisegate.releases.asking import Ask
from noisegate.releases.design import Asked, Designer
from noisegate.releases.estimate import Estimate, Predicted
from noisegate.releases.halves import Bins, Halves
from noisegate.releases.recipes.tree import require_same
from noisegate.releases.shares import Law
from noisegate.releases.tree_prior import UNKNOWN, Evidence, Fitted, fit
from noisegate.releases.tree_risk import Singles
from noisegate.releases.workload import Workload

_GRAIN: Final = 1_000_000  # shares are whole millionths, which every account can add up exactly
_LOOK: Final = 4  # the first round asks for 16 equal bins
_LOOK_SHARE: Final = Fraction(3, 20)
_LOOK_SINGLES: Final = Fraction(1, 10)  # a tenth, where single cells are asked for
_ROUNDS: Final = 4


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """Measure, fit, plan, measure: each round asks for the sums of one partition of the row.

    The first look is coarse. What it says goes into a fit, the fit into a plan for what is left of
    the price, and the coarsest part of that plan is measured next; the last round carries out all
    of its plan. Looks are measurements too: nothing is spent on choosing. Many rows give a
    hierarchy with tuned levels, few rows a handful of bins, and between these only heavy or rough
    stretches are refined.
    """

    name: ClassVar[str] = "planned"

    def require(self, shape: tuple[int, ...], workload: Workload) -> None:
        """One dimension."""
        require_same(shape, workload)
        if len(shape) != 1:
            raise SpecError("This method has one axis.", fix='Use method="adaptive" or "tree".')

    def predict(self, ask: Ask, workload: Workload) -> Predicted:
        """What a table has that is uneven everywhere; the plan then is the same for any rows."""
        designer = _designer(ask, workload)
        tree, share = designer.tree, _look(designer)
        evidence = Evidence.none(tree)
        bins = tree.level(min(_LOOK, tree.depth))
        evidence.expect(bins, ask.variance(bins.groups(), share))
        left, rough = 1 - share, [np.full(even.size, UNKNOWN) for even in tree.even]
        variance = designer.now(evidence, tree.even, rough)
        if left:
            _, variance = designer.plan(evidence, tree.even, rough, float(left))
        words = "that is for a table that is uneven everywhere; it is less for any other"
        return Predicted(rms=None, words=words, most=float(np.sqrt(variance)))

    def build(self, ask: Ask, workload: Workload) -> Estimate:
        """At most four rounds; the whole price is used."""
        designer = _designer(ask, workload)
        tree = designer.tree
        evidence = Evidence.none(tree)
        left = Fraction(1)
        planned = [(tree.level(min(_LOOK, tree.depth)), _look(designer))]
        sizes: list[int] = []
        for number in range(1, _ROUNDS + 1):
            ask.done(number / (_ROUNDS + 1), "measuring")
            blocks, shares = [bins.groups() for bins, _ in planned], [part for _, part in planned]
            for (bins, _), noisy in zip(planned, ask.sums(blocks, shares), strict=True):
                evidence.add(bins, noisy)
                sizes.append(bins.size)
            left -= sum(shares)
            fitted = fit(evidence)
            if not left:
                break
            plan, _ = designer.plan(evidence, fitted.shares, fitted.spreads, float(left))
            planned = _next(plan, left, last=number == _ROUNDS - 1)
        return _estimate(tree, fitted, sizes)


def _designer(ask: Ask, workload: Workload) -> Designer:
    tree = Halves.over(ask.shape[0])
    return Designer(tree, Asked.of(tree, workload), Law.of(ask))


def _look(designer: Designer) -> Fraction:
    if designer.tree.depth == 0:
        return Fraction(1)
    return _LOOK_SINGLES if isinstance(designer.asked.boxes, Singles) else _LOOK_SHARE


def _next(
    plan: list[tuple[Bins, float]], left: Fraction, *, last: bool
) -> list[tuple[Bins, Fraction]]:
    """The first of the plan, or all of it. The total alone teaches nothing: it takes one along."""
    count = len(plan) if last else min(len(plan), 1 if plan[0][0].size > 1 else 2)
    shares = [Fraction(max(1, int(share * _GRAIN)), _GRAIN) for _, share in plan[:count]]
    if count == len(plan):
        shares[-1] = left - sum(shares[:-1])
    if shares[-1] <= 0 or sum(shares) > left:  # nothing worth dividing is left
        return [(plan[0][0], left)]
    return [(bins, share) for (bins, _), share in zip(plan, shares, strict=False)]


def _estimate(tree: Halves, fitted: Fitted, sizes: list[int]) -> Estimate:
    words = f"measured in {', '.join(map(str, sizes))} bins, then fitted"
    return Estimate(fitted.sums[-1][: tree.cells], words=(words,))
