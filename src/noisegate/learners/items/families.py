"""Private maximum likelihood in exponential families: noisy sufficient statistics, solved.

    fit_family(gate, "gaussian", "age", epsilon=1)
    fit_family(gate.matrix("patients", ["age", "bmi"]), "normal", epsilon=1)

One measurement: how many rows, and the sums of their sufficient statistics, from the middle of the
declared bounds. Values beyond the bounds are clamped, so bounds that cut off much bias the fit.
Standard errors are those of the likelihood and of the noise together: as rows grow the noise
vanishes beside the other, and the fit is as good as without privacy [DSm10].
"""

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from statistics import NormalDist
from typing import Final, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from noisegate.desk.job import Receipt
from noisegate.desk.plan import Plan
from noisegate.desk.terms.terms import USUAL
from noisegate.errors import SpecError
from noisegate.exact import Number
from noisegate.frozen import dataclass, replace
from noisegate.learners.asking import Floats, NoisySums, RowsAsk
from noisegate.learners.expectations import count_share
from noisegate.learners.fitting import Carded, FitExpected, Fitted, Task, known_job, learn
from noisegate.learners.linear.scores import square_of
from noisegate.learners.matrix import Classes, Coordinate, Handles, Matrix
from noisegate.mechanisms.base import failure_of
from noisegate.privacy.guarantee import Guarantee
from noisegate.privacy.loss import ApproxDP
from noisegate.transforms.statistics.features import Feature, Linear, One, Products, Squares
from noisegate.transforms.statistics.statistic import Statistic
from noisegate.transforms.statistics.weighings import ByKey, Plain

Parameters: TypeAlias = dict[str, Floats]
_FLOOR: Final = 1e-12


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class FamilyFit:
    """Fitted parameters, each with its standard error: of the likelihood and the noise together.

    ``noise`` are the standard errors by noise alone; ``rows`` is about how many rows took part.
    """

    family: str
    names: tuple[str, ...]
    parameters: Mapping[str, Floats]
    errors: Mapping[str, Floats]
    noise: Mapping[str, Floats]
    rows: float
    cost: ApproxDP
    remaining: ApproxDP
    guarantee: Guarantee
    free: bool

    def __getitem__(self, name: str) -> float | Floats:
        """A parameter: a number, or an array of them."""
        found = self.parameters[name]
        return float(found) if found.ndim == 0 else found

    def within(self, name: str, confidence: Number = USUAL) -> float | Floats:
        """How far a parameter may be off, about: its error is nearly normal for many rows."""
        factor = NormalDist().inv_cdf(1 - float(failure_of(confidence)) / 2)
        found: Floats = factor * self.errors[name]
        return float(found) if found.ndim == 0 else found

    def __str__(self) -> str:
        lines = [
            f"{name}\t{np.array2string(value, precision=4)} ± "
            f"{np.array2string(np.asarray(self.within(name)), precision=2)}"
            for name, value in self.parameters.items()
        ]
        return "\n".join([f"{self.family} of {', '.join(self.names)}", *lines, f"cost {self.cost}"])


def fit_family(  # noqa: PLR0913 - each is a choice of the analyst
    rows: Matrix | Handles,
    family: str,
    columns: str | Sequence[str] | None = None,
    *,
    epsilon: Number | None = None,
    table: str | None = None,
    where: str | None = None,
    fresh: bool = False,
) -> FamilyFit:
    """Fit "bernoulli", "categorical", "poisson", "exponential", "gaussian" or "normal".

    ``rows`` is a gate with ``columns`` (and ``table``, ``where``), or a `Gate.matrix`. All but
    "normal", the Gaussian of several columns with their covariance, are of one column.
    """
    matrix = _matrix(rows, columns, table, where)
    return _fitted(matrix, family, epsilon=epsilon, fresh=fresh)[0]


def _fitted(
    rows: Matrix, family: str, *, epsilon: Number | None, fresh: bool
) -> tuple[FamilyFit, Receipt]:
    """The fit, and its receipt."""
    matrix, kind, task = _prepared(rows, family)
    outcome = learn(matrix, task, epsilon=epsilon, fresh=fresh)
    told = _Told(outcome.fitted, matrix.marks, task.reach)
    parameters, likelihood, noise = kind.solve(told)
    seen = float(matrix.rules.sample or 1)  # of the rows: of a sample, the likelihood knows less
    errors = {name: np.sqrt(likelihood[name] / seen + noise[name]) for name in parameters}
    found = FamilyFit(
        family=family,
        names=matrix.columns if not kind.by_key else (matrix.classes.name,),  # type: ignore[union-attr]
        parameters=parameters,
        errors=errors,
        noise={name: np.sqrt(each) for name, each in noise.items()},
        rows=told.rows,
        cost=outcome.receipt.cost,
        remaining=outcome.receipt.remaining,
        guarantee=outcome.receipt.guarantee,
        free=outcome.receipt.free,
    )
    return found, outcome.receipt


@final
class ExponentialFamily(Carded):
    """One of the families as a model of `FitOrder`: ``family`` is its name.

    After `fit`: ``parameters_``, ``within_`` (how far each may be off at 95 %), ``rows_``, ``fit_``
    (the `FamilyFit`), and ``cost_``, ``remaining_``, ``guarantee_``.
    """

    def __init__(self, *, epsilon: Number | None = None, family: str = "gaussian") -> None:
        self.epsilon, self.family = epsilon, family

    def fit(self, matrix: Matrix, *, fresh: bool = False) -> "ExponentialFamily":
        """Fit the family to the columns of the matrix."""
        found, receipt = _fitted(matrix, self.family, epsilon=self.epsilon, fresh=fresh)
        self.fit_, self.rows_ = found, found.rows
        self.parameters_ = dict(found.parameters)
        self.within_ = {name: found.within(name) for name in found.parameters}
        self._paid(receipt, matrix)
        return self

    def plan(self, matrix: Matrix, *, fresh: bool = False) -> Plan[FitExpected]:
        """The price of a fit. Free: spends nothing, reads no row."""
        made, _, task = _prepared(matrix, self.family)
        job = known_job(made, task, epsilon=self.epsilon, fresh=fresh)
        return made.desk.plan(job, fresh=fresh)


def _prepared(matrix: Matrix, family: str) -> "tuple[Matrix, _Family, Task]":
    """What is asked of the rows for a family; columns that it cannot be of are refused."""
    if family not in FAMILIES:
        raise SpecError(
            f"There is no family {family!r}.", fix=f"Use {', '.join(FAMILIES)}.", about="family"
        )
    kind = FAMILIES[family]
    matrix = _by_key(matrix) if kind.by_key else replace(matrix, classes=None, number=None)
    if kind.single and len(matrix.marks) != 1:
        raise SpecError(
            f"{family!r} needs a single numeric column.", fix="Name one, or use 'normal'."
        )
    if kind.low is not None and matrix.marks[0].low < kind.low:
        raise SpecError(
            f"{family!r} needs values of at least {kind.low}.",
            fix="Declare such bounds.",
            about="range",
        )
    if kind.high is not None and matrix.marks[0].high > kind.high:
        raise SpecError(
            f"{family!r} needs values of at most {kind.high}.",
            fix="Declare such bounds.",
            about="range",
        )
    count = len(matrix.marks)
    return matrix, kind, Task(f"family {family}", {}, lambda ask: _asked(ask, kind, count))


def _matrix(
    rows: Matrix | Handles,
    columns: str | Sequence[str] | None,
    table: str | None,
    where: str | None,
) -> Matrix:
    if isinstance(rows, Matrix):
        if (columns, table, where) != (None, None, None):
            raise SpecError("The matrix already names its columns.", fix="Leave them out.")
        return rows
    if columns is None:
        raise SpecError("No column is named.", fix="Name the columns to fit.")
    listed = [columns] if isinstance(columns, str) else list(columns)
    return rows.matrix(table, listed, where=where)


def _by_key(matrix: Matrix) -> Matrix:
    """The same rows by the keys of their one column."""
    if len(matrix.codes) != 1 or len(matrix.codes[0].keys) < 2:
        raise SpecError(
            "'categorical' needs a single column with declared keys.",
            fix='Declare {"in": [...]} for it.',
        )
    (code,) = matrix.codes
    classes = Classes(code.column, code.expression, tuple(range(len(code.keys))))
    return replace(matrix, marks=(code,), classes=classes, number=None)


def _asked(ask: RowsAsk, kind: "_Family", columns: int) -> Fitted:
    """The sums, and the variance of the noise of each."""
    if kind.by_key:
        (counts,) = ask.totals(Statistic(ByKey(), (One(),)), [Fraction(1)])
        return {"counts": counts.values[:, 0], "variance": np.array([counts.variance])}
    features = (One(), Linear(), *kind.squares)
    share = count_share(columns, gaussian=ask.gaussian)
    rest = (1 - share) / (len(features) - 1)
    found: list[NoisySums] = ask.totals(
        Statistic(Plain(), features), [share, *[rest] * (len(features) - 1)]
    )
    names = ("count", "sums", "squares")
    held = {name: each.values[0] for name, each in zip(names, found, strict=False)}
    return held | {"variance": np.array([each.variance for each in found])}


@final
class _Told:
    """Sufficient statistics as means from the middle, and how their noise moves them."""

    def __init__(self, held: Fitted, coordinates: Sequence[Coordinate], reach: int) -> None:
        self.held, self.variance = held, held["variance"]
        self.rows = float(max(1.0, held["counts"].sum() if "counts" in held else held["count"][0]))
        self.middle = np.array([float(each.middle) for each in coordinates])
        self.step = np.array([float(each.half) for each in coordinates]) / reach
        self.low, self.high = (
            np.array([float(getattr(each, end)) for each in coordinates]) for end in ("low", "high")
        )

    def means(self) -> tuple[Floats, Floats]:
        """Means, within the bounds, and the variance by noise of each."""
        around = self.step * self.held["sums"] / self.rows
        values = np.clip(self.middle + around, self.low, self.high)
        off = values - self.middle
        noise = (self.step**2 * self.variance[1] + off**2 * self.variance[0]) / self.rows**2
        return values, noise

    def spreads(self, pairs: tuple[NDArray[np.int64], NDArray[np.int64]]) -> tuple[Floats, Floats]:
        """Covariances of pairs of columns, and the variance by noise of each.

        Cov = E[uv] - E[u] E[v], from the middle; to first order its noise is that of the product,
        of either sum times the other mean, and of the count.
        """
        first, second = pairs
        scale = self.step[first] * self.step[second]
        off = self.step * self.held["sums"] / self.rows
        moments = scale * self.held["squares"] / self.rows
        values = moments - off[first] * off[second]
        sums = (self.step[first] * off[second]) ** 2 + (self.step[second] * off[first]) ** 2
        counted = (moments - 2 * off[first] * off[second]) ** 2
        total = scale**2 * self.variance[2] + sums * self.variance[1] + counted * self.variance[0]
        return values, total / self.rows**2


_Solved: TypeAlias = tuple[
    Parameters, Parameters, Parameters
]  # values; variances by rows, by noise


def _bernoulli(told: _Told) -> _Solved:
    (p,), (noise,) = told.means()
    return _one("probability", p, max(p * (1 - p), _FLOOR) / told.rows, noise)


def _poisson(told: _Told) -> _Solved:
    (rate,), (noise,) = told.means()
    return _one("rate", rate, max(rate, _FLOOR) / told.rows, noise)


def _exponential(told: _Told) -> _Solved:
    """The rate is one over the mean; its relative error is the mean's."""
    (mean,), (noise,) = told.means()
    mean = max(mean, _FLOOR)
    return _one("rate", 1 / mean, 1 / (mean**2 * told.rows), noise / mean**4)


def _one(name: str, value: float, likelihood: float, noise: float) -> _Solved:
    single = [{name: np.array(each)} for each in (value, likelihood, noise)]
    return single[0], single[1], single[2]


def _gaussian(told: _Told) -> _Solved:
    (mean,), (noise,) = told.means()
    same = np.array([0])
    (variance,), (spread_noise,) = told.spreads((same, same))
    variance = max(float(variance), _FLOOR)
    values = {"mean": np.array(mean), "variance": np.array(variance)}
    likelihood = {
        "mean": np.array(variance / told.rows), "variance": np.array(2 * variance**2 / told.rows),
    }  # fmt: skip
    return values, likelihood, {"mean": np.array(noise), "variance": np.array(spread_noise)}


def _normal(told: _Told) -> _Solved:
    """Several columns; the covariance is the nearest one without negative eigenvalues."""
    mean, noise = told.means()
    pairs = np.triu_indices(len(mean))
    spread, spread_noise = told.spreads(pairs)
    covariance, cov_noise = (square_of(each, len(mean)) for each in (spread, spread_noise))
    values, vectors = np.linalg.eigh(covariance)
    covariance = (vectors * np.maximum(values, _FLOOR)) @ vectors.T
    diagonal = np.diag(covariance)
    likelihood = {
        "mean": diagonal / told.rows,
        "covariance": (np.outer(diagonal, diagonal) + covariance**2) / told.rows,
    }
    found = {"mean": mean, "covariance": covariance}
    return found, likelihood, {"mean": noise, "covariance": cov_noise}


def _categorical(told: _Told) -> _Solved:
    """Shares of the keys; negative counts are none. Noise of a share: own, and of the total."""
    counts = np.maximum(told.held["counts"], 0)
    share = counts / max(1.0, counts.sum())
    noise = told.variance[0] * ((1 - share) ** 2 + (len(share) - 1) * share**2) / told.rows**2
    likelihood = np.maximum(share * (1 - share), _FLOOR) / told.rows
    name = "probabilities"
    return {name: share}, {name: likelihood}, {name: noise}


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class _Family:
    solve: Callable[[_Told], _Solved]
    squares: tuple[Feature, ...] = ()
    by_key: bool = False
    single: bool = True
    low: int | None = None
    high: int | None = None


FAMILIES: Final[Mapping[str, _Family]] = {
    "bernoulli": _Family(solve=_bernoulli, low=0, high=1),
    "categorical": _Family(solve=_categorical, by_key=True),
    "poisson": _Family(solve=_poisson, low=0),
    "exponential": _Family(solve=_exponential, low=0),
    "gaussian": _Family(solve=_gaussian, squares=(Squares(),)),
    "normal": _Family(solve=_normal, squares=(Products(),), single=False),
}
