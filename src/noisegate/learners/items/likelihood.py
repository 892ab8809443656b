"""Maximum likelihood in an exponential family of one's own: noisy means of its statistics, solved.

    fit_likelihood(gate, ["LN(cost / 100)", "cost / 100"], gamma, start=[1, -1], epsilon=1)

The density is e^(θ·T(x) - A(θ)) times a base measure. The likelihood of the rows is highest where
the gradient of A is the mean of T, and that mean is all that is asked of the rows. The rest is
arithmetic on what was released, so ``log_partition`` may be any program: it sees no row.
"""

from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path
from statistics import NormalDist
from typing import Any, ClassVar, Final, Protocol, final

import numpy as np
import pyarrow as pa

from noisegate.desk.answer import Answer
from noisegate.desk.noisy import HalfWidths
from noisegate.desk.release import Charged, loading, read_held
from noisegate.desk.terms.terms import USUAL
from noisegate.errors import SpecError
from noisegate.exact import Number
from noisegate.frozen import dataclass
from noisegate.learners.asking import Floats
from noisegate.learners.expectations import (
    Expectations,
    Means,
    means_from,
    means_record,
)
from noisegate.mechanisms.base import failure_of

LogPartition = Callable[[Floats], float]
_STEP: Final = 1e-4  # of differences, relative
_FAR: Final = 1e9
_APART: Final = "The ± of a mean is that of noise; that of a parameter is of noise and sampling."
_ABOUT: Final = "The ± of parameters is about right for many rows, not proven."
_DEVIATION: Final = NormalDist().inv_cdf(0.975)


class _Means(Protocol):
    def statistic(self, expressions: Sequence[str], **terms: Any) -> Expectations:  # noqa: ANN401
        """As a gate has it."""


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class LikelihoodFit(Charged):
    """The natural parameters θ, and their covariance by the rows and by the noise."""

    kind: ClassVar[str] = "likelihood"
    form: ClassVar[str] = "noisegate-likelihood/1"
    statistics: tuple[str, ...]
    released: Means
    parameters: Floats
    sampling: Floats  # covariance by which rows there are
    noise: Floats  # covariance by noise
    rows: float

    @property
    def means(self) -> Floats:
        """The released means of the statistics: all that was asked of the rows."""
        return np.asarray(self.released.values, np.float64)

    def within(self, confidence: Number = USUAL) -> Floats:
        """How far each parameter may be off, about: errors are nearly normal for many rows."""
        factor = NormalDist().inv_cdf(1 - float(failure_of(confidence)) / 2)
        return factor * np.sqrt(np.diag(self.sampling) + np.diag(self.noise))

    def answer(self, rows: int | None = None) -> Answer:
        """A row for each statistic: its mean, and its parameter."""
        count = len(self.statistics) if rows is None else min(rows, len(self.statistics))
        table = pa.table({
            "statistic": pa.array(self.statistics[:count], pa.string()),
            "mean": pa.array(self.means[:count]), "parameter": pa.array(self.parameters[:count]),
        })  # fmt: skip

        def half_widths(confidence: Number) -> Sequence[HalfWidths]:
            means, own = self.released.within(confidence), self.within(confidence)
            return None, tuple(means[:count].tolist()), tuple(own[:count].tolist())

        return self.stating(table, half_widths, (_APART, _ABOUT))

    @property
    def headline(self) -> str:
        """What it is, in a few words."""
        return f"parameters of highest likelihood, of about {self.rows:,.0f} rows"

    def to_dict(self, confidence: Number = USUAL) -> dict[str, Any]:
        """Plain values, for --json."""
        left = {} if self.remaining is None else {"remaining": float(self.remaining.epsilon)}
        return {
            "statistics": list(self.statistics), "means": self.means.tolist(),
            "parameters": self.parameters.tolist(), "margins": self.within(confidence).tolist(),
            "rows": self.rows, "price": float(self.cost.epsilon), **left,
            "guarantee": str(self.guarantee),
        }  # fmt: skip

    def record(self) -> dict[str, Any]:
        """The means with their noise, and both covariances."""
        return {
            "statistics": list(self.statistics), "released": means_record(self.released),
            "sampling": self.sampling.tolist(), "noise": self.noise.tolist(), "rows": self.rows,
        }  # fmt: skip

    @classmethod
    @loading
    def load(cls, file: str | Path) -> "LikelihoodFit":
        """The fit that `save` wrote to a Parquet file. Needs no gate."""
        table, record = read_held(file, cls)
        return cls(
            statistics=tuple(record["statistics"]), released=means_from(record["released"]),
            parameters=table.column("parameter").to_numpy(),
            sampling=np.array(record["sampling"], np.float64),
            noise=np.array(record["noise"], np.float64), rows=float(record["rows"]),
            **record["standing"],
        )  # fmt: skip


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
        statistics=names, released=found.means, parameters=theta, sampling=inverse / rows,
        noise=inverse @ np.diag(spread**2) @ inverse, rows=rows, sql=found.sql, cost=found.cost,
        remaining=found.remaining, guarantee=found.guarantee, question=found.question,
        request_id=found.request_id, practice=found.practice, log=found.log,
    )  # fmt: skip


def _value(log_partition: LogPartition, theta: Floats) -> float:
    """A, infinite where it has no value; whatever is not a number is refused."""
    with np.errstate(all="ignore"):
        try:
            told = log_partition(theta)
        except (ArithmeticError, ValueError, LookupError):
            return float("inf")
        except (AttributeError, NameError, TypeError) as error:
            raise _no_number(f"fails with {type(error).__name__}") from None
    try:
        found = float(told)
    except (TypeError, ValueError):
        raise _no_number(f"returns {type(told).__name__}, not a number") from None
    return found if np.isfinite(found) else float("inf")


def _no_number(what: str) -> SpecError:
    return SpecError(
        f"The log-partition function {what}.",
        fix="Return A(θ) as a number, float('inf') where there is no density.",
        about="log-partition",
    )


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
