"""A released table: numbers that stay, to be asked, drawn, saved and read again at no cost.

Before it is released, `TableExpected` says method and predicted error, made without a row.
"""

from base64 import b64decode, b64encode
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from math import ceil, prod
from pathlib import Path
from typing import Any, ClassVar, Final, final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from noisegate.desk.answer import Answer, HalfWidths
from noisegate.desk.display.numbers import percent, with_margin
from noisegate.desk.plan import Fact
from noisegate.desk.release import ENDINGS, Charged, loading, read_held
from noisegate.errors import SpecError
from noisegate.exact import Number as Numeric
from noisegate.exact import fraction
from noisegate.mechanisms.base import failure_of
from noisegate.releases.ask.transcript import pack, unpack
from noisegate.releases.cells.axes import Axis, keys_of, runs_of
from noisegate.releases.cells.estimate import Floats, Predicted, Side, reach, tail_factor
from noisegate.releases.cells.workload import Workload, cells
from noisegate.releases.fit.plausible import FAILURE
from noisegate.releases.forms.provenance import Making

FORMAT: Final = "noisegate-release/1"
_MAPS: Final = (".geojson", ".geoparquet")
_CAUTION: Final = 1.2  # a model is not the truth


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Number:
    """A sum of released cells. The exact one lies within ± ``margin``, at the ``confidence``.

    ``margin`` is None where it is not known; ``why`` says why.
    """

    value: int | float
    margin: int | float | None
    confidence: Fraction
    why: str | None = None

    def __int__(self) -> int:
        return int(self.value)

    def __float__(self) -> float:
        return float(self.value)

    def __str__(self) -> str:
        shown = with_margin(self.value, self.margin)
        return shown if self.why is None else f"{shown} because {self.why}"


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class TableRelease(Charged):
    """Released numbers over the cells of ``axes``. Reading it again costs nothing."""

    kind: ClassVar[str] = "release"
    form: ClassVar[str] = FORMAT
    endings: ClassVar[tuple[str, ...]] = (*ENDINGS, *_MAPS)
    axes: tuple[Axis, ...]
    values: NDArray[Any]
    value: str
    making: Making
    words: tuple[str, ...]

    def __post_init__(self) -> None:
        own = np.array(self.values)
        own.flags.writeable = False
        object.__setattr__(self, "values", own)

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of keys of each axis."""
        return tuple(axis.size for axis in self.axes)

    @property
    def method(self) -> str:
        """The recipe that made it."""
        return self.making.method

    @property
    def total(self) -> Number:
        """The sum of all cells."""
        return self.query()

    # asking

    def query(self, confidence: Numeric = 0.95, /, **where: Any) -> Number:  # noqa: ANN401
        """The sum over some cells, free: ``release.query(age=(20, 39), ward=["north", "west"])``.

        By the name of an axis: a key, a list of keys, or a pair (low, high) with both ends inside.
        Axes that are not named are summed over.
        """
        boxes = np.array(list(product(*runs_of(self.axes, where))), np.int64).reshape(
            -1, len(self.axes), 2
        )
        asked = Workload(self.shape, boxes[:, :, 0], boxes[:, :, 1], "a query")
        found = sum(asked.answers(self.values).tolist())
        widths = self.widths(asked, confidence, together=True)
        return Number(
            value=round(found) if self.making.whole else found,
            margin=None if widths is None else widths[0],
            confidence=fraction(confidence),
            why=self.making.unknown if widths is None else None,
        )

    def margins(self, confidence: Numeric = 0.95) -> NDArray[Any] | None:
        """The ± of every cell, each by itself; NaN where it depends on the rows.

        None where it does so everywhere.
        """
        widths = self.widths(cells(self.shape), confidence)
        if widths is None:
            return None
        kind = np.float64 if None in widths or not self.making.whole else np.int64
        return np.array(widths, kind).reshape(self.shape)

    def widths(
        self, asked: Workload, confidence: Numeric, *, together: bool = False
    ) -> list[Any] | None:
        """Half-widths around the released sums, of each box or of all together; None: not known.

        Where the recipe knows the noise of a sum, see `_by_noise`; where it depends on the rows, a
        model of them tells, see `_by_model`. Of a sample, half of the failure is for that, and half
        for what sampling adds. Rounding: up.
        """
        failure, sampling = float(failure_of(confidence)), self.making.sampling
        failure = failure if sampling is None else failure / 2
        half = self._by_noise(asked, failure, together=together)
        unknown = ~np.isfinite(half)
        if unknown.any():
            half = np.where(unknown, self._by_model(asked, failure, together=together), half)
        if not np.isfinite(half).any():
            return None
        if sampling is not None:
            shown = asked.answers(self.values)
            half = sampling.widened(shown.sum(keepdims=True) if together else shown, half, failure)
        known = [each if np.isfinite(each) else None for each in half.tolist()]
        if not self.making.whole:
            return known
        return [None if each is None else ceil(each - 1e-9) for each in known]

    def _by_noise(self, asked: Workload, failure: float, *, together: bool) -> Floats:
        """Half-widths by the noise; infinite where more than that counts.

        Claim: the exact sum lies within, but for the failure. Why: the estimate before mending is
            the exact sum plus noise of the stated variance, a sum of draws: see `reach`. Where one
            is not above it and another not below it, each is beyond in one direction only, for half
            of the failure, as the noise is symmetric. What mending did is added; numbers that
            cannot be negative end at 0, but no ± is below half of the noise's.
        """
        making = self.making
        estimate = making.estimate(self.shape)
        if estimate.between is not None:
            sides = estimate.between(asked.lows, asked.highs)
        elif estimate.variance is not None:
            variance = np.asarray(estimate.variance(asked.lows, asked.highs), np.float64)
            sides = (Side(asked.answers(estimate.cells), variance),) * 2
        else:
            return np.full(1 if together else asked.size, np.inf)
        far = [reach(side.variance, failure, making.price, making.moved) for side in sides]
        ends = sides[0].sums - far[0], sides[1].sums + far[1]
        return self._half(asked, ends, (far[0] + far[1]) / 4, together=together)

    def _by_model(self, asked: Workload, failure: float, *, together: bool) -> Floats:
        """Half-widths where the rows count: by the recipe's own model, or by tables that could be.

        By the recipe's own, as many root mean square distances as for noise, and a fifth more, as
        no model is the truth. By drawn tables, as many as hold for the release as a whole: see
        `Plausible.factor`; at other confidences in proportion to noise. Infinite where there is no
        model.
        """
        making = self.making
        guess, half = making.estimate(self.shape).guess, np.full(1, np.inf)
        if guess is not None:
            sums, spread, seen = guess(asked.lows, asked.highs)
            far = spread * model_factor(failure, seen)
            half = self._half(asked, (sums - far, sums + far), far / 2, together=together)
        if np.isfinite(half).all():
            return half
        model = making.plausible(self.shape)
        if model is None:
            other = self._by_covers(asked, failure, together=together)
        else:
            shown = asked.answers(self.values)
            spread = model.spread(asked, shown, float(making.grain), together=together)
            tail, usual = (tail_factor(each, gaussian=False) for each in (failure, FAILURE))
            other = spread * (making.factor(model, self.values) * tail / usual)
        return np.where(np.isfinite(half), half, other)

    def _by_covers(self, asked: Workload, failure: float, *, together: bool) -> Floats:
        """Half-widths by what boxes hold at least and at most; infinite where nothing is covered.

        Claim: the exact sums lie within, but for the failure. Why: see `covers`; each cover may
            fail for its part, in one direction for half of that, as the noise is symmetric.
        """
        making = self.making
        found = making.covers(self.shape)
        part = failure / max(1, len(found)) / (asked.size if together else 1)
        low, high = np.full(asked.size, -np.inf), np.full(asked.size, np.inf)
        for cover in found:
            least, most = cover.between(asked)
            far = [reach(each.variance, part, making.price, making.moved) for each in (least, most)]
            low = np.maximum(low, least.sums - far[0])
            high = np.minimum(high, most.sums + far[1])
        return self._half(asked, (low, high), np.zeros(asked.size), together=together)

    def _half(
        self, asked: Workload, ends: tuple[Floats, Floats], least: Floats, *, together: bool
    ) -> Floats:
        """How far the ends, in grains, are from what is shown, or the least; infinite stays so."""
        grain, shown = float(self.making.grain), asked.answers(self.values)
        low, high, least = ends[0] * grain, ends[1] * grain, least * grain
        if together:  # several boxes may be off the same way
            low, high, least, shown = (e.sum(keepdims=True) for e in (low, high, least, shown))
        if not self.making.signed:
            low, high = np.maximum(low, 0), np.maximum(high, 0)
        return np.maximum(np.maximum(high - shown, shown - low), least)

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


def model_factor(failure: float, draws: int) -> float:
    """How many of a model's deviations, known from so many draws, count as a ±."""
    from scipy.special import stdtrit  # noqa: PLC0415 - slow to load

    few = float(-stdtrit(draws, failure / 2)) / tail_factor(failure, gaussian=True)
    return _CAUTION * few * tail_factor(failure, gaussian=False)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class TableExpected(Predicted):
    """What would be released, by which method, and how far it may be off: see `Predicted`.

    Errors are in the units of the sum, over the ``questions`` of the workload. Of errors that a
    release knows from ``seen`` numbers alone it states a wider ±.
    """

    axes: tuple[Axis, ...]
    method: str
    workload: str
    questions: int
    gaussian: bool

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
