"""The method that noisegate chooses, by a public rule: no row has a say in it, so it is free.

1. Where single cells with noise of their own answer the workload to half a row, they are released
   as they are: "cells".
2. Small tables: "cells" or "tree", whichever predicts the smaller error. There is little to refine,
   and both know their error. Small is up to 256 cells; up to 16 where sums along one axis are asked
   for, since a plan pays earlier there.
3. Sums along one axis: "planned". It looks, and then measures finely where the rows are.
4. Single cells, and more axes: "adaptive", the same idea on a tree over all axes. For single cells
   of one axis too it is nearer in the mean, at the cost of not knowing its error.

The two last ones choose what to measure by numbers that were paid for and are used again.

An order of a table first asks whether the workload is few ranges (`is_few`): then "direct" is the
method, and no method is "auto".
"""

from math import prod
from typing import ClassVar, Final, final

import numpy as np

from noisegate.errors import SpecError
from noisegate.frozen import dataclass, replace
from noisegate.releases.ask.asking import Ask
from noisegate.releases.cells.estimate import Estimate, Predicted
from noisegate.releases.cells.workload import Workload
from noisegate.releases.recipes import Recipe, recipe, require_same
from noisegate.releases.recipes.cells import Cells

_WHY: Final = {
    "cells": "which predicts the least error here",
    "tree": "which predicts the least error here",
    "planned": "which first estimates along the axis where rows are and measures finely there",
    "adaptive": "which first estimates where rows are and measures finely there",
}
_RIGHT: Final = 0.5  # an error that rounding takes away
_FEW: Final = 0.45  # of what "planned" errs at most
_FEW_BOXES: Final = 2.5  # times the noise of one box of "adaptive"
_SMALL: Final = 256
_SMALL_SUMS: Final = 16


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
        words = (f"by {name!r}, {_WHY[name]}", found.words)
        return replace(found, words=": ".join(filter(None, words)))

    def build(self, ask: Ask, workload: Workload) -> Estimate:
        """As the chosen one does."""
        name, made = choice(ask, workload)
        found = made.build(ask, workload)
        words = (f"chosen method: {name!r}", *found.words)
        return replace(found, words=words)


def choice(ask: Ask, workload: Workload) -> tuple[str, Recipe]:
    """The recipe by the rule above. It looks at the shape, the workload and the noise alone."""
    plain = Cells().predict(ask, workload).rms
    if plain is not None and plain <= _RIGHT:
        return "cells", Cells()
    single = bool(np.array_equal(workload.lows, workload.highs))
    sums = len(ask.shape) == 1 and not single
    if prod(ask.shape) <= (_SMALL_SUMS if sums else _SMALL):
        tree = recipe("tree")
        nested = tree.predict(ask, workload).rms
        better = plain is not None and nested is not None and nested < plain
        return ("tree", tree) if better else ("cells", Cells())
    name = "planned" if sums else "adaptive"
    return name, recipe(name)


def is_few(ask: Ask, workload: Workload) -> bool:
    """Whether "direct" is the better choice, by what all methods say beforehand.

    That is where its error is at most 0.45 of the most that "planned" states for sums along one
    axis, or 2.5 times the noise of one box of "adaptive" elsewhere. On lines of seven and maps of
    five families (1 to 64 random ranges, ε = 0.1) its mean error is a half to an eighth of that of
    what is chosen else where there are 10⁵ rows or more, and a half to three quarters at 1,000.
    """
    name, other = choice(ask, workload)
    if name not in ("planned", "adaptive") or np.array_equal(workload.lows, workload.highs):
        return False
    direct = recipe("direct")
    try:
        direct.require(ask.shape, workload)
    except SpecError:
        return False
    own, theirs = direct.predict(ask, workload).rms, other.predict(ask, workload)
    if own is None:
        return False
    if theirs.most is not None:
        return own <= _FEW * theirs.most
    return theirs.noise is not None and own <= _FEW_BOXES * theirs.noise
