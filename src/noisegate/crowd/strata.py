"""Samples that take some people more often than others: by a declared key, their stratum."""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from math import prod
from typing import Any, TypeAlias

from noisegate.accounting.biased import biased_crowd, biased_delta
from noisegate.accounting.crowd import histogram_delta, least_crowd
from noisegate.crowd.blending import solved
from noisegate.errors import SpecError
from noisegate.exact import Number, fraction, shown
from noisegate.mechanisms.additive.biased_crowd import BiasedCrowd
from noisegate.mechanisms.additive.crowd_counts import CrowdCounts
from noisegate.privacy.loss import ApproxDP
from noisegate.releases.cells.axes import Axis
from noisegate.sql.laws.sampling import chance_of

Bias: TypeAlias = Mapping[str, Mapping[str, Number]]  # by a column, its keys' probabilities
Noise: TypeAlias = CrowdCounts | BiasedCrowd


def column_of(bias: Bias) -> str:
    """The one column that the probabilities follow from."""
    if len(bias) != 1 or not all(isinstance(each, Mapping) and each for each in bias.values()):
        raise SpecError(
            "A biased sample follows one column.",
            fix='For example: biased={"ward": {"west": "1/2"}}; all others have the probability.',
            about="biased",
        )
    return str(next(iter(bias)))


def strata_of(bias: Bias, axes: Sequence[Axis], usual: Fraction) -> tuple[int, list[Fraction]]:
    """The place of the column among the axes, and the probability of each of its keys."""
    column = column_of(bias)
    place = next((at for at, axis in enumerate(axes) if axis.name == column), None)
    if place is None:
        raise SpecError(
            f"The question does not group by {column!r}.",
            fix="With SQL, group by the column of the strata, or give columns= instead.",
            about="biased",
        )
    said: dict[Any, Number] = {str(key): chance for key, chance in bias[column].items()}
    keys = [label if key is not None else None for key, label in _labelled(axes[place])]
    if unknown := said.keys() - set(keys):
        raise SpecError(
            f"{column!r} has no declared group {min(unknown)!r}.",
            fix=f"Its groups: {', '.join(str(key) for key in keys[:20] if key is not None)}.",
            about="biased",
        )
    return place, [chance_of(said[key]) if key in said else usual for key in keys]


def _labelled(axis: Axis) -> list[tuple[Any, str]]:
    return list(zip(axis.keys, axis.labels, strict=True))


def biased_noise(
    strata: tuple[int, list[Fraction]],
    sizes: Sequence[int],
    *,
    apart: bool,
    crowd: int | None,
    epsilon: Fraction | None,
    delta: Fraction | None,
) -> BiasedCrowd:
    """The mechanism of a biased sample; two of crowd, ε and δ are given, as in `solved`."""
    place, chances = strata
    least, most = min(chances), max(chances)
    merged = not apart and least < most
    if [crowd, epsilon, delta].count(None) != 1:
        solved(least, crowd=crowd, epsilon=epsilon, delta=delta)  # refuses
    if epsilon is None and merged:
        raise SpecError(
            "A biased sample whose strata are not shown needs an ε.",
            fix="Give epsilon and the crowd, or epsilon and delta.",
            about="biased",
        )
    if epsilon is None:
        epsilon = max(solved(p, crowd=crowd, delta=delta)[1].epsilon for p in set(chances))
    if crowd is None:
        target = ApproxDP(epsilon, delta or 0)
        apart_ones = (least_crowd(p, target) for p in set(chances))
        crowd = biased_crowd(least, most, target) if merged else max(apart_ones)
    return BiasedCrowd(
        probabilities=tuple(chances), inner=prod(sizes[place + 1 :]), apart=apart, crowd=crowd,
        epsilon=epsilon,
    )  # fmt: skip


def delta_at(noise: Noise, epsilon: Number) -> Fraction:
    """The δ of a crowd at an ε, whatever its sample. Rounding: up."""
    point = fraction(epsilon)
    if isinstance(noise, CrowdCounts):
        return histogram_delta(noise.probability, noise.crowd, point)
    chances = set(noise.probabilities)
    if noise.apart or len(chances) == 1:
        return max(histogram_delta(p, noise.crowd, point) for p in chances)
    return biased_delta(min(chances), max(chances), noise.crowd, point)


def range_of(noise: Noise) -> tuple[Fraction, Fraction]:
    """The least and the largest probability."""
    if isinstance(noise, CrowdCounts):
        return noise.probability, noise.probability
    return min(noise.probabilities), max(noise.probabilities)


def said_range(noise: Noise) -> str:
    """The probability in words; of several, their ends."""
    least, most = range_of(noise)
    return shown(least) if least == most else f"{shown(least)} to {shown(most)}"
