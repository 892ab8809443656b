"""How guesses of tables become whole numbers that the door can compare with the rows.

>>> scores = distances_of({(0,): np.array([1.5, 2.25])})
>>> scores.fine, np.frombuffer(scores.guesses[0], "<i8").tolist()
(256, [384, 576])
"""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final, final

import numpy as np
from numpy.typing import NDArray

from noisegate.desk.price import Price, require_shares, variance_of
from noisegate.errors import SpecError
from noisegate.mechanisms.base import NoiseMechanism
from noisegate.privacy.distance import L1, L2
from noisegate.releases.ask.asking import Noisy
from noisegate.releases.cells.estimate import Floats
from noisegate.releases.fit.residuals import Axes, Sizes
from noisegate.transforms.distances import GUESS_MAX, WEIGHT_MAX, Distances

FINE: Final = 256  # guesses are rounded to this part of a grain


def distances_of(
    guesses: Mapping[Axes, Floats],
    *,
    weights: Mapping[Axes, Fraction] | None = None,
    less: Mapping[Axes, float] | None = None,
) -> Distances:
    """The question how far each guess is off; weights keep their ratios to a part in a million."""
    most = max((weights or {}).values(), default=Fraction(1))
    if any(weight <= 0 for weight in (weights or {}).values()):
        raise SpecError(
            "A weight is not above 0.", fix="Leave out sets without weight.", about="weight"
        )
    return Distances.of(
        [_whole(guess) for guess in guesses.values()],
        weights=None if weights is None else [_weight(weights[axes] / most) for axes in guesses],
        less=None if less is None else [int(_whole(np.array([less[axes]]))[0]) for axes in guesses],
        fine=FINE,
    )


def coarse(values: NDArray[np.int64], noise: NoiseMechanism[Any]) -> Noisy:
    """Noisy distances in grains again, rounded."""
    rounded = np.rint(values / FINE).astype(np.int64)
    return Noisy(rounded, variance_of(noise) / FINE**2 + 1 / 12)


def distance_variance(price: Price, count: int, share: Fraction, *, moved: Fraction) -> float:
    """The variance of each of ``count`` distances, where a unit moves a table by ``moved``."""
    reach = moved * FINE
    query = Moved((L1(count * reach),), (L2(squared=count * reach**2),))
    (noise,) = price.noise(query, require_shares([share]))  # type: ignore[arg-type]
    return coarse(np.zeros(count, np.int64), noise).variance


@final
@dataclass(frozen=True, slots=True)
class Moved:
    """The part of a query that prices look at."""

    l1s: tuple[L1, ...]
    l2s: tuple[L2, ...]


def require_axes(axes: Axes, sizes: Sizes) -> None:
    """Columns that exist, in ascending order."""
    known = list(axes) == sorted(set(axes)) and set(axes) <= set(range(len(sizes)))
    if type(axes) is not tuple or not known:
        raise SpecError("These are not columns.", fix="List their numbers in ascending order.")


def _weight(part: Fraction) -> int:
    return max(1, round(part * WEIGHT_MAX))


def _whole(values: Floats) -> NDArray[np.int64]:
    scaled = np.rint(np.ravel(values) * FINE)
    if not np.isfinite(scaled).all():
        raise SpecError("A guess is not finite.", fix="Check the model.", about="finite")
    return np.clip(scaled, -GUESS_MAX, GUESS_MAX).astype(np.int64)
