"""Marginal tables of a table that is too large to be held: fitted to each other, then made whole.

    measure     what the design says, each question a tally of its own
    least squares   in closed form: all tables agree on every marginal that they share
    shrink      interactions that are mostly noise give way to what single columns say
    mend        no negative numbers: projections by turns on tables that agree and that could be
    whole       whole numbers that still agree

Everything after measuring is free. The first step alone is unbiased and has a known variance.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from math import prod, sqrt
from typing import Final, TypeAlias, final

import numpy as np

from noisegate.errors import SpecError
from noisegate.frozen import dataclass
from noisegate.releases.ask.asking import Ask, Noisy
from noisegate.releases.cells.estimate import simplex
from noisegate.releases.cells.workload import Floats, Ints
from noisegate.releases.fit.allocation import TABLE_MAX, Design, design
from noisegate.releases.fit.residuals import (
    Axes,
    Parts,
    Question,
    Sizes,
    box_variance,
    centred,
    combine,
    known,
    subsets,
)

AskOf: TypeAlias = Callable[[Axes], Ask]  # who answers questions about the table over some axes
_CELLS_MAX: Final = 1 << 24  # of all tables together
_ROUNDS: Final = 60
_SINGLES: Final = 1.5  # how much more tables of one column count together: shrinking leans on them
_MANY: Final = 2  # where there are more tables than this for each column
_SIGNAL: Final = 4  # standard deviations of noise: beyond, there is a signal for certain
_PROBES: Final = 2
_REWEIGHTED: Final = 4
_MATRIX_MIN: Final = 8  # along each axis, to tell signal from noise by directions


@final
@dataclass(frozen=True, slots=True, eq=False)
class TablesPlan:
    """What will be measured and how far off each table will be: public, and free."""

    sizes: Sizes
    sets: tuple[Axes, ...]
    design: Design
    variances: tuple[float, ...]

    def rms(self, axes: Axes) -> float:
        """The root mean square error of each cell of a table, by least squares alone."""
        precision = known(self.sizes, zip(self.design.questions, self.variances, strict=True))
        return sqrt(box_variance(self.sizes, precision, axes, np.ones((1, len(axes)), int))[0])


def plan_tables(ask_of: AskOf, sizes: Sizes, sets: Sequence[Axes], *, shrink: bool) -> TablesPlan:
    """The best design for tables that count alike, however many cells they have."""
    asked = require_sets(sizes, sets)
    counted = dict.fromkeys(asked, 1.0)
    singles = sorted({a for axes in asked for a in axes})
    each = len(asked) / len(singles)
    if shrink and each > _MANY:
        for axis in singles:
            counted[axis,] = counted.get((axis,), 0.0) + _SINGLES * each
    gaussian = ask_of(asked[0]).gaussian
    found = _design(sizes, counted, gaussian=gaussian)
    pairs = zip(found.questions, found.shares, strict=True)
    variances = [
        ask_of(home(question)).variance(question.block(sizes, home(question)), share)
        for question, share in pairs
    ]
    return TablesPlan(sizes, asked, found, tuple(variances))


def _design(sizes: Sizes, counted: Mapping[Axes, float], *, gaussian: bool) -> Design:
    """The design with the least sum of root mean square errors of tables, each so often counted.

    A design is for a sum of squares; weights that are one over the errors of the last one turn
    that into a sum of errors.
    """
    errors, best, least = dict.fromkeys(counted, 1.0), None, np.inf
    for _ in range(_REWEIGHTED):
        weights = [
            count / errors[axes] / prod(sizes[a] for a in axes) for axes, count in counted.items()
        ]
        found = design(sizes, list(counted), weights, gaussian=gaussian)
        precision: dict[Axes, float] = {}
        for question, share in zip(found.questions, found.shares, strict=True):
            for part in subsets(question.kept):
                gain = question.gain(sizes, part) * float(share) ** (1 if gaussian else 2)
                precision[part] = precision.get(part, 0.0) + gain
        ones = {axes: np.ones((1, len(axes)), np.int64) for axes in counted}
        errors = {
            axes: sqrt(box_variance(sizes, precision, axes, ones[axes])[0]) for axes in counted
        }
        total = sum(count * errors[axes] for axes, count in counted.items())
        if total < least:
            best, least = found, total
    assert best is not None  # noqa: S101 - at least one round
    return best


def home(question: Question) -> Axes:
    """The table that a question is asked of: its own, or the first column's for the total."""
    return question.kept or (0,)


def require_sets(sizes: Sizes, sets: Sequence[Axes]) -> tuple[Axes, ...]:
    """Sets of axes in order, each once, none inside another, none too large."""
    asked = {tuple(sorted(set(axes))) for axes in sets}
    if not any(asked) or any(not 0 <= a < len(sizes) for axes in asked for a in axes):
        raise SpecError("A requested table has no axes, or unknown ones.", fix="Name the columns.")
    largest = [axes for axes in asked if not any(set(axes) < set(other) for other in asked)]
    cells = [prod(sizes[a] for a in axes) for axes in largest]
    if max(cells) > TABLE_MAX or sum(cells) > _CELLS_MAX:
        raise SpecError(
            f"The largest table would have {max(cells):,} cells, all together {sum(cells):,}.",
            fix=f"Stay below {TABLE_MAX:,} and {_CELLS_MAX:,}: use wider bins or fewer columns.",
        )
    return tuple(sorted(largest, key=lambda axes: (len(axes), axes)))


def measure(
    ask_of: AskOf,
    plan: TablesPlan,
    *,
    grain: float = 1.0,
    done: Callable[[float, str], None] | None = None,
) -> Parts:
    """Ask all questions, and fit them. ``grain`` is what one whole number stands for."""
    answers = []
    pairs = zip(plan.design.questions, plan.design.shares, strict=True)
    for place, (question, share) in enumerate(pairs):
        asked = home(question)
        (noisy,) = ask_of(asked).sums([question.block(plan.sizes, asked)], [share])
        scaled = noisy.values * grain if grain != 1 else noisy.values
        answers.append((question, Noisy(scaled, noisy.variance * grain**2)))  # type: ignore[arg-type]
        if done is not None:
            done((place + 1) / (len(plan.design.shares) + 1), "measuring")
    return combine(plan.sizes, answers)


def shrunk(parts: Parts, sets: Sequence[Axes]) -> Parts:
    """Parts of several axes, drawn towards what they would be if columns were independent."""
    total = max(0.0, float(parts.values[()]))
    values = dict(parts.values)
    if total == 0:
        return parts
    singles = {a: simplex(parts.table((a,)), total) for axes in sets for a in axes}
    for axis, single in singles.items():
        values[axis,] = single - single.mean()
    for part in parts.values:
        if len(part) >= 2:
            even = np.array(total)
            for axis in part:
                even = np.multiply.outer(even, singles[axis] / total)
            expected, noise = centred(even), 1 / sqrt(parts.precision[part])
            values[part] = expected + _weighed(values[part] - expected, even, noise)
    return Parts(parts.sizes, values, parts.precision)


def mended(parts: Parts, sets: Sequence[Axes]) -> dict[Axes, Floats]:
    """The nearest tables that agree, with no negative numbers, by Dykstra's projections [BD86].

    Nearest in the sum of squares over all their cells: never further from the exact tables than
    before. The last projection makes them agree, so tiny negative numbers may be left.
    """
    total = max(0.0, round(float(parts.values[()])))
    tables = {axes: parts.table(axes) for axes in sets}
    owed = {axes: np.zeros_like(table) for axes, table in tables.items()}
    for _ in range(_ROUNDS):
        tried = {axes: table + owed[axes] for axes, table in tables.items()}
        could = {axes: simplex(table, total) for axes, table in tried.items()}
        owed = {axes: tried[axes] - could[axes] for axes in sets}
        agreed = agreeing(parts.sizes, could)
        tables = {axes: agreed.table(axes) for axes in sets}
        if min(float(table.min()) for table in tables.values()) > -0.05:
            break
    return tables


def agreeing(sizes: Sizes, tables: Mapping[Axes, Floats]) -> Parts:
    """The nearest tables that agree on what they share, in closed form."""
    return combine(sizes, [(Question(axes), Noisy(t, 1.0)) for axes, t in tables.items()])  # type: ignore[arg-type]


def whole_tables(sizes: Sizes, tables: Mapping[Axes, Floats]) -> dict[Axes, Ints]:
    """Whole numbers, from shared marginals upwards, so that tables agree exactly.

    A table with one or two largest shared marginals can always have them. With three or more there
    may be no such table of whole numbers: then two of them are kept; see `disagreement`.
    """
    family = {(), *tables}
    for one, other in combinations(list(tables), 2):
        family.add(tuple(a for a in one if a in other))
    while True:
        more = {tuple(a for a in s if a in t) for s, t in combinations(family, 2)} - family
        if not more:
            break
        family |= more
    agreed, found = agreeing(sizes, tables), dict[Axes, Ints]()
    for axes in sorted(family, key=lambda each: (len(each), each)):
        below = [s for s in found if set(s) < set(axes)]
        largest = [s for s in below if not any(set(s) < set(t) for t in below)]
        largest.sort(key=lambda s: -found[s].size)
        table = np.maximum(agreed.table(axes), 0)
        found[axes] = (
            whole_with(table, axes, {s: found[s] for s in largest[:2]})
            if axes
            else np.array(round(float(table)), np.int64)
        )
    return {axes: found[axes] for axes in tables}


def disagreement(tables: Mapping[Axes, Ints]) -> int:
    """By how much two tables differ most on a marginal that both have."""
    most = 0
    for one, other in combinations(tables, 2):
        shared = [a for a in one if a in other]
        first, second = (
            t.sum(axis=tuple(i for i, a in enumerate(axes) if a not in shared))
            for axes, t in ((one, tables[one]), (other, tables[other]))
        )
        most = max(most, int(np.abs(first - second).max(initial=0)))
    return most


def whole_with(table: Floats, axes: Axes, margins: Mapping[Axes, Ints]) -> Ints:
    """Whole numbers near a table, with the given marginals (one or two that agree)."""
    first, *others = margins
    second = others[0] if others else first
    shared = [a for a in first if a in second]
    one, two = ([a for a in s if a not in shared] for s in (first, second))
    rest = [a for a in axes if a not in first and a not in second]
    order = [axes.index(a) for a in (*shared, *one, *two, *rest)]
    turned = table.transpose(order)
    groups = (shared, one, two, rest)
    sizes = dict(zip(axes, table.shape, strict=True))
    values = turned.reshape([prod(sizes[a] for a in group) for group in groups])
    rows = margins[first].transpose([first.index(a) for a in (*shared, *one)])
    rows = rows.reshape(values.shape[:2])
    columns = rows.sum(axis=1, keepdims=True)
    if others:
        columns = margins[second].transpose([second.index(a) for a in (*shared, *two)])
        columns = columns.reshape(values.shape[0], values.shape[2])
    near = _scaled(values, rows, columns)
    found = np.stack([_transport(*each) for each in zip(near, rows, columns, strict=True)]).reshape(
        turned.shape
    )
    return found.transpose(np.argsort(order))


def _scaled(values: Floats, rows: Ints, columns: Ints) -> Floats:
    """Proportional steps towards both marginals; a thousandth everywhere, so that all can grow."""
    near = values + 1e-3 * (values.sum() + 1) / values.size
    for _ in range(20):
        near = near * (columns / near.sum(axis=(1, 3)))[:, None, :, None]
        near = np.maximum(near, 1e-12)
        near = near * (rows / near.sum(axis=(2, 3)))[:, :, None, None]
        near = np.maximum(near, 1e-12)
    scaled: Floats = near
    return scaled


def _transport(near: Floats, rows: Ints, columns: Ints) -> Ints:
    """Whole numbers (rows, columns, rest) with given sums: rows are rounded, then units change
    columns inside their rows. A column with too many has a row with one, so this always ends.
    """  # noqa: D205
    flat = near.reshape(len(rows), -1)
    floor = np.minimum(np.floor(flat), rows[:, None])
    floor = np.where(floor.sum(axis=1, keepdims=True) > rows[:, None], 0, floor)
    missing = rows - floor.sum(axis=1).astype(np.int64)
    places = np.argsort(-(flat - floor), axis=1, kind="stable").argsort(axis=1)
    share, left = np.divmod(missing, flat.shape[1])
    found = floor.astype(np.int64) + share[:, None] + (places < left[:, None])
    table: Ints = found.reshape(near.shape)
    over = table.sum(axis=(0, 2)) - columns
    while over.max(initial=0) > 0:
        taken, given = int(over.argmax()), int(over.argmin())
        gone = np.where(table[:, taken] > 0, table[:, taken] - near[:, taken], -np.inf)
        come = near[:, given] - table[:, given]
        row = int((gone.max(axis=1) + come.max(axis=1)).argmax())
        table[row, taken, gone[row].argmax()] -= 1
        table[row, given, come[row].argmax()] += 1
        over[taken] -= 1
        over[given] += 1
    return table


def _weighed(beyond: Floats, even: Floats, noise: float) -> Floats:
    """`_less` where noise may be all there is; else as much of it as lowers the squared error.

    Along the line from what was measured to what is left of it, the error has an unbiased estimate,
    σ² (N - 2 t d) + t² r², where r is the distance and d the divergence of what is taken away
    [Ste81]: the best t is σ² d / r². It tends to 0 where the signal is far above the noise.
    """
    mild = _less(beyond, even, noise)
    cells = beyond.size * prod(1 - 1 / size for size in beyond.shape)
    away = float(((beyond - mild) ** 2).sum())
    if (beyond**2).sum() <= noise**2 * (cells + _SIGNAL * sqrt(2 * cells)) or away == 0:
        return mild
    step, found = noise * 1e-3, 0.0
    places = np.arange(beyond.size).reshape(beyond.shape)
    for probe in range(_PROBES):
        mixed = (places + 1) * 2654435761 + probe * 40503  # public signs without a pattern
        turn = centred((1 - 2 * ((mixed >> 16) & 1)).astype(np.float64))
        moved = step * turn - (_less(beyond + step * turn, even, noise) - mild)
        found += float((turn * moved).sum()) / step / _PROBES
    part = min(1.0, max(0.0, noise**2 * found / away))
    return beyond - part * (beyond - mild)


def _less(beyond: Floats, even: Floats, noise: float) -> Floats:
    """A table of signal and noise of the given standard deviation, with less of the noise.

    Where ``even`` expects few rows the signal is small: its variance is taken proportional to
    that, with the factor that the table as a whole shows [EM73]. In a matrix that is not small,
    noise spreads over all directions and a signal sits in few: singular values below the edge of
    noise are dropped, the others lose what noise adds to their squares [GD17].
    """
    freedom = prod(1 - 1 / size for size in beyond.shape)
    excess = float((beyond**2).sum()) - noise**2 * freedom * beyond.size
    if excess <= 0 or even.sum() <= 0:
        return np.zeros_like(beyond)
    likely = excess / float(even.sum()) * even
    weight = np.sqrt(likely / (likely + noise**2))
    if min(beyond.shape) < _MATRIX_MIN:
        return centred(beyond * weight**2)
    long = int(np.argmax(beyond.shape))
    seen, trust = (
        np.moveaxis(each, long, 0).reshape(beyond.shape[long], -1)
        for each in (beyond * weight, weight)
    )
    spread = noise**2 * freedom * trust**2
    edge = spread.sum(axis=0).max() ** 0.5 + spread.sum(axis=1).max() ** 0.5
    left, values, right = np.linalg.svd(seen, full_matrices=False)
    kept = ((left * np.sqrt(np.maximum(values**2 - edge**2, 0))) @ right) * trust
    others = [size for axis, size in enumerate(beyond.shape) if axis != long]
    return centred(np.moveaxis(kept.reshape(beyond.shape[long], *others), 0, long))
