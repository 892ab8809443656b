"""How many frequencies of a series to keep: the choice of EFPA, by the exponential mechanism.

A cut keeps the frequencies below it. It costs the weighted length of what it drops, in grains, plus
a public number for the noise of what it keeps. Weights are whole, one for each octave of
frequencies: 1, 2-3, 4-7 and so on; frequency 0 is always kept. The grain says how finely lengths
are told apart: doubles hold so many grains at most, so cells that move far need a coarse one.

>>> flat = np.full(64, 50)
>>> cut = FourierCut.for_epsilon(99, cuts=(1, 8), noises=(0, 9000), weights=(99,) * 6)
>>> cut.sample(flat)
array([1])
"""

from fractions import Fraction
from math import ceil, isqrt, log2, sqrt
from typing import ClassVar, Final, final

import numpy as np
from numpy.typing import NDArray

from noisegate.errors import SpecError
from noisegate.exact import Number, fraction, positive
from noisegate.frozen import dataclass, replace
from noisegate.mechanisms import base
from noisegate.mechanisms.partitions.boxes import require_table
from noisegate.mechanisms.selection.scores import FACTOR_MAX
from noisegate.noise.bits import SYSTEM, Bits
from noisegate.noise.choice import Contest, choose_each
from noisegate.noise.chunks import Int64Array
from noisegate.privacy.distance import L1
from noisegate.privacy.event import ExponentialEvent
from noisegate.transforms.query import Query

CELLS_MAX: Final = 1 << 22
WEIGHT_MAX: Final = 1 << 30
GRAIN_MAX: Final = 1 << 90
ONE_STEP: Final = L1(1)
_NUMBER_MAX: Final = 1 << 40
_PRIME_MAX: Final = 1 << 11  # NumPy splits the transform by smaller prime factors; else by chirps
_CHIRPS: Final = 1 << 12  # how much these are off, in 2^-53ths of the length of the transform
_LENGTH: Final = 1 << 7  # and how much squares, sums, the root and the grain are, with at most
CUTS_MAX: Final = 128  # cuts: the running sum over these is rounded once for each


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class FourierCut(base.Repeatable[L1]):
    """Chooses cut o with odds e^(-factor · cost(o)) and releases it."""

    name: ClassVar[str] = "fourier-cut/3"
    takes: ClassVar[base.Takes] = base.Takes.L1
    factor: Fraction
    cuts: tuple[Fraction, ...]
    noises: tuple[Fraction, ...]
    weights: tuple[Fraction, ...]
    grain: Fraction = Fraction(1)

    def __post_init__(self) -> None:
        base.store_positive(self, "factor", most=FACTOR_MAX)
        for field, least, most in (
            ("cuts", 1, CELLS_MAX),
            ("noises", 0, _NUMBER_MAX),
            ("weights", 0, WEIGHT_MAX),
        ):
            base.store(self, field, _whole(getattr(self, field), field, least, most))
        base.store(self, "grain", *_whole((self.grain,), "grain", 1, GRAIN_MAX))
        rising = all(low < high for low, high in zip(self.cuts, self.cuts[1:], strict=False))
        if not rising or not self.cuts or len(self.cuts) != len(self.noises):
            raise SpecError(
                "The cuts do not match.", fix="Give ascending cuts, and a noise for each."
            )
        if len(self.cuts) > CUTS_MAX:
            raise SpecError(
                "There are too many cuts.", fix=f"Give at most {CUTS_MAX} of them.", about="cuts"
            )
        if not any(self.weights):
            raise SpecError("All weights are 0.", fix="Give one weight for each octave.")

    @classmethod
    def for_epsilon(
        cls,
        epsilon: Number,
        *,
        cuts: tuple[int, ...],
        noises: tuple[int, ...],
        weights: tuple[int, ...],
        grain: int = 1,
        moved: L1 = ONE_STEP,
    ) -> "FourierCut":
        """The sharpest choice whose event costs exactly ``epsilon`` for cells that move so far."""
        exact = [tuple(map(Fraction, each)) for each in (cuts, noises, weights)]
        one = cls(factor=Fraction(1), cuts=exact[0], noises=exact[1], weights=exact[2],
                  grain=fraction(grain, name="grain"))  # fmt: skip
        return replace(one, factor=positive(epsilon, name="epsilon") / one.apart(moved))

    def require(self, query: Query, place: int) -> None:  # noqa: ARG002 - there is one
        """The cells of one sum, as a row."""
        self.require_cells((require_table(query),))

    def event(self, sensitivity: L1, /) -> ExponentialEvent:
        """What one choice is.

        Claim: the log-ratios of neighbours lie in an interval of length ε = factor · D for
            D = `apart`; hence ε-differentially private.
        Adjacency: that of ``sensitivity``.
        Why: [MT07, Thm 6], with the score of [ACC12]. What a cut drops has the length
            f(x) = √(Σ m_j w_j² |X_j|²) over its frequencies j, with m_j ≤ 2. That is a seminorm, so
            it moves by at most Σ|v_i| f(e_i) if the cells move by v. A cell e_i has |X_j| = 1
            everywhere, and octave o has at most 2^(o-1) frequencies: f(e_i)² ≤ Σ 2^o w_o². Clamping
            moves no two cells further apart. Two log-ratios differ by factor times the move of the
            difference of two lengths, which is √2 and not 2 times that of one: of two cuts one
            drops all that the other does, so the slopes of their lengths, as vectors of weighted
            frequencies, are two directions at an angle of at most 90°, and apart by at most √2.
        Rounding: the Fourier transform is computed in floats, see `_lost` for how far it is off.
            A square has 4 roundings, a sum of up to 2^21 of them by pairs 33, the running sum one
            for each of at most 128 cuts; the root halves that, and it, the cells, the grain and the
            division have 4: below 87 of the 128 that are allowed for. Cells are clamped first, so
            that all of it is below ½ grain [each way], and the length is rounded down to whole
            grains: 2 grains more for each of two lengths, which D has in it, once for all cells.
        """
        return ExponentialEvent(epsilon=self.factor * self.apart(sensitivity))

    def reach(self, moved: L1) -> Fraction:
        """How far cells that move so far move the length of what is dropped, in whole grains.

        For each step it is the root, rounded up, and 2^-19 of the largest weight, for `_lost`.
        """
        return self._steps(1) * moved.value / self.grain + 2

    def apart(self, moved: L1) -> Fraction:
        """How far such cells move the difference of two such lengths, in whole grains: D."""
        return self._steps(2) * moved.value / self.grain + 4

    def _steps(self, times: int) -> int:
        squared = sum(int(w) ** 2 << octave for octave, w in enumerate(self.weights, start=1))
        return isqrt(times * squared) + times * (2 + (int(max(self.weights)) >> 19))

    def uses(self, exact: Int64Array, count: int, *, bits: Bits = SYSTEM) -> Int64Array:
        """Chosen cuts."""
        scores = -(self.tails(exact) + np.array([int(n) for n in self.noises], np.int64))
        starts = np.arange(count) * scores.size
        contest = Contest(np.tile(scores, count), self.factor)
        winners = choose_each(contest, starts, bits=bits) - starts
        return np.array([int(cut) for cut in self.cuts], np.int64)[winners, None]

    def tails(self, exact: Int64Array) -> Int64Array:
        """The weighted length of what each cut drops, in grains, rounded down."""
        self.require_cells(exact.shape)
        last = exact.size // 2
        waves = np.fft.rfft(base.clamped(exact, self.limit(exact.size)).astype(np.float64))
        squares = (waves.real**2 + waves.imag**2) * _twice(exact.size)
        places = np.arange(1, last + 1)
        octaves = np.frexp(places)[1] - 1  # 1 is in the first, 2 and 3 in the second
        squares[1:] *= np.array([int(w) for w in self.weights], np.float64)[octaves] ** 2
        ends = [min(int(cut), last + 1) for cut in self.cuts] + [last + 1]
        total, found = 0.0, np.zeros(len(self.cuts), np.int64)
        for place in range(len(self.cuts) - 1, -1, -1):
            total += float(squares[ends[place] : ends[place + 1]].sum())
            found[place] = int(sqrt(total) / float(self.grain))
        return found

    def require_cells(self, shape: tuple[int, ...]) -> None:
        """Refuse what is not a series, or too long for the weights."""
        if len(shape) != 1 or not 2 <= shape[0] <= CELLS_MAX:
            raise SpecError(
                "The cells are not a series.", fix=f"Give 2 to {CELLS_MAX} cells.", about="cells"
            )
        if (shape[0] // 2).bit_length() > len(self.weights):
            raise SpecError("Some octaves have no weight.", fix="Give a weight for each.")

    def limit(self, cells: int) -> int:
        """Where cells are clamped, so that no length is off by ½ grain."""
        bits = 52 - ceil(log2(_lost(cells) + _LENGTH))
        return min(base.INPUT_MAX, (int(self.grain) << bits) // (int(max(self.weights)) * cells))


def _lost(cells: int) -> float:
    """How far a transform of so many cells is off at most, in 2^-53ths of its length.

    Why: it has steps, one for each prime factor p, and their errors add up [Hig02, Thm 24.2].
        A step adds (p - 1) / 2 products for each part of a number, whose error is below (p/2 + 2)
        times the sum of their sizes [Hig02, §3.1], and that is √(p/2) times the length by Cauchy;
        sums before and a rotation after it are below 10. A chirp is two transforms of up to 2^24
        numbers, with a product between them that makes no number larger by more than 4; where NumPy
        takes one for smaller factors, it is off by less than such a step. The chirp itself is off
        too, but it is public: that makes another seminorm, longer by less than 2^-20 of the largest
        weight for each step of a cell, which `reach` has in it.
    """
    total, prime, left = 0.0, 2, cells
    while left > 1 and prime < _PRIME_MAX:
        while left % prime == 0:
            total += (prime / 2 + 12) * sqrt(prime)
            left //= prime
        prime += 1
    return total if left == 1 else total + _CHIRPS


def _twice(cells: int) -> NDArray[np.float64]:
    """Each frequency stands for itself and its mirror image, except the first and the middle."""
    found = np.full(cells // 2 + 1, 2.0)
    found[0] = 1.0
    if cells % 2 == 0:
        found[-1] = 1.0
    return found


def _whole(values: object, name: str, least: int, most: int) -> tuple[Fraction, ...]:
    if not isinstance(values, tuple):
        raise SpecError(f"{name} is not a tuple.", fix="Give a tuple of whole numbers.")
    exact = tuple(fraction(value, name=name) for value in values)
    if any(value.denominator != 1 or not least <= value <= most for value in exact):
        raise SpecError(f"{name} is out of range.", fix=f"Use whole numbers, {least} to {most}.")
    return exact
