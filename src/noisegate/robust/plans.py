"""What a robust number costs and how it would be drawn, before anything is paid."""

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final, final

from noisegate.desk.display.numbers import bare, percent
from noisegate.desk.plan import Fact
from noisegate.desk.terms.terms import USUAL
from noisegate.exact import Number
from noisegate.mechanisms.additive.gaussian import DiscreteGaussian
from noisegate.mechanisms.additive.geometric import Geometric
from noisegate.mechanisms.additive.least_sum import LeastSum
from noisegate.mechanisms.smooth.barred import Barred
from noisegate.mechanisms.smooth.propose import ProposeTestRelease
from noisegate.mechanisms.smooth.smooth import SmoothNoise

_LAWS: Final = {
    "smooth-student/1": "Student's t",
    "smooth-laplace/1": "Laplace",
    "smooth-lognormal/1": "Laplace times lognormal",
}


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class RobustExpected:
    """How a robust number would be drawn. ``unit`` is one step of the noise."""

    asked: str
    noise: SmoothNoise | Barred | ProposeTestRelease | LeastSum | Geometric | DiscreteGaussian
    unit: Fraction
    path: tuple[str, ...]
    sampled: bool = False

    def margin(self, confidence: Number = USUAL) -> float | None:
        """How far the answer may be off by its noise, if known; None where that is a secret."""
        if isinstance(self.noise, SmoothNoise | Barred):
            return None
        return float(self.noise.interval(confidence) * self.unit)

    def facts(self, confidence: Number) -> list[Fact]:
        """In words, one fact a line."""
        noise = self.noise
        lines = [("asked", self.asked), ("because", "; ".join(self.path))]
        error = "depends on the rows and is not released"
        if isinstance(noise, Barred):
            noise, error = noise.noise, "depends on the rows; a bound on it is released beside it"
        if isinstance(noise, SmoothNoise):
            law, wide = _LAWS[noise.name], bare(float(noise.scale))
            words = f"{law}, {wide} smooth bounds wide for β = {bare(float(noise.beta))}"
            lines += [("noise", words), ("error", error)]
        else:
            if isinstance(noise, ProposeTestRelease):
                far = f"seem at least {noise.threshold} steps away"
                lines.append(("test", f"released if rows where the bound fails {far}"))
            off = bare(self.margin(confidence))
            more = ", and what sampling adds" if self.sampled else ""
            lines.append(("error", f"± {off} at {percent(confidence)} confidence{more}"))
        return lines

    def margins(self, confidence: Number) -> dict[str, float | None]:
        """The ± of the number by its noise; None where that is a secret."""
        return {self.asked: self.margin(confidence)}

    def to_dict(self, confidence: Number) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {"asked": self.asked, "margin": self.margin(confidence)}
