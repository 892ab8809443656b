"""A released table: numbers that stay, to be asked, drawn, saved and read again at no cost.

Before it is released, `TableExpected` says method and predicted error, made without a row.
"""

from base64 import b64decode, b64encode
from collections.abc import Callable, Sequence
from math import prod
from pathlib import Path
from typing import Any, ClassVar, Final, final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from noisegate.desk.answer import Answer
from noisegate.desk.display.numbers import percent
from noisegate.desk.noisy import HalfWidths
from noisegate.desk.plan import Fact
from noisegate.desk.release import ENDINGS, Charged, loading, read_held
from noisegate.errors import SpecError
from noisegate.exact import Number as Numeric
from noisegate.frozen import dataclass
from noisegate.mechanisms.base import failure_of
from noisegate.releases.ask.transcript import pack, unpack
from noisegate.releases.cells.axes import Axis, keys_of
from noisegate.releases.cells.estimate import Predicted, reach, tail_factor
from noisegate.releases.cells.workload import Workload
from noisegate.releases.forms.numbers import TableNumbers, model_factor
from noisegate.releases.forms.provenance import Making

FORMAT: Final = "noisegate-release/1"
_MAPS: Final = (".geojson", ".geoparquet")


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class TableRelease(TableNumbers):
    """Released numbers over the cells of ``axes``. Reading it again costs nothing."""

    kind: ClassVar[str] = "release"
    form: ClassVar[str] = FORMAT
    endings: ClassVar[tuple[str, ...]] = (*ENDINGS, *_MAPS)

    def coefficients(self) -> Answer:
        """The noisy coefficients of a transform (Haar, Fourier) as they were measured, with a ±.

        Free: they are what the table was made of. Claim: each exact coefficient lies within its ±,
        by itself, at the confidence. Why: each is one draw of known variance: see `reach`.
        """
        making, found = self.making, self.making.estimate(self.shape).coefficients
        if found is None or making.sampling is not None:
            raise SpecError(
                f"The method {self.method!r} has no coefficients.",
                fix='Release it with method="haar" or "fourier", of all rows.',
                about="coefficients",
            )
        told, grain = found(), float(making.grain)
        names = {str(number): axis.name for number, axis in enumerate(self.axes)}
        columns = {
            f"{names[name[-1]]} {name[:-1]}" if name[-1] in names else name: values
            for name, values in told.columns.items()
        }

        def half_widths(confidence: Numeric) -> Sequence[HalfWidths]:
            failure = float(failure_of(confidence))
            far = reach(told.variance, failure, making.price, making.moved) * grain
            return (*[None] * len(columns), tuple(far.tolist()))

        table = pa.table({**columns, "coefficient": told.values * grain})
        return self.stating(table, half_widths, (told.words, *self.words))

    # other forms

    def to_numpy(self) -> NDArray[Any]:
        """The numbers, in the shape of the axes; a copy."""
        return self.values.copy()

    def to_dict(self, confidence: Numeric = 0.95) -> dict[str, Any]:
        """Plain JSON values: those of an answer, and how it was made."""
        made = {"method": self.method, "shape": list(self.shape), "sql": self.sql}
        return self.answer().to_dict(confidence) | made | {"words": list(self.words)}

    def plot(self, confidence: Numeric = 0.95, **choices: str | None) -> Any:  # noqa: ANN401
        """An altair chart: bars or a line for one axis, a heat map for two.

        ``x`` and ``y`` choose axes; all others are summed over. With more than two axes, each
        has its own bars. ``.save("x.png")`` writes it.
        """
        from noisegate.releases.forms.picture import Drawable, picture  # noqa: PLC0415 - when asked for

        drawn = Drawable(
            axes=self.axes,
            values=self.values,
            value=self.value,
            whole=self.making.whole,
            widths=self.widths,
            frame=self.answer(0),
            running=self.making.workload == "prefixes" and len(self.axes) == 1,
        )
        return picture(drawn, confidence, **choices)

    # files

    def writers(self, path: Path, confidence: Numeric) -> dict[str, Callable[[], Any]]:
        """How to write each file format."""
        from noisegate.releases.forms.geo import map_of  # noqa: PLC0415 - only when asked for

        return {
            ".geojson": lambda: map_of(self, confidence).to_geojson(path),
            ".geoparquet": lambda: map_of(self, confidence).to_geoparquet(path),
            **Charged.writers(self, path, confidence),
        }

    def record(self) -> dict[str, Any]:
        """Axes, and how it was made."""
        return {
            "axes": [axis.to_record() for axis in self.axes],
            "value": self.value,
            "making": self.making.to_record(),
            "words": list(self.words),
        }

    def facts(self) -> dict[str, str]:
        """The answers to the recipe, from which the ± follows."""
        told = b64encode(pack({}, [], self.making.rounds)).decode()
        return {"noisegate.transcript": told}

    @classmethod
    @loading
    def load(cls, file: str | Path) -> "TableRelease":
        """The release that `save` wrote to a Parquet file. Needs no gate."""
        table, record = read_held(file, cls)
        axes = tuple(map(Axis.from_record, record["axes"]))
        shape = tuple(axis.size for axis in axes)
        names = [axis.name for axis in axes]
        if not table.select(names).equals(keys_of(axes, prod(shape)), check_metadata=False):
            raise SpecError(
                "The rows of the release were changed.", fix="Use the file as written by save()."
            )
        _, _, rounds = unpack(b64decode(record["facts"]["noisegate.transcript"]))
        return cls(
            axes=axes,
            values=table[record["value"]].to_numpy().reshape(shape),
            value=record["value"],
            making=Making.from_record(record["making"], rounds),
            words=tuple(record["words"]),
            **record["standing"],
        )

    # on a screen

    def answer(self, rows: int | None = None) -> Answer:
        """The same as an answer: one row per cell, or only the first ones, for display."""
        count = self.values.size if rows is None else min(rows, self.values.size)
        keys = keys_of(self.axes, count, labels=rows is not None)
        table = keys.append_column(self.value, pa.array(self.values.reshape(-1)[:count]))

        def half_widths(confidence: Numeric) -> Sequence[HalfWidths]:
            places = np.unravel_index(np.arange(count), self.shape)  # the last axis varies fastest
            each = np.stack(places, axis=1).astype(np.int64)
            widths = self.widths(Workload(self.shape, each, each, "cells"), confidence)
            return (*[None] * len(self.axes), None if widths is None else tuple(widths))

        left = self.values.size - count
        more = [f"{left:,} more cells."] if left else []
        unsigned = () if self.making.signed else (self.value,)
        words = (*more, *self.words)
        return self.stating(table, half_widths, words, self._unfollowed, unsigned)

    def _unfollowed(self) -> tuple[str, ...]:
        found = self.making.estimate(self.shape)
        known = found.variance is not None or found.guess is not None
        if known or self.making.plausible(self.shape) is not None or self.making.covers(self.shape):
            return ()
        return (f"{self.value}, because {self.making.unknown}",)

    @property
    def headline(self) -> str:
        """Size and method."""
        size = " × ".join(f"{size:,}" for size in self.shape)
        return f"{size} cells by {self.method!r}"


def endings_of(axes: Sequence[Axis]) -> tuple[str, ...]:
    """The forms that a table over such axes can be saved in: known before it is paid for."""
    bins = [axis.edges is not None for axis in axes]
    maps = _MAPS if len(bins) > 1 and all(bins[-2:]) else ()
    return (*ENDINGS, *maps)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class TableExpected(Predicted):
    """What would be released, by which method, and how far it may be off: see `Predicted`.

    Errors are in the units of the sum, over the ``questions`` of the workload. Of errors that a
    release knows from ``seen`` numbers alone it states a wider ±. ``covered`` is the part of the
    cells that a question adds up, as a root mean square.
    """

    axes: tuple[Axis, ...]
    method: str
    workload: str
    questions: int
    gaussian: bool
    covered: float = 1.0

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of keys of each axis."""
        return tuple(axis.size for axis in self.axes)

    def margin(self, confidence: Numeric = 0.95) -> float | None:
        """The ± to expect of a usual question of the workload."""
        return self._margin(self.rms, confidence)

    def most_margin(self, confidence: Numeric = 0.95) -> float | None:
        """The ± that a usual question hardly exceeds, whatever the rows are."""
        return self._margin(self.most, confidence)

    def noise_margin(self, confidence: Numeric = 0.95) -> float | None:
        """The ± that noise alone gives a usual question."""
        return self._margin(self.noise, confidence)

    def level_margins(self, confidence: Numeric = 0.95) -> list[float]:
        """The ± of a sum of each level of a hierarchy, from single keys to all."""
        return [self._margin(each, confidence) or 0.0 for each in self.levels]

    def share_margin(self, confidence: Numeric = 0.95) -> float | None:
        """The ± that a usual question hardly exceeds, as a part of the total."""
        most = self._margin(self.share, confidence)
        return None if most is None else min(1.0, most)

    def _margin(self, rms: float | None, confidence: Numeric) -> float | None:
        if rms is None:
            return None
        failure = float(failure_of(confidence))
        if self.seen is not None:
            return rms * model_factor(failure, self.seen)
        return rms * tail_factor(failure, gaussian=self.gaussian)

    def margins(self, confidence: Numeric) -> dict[str, float | None]:
        """The ± of a usual question of the workload; None where it depends on the rows."""
        return {self.workload: self.margin(confidence)}

    def facts(self, confidence: Numeric) -> list[Fact]:
        """In words, one fact a line."""
        size = " × ".join(f"{size:,}" for size in self.shape)
        lines: list[Fact] = [("cells", f"{size}, by {', '.join(axis.name for axis in self.axes)}")]
        lines.append(("method", self.method))
        lines.append(("for", f"{self.workload} ({self.questions:,} questions)"))
        lines.append(("error", self._error(confidence)))
        if self.levels:
            each = ", ".join(f"± {width:.3g}" for width in self.level_margins(confidence))
            lines.append(("levels", f"{each}, from single keys to all"))
        return lines

    def _error(self, confidence: Numeric) -> str:
        sure = f"at {percent(confidence)} confidence for each question"
        width, most = self.margin(confidence), self.most_margin(confidence)
        noise, share = self.noise_margin(confidence), self.share_margin(confidence)
        if width is not None:
            return f"about ± {width:.3g} {sure}"
        if most is not None and noise is not None:
            return f"± {noise:.3g} by noise alone to about ± {most:.3g} {sure}, by the rows"
        if share is not None and noise is not None:
            part = f"{float(f'{100 * share:.2g}'):g}%"
            return f"± {noise:.3g} by noise alone to {part} of the total {sure}, by the rows"
        if most is not None:
            return f"at most about ± {most:.3g} {sure}, depending on the rows"
        if noise is not None:
            return f"± {noise:.3g} by noise alone {sure}; the rest depends on the rows"
        return "depends on the rows"

    def to_dict(self, confidence: Numeric) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "shape": list(self.shape),
            "axes": [axis.name for axis in self.axes],
            "method": self.method,
            "workload": self.workload,
            "questions": self.questions,
            "rms": self.rms,
            "margin": self.margin(confidence),
            "most_margin": self.most_margin(confidence),
            "noise_margin": self.noise_margin(confidence),
            "share_margin": self.share_margin(confidence),
            "level_margins": self.level_margins(confidence),
        }
