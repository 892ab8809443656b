"""Every column by itself: what columns say about each other is lost."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from noisegate.releases.residuals import Sizes
from noisegate.synthetic.asking import TablesAsk
from noisegate.synthetic.model import Evidence, fit
from noisegate.synthetic.recipes import Fit, TablesWorkload
from noisegate.synthetic.recipes.chosen import measured


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Independent:
    """Measures the columns, each with an equal share."""

    def require(self, sizes: Sizes, workload: TablesWorkload) -> None:
        """Nothing to refuse."""

    def build(
        self,
        ask: TablesAsk,
        workload: TablesWorkload,  # noqa: ARG002 - columns alone
        *,
        known: Sequence[Evidence] = (),
        total: float | None = None,
    ) -> Fit:
        """Ask once, and fit."""
        evidence = (*measured(ask, [(axis,) for axis in range(len(ask.sizes))]), *known)
        return Fit(fit(ask.sizes, evidence, total=total), evidence, ("columns are independent",))
