"""AIM: rounds that measure the table the model knows least, with noise that falls [MMSM22].

What is measured: each column; then in each round a tenth of its price is for choosing a table by
the exponential mechanism, with the score w (‖exact - model‖₁ - √(2/π) σ n) where w says how much of
the workload the table overlaps and n is its number of cells, and nine tenths are for that table.
Rounds start at a (16 · columns)-th of the price each; one that teaches less than its noise, at most
√(2/π) σ n, halves σ for the next ones. Candidates are all subsets of the workload's sets that keep
the model within ``cells_max`` cells times the share that is spent. How far the result is off is
seen from the evidence: noise for tables that were measured, the last scores for the others.
"""

from collections.abc import Sequence
from fractions import Fraction
from math import prod, sqrt
from typing import Final, final

import numpy as np

from noisegate.frozen import dataclass
from noisegate.releases.fit.residuals import Axes, Sizes, closure
from noisegate.synthetic.asking import TablesAsk
from noisegate.synthetic.model.junction import cells_with
from noisegate.synthetic.model.model import fit
from noisegate.synthetic.recipes import Fit, Known, Planned, TablesWorkload, Total
from noisegate.synthetic.recipes.shared import Rounds, measured, singles_of
from noisegate.synthetic.sharing import MEAN

_PER_COLUMN: Final = 16
_CHOICE: Final = Fraction(1, 10)  # of a round
_STEPS: Final = 50  # of the fit in each round; it starts from the one before


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Aim(Rounds):
    """At most so many ``rounds``, and a model of at most ``cells_max`` cells."""

    def planned(  # noqa: D102 - see Synthesizer
        self,
        sizes: Sizes,
        workload: TablesWorkload,  # noqa: ARG002 - any sets
        *,
        gaussian: bool,  # noqa: ARG002 - the same
    ) -> tuple[Planned, ...]:
        share = self._share(sizes) * (1 - _CHOICE)
        most = (1 - len(sizes) * share) * (1 - _CHOICE)
        return Planned("a column", share, most), Planned("a chosen table", share, most)

    def build(
        self, ask: TablesAsk, workload: TablesWorkload, *, known: Known = (), total: Total = None
    ) -> Fit:
        """Choose, ask and fit, until the price is spent."""
        singles = singles_of(ask.sizes)
        share, left = self._share(ask.sizes), Fraction(1)
        weights = overlaps(workload)
        first = [share * (1 - _CHOICE)] * len(singles)
        evidence = [*known, *measured(ask, singles, first)]
        left -= sum(first)
        model = fit(ask.sizes, evidence, total=total, cells_max=self.cells_max)
        rounds = 0
        while left > 0:
            share = left if left < 2 * share else share
            left -= share
            room = self.cells_max * (1 - left)
            held = [each.axes for each in evidence]
            small = [s for s in weights if within(held, s, ask, room)]
            sigma = sqrt(ask.variance(share * (1 - _CHOICE)))
            noise = {s: MEAN * sigma * prod(ask.sizes[a] for a in s) for s in small}
            before = model.tables(small)
            kept = {s: weights[s] for s in small}
            chosen = ask.furthest(before, share * _CHOICE, weights=kept, less=noise)
            evidence += measured(ask, [chosen], [share * (1 - _CHOICE)])
            model = fit(ask.sizes, evidence, total=total, start=model, rounds=_STEPS)
            rounds += 1
            learned = float(np.abs(model.table(chosen) - before[chosen]).sum())
            if learned <= noise[chosen]:
                share *= 4 if ask.gaussian else 2
            ask.done(float(1 - left) * 0.99, f"round {rounds}")
        model = fit(ask.sizes, evidence, total=total, start=model)
        return Fit(model, tuple(evidence), (f"{rounds} rounds",))

    def _share(self, sizes: Sizes) -> Fraction:
        """Of each of the first rounds."""
        return Fraction(1, max(self.rounds or _PER_COLUMN * len(sizes), len(sizes) + 1))


def overlaps(workload: TablesWorkload) -> dict[Axes, Fraction]:
    """For each subset of a set, how many columns it shares with all sets, by their weights."""
    found = {}
    for part in closure(workload.sets):
        if part:
            found[part] = sum((w * len(set(part) & set(s)) for s, w in workload), Fraction(0))
    return found


def within(held: Sequence[Axes], axes: Axes, ask: TablesAsk, room: Fraction) -> bool:
    """Whether a table is in the model already, or fits in."""
    if any(set(axes) <= set(each) for each in held):
        return True
    return cells_with(held, ask.sizes, axes) <= room
