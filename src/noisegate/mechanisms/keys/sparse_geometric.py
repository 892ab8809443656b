"""Geometric noise on all of up to 2**64 cells, in work proportional to the cells that are shown.

What leaves is a summary: the noisy cells at or above a threshold θ, or a sample of them. All cells
without rows have the same law, so how many of them are shown is binomial, which they are is a
uniform choice, and their values follow the tail of the noise; none of the others is ever looked at.

Sampling keeps a noisy value v ≥ θ with probability min(1, v / τ) and shows max(v, τ). That is: a
mark A, uniform on {1, …, τ}, and v is kept if v ≥ A. Over a cell without rows, A and v ≥ θ together
weigh α^v for v ≥ max(A, θ), so v = max(A, θ) + G with G geometric, and A weighs α^max(A, θ): θ
marks weigh α^θ each, and beyond, A = θ + 1 + R with R of ratio α below τ - θ, which is the
remainder of a geometric number. With τ = θ this is the plain filter.
"""

from abc import abstractmethod
from fractions import Fraction
from typing import ClassVar, Final, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from noisegate.accounting.tails import upper_tail
from noisegate.algebra.tally import Cells
from noisegate.errors import Bug, SpecError, Unsupported
from noisegate.exact import Number, Real, real, upper
from noisegate.frozen import dataclass
from noisegate.mechanisms import base
from noisegate.mechanisms.selection.scores import require_flag
from noisegate.noise.binomials import binomial
from noisegate.noise.bits import SYSTEM, Bits
from noisegate.noise.chunks import Int64Array, Places
from noisegate.noise.coins import bernoulli
from noisegate.noise.geometric import SCALE_MAX, SCALE_MIN, discrete_laplace, geometric
from noisegate.noise.law import Certified
from noisegate.noise.uniform import subset, uniform_below
from noisegate.planning.calibrate import geometric_scale
from noisegate.privacy.distance import L1
from noisegate.privacy.event import GeometricEvent
from noisegate.transforms.query import Query

Summary: TypeAlias = tuple[Places, Int64Array]

DOMAIN_MAX: Final = 1 << 64
MARK_MAX: Final = 1 << 40  # thresholds and τ
SHOWN_MAX: Final = 1 << 26  # expected cells without rows; more would be refused for memory's sake
_TRIALS: Final = 1 << 61  # coins in one binomial draw


class Summarised(base.OfCells[L1]):
    """Noise on all cells of a domain, of which a summary leaves."""

    __slots__ = ()
    takes: ClassVar[base.Takes] = base.Takes.L1
    domain: int

    def require(self, query: Query, place: int) -> None:  # noqa: ARG002 - there is one
        """As many numbered cells as the noise is for."""
        if not isinstance(query.tally, Cells):
            raise base.no_rule(query)
        if self.domain != query.tally.cells:
            raise Unsupported(
                "The noise was made for another number of cells.",
                fix="Use the number of cells of the table.",
                about="cells",
            )

    @abstractmethod
    def summary(self, cells: Places, counts: Int64Array, *, bits: Bits = SYSTEM) -> Summary:
        """Cells, in rising order, and their numbers. Given are the cells that hold any rows."""

    def sample(self, exact: Int64Array, *, bits: Bits = SYSTEM) -> Int64Array:
        """The summary of a listed domain, as a number for each cell, 0 where none is shown."""
        if exact.shape != (self.domain,):
            raise SpecError(
                "The cells are not those of the domain.", fix="Give one number per cell."
            )
        held = np.flatnonzero(exact)
        cells, values = self.summary(held.astype(np.uint64), exact[held], bits=bits)
        out = np.zeros(self.domain, np.int64)
        out[cells.astype(np.int64)] = values
        return out


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class SparseGeometric(Summarised):
    """Shows noisy cells v ≥ threshold, with probability min(1, v / tau) and as max(v, tau).

    With ``signed`` the same of |v|, with the sign of v: at threshold 1 sums are then unbiased.
    """

    name: ClassVar[str] = "sparse-geometric/1"
    scale: Fraction
    domain: int
    threshold: int
    tau: int
    signed: bool = False

    def __post_init__(self) -> None:
        base.store_positive(self, "scale", least=SCALE_MIN, most=SCALE_MAX)
        base.require_whole(self, "domain", least=1, most=DOMAIN_MAX)
        base.require_whole(self, "threshold", least=1, most=MARK_MAX)
        base.require_whole(self, "tau", least=self.threshold, most=MARK_MAX)
        require_flag(self, "signed")
        require_few(self.shown_chance, self.domain)

    @classmethod
    def for_epsilon(
        cls, epsilon: Number, *, sensitivity: L1, domain: int, threshold: int,
        tau: int | None = None, signed: bool = False,
    ) -> "SparseGeometric":  # fmt: skip
        """The least noise whose event costs exactly ``epsilon``; without tau, no sampling."""
        return cls(
            scale=geometric_scale(epsilon, sensitivity=sensitivity), domain=domain,
            threshold=threshold, tau=threshold if tau is None else tau, signed=signed,
        )  # fmt: skip

    def event(self, sensitivity: L1, /) -> GeometricEvent:
        """What one use is.

        Claim: (s / scale)-differentially private, as the geometric mechanism on all cells.
        Adjacency: that of ``sensitivity``, over all cells of the domain together.
        Why: what leaves has exactly the law of a summary of all noisy cells, which is
            post-processing [CPST12]; the same holds for the domain's cells without rows, whose law
            is derived above. Rounding: none.
        """
        return GeometricEvent(scale=self.scale, sensitivity=sensitivity)

    @property
    def shown_chance(self) -> Certified:
        """How likely a cell without rows is shown."""
        return shown_chance(self.scale, self.threshold, self.tau, signed=self.signed)

    def summary(self, cells: Places, counts: Int64Array, *, bits: Bits = SYSTEM) -> Summary:
        """See `Summarised`."""
        values = noisy_counts(cells, counts, self.domain, self.scale, bits)
        sizes = np.abs(values) if self.signed else values
        kept = sizes >= self.threshold
        if self.tau > self.threshold:
            places = np.flatnonzero(kept & (sizes < self.tau))
            kept[places] = uniform_below(self.tau, places.size, bits=bits) < sizes[places]
        shown = values[kept]
        if self.signed or self.tau > self.threshold:
            shown = np.sign(shown) * np.maximum(np.abs(shown), self.tau)
        others = free_cells(self.shown_chance, self.domain, cells, bits)
        _, tails = marked_tails(self.scale, self.threshold, self.tau, others.size, bits)
        tails = np.maximum(tails, self.tau)
        if self.signed:
            tails = np.where(bernoulli("1/2", others.size, bits=bits), tails, -tails)
        held = cells[kept]
        places = np.searchsorted(held, others)  # both rise: nothing tells which of them hold rows
        return np.insert(held, places, others), np.insert(shown, places, tails)


def shown_chance(scale: Fraction, threshold: int, tau: int, *, signed: bool) -> Certified:
    """How likely noise Z ≥ θ (or |Z|) is kept: with τ ≥ θ, E[min(1, Z / τ); Z ≥ θ].

    Claim: (θ α^θ + α^(θ+1) (1 - α^(τ-θ)) / (1 - α)) / (τ (1 + α)), twice that if signed. Why: the
        marks up to θ weigh α^θ each and those beyond α^A; see the top of this file.
    """

    def compute() -> Real:
        log = -real(1 / scale)
        beyond = log.exp() * (log * (tau - threshold)).expm1() / log.expm1()
        return upper_tail(scale, threshold) * (threshold + beyond) * (2 if signed else 1) / tau

    return Certified(("sparse", scale, threshold, tau, signed), compute)


def require_few(chance: Certified, domain: int) -> None:
    """Refuse a summary that would show too many cells without rows."""
    if upper(chance.compute) * domain > SHOWN_MAX:
        raise SpecError(
            f"More than {SHOWN_MAX:,} cells without rows would be shown.",
            fix="Use a higher threshold.",
        )


def threshold_for(scale: Fraction, *, domain: int, cells: Fraction) -> int:
    """The smallest θ at which at most ``cells`` cells without rows are expected. Rounding: up."""
    return base.smallest_whole(
        lambda theta: upper(lambda: upper_tail(scale, theta)) * domain <= cells, least=1
    )


def noisy_counts(
    cells: Places, counts: Int64Array, domain: int, scale: Fraction, bits: Bits
) -> Int64Array:
    """The counts of the cells that hold rows, plus noise."""
    values = base.clamped(counts)
    rising = bool(np.all(cells[1:] > cells[:-1])) and cells.dtype == np.uint64
    if cells.shape != values.shape or not rising or (cells.size and int(cells[-1]) >= domain):
        raise Bug("The cells are not ascending numbers of the domain.", fix="Report the source.")
    return base.noisy(values, discrete_laplace(scale, values.shape, bits=bits))


def free_cells(chance: Certified, domain: int, taken: NDArray[np.uint64], bits: Bits) -> Places:
    """Each cell that is not taken, with the given chance; in rising order.

    Why: their number is binomial, of which draws for parts add up. A place r among the free cells
        is r cells and the taken ones before it: those with fewer than r + 1 free cells before them.
    """
    free = domain - taken.size
    whole, rest = divmod(free, _TRIALS)
    count = int(binomial(_TRIALS, chance, whole, bits=bits).sum()) if whole else 0
    count += int(binomial(rest, chance, 1, bits=bits)[0])
    places = subset(free, count, bits=bits)
    free_before = taken - np.arange(taken.size, dtype=np.uint64)
    before = np.searchsorted(free_before, places, side="right")
    return places + before.astype(np.uint64)


def marked_tails(
    scale: Fraction, threshold: int, tau: int, count: int, bits: Bits
) -> tuple[Int64Array, Int64Array]:
    """Marks A in {1, …, τ} and noise V ≥ max(A, θ) of cells without rows that are kept."""
    few = min(threshold, tau)
    marks = 1 + uniform_below(few, count, bits=bits)
    starts = np.full(count, threshold, np.int64)
    if tau > threshold:

        def among_few() -> Real:
            log = -real(1 / scale)
            return 1 / (1 + log.exp() * (log * (tau - few)).expm1() / log.expm1() / few)

        coin = Certified(("mark", scale, few, tau), among_few)
        beyond = np.flatnonzero(~bernoulli(coin, count, bits=bits))
        marks[beyond] = few + 1 + geometric(scale, beyond.size, bits=bits) % (tau - few)
        starts[beyond] = marks[beyond]
    tails = np.minimum(starts + geometric(scale, count, bits=bits), base.INPUT_MAX)
    return marks, tails
