"""What a program says of blocks of private rows, released: numbers, their ± and the promise."""

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, ClassVar, Final, final

import pyarrow as pa

from noisegate.algebra.blocks import STEPS
from noisegate.desk.answer import Answer
from noisegate.desk.noisy import HalfWidths
from noisegate.desk.release import Charged, loading, read_held
from noisegate.errors import SpecError
from noisegate.exact import Number as Numeric
from noisegate.frozen import dataclass
from noisegate.mechanisms.base import Mechanism, NoiseMechanism, to_record
from noisegate.mechanisms.catalogue import from_record
from noisegate.mechanisms.quantiles.quantile import Quantile
from noisegate.mechanisms.quantiles.winsorised import Winsorised

FORMAT: Final = "noisegate-applied/1"
_BLOCKS_DIFFER: Final = (
    "The result on blocks may differ from the result on all rows, the more so the smaller the "
    "blocks are."
)


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Applied(Charged):
    """What a program says of blocks of private rows, on the whole and with noise.

    Immutable: reading it again never draws again and never costs.
    """

    kind: ClassVar[str] = "applied"
    form: ClassVar[str] = FORMAT
    names: tuple[str, ...]
    ranges: tuple[tuple[Fraction, Fraction], ...]
    answers: int
    aggregate: str
    noise: tuple[Mechanism[Any], ...]
    released: tuple[tuple[int, ...], ...]
    program: str
    source: str  # the program's text
    trusted: bool
    sample: Fraction | None  # the chance of each unit to be in it; None: all are

    @property
    def values(self) -> tuple[float, ...]:
        """The numbers, each inside its range."""
        pairs = zip(self.released, self.ranges, strict=True)
        return tuple(float(low + (high - low) * self._part(row)) for row, (low, high) in pairs)

    def _part(self, row: tuple[int, ...]) -> Fraction:
        """Where in its range a released number lies, from 0 to 1."""
        start, end = row[1:] or (0, STEPS)  # of a mean that was narrowed
        count = {"mean": self.answers, "center": 2}.get(self.aggregate, 1)
        steps = start + Fraction(row[0], count)
        return max(Fraction(start), min(steps, Fraction(end))) / STEPS

    @property
    def value(self) -> float:
        """The number, where there is one."""
        if len(self.released) != 1:
            raise SpecError("The program has several outputs.", fix="Use values.")
        return self.values[0]

    def __float__(self) -> float:
        return self.value

    def margins(self, confidence: Numeric = 0.95) -> HalfWidths:
        """How far the noise moved each average at most, so confidently; of medians, None."""
        return widths_of(self.noise, self.released, self.ranges, self.answers, confidence)

    @property
    def headline(self) -> str:
        """What it is."""
        return f"the {self.aggregate} of the results of {self.program!r} on {self.answers:,} blocks"

    def answer(self, rows: int | None = None) -> Answer:
        """The numbers as an answer has them, one row each."""
        count = len(self.names) if rows is None else min(rows, len(self.names))
        table = pa.table({
            "output": pa.array(self.names[:count], pa.string()),
            "value": pa.array(self.values[:count], pa.float64()),
        })  # fmt: skip

        def half_widths(confidence: Numeric) -> Sequence[HalfWidths]:
            bars = self.margins(confidence)
            return None, None if bars is None else bars[:count]

        words = words_of(self.noise, self.answers, trusted=self.trusted, sample=self.sample)
        unsigned = ("value",) if all(low >= 0 for low, _ in self.ranges) else ()
        return self.stating(table, half_widths, words, unsigned=unsigned, amounts=())

    def plot(self, confidence: Numeric = 0.95) -> Any:  # noqa: ANN401 - altair may be missing
        """A picture of the numbers, an altair chart."""
        return self.answer().plot(confidence, x="output", y="value")

    def record(self) -> dict[str, Any]:
        """Ranges and noise, from which values and ± follow."""
        return {
            "names": list(self.names),
            "ranges": [[str(low), str(high)] for low, high in self.ranges],
            "answers": self.answers,
            "aggregate": self.aggregate,
            "noise": [to_record(each) for each in self.noise],
            "released": [list(map(str, row)) for row in self.released],
            "program": self.program,
            "source": self.source,
            "trusted": self.trusted,
            "sample": None if self.sample is None else str(self.sample),
        }

    @classmethod
    @loading
    def load(cls, file: str | Path) -> "Applied":
        """The release that `save` wrote to a Parquet file. Needs no gate."""
        _, record = read_held(file, cls)
        return cls(
            names=tuple(record["names"]),
            ranges=tuple((Fraction(low), Fraction(high)) for low, high in record["ranges"]),
            answers=record["answers"],
            aggregate=record["aggregate"],
            noise=tuple(map(from_record, record["noise"])),
            released=tuple(tuple(map(int, row)) for row in record["released"]),
            program=record["program"],
            source=record["source"],
            trusted=record["trusted"],
            sample=None if (sample := record.get("sample")) is None else Fraction(sample),
            **record["standing"],
        )


def widths_of(
    noise: Sequence[Mechanism[Any]],
    released: Sequence[tuple[int, ...]] | None,
    ranges: Sequence[tuple[Fraction, Fraction]],
    answers: int,
    confidence: Numeric,
) -> HalfWidths:
    """How far the noise moves each average; of what is chosen, or not narrowed yet, None."""
    laws: list[NoiseMechanism[Any]] = []
    for each, row in zip(noise, released or [()] * len(noise), strict=True):
        if isinstance(each, Winsorised) and row:
            laws.append(each.noise(row[2] - row[1]))
        elif isinstance(each, NoiseMechanism):
            laws.append(each)
        else:
            return None
    return tuple(
        float((high - low) * law.interval(confidence) / (STEPS * answers))
        for law, (low, high) in zip(laws, ranges, strict=True)
    )


def words_of(
    noise: Sequence[Mechanism[Any]], answers: int, *, trusted: bool, sample: Fraction | None
) -> tuple[str, ...]:
    """What the numbers are, and what no error bar tells."""
    words = [_BLOCKS_DIFFER]
    if isinstance(first := noise[0], Quantile):
        rank = first.rank_error("0.95")
        near = f"At most {rank:,} of {answers:,} blocks lie between this and their median"
        words.append(f"{near}, with 95 %.")
    elif isinstance(first, Winsorised):
        words.append("Results far from most others were clipped. The ± covers the noise only.")
    elif isinstance(first, NoiseMechanism):
        words.append("The ± covers the noise only.")
    else:
        words.append("The scale of the noise depends on the rows and is not released.")
    if sample is not None:
        words.append(
            f"On a secret sample that holds each unit with probability {sample}: each block has "
            "correspondingly fewer rows, and nothing is scaled up."
        )
    if trusted:
        words.append("The program was trusted: nothing kept it from revealing what it saw.")
    return tuple(words)
