"""The tables of the workload, for those who know what they want.

What is measured: these tables and their marginals, for shares that make the expected squared error
of all their cells least [XHZK23]; tables with few cells count as much as those with many, but for
their weights. Every table is off by its noise, or less: the model is nearer to what all of them say
together.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import final

from noisegate.releases.allocation import plain_design
from noisegate.releases.residuals import Sizes
from noisegate.synthetic.asking import TablesAsk
from noisegate.synthetic.model import CELLS_MAX, Evidence, fit
from noisegate.synthetic.recipes import Fit, TablesWorkload
from noisegate.synthetic.recipes.shared import measured, require_cells


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """Measures every table of the workload. The model has at most ``cells_max`` cells."""

    cells_max: int = CELLS_MAX

    def require(self, sizes: Sizes, workload: TablesWorkload) -> None:  # noqa: ARG002 - any sets
        """A model has room for each column at least."""
        require_cells(self.cells_max, sizes)

    def build(
        self,
        ask: TablesAsk,
        workload: TablesWorkload,
        *,
        known: Sequence[Evidence] = (),
        total: float | None = None,
    ) -> Fit:
        """Ask once, and fit."""
        weights = [float(w) / prod(ask.sizes[a] for a in axes) for axes, w in workload]
        plan = plain_design(ask.sizes, workload.sets, weights, gaussian=ask.gaussian)
        evidence = (*measured(ask, [q.kept for q in plan.questions], plan.shares), *known)
        ask.done(0.5, "fitting")
        model = fit(ask.sizes, evidence, total=total, cells_max=self.cells_max)
        words = [f"measured {len(plan.shares):,} tables"]
        if not model.left_out:
            return Fit(model, evidence, tuple(words))
        words.append(f"{len(model.left_out):,} tables did not fit into the model")
        return Fit(model, evidence, tuple(words), targets=evidence)
