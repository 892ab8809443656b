"""What a robust number costs and how it would be drawn, before anything is paid."""

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final, final

from noisegate.desk.display import bare, percent
from noisegate.desk.terms import USUAL
from noisegate.exact import Number, fraction
from noisegate.inert import lines
from noisegate.mechanisms.gaussian import DiscreteGaussian
from noisegate.mechanisms.geometric import Geometric
from noisegate.mechanisms.least_sum import LeastSum
from noisegate.mechanisms.propose import ProposeTestRelease
from noisegate.mechanisms.smooth import SmoothNoise
from noisegate.privacy.loss import ApproxDP

_LAWS: Final = {
    "smooth-student/1": "Student's t",
    "smooth-laplace/1": "Laplace",
    "smooth-lognormal/1": "Laplace times lognormal",
}


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class RobustPlan:
    """Price and noise of a robust number: free, and depends on no row. ``unit`` is one step."""

    asked: str
    noise: SmoothNoise | ProposeTestRelease | LeastSum | Geometric | DiscreteGaussian
    unit: Fraction
    path: tuple[str, ...]
    price: ApproxDP
    fits: bool
    sampled: bool = False

    def margin(self, confidence: Number = USUAL) -> float | None:
        """How far the answer may be off by its noise, if known; None where that is a secret."""
        if isinstance(self.noise, SmoothNoise):
            return None
        return float(self.noise.interval(confidence) * self.unit)

    def facts(self, confidence: Number = USUAL) -> list[tuple[str, str]]:
        """The plan in two columns."""
        noise, fits = self.noise, "" if self.fits else " (more than is left)"
        lines = [("asked", self.asked), ("because", "; ".join(self.path))]
        if isinstance(noise, SmoothNoise):
            law, wide = _LAWS[noise.name], bare(float(noise.scale))
            words = f"{law}, {wide} smooth bounds wide for β = {bare(float(noise.beta))}"
            lines += [("noise", words), ("error", "a secret of the rows")]
        else:
            if isinstance(noise, ProposeTestRelease):
                far = f"seem at least {noise.threshold} steps away"
                lines.append(("test", f"released if rows where the bound fails {far}"))
            off = bare(self.margin(confidence))
            more = ", and what sampling adds" if self.sampled else ""
            lines.append(("error", f"± {off} at {percent(confidence)} confidence{more}"))
        return [*lines, ("price", f"{self.price}{fits}")]

    def to_dict(self, confidence: Number = USUAL) -> dict[str, Any]:
        """Plain values, for --json."""
        return {
            "asked": self.asked,
            "margin": self.margin(confidence),
            "confidence": float(fraction(confidence)),
            "price": float(self.price.epsilon),
            "price_delta": float(self.price.delta),
            "fits": self.fits,
        }

    def __str__(self) -> str:
        return lines("\n".join(f"{name:12}{words}" for name, words in self.facts()))
