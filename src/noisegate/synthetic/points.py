"""Rows drawn from a released table: of a map, points evenly from their squares. Free."""

from datetime import date, datetime

import numpy as np
import pyarrow as pa

from noisegate.errors import SpecError
from noisegate.privacy.domain import Kind
from noisegate.releases.cells.axes import Axis
from noisegate.releases.cells.chance import public_coins
from noisegate.releases.forms.table import TableRelease
from noisegate.synthetic.columns import Coding, Layout
from noisegate.synthetic.rows import require_rows


def points_of(release: TableRelease, count: int | None = None, *, seed: int = 0) -> pa.Table:
    """So many rows whose table is the released one; by default as many as it counts.

    Cells are met at even steps, so that each has its part of the rows up to rounding. Numbers lie
    evenly in their bins, other keys are as they are. The same ``seed`` gives the same rows.
    """
    weights = np.maximum(np.asarray(release.values, np.float64).ravel(), 0)
    total = weights.sum()
    wanted = round(total) if count is None else count
    if total == 0:
        raise SpecError("The released table is empty.", fix="Release one with rows in it.")
    require_rows(wanted)
    layout = Layout(table=release.value, columns=tuple(map(_coding, release.axes)))
    chance = public_coins(seed)
    steps = (np.arange(wanted) + chance.random()) * (total / wanted)
    flat = np.searchsorted(np.cumsum(weights), steps, side="right")
    flat = chance.permutation(np.minimum(flat, np.flatnonzero(weights)[-1]))
    cells = np.stack(np.unravel_index(flat, release.shape), axis=1)
    return layout.decode(cells, seed=seed)


def _coding(axis: Axis) -> Coding:
    bounds = None if axis.low is None or axis.high is None else (axis.low, axis.high)
    if axis.ends is not None:
        kind = Kind.INTEGER if axis.whole else Kind.NUMBER
        return Coding(kind=kind, axis=axis, bounds=bounds)
    kinds = {bool: Kind.BOOLEAN, int: Kind.INTEGER, str: Kind.TEXT, date: Kind.DATE}
    kinds[datetime] = Kind.TIMESTAMP
    return Coding(kind=kinds.get(type(axis.present[0]), Kind.NUMBER), axis=axis)
