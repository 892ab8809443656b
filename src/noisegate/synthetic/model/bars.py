"""How far an answer of the model may be off, from the noisy tables that were measured.

Where a measured table holds all columns that are asked about, it gives the exact number plus noise
of a known spread. Where none does, the exact number is at most that of any fewer conditions, and at
least that less the rows which tables of the other columns hold outside their conditions (Fréchet's
inequalities), so there is a ± all the same, if a wide one: it is proven. `likely` is a far narrower
one that rests on a model of the rows: what columns say about each other beyond all measured tables
is taken to be as much as these tables say.
"""

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from functools import reduce
from itertools import combinations
from math import asinh, inf, prod, sqrt
from typing import TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from noisegate.desk.terms.price import Price
from noisegate.frozen import dataclass
from noisegate.releases.cells import estimate
from noisegate.releases.cells.workload import Floats
from noisegate.releases.fit.residuals import Axes, Sizes
from noisegate.synthetic.model.model import Evidence

Masks: TypeAlias = Mapping[int, NDArray[np.bool_]]  # by column: which of its cells are asked about


@final
@dataclass(frozen=True, slots=True)
class Direct:
    """An exact number plus noise of this variance, of draws that have at least that of ``draw``."""

    value: float
    variance: float
    draw: float


def direct(
    sizes: Sizes, evidence: Sequence[Evidence], masks: Masks, total: float | None = None
) -> Direct | None:
    """What was measured about the rows inside the masks, all of it together; None: nothing.

    Noise of different tables is independent, so the best weights are one over the variances. A
    ``total`` is known exactly.
    """
    if not masks and total is not None:
        return Direct(total, 0.0, 0.0)
    found = [each for one in evidence for each in _seen(sizes, one, masks)]
    if not found:
        return None
    exact = [each for each in found if each.variance == 0]
    if exact:
        return exact[0]
    weights = np.array([1 / each.variance for each in found])
    value = float(np.array([each.value for each in found]) @ weights / weights.sum())
    return Direct(value, float(1 / weights.sum()), min(each.draw for each in found))


def _seen(sizes: Sizes, one: Evidence, masks: Masks) -> Iterator[Direct]:
    """The sums of one table inside the masks, where they are whole sums."""
    if not set(masks) <= set(one.axes):
        return
    inside = box(sizes, one.axes, masks)
    if one.labels is None:
        spread = one.variance * int(inside.sum())
        yield Direct(float(one.values[inside].sum()), spread, one.variance)
        return
    known = one.labels >= 0
    held = np.bincount(one.labels[known & inside], minlength=len(one.values))
    of = np.bincount(one.labels[known], minlength=len(one.values))
    if not (inside & ~known).any() and np.all((held == 0) | (held == of)):
        chosen = held > 0
        spread = one.variance * int(chosen.sum())
        yield Direct(float(one.values[chosen].sum()), spread, one.variance)


def box(sizes: Sizes, axes: Axes, masks: Masks) -> NDArray[np.bool_]:
    """Which cells of the table over some columns are inside the masks, flat."""
    parts = [masks.get(axis, np.ones(sizes[axis], bool)) for axis in axes]
    whole: NDArray[np.bool_] = reduce(np.logical_and.outer, parts, np.ones((), bool))
    return whole.ravel()


def singles(sizes: Sizes, evidence: Sequence[Evidence], axis: int) -> tuple[Floats, Floats] | None:
    """What was measured about each cell of one column: numbers and variances; None: nothing."""
    sums, weights = np.zeros(sizes[axis]), np.zeros(sizes[axis])
    for one in evidence:
        if axis in one.axes and one.labels is None:
            shape = [sizes[each] for each in one.axes]
            others = tuple(i for i, each in enumerate(one.axes) if each != axis)
            weight = 1 / max(one.variance * prod(shape[i] for i in others), 1e-12)
            sums += weight * one.values.reshape(shape).sum(axis=others)
            weights += weight
    return None if not weights.any() else (sums / weights, 1 / weights)


def reach(
    sizes: Sizes,
    evidence: Sequence[Evidence],
    masks: Masks,
    *,
    failure: float,
    gaussian: bool,
    total: float | None = None,
) -> tuple[float, float]:
    """Bounds of the exact number.

    Claim: it lies between them, with probability 1 - failure, over the noise. Why: each measured
        sum is exact plus noise, whose reach is proven in `cells.estimate`; where several bounds are
        used, each fails with its part of the probability, half of it at each end, since noise is
        symmetric. Which tables were measured may depend on earlier answers, but not on their own
        noise.
    """
    whole = direct(sizes, evidence, masks, total)
    if whole is not None:
        return _ends(whole, failure, gaussian=gaussian)
    covered = {tuple(sorted(set(one.axes) & set(masks))) for one in evidence}
    asked = {axes: direct(sizes, evidence, {a: masks[a] for a in axes}, total) for axes in covered}
    known = {axes: one for axes, one in asked.items() if one is not None and axes}
    widest = [axes for axes in known if not any(set(axes) < set(other) for other in known)]
    sides: dict[tuple[Axes, int], Direct] = {}  # inside these masks, but outside that of the axis
    for held, axis in [(axes, axis) for axes in known for axis in axes]:
        flipped = {a: ~masks[a] if a == axis else masks[a] for a in held}
        if (one := direct(sizes, evidence, flipped, total)) is not None:
            sides[held, axis] = one
    if not widest:
        everything = direct(sizes, evidence, {}, total)
        return 0.0, inf if everything is None else _ends(everything, failure, gaussian=gaussian)[1]
    part = failure / (len(widest) + len(sides) / 2)  # of sides only one end is used
    ends = {axes: _ends(known[axes], part, gaussian=gaussian) for axes in widest}
    lost = {each: _ends(one, part, gaussian=gaussian)[1] for each, one in sides.items()}

    def least(within: Axes, axis: int) -> float:
        """At most so many rows inside these masks are outside that of the axis."""
        return min(
            (most for (axes, other), most in lost.items()
             if other == axis and set(axes) <= {*within, axis}),
            default=inf,
        )  # fmt: skip

    low = max(ends[a][0] - sum(least(a, axis) for axis in masks if axis not in a) for a in widest)
    return max(low, 0.0), min(end for _, end in ends.values())


def association(sizes: Sizes, evidence: Sequence[Evidence]) -> float | None:
    """How strongly columns of measured tables are associated: the most that is plausible.

    It is the mean square of a cell's indicators' standardised moment, that of phi for two columns,
    without the noise, and with twice what noise leaves unsure. None: no table has several columns.
    """
    seen, unsure, scale = 0.0, 0.0, 0.0
    for one in evidence:
        if one.labels is not None or len(one.axes) < 2:
            continue
        cells = one.values.reshape([sizes[a] for a in one.axes])
        total, guess, apart = max(float(cells.sum()), 1.0), np.ones(()), np.ones(())
        for place in range(cells.ndim):
            sums = cells.sum(axis=tuple(i for i in range(cells.ndim) if i != place))
            part = np.clip(sums / total, 0.0, 1.0)
            guess = np.multiply.outer(guess, part)
            apart = np.multiply.outer(apart, part * (1 - part))
        seen += float(((cells - total * guess) ** 2).sum() - one.variance * cells.size) / total**2
        unsure += 5 * cells.size * (one.variance / total**2) ** 2  # of squares of Laplace noise
        scale += float(apart.sum())
    return (max(seen, 0.0) + 2 * sqrt(unsure)) / scale if scale > 0 else None


def likely(
    sizes: Sizes, evidence: Sequence[Evidence], masks: Masks, value: float, total: float
) -> float:
    """The variance of a model's ``value``, where no measured table holds all columns.

    That of the noise of the largest tables that were measured, for the part that the value is of
    them; and for all columns together that no table holds, an association as strong as measured
    ones are. It is infinite where none was measured.
    """
    squared = association(sizes, evidence)
    if squared is None:
        return inf
    held = {tuple(sorted(set(one.axes) & set(masks))) for one in evidence if one.labels is None}
    found, parts = 0.0, dict[int, float]()
    for axes in held:
        one = direct(sizes, evidence, {a: masks[a] for a in axes})
        assert one is not None  # noqa: S101 - it is measured
        if len(axes) == 1:
            parts[axes[0]] = min(max(one.value, 1.0) / total, 1.0)
        if axes and not any(set(axes) < set(other) for other in held):
            found += one.variance * min(1.0, value / max(one.value, 1.0)) ** 2
    for count in range(2, len(masks) + 1):
        for axes in combinations(sorted(masks), count):
            if not any(set(axes) <= set(one) for one in held):
                apart = (parts.get(a, 0.5) * (1 - parts.get(a, 0.5)) for a in axes)
                rest = prod(parts.get(a, 1.0) for a in masks if a not in axes)
                found += squared * prod(apart) * (total * rest) ** 2
    return found


def _ends(one: Direct, failure: float, *, gaussian: bool) -> tuple[float, float]:
    """Ends that are not negative; noise far below 0 leaves its whole reach, and not 0 ± 0."""
    if one.variance == 0:
        return one.value, one.value
    amount = 2 * asinh(sqrt(0.5 / one.draw))  # of that draw: arcosh(1 + 1/v), which rounds to 0
    price = Price(amount=Fraction(amount), gaussian=gaussian)
    spread = float(estimate.reach(np.array(one.variance), failure, price, 1))
    return max(one.value - spread, 0), max(one.value, 0) + spread
