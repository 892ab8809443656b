"""Every column by itself: what columns say about each other is lost.

What is measured: the table of each column of n values, once, for a share in proportion to n^(2/3):
under Gaussian noise this makes Σ n σ least, the expected error of all columns together.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import final

from noisegate.releases.residuals import Sizes
from noisegate.synthetic.asking import TablesAsk
from noisegate.synthetic.model import Evidence, fit
from noisegate.synthetic.recipes import Fit, TablesWorkload
from noisegate.synthetic.recipes.shared import measured, singles_of
from noisegate.synthetic.sharing import exact_shares


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Independent:
    """Measures the columns alone."""

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
        wanted = {axes: ask.sizes[axes[0]] ** (2 / 3) for axes in singles_of(ask.sizes)}
        shares = exact_shares(wanted, Fraction(1))
        evidence = (*measured(ask, list(shares), list(shares.values())), *known)
        return Fit(fit(ask.sizes, evidence, total=total), evidence, ("columns are independent",))
