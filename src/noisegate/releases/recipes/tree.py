"""Sums of boxes within boxes, fitted by least squares: best for ranges over many rows."""

from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from functools import cache
from itertools import pairwise, product
from math import inf, prod
from typing import ClassVar, Final, final

import numpy as np
from numpy.typing import NDArray

from noisegate.errors import SpecError
from noisegate.frozen import dataclass
from noisegate.releases.ask.asking import Ask
from noisegate.releases.ask.shares import NOISELESS, Law, exact_shares, nested
from noisegate.releases.cells.estimate import Estimate, Predicted, rounded
from noisegate.releases.cells.workload import Floats, Ints, Workload, ranges
from noisegate.releases.recipes import require_same
from noisegate.releases.trees.nested import (
    Nest,
    Sides,
    box_variance,
    chains,
    energy,
    fit,
    is_exact,
    not_negative,
)
from noisegate.transforms.strategy import Groups

_LOOKED_AT: Final = 2_000  # questions of a workload that the choice of levels looks at
_STEPS: Final = (-4, -2, -1, 1, 2, 4)  # how ratios are varied, along as many axes at most:
_AXES: Final = 3
_UNSURE: Final = 1.01  # a variance that is known exactly is worth this much


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """A hierarchy of sums [HRMS10], with the branching [QYL13] and the shares that suit a workload.

    ``branching`` is how many parts a box has along an axis; by default the best one is sought.
    """

    name: ClassVar[str] = "tree"
    branching: int | None = None

    def require(self, shape: tuple[int, ...], workload: Workload) -> None:
        """Any cells."""
        require_same(shape, workload)
        if self.branching is not None and not 2 <= self.branching <= max(2, *shape):
            raise SpecError(
                f"branching is {self.branching}.",
                fix="Use a whole number from 2 to the number of cells.",
            )

    def predict(self, ask: Ask, workload: Workload) -> Predicted:
        """Least squares has a closed form on nested boxes."""
        plan = self._plan(ask, workload)
        variances = box_variance(plan.nest, plan.weights, workload)
        at_most = "" if is_exact(plan.nest) else "at most this, as boxes at the ends are cut"
        return Predicted(rms=float(np.sqrt(variances.mean())), words=at_most)

    def build(self, ask: Ask, workload: Workload) -> Estimate:
        """One round, two passes."""
        plan = self._plan(ask, workload)
        levels, weights = measure(ask, plan)

        def variance(lows: Ints, highs: Ints) -> Floats:
            return box_variance(plan.nest, weights, ranges(ask.shape, lows, highs))

        def mend(grain: float) -> Ints:
            return rounded(not_negative(plan.nest, [level * grain for level in levels]))

        return Estimate(levels[0], variance, (plan.words,), mend=mend)

    def _plan(self, ask: Ask, workload: Workload) -> "Plan":
        looked = sample(workload)

        def needs(sides: Sides) -> float:
            return float(energy(looked, sides).mean())

        return best_plan(ask.shape, cache(needs), Law.of(ask), self.branching)


@final
@dataclass(frozen=True, slots=True)
class Plan:
    """Levels, their shares, and the weights (1 / variance) that these buy."""

    nest: Nest
    shares: tuple[Fraction, ...]
    weights: tuple[float, ...]
    words: str


def measure(
    ask: Ask, plan: Plan, *, share: Fraction = Fraction(1), labels: NDArray[np.int32] | None = None
) -> tuple[list[Floats], list[float]]:
    """The fitted sums of all levels, for a share of the price, and the weights of what was asked.

    With ``labels`` the nest is not over the cells but over groups of them.
    """
    measured = [level for level, part in enumerate(plan.shares) if part > 0]
    blocks = [plan.nest.groups(level) for level in measured]
    if labels is not None:
        blocks = [Groups(block.labels[labels], block.size) for block in blocks]
    ask.done(0.5, "measuring")
    answers = ask.sums(blocks, [plan.shares[level] * share for level in measured])
    noisy: list[Floats | None] = [None] * len(plan.shares)
    variances = [inf] * len(plan.shares)
    for level, answer in zip(measured, answers, strict=True):
        noisy[level] = answer.values.astype(np.float64).reshape(plan.nest.counts(level))
        variances[level] = max(answer.variance, NOISELESS)
    ask.done(0.8, "fitting")
    return fit(plan.nest, noisy, variances), [1 / variance for variance in variances]


def best_plan(
    shape: tuple[int, ...],
    needs: Callable[[Sides], float],
    law: Law,
    branching: int | None = None,
) -> Plan:
    """The chain of levels with the least mean variance, and its shares.

    ``needs`` is the mean of `energy` over a workload, for boxes with these sides.
    """

    def cost(chain: tuple[Sides, ...]) -> tuple[float, list[float]]:
        needed = [needs(sides) for sides in chain] + [0.0]
        gains = [here - above for here, above in pairwise(needed)]
        shares, variance = nested(gains, [float(prod(sides)) for sides in chain], law)
        return variance * (1 if is_exact(Nest(shape, chain)) else _UNSURE), shares

    tried = [c for c in chains(shape) if branching in (None, _branching(c))] or [chains(shape)[-1]]
    found = min(((*cost(chain), chain) for chain in tried), key=lambda each: each[0])
    improved = branching is None
    while improved:
        improved = False
        for chain in _near(found[2], shape):
            variance, shares = cost(chain)
            if variance < found[0] * (1 - 1e-4):
                found, improved = (variance, shares, chain), True
    return _plan(shape, found[2], found[1], law)


def _plan(shape: tuple[int, ...], chain: tuple[Sides, ...], shares: list[float], law: Law) -> Plan:
    top = max(level for level, share in enumerate(shares) if share > 0)
    exact = exact_shares(shares[: top + 1])
    weights = tuple(law.weight(float(share)) for share in exact)
    sides = ", ".join("×".join(map(str, s)) for s, p in zip(chain, exact, strict=False) if p > 0)
    words = "single cells" if sides == "1" else f"boxes of {sides} cells"
    return Plan(Nest(shape, chain[: top + 1]), tuple(exact), weights, words)


def _near(chain: tuple[Sides, ...], shape: tuple[int, ...]) -> Iterator[tuple[Sides, ...]]:
    """Chains without a level, and with one ratio a little different."""
    for level in range(1, len(chain)):
        yield (*chain[:level], *chain[level + 1 :])
    ratios = [tuple(up // low for low, up in zip(*pair, strict=True)) for pair in pairwise(chain)]
    for place, axis in product(range(len(ratios)), range(min(len(shape), _AXES))):
        step = ratios[place]
        for other in (step[axis] + by for by in _STEPS):
            if other >= 1:
                changed = (*step[:axis], other, *step[axis + 1 :])
                yield _capped([*ratios[:place], changed, *ratios[place + 1 :]], shape)


def _capped(ratios: Sequence[Sides], shape: tuple[int, ...]) -> tuple[Sides, ...]:
    """Sides from ratios, none reaching further beyond the table than it must; empty steps go."""
    sides = [(1,) * len(shape)]
    for ratio in ratios:
        held = zip(sides[-1], ratio, shape, strict=True)
        step = tuple(side * min(times, -(-n // side)) for side, times, n in held)
        if step != sides[-1]:
            sides.append(step)
    return tuple(sides)


def _branching(chain: tuple[Sides, ...]) -> int:
    return max(chain[1]) if len(chain) > 1 else 1


def sample(workload: Workload) -> Workload:
    """Some thousand questions of a workload, evenly."""
    if workload.size <= _LOOKED_AT:
        return workload
    kept = np.linspace(0, workload.size - 1, _LOOKED_AT).astype(np.int64)
    return Workload(workload.shape, workload.lows[kept], workload.highs[kept], workload.words)
