"""Sums over the axes of tables, arranged so that large tables are passed over few times.

>>> plan = sums_plan((0, 1), {"first": (0,), "both": (0, 1)}, (2, 2))
>>> found = {}
>>> plan.sums(np.array([[1.0, 2.0], [3.0, 4.0]]), found)
>>> found["first"].tolist()
[3.0, 7.0]
"""

from collections.abc import Callable, Hashable, Iterator, Mapping
from math import prod
from typing import Generic, TypeAlias, TypeVar, final

import numpy as np

from noisegate.frozen import dataclass
from noisegate.releases.cells.workload import Floats
from noisegate.releases.fit.residuals import Axes, Sizes

Name = TypeVar("Name", bound=Hashable)
Settle: TypeAlias = Callable[[Name, Floats], Floats]


@final
@dataclass(frozen=True, slots=True)
class Sums(Generic[Name]):
    """A table, the wanted tables that it is itself, and smaller tables that sum over one axis.

    Wanted tables have their axes in ascending order; ``ends`` say how to turn them.
    """

    shape: tuple[int, ...]
    ends: tuple[tuple[Name, tuple[int, ...], tuple[int, ...]], ...]
    parts: tuple[tuple[int, "Sums[Name]"], ...]

    def sums(self, table: Floats, found: dict[Name, Floats]) -> None:
        """Put all wanted sums of a table into ``found``."""
        for name, turn, _ in self.ends:
            found[name] = table.transpose(turn)
        for axis, part in self.parts:
            part.sums(summed(table, axis), found)

    def spread(self, values: Mapping[Name, Floats], out: Floats | None = None) -> Floats:
        """The sum of all wanted tables, each repeated along its missing axes: the adjoint."""
        table = np.empty(self.shape) if out is None else out
        started = False
        for name, _, back in self.ends:
            started = _put(table, values[name].transpose(back), started=started)
        for axis, part in self.parts:
            started = _put(table, np.expand_dims(part.spread(values), axis), started=started)
        if not started:
            table.fill(0.0)
        return table

    def scale(self, table: Floats, settle: Settle[Name]) -> Iterator[Floats]:
        """Multiply a table by what ``settle`` says for each wanted table by turns: the factors."""
        for name, turn, back in self.ends:
            factor = settle(name, table.transpose(turn)).transpose(back)
            table *= factor
            yield factor
        for axis, part in self.parts:
            smaller = np.ones(part.shape)
            for more in part.scale(summed(table, axis), settle):
                smaller *= more
            factor = np.expand_dims(smaller, axis)
            table *= factor
            yield factor


def sums_plan(axes: Axes, wanted: Mapping[Name, Axes], sizes: Sizes) -> Sums[Name]:
    """Which sums to make from which: an axis that most wanted tables lack goes first."""
    ends, left = [], dict[Name, Axes]()
    for name, kept in wanted.items():
        if len(kept) < len(axes):
            left[name] = kept
            continue
        turn = tuple(axes.index(a) for a in kept)
        ends.append((name, turn, tuple(kept.index(a) for a in axes)))
    parts = []
    while left:
        lacking = {a: [name for name, kept in left.items() if a not in kept] for a in axes}
        best = max(axes, key=lambda a: len(lacking[a]) * (1 - 1 / (1 + sizes[a])))
        smaller = tuple(a for a in axes if a != best)
        inner = {name: left.pop(name) for name in lacking[best]}
        parts.append((axes.index(best), sums_plan(smaller, inner, sizes)))
    return Sums(tuple(sizes[a] for a in axes), tuple(ends), tuple(parts))


def summed(table: Floats, axis: int) -> Floats:
    """The sum over one axis, by products with ones where that is quicker."""
    shape = table.shape
    rest = shape[:axis] + shape[axis + 1 :]
    if axis == len(shape) - 1 and table.flags.c_contiguous:
        found: Floats = table.reshape(-1, shape[axis]) @ np.ones(shape[axis])
        return found.reshape(rest)
    reduced: Floats = np.add.reduce(table, axis=axis)
    return reduced


def product(
    one: tuple[Axes, Floats], other: tuple[Axes, Floats], kept: frozenset[int]
) -> tuple[Axes, Floats]:
    """The product of two tables, summed over the shared axes that are not kept."""
    shared = [a for a in one[0] if a in other[0]]
    both = [a for a in shared if a in kept]
    gone = [a for a in shared if a not in kept]
    first = [a for a in one[0] if a not in shared]
    second = [a for a in other[0] if a not in shared]
    size = dict(zip((*one[0], *other[0]), (*one[1].shape, *other[1].shape), strict=True))
    lengths = [prod(size[a] for a in group) for group in (both, first, gone, second)]
    left = one[1].transpose([one[0].index(a) for a in (*both, *first, *gone)])
    right = other[1].transpose([other[0].index(a) for a in (*both, *gone, *second)])
    found = np.matmul(
        left.reshape(lengths[0], lengths[1], lengths[2]),
        right.reshape(lengths[0], lengths[2], lengths[3]),
    )
    axes = (*both, *first, *second)
    return axes, found.reshape([size[a] for a in axes])


def _put(table: Floats, more: Floats, *, started: bool) -> bool:
    if started:
        table += more
    else:
        table[...] = more
    return True
