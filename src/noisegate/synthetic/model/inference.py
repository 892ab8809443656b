"""What a model on a junction tree says: messages up the tree, beliefs down, sums of beliefs.

A distribution is the exponential of a sum of potentials, each over a few columns. Going up, a
clique's table becomes that of its other columns given those shared with its parent; going down, it
is multiplied by what the parent says about the shared ones. One exponential per cell and pass, in
place: memory is one number per cell of the model.
"""

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Final, final

import numpy as np

from noisegate.errors import SpecError
from noisegate.frozen import dataclass
from noisegate.releases.cells.workload import Floats
from noisegate.releases.fit.residuals import Axes, Sizes
from noisegate.synthetic.model.factors import Sums, product, summed, sums_plan
from noisegate.synthetic.model.junction import Clique

_KEPT_MAX: Final = 1 << 22  # cells of intermediate tables that are kept while many are made
_WORK_MAX: Final = 1 << 32  # products


@final
@dataclass(frozen=True, slots=True, eq=False)
class Network:
    """A tree, and for each clique which potentials go into it and which sums leave it.

    Potentials are numbered; the message from the clique in place c is numbered ~c.
    """

    sizes: Sizes
    tree: tuple[Clique, ...]
    plans: tuple[Sums[int], ...]

    def spread(self, potentials: Mapping[int, Floats], tables: Sequence[Floats]) -> float:
        """Go up: tables become those of other columns given shared ones. Returns log of the sum."""
        values, log_sum = dict(potentials), 0.0
        for place in reversed(range(len(self.tree))):
            clique, table = self.tree[place], tables[place]
            self.plans[place].spread(values, table)
            rows = table.reshape(prod(self.sizes[a] for a in clique.shared), -1)
            top = rows.max(axis=1)
            top[np.isneginf(top)] = 0.0
            rows -= top[:, None]
            np.exp(rows, out=rows)
            total = rows @ np.ones(rows.shape[1])
            rows /= np.where(total > 0, total, 1.0)[:, None]
            with np.errstate(divide="ignore"):
                message = np.log(total) + top
            if place:
                values[~place] = message.reshape([self.sizes[a] for a in clique.shared])
            else:
                log_sum = float(message[0])
        return log_sum

    def gather(self, tables: Sequence[Floats]) -> dict[int, Floats]:
        """Go down: tables become probabilities. Returns all wanted sums of them."""
        found: dict[int, Floats] = {}
        for place in range(len(self.tree)):
            if place:
                shared = np.ascontiguousarray(found[~place])
                rows = tables[place].reshape(*shared.shape, -1)
                rows *= shared[..., None]
            self.plans[place].sums(tables[place], found)
        return found

    def settle(
        self,
        tables: Sequence[Floats],
        shared: dict[int, Floats],
        block: Callable[[int, Floats], Floats],
    ) -> None:
        """Visit all cliques; ``block`` says by what a wanted table is to be multiplied.

        ``shared`` are the tables of shared columns that the cliques know of, by message. A child
        is visited as soon as a table of its shared columns is at hand, and answers with a factor.
        """

        def visit(place: int) -> None:
            for _ in self.plans[place].scale(tables[place], settle):
                pass

        def settle(name: int, table: Floats) -> Floats:
            if name >= 0:
                return block(name, table)
            place = ~name
            rows = tables[place].reshape(table.size, -1)
            rows *= _ratio(table, shared[name]).reshape(-1, 1)
            visit(place)
            shared[name] = (rows @ np.ones(rows.shape[1])).reshape(table.shape)
            return _ratio(shared[name], table)

        visit(0)

    def empty(self) -> list[Floats]:
        """Room for the tables of all cliques."""
        return [np.empty([self.sizes[a] for a in clique.axes]) for clique in self.tree]


def network(sizes: Sizes, tree: tuple[Clique, ...], sets: Sequence[Axes]) -> Network:
    """The plan for potentials over these sets: each goes into the smallest clique that holds it."""
    wanted: list[dict[int, Axes]] = [{} for _ in tree]
    cells = [prod(sizes[a] for a in clique.axes) for clique in tree]
    for number, axes in enumerate(sets):
        homes = [c for c, clique in enumerate(tree) if set(axes) <= set(clique.axes)]
        wanted[min(homes, key=cells.__getitem__)][number] = axes
    for place, clique in enumerate(tree):
        if place:
            wanted[clique.parent][~place] = clique.shared
    plans = (sums_plan(c.axes, w, sizes) for c, w in zip(tree, wanted, strict=True))
    return Network(sizes, tree, tuple(plans))


def _ratio(new: Floats, old: Floats) -> Floats:
    return np.divide(new, old, out=np.ones(new.shape), where=old > 0)


@final
class Elimination:
    """Tables over any columns from the beliefs of a tree, sharing what they have in common.

    The cliques that are needed are joined towards the one of them for which that is least work.
    """

    def __init__(self, sizes: Sizes, tree: tuple[Clique, ...], beliefs: Sequence[Floats]) -> None:
        self._sizes = sizes
        self._held = [frozenset(clique.axes) for clique in tree]
        self._around: dict[int, set[int]] = {c: set() for c in range(len(tree))}
        for c, clique in enumerate(tree):
            if c:
                self._around[c].add(clique.parent)
                self._around[clique.parent].add(c)
        self._kept: list[dict[frozenset[int], tuple[Axes, Floats]]] = [
            {frozenset(clique.axes): (clique.axes, belief)}
            for clique, belief in zip(tree, beliefs, strict=True)
        ]
        self._room = _KEPT_MAX

    def table(self, axes: Axes) -> Floats:
        """Probabilities over some columns."""
        wanted = frozenset(axes)
        around = self._needed(wanted)
        works = {c: self._work(c, -1, wanted, around)[1] for c in around}
        end = min(works, key=works.__getitem__)
        if works[end] > _WORK_MAX:
            raise SpecError(
                "A table of so many columns takes too much work.", fix="Ask for fewer columns."
            )
        found, table = self._joined(end, -1, wanted, around)
        return table.transpose([found.index(a) for a in axes])

    def _needed(self, wanted: frozenset[int]) -> dict[int, set[int]]:
        """The smallest part of the tree that holds the wanted columns, by neighbours."""
        around = {c: set(others) for c, others in self._around.items()}
        held = [wanted & axes for axes in self._held]
        loose = [c for c in around if len(around[c]) == 1]
        while loose:
            c = loose.pop()
            if c in around and len(around[c]) == 1:
                (other,) = around[c]
                if held[c] <= held[other]:
                    del around[c]
                    around[other].discard(c)
                    loose.append(other)
        return around

    def _work(
        self, place: int, towards: int, wanted: frozenset[int], around: Mapping[int, set[int]]
    ) -> tuple[frozenset[int], int]:
        """Which columns `_joined` would leave, and how many products it would take."""
        kept = wanted | self._shared(place, towards)
        others = sorted(around[place] - {towards})
        ends = [self._shared(c, place) for c in others]
        axes, work = self._held[place] & kept.union(*ends), 0
        for number, c in enumerate(others):
            more, below = self._work(c, place, wanted, around)
            work += below + prod(self._sizes[a] for a in axes | more)
            axes = (axes | more) & kept.union(*ends[number + 1 :])
        return axes, work

    def _joined(
        self, place: int, towards: int, wanted: frozenset[int], around: Mapping[int, set[int]]
    ) -> tuple[Axes, Floats]:
        """Wanted columns on this side of a clique, given those it shares with the other side."""
        others = sorted(around[place] - {towards})
        shared = self._shared(place, towards)
        kept = wanted | shared
        ends = [self._shared(c, place) for c in others]
        start = self._held[place] & kept.union(*ends)
        found = self._start(place, start, given=shared if towards >= 0 else None)
        for number, c in enumerate(others):
            more = self._joined(c, place, wanted, around)
            found = product(found, more, kept.union(*ends[number + 1 :]))
        return found

    def _start(
        self, place: int, axes: frozenset[int], *, given: frozenset[int] | None
    ) -> tuple[Axes, Floats]:
        """What a clique alone says about some of its columns, maybe given some of them."""
        order, table = self._sums(place, axes)
        if given is None:
            return order, table
        others = tuple(n for n, a in enumerate(order) if a not in given)
        total = np.expand_dims(self._sums(place, given)[1], others)
        return order, _ratio(table, np.broadcast_to(total, table.shape))

    def _sums(self, place: int, axes: frozenset[int]) -> tuple[Axes, Floats]:
        """The table of some columns of a clique, from the smallest one at hand."""
        kept = self._kept[place]
        best = min((s for s in kept if s >= axes), key=lambda s: kept[s][1].size)
        order, table = kept[best]
        for axis in sorted(best - axes, key=lambda a: -self._sizes[a]):
            table = summed(table, order.index(axis))
            order = tuple(a for a in order if a != axis)
            if self._room >= table.size:
                kept[frozenset(order)] = order, table
                self._room -= table.size
        return order, table

    def _shared(self, one: int, other: int) -> frozenset[int]:
        if other < 0:
            return frozenset()
        return self._held[one] & self._held[other]
