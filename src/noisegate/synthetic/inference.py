"""What a model on a junction tree says: messages up the tree, beliefs down, sums of beliefs.

A distribution is the exponential of a sum of potentials, each over a few columns. Going up, a
clique's table becomes that of its other columns given those shared with its parent; going down, it
is multiplied by what the parent says about the shared ones. One exponential per cell and pass, in
place: memory is one number per cell of the model.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import final

import numpy as np

from noisegate.errors import SpecError
from noisegate.releases.estimate import Floats
from noisegate.releases.residuals import Axes, Sizes
from noisegate.synthetic.factors import Sums, product, summed, sums_plan
from noisegate.synthetic.junction import Clique

_KEPT_MAX = 1 << 22  # cells of intermediate tables that are kept while many are made


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
    """Tables over any columns from the beliefs of a tree, sharing what they have in common."""

    def __init__(self, sizes: Sizes, tree: tuple[Clique, ...], beliefs: Sequence[Floats]) -> None:
        self._sizes, self._tree, self._beliefs = sizes, tree, beliefs
        self._kept: dict[tuple[object, ...], Floats] = {}
        self._kept_cells = 0

    def table(self, axes: Axes) -> Floats:
        """Probabilities over some columns."""
        top, below = self._needed(frozenset(axes))
        found, table = self._up(top, frozenset(axes), below, top=True)
        return table.transpose([found.index(a) for a in axes])

    def _needed(self, wanted: frozenset[int]) -> tuple[int, dict[int, list[int]]]:
        """The smallest part of the tree that holds the wanted columns: its top, and children."""
        tree = self._tree
        parents = {c: clique.parent for c, clique in enumerate(tree) if c}
        around: dict[int, set[int]] = {c: set() for c in range(len(tree))}
        for c, parent in parents.items():
            around[c].add(parent)
            around[parent].add(c)
        held = [wanted.intersection(clique.axes) for clique in tree]
        loose = [c for c in around if len(around[c]) <= 1]
        while loose:
            c = loose.pop()
            if len(around) == 1 or c not in around or len(around[c]) != 1:
                continue
            (other,) = around[c]
            if held[c] <= held[other]:
                del around[c]
                around[other].discard(c)
                loose.append(other)
        top = min(around)
        below = {c: [x for x in sorted(around[c]) if parents.get(x) == c] for c in around}
        return top, below

    def _up(
        self, place: int, wanted: frozenset[int], below: Mapping[int, list[int]], *, top: bool
    ) -> tuple[Axes, Floats]:
        """Wanted columns from a clique down, given those it shares with its parent (or not)."""
        clique, children = self._tree[place], below[place]
        shared = frozenset() if top else frozenset(clique.shared)
        ends = [frozenset(self._tree[c].shared) for c in children]
        kept = wanted | shared
        start = tuple(a for a in clique.axes if a in kept.union(*ends))
        axes, table = start, self._start(place, start, given=not top)
        for number, child in enumerate(children):
            more = self._up(child, wanted, below, top=False)
            still = kept.union(*ends[number + 1 :])
            axes, table = product((axes, table), more, still)
            if table.size > _KEPT_MAX * 16:
                raise SpecError("A table has too many cells.", fix="Ask for fewer columns.")
        return axes, table

    def _start(self, place: int, axes: Axes, *, given: bool) -> Floats:
        key = (place, axes, given)
        if key in self._kept:
            return self._kept[key]
        clique = self._tree[place]
        table = self._beliefs[place]
        gone = [a for a in clique.axes if a not in axes]
        order = list(clique.axes)
        for axis in sorted(gone, key=lambda a: -self._sizes[a]):
            table = summed(table, order.index(axis))
            order.remove(axis)
        if given:
            shape = table.shape[: len(clique.shared)]
            rows = table.reshape(prod(shape), -1)
            total = rows.sum(axis=1, keepdims=True)
            table = (rows / np.where(total > 0, total, 1.0)).reshape(table.shape)
        if self._kept_cells + table.size <= _KEPT_MAX:
            self._kept[key] = table
            self._kept_cells += table.size
        return table
