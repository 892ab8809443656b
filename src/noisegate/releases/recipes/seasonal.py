"""Seasonal profiles, such as weekday × hour: every margin, and how margins play together, smoothly.

The cells of a season are a circle: hour 23 is next to hour 0. What is measured are the sums along
each axis, exactly as many as it has keys, and for each pair of axes the low frequencies of both.
Everything is then fitted at once by least squares. Finer waves are those of a table with the same
margins whose axes do not know of each other, times as much as the fastest measured ones have of
theirs: 1 where axes multiply, 0 where they add up. Of one axis there are none.

How far a sum is off has two parts. The noise of what was measured is known. Finer waves are taken
to be off by as much as the fastest ones of pairs that were measured would be (of one axis: as large
as the faster half of them, or falling as the first one does, if it is the only one), in any phase,
and by more where there are more rows: a season with sharper features can be further off.
"""

from collections.abc import Callable, Iterator
from fractions import Fraction
from itertools import combinations
from math import prod, sqrt
from typing import ClassVar, Final, final

import numpy as np
from scipy.sparse import csr_array

from noisegate.errors import SpecError
from noisegate.frozen import dataclass
from noisegate.releases.ask.asking import Ask
from noisegate.releases.cells.estimate import Estimate, Guess, Predicted
from noisegate.releases.cells.workload import Floats, Ints, Workload
from noisegate.transforms.strategy import Block, Groups, Matrix

CELLS_MAX: Final = 1 << 13
QUESTIONS_MAX: Final = 1 << 11
_UNIT: Final = 1 << 8  # what 1 is in a wave
_SINGULAR: Final = 1e-10  # of the largest: what is below repeats other numbers, up to rounding
_LEAST: Final = 1e-9  # of a margin
_FINER: Final = 1.5
_ROUGH: Final = 0.5


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Seasonal:
    """Margins of all axes, and the first ``harmonics`` waves of each pair of them.

    With one axis these are the waves of that axis. [RN10] releases waves of a series so; here a
    public number of them, which is what a season is thought to have.
    """

    name: ClassVar[str] = "seasonal"
    harmonics: int = 2

    def require(self, shape: tuple[int, ...], workload: Workload) -> None:
        """One to three axes of a season."""
        if workload.shape != shape:
            raise SpecError(
                "The workload was made for a table of another shape.",
                fix=f"The shape here is {shape}.",
            )
        if type(self.harmonics) is not int or self.harmonics < 1:
            raise SpecError("harmonics is not above 0.", fix="Use a whole number such as 2.")
        if not 1 <= len(shape) <= 3 or not 2 <= prod(shape) <= CELLS_MAX:
            raise SpecError(
                f"A season of {prod(shape):,} cells in {len(shape)} axes is too large.",
                fix=f"Use one to three axes and up to {CELLS_MAX:,} cells.",
            )
        if self._questions(shape) > QUESTIONS_MAX:
            raise SpecError("There are too many frequencies.", fix="Use fewer harmonics.")

    def predict(self, ask: Ask, workload: Workload) -> Predicted:
        """The noise is known, and what it feigns of finer waves; these depend on the rows.

        Of one axis they are taken to be largest where all rows are in one cell: what is measured of
        rows is linear, so that its squares are largest at a corner.
        """
        blocks = self.blocks(ask.shape)
        pairs = zip(blocks, _shares(blocks), strict=True)
        back, rows, _ = _fitted(blocks, [ask.variance(block, share) for block, share in pairs])
        fast = rows[self._last(ask.shape)]
        sizes, seen = (fast**2).sum(axis=1), max(1, fast.shape[0])
        feigned = float((1 / sizes).sum()) / seen * min(1.0, sqrt(2 / seen))
        volumes = np.prod(workload.highs - workload.lows + 1, axis=1)
        unknown = float(np.mean(volumes - _products(back, rows.T, workload)))
        noise = float(np.mean(_products(back, back, workload))) + unknown * feigned
        if unknown < _LEAST:
            return Predicted(rms=sqrt(noise), seen=seen)
        share = None
        if len(ask.shape) == 1:
            share = sqrt(unknown * float((fast**2 / sizes[:, None]).sum(axis=0).max()) / seen)
        words = f"the rest is what {self.harmonics} harmonics and the marginals do not explain"
        return Predicted(rms=None, words=words, noise=sqrt(noise), share=share, seen=seen)

    def build(self, ask: Ask, workload: Workload) -> Estimate:  # noqa: ARG002 - one profile for all
        """One round, one fit."""
        blocks = self.blocks(ask.shape)
        noisy = ask.sums(blocks, _shares(blocks))
        back, rows, spreads = _fitted(blocks, [each.variance for each in noisy])
        numbers = np.concatenate([each.values for each in noisy]) / spreads
        slow: Floats = back @ numbers
        margins = [sqrt(each.variance) for each in noisy[: len(ask.shape)]]
        even = _independent(slow.reshape(ask.shape), margins).reshape(-1)
        fast = self._last(ask.shape)
        seen, said = numbers[fast], (rows @ even)[fast]
        fine = even * np.clip(float(seen @ said) / max(float(said @ said), _LEAST), 0, 1)
        cells: Floats = (slow + fine - back @ (rows @ fine)).reshape(ask.shape)
        left = _left(seen - rows[fast] @ fine, (rows[fast] ** 2).sum(axis=1))
        if cells.ndim == 1:
            outside = _of_waves(self._finer(cells, left))
        else:
            outside = _of_cells(_rough(even) * left, back, rows)

        def guess(lows: Ints, highs: Ints) -> Guess:
            asked = Workload(ask.shape, lows, highs, "boxes")
            spread = np.sqrt(_products(back, back, asked) + np.maximum(outside(asked), 0))
            return Guess(asked.answers(cells), spread, max(1, fast.size))

        follow = "follow from the marginals alone" if cells.ndim > 1 else "are left out"
        words = f"frequencies beyond {self.harmonics} harmonics {follow}"
        return Estimate(cells, words=(words,), guess=guess)

    def _finer(self, cells: Floats, left: float) -> Floats:
        """The mean square of each wave of one axis that was left out, as one of length 1.

        It is ``left``. If there is one harmonic, each falls from the one before as that did from
        the total, as waves of rows around one hour do; but cells may vary by themselves, by
        `_ROUGH` of their squared mean, so that none is below that if the first is not.
        """
        size = cells.size
        found = np.full(size // 2 + 1, left)
        if self.harmonics == 1:
            total = max(float(cells.sum()) ** 2 / size, _LEAST)
            powers = min(1.0, left / total) ** np.arange(found.size)
            found = np.maximum(total * powers, min(left, _ROUGH * total / size))
        found[: self.harmonics + 1] = 0
        return found

    def blocks(self, shape: tuple[int, ...]) -> list[Block]:
        """The margins, then the waves."""
        if len(shape) == 1:
            return [_matrix(list(_waves(shape[0], self.harmonics)))]
        places = np.indices(shape).reshape(len(shape), -1)
        found: list[Block] = [
            Groups(places[axis].astype(np.int32), size) for axis, size in enumerate(shape)
        ]
        for one, other in combinations(range(len(shape)), 2):
            pairs = [
                first[places[one]] * second[places[other]]
                for first in list(_waves(shape[one], self.harmonics))[1:]
                for second in list(_waves(shape[other], self.harmonics))[1:]
            ]
            if pairs:
                found.append(_matrix(pairs))
        return found

    def _last(self, shape: tuple[int, ...]) -> Ints:
        """Which numbers are those of the fastest pairs, or of the faster waves of one axis."""
        at = sum(shape)
        if len(shape) == 1:
            return np.arange(self.harmonics, self.blocks(shape)[0].size)
        found = [np.zeros(0, np.int64)]
        for one, other in combinations(shape, 2):
            first, second = (_frequencies(size, self.harmonics) for size in (one, other))
            if first and second:
                fast = np.equal(first, first[-1])[:, None] | np.equal(second, second[-1])
                found.append(at + np.flatnonzero(fast))
                at += fast.size
        return np.concatenate(found)

    def _questions(self, shape: tuple[int, ...]) -> int:
        """How many numbers all blocks have."""
        waves = [min(2 * self.harmonics, size - 1) for size in shape]
        return sum(shape) + sum(one * other for one, other in combinations(waves, 2))


def _waves(size: int, harmonics: int) -> Iterator[Floats]:
    """1, then a cosine and a sine of each frequency that the axis can tell apart."""
    angles = 2 * np.pi * np.arange(size) / size
    yield np.ones(size)
    for frequency in range(1, min(harmonics, size // 2) + 1):
        yield np.cos(frequency * angles)
        if 2 * frequency < size:
            yield np.sin(frequency * angles)


def _frequencies(size: int, harmonics: int) -> list[int]:
    """Those of all these waves but the first."""
    return [(wave + 2) // 2 for wave in range(min(2 * harmonics, size - 1))]


def _matrix(rows: list[Floats]) -> Matrix:
    return Matrix(csr_array(np.rint(np.array(rows) * _UNIT).astype(np.int64)))


def _shares(blocks: list[Block]) -> list[Fraction]:
    return [Fraction(1, len(blocks))] * len(blocks)


def _fitted(blocks: list[Block], variances: list[float]) -> tuple[Floats, Floats, Floats]:
    """The cells from the numbers, the numbers from the cells, each divided by its spread; these."""
    rows, spreads, least = [], [], max(1e-8 * max(variances), 1e-30)  # so that the fit is stable
    for block, variance in zip(blocks, variances, strict=True):
        spread = max(variance, least) ** 0.5
        rows.append(_dense(block) / spread)
        spreads.append(np.full(block.size, spread))
    joined = np.vstack(rows)
    back = np.linalg.pinv(joined, rcond=_SINGULAR)
    return np.asarray(back, np.float64), joined, np.concatenate(spreads)


def _independent(cells: Floats, noises: list[float]) -> Floats:
    """The table of these margins, none below its noise, whose axes do not know of each other.

    >>> _independent(np.array([[3.0, 1.0], [0.0, 0.0]]), [1.0, 1.0]).round(9).tolist()
    [[2.4, 0.8], [0.6, 0.2]]
    """
    if cells.ndim == 1:
        return np.zeros_like(cells)
    found = np.full(cells.shape, max(float(cells.sum()), *noises))
    for axis, noise in enumerate(noises):
        others = tuple(other for other in range(cells.ndim) if other != axis)
        margin = np.maximum(cells.sum(axis=others, keepdims=True), max(noise, _LEAST))
        found *= margin / margin.sum()
    return found


def _rough(even: Floats) -> Floats:
    """How much of what is not told each cell has, as squares: in proportion to its number.

    Half as much again as on average, since finer waves are not draws from those that were measured.
    """
    return even / float(even.mean()) * _FINER


def _of_waves(squares: Floats) -> Callable[[Workload], Floats]:
    """The variance of boxes by waves in any phase: that follows from their lengths."""

    def outside(asked: Workload) -> Floats:
        (size,) = asked.shape
        alike = np.fft.irfft(squares, size)
        sums = 2 * alike.cumsum().cumsum() - np.arange(1, size + 1) * alike[0]
        found: Floats = sums[(asked.highs - asked.lows)[:, 0]]
        return found

    return outside


def _of_cells(where: Floats, back: Floats, rows: Floats) -> Callable[[Workload], Floats]:
    """The variance of boxes by cells of their own variances, less what the numbers tell of them."""
    weighed = where[:, None] * back
    sizes, turned = np.linalg.eigh(back.T @ weighed)
    twice = rows.T @ (turned * np.sqrt(np.maximum(sizes, 0)))

    def outside(asked: Workload) -> Floats:
        alone = asked.answers(where.reshape(asked.shape)) + _products(twice, twice, asked)
        return alone - 2 * _products(weighed, rows.T, asked)

    return outside


def _left(numbers: Floats, sizes: Floats) -> float:
    """The mean square of waves as one of length 1, without noise as far as that can be told."""
    seen = max(1, sizes.size)
    found, noise = float((numbers**2 / sizes).sum()) / seen, float((1 / sizes).sum()) / seen
    return max(found - noise, found * min(1.0, sqrt(2 / seen)))


def _products(one: Floats, other: Floats, workload: Workload) -> Floats:
    """The sum over all columns, as tables, of what both answer to each question, multiplied."""
    found = np.zeros(workload.size)
    for first, second in zip(one.T, other.T, strict=True):
        answers = [workload.answers(each.reshape(workload.shape)) for each in (first, second)]
        found += answers[0] * answers[1]
    return found


def _dense(block: Block) -> Floats:
    if isinstance(block, Matrix):
        found: Floats = block.matrix.toarray().astype(np.float64)
        return found
    dense: Floats = np.zeros((block.size, block.cells))
    dense[block.labels, np.arange(block.cells)] = 1
    return dense
