"""Every cell with noise of its own: best for single cells, and for few of them."""

from fractions import Fraction
from typing import ClassVar, final

import numpy as np

from noisegate.frozen import dataclass
from noisegate.releases.ask.asking import Ask, each_cell
from noisegate.releases.cells.estimate import Estimate, Predicted
from noisegate.releases.cells.workload import Floats, Ints, Workload


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Cells:
    """The plain mechanism: one noise for each cell [GRS09]."""

    name: ClassVar[str] = "cells"

    def require(self, shape: tuple[int, ...], workload: Workload) -> None:  # noqa: D102 - any cells
        pass

    def predict(self, ask: Ask, workload: Workload) -> Predicted:
        """A box of k cells has k times the variance of one."""
        each = ask.variance(each_cell(ask.shape), Fraction(1))
        sizes = np.prod(workload.highs - workload.lows + 1, axis=1)
        return Predicted(rms=float(np.sqrt(each * sizes.mean())))

    def build(self, ask: Ask, workload: Workload) -> Estimate:  # noqa: ARG002
        """One round."""
        (noisy,) = ask.sums([each_cell(ask.shape)], [Fraction(1)])

        def variance(lows: Ints, highs: Ints) -> Floats:
            sizes: Floats = np.prod(highs - lows + 1, axis=1) * noisy.variance
            return sizes

        return Estimate(noisy.values.astype(np.float64).reshape(ask.shape), variance)
