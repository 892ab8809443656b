"""A line through noisy sums: its level first, then slopes, as far as noise does not explain them.

Rounds ask for the slopes of the squared residuals at the current line; residuals are cut where few
reach, so their noise is small. What is known about the rows says how slopes become weights: the
products of all columns [Wan18] where noise lets them be seen, else how far rows lie along the
slopes. Weights are the mean of what they may be, given the noise of known variance, where any part
of the target's variance may be explained, and none as likely as some: an error is measured in parts
of that variance, so where noise hides the line what is left is the level. Where it hides most
columns, a random few are asked about; where it hides even the target's spread, all of the price
buys the mean.
"""

from fractions import Fraction
from typing import Final, final

import numpy as np

from noisegate.frozen import dataclass, field, replace
from noisegate.learners.asking import Floats, NoisySums, RowsAsk
from noisegate.learners.fitting import Fitted
from noisegate.learners.linear.levels import (
    CUTS,
    SPANS,
    Spread,
    ask_first,
    ask_level,
    ask_spread,
    residual,
)
from noisegate.learners.linear.moments import calmed
from noisegate.learners.linear.scores import (
    PRODUCTS_MAX,
    UNIT,
    ask_lengths,
    cells_of_score,
    lookup,
    noise_of,
    scores,
    shortened,
    square_of,
    useful,
)
from noisegate.learners.noisy_sums import divided
from noisegate.releases.cells.chance import public_coins
from noisegate.transforms.statistics.features import Linear, One, Products
from noisegate.transforms.statistics.statistic import Statistic
from noisegate.transforms.statistics.weighings import Plain, Slopes

_COUNT: Final = Fraction(1, 8)
_LOOKS: Final = (Fraction(1, 12), Fraction(1, 8), Fraction(1, 5), Fraction(1, 4))
_SEE: Final = 26  # rows are so many deviations of a bin's noise where spreads can be seen
_LEVELS: Final = (Fraction(1, 12), Fraction(1, 8), Fraction(1, 4), Fraction(1, 2))
_LEVEL: Final = 0.01  # of the target's variance: what the noise of the level may add
_BETWEEN: Final = Fraction(1, 4)  # of the price of the level, in rounds; the rest is for the last
_GAIN: Final = 0.02  # of the target's variance: what slopes must promise to be asked for
_WIDE: Final = Fraction(9, 20)  # of the price of slopes, for products
_ALONG: Final = Fraction(3, 10)  # or for how far rows lie along them
_CLEAR: Final = 0.35  # noise of products beside a usual variance
_USUAL: Final = 0.2  # the variance of a column: a guess
_THIN: Final = 0.02  # rows are not taken to lie closer along a line
_PARTS: Final = np.array([0, 0.03, 0.1, 0.25, 0.5, 0.8, 0.97])  # explained, of the variance
_DEVIATIONS: Final = np.arange(-2.0, 4.0)  # of the size of noise
_LENGTHS: Final = Fraction(1, 20)
_CLOSER: Final = 2  # looks at most
_NEAR: Final = 0.2  # of the span, in a closer look
_FAR: Final = 6  # deviations of residuals, within which their next bins lie
_OFF: Final = 0.02  # of the variance, in squares: a level is off by as much, at least
_ROUNDS_MAX: Final = 4
_ANYWHERE: Final = 1 / 3  # the mean square of coordinates that lie anywhere
SPAN: Final = 2  # residuals of targets from -1 to 1


@final
@dataclass(slots=True)
class _Seen:
    """What is known: rows, the target's spread, which columns, their means and covariance.

    ``square`` is None where products were hidden; ``blur`` is the noise variance of its numbers.
    """

    rows: float
    target: Spread
    columns: tuple[int, ...]
    norm: int | None = None
    most: float = np.inf  # the length of nearly all rows
    mean: Floats = field(default_factory=lambda: np.zeros(0))
    mean_noise: float = 0.0
    square: Floats | None = None
    blur: float = 0.0


def fit_linear(ask: RowsAsk, *, penalty: float = 0.0, rounds: int | None = None) -> Fitted:
    """A line, the constant last; deviations of its weights; and the mean square of residuals."""
    ask.done(0.0, "counting rows")
    rows, middle, unsure = ask_first(ask, _COUNT)
    flat = np.zeros(ask.columns)
    look = next((share for share in _LOOKS if _sees(ask, rows, share)), None)
    if look is None:
        return _mean_alone(ask, 1 - _COUNT)
    target, left = ask_spread(ask, flat, 1.0, rows, look), 1 - _COUNT - look
    target = target.told(middle, unsure)
    for _ in range(_CLOSER):
        if target.is_thin:  # bounds much wider than the rows: a closer look at the same place
            line, span = np.append(flat[:-1], target.mean), _NEAR * target.span
            target = replace(ask_spread(ask, line, span, rows, look), centre=target.mean)
            left -= look
    level, slopes = _level_first(ask, flat, target, rows, left)
    size, gain = _size(ask, target, rows, slopes * (1 - _WIDE))
    if gain < _GAIN or not slopes:
        line, unseen = _levelled(ask, flat, target, rows, left), np.full(ask.columns - 1, np.inf)
        return _fitted(line, unseen, target.variance, rows)
    coins = public_coins(f"{size} columns of a line for {rows} rows")
    columns = tuple(sorted(coins.choice(ask.columns - 1, size, replace=False).tolist()))
    return _walked(ask, _Seen(rows, target, columns), level, slopes, penalty, rounds)


def _sees(ask: RowsAsk, rows: float, share: Fraction) -> bool:
    """Whether bins of a score stand out of the noise that a share leaves."""
    line = residual(np.zeros(ask.columns))
    question = Statistic(cells_of_score(line, CUTS, ask.reach), (One(),))
    return bool(rows >= _SEE * noise_of(ask, question, [share])[0] ** 0.5)


def _cut_slopes(ask: RowsAsk, line: Floats, cut: float) -> Slopes:
    """Residuals of rows, cut."""
    table = lookup(lambda value: np.clip(value, -cut, cut), ask.reach, span=SPAN)
    return Slopes(scores(residual(line)[None], ask.reach), table, signed=False)


def _noise(ask: RowsAsk, question: Statistic, share: Fraction, rows: float) -> float:
    """The variance of the noise that a share leaves in means of slopes times 1."""
    return noise_of(ask, question, [share])[0] / UNIT**2 / rows**2


def _mean_alone(ask: RowsAsk, share: Fraction) -> Fitted:
    """The mean of the target, as far as noise shows it."""
    found, columns = ask_level(ask, share), ask.columns - 1
    line, unseen = np.append(np.zeros(columns), found.mean), np.full(columns, np.inf)
    return _fitted(line, unseen, found.variance, found.rows)


def _level_first(
    ask: RowsAsk, flat: Floats, target: Spread, rows: float, left: Fraction
) -> tuple[Fraction, Fraction]:
    """The shares of the level, which comes first, and of slopes: none if it needs most."""
    line = np.append(flat[:-1], target.mean)
    question = Statistic(_cut_slopes(ask, line, target.cut), (One(),))
    for part in _LEVELS:
        if _noise(ask, question, left * part, rows) < _LEVEL * target.narrow:
            return left * part, left * (1 - part)
    return left, Fraction(0)


def _size(ask: RowsAsk, target: Spread, rows: float, share: Fraction) -> tuple[int, float]:
    """How many columns to ask about, and the part of the variance that they promise to explain.

    If half of it is explained by all columns alike, each has slopes of variance a. With noise t of
    k of them, k a² / (a + t) of it is found: a few are better where t grows with them.
    """
    columns = ask.columns - 1
    sizes = {max(1, round(columns * 2 ** (-half / 2))) for half in range(2 * columns.bit_length())}
    found = {size: _promise(ask, target, rows, share, size) for size in sorted(sizes)}
    size = max(found, key=lambda each: found[each][0])
    return size, found[size][0]


def _promise(
    ask: RowsAsk, target: Spread, rows: float, share: Fraction, size: int
) -> tuple[float, float]:
    """What so many columns explain of the variance, and by how much slopes pass their noise."""
    if not share:
        return 0.0, 0.0
    line = np.append(np.zeros(ask.columns - 1), target.mean)
    weighing = _cut_slopes(ask, line, target.cut)
    question = Statistic(weighing, (Linear(tuple(range(size))),))
    noise = _noise(ask, question, share, rows) / ask.reach**2
    each = target.narrow * _USUAL / 2 / (ask.columns - 1)
    return size * each**2 / (each + noise) / target.narrow / _USUAL, each / noise


def _walked(
    ask: RowsAsk, seen: _Seen, level: Fraction, slopes: Fraction, penalty: float, rounds: int | None
) -> Fitted:
    """A line after rounds, as many as noise allows."""
    size, rows = len(seen.columns), seen.rows
    if rounds is None:
        fits = [n for n in range(2, _ROUNDS_MAX + 1)
                if _promise(ask, seen.target, rows, slopes / 2 / n, size)[1] > 1]  # fmt: skip
        rounds = max(fits, default=1)
    if rounds > 1:
        lengths = ask_lengths(ask, ask.columns - 1, rows, slopes * _LENGTHS)
        if lengths is not None:
            slopes *= 1 - _LENGTHS
            most = lengths.covering(0.95)
            seen.norm, seen.most = useful(ask, most, ask.columns - 1), most / ask.reach
    wide = slopes * _WIDE
    if _clear(ask, seen, wide):
        ask.done(0.2, "measuring products")
        _measure_products(ask, seen, wide)
        slopes -= wide
    walk = _Walk(ask, seen, penalty)
    for place in range(rounds):
        ask.keep(walk.fitted())
        ask.done(0.3 + 0.7 * place / rounds, f"round {place + 1} of {rounds}")
        walk.step(level * _BETWEEN / rounds, slopes / rounds)
    walk.levelled(level * (1 - _BETWEEN))
    return walk.fitted()


def _products(ask: RowsAsk, seen: _Seen) -> Statistic:
    features = (Linear(seen.columns), Products(columns=seen.columns))
    return shortened(Plain(), features, seen.norm, ask.columns - 1)


def _clear(ask: RowsAsk, seen: _Seen, share: Fraction) -> bool:
    """Whether products would stand out of their noise."""
    size = len(seen.columns)
    if size > PRODUCTS_MAX:
        return False
    _, noise = noise_of(ask, _products(ask, seen), divided(share, 1, 3))
    return float((noise * size) ** 0.5) / ask.reach**2 / seen.rows < _CLEAR * _USUAL


def _measure_products(ask: RowsAsk, seen: _Seen, share: Fraction) -> None:
    """Means and the covariance of the columns."""
    sums, products = ask.totals(_products(ask, seen), divided(share, 1, 3))
    mean, noise = (
        sums.values[0] / ask.reach / seen.rows,
        sums.variance / (ask.reach * seen.rows) ** 2,
    )
    seen.mean_noise = noise
    seen.mean = np.clip(mean / (1 + noise / _ANYWHERE), -1, 1)
    seen.blur = products.variance / ask.reach**4 / seen.rows**2
    whole = square_of(products.values[0], len(seen.columns)) / ask.reach**2 / seen.rows
    seen.square = calmed(whole - np.outer(seen.mean, seen.mean), seen.blur)


@final
class _Walk:
    """Steps from the level line to a better one.

    Slopes at a line, plus the covariance times its weights, are what slopes of the level line would
    be: all rounds see those, with noise of their own, and the later the less by the covariance's.
    """

    def __init__(self, ask: RowsAsk, seen: _Seen, penalty: float) -> None:
        self._ask, self._seen, self._penalty = ask, seen, penalty / seen.rows
        self._left = seen.target
        self._weights = np.zeros(len(seen.columns))
        self._noise = np.full(len(seen.columns), np.inf)
        self._level, self._unsure = seen.target.mean, seen.target.unsure
        self._lift, self._rounds = 0.0, 0
        self._looks: list[tuple[Floats, float, Floats]] = []

    @property
    def line(self) -> Floats:
        """The line so far."""
        found = np.zeros(self._ask.columns)
        found[list(self._seen.columns)] = self._weights
        found[-1] = self._level - self._lift
        return found

    def levelled(self, share: Fraction) -> None:
        """The constant is corrected, by what the mean residual says beside its noise."""
        weighing = _cut_slopes(self._ask, self.line, self._left.cut)
        (sums,) = self._ask.totals(Statistic(weighing, (One(),)), [share])
        self._correct(sums)

    def _correct(self, sums: NoisySums) -> tuple[float, float]:
        """The mean residual and the variance of its noise; the level follows it."""
        scale = UNIT * self._seen.rows
        off, noise = float(sums.values[0, 0]) / scale, sums.variance / scale**2
        unsure = self._unsure + _OFF * self._left.narrow
        self._level += off * unsure / (unsure + noise)
        self._unsure = unsure * noise / (unsure + noise)
        return off, noise

    def step(self, level: Fraction, share: Fraction) -> None:
        """One round."""
        ask, seen, line = self._ask, self._seen, self.line
        if self._rounds:
            look, share = divided(share, 1, 7)
            wide = min(float(SPAN), _FAR * self._left.variance**0.5)
            self._left = ask_spread(ask, line, wide, seen.rows, look)
        rest = share if seen.square is not None else share * (1 - _ALONG)
        weighing = _cut_slopes(ask, line, self._left.cut)
        question = shortened(weighing, (One(), Linear(seen.columns)), seen.norm, ask.columns - 1)
        ones, sums = ask.totals(question, [level, rest])
        scale = UNIT * ask.reach * seen.rows
        found, blur = sums.values[0] / scale, sums.variance / scale**2
        off, noise = self._correct(ones)
        if seen.square is None:
            self._along(found, blur, share - rest, (off, noise))
        else:
            self._solved(found - seen.mean * off, blur + float(np.mean(seen.mean**2)) * noise)
        self._rounds += 1

    def _along(
        self, slopes: Floats, blur: float, share: Fraction, off: tuple[float, float]
    ) -> None:
        """A step down the slopes, as long as rows' spread along them says."""
        size = len(slopes)
        way = slopes / max(float(np.linalg.norm(slopes)), 1e-300)
        first, second = divided(share, 1, 2)
        mean, unsure = self._power(way, 1, first)
        mean /= 1 + unsure / _ANYWHERE
        square, blurred = self._power(way, 2, second)
        wide = np.full(size, max(square - mean**2, _THIN) + blurred**0.5)  # rather too wide
        slopes = slopes - way * mean * off[0]
        blur += mean**2 / size * off[1]
        blurs, before = np.full(size, blur), self._noise if self._rounds else np.zeros(size)
        tails = not self._ask.gaussian
        step, kept = weighed(slopes, blurs, wide, self._left, self._seen.rows, tails, off=before)
        shrunk = wide / (wide + self._penalty)
        self._weights = (self._weights + step) * shrunk
        self._lift += float(step * shrunk @ way) * mean
        self._unsure += float(np.sum((step * shrunk) ** 2)) * unsure
        self._noise = shrunk**2 * (before * (1 - kept * wide) ** 2 + kept**2 * blur)

    def _power(self, way: Floats, power: int, share: Fraction) -> tuple[float, float]:
        """The mean of a power of the score along a direction, and the variance of its noise."""
        ask, seen = self._ask, self._seen
        line, most = np.zeros(ask.columns + 1), min(len(way) ** 0.5, seen.most)
        line[list(seen.columns)] = way
        table = lookup(lambda value: np.clip(value, -most, most) ** power, ask.reach, span=16)
        weighing = Slopes(scores(line[None], ask.reach), table, signed=False)
        (sums,) = ask.totals(shortened(weighing, (One(),), seen.norm, ask.columns - 1), [share])
        scale = UNIT * seen.rows
        return float(sums.values[0, 0]) / scale, sums.variance / scale**2

    def _solved(self, slopes: Floats, blur: float) -> None:
        """The weights that all rounds so far lead to."""
        seen = self._seen
        assert seen.square is not None  # noqa: S101 - measured
        sizes, axes = np.linalg.eigh(seen.square)
        before = self._weights
        self._looks.append((slopes + seen.square @ before, blur, before))
        for _ in range(2):  # the second time it is known how far each line was off
            noise = np.array([
                own + seen.blur * float(np.sum((self._weights - at) ** 2))
                for _, own, at in self._looks
            ])  # fmt: skip
            parts = 1 / noise / np.sum(1 / noise)
            mean = parts @ np.array([found for found, _, _ in self._looks])
            left = np.full(len(sizes), float(1 / np.sum(1 / noise)))
            tails = not self._ask.gaussian
            found, kept = weighed(axes.T @ mean, left, sizes, seen.target, seen.rows, tails)
            shrunk = sizes / (sizes + self._penalty)
            self._weights = axes @ (found * shrunk)
        self._noise = axes**2 @ ((kept * shrunk) ** 2 * left)
        self._lift = float(self._weights @ seen.mean)
        self._unsure += float(np.sum((self._weights - before) ** 2)) * seen.mean_noise

    def fitted(self) -> Fitted:
        """The line as it is kept."""
        seen, ask = self._seen, self._ask
        left = self._left.variance + self._left.mean**2
        inverse = np.full(len(self._weights), 1 / _USUAL)
        if seen.square is not None:
            inverse = np.diag(np.linalg.inv(seen.square))
            explained = float(self._weights @ seen.square @ self._weights)
            if self._rounds == 1:
                left = max(self._left.variance - explained, left / 30)
        noise, chance = np.full(ask.columns - 1, np.inf), np.zeros(ask.columns - 1)
        at = list(seen.columns)
        noise[at], chance[at] = self._noise, left / seen.rows * inverse
        return _fitted(self.line, noise, left, seen.rows, chance)


def weighed(  # noqa: PLR0913 - each is a fact
    slopes: Floats,
    noise: Floats,
    sizes: Floats,
    target: Spread,
    rows: float,
    tails: bool,  # noqa: FBT001 - of the noise
    *,
    off: Floats | float = 0.0,
) -> tuple[Floats, Floats]:
    """Weights along axes of these sizes, by noisy slopes; and what 1 of each slope adds to them.

    If r of the variance v is explained, alike by weights of all axes, these have variance
    g = r v / Σ sizes, and slopes along an axis of size s have variance g s² beside their noise and
    that of chance, (1 - r) v s / rows. The mean over all r and v is by how likely the slopes are,
    and by 1 / v: errors count in parts of the variance. Noise with ``tails``, which is far out
    together or near together, may also have any size about its own. Weights so far may be ``off``
    by this variance, since they are of noise.
    """
    spans = SPANS * target.span**2
    far = np.log1p(4 / (len(slopes) + 3)) ** 0.5 if tails else 0.0
    part, span, out = (
        each[..., None] for each in np.meshgrid(_PARTS, spans, _DEVIATIONS, indexing="ij")
    )
    prior = np.full(len(_PARTS), 0.5 / (len(_PARTS) - 1))
    prior[0] = 0.5
    each = part * span / sizes.sum() + off
    blur = noise * np.exp(far * out - far**2 / 2)
    variance = each * sizes**2 + blur + (1 - part) * span * sizes / rows
    likely = -np.sum(np.log(variance) + slopes**2 / variance, axis=3) / 2
    held = np.exp(likely - likely.max()) * prior[:, None, None] * np.exp(-(_DEVIATIONS**2) / 2)
    held *= (target.weights.sum(axis=1) / spans)[:, None]
    kept = np.sum(held[..., None] * each * sizes / variance, axis=(0, 1, 2)) / held.sum()
    return kept * slopes, kept


def _levelled(ask: RowsAsk, flat: Floats, target: Spread, rows: float, share: Fraction) -> Floats:
    """The level line, for all that is left."""
    line = np.append(flat[:-1], target.mean)
    (sums,) = ask.totals(Statistic(_cut_slopes(ask, line, target.cut), (One(),)), [share])
    noise, unsure = sums.variance / (UNIT * rows) ** 2, target.unsure + _OFF * target.narrow
    line[-1] += float(sums.values[0, 0]) / UNIT / rows * unsure / (unsure + noise)
    return line


def _fitted(
    line: Floats, noise: Floats, square: float, rows: float, chance: Floats | float = 0.0
) -> Fitted:
    return {
        "line": line,
        "noise": np.sqrt(noise),
        "deviations": np.sqrt(noise + chance),
        "residual": np.array(square**0.5),
        "rows": np.array(rows),
    }
