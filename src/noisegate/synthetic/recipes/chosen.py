"""The tables of the workload, for those who know what they want.

What is measured: these tables and their marginals, for shares that make the expected squared error
of all their cells least [XHZK23]; tables with few cells count as much as those with many, but for
their weights. Every table is off by its noise, or less: the model is nearer to what all of them say
together.
"""

from math import prod
from typing import final

from noisegate.frozen import dataclass
from noisegate.releases.fit.allocation import Design, plain_design
from noisegate.releases.fit.residuals import Sizes
from noisegate.synthetic.asking import TablesAsk
from noisegate.synthetic.model.model import CELLS_MAX, fit
from noisegate.synthetic.recipes import Fit, Known, Planned, TablesWorkload, Total
from noisegate.synthetic.recipes.shared import Modelled, measured


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen(Modelled):
    """Measures every table of the workload. The model has at most ``cells_max`` cells."""

    cells_max: int = CELLS_MAX

    def planned(  # noqa: D102 - see Synthesizer
        self, sizes: Sizes, workload: TablesWorkload, *, gaussian: bool
    ) -> tuple[Planned, ...]:
        shares = _plan(sizes, workload, gaussian=gaussian).shares
        return (Planned("a table", min(shares), max(shares)),)

    def build(
        self, ask: TablesAsk, workload: TablesWorkload, *, known: Known = (), total: Total = None
    ) -> Fit:
        """Ask once, and fit."""
        plan = _plan(ask.sizes, workload, gaussian=ask.gaussian)
        evidence = (*measured(ask, [q.kept for q in plan.questions], plan.shares), *known)
        ask.done(0.5, "fitting")
        model = fit(ask.sizes, evidence, total=total, cells_max=self.cells_max)
        words = [f"measured {len(plan.shares):,} tables"]
        if not model.left_out:
            return Fit(model, evidence, tuple(words))
        words.append(f"{len(model.left_out):,} tables did not fit into the model")
        return Fit(model, evidence, tuple(words), targets=evidence)


def _plan(sizes: Sizes, workload: TablesWorkload, *, gaussian: bool) -> Design:
    weights = [float(weight) / prod(sizes[a] for a in axes) for axes, weight in workload]
    return plain_design(sizes, workload.sets, weights, gaussian=gaussian)
