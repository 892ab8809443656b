"""A table before it is released: method and predicted error. Made without a row."""

from dataclasses import dataclass
from typing import Any, final

from noisegate.desk.display.numbers import percent
from noisegate.desk.plan import Fact
from noisegate.exact import Number
from noisegate.mechanisms.base import failure_of
from noisegate.releases.cells.axes import Axis
from noisegate.releases.cells.estimate import Predicted
from noisegate.releases.cells.tails import tail_factor
from noisegate.releases.forms.table import model_factor


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

    def margin(self, confidence: Number = 0.95) -> float | None:
        """The ± to expect of a usual question of the workload."""
        return self._margin(self.rms, confidence)

    def most_margin(self, confidence: Number = 0.95) -> float | None:
        """The ± that a usual question hardly exceeds, whatever the rows are."""
        return self._margin(self.most, confidence)

    def noise_margin(self, confidence: Number = 0.95) -> float | None:
        """The ± that noise alone gives a usual question."""
        return self._margin(self.noise, confidence)

    def level_margins(self, confidence: Number = 0.95) -> list[float]:
        """The ± of a sum of each level of a hierarchy, from single keys to all."""
        return [self._margin(each, confidence) or 0.0 for each in self.levels]

    def share_margin(self, confidence: Number = 0.95) -> float | None:
        """The ± that a usual question hardly exceeds, as a part of the total."""
        most = self._margin(self.share, confidence)
        return None if most is None else min(1.0, most)

    def _margin(self, rms: float | None, confidence: Number) -> float | None:
        if rms is None:
            return None
        failure = float(failure_of(confidence))
        if self.seen is not None:
            return rms * model_factor(failure, self.seen)
        return rms * tail_factor(failure, gaussian=self.gaussian)

    def margins(self, confidence: Number) -> dict[str, float | None]:
        """The ± of a usual question of the workload; None where it depends on the rows."""
        return {self.workload: self.margin(confidence)}

    def facts(self, confidence: Number) -> list[Fact]:
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

    def _error(self, confidence: Number) -> str:
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

    def to_dict(self, confidence: Number) -> dict[str, Any]:
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
