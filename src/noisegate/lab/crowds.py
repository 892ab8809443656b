"""The same table of counts by five ways of protecting it, at matched parameters.

The counts are in the open: this is for made-up or public ones.

>>> found = compare([400, 90, 6, 1], probability="1/2", crowd=20, delta="1e-5", trials=20)
>>> [each.name for each in found][:3]
['k-anonymity', 'crowd-blending', 'crowd-blending on a secret sample']
>>> found[2].of_sample, found[2].hidden >= 2
(0.0, True)
"""

from collections.abc import Callable
from fractions import Fraction
from typing import Final, TypeAlias, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from noisegate.accounting.amplification import inner_epsilon_down
from noisegate.crowd.blending import solved
from noisegate.errors import SpecError
from noisegate.exact import Number, fraction
from noisegate.frozen import dataclass
from noisegate.mechanisms.additive.crowd_counts import CrowdCounts
from noisegate.mechanisms.additive.geometric import Geometric
from noisegate.privacy.distance import L1

Counts: TypeAlias = NDArray[np.int64]
Protect: TypeAlias = Callable[[Counts], Counts]
NO_PROMISE: Final = "none"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """A way of protecting a table, and what it made of it.

    Errors are root mean squares over the counts that a crowd shows with near certainty:
    ``of_sample`` of what was counted, ``of_people`` of all people. ``small`` is that of all other
    counts, of all people; what is hidden counts as 0. ``hidden`` is how many are, on average.
    ``numbers`` are those of one trial.
    """

    name: str
    promise: str
    of_sample: float
    of_people: float
    small: float
    hidden: float
    numbers: tuple[float, ...]


def compare(
    counts: ArrayLike, *, probability: Number, crowd: int, delta: Number, trials: int = 200
) -> list[Way]:
    """All ways, with real coins and noise. The ε is that of the crowd at δ, for all that have one.

    On a sample, a crowd's large counts are what was counted, and noise of the same price is not;
    as estimates of all people both have the error of sampling. Noise on all rows has none, and wins
    wherever all rows may be used.
    """
    cells = np.asarray(counts, np.int64).reshape(-1)
    if not cells.size or cells.min() < 0 or trials < 1:
        raise SpecError("There is nothing to compare.", fix="Give counts, and at least one trial.")
    p = fraction(probability, name="probability")
    _, loss = solved(p, crowd=crowd, delta=fraction(delta, name="delta"))
    inner = inner_epsilon_down(loss.epsilon, probability=p)
    everybody = Fraction(1)
    price = f"ε = {float(loss.epsilon):.4g}"
    blending = f"({crowd}, 0)-crowd-blending, no (ε, δ)"

    def hide(sample: Counts) -> Counts:
        return np.where(sample >= crowd, sample, 0)

    tried = _Trial(cells, cells * float(p) >= crowd + 4 * crowd**0.5, trials)
    return [
        tried.way("k-anonymity", NO_PROMISE, everybody, hide, hides=True),
        tried.way("crowd-blending", blending, everybody, hide, hides=True),
        tried.way("crowd-blending on a secret sample", str(loss), p, hide, hides=True),
        tried.way("noise on a secret sample", price, p, _noise(inner)),
        tried.way("noise on all rows", price, everybody, _noise(loss.epsilon)),
    ]


@final
@dataclass(frozen=True, slots=True)
class _Trial:
    cells: Counts
    surely: NDArray[np.bool_]
    trials: int

    def way(
        self, name: str, promise: str, p: Fraction, protect: Protect, *, hides: bool = False
    ) -> Way:
        samples = [self.cells] * self.trials
        if p < 1:  # a sample is a crowd of one, all of it shown
            coins = CrowdCounts(probability=p, crowd=1, epsilon=Fraction(1))
            samples = [coins.sample(self.cells) for _ in range(self.trials)]
        drawn = np.stack([protect(sample) for sample in samples])
        of_sample = ((drawn - np.stack(samples)) / float(p)) ** 2
        of_people = (drawn / float(p) - self.cells) ** 2
        return Way(
            name=name,
            promise=promise,
            of_sample=_root(of_sample[:, self.surely]),
            of_people=_root(of_people[:, self.surely]),
            small=_root(of_people[:, ~self.surely]),
            hidden=float((drawn == 0).sum(axis=1).mean()) if hides else 0.0,
            numbers=tuple((drawn[0] / float(p)).tolist()),
        )


def _noise(epsilon: Fraction) -> Protect:
    noise = Geometric.for_epsilon(epsilon, sensitivity=L1(1))
    return lambda sample: np.maximum(noise.sample(sample), 0)


def _root(squares: NDArray[np.float64]) -> float:
    return float(squares.mean() ** 0.5) if squares.size else 0.0


def made_up(people: int, cells: int) -> Counts:
    """Counts that fall like one over their rank, as those of towns and names do."""
    if people < 1 or cells < 1:
        raise SpecError(
            "There are no people or no groups.", fix="Use at least one person and one group."
        )
    ranks = 1 / np.arange(1, cells + 1)
    counts: Counts = np.floor(people * ranks / ranks.sum()).astype(np.int64)
    return counts
