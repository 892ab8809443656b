"""Maximum likelihood in an exponential family of one's own: noisy means of its statistics, solved.

    fit_likelihood(gate, ["LN(cost / 100)", "cost / 100"], gamma, start=[1, -1], epsilon=1)

The density is e^(θ·T(x) - A(θ)) times a base measure. The likelihood of the rows is highest where
the gradient of A is the mean of T, and that mean is all that is asked of the rows. The rest is
arithmetic on what was released, so ``log_partition`` may be any program: it sees no row.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from statistics import NormalDist
from typing import Any, Final, Protocol, final

import numpy as np

from noisegate.errors import SpecError
from noisegate.exact import Number
from noisegate.learners.asking import Floats
from noisegate.learners.expectations import USUAL, Expectations
from noisegate.mechanisms.base import failure_of
from noisegate.privacy.guarantee import Guarantee
from noisegate.privacy.loss import ApproxDP

LogPartition = Callable[[Floats], float]
_STEP: Final = 1e-4  # of differences, relative
_FAR: Final = 1e9
_DEVIATION: Final = NormalDist().inv_cdf(0.975)


class _Means(Protocol):
    def statistic(self, expressions: Sequence[str], **terms: Any) -> Expectations:  # noqa: ANN401
        """As a gate has it."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class LikelihoodFit:
    """The natural parameters θ, and their covariance by the rows and by the noise."""

    statistics: tuple[str, ...]
    means: Floats
    parameters: Floats
    sampling: Floats  # covariance by which rows there are
    noise: Floats  # covariance by noise
    rows: float
    cost: ApproxDP
    remaining: ApproxDP
    guarantee: Guarantee

    def within(self, confidence: Number = USUAL) -> Floats:
        """How far each parameter may be off, about: errors are nearly normal for many rows."""
        factor = NormalDist().inv_cdf(1 - float(failure_of(confidence)) / 2)
        found: Floats = factor * np.sqrt(np.diag(self.sampling) + np.diag(self.noise))
        return found

    def to_dict(self, confidence: Number = USUAL) -> Mapping[str, Any]:
        """Plain values, for --json."""
        return {
            "statistics": list(self.statistics), "means": self.means.tolist(),
            "parameters": self.parameters.tolist(), "margins": self.within(confidence).tolist(),
            "rows": self.rows, "price": float(self.cost.epsilon),
            "remaining": float(self.remaining.epsilon), "guarantee": str(self.guarantee),
        }  # fmt: skip


def fit_likelihood(
    gate: _Means,
    statistics: Sequence[str],
    log_partition: LogPartition,
    *,
    start: Sequence[float] | None = None,
    **terms: Any,  # noqa: ANN401 - of `StatisticOrder`: epsilon, table, where …
) -> LikelihoodFit:
    """The natural parameters of highest likelihood.

    Args:
        gate: Where the rows are.
        statistics: T, as SQL expressions with bounds; values are clamped to them.
        log_partition: A, of an array of as many parameters; infinite where there is no density.
        start: Parameters to start from, where A is finite; by default zeros.
        terms: Those of `gate.statistic`.
    """
    begin = begun(log_partition, start, len(statistics))
    found = gate.statistic(list(statistics), **terms)
    return solved(tuple(statistics), found, log_partition, begin)


def begun(log_partition: LogPartition, start: Sequence[float] | None, count: int) -> Floats:
    """Where to start; refuses what is not, before anything is paid."""
    begin = np.zeros(count) if start is None else np.asarray(start, np.float64)
    if begin.shape != (count,) or not np.isfinite(_value(log_partition, begin)):
        raise SpecError(
            "The log-partition function is not finite at the start.",
            fix="Give start: one number for each statistic, for which there is a density.",
            about="start",
        )
    return begin


def solved(
    names: tuple[str, ...], found: Expectations, log_partition: LogPartition, begin: Floats
) -> LikelihoodFit:
    """The parameters that released means imply. Public arithmetic: charges nothing.

    Claim: to first order θ - θ₀ = H⁻¹ (error of the means), H the Hessian of A: the covariance is
        H⁻¹/n by the rows, as H is the covariance of T, and H⁻¹ N H⁻¹ by noise of covariance N.
    """
    from scipy.optimize import minimize  # noqa: PLC0415 - only here

    means = np.asarray(found.values, np.float64)

    def loss(theta: Floats) -> float:
        return _value(log_partition, theta) - float(theta @ means)

    limits = {"xatol": 1e-9, "fatol": 1e-12, "maxiter": 5_000}
    with np.errstate(all="ignore"):
        best = minimize(loss, begin, method="Nelder-Mead", options=limits)
    theta = np.asarray(best.x, np.float64)
    if not best.success or not np.isfinite(theta).all() or np.abs(theta).max() > _FAR:
        raise SpecError(
            "For these means the likelihood has no maximum, or none was found.",
            fix="Check that the log-partition function is that of the statistics, and the start. "
            "The means were released: asking for them again is free.",
            about="likelihood",
        )
    inverse: Floats = np.linalg.pinv(_hessian(log_partition, theta)).astype(np.float64)
    rows = max(1.0, float(found.rows))
    spread = np.asarray(found.within(Fraction(95, 100)), np.float64) / _DEVIATION
    return LikelihoodFit(
        statistics=names, means=means, parameters=theta, sampling=inverse / rows,
        noise=inverse @ np.diag(spread**2) @ inverse, rows=rows, cost=found.cost,
        remaining=found.remaining, guarantee=found.guarantee,
    )  # fmt: skip


def _value(log_partition: LogPartition, theta: Floats) -> float:
    """A, infinite where it has no value."""
    with np.errstate(all="ignore"):
        try:
            found = float(log_partition(theta))
        except (ArithmeticError, ValueError, LookupError):
            return float("inf")
    return found if np.isfinite(found) else float("inf")


def _hessian(log_partition: LogPartition, theta: Floats) -> Floats:
    """Second differences of A."""
    size = len(theta)
    steps = _STEP * np.maximum(1.0, np.abs(theta))
    found = np.zeros((size, size))
    for i in range(size):
        for j in range(size):
            ends = []
            for one, other in ((1, 1), (1, -1), (-1, 1), (-1, -1)):
                at = theta.copy()
                at[i] += one * steps[i]
                at[j] += other * steps[j]
                ends.append(_value(log_partition, at))
            found[i, j] = (ends[0] - ends[1] - ends[2] + ends[3]) / (4 * steps[i] * steps[j])
    return found
