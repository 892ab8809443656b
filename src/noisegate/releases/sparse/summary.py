"""A released summary of a table too large to list: the cells that are shown, and what is missing.

Cells that are not shown hold few rows or none; how few, and how surely, follows from the noise.
"""

from collections.abc import Sequence
from fractions import Fraction
from math import ceil, exp, expm1, floor, log
from pathlib import Path
from typing import Any, ClassVar, Final, final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import csv

from noisegate.desk.answer import Answer, also_in
from noisegate.desk.display.numbers import LEAST, bare
from noisegate.desk.display.plot import drawn, framed, nothing
from noisegate.desk.noisy import HalfWidths
from noisegate.desk.release import ENDINGS, Charged, loading, read_held
from noisegate.errors import SpecError
from noisegate.exact import Number as Numeric
from noisegate.exact import fraction, upper
from noisegate.frozen import dataclass, replace
from noisegate.mechanisms.additive.geometric import Geometric
from noisegate.mechanisms.base import failure_of, to_record
from noisegate.mechanisms.catalogue import from_record
from noisegate.mechanisms.keys.sparse_geometric import SparseGeometric, shown_chance
from noisegate.mechanisms.keys.sparse_priority import GRAINS, SparsePriority
from noisegate.planning.calibrate import geometric_error
from noisegate.releases.cells.axes import require_names
from noisegate.releases.cells.workload import Floats, Ints
from noisegate.releases.sparse.axes import Places, SparseAxis, places_of
from noisegate.sheets import csv_table
from noisegate.sql.laws import selected
from noisegate.sql.laws.sampling import Sampling

FORMAT: Final = "noisegate-sparse/1"
_SHOWN: Final = 20  # cells on a screen
_BARS: Final = 30
_SURE: Final = 2  # standard deviations


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class SparseNumber:
    """A sum over cells. The exact one lies between ``low`` and ``high``, at the confidence.

    ``value`` is that of the ``shown`` cells, less what cells without rows are expected to add.
    ``lower``: that is the sum of what a contribution bound leaves of the rows, so the sum of all is
    as large or larger.
    """

    value: float
    shown: int
    low: int
    high: int
    confidence: Fraction
    lower: bool = False

    def __float__(self) -> float:
        return self.value

    def __str__(self) -> str:
        least = LEAST if self.lower else ""
        return f"{least}{self.value:,.0f} (between {self.low:,} and {self.high:,})"


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class SparseRelease(Charged):
    """Numbers of some cells of ``axes``; all others are below the threshold, or not sampled.

    ``values`` are as drawn; of a secret sample of units, with its ``sampling``, they are those of
    the sample, and whatever is said about cells is scaled up to all units.

    Immutable: reading it again never draws again and never costs.
    """

    kind: ClassVar[str] = "sparse"
    form: ClassVar[str] = FORMAT
    endings: ClassVar[tuple[str, ...]] = tuple(each for each in ENDINGS if each != ".json")
    axes: tuple[SparseAxis, ...]
    cells: Places
    values: Ints
    noise: SparseGeometric | SparsePriority
    words: tuple[str, ...]
    sampling: Sampling | None

    def __post_init__(self) -> None:
        for name in ("cells", "values"):
            own = getattr(self, name).view()
            own.flags.writeable = False
            object.__setattr__(self, name, own)

    # what is missing, and how surely

    @property
    def domain(self) -> int:
        """How many cells there are."""
        return self.noise.domain

    @property
    def grain(self) -> Fraction:
        """What a released number counts in."""
        return self._drawn * self._scale

    @property
    def _drawn(self) -> Fraction:
        """The same in rows that took part."""
        return Fraction(1, GRAINS) if isinstance(self.noise, SparsePriority) else Fraction(1)

    @property
    def _scale(self) -> Fraction:
        """How many rows one that took part stands for."""
        return Fraction(1) if self.sampling is None else 1 / self.sampling.probability

    @property
    def bar(self) -> int:
        """Noisy counts, of rows that took part, of cells that are not shown are surely below."""
        if isinstance(self.noise, SparseGeometric):
            return self.noise.tau
        full = self.values.size >= self.noise.size
        return floor(int(self.values.min()) * self._drawn) + 1 if full else self.noise.threshold

    def missing(self, confidence: Numeric = 0.95) -> int:
        """A cell with at least so many rows is shown, this surely.

        Claim: a cell of t rows more than the bar needs noise below -t to be missing, which has
            probability α^(t+1) / (1 + α), half of that of |noise| > t. Of a sample, half of what
            may fail is for sampling. Rounding: up.
        """
        failure = failure_of(confidence)
        return missing_rows(self.bar, self.noise.scale, self.sampling, failure)

    @property
    def false_cells(self) -> float:
        """How many of the shown cells hold no row, on average at most."""
        return false_cells(self.noise)

    def margin(self, confidence: Numeric = 0.95) -> int:
        """The count of a cell, named beforehand, is off by at most this if it was not sampled.

        That is by noise; what a sample of units adds depends on the count.
        """
        return ceil(geometric_error(self.noise.scale, confidence=confidence) * self._scale)

    def _widths(self, confidence: Numeric, among: Fraction = Fraction(1)) -> Floats:
        """The ± of each shown cell, none (NaN) where it was sampled.

        Claim: it fails for at most 1 - confidence of all shown cells, on average; for the largest
            of them, if these are the share ``among`` of all.
        Why: each ± holds given that its cell is shown, see `selected`; a sampled cell is plain
            exactly if its noisy count passes a bar that follows from the other cells alone. Those
            of some that are picked by their numbers need the failure times their share [BY05].
        """
        failure, signed = failure_of(confidence) * among, getattr(self.noise, "signed", False)
        shown = self.values.astype(np.float64) * float(self.grain)
        cut, scale = self._cut, self.noise.scale
        grains = GRAINS if isinstance(self.noise, SparsePriority) else 1
        counts = np.where(self._plain, self.values // grains, cut)  # others are at the cut
        low: NDArray[Any]
        high: NDArray[Any]
        if self.sampling is None:
            low, high = selected.between(
                counts, at_least=cut, noise=Geometric(scale=scale), failure=float(failure),
                signed=signed,
            )  # fmt: skip
        else:
            low, high = selected.between_all(
                counts, at_least=cut, scale=scale, failure=failure, sampling=self.sampling
            )
        width = np.ceil(np.maximum(high - shown, shown - low))
        return np.where(self._plain, width, np.nan)

    @property
    def _cut(self) -> int:
        """A cell is plain if its noisy count, of rows that took part, is at least this."""
        noise = self.noise
        if isinstance(noise, SparseGeometric):
            return noise.tau + (noise.tau > noise.threshold)
        return max(noise.threshold, self.bar)

    # asking

    def query(self, confidence: Numeric = 0.95, /, **where: Any) -> SparseNumber:  # noqa: ANN401
        """The sum over some cells, free: ``release.query(x=(0, 999), kind=["a", "b"])``.

        By the name of an axis: a key, a list of keys, or a pair (low, high) with both ends inside.
        Claim: the noise of all cells asked for is at most t, all at once with the confidence; then
            a shown count is within t, and a missing one at most the bar - 1 + t. Of a sample of
            units this holds for its rows, with half of what may fail, and `Sampling` for all.
        """
        inside, size = self._inside(where)
        exact = fraction(confidence, name="confidence")
        if size == 0:
            return SparseNumber(value=0, shown=0, low=0, high=0, confidence=exact)  # of no cell
        failure = failure_of(confidence) / (1 if self.sampling is None else 2)
        each = 1 - failure / size  # a union bound over all cells asked for
        t = geometric_error(self.noise.scale, confidence=each)
        numbers = self.values[inside] * float(self._drawn)
        plain, theta = self._plain[inside], self.noise.threshold
        least = np.where(plain, numbers, np.minimum(numbers, theta))
        most = np.where(plain, numbers, np.maximum(numbers, -theta))
        low = int(np.floor(np.maximum(least - t, 0)).sum())
        missing = (size - numbers.size) * (self.bar - 1 + t)
        high = ceil(float(np.maximum(most + t, 0).sum())) + missing
        value, high = float(numbers.sum()), max(high, low)
        signed = getattr(self.noise, "signed", False)
        if not signed:
            value -= self._false_sum * size / self.domain
        value *= float(self._scale)
        if self.sampling is not None:
            low, high = scaled_up(self.sampling, low, high, failure)
        if not signed:  # what false cells add is an average, and may be more than there is
            value = float(min(max(value, low), high))
        return SparseNumber(
            value=value, shown=int(numbers.size), low=low, high=high, confidence=exact,
            lower=bool(self.cut),
        )  # fmt: skip

    @property
    def _plain(self) -> NDArray[np.bool_]:
        """Which numbers are noisy counts as they are, and not raised because they were sampled."""
        sizes = np.abs(self.values)
        if isinstance(self.noise, SparsePriority):
            full = self.values.size >= self.noise.size
            return sizes > (sizes.min(initial=1 << 62) if full else 0)
        return (sizes > self.noise.tau) | (self.noise.tau == self.noise.threshold)

    @property
    def total(self) -> SparseNumber:
        """The sum over all cells."""
        return self.query()

    @property
    def _false_sum(self) -> float:
        """What cells without rows are expected to add to the sum of all cells."""
        noise = self.noise
        beyond = 1 / expm1(1 / float(noise.scale))  # the mean of a geometric number
        tail = shown_chance(noise.scale, noise.threshold, noise.threshold, signed=False)
        return float(upper(tail.compute)) * self.domain * (noise.threshold + beyond)

    def _inside(self, where: dict[str, Any]) -> tuple[NDArray[np.bool_], int]:
        require_names(self.axes, where)
        inside, size = np.ones(self.cells.size, np.bool_), 1
        for axis, places in zip(self.axes, places_of(self.axes, self.cells), strict=True):
            if axis.name not in where:
                size *= axis.size
                continue
            runs = axis.runs(where[axis.name])
            held = np.zeros(self.cells.size, np.bool_)
            for low, high in runs:
                held |= (places >= np.uint64(low)) & (places <= np.uint64(high))
            inside &= held
            size *= sum(high - low + 1 for low, high in runs)
        return inside, size

    def frequent(self, share: Numeric, confidence: Numeric = 0.95) -> Answer:
        """The frequent items: cells of at least this share of the estimated total, largest first.

        The noise that a count may have, for all such cells at once at the confidence, is forgiven.
        """
        least = fraction(share, name="share")
        if not 0 < least <= 1:
            raise SpecError(f"share is {share}.", fix="Use a share such as 0.01.")
        many = max(1, int(1 / least))  # no more cells can hold the share
        off = self.margin(1 - failure_of(confidence) / many)
        kept = self.values * float(self.grain) >= float(least) * self.total.value - off
        return self.answer(int(kept.sum()))

    def likely(self) -> "SparseRelease":
        """Without the cells that are likelier empty than not: a higher threshold, chosen for free.

        It follows from the released numbers, so that Σ|released - exact| is least; see
        `least_error`. All statements are then about the higher threshold.
        """
        noise = self.noise
        if not isinstance(noise, SparseGeometric) or noise.signed or noise.tau > noise.threshold:
            raise SpecError(
                "This release is a sample of cells.",
                fix="Release it without tau and size.",
                about="sample",
            )
        theta = least_error(noise, self.values)
        kept = self.values >= theta
        noise = replace(noise, threshold=theta, tau=theta)
        return replace(self, cells=self.cells[kept], values=self.values[kept], noise=noise)

    def top(self, count: int = 10) -> Answer:
        """The cells with the largest numbers, largest first."""
        return self.answer(count)

    # other forms

    def to_arrow(self, confidence: Numeric | None = None) -> pa.Table:
        """The keys of the shown cells, and their numbers; with a confidence, margins too."""
        places = places_of(self.axes, self.cells)
        columns = [axis.column(at) for axis, at in zip(self.axes, places, strict=True)]
        whole = self.grain.denominator == 1
        numbers = self.values * (int(self.grain) if whole else float(self.grain))
        found = pa.table([*columns, pa.array(numbers)], [*self._names, self.value])
        if confidence is None:
            return found
        margins = pa.array(self._widths(confidence), from_pandas=True).cast(pa.int64())
        return found.append_column(f"{self.value}_margin", margins)

    @property
    def value(self) -> str:
        """What the column of numbers is called."""
        name = "n"
        while name in self._names:
            name += "_"
        return name

    @property
    def _names(self) -> list[str]:
        return [axis.name for axis in self.axes]

    def to_numpy(self) -> NDArray[Any]:
        """Cell numbers and their counts, as a structured array."""
        out = np.empty(self.cells.size, [("cell", np.uint64), ("n", np.int64)])
        out["cell"], out["n"] = self.cells, self.values
        return out

    def plot(self, confidence: Numeric = 0.95) -> Any:  # noqa: ANN401 - an altair chart
        """Bars of the largest cells. ``.save("x.png")`` writes it."""
        answer = self.answer(_BARS)
        if answer.table.num_rows == 0:
            words = "No cell is shown: there is nothing to draw."
            return framed(nothing(words), answer, title=None)
        rows, cell = answer.rows, " · ".join(self._names)
        labels = [" · ".join(bare(key) for key in row[:-1]) for row in rows]
        table = pa.table({cell: labels, self.value: [row[-1] for row in rows]})
        widths = answer.half_widths
        bars = replace(answer, table=table, half_widths=lambda c: (None, widths(c)[-1]))
        left = self.cells.size - len(rows)
        notes = [f"The largest cells; {left:,} more are shown in the table."] if left else []
        return framed(
            drawn(bars, confidence, x=cell, y=self.value), answer, title=None, notes=notes
        )

    def to_csv(self, file: str | Path | None = None, confidence: Numeric = 0.95) -> str:
        """All shown cells with margins, also written to a file if one is named."""
        sink = pa.BufferOutputStream()
        csv.write_csv(csv_table(self.to_arrow(confidence)), sink)
        return also_in(sink.getvalue().to_pybytes().decode(), file)

    def record(self) -> dict[str, Any]:
        """Axes and noise, from which the ± follows."""
        return {
            "axes": [axis.to_record() for axis in self.axes],
            "noise": to_record(self.noise),
            "words": list(self.words),
            "sampling": None if self.sampling is None else self.sampling.to_record(),
        }

    def parquet(self, confidence: Numeric) -> pa.Table:
        """The shown cells with their numbers, in the domain and as drawn."""
        table = self.to_arrow(confidence)
        for name, held in (("cell number", self.cells), ("number", self.values)):
            table = table.append_column(name, pa.array(held))
        return table

    @classmethod
    @loading
    def load(cls, file: str | Path) -> "SparseRelease":
        """The release that `save` wrote to a Parquet file. Needs no gate."""
        table, record = read_held(file, cls)
        noise = from_record(record["noise"])
        if not isinstance(noise, SparseGeometric | SparsePriority):
            raise SpecError(
                "The file does not hold a sparse release.", fix="Use it as written by save()."
            )
        return cls(
            axes=tuple(map(SparseAxis.from_record, record["axes"])),
            cells=table.column("cell number").to_numpy(),
            values=table.column("number").to_numpy(),
            noise=noise,
            words=tuple(record["words"]),
            sampling=Sampling.from_record(record.get("sampling")),
            **record["standing"],
        )

    # on a screen

    def answer(self, rows: int | None = None) -> Answer:
        """The largest cells as an answer has them; by default as many as a screen holds."""
        order = np.argsort(-self.values, kind="stable")[: _SHOWN if rows is None else rows]
        table = replace(self, cells=self.cells[order], values=self.values[order]).to_arrow()
        plain = self._plain[order].tolist()

        among = Fraction(max(order.size, 1), max(self.values.size, 1))

        def half_widths(confidence: Numeric) -> Sequence[HalfWidths]:
            widths = self._widths(confidence, among)[order].tolist()
            known = zip(widths, plain, strict=True)
            return (*[None] * len(self.axes), tuple(int(w) if each else None for w, each in known))

        left = self.cells.size - table.num_rows
        more = [f"{left:,} more cells are shown."] if left else []
        return self.stating(table, half_widths, (*more, *self.words), unsigned=(self.value,))

    def shown(self, confidence: Numeric = 0.95) -> Answer:  # noqa: ARG002 - its cells follow
        """The largest cells."""
        return self.answer()

    @property
    def headline(self) -> str:
        """How many cells are shown."""
        return f"{self.cells.size:,} of {self.domain:,} cells"


def missing_rows(bar: int, scale: Fraction, sampling: Sampling | None, failure: Fraction) -> int:
    """A cell with at least so many rows has a noisy count of the bar or more, but for a failure."""
    part = failure / (1 if sampling is None else 2)
    rows = bar + geometric_error(scale, confidence=1 - 2 * min(part, Fraction(49, 100)))
    return rows if sampling is None else scaled_up(sampling, rows, rows, part)[1] + 1


def scaled_up(sampling: Sampling, low: int, high: int, failure: Fraction) -> tuple[int, int]:
    """Where numbers of all units lie, if those of the sample are between the ends."""
    ends = np.array([low, high]) / float(sampling.probability)
    least, most = sampling.bounds(ends[:1], ends[1:], float(failure))
    return floor(least[0]), ceil(most[0])


def least_error(noise: SparseGeometric, values: Ints) -> int:
    """The threshold from which on shown cells have the least Σ|shown - exact|, as far as they tell.

    Of n cells without rows, n α^t / (1 + α) are shown from t on, whose values add up to
    n α^t / (1 + α) · (t + α / (1 - α)). What lies below t beyond that is lost if t is the
    threshold, and each cell that is shown beyond that has an error of 2α / (1 - α²). What is won by
    a threshold below the usual one, which shows one cell without rows, must exceed `_SURE` times
    the spread of what cells without rows add up to in between.
    """
    ratio, low = exp(-1 / float(noise.scale)), noise.threshold
    usual = ceil(float(noise.scale) * log(max(noise.domain, 2)))
    at = np.arange(low, max(usual, low) + 1, dtype=np.float64)
    false = noise.domain / (1 + ratio) * np.exp(-at / float(noise.scale))
    wrong = false * (at + ratio / (1 - ratio))
    rising = np.sort(values)
    below = np.searchsorted(rising, at)
    lost = np.concatenate([[0.0], np.cumsum(rising, dtype=np.float64)])[below]
    shown = values.size - below - false
    risk = wrong + (lost - (wrong[0] - wrong)) + shown * 2 * ratio / (1 - ratio**2)
    best = int(np.argmin(risk))
    squares = np.cumsum(false * (1 - ratio) * at**2)
    spread = np.sqrt(np.maximum(squares - squares[best], 0))
    good = np.flatnonzero(risk - risk[best] <= _SURE * spread)
    return int(at[max(best, good.max())])


def false_cells(noise: SparseGeometric | SparsePriority) -> float:
    """How many cells without rows are shown, on average at most. Rounding: up."""
    tau = noise.tau if isinstance(noise, SparseGeometric) else noise.threshold
    signed = isinstance(noise, SparseGeometric) and noise.signed
    chance = shown_chance(noise.scale, noise.threshold, tau, signed=signed)
    found = float(upper(chance.compute) * noise.domain)
    return min(found, float(noise.size)) if isinstance(noise, SparsePriority) else found
