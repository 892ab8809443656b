"""A release before it is paid for: price, method and predicted error. Made without a row."""

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, final

from noisegate.exact import Number
from noisegate.mechanisms.base import failure_of
from noisegate.privacy.loss import ApproxDP
from noisegate.query.display import percent
from noisegate.releases.axes import Axis
from noisegate.releases.tails import tail_factor


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ReleasePlan:
    """What would be released, by which method, for what, and how far it may be off.

    ``rms`` is the root mean square error over the ``questions`` of the workload, before numbers are
    mended; None where it depends on the rows, and then ``words`` say on what. ``price`` is what
    releasing now would charge: 0 where it was released before.
    """

    sql: str
    axes: tuple[Axis, ...]
    method: str
    workload: str
    questions: int
    epsilon: Fraction
    price: ApproxDP
    fits: bool
    rms: float | None
    gaussian: bool
    words: tuple[str, ...] = ()

    @property
    def shape(self) -> tuple[int, ...]:
        """How many keys each axis has."""
        return tuple(axis.size for axis in self.axes)

    def margin(self, confidence: Number = 0.95) -> float | None:
        """The ± to expect of a usual question of the workload."""
        if self.rms is None:
            return None
        return self.rms * tail_factor(float(failure_of(confidence)), gaussian=self.gaussian)

    def facts(self, confidence: Number = 0.95) -> list[tuple[str, str]]:
        """The plan in words, one fact a line."""
        size = " × ".join(f"{size:,}" for size in self.shape)
        lines = [("cells", f"{size}, by {', '.join(axis.name for axis in self.axes)}")]
        lines.append(("method", self.method))
        lines.append(("for", f"{self.workload} ({self.questions:,} questions)"))
        width = self.margin(confidence)
        sure = f"at {percent(confidence)} confidence for each question"
        lines.append(
            ("error", "depends on the rows" if width is None else f"about ± {width:.3g} {sure}")
        )
        lines += [("mind", words) for words in self.words]
        paid = f"{self.price}" + ("" if self.fits else " (more than is left)")
        free = self.price.epsilon == 0 and self.price.delta == 0
        lines.append(("price", "free: released before" if free else paid))
        return lines

    def to_dict(self, confidence: Number = 0.95) -> dict[str, Any]:
        """Plain values, for --json."""
        return {
            "sql": self.sql,
            "shape": list(self.shape),
            "axes": [axis.name for axis in self.axes],
            "method": self.method,
            "workload": self.workload,
            "questions": self.questions,
            "epsilon": float(self.epsilon),
            "price": float(self.price.epsilon),
            "price_delta": float(self.price.delta),
            "fits": self.fits,
            "rms": self.rms,
            "margin": self.margin(confidence),
            "confidence": float(confidence),
            "words": list(self.words),
        }

    def __str__(self) -> str:
        return "\n".join(f"{name:10}{fact}" for name, fact in self.facts())

    def _repr_html_(self) -> str:
        from noisegate.query.display import facts_html  # noqa: PLC0415 - notebooks only

        return facts_html(self.facts())
