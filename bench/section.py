"""What the sections of the accuracy bench share: effort, tables to show, data, samples.

A section is a function from `Effort` to tables, in a file of its own; `accuracy.SECTIONS` lists it.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import stdev

import numpy as np

from keep import Shown
from noisegate.releases.cells.estimate import Estimate, finish
from noisegate.releases.cells.workload import Workload

ROOT = Path(__file__).parents[1]
DATA = ROOT.parent / "shared" / "data"
HELD = 20261118  # the seed of shapes that nothing was tuned on, until it is used for that


@dataclass(frozen=True)
class Effort:
    """How much to run: trials of what is claimed, trials of what stands beside it."""

    trials: int
    beside: int
    quick: bool  # few tables only
    say: Callable[[str], None]
    held: int = HELD


Section = Callable[[Effort], Iterator[Shown]]


def sample(shape: np.ndarray, rows: int, seed: int) -> np.ndarray:
    """So many rows drawn from the shape of a table, with replacement."""
    chances = shape.astype(float).ravel()
    drawn = np.random.default_rng(seed).multinomial(rows, chances / chances.sum())
    return drawn.reshape(shape.shape)


def released(estimate: Estimate, asked: Workload) -> np.ndarray:
    """Counts as the workbench would release them."""
    if estimate.mend is not None:
        return estimate.mend(1.0).reshape(asked.shape)
    return finish(estimate.cells.reshape(asked.shape), asked, is_whole=True, signed=False)


def standard_error(values: Sequence[float]) -> float:
    return stdev(values) / len(values) ** 0.5 if len(values) > 1 else 0.0
