"""Recipes by name: what to measure for a workload, and how to rebuild the cells from it."""

from collections.abc import Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Any, Final, Protocol

from noisegate.desk.options import require_options
from noisegate.errors import SpecError
from noisegate.releases.ask.asking import Ask
from noisegate.releases.cells.estimate import Estimate, Predicted
from noisegate.releases.cells.workload import Workload

RECIPES: Final[Mapping[str, str]] = MappingProxyType({
    "adaptive": "adaptive:Adaptive",
    "adaptive-grid": "spatial.grids:AdaptiveGrid",
    "ahp": "ahp:Ahp",
    "auto": "auto:Auto",
    "cells": "cells:Cells",
    "convex": "convex:Convex",
    "dawa": "dawa:Dawa",
    "fourier": "fourier:Fourier",
    "haar": "haar:Haar",
    "hybrid": "spatial.kdtree:Hybrid",
    "kdtree": "spatial.kdtree:KdTree",
    "marginals": "marginals:Marginals",
    "mwem": "mwem:Mwem",
    "planned": "planned:Planned",
    "privtree": "spatial.privtree:PrivTree",
    "quadtree": "spatial.quadtree:Quadtree",
    "seasonal": "seasonal:Seasonal",
    "sensing": "sketch:Sensing",
    "sketch": "sketch:Sketch",
    "totals": "totals:Totals",
    "tree": "tree:Tree",
    "uniform-grid": "spatial.grids:UniformGrid",
})  # fmt: skip

# They look first, and take every number to be 0 or more.
FROM_ZERO: Final = frozenset({
    "adaptive", "adaptive-grid", "ahp", "dawa", "hybrid", "kdtree", "mwem", "planned", "privtree",
    "sensing", "uniform-grid",
})  # fmt: skip


class Recipe(Protocol):
    """A way to release cells. Its fields are its options."""

    def require(self, shape: tuple[int, ...], workload: Workload) -> None:
        """Refuse what it cannot do, before anything is paid."""

    def predict(self, ask: Ask, workload: Workload) -> Predicted:
        """How far answers will be off; free: it looks at shape, kind of noise and variances."""

    def build(self, ask: Ask, workload: Workload) -> Estimate:
        """Ask, and rebuild."""


def recipe(name: str, **options: Any) -> Recipe:  # noqa: ANN401 - options of the recipe
    """A recipe by its name."""
    if type(name) is not str or name not in RECIPES:
        raise SpecError(
            f"There is no method {name!r}.", fix=f"Use {', '.join(RECIPES)}.", about="method"
        )
    module, made = RECIPES[name].split(":")
    kind = getattr(import_module(f"noisegate.releases.recipes.{module}"), made)
    require_options(name, kind, options)
    found: Recipe = kind(**options)
    return found
