"""What a recipe makes of its noisy numbers, and the free steps that all of them share.

`finish` is the last, free step of a release: no negative numbers, whole ones, and the total kept.

Both steps move towards tables that could be. Numbers are mended inside halves of halves, which does
not shift sums of many cells: whole empty regions become 0. For single cells, those that are left
are moved to the nearest such table in squares; for ranges they stay, and are rounded along the
table: a run of cells is never off by 1 for it.

How far sums of noise reach: bounds that hold whatever the sum is made of.

>>> [round(tail_factor(failure, gaussian=False), 2) for failure in (0.1, 0.05, 0.01)]
[1.72, 2.16, 3.26]
"""

from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from math import erfc, exp, log, pi, sqrt
from statistics import NormalDist
from typing import TYPE_CHECKING, Final, NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from noisegate.desk.terms.price import Price, variance_of
from noisegate.frozen import dataclass
from noisegate.mechanisms.additive.geometric import Geometric
from noisegate.releases.cells.workload import Floats, Ints, Workload

if TYPE_CHECKING:
    from noisegate.releases.cells.spatial import Side, SpatialTree


GOLDEN: Final = 0.6180339887498949  # its multiples lie evenly in [0, 1), however many there are


class Guess(NamedTuple):
    """Where exact sums are by a model: around ``sums``, off by ``spread`` (root mean square).

    ``seen`` is how many numbers the spread is known from.
    """

    sums: Floats
    spread: Floats
    seen: int


class Coefficients(NamedTuple):
    """The noisy numbers of a transform themselves, in grains, with the variance of their noise.

    ``columns`` say which each is: names that hold the number of an axis stand for that axis.
    """

    columns: dict[str, list[int | str | None]]
    values: Floats
    variance: Floats
    words: str


@final
@dataclass(frozen=True, slots=True, eq=False)
class Estimate:
    """Cells of the release before rounding, and how far the sum over a box may be off, if known.

    ``variance(lows, highs)`` is that of the noise, for arrays of boxes as in `Workload`; infinite
    where more than noise counts. ``between`` are noisy sums below and above the exact ones, where
    that is all that is known. ``guess`` is a model of the recipe's own; without one, that of
    `plausible` is for what the noise does not tell. ``words`` say what was done. ``tree`` is the
    tree of boxes that the cells come from, where there is one. ``mend(grain)`` is the recipe's own
    table of whole numbers, none negative, where a cell's 1 is ``grain``; where it is None the cells
    are mended as for any recipe. ``coefficients`` are what was measured, where the cells are
    transformed.
    """

    cells: Floats
    variance: Callable[[Ints, Ints], Floats] | None = None
    words: tuple[str, ...] = ()
    tree: "SpatialTree | None" = None
    mend: Callable[[float], Ints] | None = None
    between: Callable[[Ints, Ints], "tuple[Side, Side]"] | None = None
    guess: Callable[[Ints, Ints], Guess] | None = None
    coefficients: Callable[[], Coefficients] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Predicted:
    """How far an answer of the workload will be off, before paying.

    ``rms`` is the root mean square over all questions, before numbers are mended; None where it
    depends on the rows, and then ``words`` say on what, ``most`` is about what hardly any rows
    exceed, and ``noise`` is the part that does not depend on them; each None where nothing is
    known. ``share`` is what rows may add at most as a part of their total. Where a release knows
    its error from a few numbers alone, these are ``seen``. ``levels`` are the errors of sums from
    single keys to all, where these have a hierarchy.
    """

    rms: float | None
    words: str = ""
    most: float | None = None
    noise: float | None = None
    share: float | None = None
    seen: int | None = None
    levels: tuple[float, ...] = ()

    @property
    def numbers(self) -> dict[str, float | None]:
        """The errors in grains, by name."""
        return {"rms": self.rms, "most": self.most, "noise": self.noise}


def simplex(values: Floats, total: float) -> Floats:
    """The nearest vector (in squares) without negative numbers that adds up to ``total``.

    Never further from any such vector than ``values`` is: it is a projection on a convex set.

    >>> simplex(np.array([3.0, 1.0, -2.0]), 3.0).tolist()
    [2.5, 0.5, 0.0]
    """
    if total <= 0:
        return np.zeros_like(values)
    order = np.sort(values, axis=None)[::-1]
    above = np.cumsum(order) - total
    counts = np.arange(1, order.size + 1)
    kept = np.flatnonzero(order * counts > above)[-1]
    projected: Floats = np.maximum(values - above[kept] / counts[kept], 0)
    return projected


def simplices(rows: Floats, totals: Floats) -> Floats:
    """`simplex` of each row, with its own total; -∞ stands for what is not there."""
    order = -np.sort(-rows, axis=1)
    above = np.cumsum(order, axis=1) - totals[:, None]
    ranks = np.arange(1, rows.shape[1] + 1)
    with np.errstate(invalid="ignore"):
        inside = order * ranks > above
    last = np.maximum(rows.shape[1] - 1 - np.argmax(inside[:, ::-1], axis=1), 0)
    cut = np.where(totals > 0, above[np.arange(last.size), last] / ranks[last], 0.0)
    return np.where(totals[:, None] > 0, np.maximum(rows - cut[:, None], 0.0), 0.0)


def whole(values: Floats, total: int | None = None) -> Ints:
    """Whole numbers from non-negative ones, each less than 1 away, with the given total.

    The total is by default the nearest whole number to the sum. Largest remainders are rounded up;
    of equal ones those that lie spread over the table, so that no corner gets all.

    >>> whole(np.array([0.4, 0.4, 2.3])).tolist()
    [1, 0, 2]
    >>> whole(np.full(8, 0.25)).tolist()
    [1, 0, 0, 0, 0, 1, 0, 0]
    """
    floor = np.floor(values)
    found, rest = floor.astype(np.int64), np.round(values - floor, 9).reshape(-1)
    missing = (round(float(values.sum())) if total is None else total) - int(floor.sum())
    if missing > 0:
        spread = np.arange(rest.size) * GOLDEN % 1
        found.flat[np.lexsort((spread, -rest))[:missing]] += 1
    return found


def finish(cells: Floats, workload: Workload, *, is_whole: bool, signed: bool) -> Ints | Floats:
    """The numbers that are released, in the unit of the question."""
    single = bool(np.array_equal(workload.lows, workload.highs))
    table = np.asarray(cells, np.float64)
    if not signed:
        total = max(0.0, float(table.sum()))
        if is_whole:
            total = float(round(total))
        mended = halved(table, total)
        table = _nearest_of(table, mended > 0, total) if single else mended
    if not is_whole:
        return table
    return whole(table) if single and not signed else rounded(table)


def _nearest_of(cells: Floats, kept: NDArray[np.bool_], total: float) -> Floats:
    """The nearest table in squares without negative numbers, where only some cells hold any."""
    found = np.zeros_like(cells)
    if kept.any():
        found[kept] = simplex(cells[kept], total)
    return found


def halved(cells: Floats, total: float) -> Floats:
    """No negative numbers: of the halves of every block, a negative one gives way to the other.

    What a block holds stays what it was wherever that could be, and so do sums over ranges.
    """
    if total <= 0:
        return np.zeros_like(cells)
    levels, reals, axes = [_padded(cells)], [_padded(np.ones_like(cells))], []
    while levels[-1].size > 1:
        axis = int(np.argmax(levels[-1].shape))
        axes.append(axis)
        for each in (levels, reals):
            each.append(_halves(each[-1], axis).sum(axis=axis + 1))
    mended = np.full_like(levels[-1], total)
    for below, real, axis in zip(levels[-2::-1], reals[-2::-1], reversed(axes), strict=True):
        first, second = np.moveaxis(_halves(below, axis), axis + 1, 0)
        left = np.clip(first + (mended - first - second) / 2, 0, mended)
        left = np.where(np.take(_halves(real, axis), 1, axis=axis + 1) > 0, left, mended)
        mended = np.stack([left, mended - left], axis=axis + 1).reshape(below.shape)
    return mended[tuple(slice(0, size) for size in cells.shape)]


def rounded(cells: Floats) -> Ints:
    """Whole numbers whose running totals are the nearest to the given ones."""
    totals = np.rint(np.cumsum(cells, axis=None))
    return np.diff(totals, prepend=0).astype(np.int64).reshape(cells.shape)


def _padded(cells: Floats) -> Floats:
    """To powers of two, with zeros at the ends."""
    return np.pad(cells, [(0, (1 << (size - 1).bit_length()) - size) for size in cells.shape])


def _halves(cells: Floats, axis: int) -> Floats:
    """Pairs of neighbours along an axis, as an axis of their own behind it."""
    shape = cells.shape
    return cells.reshape(*shape[:axis], shape[axis] // 2, 2, *shape[axis + 1 :])


_STEPS: Final = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
_ROUNDED: Final = 1 + 1e-9
_TINY: Final = 1e-300


def laplace_tail(t: float) -> float:
    """A bound on Pr[|S| > t σ] for any sum S of independent Laplace and normal noise, var(S) = σ².

    Claim: Pr[|S| > t σ] ≤ e^(-√2 t) F(t²/3) + e^(-t²/3) g'(t²/3), where F is the inverse Gaussian
        distribution function with mean t/√2 and shape t², and g'(v) = t φ(t/√v) v^(-3/2).
    Why: Laplace noise of variance p is √(p E) Z with E exponential of mean 1 and Z normal. So
        S = σ √V Z, V = p₀ + Σ p_i E_i, p₀ + Σ p_i = 1, and Pr[|S| > t σ] = E g(V), where
        g(v) = 2 Φ(-t/√v). Let h be g up to v = t²/3, where g turns from convex to concave, and its
        tangent from there on: h is convex and nowhere below g. So E g(V) ≤ E h(V) ≤ p₀ h(1) +
        Σ p_i E h(E_i) ≤ E h(E), by Jensen's inequality, twice. The last is the claim, by parts:
        g'(v) e^(-v) is e^(-√2 t) times an inverse Gaussian density. Rounding: doubles, raised by
        10⁻⁹, which is far above what they lose.
    """
    v = t * t / 3
    slope = exp(-1.5) / sqrt(2 * pi) * 3 * sqrt(3) / (t * t)
    below, above = (sqrt(3) * (sqrt(2) * t / 3 + end) for end in (-1, 1))
    inner = _normal(below) + exp(sqrt(8) * t) * _normal(-above)
    return min(1.0, (exp(-sqrt(2) * t) * inner + exp(-v) * slope) * _ROUNDED)


@lru_cache(maxsize=256)
def tail_factor(failure: float, *, gaussian: bool) -> float:
    """How many standard deviations a sum of draws exceeds with at most that probability.

    Gaussian: that of the normal law. Else the least t with `laplace_tail` (t) ≤ failure, which also
    holds for sums of Laplace noise with normal noise, however they are weighed.
    """
    if gaussian:
        return -NormalDist().inv_cdf(failure / 2)
    low, high = 0.0, sqrt(2) * log(2 / failure)
    while high - low > 1e-9:  # the bound falls
        middle = (low + high) / 2
        low, high = (low, middle) if laplace_tail(middle) <= failure else (middle, high)
    return high


def reach(variance: Floats, failure: float, price: Price, moved: int) -> Floats:
    """How far sums of the draws of a recipe reach, given their variances.

    Claim: each is exceeded with at most that probability. Why: a two-sided geometric draw Z has a
        Laplace one L = Z + W, where Z = ⌊X⌋ - ⌊Y⌋ for X, Y exponential and L = X - Y: the parts
        behind the point do not depend on the whole ones, and W, their difference, is symmetric and
        log-concave with variance at most 1/6. A sum S = Σ w Z has S + Σ w W, a sum of Laplace
        noise; T = Σ w W is symmetric, unimodal and of variance τ² ≤ Σ w² / 6, and no draw has less
        variance v than one for the whole price, so τ² ≤ var(S) / (6 v). As T does not depend on S,
        Pr[|S| > r + k τ] Pr[T ≥ -k τ] ≤ Pr[|S + T| > r], and Pr[T < -k τ] is at most half of what
        Gauss' inequality says. The best of several k is taken, or Chebyshev's inequality, where
        noise is so little that W would be most of it. Gaussian draws are as a normal law, which for
        one discrete draw of variance 1 or more is off by less than 10⁻⁸; for sums of several that
        is not proven. Rounding: doubles.
    """
    deviation = np.sqrt(variance)
    if price.gaussian:
        return tail_factor(failure, gaussian=True) * deviation
    scale = max(Fraction(moved) / price.amount, Geometric.LEAST)
    least = variance_of(Geometric(scale=scale))
    part = 1 / sqrt(6 * max(least, _TINY))
    best = min(
        tail_factor(failure * (1 - _beyond(k)), gaussian=False) * sqrt(1 + part**2) + k * part
        for k in _STEPS
    )
    return min(best, 1 / sqrt(failure)) * deviation


def _normal(x: float) -> float:
    """Φ(x), also where it is tiny."""
    return erfc(-x / sqrt(2)) / 2


def _beyond(k: float) -> float:
    """Pr[T > k τ] at most, for T symmetric and unimodal with variance τ²: half of Gauss' bound."""
    return 2 / (9 * k * k) if k * k > 4 / 3 else (1 - k / sqrt(3)) / 2
