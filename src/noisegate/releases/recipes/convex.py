"""The best questions to ask for a workload under Gaussian noise, found by convex optimisation."""

from contextlib import suppress
from fractions import Fraction
from math import floor, log2, prod
from typing import ClassVar, Final, final

import numpy as np
from scipy.sparse import csr_array

from noisegate.errors import SpecError
from noisegate.frozen import dataclass
from noisegate.releases.ask.asking import Ask
from noisegate.releases.cells.estimate import Estimate, Predicted
from noisegate.releases.cells.workload import Floats, Ints, Workload, ranges
from noisegate.releases.recipes import require_same
from noisegate.transforms.strategy import SUM_MAX, Matrix

CELLS_MAX: Final = 1024
_COARSE: Final = 64  # beyond this, the multipliers are found on a coarser table
_ROUNDS: Final = 12
_BITS: Final = (12, 6)  # of the largest coefficient: 12 cost 0.02 % of the error, 6 cost 2 %
_UNITS: Final = 1 << 24  # that one cell holds without being clamped
_AT_ONCE: Final = 1 << 22


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Convex:
    """Optimal matrix mechanism for Gaussian noise [LMHMR15], by its fixed point [DMRST22].

    Minimise tr(V X⁻¹) over X with diagonal 1, where V = WᵀW for the workload W, and ask the rows
    of √X. At the optimum X = Λ^(-½) (Λ^½ V Λ^½)^½ Λ^(-½), with multipliers Λ = diag(λ) > 0.
    """

    name: ClassVar[str] = "convex"

    def require(self, shape: tuple[int, ...], workload: Workload) -> None:
        """Not more cells than a dense matrix can have."""
        require_same(shape, workload, cells=CELLS_MAX)

    def predict(self, ask: Ask, workload: Workload) -> Predicted:
        """The questions are linear and independent."""
        _require_gaussian(ask)
        found = _Solved(ask, workload)
        variances = found.spread(workload) * ask.variance(found.block, Fraction(1))
        return Predicted(rms=float(np.sqrt(variances.mean())))

    def build(self, ask: Ask, workload: Workload) -> Estimate:
        """One round, one linear system."""
        _require_gaussian(ask)
        found = _Solved(ask, workload)
        ask.done(0.7, "measuring")
        (noisy,) = ask.sums([found.block], [Fraction(1)])
        cells = found.inverse @ noisy.values.astype(np.float64)

        def variance(lows: Ints, highs: Ints) -> Floats:
            return found.spread(ranges(ask.shape, lows, highs)) * noisy.variance

        return Estimate(cells.reshape(ask.shape), variance, ("questions found by optimisation",))


@final
class _Solved:
    """The questions as whole numbers, and their inverse."""

    def __init__(self, ask: Ask, workload: Workload) -> None:
        ask.done(0.0, "optimising")
        whole = _rounded(ask, strategy(gram(workload)))
        self.block = Matrix(whole)
        self.inverse = np.linalg.inv(whole.toarray().astype(np.float64))

    def spread(self, workload: Workload) -> Floats:
        """For each question of a workload, its variance where measured numbers have variance 1."""
        found = np.empty(workload.size)
        step = max(1, _AT_ONCE // self.inverse.shape[0])
        for start in range(0, workload.size, step):
            rows = _boxes(workload, slice(start, start + step)) @ self.inverse
            found[start : start + step] = np.einsum("ij,ij->i", rows, rows)
        return found


def _rounded(ask: Ask, root: Floats) -> csr_array:
    """Questions as whole numbers: their noise can be drawn, and 64 bits hold their sums.

    Cells of weighted rows are counted in fine grains already, and coefficients come on top.
    """
    plain = root / np.abs(root).max()
    held = SUM_MAX / (float(ask.moved) * _UNITS * np.abs(plain).sum(axis=1).max())
    most, fewest = _BITS
    for bits in range(min(most, floor(log2(held))), fewest - 1, -1):
        found = csr_array(np.rint(plain * (1 << bits)).astype(np.int64))
        with suppress(SpecError):  # a variance beyond what can be drawn
            ask.variance(Matrix(found), Fraction(1))
            return found
    raise SpecError(
        "At this price and with these contribution bounds, the numbers are too large for 'convex'.",
        fix="Use a larger epsilon, a smaller rows_per_unit, or method 'tree'.",
    )


def gram(workload: Workload) -> Floats:
    """WᵀW."""
    cells = prod(workload.shape)
    found = np.zeros((cells, cells))
    step = max(1, _AT_ONCE // cells)
    for start in range(0, workload.size, step):
        rows = _boxes(workload, slice(start, start + step))
        found += rows.T @ rows
    return found


def strategy(squared: Floats) -> Floats:
    """The triangular matrix whose rows to ask, for V = WᵀW: all its columns have length 1."""
    cells = squared.shape[0]
    # A little of every cell, so that all can be told apart.
    known = squared + np.eye(cells) * (1e-6 * np.trace(squared) / cells + 1e-12)
    step = -(-cells // _COARSE)
    if step > 1:  # λ is smooth in the cells, and √λ needs no more than that: see `_unit`
        edges = np.arange(0, cells, step)
        coarse = np.add.reduceat(np.add.reduceat(known, edges, axis=0), edges, axis=1)
        middles = (edges + np.minimum(edges + step, cells) - 1) / 2
        multipliers = np.interp(np.arange(cells), middles, _multipliers(coarse))
    else:
        multipliers = _multipliers(known)
    return np.linalg.cholesky(_unit(known, multipliers)[0]).T.astype(np.float64)


def _multipliers(squared: Floats) -> Floats:
    """λ at the fixed point λ = diag((Λ^½ V Λ^½)^½), where all questions move a cell alike."""
    found = np.sqrt(np.diag(squared))
    for _ in range(_ROUNDS):
        diagonal = _unit(squared, found)[1]
        found = diagonal / diagonal.sum()
    return found


def _unit(squared: Floats, multipliers: Floats) -> tuple[Floats, Floats]:
    """X for these multipliers, scaled to diagonal 1, and diag((Λ^½ V Λ^½)^½)."""
    scale = np.sqrt(multipliers)
    values, vectors = np.linalg.eigh(squared * np.outer(scale, scale))
    middle = (vectors * np.sqrt(np.maximum(values, values[-1] * 1e-14))) @ vectors.T
    diagonal = np.diag(middle).copy()
    flat = 1 / np.sqrt(diagonal)
    return middle * np.outer(flat, flat), diagonal


def _boxes(workload: Workload, part: slice) -> Floats:
    """Some of the questions as rows of 0 and 1."""
    lows, highs = workload.lows[part], workload.highs[part]
    rows = np.ones((lows.shape[0], 1))
    for axis, n in enumerate(workload.shape):
        places = np.arange(n)
        inside = (places >= lows[:, axis : axis + 1]) & (places <= highs[:, axis : axis + 1])
        rows = (rows[:, :, None] * inside[:, None, :]).reshape(rows.shape[0], -1)
    return rows


def _require_gaussian(ask: Ask) -> None:
    if not ask.gaussian:
        raise SpecError(
            "'convex' needs Gaussian noise.",
            fix="Use an account in zCDP, or method 'tree'.",
            about="noise",
        )
