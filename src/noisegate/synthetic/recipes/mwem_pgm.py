"""MWEM with a graphical model: each round measures the table that the model knows least [HLM12].

What is measured: in each of T rounds (as many as columns, unless told) half of the round's price is
for choosing the table of the workload that is furthest from the model, by the exponential
mechanism, less what noise alone would add and by weights; the other half is for that table. The
model is that of highest entropy [MSM19] instead of a table of all cells; tables that would make it
larger than ``cells_max`` are not candidates.
"""

from fractions import Fraction
from math import prod, sqrt
from typing import final

from noisegate.frozen import dataclass
from noisegate.releases.fit.residuals import Sizes
from noisegate.synthetic.asking import TablesAsk
from noisegate.synthetic.model.junction import cells_with
from noisegate.synthetic.model.model import fit
from noisegate.synthetic.recipes import Fit, Known, Planned, TablesWorkload, Total
from noisegate.synthetic.recipes.shared import Rounds, measured, singles_of
from noisegate.synthetic.sharing import MEAN


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class MwemPgm(Rounds):
    """So many ``rounds``, and a model of at most ``cells_max`` cells."""

    def planned(  # noqa: D102 - see Synthesizer
        self,
        sizes: Sizes,
        workload: TablesWorkload,  # noqa: ARG002 - any sets
        *,
        gaussian: bool,  # noqa: ARG002 - the same
    ) -> tuple[Planned, ...]:
        share = self._share(sizes)
        column = 2 * share / len(sizes)
        chosen = Planned("a chosen table", share, share)
        return Planned("a column", column, column), chosen

    def build(
        self, ask: TablesAsk, workload: TablesWorkload, *, known: Known = (), total: Total = None
    ) -> Fit:
        """Choose, ask and fit, round by round."""
        rounds, share = self.rounds or len(ask.sizes), self._share(ask.sizes)
        singles = singles_of(ask.sizes)
        first = [2 * share / len(singles)] * len(singles)  # one round, to know how many rows
        evidence = [*known, *measured(ask, singles, first)]
        model = fit(ask.sizes, evidence, total=total, cells_max=self.cells_max)
        noise = MEAN * sqrt(ask.variance(share))
        for place in range(rounds):
            held = [each.axes for each in evidence]
            small = [s for s in workload.sets if cells_with(held, ask.sizes, s) <= self.cells_max]
            if not small:
                break
            less = {s: noise * prod(ask.sizes[a] for a in s) for s in small}
            weights = {s: workload.weight(s) for s in small}
            chosen = ask.furthest(model.tables(small), share, weights=weights, less=less)
            evidence += measured(ask, [chosen], [share])
            model = fit(ask.sizes, evidence, total=total, start=model, cells_max=self.cells_max)
            ask.done((place + 1) / (rounds + 1), f"round {place + 1} of {rounds}")
        return Fit(model, tuple(evidence), (f"{rounds} rounds",))

    def _share(self, sizes: Sizes) -> Fraction:
        """Of a choice, or of a table."""
        return Fraction(1, 2 * ((self.rounds or len(sizes)) + 1))
