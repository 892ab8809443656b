"""Which marginals to measure, and for which shares of the price: decided from public sizes alone.

The error of a workload is Σ v / u over the parts of its tables, where u is the precision of a part:
linear in the shares under Gaussian noise, in their squares under geometric noise. The first problem
is convex and the residual basis is optimal for it [XHZK23]. The second is not: there, several
designs are refined and the one with the least predicted error is taken. Fourier coefficients lose
to plain marginals, or to larger tables that hold several of them, more often than not.
"""

from collections.abc import Sequence
from fractions import Fraction
from math import prod
from typing import Final, final

import numpy as np
from numpy.typing import NDArray

from noisegate.frozen import dataclass
from noisegate.releases.cells.workload import Floats
from noisegate.releases.fit.residuals import Axes, Question, Sizes, closure

ENTRIES_MAX: Final = 1 << 22  # of a matrix that is measured
_ALL_MAX: Final = 1 << 24  # of all matrices over the cells of one table
_PARTS_MAX: Final = 600
TABLE_MAX: Final = 1 << 22  # cells of a table that is measured
_STILL: Final = 1e-15  # shares that move by less are those of all later steps
_ROUNDS: Final = 400
_GRAIN: Final = 1 << 40
_MERGED_MAX: Final = 256


@final
@dataclass(frozen=True, slots=True, eq=False)
class Design:
    """What is measured, for which shares; ``words`` name the kind."""

    questions: tuple[Question, ...]
    shares: tuple[Fraction, ...]
    words: str


def design(
    sizes: Sizes,
    sets: Sequence[Axes],
    weights: Sequence[float],
    *,
    gaussian: bool,
    cells: Axes | None = None,
) -> Design:
    """The best design found for tables over ``sets``, each cell of the i-th counting weights[i].

    ``cells`` are the axes of the one tally that everything is asked of; by default each table is a
    tally of its own.
    """
    wanted = _wanted(sizes, sets, weights)
    found = []
    for words, questions in _candidates(sizes, sets, weights, cells, gaussian=gaussian):
        gains = _gains(sizes, list(wanted), questions)
        if np.all(gains.sum(axis=1) > 0):
            shares, error = _shares(gains, np.array(list(wanted.values())), 1 if gaussian else 2)
            found.append((error, words, questions, shares))
    _, words, questions, shares = min(found, key=lambda each: each[0])
    kept = [i for i, share in enumerate(shares) if share > 0]
    return Design(tuple(questions[i] for i in kept), _fractions([shares[i] for i in kept]), words)


def plain_design(
    sizes: Sizes, sets: Sequence[Axes], weights: Sequence[float], *, gaussian: bool
) -> Design:
    """The best shares for tables over ``sets`` and their marginals, all measured as they are."""
    wanted = _wanted(sizes, sets, weights)
    questions = [Question(part) for part in closure(sets) if part]
    gains = _gains(sizes, list(wanted), questions)
    shares, _ = _shares(gains, np.array(list(wanted.values())), 1 if gaussian else 2)
    kept = [i for i, share in enumerate(shares) if share > 0]
    return Design(
        tuple(questions[i] for i in kept), _fractions([shares[i] for i in kept]), "marginals"
    )


def _gains(sizes: Sizes, parts: Sequence[Axes], questions: Sequence[Question]) -> Floats:
    """`Question.gain` of every question for every part."""

    def held(sets: Sequence[Axes]) -> NDArray[np.bool_]:
        return np.array([[a in axes for a in range(len(sizes))] for axes in sets], bool)

    kept, bare = held([q.kept for q in questions]), held([q.bare for q in questions])
    part, logs = held(parts), np.log(np.array(sizes, np.float64))
    freed = np.log([1.0 if size < 2 else size / (size - 1) for size in sizes])
    covers = ((part @ ~kept.T) | (~part @ bare.T)) == 0
    gain = np.exp((bare @ freed - kept @ logs)[None, :] + (part @ logs)[:, None])
    return np.where(covers, gain, 0.0)


def _wanted(sizes: Sizes, sets: Sequence[Axes], weights: Sequence[float]) -> dict[Axes, float]:
    """How much the variance of each part adds to the error."""
    found = dict.fromkeys(closure(sets), 0.0)
    for axes, weight in zip(sets, weights, strict=True):
        cells = prod(sizes[a] for a in axes)
        for part in closure([axes]):
            own = prod(1 - 1 / sizes[a] for a in part)
            rest = prod(sizes[a] for a in axes if a not in part)
            found[part] += weight * cells * own / rest**2
    return {part: value for part, value in found.items() if value > 0}


def _candidates(
    sizes: Sizes,
    sets: Sequence[Axes],
    weights: Sequence[float],
    cells: Axes | None,
    *,
    gaussian: bool,
) -> list[tuple[str, list[Question]]]:
    parts = closure(sets)
    plain = [Question(part) for part in dict.fromkeys(sets)]
    found = [("marginals", plain)]
    bare: list[Question] = []
    if len(parts) <= _PARTS_MAX:
        most = ENTRIES_MAX if cells is None else min(ENTRIES_MAX, _ALL_MAX // len(parts))
        bare = [_bare(sizes, part, cells, most, gaussian=gaussian) for part in parts]
        found.append(("residuals", bare))
    every = tuple(sorted({a for axes in sets for a in axes}))
    if not gaussian:
        merged = _merged(sizes, sets, weights)
        found.append(("joined marginals", [Question(axes) for axes in merged]))
        if prod(sizes[a] for a in every) <= TABLE_MAX:
            found.append(("all cells", [Question(every)]))
        return found
    mixed = dict.fromkeys([*bare, *plain])
    found.append(("residuals and marginals", list(mixed)))
    return found


def _bare(sizes: Sizes, kept: Axes, cells: Axes | None, most: int, *, gaussian: bool) -> Question:
    """A set's own part alone, as far as its matrix stays small."""
    taken: Axes = ()
    for axis in sorted(kept, key=lambda a: sizes[a]):
        longer = Question(kept, tuple(sorted((*taken, axis))))
        small = longer.entries(sizes, kept if cells is None else cells) <= most
        if 2 <= sizes[axis] <= (64 if gaussian else 2) and small:
            taken = longer.bare
    return Question(kept, taken)


def _merged(sizes: Sizes, sets: Sequence[Axes], weights: Sequence[float]) -> list[Axes]:
    """Join tables as long as this lowers the error of plain marginals with the best shares.

    With shares s, tables of N cells that serve sets of weight k have the error Σ N k / s². It is
    least, and then (Σ (N k)^(1/3))³, for s proportional to the terms of that sum.
    """
    order = dict.fromkeys(sets)
    if len(order) > _MERGED_MAX:
        return list(order)
    logs = np.log(np.array(sizes, np.float64))
    held = np.array([[a in axes for a in range(len(sizes))] for axes in order], bool)
    served = np.zeros(len(held))
    for axes, weight in zip(sets, weights, strict=True):
        served[list(order).index(axes)] += weight
    while len(held) > 1:
        costs = np.exp((held @ logs + np.log(served)) / 3)
        union = held[:, None, :] | held[None, :, :]
        size = union @ logs
        joined = np.exp((size + np.log(served[:, None] + served[None, :])) / 3)
        saved = costs[:, None] + costs[None, :] - joined
        saved[(size > np.log(TABLE_MAX)) | np.eye(len(held), dtype=bool)] = -np.inf
        i, j = divmod(int(saved.argmax()), len(held))
        if saved[i, j] <= 0:
            break
        inside = ~np.any(held & ~union[i, j], axis=1)  # others that the new table holds as well
        total = served[inside].sum()
        held = np.vstack([held[~inside], union[i, j]])
        served = np.append(served[~inside], total)
    return [tuple(np.flatnonzero(row).tolist()) for row in held]


def _shares(gains: Floats, values: Floats, power: int) -> tuple[Floats, float]:
    """Shares that lower Σ v / Σ g s^power, by multiplicative steps; the best of all steps.

    Where each part has one question the first step is the optimum: s ∝ (v / g)^(1 / (power + 1)).
    Under Gaussian noise (power 1) the steps never raise the error [Yu10].
    """
    shares = np.full(gains.shape[1], 1 / gains.shape[1])
    best, least = shares, np.inf
    for _ in range(_ROUNDS):
        known = gains @ shares**power
        error = float((values / known).sum())
        if error < least * (1 - 1e-12):
            best, least = shares, error
        slope = (values / known**2) @ gains * shares ** (power - 1)
        before, shares = shares, shares * slope ** (1 / (power + 1))
        shares = shares / shares.sum()
        if np.abs(shares - before).max() <= _STILL:
            break
    few = _without_small(best, gains)
    error = float((values / (gains @ few**power)).sum())
    return (few, error) if error <= least * 1.001 else (best, least)


def _without_small(shares: Floats, gains: Floats) -> Floats:
    """Leave out questions that get next to nothing, where others know their parts."""
    few: Floats = np.where(shares < 1e-4 * shares.max(), 0, shares)
    few /= few.sum()
    return shares if np.any(gains @ few <= 0) else few


def _fractions(shares: Sequence[float]) -> tuple[Fraction, ...]:
    """Exact shares that add up to at most 1."""
    floors = [max(1, int(share * (1 - 1e-12) * _GRAIN)) for share in shares]
    return tuple(Fraction(each, max(_GRAIN, sum(floors))) for each in floors)
