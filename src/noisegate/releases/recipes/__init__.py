"""Recipes by name: what to measure for a workload, and how to rebuild the cells from it."""

from collections.abc import Mapping
from fractions import Fraction
from importlib import import_module
from math import prod
from types import MappingProxyType
from typing import Any, Final, Protocol, get_args

from noisegate.desk.terms.terms import require_options
from noisegate.errors import SpecError
from noisegate.exact import fraction
from noisegate.frozen import dataclass, fields
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
    "direct": "direct:Direct",
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


# They let a mechanism choose by the cells themselves: the capability "partitions".
CHOOSING: Final = frozenset({
    "dawa", "fourier", "hybrid", "kdtree", "mwem", "planned", "privtree",
})  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Exact:
    """A recipe whose fractions are exact, however they are written."""

    def __post_init__(self) -> None:
        for each in fields(self):
            said = getattr(self, each.name)
            if Fraction in (each.type, *get_args(each.type)) and said is not None:
                object.__setattr__(self, each.name, fraction(said, name=each.name))


class Recipe(Protocol):
    """A way to release cells. Its fields are its options."""

    def require(self, shape: tuple[int, ...], workload: Workload) -> None:
        """Refuse what it cannot do, before anything is paid."""

    def predict(self, ask: Ask, workload: Workload) -> Predicted:
        """How far answers will be off; free: it looks at shape, kind of noise and variances."""

    def build(self, ask: Ask, workload: Workload) -> Estimate:
        """Ask, and rebuild."""


def require_same(
    shape: tuple[int, ...], workload: Workload, *, cells: int | None = None, axes: int | None = None
) -> None:
    """A workload about these cells, of which there is at least one, and at most so many."""
    if workload.shape != tuple(shape) or not workload.size or not prod(shape):
        raise SpecError(
            "The workload is empty, or was made for other cells.",
            fix="Make it for this table's shape.",
            about="workload",
        )
    for held, most, name in ((len(shape), axes, "axes"), (prod(shape), cells, "cells")):
        if most is not None and held > most:
            raise SpecError(
                f"There are {held:,} {name}.",
                fix=f"Use at most {most:,}, or method 'tree'.",
                about=name,
            )


def require_parts(*shares: Fraction) -> None:
    """Refuse shares that leave nothing for something."""
    if not all(0 < share < 1 for share in shares):
        raise SpecError("A share is not between 0 and 1.", fix="For example: 1/2.")


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
