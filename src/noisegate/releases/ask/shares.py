"""Which share of the price each block gets, so that a workload's mean variance is least.

Shares are decided from public facts only: sizes, the workload and the kind of noise.
"""

from collections.abc import Sequence
from fractions import Fraction
from math import asinh, inf, sinh, sqrt
from typing import Final, final

import numpy as np

from noisegate.frozen import dataclass
from noisegate.releases.ask.asking import Ask, one_sum

_GRAIN: Final = 1_000_000  # shares are whole millionths, which every account can add up exactly
_ROUNDS: Final = 60
_LEAST: Final = 2e-6
_STEEP: Final = 300.0
_TINY: Final = 1e-300  # a variance that underflows is that of no noise at all
NOISELESS: Final = 1e-15  # the least variance that is told from none


@final
@dataclass(frozen=True, slots=True)
class Law:
    """How the variance of sums of cells (`Groups`) falls with the share.

    Geometric noise for an ε has the variance 1 / (2 sinh²(ε/2)), Gaussian noise 1 / (2 ρ).
    """

    gaussian: bool
    amount: float

    @classmethod
    def of(cls, ask: Ask, share: Fraction = Fraction(1)) -> "Law":
        """Of what a share of the whole price buys; free."""
        variance = max(ask.variance(one_sum(ask.shape), share), NOISELESS)
        if ask.gaussian:
            return cls(gaussian=True, amount=1 / variance)
        return cls(gaussian=False, amount=2 * asinh(1 / sqrt(2 * max(variance, _TINY))))

    def weight(self, share: float) -> float:
        """1 / variance."""
        if self.gaussian:
            return share * self.amount
        return 2 * sinh(min(share * self.amount / 2, _STEEP)) ** 2

    def slope(self, share: float) -> float:
        """How fast the weight grows with the share."""
        if self.gaussian:
            return self.amount
        return self.amount * sinh(min(share * self.amount, _STEEP))


def separate(costs: Sequence[float], *, gaussian: bool) -> list[float]:
    """Shares p that sum to 1 and have the least Σ cost / p² (Gaussian noise: Σ cost / p)."""
    roots = np.asarray(costs, np.float64) ** (1 / 2 if gaussian else 1 / 3)
    least = roots.max() * 1e-4
    roots = np.maximum(roots, least if least > 0 else 1.0)
    found: list[float] = (roots / roots.sum()).tolist()
    return found


def nested(gains: Sequence[float], sizes: Sequence[float], law: Law) -> tuple[list[float], float]:
    """Shares p of levels with the least Σ gain_l / E_l, E_l = Σ_(j ≤ l) size_j · weight(p_j).

    This is the mean variance of a workload after least squares, see `nested.box_variance`. For
    Gaussian noise it is convex with a closed form; for geometric noise a fixed point is sought.
    """
    known = max(sum(gains), 1e-300)
    wanted = [max(gain, 1e-5 * known) for gain in gains]
    shares = _convex(wanted, sizes) if law.gaussian else _fixed_point(wanted, sizes, law)
    return shares, _cost(wanted, sizes, law, shares)


def _cost(
    gains: Sequence[float], sizes: Sequence[float], law: Law, shares: Sequence[float]
) -> float:
    total, below = 0.0, 0.0
    for gain, size, share in zip(gains, sizes, shares, strict=True):
        below += size * law.weight(share)
        total += gain / below if below > 0 else inf
    return total


def _convex(gains: Sequence[float], sizes: Sequence[float]) -> list[float]:
    """With c_l = 1 / size_l - 1 / size_(l+1), shares sum to Σ c_l E_l: minimise Σ gain_l / E_l over
    E that do not fall with l. That is E_l ∝ √(gain_l / c_l), neighbours pooled where it falls.
    """  # noqa: D205
    pools: list[tuple[float, float, int]] = []
    for level, gain in enumerate(gains):
        above = 1 / sizes[level + 1] if level + 1 < len(sizes) else 0.0
        pool = (gain, 1 / sizes[level] - above, 1)
        while pools and pools[-1][0] * pool[1] >= pool[0] * pools[-1][1]:
            last = pools.pop()
            pool = (last[0] + pool[0], last[1] + pool[1], last[2] + pool[2])
        pools.append(pool)
    shares: list[float] = []
    before = 0.0
    for gain, cost, count in pools:
        reached = sqrt(gain / cost)
        at = len(shares)
        shares += [(reached - before) / sizes[at], *[0.0] * (count - 1)]
        before = reached
    total = sum(shares)
    return [share / total for share in shares]


def _fixed_point(gains: Sequence[float], sizes: Sequence[float], law: Law) -> list[float]:
    """At the least cost, every share that is not 0 buys equally much more: ∂cost / ∂p is one."""
    count = len(gains)
    shares = [1 / count] * count
    for _ in range(_ROUNDS):
        below, reached = 0.0, []
        for size, share in zip(sizes, shares, strict=True):
            below += size * law.weight(share)
            reached.append(below)
        left, bought = 0.0, [0.0] * count
        for level in range(count - 1, -1, -1):
            left += gains[level] / reached[level] ** 2
            bought[level] = sizes[level] * law.slope(shares[level]) * left
        steps = [share * gain ** (1 / 3) for share, gain in zip(shares, bought, strict=True)]
        total = sum(steps)
        moved = [step / total for step in steps]
        near = max(abs(a - b) for a, b in zip(moved, shares, strict=True)) < 1e-5
        shares = moved
        if near:
            break
    kept = [share if share > _LEAST or level == 0 else 0.0 for level, share in enumerate(shares)]
    return [share / sum(kept) for share in kept]


def exact_shares(shares: Sequence[float]) -> list[Fraction]:
    """The same as fractions with the sum 1; those that are 0 stay 0.

    >>> exact_shares([0.25, 0.0, 0.75])
    [Fraction(1, 4), Fraction(0, 1), Fraction(3, 4)]
    """
    grains = [max(1, int(share * _GRAIN)) if share > 0 else 0 for share in shares]
    largest = max(range(len(grains)), key=grains.__getitem__)
    grains[largest] += _GRAIN - sum(grains)
    return [Fraction(grain, _GRAIN) for grain in grains]
