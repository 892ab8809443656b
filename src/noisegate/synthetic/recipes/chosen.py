"""The tables of the workload, each once, with equal shares: for those who know what they want."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import final

import numpy as np

from noisegate.errors import SpecError
from noisegate.releases.residuals import Axes, Sizes
from noisegate.synthetic.asking import TablesAsk
from noisegate.synthetic.model import CELLS_MAX, Evidence, fit
from noisegate.synthetic.recipes import Fit, TablesWorkload


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """Measures every table of the workload. The model has at most ``cells_max`` cells."""

    cells_max: int = CELLS_MAX

    def require(self, sizes: Sizes, workload: TablesWorkload) -> None:  # noqa: ARG002
        """A model has room for each column at least."""
        if type(self.cells_max) is not int or self.cells_max < sum(sizes):
            raise SpecError(
                f"A model of {self.cells_max} cells cannot hold each column.",
                fix=f"Give cells_max as a whole number, at least {sum(sizes):,}.",
            )

    def build(
        self,
        ask: TablesAsk,
        workload: TablesWorkload,
        *,
        known: Sequence[Evidence] = (),
        total: float | None = None,
    ) -> Fit:
        """Ask once, and fit."""
        evidence = (*measured(ask, workload.sets), *known)
        ask.done(0.5, "fitting")
        model = fit(ask.sizes, evidence, total=total, cells_max=self.cells_max)
        words = [f"measured {len(workload.sets):,} tables with equal shares"]
        if not model.left_out:
            return Fit(model, evidence, tuple(words))
        words.append(f"{len(model.left_out):,} tables did not fit into the model")
        return Fit(model, evidence, tuple(words), targets=evidence)


def measured(ask: TablesAsk, sets: Sequence[Axes]) -> list[Evidence]:
    """Tables with equal shares of the whole price."""
    found = ask.tables(sets, [Fraction(1, len(sets))] * len(sets))
    return [
        Evidence(axes, np.asarray(noisy.values, np.float64), noisy.variance)
        for axes, noisy in zip(sets, found, strict=True)
    ]
