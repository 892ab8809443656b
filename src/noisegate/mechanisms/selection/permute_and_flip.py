"""Permute-and-flip: a choice by score that is never worse than the exponential mechanism's.

Visit the candidates in random order and accept o with probability e^(factor · (score(o) - best)).
It equals the largest score after exponential noise [DKXWZ21], which is how it is drawn.
"""

from fractions import Fraction
from typing import ClassVar, final

from noisegate.frozen import dataclass
from noisegate.mechanisms.selection.scores import OneByScore, clamped_scores
from noisegate.noise.bits import SYSTEM, Bits
from noisegate.noise.choice import Contest, choose_times
from noisegate.noise.chunks import Int64Array
from noisegate.privacy.event import PermuteAndFlipEvent


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class PermuteAndFlip(OneByScore):
    """Chooses by score plus exponential noise of mean 1 / factor."""

    name: ClassVar[str] = "permute-and-flip/1"

    def event(self, score_sensitivity: Fraction, /) -> PermuteAndFlipEvent:
        """What one choice is.

        Claim: ε-differentially private with ε = 2 · factor · Δ, or factor · Δ if monotone. Its
            log-ratios may span 2ε, so bounds for the exponential mechanism's range do not apply.
        Adjacency: that of ``score_sensitivity``; monotone scores are a claim for add/remove.
        Why: [MS20, Thm 1]. Fix the other candidates' noise: o wins if its own noise passes a bar,
            which moves by at most 2Δ (by Δ if monotone), and exponential noise forgets.
        Rounding: none.
        """
        return PermuteAndFlipEvent(epsilon=self.price(score_sensitivity))

    def uses(self, exact: Int64Array, count: int, *, bits: Bits = SYSTEM) -> Int64Array:
        """The position of the chosen candidate, given all scores (clamped to ±2**60)."""
        contest = Contest(clamped_scores(exact), self.factor)
        return choose_times(contest, count, noise="exponential", bits=bits)
