"""How a learner asks: rounds of whole-number statistics of rows, each for a share of its price.

A learner sees rows through `RowsAsk` alone, so whatever it computes is private; a mistake in it
costs accuracy, never privacy.

    ask.totals(Statistic(Nearest(scores), (One(), Linear())), [Fraction(1, 10), Fraction(1, 5)])

is one round of k-means: how many rows are nearest to each centre, and the sums of their
coordinates. Coordinates are whole numbers in ±``reach``; 0 is the middle of the declared bounds.

Noise that is wider than can be drawn hides everything, so its sums are not asked for: they are 0,
with the variance of that noise. Whether it is depends on public numbers alone, so no round of a
learner that was charged is refused.
"""

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any, Final, Protocol, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from noisegate.accounting.box import box_variance
from noisegate.algebra.tally import Rows
from noisegate.curator.allowance import Scope
from noisegate.curator.measurement import Measurement
from noisegate.desk.terms.price import VARIANCE_MIN, Price, require_shares, variance_of
from noisegate.errors import SpecError
from noisegate.exact import sqrt_down
from noisegate.frozen import dataclass, replace
from noisegate.mechanisms.additive.box_noise import BoxNoise
from noisegate.mechanisms.additive.gaussian import DiscreteGaussian
from noisegate.mechanisms.additive.geometric import Geometric
from noisegate.mechanisms.base import NoiseMechanism
from noisegate.mechanisms.objective.perturbed_logistic import PerturbedLogistic
from noisegate.transforms.checks import MOVED_MAX
from noisegate.transforms.query import Query, shape_of
from noisegate.transforms.statistics.features import One
from noisegate.transforms.statistics.numbers import Shape
from noisegate.transforms.statistics.statistic import Block, Statistic
from noisegate.transforms.statistics.weighings import Plain
from noisegate.transforms.whole_rows import WholeRows

Floats: TypeAlias = NDArray[np.float64]
_FAR: Final = Fraction(10) ** 150  # of noise that nobody can draw: its square is still a double


@final
@dataclass(frozen=True, slots=True)
class NoisySums:
    """Noisy sums, of shape (cells, width), and the variance of the noise of each number."""

    values: Floats
    variance: float


class RowsAsk(Protocol):
    """What a learner is given. Shares are of its whole price and add up to at most 1."""

    columns: int
    reach: int
    classes: int
    gaussian: bool
    objective: bool  # whether the policy allows `minimised`

    def totals(self, statistic: Statistic, shares: Sequence[Fraction]) -> list[NoisySums]:
        """The sums of each feature, in one pass over the rows, with the noise its share buys.

        What noise hides is 0.
        """

    def variance(self, statistic: Statistic, shares: Sequence[Fraction]) -> list[float]:
        """The variances that `totals` would have: free."""

    def minimised(self, penalty: Fraction, share: Fraction) -> NoisySums:
        """The lines of least logistic loss with at least this penalty, the constants last.

        The variance is what that of each weight is at most, about.
        """

    def done(self, part: float, words: str) -> None:
        """Say how far the learner has come."""

    def keep(self, fitted: Mapping[str, NDArray[Any]]) -> None:
        """What it has learnt so far, for the case that it is interrupted."""


def noises(
    blocks: Sequence[Block], shares: Sequence[Fraction], price: Price, weight: int
) -> tuple[NoiseMechanism[Any], ...]:
    """The least noise that each share buys, where one unit weighs ``weight`` parts of a row."""
    found = offered(blocks, shares, price, weight)
    drawn = tuple(noise for noise in found if not isinstance(noise, Hidden))
    if len(drawn) < len(found):
        raise SpecError(
            "The noise would be too large to draw.",
            fix="Use a larger epsilon, or a smaller rows_per_unit.",
        )
    return drawn


@final
@dataclass(frozen=True, slots=True)
class Hidden:
    """Noise that is wider than can be drawn."""

    variance: float


def offered(
    blocks: Sequence[Block], shares: Sequence[Fraction], price: Price, weight: int
) -> tuple[NoiseMechanism[Any] | Hidden, ...]:
    """The same, where noise may be too wide."""
    if len(blocks) != len(shares):
        raise SpecError("There must be one share per feature.", fix="Give one for each.")
    return tuple(
        _noise(block, share * price.amount, weight, gaussian=price.gaussian)
        for block, share in zip(blocks, require_shares(shares), strict=True)
    )


def _noise(
    block: Block, amount: Fraction, weight: int, *, gaussian: bool
) -> NoiseMechanism[Any] | Hidden:
    far = weight * block.l1 > MOVED_MAX
    if gaussian:
        variance = max(weight**2 * block.l2_squared / (2 * amount), DiscreteGaussian.LEAST)
        if far or variance > DiscreteGaussian.MOST:
            return Hidden(float(min(variance, _FAR**2)))
        return DiscreteGaussian(variance=variance)
    each, whole = weight * block.l1 / amount, weight * block.largest / amount
    wide = block.width > 1 and BoxNoise.fits(whole, block.width)
    if wide and not far and box_variance(whole, block.width) < 2 * each**2:
        return BoxNoise(scale=whole, width=block.width)
    if far or each > Geometric.MOST:
        return Hidden(2 * float(min(each, _FAR)) ** 2)
    return Geometric(scale=max(each, Geometric.LEAST))


def noise_variance(noise: NoiseMechanism[Any] | Hidden) -> float:
    """The variance of the noise of one number; never 0, so that learners can weigh by it."""
    if isinstance(noise, Hidden):
        return noise.variance
    if isinstance(noise, BoxNoise):
        return max(box_variance(noise.scale, noise.width), VARIANCE_MIN)
    return variance_of(noise)


@final
class DoorRows:
    """Asks through the door, within an allowance."""

    def __init__(
        self,
        scope: Scope,
        tally: Rows,
        price: Price,
        *,
        progress: Callable[[float, str], None] | None = None,
        objective: bool = True,
    ) -> None:
        self.objective = objective
        self._scope, self._tally, self._price, self._progress = scope, tally, price, progress
        self._weight = Query(tally, Statistic(Plain(), (One(),))).weight
        shape = shape_of(tally)
        self.columns, self.reach, self.classes = shape.columns, shape.reach, shape.keys
        self.gaussian = price.gaussian
        self._whole = tally.whole * float(price.sample or 1)  # of a sample: as of all rows
        self.kept: dict[str, NDArray[Any]] | None = None

    def totals(self, statistic: Statistic, shares: Sequence[Fraction]) -> list[NoisySums]:  # noqa: D102 - see RowsAsk
        blocks, chosen = self._offered(statistic, shares)
        seen = [place for place, noise in enumerate(chosen) if not isinstance(noise, Hidden)]
        parts = [np.zeros(block.size, np.int64) for block in blocks]
        if seen:
            query = Query(
                self._tally,
                replace(statistic, features=tuple(statistic.features[place] for place in seen)),
            )
            drawn = tuple(noise for noise in chosen if not isinstance(noise, Hidden))
            release = self._scope.measure(Measurement(query=query, mechanisms=drawn))
            ends = np.cumsum([blocks[place].size for place in seen])[:-1]
            for place, part in zip(seen, np.split(release.values[0], ends), strict=True):
                parts[place] = part
        return measured_of(parts, blocks, chosen, self._whole)

    def variance(self, statistic: Statistic, shares: Sequence[Fraction]) -> list[float]:  # noqa: D102 - see RowsAsk
        _, chosen = self._offered(statistic, shares)
        return [noise_variance(noise) / self._whole**2 for noise in chosen]

    def _offered(
        self, statistic: Statistic, shares: Sequence[Fraction]
    ) -> tuple[tuple[Block, ...], tuple[NoiseMechanism[Any] | Hidden, ...]]:
        blocks = statistic.blocks(shape_of(self._tally))
        return blocks, offered(blocks, shares, self._price, self._weight)

    def minimised(self, penalty: Fraction, share: Fraction) -> NoisySums:  # noqa: D102 - see RowsAsk
        query = Query(self._tally, WholeRows())
        noise = minimiser(
            shape_of(self._tally), self._price, share, self._tally.whole, query.per_unit, penalty
        )
        release = self._scope.measure(Measurement(query=query, mechanisms=(noise,)))
        return lines_of(noise, release.values)

    def done(self, part: float, words: str) -> None:  # noqa: D102 - see RowsAsk
        if self._progress is not None:
            self._progress(part, words)

    def keep(self, fitted: Mapping[str, NDArray[Any]]) -> None:  # noqa: D102 - see RowsAsk
        self.kept = dict(fitted)


def minimiser(
    shape: Shape, price: Price, share: Fraction, whole: int, rows: int, penalty: Fraction
) -> PerturbedLogistic:
    """What a share buys; of a ρ, its square is half of ε²."""
    (exact,) = require_shares([share])
    amount = exact * price.amount
    return PerturbedLogistic.for_epsilon(
        sqrt_down(2 * amount) if price.gaussian else amount,
        columns=shape.columns,
        classes=shape.keys,
        reach=shape.reach,
        whole=whole,
        rows=rows,
        penalty=penalty,
    )


def lines_of(noise: PerturbedLogistic, released: NDArray[np.int64]) -> NoisySums:
    """What was released as lines, the constants last."""
    width, found = noise.columns + 1, np.ldexp(released.astype(np.float64), -noise.digits)
    slope = float(noise.scale / noise.penalty) ** 2 * (width + 1) * (width + 2) / 3
    return NoisySums(found.reshape(-1, width), slope + 2 * float(noise.blur / 2**noise.digits) ** 2)


def measured_of(
    parts: Sequence[NDArray[np.int64]],
    blocks: Sequence[Block],
    chosen: Sequence[NoiseMechanism[Any] | Hidden],
    whole: float,
) -> list[NoisySums]:
    """Sums in rows instead of parts of rows."""
    return [
        NoisySums(part.reshape(block.cells, block.width) / whole, noise_variance(noise) / whole**2)
        for part, block, noise in zip(parts, blocks, chosen, strict=True)
    ]
