"""The distribution of highest entropy that agrees with noisy tables, and rows drawn from it.

log p is a sum of potentials θ, one for each measured number. With y the measured numbers, σ² their
variances, N the number of rows and M p the tables of p, the best p has the least

    Σ (N M p - y)² / 2σ²  -  λ · entropy(p)

for a small λ [MSM19]. Its dual in θ is smooth, strictly convex and has no constraints:

    log Σ exp(Mᵀθ)  -  θ·y/N  +  λ Σ (σθ/N)² / 2

so L-BFGS finds it, and a model with more evidence starts from the θ of the one before.
"""

import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import sqrt
from typing import Final, Self, final

import numpy as np
from numpy.typing import NDArray

from noisegate.errors import SpecError
from noisegate.releases.estimate import Floats
from noisegate.releases.residuals import Axes, Sizes
from noisegate.synthetic.drawing import Rows, draw
from noisegate.synthetic.inference import Elimination, Network, network
from noisegate.synthetic.junction import cells_with, junction_tree

CELLS_MAX: Final = 1 << 21
_ROUNDS: Final = 200
_VARIANCE_MIN: Final = 1e-12
_LOOSE: Final = 10.0  # potentials may be so many standard deviations of their noise


@final
@dataclass(frozen=True, slots=True, eq=False)
class Evidence:
    """Noisy sums over the cells of the table over ``axes``.

    ``labels`` say for each cell in which sum it counts, -1 for none; None where each cell is a sum
    of its own.
    """

    axes: Axes
    values: Floats
    variance: float
    labels: NDArray[np.int32] | None = None


@final
@dataclass(frozen=True, slots=True, eq=False)
class Potential:
    """What one kind of evidence adds to the logarithm of the distribution."""

    axes: Axes
    values: Floats
    labels: NDArray[np.int32] | None

    def same(self, other: "Potential | Evidence") -> bool:
        """Whether it is about the same sums."""
        if self.axes != other.axes or (self.labels is None) != (other.labels is None):
            return False
        return self.labels is None or np.array_equal(self.labels, other.labels)  # type: ignore[arg-type]

    def table(self, values: Floats, sizes: Sizes) -> Floats:
        """Values for each cell, given those for each sum."""
        spread = values if self.labels is None else np.append(values, 0.0)[self.labels]
        return spread.reshape([sizes[a] for a in self.axes])

    def sums(self, table: Floats) -> Floats:
        """The sums over a table."""
        if self.labels is None:
            return table.ravel()
        found = np.bincount(self.labels + 1, table.ravel(), len(self.values) + 1)
        return found[1:].astype(np.float64)


@final
class Model:
    """A distribution over all columns, times a number of rows."""

    def __init__(
        self,
        sizes: Sizes,
        total: float,
        potentials: tuple[Potential, ...],
        left_out: tuple[Axes, ...] = (),
    ) -> None:
        self.sizes, self.total, self.potentials, self.left_out = sizes, total, potentials, left_out
        self._tree = junction_tree([p.axes for p in potentials], sizes)
        self._beliefs = self._conditioned({})
        self.cliques = tuple(tuple(sorted(clique.axes)) for clique in self._tree)
        self.cells = sum(belief.size for belief in self._beliefs)

    def table(self, axes: Axes) -> Floats:
        """The expected number of rows in each cell of the table over some columns, flat."""
        return self.tables([axes])[axes]

    def tables(self, sets: Iterable[Axes]) -> dict[Axes, Floats]:
        """Many tables at once."""
        elimination = Elimination(self.sizes, self._tree, self._beliefs)
        return {axes: elimination.table(axes).ravel() * self.total for axes in sets}

    def rows(
        self, count: int, *, seed: int, given: Mapping[int, int | Sequence[int]] | None = None
    ) -> Rows:
        """Rows that look like the model's, in random order; only with the ``given`` values."""
        beliefs = self._conditioned(given) if given else self._beliefs
        return draw(self.sizes, self._tree, beliefs, count, seed)

    def to_record(self) -> bytes:
        """All that is needed to have the same model again."""
        arrays: dict[str, NDArray[np.generic]] = {
            "sizes": np.array(self.sizes, np.int64),
            "total": np.array(self.total),
        }
        for number, potential in enumerate(self.potentials):
            arrays[f"axes{number}"] = np.array(potential.axes, np.int64)
            arrays[f"values{number}"] = potential.values
            if potential.labels is not None:
                arrays[f"labels{number}"] = potential.labels
        kept = io.BytesIO()
        np.savez_compressed(kept, **arrays)  # type: ignore[arg-type]
        return kept.getvalue()

    @classmethod
    def from_record(cls, record: bytes) -> Self:
        """The model of a record."""
        with np.load(io.BytesIO(record), allow_pickle=False) as kept:
            potentials, number = [], 0
            while f"axes{number}" in kept:
                labels = kept.get(f"labels{number}")
                axes = tuple(kept[f"axes{number}"].tolist())
                potentials.append(Potential(axes, kept[f"values{number}"], labels))
                number += 1
            sizes = tuple(kept["sizes"].tolist())
            return cls(sizes, float(kept["total"]), tuple(potentials))

    def _conditioned(self, given: Mapping[int, int | Sequence[int]]) -> list[Floats]:
        sets = [p.axes for p in self.potentials] + [(axis,) for axis in given]
        net = network(self.sizes, self._tree, sets)
        values = {n: p.table(p.values, self.sizes) for n, p in enumerate(self.potentials)}
        for number, (axis, allowed) in enumerate(given.items(), len(self.potentials)):
            values[number] = np.full(self.sizes[axis], -np.inf)
            values[number][np.atleast_1d(allowed)] = 0.0
        tables = net.empty()
        if np.isneginf(net.spread(values, tables)):
            raise SpecError("The model has no rows with the given values.", fix="Give others.")
        net.gather(tables)
        return tables


def fit(  # noqa: PLR0913 - each is an option of its own
    sizes: Sizes,
    evidence: Sequence[Evidence],
    *,
    total: float | None = None,
    start: Model | None = None,
    cells_max: int = CELLS_MAX,
    rounds: int = _ROUNDS,
    done: Callable[[float], None] | None = None,
) -> Model:
    """The model for all evidence that fits into ``cells_max`` cells, in the order given.

    Evidence that does not fit is ``left_out`` of the model. The total is by default what all
    complete tables say about it together.
    """
    found = whole_total(evidence) if total is None else total
    fitting, left_out = _fitting(sizes, _merged(evidence), cells_max)
    potentials = _started(fitting, start)
    tree = junction_tree([p.axes for p in potentials], sizes)
    net = network(sizes, tree, [p.axes for p in potentials])
    solved = _solved(net, potentials, fitting, found, rounds=rounds, done=done)
    return Model(sizes, found, solved, left_out)


def whole_total(evidence: Sequence[Evidence]) -> float:
    """What complete tables say about their sum, weighted by how precise they are."""
    sums, weights = [], []
    for each in evidence:
        if each.labels is None or each.labels.min() >= 0:
            sums.append(float(each.values.sum()))
            weights.append(1 / (max(each.variance, _VARIANCE_MIN) * len(each.values)))
    if not sums:
        raise SpecError("No evidence says how many rows there are.", fix="Give `total`.")
    return max(1.0, float(np.average(sums, weights=weights)))


def _merged(evidence: Sequence[Evidence]) -> list[Evidence]:
    """Evidence about the same sums as one, weighted by how precise it is."""
    found: list[Evidence] = []
    for each in evidence:
        if not each.axes:
            continue
        new = Potential(each.axes, each.values, each.labels)
        for place, old in enumerate(found):
            if new.same(old):
                one, two = (1 / max(e.variance, _VARIANCE_MIN) for e in (old, each))
                values = (old.values * one + each.values * two) / (one + two)
                found[place] = Evidence(each.axes, values, 1 / (one + two), each.labels)
                break
        else:
            found.append(each)
    return found


def _fitting(
    sizes: Sizes, evidence: Sequence[Evidence], cells_max: int
) -> tuple[list[Evidence], tuple[Axes, ...]]:
    """The evidence that a model of so many cells can hold, and what is left out."""
    kept, sets, left_out = list[Evidence](), list[Axes](), list[Axes]()
    if cells_with([e.axes for e in evidence], sizes) <= cells_max:
        return list(evidence), ()
    for each in evidence:
        inside = any(set(each.axes) <= set(axes) for axes in sets)
        if inside or cells_with(sets, sizes, each.axes) <= cells_max:
            kept.append(each)
            sets.append(each.axes)
        else:
            left_out.append(each.axes)
    return kept, tuple(left_out)


def _started(evidence: Sequence[Evidence], start: Model | None) -> list[Potential]:
    """Potentials of the model to start from, or none."""
    known = start.potentials if start is not None else ()
    found = []
    for each in evidence:
        same = (p.values for p in known if p.same(each))
        values = next(same, np.zeros(len(each.values)))
        found.append(Potential(each.axes, values, each.labels))
    return found


def _solved(
    net: Network,
    potentials: Sequence[Potential],
    evidence: Sequence[Evidence],
    total: float,
    *,
    rounds: int,
    done: Callable[[float], None] | None,
) -> tuple[Potential, ...]:
    from scipy.optimize import minimize  # noqa: PLC0415

    lengths = [len(p.values) for p in potentials]
    ends = np.cumsum([0, *lengths])
    parts = [slice(a, b) for a, b in pairwise(ends)]
    measured = np.concatenate([e.values for e in evidence]) / total
    variances = np.repeat([max(e.variance, _VARIANCE_MIN) for e in evidence], lengths) / total**2
    typical = sqrt(1 / float(np.average(1 / variances)))
    weight = variances / (_LOOSE * typical)
    scale = 1 / np.sqrt(np.maximum(measured, 0) + np.sqrt(variances) + weight)
    tables, count = net.empty(), 0

    def cost(scaled: Floats) -> tuple[float, Floats]:
        theta = scaled * scale
        values = {
            n: p.table(theta[part], net.sizes)
            for n, (p, part) in enumerate(zip(potentials, parts, strict=True))
        }
        log_sum = net.spread(values, tables)
        sums = net.gather(tables)
        seen = np.concatenate([p.sums(sums[n]) for n, p in enumerate(potentials)])
        value = log_sum - theta @ measured + (weight * theta) @ theta / 2
        return float(value), (seen - measured + weight * theta) * scale

    def step(_: Floats) -> None:
        nonlocal count
        count += 1
        if done is not None:
            done(count / rounds)

    if not potentials:
        return ()
    first = np.concatenate([p.values for p in potentials]) / scale
    options = {"maxiter": rounds, "maxcor": 20, "ftol": 1e-15, "gtol": 1e-9, "maxfun": 4 * rounds}
    best = minimize(cost, first, jac=True, method="L-BFGS-B", callback=step, options=options)
    theta = best.x * scale
    return tuple(
        Potential(p.axes, theta[part], p.labels) for p, part in zip(potentials, parts, strict=True)
    )
