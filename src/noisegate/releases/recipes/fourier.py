"""The low frequencies of a series, as many as pay: best for smooth and periodic series.

How far a sum is off has two parts. The noise of the waves that were measured is known. Waves that
were left out are taken to be as large as the last octave that was measured, in any phase: a series
that is rougher than that, such as one with a fine rhythm, can be further off. Where their number
was chosen privately, they are no larger than that choice allows.
"""

from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import partial
from math import floor, inf, log, log2, sqrt
from typing import ClassVar, Final, final

import numpy as np
from scipy.sparse import csr_array

from noisegate.errors import SpecError
from noisegate.exact import fraction
from noisegate.frozen import dataclass, replace
from noisegate.mechanisms.partitions.fourier_cut import WEIGHT_MAX, FourierCut
from noisegate.privacy.distance import L1
from noisegate.releases.ask.asking import Ask, Noisy, each_cell
from noisegate.releases.ask.shares import Law, exact_shares, separate
from noisegate.releases.cells.estimate import Coefficients, Estimate, Guess, Predicted
from noisegate.releases.cells.workload import Floats, Ints, Workload
from noisegate.releases.recipes import Exact, require_parts, require_same
from noisegate.transforms.strategy import Matrix

CELLS_MAX: Final = 1 << 20
ENTRIES_MAX: Final = 1 << 23  # of the matrices of all frequencies together
_BITS: Final = 16  # waves are rounded to whole 2^-16ths, or coarser ones
_BITS_LEAST: Final = 4  # where noise could not be drawn otherwise, at low prices of capped units:
_DRAWN_MAX: Final = 2.0**38  # no scale, and no deviation, is larger
_STEEP: Final = 1 << 10  # how many grains of a score one unit is: rounding costs 2 of them
_FINE: Final = 1 << 28  # how many weights a step of one cell is, so that small ones are told apart
_LOOKED_AT: Final = 256
_REFINEMENTS: Final = 3
_FAILURE: Final = 1e-3  # how often a choice may be worse than it is taken to be
_DEAR: Final = 30.0  # what costs more, in units of 1 / factor, is not chosen
_DEARER: Final = 1 << 10  # steps up to there
_SURE: Final = 1 << 10  # what is proven counts as seen so often


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Fourier(Exact):
    """EFPA [ACC12]: a privately chosen number of frequencies, measured as whole-number waves.

    ``choice`` is the share of the price for that number; ``frequencies`` fixes it instead. Octaves
    of frequencies have noise of their own, as much as the workload minds.
    """

    name: ClassVar[str] = "fourier"
    choice: Fraction = Fraction(1, 5)
    frequencies: int | None = None

    def require(self, shape: tuple[int, ...], workload: Workload) -> None:
        """A series of not too many cells."""
        require_same(shape, workload, cells=CELLS_MAX, axes=1)
        if shape[0] < 2:
            raise SpecError("There is one cell.", fix="Group by more, or use method 'cells'.")
        require_parts(self.choice)
        most = _most(shape[0])
        if self.frequencies is not None and not 1 <= self.frequencies <= most:
            raise SpecError(f"frequencies is {self.frequencies}.", fix=f"Use 1 to {most}.")

    def predict(self, ask: Ask, workload: Workload) -> Predicted:
        """The noise of frequencies that are given; else what choosing them allows."""
        waves = _Waves(ask.shape[0], workload)
        if self.frequencies is None:
            cut = waves.choice(ask, 1 - self.choice)
            least, most = min(cut.noises) / cut.scale, cut.expected(Law.of(ask, self.choice))
            words = "it is smaller the smoother the series is"
            return Predicted(rms=None, words=words, most=most, noise=least)
        bits = waves.bits(ask, self.frequencies, Fraction(1))
        blocks, costs, shares = waves.plan(ask, self.frequencies, bits)
        each = zip(blocks, shares, costs, strict=True)
        rms = sqrt(sum(ask.variance(block, part) / 4**bits * cost for block, part, cost in each))
        if self.frequencies == ask.shape[0] // 2 + 1:
            return Predicted(rms=rms)
        return Predicted(rms=None, words="the rest is what higher frequencies add", noise=rms)

    def build(self, ask: Ask, workload: Workload) -> Estimate:
        """Two rounds: how many frequencies, and their waves; or one if the number is given."""
        waves = _Waves(ask.shape[0], workload)
        kept, rest, dropped = self.frequencies, Fraction(1), inf
        if kept is None:
            rest -= self.choice
            ask.done(0.1, "choosing how many frequencies to keep")
            cut = waves.choice(ask, rest)
            (chosen,) = ask.choose(cut, 1 - rest)
            kept = int(chosen)
            dropped = cut.dropped(kept, Law.of(ask, 1 - rest))
        if kept > waves.most:
            ask.done(0.5, "measuring every cell")
            (noisy,) = ask.sums([each_cell(ask.shape)], [rest])
            cells = noisy.values.astype(np.float64)
            spread = np.full(cells.size, noisy.variance)
            told = Coefficients(
                {"cell": list(range(cells.size))},
                cells,
                spread,
                "Cells were measured, and no wave.",
            )
            return Estimate(cells, lambda low, high: _lengths(low, high) * noisy.variance,
                            ("every cell, unchanged",), coefficients=lambda: told)  # fmt: skip
        bits = waves.bits(ask, kept, rest)
        blocks, _, shares = waves.plan(ask, kept, bits)
        ask.done(0.5, "measuring")
        answers = ask.sums(blocks, [share * rest for share in shares])
        found = rebuild(blocks, [answer.values for answer in answers], waves.cells, bits)
        error = _Error.of(waves, answers, dropped, bits)
        words = (f"{kept} of {waves.cells // 2 + 1} frequencies",)
        known = partial(_coefficients, answers, bits)
        if kept == waves.cells // 2 + 1:
            return Estimate(found, error.noise, words, coefficients=known)
        return Estimate(found, words=words, guess=error.around(found), coefficients=known)


@final
class _Waves:
    """What a workload minds: the mean square of each question's part at each frequency."""

    def __init__(self, cells: int, workload: Workload) -> None:
        self.cells, self.most = cells, _most(cells)
        chosen = np.linspace(0, workload.size - 1, min(_LOOKED_AT, workload.size)).astype(np.int64)
        lengths = (workload.highs - workload.lows)[chosen, 0] + 1.0
        self.lengths = lengths
        octaves = (cells // 2).bit_length()
        self.starts = [0, *(1 << octave for octave in range(octaves)), cells // 2 + 1]
        self.minded = [float((lengths**2).mean())]
        for low, high in zip(self.starts[1:], self.starts[2:], strict=False):
            places = np.unique(np.linspace(low, high - 1, 32).astype(np.int64))
            angles = np.pi * places / cells
            self.minded.append(
                float(((np.sin(np.outer(lengths, angles)) / np.sin(angles)) ** 2).mean())
            )

    def choice(self, ask: Ask, share: Fraction) -> "_Cut":
        """The candidates, their noise, and the weights of what they drop, in whole numbers."""
        law, direct = Law.of(ask, share), self.cells // 2 + 1
        cuts = [cut for cut in _steps(direct) if cut <= self.most and cut < direct]
        one = law.weight(1.0) ** -0.5
        cuts = [cut for cut in cuts if self._bits(one, cut, gaussian=law.gaussian) >= _BITS_LEAST]
        if not cuts:
            raise _too_low()
        noises = [self._noise(law, cut) for cut in cuts]
        cuts.append(direct + (self.most == direct))
        noises.append(sqrt(self.lengths.mean() / law.weight(1.0)))
        weights = [sqrt(minded) / self.cells for minded in self.minded[1:]]
        step = sqrt(sum(w * w * 2**octave for octave, w in enumerate(weights, start=1)))
        grain = max(1, round(ask.moved * _FINE / _STEEP))
        whole = tuple(min(WEIGHT_MAX, round(w * _FINE / step)) for w in weights)
        scale = _FINE / step / grain
        whole_noises = tuple(min(1 << 40, round(n * scale)) for n in noises)
        return _Cut(tuple(cuts), whole_noises, whole, grain, scale, L1(ask.moved))

    def bits(self, ask: Ask, kept: int, share: Fraction) -> int:
        """How finely so many waves are rounded."""
        fine = 5 if ask.gaussian else 7  # noise of waves so fine can be drawn wherever any can
        one = sqrt(ask.variance(block(self.cells, 0, 1, fine), share)) / 2**fine
        most = self._bits(one, kept, gaussian=ask.gaussian)
        if most < _BITS_LEAST:
            raise _too_low()
        return min(_BITS, most)

    def _bits(self, one: float, kept: int, *, gaussian: bool) -> int:
        """So finely that noise can be drawn, where that of a sum of cells has the deviation `one`.

        A frequency moves a cell by at most √2, or by 1 in squares. Capped units are counted in
        small parts of a row, so that their noise is a large whole number already.
        """
        octaves = self._octaves(kept)
        counts = np.array([float(high - low) for low, high in octaves])
        norms = counts if gaussian else 2 * counts**2
        costs = [self._cost(octave, *ends) for octave, ends in enumerate(octaves)]
        shares = np.array(separate((norms * costs).tolist(), gaussian=gaussian))
        scale = one * np.sqrt(norms / (shares if gaussian else shares**2)).max()
        return floor(log2(_DRAWN_MAX / max(scale, 1.0)))

    def plan(
        self, ask: Ask, kept: int, bits: int
    ) -> tuple[list[Matrix], list[float], list[Fraction]]:
        """The waves of each octave, what the noise of their numbers does, and their shares."""
        blocks, costs = [], []
        for octave, (low, high) in enumerate(self._octaves(kept)):
            blocks.append(block(self.cells, low, high, bits))
            costs.append(self._cost(octave, low, high))
        norms = [_norm(b, gaussian=ask.gaussian) for b in blocks]
        needs = [cost * norm for cost, norm in zip(costs, norms, strict=True)]
        shares = exact_shares(separate(needs, gaussian=ask.gaussian))
        return blocks, costs, _raised(blocks, shares, gaussian=ask.gaussian)

    def _octaves(self, kept: int) -> list[tuple[int, int]]:
        pairs = zip(self.starts, self.starts[1:], strict=False)
        return [(low, min(high, kept)) for low, high in pairs if low < kept]

    def _cost(self, octave: int, low: int, high: int) -> float:
        """The mean square error of a question, for noise of variance 1 on each wave of an octave.

        A frequency has two waves that count twice, but the first and the middle one have one.
        """
        alone = 2 * high - 2 == self.cells
        times = 1 if octave == 0 else 4 * (high - low) - 3 * alone
        return self.minded[octave] * times / self.cells**2

    def _noise(self, law: Law, kept: int) -> float:
        """About the root mean square of the noise: a wave and its shifted one move a cell by 4/π
        together, on average, and by 1 in squares.
        """  # noqa: D205
        power = 1 / 2 if law.gaussian else 1 / 3
        total = 0.0
        for octave, (low, high) in enumerate(self._octaves(kept)):
            count = float(high - low)
            norm = count if law.gaussian else (4 / np.pi * count) ** 2
            total += (norm * self._cost(octave, low, high)) ** power
        return sqrt(total ** (1 / power) / law.weight(1.0))


@final
@dataclass(frozen=True, slots=True)
class _Cut:
    cuts: tuple[int, ...]
    noises: tuple[int, ...]
    weights: tuple[int, ...]
    grain: int
    scale: float  # how many grains an answer's 1 is
    moved: L1

    def __call__(self, epsilon: Fraction) -> FourierCut:
        """The choice for an ε per step of 1."""
        return FourierCut.for_epsilon(
            epsilon * self.moved.value,
            cuts=self.cuts,
            noises=self.noises,
            weights=self.weights,
            grain=self.grain,
            moved=self.moved,
        )

    def worst(self, law: Law) -> float:
        """What the chosen cut costs at most, as a root mean square over all answers.

        Claim: but for `_FAILURE`. Why: it costs at most ln(cuts / failure) / factor more than the
            best one [MT07, Thm 7], and so than the last one, which drops nothing.
        """
        over = log(len(self.cuts) / _FAILURE) / self._factor(law)
        return (self.noises[-1] + over) / self.scale

    def expected(self, law: Law) -> float:
        """What the chosen cut costs at most, as a root mean square over all answers and choices.

        Claim: whatever the rows are. Why: the last cut drops nothing and costs its noise n. Another
            one, of noise m, that costs d more drops n + d - m, has odds of e^(-factor d), and the
            squares of what it drops and of m for a mean square. So V, the mean over the choice, is
            the root of Σ odds · (square - V) over all cuts, which falls in V; and each d may be
            whatever is worst by itself.
        """
        more = np.linspace(0, _DEAR, _DEARER) / self._factor(law)
        noises = np.array(self.noises, np.float64)[:, None]
        last = float(self.noises[-1])
        dropped = last + more - noises[:-1]
        squares = np.where(dropped >= 0, noises[:-1] ** 2 + dropped**2, 0)
        odds = np.exp(-self._factor(law) * more)
        low, high = last**2, float(squares.max(initial=last**2))
        while high - low > _FAILURE * low:
            middle = (low + high) / 2
            excess = (odds * (squares - middle)).max(axis=1, initial=0).sum() + last**2 - middle
            low, high = (middle, high) if excess > 0 else (low, middle)
        return sqrt(high) / self.scale

    def _factor(self, law: Law) -> float:
        epsilon = 2 * sqrt(law.amount) if law.gaussian else law.amount
        return float(self(fraction(epsilon)).factor)

    def dropped(self, kept: int, law: Law) -> float:
        """How far what was dropped moves answers at most, likewise."""
        return max(0.0, self.worst(law) - self.noises[self.cuts.index(kept)] / self.scale)


@final
@dataclass(frozen=True, slots=True, eq=False)
class _Error:
    """How far boxes are off: that follows from their lengths.

    Of each frequency that was kept: the variance of its waves, and how many there are. ``left`` is
    the mean square of each wave that was left out, as one of length 1.
    """

    cells: int
    noises: Floats
    count: Floats
    left: float
    seen: int

    @classmethod
    def of(cls, waves: _Waves, answers: Sequence[Noisy], dropped: float, bits: int) -> "_Error":
        """``dropped`` is the most that the waves that were left out do to answers, see `_Cut`."""
        kept = sum(found.values.size for found in answers) // 2
        count = np.full(kept, 2.0)
        count[0] = 1
        if 2 * kept - 2 == waves.cells:
            count[-1] = 1
        each = [np.full(found.values.size // 2, found.variance) for found in answers]
        values = np.concatenate([found.values for found in answers]).reshape(-1, 2) / (1 << bits)
        last = slice(kept // 2, None)
        squares = count[last] * (values[last] ** 2).sum(axis=1) / waves.cells
        left = squares.sum() / count[last].sum(), int(count[last].sum())
        slant = 1.001 + 0.5**bits  # variances differ by less: rounded waves are not orthogonal
        error = cls(waves.cells, slant * np.concatenate(each) / 4**bits, count, *left)
        outside = float(error._outside(waves.lengths).mean())
        proven = dropped**2 / outside if outside > 0 else inf
        return replace(error, left=proven, seen=_SURE) if proven < error.left else error

    def around(self, found: Floats) -> Callable[[Ints, Ints], Guess]:
        """What a series that was found says of boxes."""

        def guess(lows: Ints, highs: Ints) -> Guess:
            sums = Workload((self.cells,), lows, highs, "boxes").answers(found)
            left = self.left * self._outside(_lengths(lows, highs))
            return Guess(sums, np.sqrt(self.noise(lows, highs) + left), self.seen)

        return guess

    def noise(self, lows: Ints, highs: Ints) -> Floats:
        """The variance of boxes that is due to noise."""
        lengths, which = np.unique(_lengths(lows, highs), return_inverse=True)
        each = self._inside(lengths) @ (self.noises * (self.count / self.cells) ** 2)
        return each[which]

    def _outside(self, lengths: Floats) -> Floats:
        """The squared length of what boxes have at the frequencies that were left out."""
        short, which = np.unique(lengths, return_inverse=True)
        outside = np.maximum(short - self._inside(short) @ (self.count / self.cells), 0)
        return outside[which]

    def _inside(self, lengths: Floats) -> Floats:
        """The square of what boxes have at each frequency that was kept."""
        angles = np.pi * np.arange(1, self.count.size) / self.cells
        waves = np.sin(np.outer(lengths, angles)) / np.sin(angles)
        return np.column_stack([lengths, waves]) ** 2


def _coefficients(answers: Sequence[Noisy], bits: int) -> Coefficients:
    """The waves by frequency: sums of the cells times a cosine, and times a sine."""
    values = np.concatenate([each.values for each in answers]) / (1 << bits)
    spread = [np.full(each.values.size, each.variance / 4**bits) for each in answers]
    places = range(values.size)
    columns: dict[str, list[int | str | None]] = {
        "frequency": [place // 2 for place in places],
        "wave": [("cosine", "sine")[place % 2] for place in places],
    }
    words = (
        "Sums of the cells times cos(2π f j / n) and sin(2π f j / n), waves rounded to whole "
        f"2^-{bits}ths; frequencies that are not listed were not measured."
    )
    return Coefficients(columns, values, np.concatenate(spread), words)


def _too_low() -> SpecError:
    return SpecError(
        "At this price no Fourier coefficient stands out from the noise.",
        fix='Use method="cells" or "tree".',
        about="price",
    )


def _lengths(lows: Ints, highs: Ints) -> Floats:
    return (highs - lows + 1)[:, 0].astype(np.float64)


def _raised(blocks: list[Matrix], shares: list[Fraction], *, gaussian: bool) -> list[Fraction]:
    """As much more as no cell minds: not every cell is the dearest one of all its waves."""
    asked = np.zeros(blocks[0].cells)
    for each, share in zip(blocks, shares, strict=True):
        columns = each.columns[1 if gaussian else 0]
        asked += float(share) * columns / columns.max()
    room = Fraction(int((1 - 1e-9) / asked.max() * 10**6), 10**6)
    return [share * room for share in shares]


def _norm(asked: Matrix, *, gaussian: bool) -> float:
    one, two = asked.columns
    return float(two.max()) if gaussian else float(one.max()) ** 2


def block(cells: int, low: int, high: int, bits: int = _BITS) -> Matrix:
    """Cosine and sine waves of the frequencies from ``low`` to below ``high``, in whole numbers."""
    angles = 2 * np.pi / cells * np.arange(cells)
    cosine = np.rint(np.cos(angles) * (1 << bits)).astype(np.int64)
    sine = np.rint(np.sin(angles) * (1 << bits)).astype(np.int64)
    places = np.outer(np.arange(low, high), np.arange(cells)) % cells
    rows = np.stack([cosine[places], sine[places]], axis=1).reshape(-1, cells)
    return Matrix(csr_array(rows))


def rebuild(blocks: list[Matrix], answers: list[Ints], cells: int, bits: int = _BITS) -> Floats:
    """The smallest series that has these waves. Rounded waves are not quite orthogonal: mended."""
    found = np.zeros(cells)
    for _ in range(1 + _REFINEMENTS):
        lack = [a - b.matrix @ found for a, b in zip(answers, blocks, strict=True)]
        waves = np.concatenate(lack).reshape(-1, 2) / (1 << bits)
        spectrum = np.zeros(cells // 2 + 1, np.complex128)
        spectrum[: waves.shape[0]] = waves[:, 0] - 1j * waves[:, 1]
        found += np.fft.irfft(spectrum, cells)
    return found


def _steps(most: int) -> list[int]:
    """1, 2, 3, 4, 6, 8, 12, … and the last."""
    found = {most}
    power = 1
    while power <= most:
        found |= {power, power * 3 // 2} if power > 1 else {1}
        power *= 2
    return sorted(step for step in found if step <= most)


def _most(cells: int) -> int:
    """So many frequencies fit into matrices."""
    return max(1, min(cells // 2 + 1, ENTRIES_MAX // (2 * cells)))
