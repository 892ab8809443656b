"""Classes by their moments, and lines between them: how linear classifiers start and go on.

One round of noisy counts, sums and products says how many rows each class has, where its mean is
and how rows lie around it. That alone gives the line between classes of a discriminant analysis
[Fis36]. Where noise leaves more to gain, rounds of noisy slopes of the loss at the current line
follow, each a Newton step whose curvature is that of made-up rows with the same moments: free.

Noise of a known size is never mistaken for a fact: means are drawn to their common mean, the
covariance to a sphere, and what noise would make of a direction bounds what is divided by. Where
it hides most columns, a random few are asked about: all others have no weight.
"""

from collections.abc import Callable
from fractions import Fraction
from typing import Final, final

import numpy as np
from scipy.special import expit, softmax

from noisegate.frozen import dataclass
from noisegate.learners.asking import Floats, NoisySums, RowsAsk
from noisegate.learners.fitting import Fitted
from noisegate.learners.linear.scores import (
    PRODUCTS_MAX,
    UNIT,
    Lengths,
    ask_lengths,
    lookup,
    noise_of,
    pulls,
    scores,
    shortened,
    softmax_slopes,
    square_in,
    square_of,
    useful,
)
from noisegate.learners.noisy_sums import divided, shrunk
from noisegate.learners.trees.normal_classes import (
    CAUTION,
    USUAL,
    chosen_columns,
    drawn_means,
    even_counts,
)
from noisegate.releases.cells.chance import public_coins
from noisegate.transforms.statistics.features import Linear, One, Products
from noisegate.transforms.statistics.statistic import Statistic
from noisegate.transforms.statistics.weighings import ByKey, Plain, Slopes, Soft

COUNT: Final = Fraction(1, 12)
_LOOK: Final = Fraction(1, 20)
_UNSEEN: Final = 0.2  # of all rows: noise of a class's number that hides which is the largest
_AGAIN: Final = (1, 2)  # where noise hides most columns: for counts of classes, and for sums
_POINTS: Final = 3000
_STEPS_MAX: Final = 5
_CLEAR: Final = 0.1  # noise of a score that a round may leave
_MOST: Final = 0.9  # rows that are not shortened, where noise is what matters
_WIDE: Final = Fraction(5, 9)  # of what moments may cost, for products
_APART: Final = 0.2  # the part of squares that lies between classes: a guess
_THIN: Final = 1e-4  # no cloud of rows is narrower, in squares
_STIFF: Final = 0.1
_SHORT: Final = 0.1  # weights are not taken for shorter


@final
@dataclass(frozen=True, slots=True)
class Loss:
    """A loss of the margin (the score, times -1 for the other class) by its first two slopes.

    ``pull`` is minus the slope, from 0 to 1; ``bend`` the second one, at most ``stiff``.
    """

    pull: Callable[[Floats], Floats]
    bend: Callable[[Floats], Floats]
    stiff: float
    joint: bool = False  # of several classes: a softmax, instead of each against the rest

    def slopes(self, weights: Floats, reach: int) -> Slopes | Soft:
        """How the door is asked for minus the slopes, or for those of a softmax."""
        if self.joint and len(weights) > 1:
            return softmax_slopes(weights, reach)
        return Slopes(scores(weights, reach), lookup(self.pull, reach))


LOGISTIC: Final = Loss(
    lambda margin: expit(-margin), lambda margin: expit(margin) * expit(-margin), 0.25, joint=True
)


@final
@dataclass(frozen=True, slots=True)
class Moments:
    """What is known about the rows of each class; coordinates from -1 to 1.

    ``sums_noise`` is the variance of the noise of each sum of coordinates, ``within_noise`` that of
    each number of the covariance, or None if no covariance was measured.
    """

    counts: Floats
    means: Floats
    within: Floats
    norm: int | None
    sums_noise: float
    within_noise: float | None

    @property
    def rows(self) -> float:
        """How many rows there are."""
        return float(self.counts.sum())

    def second(self) -> Floats:
        """The sums of products of all coordinates and the constant 1, last."""
        ends = np.column_stack([self.means, np.ones(len(self.means))])
        found: Floats = (ends * self.counts[:, None]).T @ ends
        found[:-1, :-1] += self.rows * self.within
        return found

    def lines(self) -> Floats:
        """Scores of the discriminant analysis, the constant last: one line for two classes."""
        weights = np.linalg.solve(self.within, self.means.T).T
        middles = np.log(self.counts / self.rows) - 0.5 * np.sum(weights * self.means, axis=1)
        found: Floats = np.column_stack([weights, middles])
        found = found - (found[0] if len(found) == 2 else found.mean(axis=0))
        return found[1:] if len(found) == 2 else found

    def against_rest(self) -> Floats:
        """The same, of each class against all others."""
        found = []
        for place, (count, mean) in enumerate(zip(self.counts, self.means, strict=True)):
            others = np.delete(self.counts, place)
            ends = np.delete(self.means, place, axis=0)
            rest = others @ ends / others.sum()
            spread = (ends - rest).T @ ((ends - rest) * others[:, None]) / self.rows
            pair = Moments(
                np.array([others.sum(), count]),
                np.stack([rest, mean]),
                self.within + spread,
                self.norm,
                self.sums_noise,
                self.within_noise,
            )
            found.append(pair.lines()[0])
        return np.array(found)[1:] if len(found) == 2 else np.array(found)

    def deviations(self, lines: Floats) -> Floats:
        """The standard deviations of the weights of `lines`, by the noise alone, about."""
        inverse = np.linalg.inv(self.within)
        sums = self.sums_noise * (1 / self.counts**2)
        each = np.array([sums.sum()]) if len(lines) == 1 else sums
        if self.within_noise is not None:
            each = each + self.within_noise * np.sum(lines[:, :-1] ** 2, axis=1)
        found: Floats = np.sqrt(each[:, None] * np.diag(inverse @ inverse)[None, :])
        found[:, np.all(self.means == 0, axis=0)] = np.inf  # not asked about
        return found

    def points(self) -> tuple[Floats, Floats]:
        """Made-up rows with the constant 1, and how many rows each stands for, by class."""
        coins = public_coins("rows with given moments")
        half = coins.normal(size=(_POINTS // 2, len(self.within)))
        sizes, axes = np.linalg.eigh(self.within)
        away = np.vstack([half, -half]) @ (axes * np.sqrt(np.maximum(sizes, 0))).T
        kinds = np.arange(_POINTS) % (_POINTS // 2) % len(self.counts)
        shares = np.zeros((_POINTS, len(self.counts)))
        held = np.bincount(kinds, minlength=len(self.counts))
        shares[np.arange(_POINTS), kinds] = (self.counts / held)[kinds]
        return np.column_stack([self.means[kinds] + away, np.ones(_POINTS)]), shares


@final
@dataclass(frozen=True, slots=True)
class Plan:
    """What a price is spent on, by what is known before the main questions."""

    norm: int | None
    products: bool
    moments: Fraction
    rounds: tuple[Fraction, ...]


def count(ask: RowsAsk) -> NoisySums:
    """The rows of each class, for a share that is COUNT."""
    ask.done(0.0, "counting rows")
    (counted,) = ask.totals(Statistic(ByKey(), (One(),)), [COUNT])
    return counted


def measure(
    ask: RowsAsk, loss: Loss, *, rounds: int | None = None, known: NoisySums | None = None
) -> tuple[Moments, Plan]:
    """Moments of the classes, and the rounds that should follow: as many as noise allows.

    What `count` says is asked for unless it is ``known``.
    """
    counted = count(ask) if known is None else known
    few = None if rounds else _of_few(ask, counted)
    if few is not None:
        return few, Plan(None, products=False, moments=1 - COUNT, rounds=())
    least = (ask.classes * counted.variance) ** 0.5
    rows = max(float(counted.values.sum()), least, ask.classes)
    equal = np.full((1, ask.classes), rows / ask.classes)
    counts = shrunk(counted.values.T, equal, ask.classes * counted.variance)[0]
    counts = np.maximum(counts, rows / ask.classes / 5)
    lengths = ask_lengths(ask, ask.columns, rows, _LOOK)
    plan = _planned(ask, loss, lengths, rows, rounds)
    ask.done(0.1, "measuring moments")
    return _moments(ask, plan, counts * rows / counts.sum(), square_in(lengths)), plan


def _of_few(ask: RowsAsk, counted: NoisySums) -> Moments | None:
    """The moments of a random few columns, where noise hides most; classes are alike in others.

    Which class is the largest tells most then: a part of the price counts them again.
    """
    counts, told = even_counts(counted, caution=CAUTION), float(counted.values.sum())
    columns = chosen_columns(ask, 1 - COUNT, float(counts.sum()), told)
    hidden = counted.variance**0.5 > _UNSEEN * max(told, 0.0)
    if len(columns) == ask.columns and not hidden:
        return None
    ask.done(0.1, "measuring moments")
    again, most = divided(1 - COUNT, *_AGAIN)
    question = Statistic(ByKey(), (One(), Linear(columns)))
    more, sums = ask.totals(question, [again, most])
    counted = together(counted, more)
    counts = even_counts(counted, caution=CAUTION)
    found, left = drawn_means(sums, counts, counted.variance, ask.reach)
    means = np.zeros((ask.classes, ask.columns))
    means[:, columns] = found
    within = np.eye(ask.columns) * (USUAL + float(left.mean()))
    return Moments(counts, means, within, None, sums.variance / ask.reach**2, None)


def together(first: NoisySums, second: NoisySums) -> NoisySums:
    """The best estimate from two of the same numbers."""
    whole = first.variance + second.variance
    values = (first.values * second.variance + second.values * first.variance) / whole
    return NoisySums(values, first.variance * second.variance / whole)


def _planned(
    ask: RowsAsk, loss: Loss, lengths: Lengths | None, rows: float, rounds: int | None
) -> Plan:
    left = 1 - COUNT - (0 if lengths is None else _LOOK)
    columns, square = ask.columns, square_in(lengths)
    norm = None if lengths is None else useful(ask, lengths.covering_all(), columns)
    lines = 1 if ask.classes == 2 else ask.classes
    slopes = loss.slopes(np.zeros((lines, columns + 1)), ask.reach)

    def blur(count: int) -> float:
        """The noise of a score after one of so many steps, if rows lie alike in all directions."""
        question = shortened(slopes, (One(), Linear()), norm, columns)
        _, noise = noise_of(ask, question, divided(left / 2 / count, 1, 7))
        return float((noise * columns / square) ** 0.5) / (loss.stiff * UNIT * ask.reach * rows)

    def clear(norm: int | None, share: Fraction) -> bool:
        """Whether a covariance would stand out of its noise."""
        if columns > PRODUCTS_MAX:
            return False
        question = shortened(Plain(), (Products(),), norm, columns)
        (noise,) = noise_of(ask, question, [share * _WIDE])
        return float((noise * columns) ** 0.5) / ask.reach**2 / rows < 0.8 * square

    if rounds is None:
        wanted = [count for count in range(1, _STEPS_MAX + 1) if blur(count) < _CLEAR]
        rounds = max(wanted, default=0) if clear(norm, left / 2) else 0
    if not rounds and lengths is not None:
        norm = useful(ask, lengths.covering(_MOST), columns)
    shares = tuple(divided(left / 2, *[1] * rounds)) if rounds else ()
    return Plan(norm, clear(norm, left - sum(shares)), left - sum(shares), shares)


def _moments(ask: RowsAsk, plan: Plan, counts: Floats, square: float) -> Moments:
    columns, rows = ask.columns, counts.sum()
    wide = plan.moments * _WIDE if plan.products else Fraction(0)
    question = shortened(ByKey(), (Linear(),), plan.norm, columns)
    (sums,) = ask.totals(question, [plan.moments - wide])
    noise = sums.variance / ask.reach**2
    centre = sums.values.sum(axis=0) / ask.reach / rows
    away = sums.values / ask.reach / counts[:, None] - centre
    seen = float(np.sum(counts[:, None] * away**2)) / rows / columns
    blurred = noise * float(np.sum(1 / counts)) / rows
    usual = _APART * square
    means = centre + max(1 - blurred / max(seen, 1e-300), usual / (usual + blurred)) * away
    if not plan.products:
        apart = float(np.sum(counts[:, None] * means**2)) / rows / columns
        within = np.eye(columns) * max(square - apart, square / 4)
        return Moments(counts, means, within, plan.norm, noise, None)
    question = shortened(Plain(), (Products(),), plan.norm, columns)
    (products,) = ask.totals(question, [wide])
    blur = products.variance / ask.reach**4 / rows**2
    second = square_of(products.values[0], columns) / ask.reach**2 / rows
    within = calmed(second - (means * counts[:, None]).T @ means / rows, blur)
    return Moments(counts, means, within, plan.norm, noise, blur)


def calmed(matrix: Floats, noise: float) -> Floats:
    """A covariance from a noisy one: drawn to a sphere as far as noise explains, and positive.

    As [LW04], with the known variance of the noise; then no direction is narrower than noise is.
    """
    columns = len(matrix)
    size = max(float(np.trace(matrix)) / columns, _THIN)
    rest = matrix - size * np.eye(columns)
    kept = max(0.0, 1 - noise * columns**2 / max(float(np.sum(rest**2)), 1e-300))
    sizes, axes = np.linalg.eigh(size * np.eye(columns) + kept * rest)
    found: Floats = (axes * np.maximum(sizes, max((noise * columns) ** 0.5, _THIN))) @ axes.T
    return found


def curvatures(loss: Loss, lines: Floats, points: Floats, shares: Floats) -> list[Floats]:
    """The second slopes of the loss over made-up rows, for each line.

    Of a softmax, twice the part of each line: diag(p) - p pᵀ is at most 2 diag(p (1 - p)).
    """
    found = points @ lines.T
    if loss.joint and len(lines) > 1:
        parts = softmax(found, axis=1)
        bends = 2 * parts * (1 - parts)
    else:
        bends = loss.bend(np.where(shares[:, -len(lines) :] > 0, 1.0, -1.0) * found)
    weights = shares.sum(axis=1)
    return [(points * (weights * bend)[:, None]).T @ points for bend in bends.T]


def refined(
    ask: RowsAsk,
    loss: Loss,
    lines: Floats,
    moments: Moments,
    rounds: tuple[Fraction, ...],
    *,
    penalty: float,
) -> Fitted:
    """Lines after Newton steps on noisy slopes, and the deviations of their weights by noise.

    ``penalty`` is that of half the squared weights, constants apart. A step's curvature has a part
    of the largest that the loss can have, and a ridge that grows with noise, so that no direction
    that noise fills is trusted. The mean of the later half is taken: each of them is right but for
    its own noise.
    """
    columns, deviations = ask.columns, moments.deviations(lines)
    points, shares = moments.points()
    stiffest = loss.stiff * moments.second()
    free = np.append(np.ones(columns), 0.0)
    found, walked = _fitted(lines, deviations, moments.rows), []
    for place, share in enumerate(rounds):
        ask.keep(found)
        ask.done(0.2 + 0.8 * place / len(rounds), f"round {place + 1} of {len(rounds)}")
        slopes, noise = _slopes(ask, loss, lines, moments.norm, share)
        length = max(float(np.linalg.norm(lines[:, :-1])), _SHORT)
        ridge = penalty + float((noise[0] * columns * len(lines)) ** 0.5) / length
        steps, deviations = np.empty_like(lines), np.empty((len(lines), columns))
        for row, bend in enumerate(curvatures(loss, lines, points, shares)):
            whole = (1 - _STIFF) * bend + _STIFF * stiffest + ridge * np.diag(free)
            inverse = np.linalg.inv(whole)
            steps[row] = inverse @ (slopes[row] + penalty * free * lines[row])
            deviations[row] = np.sqrt((inverse**2 @ noise)[:-1])
        lines = _centred(loss, lines - steps)
        walked.append((lines, deviations**2))
        means, squares = (np.mean(each, axis=0) for each in zip(*walked[place // 2 :], strict=True))
        found = _fitted(means, np.sqrt(squares / (place + 1 - place // 2)), moments.rows)
    return found


def descended(ask: RowsAsk, *, loss: Loss, rounds: int, penalty: float = 1.0) -> Fitted:
    """Lines after steps down noisy slopes from 0, all alike, as in the framework of [BDMN05].

    A step is one over the largest curvature that rows within ±1 can have.
    """
    (counted,) = ask.totals(Statistic(Plain(), (One(),)), [_LOOK])
    rows = max(float(counted.values[0, 0]), counted.variance**0.5, 1.0)
    columns, several = ask.columns, ask.classes > 2
    lines = np.zeros((ask.classes if several else 1, columns + 1))
    free = np.append(np.ones(columns), 0.0)
    rate = 1 / (loss.stiff * (2 if several else 1) * rows * (columns + 1) + penalty)
    deviations = np.zeros((len(lines), columns))
    for place, share in enumerate(divided(1 - _LOOK, *[1] * rounds)):
        ask.keep(_fitted(lines, deviations, rows))
        ask.done(place / rounds, f"round {place + 1} of {rounds}")
        slopes, noise = _slopes(ask, loss, lines, None, share)
        lines = _centred(loss, lines - rate * (slopes + penalty * free * lines))
        deviations = np.sqrt(deviations**2 + rate**2 * noise[0])
    return _fitted(lines, deviations, rows)


def _slopes(
    ask: RowsAsk, loss: Loss, lines: Floats, norm: int | None, share: Fraction
) -> tuple[Floats, Floats]:
    """The slopes of the loss, and the variances of their noise."""
    weighing = loss.slopes(lines, ask.reach)
    found, noise = pulls(ask, weighing, norm, ask.columns, divided(share, 1, 7))
    return (found if isinstance(weighing, Soft) else -found), noise


def _centred(loss: Loss, lines: Floats) -> Floats:
    """A softmax does not change with the mean of its lines."""
    return lines - lines.mean(axis=0) if loss.joint and len(lines) > 1 else lines


def _fitted(lines: Floats, deviations: Floats, rows: float) -> Fitted:
    return {"lines": lines, "deviations": deviations, "rows": np.array(rows)}
