"""Counts of a secret sample that takes some people more often than others, small ones not shown.

Surveys sample small groups more densely. Here the chance of a person follows from a declared key,
its stratum: one of the table's own axes (``apart``), or one that the table does not show.

>>> counts = BiasedCrowd(probabilities=("1/2", "1/10"), inner=1, apart=True, crowd=90, epsilon=1)
>>> counts.sample(np.array([3, 80]))
array([0, 0])
>>> [each.probability for each in counts.event(L1(1)).events]
[Fraction(1, 2), Fraction(1, 10)]
"""

from fractions import Fraction
from typing import ClassVar, Final, final

import numpy as np

from noisegate.accounting.biased import biased_delta
from noisegate.accounting.crowd import CROWD_MAX, EPSILON_MAX
from noisegate.errors import SpecError, Unsupported
from noisegate.exact import positive
from noisegate.frozen import dataclass
from noisegate.mechanisms.additive.crowd_counts import CrowdCounts
from noisegate.mechanisms.base import Mechanism, Takes, require_whole, store, store_positive
from noisegate.noise.bits import SYSTEM, Bits
from noisegate.noise.chunks import Int64Array
from noisegate.privacy.distance import L1
from noisegate.privacy.event import CrowdCountsEvent, DeclaredEvent, Event, Parallel
from noisegate.transforms.query import Query

STRATA_MAX: Final = 1_000


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class BiasedCrowd(Mechanism[L1]):
    """Shows how many of each cell are in a sample with a probability for each stratum.

    Strata repeat along the cells, each for ``inner`` cells. If they are ``apart``, each cell is of
    one stratum and shown by itself. Else ``inner`` is 1, and the strata of each run of cells are
    added up: the sum stands in the first of them, and the others are 0.
    """

    name: ClassVar[str] = "biased-crowd/1"
    takes: ClassVar[Takes] = Takes.L1
    probabilities: tuple[Fraction, ...]
    inner: int
    apart: bool
    crowd: int
    epsilon: Fraction

    def __post_init__(self) -> None:
        chances = tuple(positive(each, name="probability") for each in self.probabilities)
        if not 1 <= len(chances) <= STRATA_MAX or max(chances) >= 1:
            raise SpecError(
                "The sampling probabilities are out of range.",
                fix=f"Use 1 to {STRATA_MAX:,} of them, each above 0 and below 1.",
                about="sample",
            )
        store(self, "probabilities", chances)
        store_positive(self, "epsilon", most=Fraction(EPSILON_MAX))
        require_whole(self, "crowd", least=1, most=CROWD_MAX)
        require_whole(self, "inner", least=1, most=1 << 40)
        if not self.apart and self.inner != 1:
            raise SpecError("Strata that are added up stand together.", fix="Use inner=1.")

    def require(self, query: Query, place: int) -> None:
        """As for one probability; and strata that go through the cells without a rest."""
        self._of(self.probabilities[0]).require(query, place)
        if query.tally.cells % (len(self.probabilities) * self.inner):  # type: ignore[union-attr]
            raise Unsupported(
                "The strata do not fit the cells.",
                fix="Give a probability for each key of one axis.",
                about="strata",
            )

    def event(self, sensitivity: L1, /) -> Event:
        """What one use is.

        Claim: of strata that are apart, the largest of their curves (`histogram_delta`): cells of
            different strata hold different people, by a declared key. Of strata that are added
            up, (ε, δ) with the δ of `accounting.biased.biased_delta`, rounded up.
        Adjacency: add/remove one person, who is in one cell and one stratum at most, once.
        Why: the coins are independent, each with a probability of the list [GHLP12].
        """
        if sensitivity.value != 1:
            raise SpecError(
                "In a crowd everybody has exactly one row.", fix="Count one row per unit."
            )
        chances = list(dict.fromkeys(self.probabilities))
        if self.apart or len(chances) == 1:
            events = tuple(
                CrowdCountsEvent(probability=each, crowd=self.crowd, epsilon=self.epsilon)
                for each in chances
            )
            return Parallel(events=events)
        delta = biased_delta(min(chances), max(chances), self.crowd, self.epsilon)
        if delta >= 1:
            raise SpecError(
                "At this ε and crowd, such a biased sample promises nothing.",
                fix="Use a larger ε or crowd, or probabilities that differ less.",
                about="sample",
            )
        return DeclaredEvent(epsilon=self.epsilon, delta=delta)

    def sample(self, exact: Int64Array, *, bits: Bits = SYSTEM) -> Int64Array:
        """The counts of a fresh sample."""
        count = len(self.probabilities)
        cells = exact.reshape(-1, count, self.inner)
        found = np.zeros_like(cells)
        for stratum, chance in enumerate(self.probabilities):
            drawn = self._of(chance, crowd=1).sample(cells[:, stratum].ravel(), bits=bits)
            found[:, stratum] = drawn.reshape(-1, self.inner)
        if not self.apart:
            found[:, 0] = found.sum(axis=1)
            found[:, 1:] = 0
        return np.where(found >= self.crowd, found, 0).reshape(exact.shape)

    def _of(self, chance: Fraction, crowd: int | None = None) -> CrowdCounts:
        return CrowdCounts(probability=chance, crowd=crowd or self.crowd, epsilon=self.epsilon)
