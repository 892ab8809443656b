"""Events that are fixed before any run: where exact laws say that runs will tell most.

The law of smooth noise is known: its distribution function, at the width and the place that the
rows of each neighbour give. So no run is spent on learning, and how much of a claim an event can
reach, and how likely a broken copy is missed, are sums of that law and not estimates.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import log
from typing import Final, final

import numpy as np

from noisegate.audit.bounds import as_outputs
from noisegate.audit.confidence import Floats, epsilon_lower
from noisegate.audit.runs import Draw
from noisegate.mechanisms.smooth.smooth import SmoothNoise

_BINS: Final = 4000
_WIDTHS: Final = 40.0  # how far out outputs are told apart


@final
@dataclass(frozen=True, slots=True, eq=False)
class Region:
    """Some of many intervals of outputs; each holds its upper end."""

    ends: Floats
    kept: np.ndarray
    column: int = 0

    def __call__(self, outputs: Floats) -> Floats:
        """Positive where it occurs."""
        return self.kept[np.searchsorted(self.ends, outputs[:, self.column])].astype(np.float64)

    def chance(self, noise: SmoothNoise, row: tuple[int, ...]) -> float:
        """How likely it is, exactly but for doubles, for a number and its reaches."""
        return float(_masses(noise, row, self.ends)[self.kept].sum())


def best_region(
    pair: tuple[SmoothNoise, SmoothNoise],
    rows: tuple[tuple[int, ...], tuple[int, ...]],
    claims: Mapping[float, float],
    *,
    trials: int,
    alpha: float = 1e-8,
) -> tuple[Region, float]:
    """The event by which a broken copy is caught most surely, and its share of the honest claim.

    That is where the bound to be expected of so many runs, less four standard errors, is highest
    for the second of the pair. Where there are several claims, it is for the first. Why: by Neyman
    and Pearson it holds the outputs whose likelihood ratio is above some number.
    """
    delta, ends = next(iter(claims)), _ends(pair[0], rows)
    first, second = (_masses(pair[1], row, ends) for row in rows)
    with np.errstate(divide="ignore", invalid="ignore"):
        order = np.argsort(-np.nan_to_num(np.log(first / second), nan=-np.inf), kind="stable")
    p, q = (np.clip(np.cumsum(each[order]), 1e-300, 1) * trials for each in (first, second))
    found = epsilon_lower(p, q, trials=trials, alpha=alpha, delta=delta)
    most = int((found - 4 * np.sqrt(1 / p + 1 / q)).argmax())
    kept = np.zeros(ends.size + 1, np.bool_)
    kept[order[: most + 1]] = True
    region = Region(ends, kept)
    own = [region.chance(pair[0], row) for row in rows]
    shares = (log((own[0] - delta) / own[1]) / claim for delta, claim in claims.items())
    return region, max(shares)


@final
@dataclass(frozen=True, slots=True)
class AtLeast:
    """The first number is this or more."""

    value: float

    def __call__(self, outputs: Floats) -> Floats:
        """Positive where it occurs."""
        return (outputs[:, 0] >= self.value).astype(np.float64)


def best_threshold(
    draws: tuple[Draw, Draw], claims: Mapping[float, float], *, trials: int, alpha: float = 1e-8
) -> AtLeast:
    """Where to cut a likelihood ratio, so that a broken copy is caught most surely.

    As in `best_region`, from runs of that copy that are not counted, a fifth of as many.
    """
    (delta,) = claims
    first, second = (np.sort(as_outputs(draw(trials // 5))[:, 0]) for draw in draws)
    at = np.unique(first)
    at = at[np.linspace(0, at.size - 1, min(at.size, _BINS)).astype(np.int64)]
    p, q = (
        (each.size - np.searchsorted(each, at - 1e-9) + 0.5) * trials / (each.size + 1)
        for each in (first, second)
    )
    found = epsilon_lower(p, q, trials=trials, alpha=alpha, delta=delta)
    return AtLeast(float(at[int((found - 4 * np.sqrt(1 / p + 1 / q)).argmax())]) - 1e-9)


def _ends(noise: SmoothNoise, rows: tuple[tuple[int, ...], tuple[int, ...]]) -> Floats:
    """Whole numbers on both sides of both numbers, as far out as is told apart."""
    far = _WIDTHS * max(float(noise.width(row[1:])) for row in rows)
    low = max(min(row[0] for row in rows) - far, noise.low)
    high = min(max(row[0] for row in rows) + far, noise.high - 1)
    return np.unique(np.rint(np.linspace(low, high, _BINS)))


def _masses(noise: SmoothNoise, row: tuple[int, ...], ends: Floats) -> Floats:
    """How likely each interval is; what is kept inside the range falls into the outer two."""
    x = (ends + 0.5 - row[0]) / float(noise.width(row[1:]))
    tail = noise.shape.tail(-np.abs(x), upper=False)
    below = np.concatenate([[0.0], np.where(x < 0, tail, 1 - tail), [1.0]])
    return np.diff(below)
