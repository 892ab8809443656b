"""What a model may be worth at a price, before it is paid for: the same fit on made-up rows.

    print(LinearRegression(epsilon=1).plan(matrix, rows=3000))
    # … score  R² of about 0.47 on 3,000 made-up rows; 0.5 without noise, …

Rows are made up from what is declared alone: numbers lie around the middle of their bounds, keys
are equally frequent, and the target follows from the columns, as strongly for every table. The fit
is the one that would be paid for, with noise as wide as the price buys. So no row is read, and what
is told is how much the noise costs; how much the real columns tell, the rows alone know.
"""

from collections.abc import Callable
from statistics import median
from typing import TYPE_CHECKING, Any, Final, Protocol, Self, cast, final

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClusterMixin, DensityMixin

from noisegate.algebra.tally import Rows as Tally
from noisegate.curator.measurement import Measurement
from noisegate.desk.terms.price import Price
from noisegate.frozen import dataclass, replace
from noisegate.learners.asking import DoorRows, Floats, noise_variance
from noisegate.learners.fitting import Fitted, Rehearsed, Task, no_score
from noisegate.learners.matrix import Matrix
from noisegate.releases.cells.chance import Coins, public_coins
from noisegate.transforms.query import shape_of
from noisegate.transforms.statistics.statistic import Batch

if TYPE_CHECKING:
    from noisegate.curator.allowance import Scope
    from noisegate.mechanisms.base import NoiseMechanism

_SUM_MAX: Final = 2.0**60
_FITTED: Final = 1 << 13  # rows that are made up at most: sums are scaled up to all of them
_TRIED: Final = 1 << 12  # rows that a model is tried on
_DRAWS: Final = 5  # of noise; the median score is told
_WITHOUT: Final = 10**9  # times the price: hardly any noise
_SPREAD: Final = 0.3  # of numbers, in halves of their bounds
_CLEAR: Final = 0.8  # of rows have the class that follows from their columns, others any
_EXPLAINED: Final = 0.5  # of a target's variance follows from the columns
_CROWDED: Final = 0.4  # of the spread of numbers is within clusters


class Learner(Protocol):
    """An estimator, as far as it is planned."""

    @property
    def measure(self) -> str | None:
        """The name of its score, if it has one."""

    def learnt(self, matrix: Matrix, fitted: Fitted) -> Self:
        """The same with what was fitted."""

    def scored(self, points: NDArray[Any], target: NDArray[Any]) -> tuple[float, float]:
        """Its score on given rows, and that of a model that has learnt nothing."""


@final
@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows in the units of their columns, as a learner is asked about them, and what they are."""

    points: NDArray[Any]
    batch: Batch
    target: NDArray[Any]


def rehearsed(model: Learner, matrix: Matrix, task: Task, price: Price, rows: int) -> Rehearsed:
    """The scores of a planned model; refuses one without a score, or that is not made of sums."""
    if model.measure is None:
        raise no_score(task.name)
    coins = public_coins(f"rows of {', '.join(matrix.columns)}")
    made = _made(model, matrix, task, coins)
    held, tried = made(min(rows, _FITTED)), made(_TRIED)

    def scores(price: Price, noise: Coins | None) -> tuple[float, float]:
        tally = matrix.rows(task.reach, codes=task.codes, number=task.number)
        scope = _MadeUp(held.batch, rows * tally.whole * float(price.sample or 1), noise)
        ask = DoorRows(cast("Scope", scope), tally, price, objective=False)
        return model.learnt(matrix, task.algorithm(ask)).scored(tried.points, tried.target)

    # with no noise to smooth it a fit may follow the rows too closely: the best of both is told
    free, constant = scores(replace(price, amount=price.amount * _WITHOUT), None)
    noisy = median(scores(price, coins)[0] for _ in range(_DRAWS))
    exact = max(free, scores(price, None)[0], noisy)
    return Rehearsed(model.measure, rows, noisy, exact, constant)


@final
class _MadeUp:
    """What stands for the door: sums of made-up rows as of so many; with coins, noisy ones."""

    def __init__(self, batch: Batch, rows: float, coins: Coins | None) -> None:
        self._batch, self._times, self._coins = batch, rows / len(batch), coins

    def measure(self, measurement: Measurement) -> "_Answer":
        """The sums of a statistic. The coins are public: no row that exists is in these."""
        query = measurement.query
        assert isinstance(query.tally, Tally)  # noqa: S101 - what learners ask
        exact = query.statistic.total([self._batch], shape_of(query.tally))
        found = []
        for sums, noise in zip(exact, measurement.mechanisms, strict=True):
            values = sums.ravel() * self._times
            if self._coins is not None:
                wide = noise_variance(cast("NoiseMechanism[Any]", noise)) ** 0.5
                values += self._coins.normal(0, wide, values.size)
            found.append(np.rint(np.clip(values, -_SUM_MAX, _SUM_MAX)).astype(np.int64))
        return _Answer((np.concatenate(found),))


@final
@dataclass(frozen=True, slots=True)
class _Answer:
    values: tuple[NDArray[np.int64]]


def _made(model: Learner, matrix: Matrix, task: Task, coins: Coins) -> Callable[[int], _Rows]:
    """What makes up rows, all by one law that the coins have chosen."""
    columns = matrix.coordinates(codes=True)
    keyed = [len(each.keys) for each in columns]
    ranks = coins.permutation(len(columns)) + 1.0
    kinds = 1 if matrix.classes is None or task.number else len(matrix.classes.keys)
    weights = coins.choice([-1.0, 1.0], (len(columns), kinds)) / ranks[:, None]
    weights /= np.sqrt(np.square(weights).sum(axis=0))
    effects = [_centred(coins.standard_normal((keys, kinds))) for keys in keyed]
    directions = np.linalg.qr(coins.standard_normal((len(columns), len(columns))))[0]
    lengths = len(columns) ** 0.5 * np.sqrt(1 / ranks / (1 / ranks).sum())
    told = task.number or matrix.classes is not None
    clustered = isinstance(model, ClusterMixin | DensityMixin)
    clusters = getattr(model, "n_clusters", getattr(model, "n_components", 1))
    centers = coins.standard_normal((clusters if clustered else 1, len(columns)))

    def numbers(count: int) -> Floats:
        """Standardised: around clusters, along directions, or each by itself."""
        free = coins.standard_normal((count, len(columns)))
        if clustered:
            near = centers[coins.integers(len(centers), size=count)]
            mixed: Floats = near * (1 - _CROWDED) ** 0.5 + free * _CROWDED**0.5
            return mixed
        return free if told else free * lengths @ directions

    def rows(count: int) -> _Rows:
        free, told = numbers(count), np.zeros((count, kinds))
        points = np.empty((count, len(columns)), dtype=object)
        for place, each in enumerate(columns):
            if each.keys:
                held = coins.integers(keyed[place], size=count)
                points[:, place] = np.array(each.keys, dtype=object)[held]
                told += effects[place][held] * weights[place]
            else:
                near = np.clip(_SPREAD * free[:, place], -1, 1)
                points[:, place] = float(each.middle) + float(each.half) * near
                told += near[:, None] / _SPREAD * weights[place]
        target, shown = _target(told, matrix, task, coins)
        by_name = {each.column: points[:, place] for place, each in enumerate(columns)}
        seen = [each.of(by_name[each.column])
                for each in matrix.coordinates(codes=task.codes)]  # fmt: skip
        if task.number:
            seen.append(target)
        grid = np.rint(np.clip(np.stack(seen, axis=1), -1, 1) * task.reach).astype(np.int32)
        places = np.zeros(count) if task.number or matrix.classes is None else target
        return _Rows(points, Batch(grid, places.astype(np.int32)), shown)

    return rows


def _centred(effects: Floats) -> Floats:
    middle: Floats = effects.mean(axis=0) if len(effects) else np.zeros(effects.shape[1])
    found: Floats = effects - middle
    return found


def _target(
    told: Floats, matrix: Matrix, task: Task, coins: Coins
) -> tuple[NDArray[Any], NDArray[Any]]:
    """What follows from the columns, as the learner sees it and as it is told."""
    if task.number:
        number = matrix.number
        assert number is not None  # noqa: S101 - it was asked for
        chance = coins.standard_normal(len(told)) * (1 - _EXPLAINED) ** 0.5
        found = np.clip(_SPREAD * (told[:, 0] * _EXPLAINED**0.5 + chance), -1, 1)
        return found, float(number.middle) + float(number.half) * found
    if matrix.classes is None:
        return np.zeros(len(told)), np.zeros(len(told))
    any_one = coins.integers(told.shape[1], size=len(told))
    found = np.where(coins.random(len(told)) < _CLEAR, told.argmax(axis=1), any_one)
    return found, found
