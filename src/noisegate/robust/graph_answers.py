"""The numbers of a graph: how each is named, shown, and said; and how far noise reaches."""

from collections.abc import Sequence
from fractions import Fraction
from typing import Final

import pyarrow as pa

from noisegate.exact import Number
from noisegate.mechanisms.additive.gaussian import DiscreteGaussian
from noisegate.mechanisms.additive.geometric import Geometric
from noisegate.planning.calibrate import discrete_gaussian_error, geometric_error

PLAIN: Final = (  # noise of a known width
    "edges", "degrees", "min-cut", "bipartite-distance", "degree-distribution",
)  # fmt: skip
CAPPED: Final = {
    "edges": "capped-edges", "triangles": "truncated-triangles", "min-cut": "capped-min-cut",
    "degree-distribution": "capped-degree-distribution",
}  # fmt: skip
RISING: Final = "Sorted by isotonic regression; the ± is for all of them at once."
FEW: Final = {
    "capped-edges": "At most {} edges of each vertex count.",
    "degree-distribution": "Vertices of {} edges or more are the rest.",
    "capped-degree-distribution": "At most {} edges of each vertex count, taken in the order of "
    "the vertices.",
    "capped-min-cut": "A least cut of more than {} edges counts as so many: without one vertex's "
    "edges any graph falls apart, so nothing narrower hides a vertex.",
    "weighted-cut": "Weights count in whole steps of {}, rounded down; the ± is of noise alone.",
}


def number_table(name: str, values: Sequence[int | float | None]) -> pa.Table:
    """The number, the degrees in their order of size, or how many are at most 0, 1, … and so on."""
    if name == "degrees":
        return pa.table({"rank": list(range(1, len(values) + 1)), "degree": values})
    if "distribution" in name:
        return pa.table({"degree": list(range(len(values))), "at_most": values})
    plain = name.removeprefix("capped-").removeprefix("truncated-")
    return pa.table({plain.replace("-", "_"): values})


def largest_noise(noise: Geometric | DiscreteGaussian, confidence: Number, cells: int) -> int:
    """How far the noise of any of several numbers reaches."""
    if isinstance(noise, Geometric):
        return geometric_error(noise.scale, confidence=confidence, cells=cells)
    return discrete_gaussian_error(noise.variance, confidence=confidence, cells=cells)


def rising(values: Sequence[float]) -> list[float]:
    """The nearest list that never falls.

    Claim: no further from the exact degrees, at worst, than the noise itself. Why: they rise, and
        this projection brings no two lists further apart in their largest difference [HRMS10].
    """
    from scipy.optimize import isotonic_regression  # noqa: PLC0415 - only degrees need it

    found: list[float] = isotonic_regression(values).x.tolist()
    return found


def step_text(width: Fraction) -> str:
    """The step as SQL has it; one that is not a decimal is cut to six digits."""
    return f"{float(width):.6g}"
