"""The distribution of highest entropy that agrees with noisy tables, and rows drawn from it.

log p is a sum of potentials θ, one for each measured number. With y the measured numbers, σ² their
variances, N the number of rows and M p the tables of p, the best p has the least

    Σ (N M p - y)² / 2σ²  -  λ · entropy(p)

for a small λ [MSM19]. Its dual in θ is smooth, strictly convex and has no constraints:

    log Σ exp(Mᵀθ)  -  θ·y/N  +  λ Σ (σθ/N)² / 2

and given all other θ, those of one table have a closed form (Wright's omega function): where noise
is small, they are proportional fitting. So tables are settled by turns, inside the cliques of a
junction tree, and nothing but products and sums is done with large tables. A model with more
evidence starts from the θ of the one before.

Why not Private-PGM itself (`mbi` 2.0, JAX): for 25 noisy pairs and all single columns of Adult, a
model of 933,000 cells, this fit took 0.5 s of CPU and 51 MB; mirror descent there, 500 steps with
its defaults, 39 s with compiling and 910 MB, and its misfit Σ (N M p - y)² / 2σ² was still 38 times
as large (65,700 against 1,720; one run, doubles here, single precision there). Its L-BFGS, 200
steps, took 78 s and was further off; its interior gradient did not end in 15 minutes on a busy
machine. Our first L-BFGS on the dual, less polished, took some 12 times as long to come as far.
"""

import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import sha256
from itertools import pairwise
from math import inf, log, prod, sqrt
from typing import Any, Final, Self, final
from zipfile import ZipFile

import numpy as np
from numpy.typing import NDArray
from scipy.special import wrightomega

from noisegate.errors import SpecError
from noisegate.frozen import dataclass
from noisegate.releases.ask.asking import Noisy
from noisegate.releases.cells.estimate import simplex
from noisegate.releases.cells.workload import Floats
from noisegate.releases.fit.residuals import Axes, Parts, Question, Sizes, combine
from noisegate.synthetic.model.drawing import Rows, draw
from noisegate.synthetic.model.inference import Elimination, Network, network
from noisegate.synthetic.model.junction import cells_with, junction_tree

CELLS_MAX: Final = 1 << 21
_BYTES_MAX: Final = 1 << 31  # of a record, unpacked
_ROUNDS: Final = 30
_PROJECTIONS: Final = 10
_CLOSE: Final = 0.02  # standard deviations below 0 that count as 0
_VARIANCE_MIN: Final = 1e-12
_LOOSE: Final = 300.0  # a potential per standard deviation of noise that a sum stays off
_TINY: Final = 1e-300
_SLOW: Final = 0.01  # a round that moves tables by hardly less than the one before is the last
_NOTHING: Final = 1e-9  # of the distribution, where doubles see no difference


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

    def to_record(self) -> list[Any]:
        """A name for exactly these numbers, as plain values."""
        return [list(self.axes), self.variance, digest_of(self.values, self.labels)]


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

    def table(self, values: Floats, sizes: Sizes, outside: float = 0.0) -> Floats:
        """Values for each cell, given those for each sum and for cells in none."""
        spread = values if self.labels is None else np.append(values, outside)[self.labels]
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
        with ZipFile(io.BytesIO(record)) as packed:
            if sum(each.file_size for each in packed.infolist()) > _BYTES_MAX:
                raise SpecError("The model is too large.", fix="Use it as it was saved.")
        with np.load(io.BytesIO(record), allow_pickle=False) as kept:
            potentials, number = [], 0
            while f"axes{number}" in kept:
                labels = kept.get(f"labels{number}")
                axes = tuple(kept[f"axes{number}"].tolist())
                potentials.append(Potential(axes, kept[f"values{number}"], labels))
                number += 1
            sizes = tuple(kept["sizes"].tolist())
            return cls(sizes, float(kept["total"]), tuple(potentials))

    def part(self, given: Mapping[int, int | Sequence[int]]) -> float:
        """The part of the rows that have the given values, of however many columns."""
        whole = self._spread({})[2]
        return float(np.exp(self._spread(given)[2] - whole))

    def _conditioned(self, given: Mapping[int, int | Sequence[int]]) -> list[Floats]:
        net, tables, log_sum = self._spread(given)
        if np.isneginf(log_sum):
            raise SpecError(
                "The model has no rows with the given values.",
                fix="Give other values.",
                about="no-rows",
            )
        net.gather(tables)
        return tables

    def _spread(
        self, given: Mapping[int, int | Sequence[int]]
    ) -> tuple[Network, list[Floats], float]:
        """The potentials in the tree, and the logarithm of their sum."""
        if any(not 0 <= axis < len(self.sizes) for axis in given):
            raise SpecError(
                "A value is given for an unknown column.", fix="Use the numbers of the columns."
            )
        sets = [p.axes for p in self.potentials] + [(axis,) for axis in given]
        net = network(self.sizes, self._tree, sets)
        values = {n: p.table(p.values, self.sizes) for n, p in enumerate(self.potentials)}
        for number, (axis, allowed) in enumerate(given.items(), len(self.potentials)):
            if any(not 0 <= v < self.sizes[axis] for v in np.atleast_1d(allowed).tolist()):
                raise SpecError(
                    f"Column {axis} has no such value.", fix=f"It has 0 to {self.sizes[axis] - 1}."
                )
            values[number] = np.full(self.sizes[axis], -np.inf)
            values[number][np.atleast_1d(allowed).astype(np.int64)] = 0.0
        tables = net.empty()
        return net, tables, net.spread(values, tables)


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
    _require(sizes, evidence)
    found = whole_total(evidence) if total is None else total
    fitting, left_out = _fitting(sizes, _merged(evidence), cells_max)
    fitting = _agreeing(sizes, fitting, found)
    potentials = _started(fitting, start)
    tree = junction_tree([p.axes for p in potentials], sizes)
    net = network(sizes, tree, [p.axes for p in potentials])
    solved = _solved(net, potentials, fitting, found, rounds=rounds, done=done)
    return Model(sizes, found, solved, left_out)


def digest_of(*arrays: NDArray[Any] | None) -> str:
    """A name for exactly these numbers."""
    hashed = sha256()
    for each in arrays:
        hashed.update(b"" if each is None else np.ascontiguousarray(each).tobytes())
    return hashed.hexdigest()[:40]


def _require(sizes: Sizes, evidence: Sequence[Evidence]) -> None:
    for each in evidence:
        if any(a >= b for a, b in pairwise((-1, *each.axes, len(sizes)))):
            raise SpecError(
                f"There are no such columns: {each.axes}.",
                fix="List their numbers in ascending order.",
                about="columns",
            )
        cells = prod(sizes[a] for a in each.axes)
        wanted = (cells, cells) if each.labels is None else (len(each.labels), len(each.values))
        if wanted != (cells, len(each.values)) or (
            each.labels is not None and each.labels.max(initial=-1) >= len(each.values)
        ):
            raise SpecError(
                f"There are {len(each.values)} numbers of evidence for {cells} cells.",
                fix="Give one per cell, or a label for each cell.",
                about="evidence",
            )


def whole_total(evidence: Sequence[Evidence]) -> float:
    """What complete tables say about their sum, weighted by how precise they are."""
    sums, weights = [], []
    for each in evidence:
        if each.labels is None or each.labels.min() >= 0:
            sums.append(float(each.values.sum()))
            weights.append(1 / (max(each.variance, _VARIANCE_MIN) * len(each.values)))
    if not sums:
        raise SpecError("No evidence gives the number of rows.", fix="Give `total`.", about="total")
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


def _agreeing(sizes: Sizes, evidence: Sequence[Evidence], total: float) -> list[Evidence]:
    """The nearest complete tables that agree and have no negative numbers, by Dykstra [BD86].

    That the tables of p agree and are not negative is true of any p, so little is lost; but tables
    that do not agree pull what they share to and fro for long.
    """
    plain = [e for e in evidence if e.labels is None]
    tables = [e.values.reshape([sizes[a] for a in e.axes]) for e in plain]
    noise = min((sqrt(e.variance) for e in plain), default=0.0)
    owed = [np.zeros_like(table) for table in tables]
    for _ in range(_PROJECTIONS):
        asked = zip(plain, tables, strict=True)
        parts = combine(sizes, [(Question(e.axes), Noisy(t, e.variance)) for e, t in asked])  # type: ignore[arg-type]
        whole = Parts(sizes, {**parts.values, (): np.array(total)}, parts.precision)
        agreed = [whole.table(e.axes) for e in plain]
        if all(table.min() >= -_CLOSE * noise for table in agreed):
            break
        tables = [simplex(a + o, total) for a, o in zip(agreed, owed, strict=True)]
        owed = [o + a - t for a, o, t in zip(agreed, owed, tables, strict=True)]
    found = iter([np.maximum(table, 0.0).ravel() for table in agreed])
    return [
        e if e.labels is not None else Evidence(e.axes, next(found), e.variance) for e in evidence
    ]


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
    """Potentials after so many rounds, each of which settles all evidence by turns."""
    if not potentials:
        return ()
    noise = [sqrt(max(e.variance, _VARIANCE_MIN)) / total for e in evidence]
    typical = 1 / sqrt(
        np.average([n**-2 for n in noise], weights=[len(e.values) for e in evidence])
    )
    weights = [n**2 / (_LOOSE * typical) for n in noise]
    measured = [e.values / total for e in evidence]
    thetas = [p.values for p in potentials]
    tables = net.empty()
    start = {n: p.table(p.values, net.sizes) for n, p in enumerate(potentials)}
    net.spread(start, tables)
    shared = {name: table.copy() for name, table in net.gather(tables).items() if name < 0}

    def block(number: int, table: Floats) -> Floats:
        """The best potential given all others: new + weight · θ = measured."""
        now = np.maximum(potentials[number].sums(table), _TINY)
        weight = weights[number]
        level = np.log(now / weight) + measured[number] / weight - thetas[number]
        new = np.maximum(weight * wrightomega(level), _TINY)
        moved.append(float(np.abs(new - now).sum()))
        step, outside = np.log(new / now), 0.0
        if min(1 - new.sum(), rest := table.sum() - now.sum()) > _NOTHING:
            outside = log((1 - new.sum()) / rest)
        thetas[number] = thetas[number] + step - outside
        return np.exp(potentials[number].table(step, net.sizes, outside))

    before = inf
    for number in range(rounds):
        moved = list[float]()
        net.settle(tables, shared, block)
        tables[0] /= tables[0].sum()
        if done is not None:
            done((number + 1) / rounds)
        if sum(moved) > (1 - _SLOW) * before:
            break
        before = sum(moved)
    pairs = zip(potentials, thetas, strict=True)
    return tuple(Potential(p.axes, theta, p.labels) for p, theta in pairs)
