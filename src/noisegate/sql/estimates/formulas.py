"""Averages and what is made of them, for numbers and for intervals alike.

A bar for an average t = S / n is the set of all t that the noisy S and n do not contradict: those
with |S - t n| ≤ q(t), where q(t) is the half-width of the noise of S - t n at the confidence. The
true t is in it whenever that one noise is within its half-width, whatever n is; nothing needs to be
known about the denominator, and where the noisy count says nothing the whole range is left.

Let E[·] be an average and x, y centred values. Then VAR_POP = E[x²] - E[x]², COVAR_POP = E[xy] -
E[x] E[y], CORR = COVAR / √(VAR VAR), and a sample's is n / (n - 1) times the population's. The bar
of a variance is that of one noise too, see `_spread`; for the others, bars for all parts that hold
at once (a union bound) give one for the whole by interval arithmetic. It is cut
to what holds for every table: averages lie between the bounds, variances below a quarter of the
squared range, correlations within ±1.
"""

from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Final

import numpy as np

from noisegate.sql.drafts.recipe import VARIANCES, Mean, Recipe
from noisegate.sql.estimates.bounded import Loss
from noisegate.sql.estimates.clipped import Clipped, moved_off
from noisegate.sql.estimates.losses import Ends, Quotient, average_off, widened
from noisegate.sql.laws.known import Bars, Known
from noisegate.sql.laws.laws import Floats, Interval, combined
from noisegate.sql.laws.sampling import Sampling
from noisegate.sql.question import Function

_SAMPLED: Final = (Function.VAR_SAMP, Function.STDDEV_SAMP, Function.COVAR_SAMP)
_ROOTED: Final = (Function.STDDEV_POP, Function.STDDEV_SAMP)
_GRID: Final = tuple(Fraction(place, 32) for place in (0, 1, 2, 4, 6, 9, 13, 18, 24, 32))
_PLACES: Final = 17  # from half the least average to twice the largest
_NEAREST: Final = 2.0**-24  # of the bound: closer to 0 averages are alike
_SIDE: Final = Fraction(1, 24)  # of the failure, for what a bar of a variance needs besides
_STEPS: Final = 16.0  # places up to the largest factor of a noise
_EIGHTH: Final = Fraction(1, 8)  # of the failure, for each part that is not the main one


def average_of(
    recipe: Recipe,
    means: Sequence[Known],
    count: Known,
    sampling: Sampling | None,
    loss: Loss | None = None,
    clips: Sequence[Clipped | None] = (),
) -> tuple[Floats, Bars]:
    """The estimate, with the count taken as 1 where it is less, and its bars.

    Of a sample, with the ``sampling`` of its count, half of what may fail is for what that adds.
    With a ``loss``, the bars are about all rows, and not those that a cap leaves. ``clips`` are
    what found bounds lose of two arguments.
    """
    function = recipe.aggregate.function
    rows = np.maximum(count.values.astype(np.float64), 1.0)
    points = []
    for known, mean in zip(means, recipe.means, strict=True):
        ratio = np.asarray(known.values / rows, np.float64)
        points.append(_placed(Interval(ratio, ratio), mean))
    estimate = _combined(function, recipe.means, points, Interval(rows, rows))

    def bars(confidence: Fraction) -> Interval:
        if function in VARIANCES and sampling is None:
            return _deviation(recipe, means, count, loss, confidence)
        failure = (1 - confidence) / (1 if sampling is None else 2)
        parts = len(means) + (
            function in _SAMPLED
        )  # each but the first has an eighth of what fails
        main, side = 1 - failure * (1 - _EIGHTH * (parts - 1)), 1 - failure * _EIGHTH
        ratios = [
            _ratio(known, count, mean, side if place else main)
            for place, (known, mean) in enumerate(zip(means, recipe.means, strict=True))
        ]
        held = count.bars(side)
        if sampling is not None:
            part = failure / (len(means) + 2)
            few = count.bars(1 - part)
            held = Interval(*sampling.bounds(few.low, few.high, float(part)))
            strays = [
                sampling.average_strays(
                    _span(mean), few.low, held.high, float(part),
                    low=ratio.low + float(mean.middle - mean.low),
                    high=ratio.high + float(mean.middle - mean.low),
                )
                for ratio, mean in zip(ratios, recipe.means, strict=True)
            ]  # fmt: skip
            ratios = [
                Interval(ratio.low - off, ratio.high + off)
                for ratio, off in zip(ratios, strays, strict=True)
            ]
        if loss is not None:
            ratios = [
                _of_all(ratio, known, mean, rows, loss, confidence)
                for ratio, known, mean in zip(ratios, means, recipe.means, strict=True)
            ]
        if any(clips):
            ratios = _of_unmoved(ratios, clips, recipe.means, rows, confidence)
        placed = [_placed(each, mean) for each, mean in zip(ratios, recipe.means, strict=True)]
        return _combined(function, recipe.means, placed, held)

    return (estimate.low + estimate.high) / 2, bars


def _of_unmoved(
    ratios: Sequence[Interval],
    clips: Sequence[Clipped | None],
    means: Sequence[Mean],
    rows: Floats,
    confidence: Fraction,
) -> list[Interval]:
    """Centred averages of a product, of its arguments, and of their squares, if any; see `Mean`."""
    halves = [_half(mean) for mean in means[1:3]]
    each, squares, product = moved_off(clips, halves, rows, confidence)
    none = np.zeros(rows.shape)
    offs = [(product, product), *((off, off) for off in each), *((none, off) for off in squares)]
    return [
        Interval(ratio.low - down, ratio.high + up)
        for ratio, (down, up) in zip(ratios, offs, strict=False)
    ]


def _of_all(
    ratio: Interval, known: Known, mean: Mean, rows: Floats, loss: Loss, confidence: Fraction
) -> Interval:
    """A centred average of all rows, from that of the weighed rows."""
    low, high = float(mean.low - mean.middle), float(mean.high - mean.middle)
    point = np.asarray(known.values / rows, np.float64)
    off = average_off(point, low, high, rows, loss, confidence)
    return widened(ratio, point, off, low, high)


def _deviation(
    recipe: Recipe, means: Sequence[Known], count: Known, loss: Loss | None, confidence: Fraction
) -> Interval:
    """A variance or a standard deviation."""
    function, mean = recipe.aggregate.function, recipe.means[1]
    side = 1 - (1 - confidence) * _SIDE
    spread, point = _spread(means, count, recipe.means, confidence)
    most, rows = _half(mean) ** 2, np.maximum(count.values.astype(np.float64), 1.0)
    if loss is not None:
        middle = means[1].values / rows
        far = float(mean.high - mean.middle) + np.abs(middle)
        off = average_off(np.maximum(point, 0.0), 0.0, far**2, rows, loss, confidence)
        spread = widened(spread, point, off, 0.0, most)
    spread = spread.clipped(0, most)
    if function in _SAMPLED:
        spread = _sampled(spread, count.bars(side))
    return spread.root() if function in _ROOTED else spread


def _spread(
    known: Sequence[Known], count: Known, means: Sequence[Mean], confidence: Fraction
) -> tuple[Interval, Floats]:
    """Where E[x²] - E[x]² lies, and the estimate, which may be negative.

    Claim: holds with the confidence and a bit, for a bar of the count. Why: let A, B and n be the
        noisy sums of squares (around their middle m) and of values and the count, a and b the exact
        averages. A - 2 b B - (a - 2 b²) n is noise alone, since its exact value is 0. It is also n
        times V̂ + (B / n - b)² - V, with V̂ = m + A / n - (B / n)². So V is that far from V̂,
        up to the half-width q of the noise over n. Of a and b bars are known, each for a part of
        the failure; q is taken at the largest factors that they leave, as in `_ratio`. A V̂ far
        below 0 gives way for the upper end, which is at least q / 2n: that only widens the bar.
    """
    failure = 1 - confidence
    side, main = 1 - failure * _SIDE, 1 - failure * (1 - 3 * _SIDE)
    squares, values = (
        _ratio(each, count, mean, side) for each, mean in zip(known, means, strict=True)
    )
    rows = count.values.astype(np.float64)
    held = np.maximum(rows, 1.0)
    point = known[1].values / held
    estimate = float(means[0].middle) + known[0].values / held - point**2
    twice = 2 * np.maximum(np.abs(values.low), np.abs(values.high))
    square = values.square()
    factor = np.maximum(
        np.abs(squares.low - 2 * square.high), np.abs(squares.high - 2 * square.low)
    )
    noise = _joint(known, count, twice, factor, main)
    strayed = np.maximum(np.abs(point - values.low), np.abs(values.high - point)) ** 2
    told = rows >= 1
    return Interval(
        np.where(told, estimate - noise / held, 0.0),
        np.where(told, np.maximum(estimate, -noise / held / 2) + strayed + noise / held, np.inf),
    ), estimate


def _joint(
    known: Sequence[Known], count: Known, twice: Floats, factor: Floats, confidence: Fraction
) -> Floats:
    """Half-widths of the noise of A - t B - f n for each cell, with t and f rounded up."""
    laws = known[0].law, known[1].law, count.law
    steps = [_STEPS / max(float(each.max(initial=0.0)), 1e-300) for each in (twice, factor)]
    places = np.stack([np.ceil(twice * steps[0]), np.ceil(factor * steps[1])], axis=-1)
    different, at = np.unique(places.reshape(-1, 2), axis=0, return_inverse=True)
    found = []
    for place in different:
        factors = [Fraction(1), *(Fraction(p / s) for p, s in zip(place, steps, strict=True))]
        law = combined(list(zip(factors, laws, strict=True)))
        found.append(law.half_width(confidence) + float(law.step))
    return np.array(found)[at.reshape(-1)]


def quotient_of(recipe: Recipe, parts: Quotient, *, lossless: bool = False) -> tuple[Floats, Bars]:
    """An average as a sum over a count that have caps of their own, and its bars.

    Claim: with S and n the sum and the count of all rows and t = S / n, S - t n is 0. Its estimate
        errs by noise, a half-width of q(t), and by what caps lose of S and of n, by the model: less
        of one and more of the other. These are independent, so half-widths add up in squares. All t
        that this does not contradict are the bar; a count that loses rows has at least those that
        are left, so t has a limit above. ``lossless``: the caps lose nothing.
    """
    (mean,) = recipe.means
    rows = np.maximum(parts.count.values, 1.0)
    point = np.clip(parts.total.values / rows, float(mean.low), float(mean.high))
    near = float(max(abs(mean.low), abs(mean.high)))

    def bars(confidence: Fraction) -> Interval:
        places = _places(np.abs(point), near)
        doubts = None if lossless else parts.doubts(confidence)
        return _ratio(parts.total, parts.count, mean, confidence, places, doubts)

    return point, bars


def _places(points: Floats, far: float) -> list[Fraction]:
    """Where widths are taken: close together around the averages, and up to the bound."""
    if not far:  # all values are 0
        return [Fraction(0), Fraction(0)]
    held = np.clip(points, far * _NEAREST, far)
    first, last = float(held.min()) / 2, min(2 * float(held.max()), far)
    near = np.geomspace(first, last, _PLACES).tolist()
    while near[-1] < far:
        near.append(min(2 * near[-1], far))
    return [Fraction(0), *map(Fraction, near)]


def _ratio(
    total: Known,
    count: Known,
    mean: Mean,
    confidence: Fraction,
    places: Sequence[Fraction] = (),
    doubts: tuple[Ends, Ends] | None = None,
) -> Interval:
    """All t in the known range with |S - t n| ≤ q(t), for each cell.

    ``doubts`` are how far below and above S and n may be besides their noise.

    Between two places of a grid q is taken at the outer one, and raised by a step of both noises.
    Why: a noise that is symmetric and falls to both sides stays within fewer bounds when scaled up,
        also beside another such noise (Birnbaum 1948); a noise on whole steps becomes one by adding
        a uniform half step, which moves the sum by half a step here and half a step there.
    """
    low, high = mean.low - mean.middle, mean.high - mean.middle
    far = max(abs(low), abs(high))
    pieces: list[tuple[float, float, Floats, Floats]] = []
    for inner, outer in pairwise(places or [far * place for place in _GRID]):
        law = combined([(Fraction(1), total.law), (outer, count.law)])
        noise = law.half_width(confidence) + float(total.law.step + outer * count.law.step)
        for start, end in ((inner, outer), (-outer, -inner)):
            a, b = max(start, low), min(end, high)
            if a <= b:
                widths = _widths(noise, doubts, float(outer), end > 0)
                pieces.append((float(a), float(b), *widths))
    rows = count.values.astype(np.float64)
    sums = _near(total.values.astype(np.float64), rows, pieces)
    least = np.full(rows.shape, np.inf)
    most = -least
    for left, right, below, above in pieces:
        first, last = _solved(sums, rows, below, above)
        first, last = np.maximum(first, left), np.minimum(last, right)
        possible = first <= last
        least = np.where(possible, np.minimum(least, first), least)
        most = np.where(possible, np.maximum(most, last), most)
    nothing = least > most  # of a count below 0: no average fits
    return Interval(np.where(nothing, float(low), least), np.where(nothing, float(high), most))


def _near(
    sums: Floats, rows: Floats, pieces: Sequence[tuple[float, float, Floats, Floats]]
) -> Floats:
    """Sums no further outside their bounds than half a half-width.

    Noise may put a sum so far outside that few averages fit, or none. Why all that fit still do:
        of n > 0 rows whose sum S is below low n, any t in bounds has S - t n ≤ 0. So S - t n must
        only be above some number, and is if a larger S stands in its place, up to low n.
    """
    low, _, below, _ = min(pieces, key=lambda piece: piece[0])
    _, high, _, above = max(pieces, key=lambda piece: piece[1])
    near = np.clip(sums, low * rows - below / 2, high * rows + above / 2)
    found: Floats = np.where(rows > 0, near, sums)
    return found


def _widths(
    noise: float,
    doubts: tuple[Ends, Ends] | None,
    far: float,
    positive: bool,  # noqa: FBT001
) -> Ends:
    """How far S - t n may be below and above 0, for |t| ≤ ``far`` of one sign.

    Why: where the true S is larger than thought, or the true n smaller, S - t n seems too small.
    """
    if doubts is None:
        return np.asarray(noise), np.asarray(noise)
    (less, more), (fewer, further) = doubts
    if not positive:
        fewer, further = further, fewer
    below = np.hypot(np.hypot(more, far * fewer), noise)
    above = np.hypot(np.hypot(less, far * further), noise)
    return below, above


def _solved(sums: Floats, rows: Floats, below: Floats, above: Floats) -> tuple[Floats, Floats]:
    """The t with -below ≤ sums - t rows ≤ above: an interval, for either sign of rows."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ends = (sums - above) / rows, (sums + below) / rows
    first, last = np.fmin(*ends), np.fmax(*ends)
    flat, fits = rows == 0, (-below <= sums) & (sums <= above)
    first = np.where(flat, np.where(fits, -np.inf, np.inf), first)
    last = np.where(flat, np.where(fits, np.inf, -np.inf), last)
    return first, last


def _placed(ratio: Interval, mean: Mean) -> Interval:
    """The average: the public middle plus the centred ratio, within the bounds."""
    shifted = ratio + float(mean.middle)
    return shifted.clipped(float(mean.low), float(mean.high))


def _combined(
    function: Function, means: Sequence[Mean], averages: Sequence[Interval], rows: Interval
) -> Interval:
    if function is Function.AVG:
        return averages[0]
    main, *rest = averages
    around = [each + -float(mean.middle) for mean, each in zip(means[1:], rest, strict=True)]
    if function is Function.CORR:
        return _correlation(main, around, rest[2:], means)
    if len(rest) == 1:
        spread, most = main - around[0].square(), float(means[1].high - means[1].low) ** 2 / 4
        spread = spread.clipped(0, most)
    else:
        limit = _half(means[1]) * _half(means[2])
        spread = (main - around[0] * around[1]).clipped(-limit, limit)
    if function in _SAMPLED:
        spread = _sampled(spread, rows)
    return spread.root() if function in _ROOTED else spread


def _correlation(
    product: Interval,
    around: Sequence[Interval],
    squares: Sequence[Interval],
    means: Sequence[Mean],
) -> Interval:
    x, y = around[:2]
    limit = _half(means[1]) * _half(means[2])
    covariance = (product - x * y).clipped(-limit, limit)
    variances = [
        (square - centre.square()).clipped(0, _half(mean) ** 2)
        for square, centre, mean in zip(squares, (x, y), means[1:3], strict=True)
    ]
    scale = (variances[0] * variances[1]).root()
    return covariance.over(scale).clipped(-1, 1)


def _sampled(spread: Interval, rows: Interval) -> Interval:
    """Times n / (n - 1), which falls with n, for n ≥ 2."""
    few, many = np.maximum(rows.low, 2.0), np.maximum(rows.high, 2.0)
    large, small = few / (few - 1), many / (many - 1)
    low = np.where(spread.low < 0, spread.low * large, spread.low * small)
    high = np.where(spread.high > 0, spread.high * large, spread.high * small)
    return Interval(low, high)


def _half(mean: Mean) -> float:
    return _span(mean) / 2


def _span(mean: Mean) -> float:
    return float(mean.high - mean.low)
