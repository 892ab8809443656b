"""What a price buys in a session of many questions: surprises, a threshold, and a promise.

Noise grows with the number of surprises that are paid for, and with it the promise: every answer
before the last surprise is within ``within``, all of them together, at the confidence.
"""

from fractions import Fraction
from math import exp, inf, isfinite, log, sqrt
from typing import Final, final

from noisegate.accounting.amplification import poisson
from noisegate.accounting.search import largest
from noisegate.curator.surprises import SurpriseSpec
from noisegate.desk.terms.price import Price
from noisegate.errors import SpecError
from noisegate.exact import Number, sqrt_down
from noisegate.frozen import dataclass, replace
from noisegate.mechanisms.additive.gaussian import DiscreteGaussian
from noisegate.mechanisms.additive.geometric import Geometric
from noisegate.mechanisms.base import failure_of
from noisegate.mechanisms.selection.outside_band import OutsideBand
from noisegate.privacy.loss import ApproxDP
from noisegate.transforms.query import Query

SURPRISES_MAX: Final = 100_000
USUAL: Final = {True: 32, False: 12}  # surprises, under Gaussian noise and under pure ε
START_SHARE: Final = {True: Fraction(3, 10), False: Fraction(1, 2)}
NUMBER_SHARE: Final = Fraction(3, 20)
_NUMBERS: Final = Fraction(1, 4)  # of the failure, for the numbers of surprises
_FALSE: Final = Fraction(1, 8)  # of the surprises, wasted, if the model were perfect
_RATIOS: Final = tuple(Fraction(part, 20) for part in range(1, 15))  # of ε, for the ends


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Bargain:
    """A session to be opened. Numbers are in grains.

    Claim: with the confidence, all at once: the count of every question that was called near is
        within ``within`` of its guess, and every number of a surprise within ``number_within``.
    Why: a near count is off by less than the threshold and the noise of an end and of the count,
        which pass ``slack`` for none of the questions but with 3/4 of the failure (union bound);
        the numbers have the rest.
    """

    spec: SurpriseSpec
    start: Fraction  # share of the price
    slack: int
    number_within: int

    @property
    def within(self) -> int:
        """How far the answers that cost nothing may be off."""
        return self.spec.band.threshold + self.slack


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What is wanted: how many questions, for which price, at which confidence."""

    cells: Query
    price: Price
    pure: bool  # one run for all surprises
    questions: int
    confidence: Number

    def usual(self, surprises: int | None = None, *, start: bool = True) -> Bargain:
        """For so many surprises, the smallest promise."""
        share = START_SHARE[self.price.gaussian] if start else Fraction(0)
        wanted = USUAL[self.price.gaussian] if surprises is None else surprises
        return self._bargain(min(wanted, self.questions), share, None)

    def promised(self, within: int, *, start: bool = True) -> Bargain:
        """For a promise, as many surprises as it allows."""
        share = START_SHARE[self.price.gaussian] if start else Fraction(0)
        low, high = 0, 1
        while high <= SURPRISES_MAX and self._rough(high, share) <= within:
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._rough(middle, share) <= within else (low, middle)
        while low and (found := self._bargain(low, share, None)).within > within:
            low -= 1
        if not low:
            least = self._bargain(1, share, None).within * float(self.cells.tally.terms[0].grain)  # type: ignore[union-attr]
            raise SpecError(
                "At this price, not one update within this error can be paid for.",
                fix=f"Use a larger epsilon, or within={least:,.0f} or more.",
            )
        return found

    def endless(self, total: int) -> Bargain:
        """The smallest promise that is kept to the last question, for a public total of all cells.

        Claim: with the confidence, no more surprises come than are paid for.
        Why: a surprise means that the model is off by at least γ = threshold - slack, on a known
            side. The projection on what is then certain brings KL(exact ‖ model), at first at most
            ln|X|, down by at least 2 (γ / total)² (`cells_model.py`; compare [HR10]), and it is
            never negative. A surprise that is none has the noise of a near one: three events for
            each question.
        """
        cells = self.cells.tally.cells  # type: ignore[union-attr]

        def step(surprises: int) -> float:
            return total * sqrt(log(max(2, cells)) / (2 * surprises))

        def alpha(surprises: int) -> float:
            return 2 * self._quantile(surprises, Fraction(0), sure=True) + step(surprises)

        tried = sorted({round(1.05**power) for power in range(237)})
        best = min(tried, key=alpha)
        return self._bargain(best, Fraction(0), step(best))

    # how

    def _bargain(self, surprises: int, start: Fraction, step: float | None) -> Bargain:
        if type(surprises) is not int or not 1 <= surprises <= SURPRISES_MAX:
            raise SpecError("surprises is not a valid count.", fix=f"Use 1 to {SURPRISES_MAX:,}.")
        ratio = min(_RATIOS, key=lambda each: self._at_ratio(surprises, start, each, step))
        band = self._band(surprises, start, ratio)
        failure = failure_of(self.confidence)
        slack = band.slack(self._failure(sure=step is not None))
        if step is None:
            threshold = band.slack(_FALSE * surprises / (2 * self.questions))
        else:
            threshold = slack + int(step) + 2  # a guess is rounded
        number = self._number(surprises)
        spec = SurpriseSpec(
            cells=self.cells,
            reach=1,
            band=OutsideBand(
                threshold=threshold,
                threshold_scale=band.threshold_scale,
                query_scale=band.query_scale,
                cutoff=band.cutoff,
            ),
            number=number,
            most=surprises,
            restarts=not self.pure,
        )
        margin = number.interval(1 - _NUMBERS * failure / surprises)
        return Bargain(spec=spec, start=start, slack=slack, number_within=margin)

    def _failure(self, *, sure: bool) -> Fraction:
        """Of each question, that its noise is not within the slack."""
        failure = failure_of(self.confidence) * (1 - _NUMBERS) / self.questions
        return failure / 3 if sure else failure

    def _band(self, surprises: int, start: Fraction, ratio: Fraction) -> OutsideBand:
        """Comparisons for what is left of the price, ``ratio`` of it for the ends."""
        left = (1 - start - NUMBER_SHARE) * self.price.amount
        runs = 1 if self.pure else surprises
        # a run of ε costs at most ε²/2 in ρ [BS16], and the ρ of runs add up
        epsilon = left / runs
        if self.price.gaussian:
            epsilon = Fraction(int(sqrt_down(2 * epsilon) * (1 << 40)), 1 << 40)
        cutoff = surprises if self.pure else 1
        return OutsideBand(
            threshold=0,
            threshold_scale=self.cells.moved / (ratio * epsilon),
            query_scale=cutoff * self.cells.moved / ((1 - ratio) * epsilon),
            cutoff=cutoff,
        )

    def _number(self, surprises: int) -> Geometric | DiscreteGaussian:
        each = NUMBER_SHARE * self.price.amount / surprises
        if self.price.gaussian:
            return DiscreteGaussian(variance=self.cells.moved**2 / (2 * each))
        return Geometric(scale=self.cells.moved / each)

    # roughly, in floats, to choose by

    def _at_ratio(
        self, surprises: int, start: Fraction, ratio: Fraction, step: float | None
    ) -> float:
        left = float((1 - start - NUMBER_SHARE) * self.price.amount)
        epsilon = left if self.pure else left / surprises
        if self.price.gaussian:
            epsilon = sqrt(2 * epsilon)
        moved, times = float(self.cells.moved) / epsilon, surprises if self.pure else 1
        scales = times * moved / (1 - float(ratio)), moved / float(ratio)
        near = _quantile(*scales, float(self._failure(sure=step is not None)))
        false = float(_FALSE) * surprises / (2 * self.questions)
        return near + (near if step is not None else _quantile(*scales, false))

    def _rough(self, surprises: int, start: Fraction) -> float:
        return min(self._at_ratio(surprises, start, ratio, None) for ratio in _RATIOS)

    def _quantile(self, surprises: int, start: Fraction, *, sure: bool) -> float:
        half = 0.0 if sure else None
        return min(self._at_ratio(surprises, start, ratio, half) for ratio in _RATIOS) / 2


def _quantile(one: float, other: float, failure: float) -> float:
    """Where the sum of two Laplace draws has a tail of ``failure``."""
    if one == other:
        other *= 1 + 1e-6

    first, second = one * one, other * other
    whole = 2 * (first - second)

    def tail(at: float) -> float:
        return (first * exp(-at / one) - second * exp(-at / other)) / whole

    low, high = 0.0, max(one, other)
    while tail(high) > failure:
        low, high = high, 2 * high
        if not isfinite(high):
            return inf
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (low, middle) if tail(middle) <= failure else (middle, high)
    return high


def for_two(price: Price, *, start: bool) -> Price:
    """Of a sample: as much as two samples, one for the start, may ask for the same price."""
    sample, share = price.sample, START_SHARE[price.gaussian]
    if sample is None or not start:
        return price

    def cost(*amounts: Fraction) -> Fraction:
        losses = (poisson(ApproxDP(amount), probability=sample) for amount in amounts)
        return sum((loss.epsilon for loss in losses), Fraction(0))

    most = cost(price.amount)
    amount = largest(
        lambda each: cost(share * each, (1 - share) * each) <= most, guess=price.amount
    )
    return replace(price, amount=amount)
