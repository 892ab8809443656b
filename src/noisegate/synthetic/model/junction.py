"""Junction trees: sets of columns arranged so that sums over all other columns stay small.

Columns that were measured together are joined. Columns are then taken out one by one, each with its
neighbours as a clique; the order decides how large the cliques get. Two greedy orders are tried
(the smallest clique next, the fewest new joins next), and the one with fewer cells is kept.

>>> cells_with([(0, 1), (1, 2)], (2, 3, 4), (0, 2))
24
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from math import exp, log, prod
from typing import final

from noisegate.frozen import dataclass
from noisegate.releases.fit.residuals import Axes, Sizes


@final
@dataclass(frozen=True, slots=True)
class Clique:
    """A set of columns: first those shared with its parent, then the others, the largest last."""

    shared: Axes
    others: Axes
    parent: int  # its place in the tree; -1 for the root, which stands first

    @property
    def axes(self) -> Axes:
        """All its columns, in the order of its table's axes."""
        return self.shared + self.others


def junction_tree(sets: Iterable[Axes], sizes: Sizes) -> tuple[Clique, ...]:
    """A tree over all columns in which each set is inside a clique; parents stand before children.

    The cliques that hold one column are connected in the tree (the heaviest spanning tree).
    """
    cliques = [_bits(mask) for mask in _cliques(_joined(sets, sizes), sizes)]
    cliques.sort(key=lambda axes: (-prod(sizes[a] for a in axes), axes))
    tree = [Clique((), tuple(sorted(cliques[0], key=lambda a: (sizes[a], a))), -1)]
    members, left = [set(cliques[0])], dict.fromkeys(cliques[1:], 0)
    shares = {axes: members[0].intersection(axes) for axes in left}
    while left:
        best = max(left, key=lambda axes: (len(shares[axes]), -len(axes), axes))
        shared = tuple(a for a in best if a in shares[best])
        others = sorted(set(best) - set(shared), key=lambda a: (sizes[a], a))
        tree.append(Clique(shared, tuple(others), left.pop(best)))
        members.append(set(best))
        for axes in left:
            common = members[-1].intersection(axes)
            if len(common) > len(shares[axes]):
                left[axes], shares[axes] = len(tree) - 1, common
    return tuple(tree)


def cells_with(cliques: Iterable[Axes], sizes: Sizes, axes: Axes = ()) -> int:
    """How many cells a model of these sets of columns would have with one set more."""
    masks = _cliques(_joined([*cliques, axes], sizes), sizes)
    return sum(prod(sizes[a] for a in _bits(mask)) for mask in masks)


def _joined(sets: Iterable[Axes], sizes: Sizes) -> list[int]:
    """For each column, the columns it was measured with and itself, as bits."""
    found = [1 << a for a in range(len(sizes))]
    for axes in sets:
        mask = sum(1 << a for a in axes)
        for a in axes:
            found[a] |= mask
    return found


def _cliques(joined: Sequence[int], sizes: Sizes) -> list[int]:
    """The maximal cliques, as bits. Columns that nothing joins are looked at apart."""
    found, left = list[int](), (1 << len(joined)) - 1
    while left:
        part, seen = left & -left, 0
        while fresh := part & ~seen:
            seen = part
            for a in _bits(fresh):
                part |= joined[a]
        left &= ~part
        found.extend(_cliques_of(part, tuple(joined[a] for a in _bits(part)), sizes))
    return found


@lru_cache(maxsize=1 << 12)
def _cliques_of(part: int, joined: tuple[int, ...], sizes: Sizes) -> tuple[int, ...]:
    """The same for columns that hang together, after the better of the two orders."""
    logs = [log(size) for size in sizes]
    around = dict(zip(_bits(part), joined, strict=True))
    tried = (_taken_out(dict(around), logs, few_joins=few) for few in (False, True))
    return tuple(min(tried, key=lambda masks: sum(exp(_weight(m, logs)) for m in masks)))


def _taken_out(joined: dict[int, int], logs: Sequence[float], *, few_joins: bool) -> list[int]:
    costs = dict.fromkeys(joined, (0.0, 0.0))
    left = stale = sum(1 << a for a in joined)
    cliques: list[int] = []
    while left:
        for a in _bits(stale):
            new = _new_joins(joined, joined[a], logs) if few_joins else 0.0
            costs[a] = (new, _weight(joined[a], logs))
        best = min(costs, key=costs.__getitem__)
        clique = joined[best]
        del costs[best]
        left &= ~(1 << best)
        if not any(clique & other == clique for other in cliques):
            cliques.append(clique)
        around = stale = clique & left
        for a in _bits(around):
            if few_joins:
                stale |= joined[a]
            joined[a] = (joined[a] | around) & left
        stale &= left
        if left == around:
            break  # what is left is inside this clique
    return cliques


def _new_joins(joined: Mapping[int, int], clique: int, logs: Sequence[float]) -> float:
    """How many pairs would have to be joined, each counted by its cells."""
    return sum(logs[a] * _weight(clique & ~joined[a], logs) for a in _bits(clique))


def _weight(mask: int, logs: Sequence[float]) -> float:
    return sum(logs[a] for a in _bits(mask))


def _bits(mask: int) -> Axes:
    found = []
    while mask:
        low = mask & -mask
        found.append(low.bit_length() - 1)
        mask ^= low
    return tuple(found)
