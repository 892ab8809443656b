"""Every column by itself: what columns say about each other is lost.

What is measured: the table of each column of n values, once, for a share in proportion to
(w n)^(2/3), where w is its weight: under Gaussian noise this makes Σ w n σ least, the expected
error of all columns together.
"""

from fractions import Fraction
from typing import final

from noisegate.frozen import dataclass
from noisegate.releases.fit.residuals import Sizes
from noisegate.synthetic.asking import TablesAsk
from noisegate.synthetic.model.model import fit
from noisegate.synthetic.recipes import Fit, Known, Planned, TablesWorkload, Total
from noisegate.synthetic.recipes.shared import columns_shares, measured


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Independent:
    """Measures the columns alone."""

    def require(self, sizes: Sizes, workload: TablesWorkload) -> None:
        """Nothing to refuse."""

    def planned(  # noqa: D102 - see Synthesizer
        self,
        sizes: Sizes,
        workload: TablesWorkload,
        *,
        gaussian: bool,  # noqa: ARG002 - the same
    ) -> tuple[Planned, ...]:
        shares = columns_shares(sizes, workload, Fraction(1)).values()
        return (Planned("a column", min(shares), max(shares)),)

    def build(
        self, ask: TablesAsk, workload: TablesWorkload, *, known: Known = (), total: Total = None
    ) -> Fit:
        """Ask once, and fit."""
        shares = columns_shares(ask.sizes, workload, Fraction(1))
        evidence = (*measured(ask, list(shares), list(shares.values())), *known)
        return Fit(fit(ask.sizes, evidence, total=total), evidence, ("columns are independent",))
