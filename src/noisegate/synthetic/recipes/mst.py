"""MST: a tree over the columns, chosen one pair at a time [MMS21].

What is measured: a third of the price for each column by itself; a third for choosing the pairs of
a tree, each the one that is furthest from independent columns, by weights, among those that join
two trees, by the exponential mechanism; a third for these pairs. The model is the tree: exact, and
fast. What pairs outside the tree say beyond it is lost. Unlike in the original, values rarer than
three standard deviations of noise are not merged: the fit has no negative numbers, which serves
better. Pairs of Adult at ε = 1 are off by 0.061, with merging by 0.087 (two runs each).
"""

from fractions import Fraction
from math import prod
from typing import Final, final

from noisegate.frozen import dataclass
from noisegate.releases.fit.residuals import Axes, Sizes
from noisegate.synthetic.asking import TablesAsk
from noisegate.synthetic.model.model import fit
from noisegate.synthetic.recipes import Fit, Known, Planned, TablesWorkload, Total
from noisegate.synthetic.recipes.shared import (
    Modelled,
    equal,
    measured,
    pairs_of,
    singles_of,
    trees_joined,
)

_THIRD: Final = Fraction(1, 3)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Mst(Modelled):
    """Chooses a tree of pairs of the workload; none of them has more than ``cells_max`` cells."""

    def planned(  # noqa: D102 - see Synthesizer
        self,
        sizes: Sizes,
        workload: TablesWorkload,
        *,
        gaussian: bool,  # noqa: ARG002 - the same
    ) -> tuple[Planned, ...]:
        small = self._small(sizes, workload)
        column = (_THIRD if small else Fraction(1)) / len(sizes)
        pairs = [_THIRD / trees_joined(small)] if small else []
        tree = (Planned("a pair of the tree", pair, pair) for pair in pairs)
        return (Planned("a column", column, column), *tree)

    def build(
        self, ask: TablesAsk, workload: TablesWorkload, *, known: Known = (), total: Total = None
    ) -> Fit:
        """Ask for columns, choose, ask for pairs, fit."""
        small = self._small(ask.sizes, workload)
        singles = singles_of(ask.sizes)
        budget = _THIRD if small else Fraction(1)
        evidence = [*known, *measured(ask, singles, equal(len(singles), budget))]
        model = fit(ask.sizes, evidence, total=total, cells_max=self.cells_max)
        tree: list[Axes] = []
        guesses = model.tables(small)
        rounds = trees_joined(small)
        for place in range(rounds):
            left = {p: guesses[p] for p in small if trees_joined([*tree, p]) > len(tree)}
            weights = {pair: workload.weight(pair) for pair in left}
            tree.append(ask.furthest(left, _THIRD / rounds, weights=weights))
            ask.done(0.2 + 0.4 * place / rounds, "choosing a tree")
        if tree:
            evidence += measured(ask, tree, equal(rounds, _THIRD))
            model = fit(ask.sizes, evidence, total=total, cells_max=self.cells_max)
        return Fit(model, tuple(evidence), (f"a tree of {len(tree)} pairs",))

    def _small(self, sizes: Sizes, workload: TablesWorkload) -> list[Axes]:
        """Pairs that can be in the tree."""
        pairs = pairs_of(workload.sets)
        return [pair for pair in pairs if prod(sizes[a] for a in pair) <= self.cells_max]
