"""The method that noisegate chooses, by a public rule: no row has a say in it, so it is free.

1. Where single cells with noise of their own answer the workload to half a row, they are released
   as they are: "cells".
2. Small tables, up to 16 cells along one axis or 256 over more: "cells" or "tree", whichever
   predicts the smaller error. There is little to refine, and both know their error.
3. One axis: "planned". It looks, and then measures finely where the rows are.
4. More axes: "adaptive", the same idea on a tree over all axes.

The two last ones choose what to measure by numbers that were paid for and are used again.
"""

from dataclasses import dataclass
from math import prod
from typing import ClassVar, Final, final

from noisegate.releases.asking import Ask
from noisegate.releases.estimate import Estimate, Predicted
from noisegate.releases.recipes import Recipe, recipe
from noisegate.releases.recipes.cells import Cells
from noisegate.releases.recipes.tree import require_same
from noisegate.releases.workload import Workload

_RIGHT: Final = 0.5  # an error that rounding takes away
_FEW: Final = (16, 256)  # cells of one axis, and of more


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Auto:
    """Chooses another recipe. Numbers are counts, or other sums that cannot be negative."""

    name: ClassVar[str] = "auto"

    def require(self, shape: tuple[int, ...], workload: Workload) -> None:
        """Any cells."""
        require_same(shape, workload)

    def predict(self, ask: Ask, workload: Workload) -> Predicted:
        """As the chosen one does."""
        name, made = choice(ask, workload)
        found = made.predict(ask, workload)
        return Predicted(rms=found.rms, words=f"by {name!r}: {found.words}")

    def build(self, ask: Ask, workload: Workload) -> Estimate:
        """As the chosen one does."""
        name, made = choice(ask, workload)
        found = made.build(ask, workload)
        words = (f"chosen method: {name!r}", *found.words)
        return Estimate(found.cells, found.variance, words, found.tree, found.mend)


def choice(ask: Ask, workload: Workload) -> tuple[str, Recipe]:
    """The recipe by the rule above. It looks at the shape, the workload and the noise alone."""
    plain = Cells().predict(ask, workload).rms
    if plain is not None and plain <= _RIGHT:
        return "cells", Cells()
    if prod(ask.shape) <= _FEW[len(ask.shape) > 1]:
        tree = recipe("tree")
        nested = tree.predict(ask, workload).rms
        better = plain is not None and nested is not None and nested < plain
        return ("tree", tree) if better else ("cells", Cells())
    name = "planned" if len(ask.shape) == 1 else "adaptive"
    return name, recipe(name)
