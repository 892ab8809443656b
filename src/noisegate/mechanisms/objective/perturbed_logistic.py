"""Objective perturbation: the minimiser of a logistic loss with a random slope.

The loss of all rows, with a penalty and a random linear term b, is minimised; the minimiser is what
is released [CMS11], [KST12]. No noise is spent on the curvature of the loss. Solvers only come near
a minimiser; how near is proven, and a little noise on a grid hides it [INSTTW19].

>>> from noisegate.accounting.pure import pure_loss
>>> shape = {"columns": 20, "classes": 2, "reach": 4096, "whole": 1}
>>> noise = PerturbedLogistic.for_epsilon("0.1", rows=1, penalty=Fraction(1), **shape)
>>> str(pure_loss(noise.event(L1(1)))), float(noise.penalty), noise.digits
('ε = 0.1', 420.0, 22)
"""

import sys
from collections.abc import Callable, Iterator
from fractions import Fraction
from itertools import combinations_with_replacement
from math import fsum, isqrt
from typing import ClassVar, Final, TypeAlias, final

import numpy as np
from flint import arb, arb_mat
from numpy.typing import NDArray

from noisegate.algebra.tally import Rows
from noisegate.errors import Bug, SpecError, Unsupported
from noisegate.exact import Number, Real, positive, real, upper
from noisegate.frozen import dataclass
from noisegate.mechanisms import base
from noisegate.mechanisms.additive.geometric import Geometric
from noisegate.noise.bits import SYSTEM, Bits
from noisegate.noise.box import cube_noise
from noisegate.noise.chunks import Int64Array
from noisegate.privacy.distance import L1
from noisegate.privacy.event import DeclaredEvent
from noisegate.transforms.query import Query, shape_of

Floats: TypeAlias = NDArray[np.float64]
NUMBERS_MAX: Final = 1 << 11  # weights; the curvature has as many squared
_CURVED: Final = Fraction(1, 8)  # of ε, for the curvature of the loss
_HIDDEN: Final = Fraction(1, 25)  # of ε, for how near the minimiser is
_FINER: Final = 8  # digits of the grid beyond its noise
_SCALES: Final = Fraction(1, 1000), Fraction(1 << 40)
_AT_ONCE: Final = 512  # rows that doubles add up
_QUICK: Final = 100  # steps in doubles
_SHORTEST: Final = 2.0**-60
_ULP: Final = 2.0**-53


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class PerturbedLogistic(base.Mechanism[L1]):
    """Weights of each line, the constant last, in steps of 2**-digits; two classes have one line.

    Rows are ``columns`` coordinates in ±reach, a class and a weight in parts of ``whole``. The
    penalty is that of half the squared weights; ``scale`` that of the slope, ``blur`` of the grid.
    """

    name: ClassVar[str] = "perturbed-logistic/1"
    takes: ClassVar[base.Takes] = base.Takes.L1
    columns: int
    classes: int
    reach: int
    whole: int
    penalty: Fraction
    scale: Fraction
    digits: int
    blur: Fraction

    def __post_init__(self) -> None:
        for field, least, most in (
            ("columns", 1, NUMBERS_MAX), ("classes", 2, NUMBERS_MAX), ("reach", 1, 1 << 20),
            ("whole", 1, 1 << 10), ("digits", 1, 50),
        ):  # fmt: skip
            base.require_whole(self, field, least=least, most=most)
        for field in ("penalty", "scale", "blur"):
            base.store_positive(self, field, least=_SCALES[0], most=_SCALES[1])
        if self.numbers > NUMBERS_MAX:
            raise SpecError(
                f"There would be {self.numbers:,} weights.",
                fix=f"Use fewer columns or classes: up to {NUMBERS_MAX:,} weights.",
            )
        most = _digits_max(self.numbers, self.columns, self.penalty / self.scale)
        if self.digits > most:
            raise SpecError("The grid is too fine for its noise.", fix=f"Use {most} digits.")

    @classmethod
    def for_epsilon(  # noqa: PLR0913 - what is public about the rows
        cls,
        epsilon: Number,
        *,
        columns: int,
        classes: int,
        reach: int,
        whole: int,
        rows: int,
        penalty: Fraction,
    ) -> "PerturbedLogistic":
        """For exactly this ε, where one unit weighs ``rows`` rows; the penalty is at least this.

        For less, where the noise would be too narrow to be drawn: `event` falls with its scales.
        """
        exact = positive(epsilon, name="epsilon")
        lines, width = _lines(classes), columns + 1
        bend = rows * _bend(classes) * width
        kept = max(penalty, bend / (_CURVED * exact), _SCALES[0])
        blur = max(2 * lines * width / (_HIDDEN * exact), _SCALES[0])
        pull = rows * _pull(classes)
        scale = max(pull / (exact * (1 - _HIDDEN) - bend / kept), _SCALES[0])
        most = _digits_max(lines * width, columns, kept / scale)
        return cls(
            columns=columns, classes=classes, reach=reach, whole=whole, penalty=kept, scale=scale,
            digits=min(int(blur).bit_length() + _FINER, most), blur=blur,
        )  # fmt: skip

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """The rows that it is for: columns, classes, reach, and what a whole row weighs."""
        return self.columns, self.classes, self.reach, self.whole

    @property
    def numbers(self) -> int:
        """How many weights there are."""
        return _lines(self.classes) * (self.columns + 1)

    def require(self, query: Query, place: int) -> None:  # noqa: ARG002 - there is one
        """Rows as they are, of the shape that it is for."""
        if not isinstance(query.tally, Rows) or query.asks != "rows":
            raise base.no_rule(query)
        found = shape_of(query.tally)
        if self.shape != (found.columns, found.keys, found.reach, query.tally.whole):
            raise Unsupported(
                "The minimiser was made for rows of another shape.", fix="Use their shape."
            )

    def event(self, sensitivity: L1, /) -> DeclaredEvent:
        """What one use is, where ``sensitivity`` is how many rows the rows of one unit weigh.

        Claim: (r · (pull / scale + bend · width / penalty) + 2 · numbers / blur)-differentially
            private for r rows, width being columns + 1. Adjacency: that of ``sensitivity``.
        Why: [CMS11, Thm 9], for noise by a norm and for units that come or go. With b the density
            of the slope, that of the minimiser w is b(-∇L(w) - λw) · det(∇²L(w) + λ), as w and b
            determine each other. A unit adds g to the loss L. Its slope ∇g is at most r · pull in
            the norm of b, the sum over lines of the largest number: a row's is (p - y) ⊗ u with
            |u| ≤ 1, and |p - y| adds up to at most 2, for one line to 1. So b changes by a factor
            e^(r pull / scale) at most. The determinant grows, by a factor of at most
            e^(tr ∇²g / λ), and tr ∇²g is at most r bend width: p (1 - p) ≤ 1/4 for one line,
            1 - Σp² ≤ 1 - 1/classes else, times |u|² ≤ width.
            What is released is a whole number within 1 of 2**digits w in each place, see `sample`,
            plus geometric noise. Given w, tables that are neighbours differ by 2 in each place at
            most [INSTTW19]; both steps compose.
        Rounding: none.
        """
        rows = sensitivity.value
        bend = _bend(self.classes) * (self.columns + 1) / self.penalty
        return DeclaredEvent(
            epsilon=rows * (_pull(self.classes) / self.scale + bend) + 2 * self.numbers / self.blur
        )

    def sample(self, exact: Int64Array, *, bits: Bits = SYSTEM) -> Int64Array:
        """The weights of the rows, each ``columns`` + 2 numbers: coordinates, class and weight.

        Claim: before the noise, each is within 1 of 2**digits times the minimiser's, whatever the
            rows are. Why: the loss bends at least by λ everywhere, so a point whose slope has
            length s is within s / λ of the minimiser; s is proven to be at most
            λ / 2**(digits + 1), in doubles with all their errors, or in ball arithmetic where that
            does not suffice. Newton's steps, halved until the slope is shorter, end there: the
            curvature is bounded, from 0 too. Rounding: to the nearest whole number, by 1/2.
        """
        rows = base.clamped(exact).reshape(-1, self.columns + 2)
        most = [*[self.reach] * self.columns, self.classes, self.whole]
        least = [*[-self.reach] * self.columns, -1, 0]
        shape = _lines(self.classes), self.columns + 1
        slope, off = cube_noise(self.scale, *shape, bits=bits)
        near = _minimum(self, np.clip(rows, least, most), slope, off)
        steps = [
            max(-base.INPUT_MAX, min(round(each * 2**self.digits), base.INPUT_MAX)) for each in near
        ]
        return Geometric(scale=self.blur).sample(np.array(steps, np.int64), bits=bits)


def _lines(classes: int) -> int:
    return 1 if classes == 2 else classes


def _pull(classes: int) -> int:
    """How long the slope of one row is at most, over lines."""
    return 1 if classes == 2 else 2


def _bend(classes: int) -> Fraction:
    """How much the loss of one row bends at most, over lines, where its numbers have length 1."""
    return Fraction(1, 4) if classes == 2 else 1 - Fraction(1, classes)


def _digits_max(numbers: int, columns: int, stiffness: Fraction) -> int:
    """So fine a grid that what is not drawn of the slope takes a quarter of what may be left of it.

    That is 4 √numbers (columns + 3) scale / 2**40 at most, but for radii beyond any chance.
    """
    held = stiffness * (1 << 35) / ((columns + 3) * (isqrt(numbers) + 1))
    return min(int(held).bit_length() - 1, 50)


def _minimum(
    asked: PerturbedLogistic, rows: Int64Array, slope: Floats, off: Floats
) -> list[Fraction]:
    """A point whose slope is proven to be short enough, line after line."""
    start = np.zeros_like(slope)
    more = 2 * float(np.linalg.norm(off)) * slope.shape[1] ** 0.5

    def slope_near(move: Floats) -> tuple[Floats, float]:
        return _slope_in_balls(asked, rows, at, move, slope, more)

    at, proven = _walked(
        asked, rows, start, lambda to: _slope(asked, rows, to, slope, more), most=_QUICK
    )
    move = start
    if not proven:
        move, proven = _walked(asked, rows, at, slope_near, most=sys.maxsize)
    if not proven:
        raise Bug("The minimiser was not found.", fix="Report the parameters of the objective.")
    pairs = zip(at.ravel().tolist(), move.ravel().tolist(), strict=True)
    return [Fraction(one) + Fraction(other) for one, other in pairs]


def _walked(
    asked: PerturbedLogistic,
    rows: Int64Array,
    at: Floats,
    slope_after: Callable[[Floats], tuple[Floats, float]],
    *,
    most: int,
) -> tuple[Floats, bool]:
    """How to move from a point by Newton's steps, and whether the slope there is short enough."""
    goal = float(asked.penalty) * 2.0 ** -(asked.digits + 1) * (1 - 2.0**-30)
    move = np.zeros_like(at)
    here, longest = slope_after(move)
    for _ in range(most):
        if longest <= goal:
            return move, True
        step = np.linalg.solve(_curvature(asked, rows, at + move), here.ravel()).reshape(at.shape)
        size = 1.0
        while size > _SHORTEST:
            there, longest = slope_after(move - size * step)
            if np.linalg.norm(there) < (1 - size / 4) * np.linalg.norm(here):
                break
            size /= 2
        else:
            break
        move, here = move - size * step, there
    return move, False


def _slope(
    asked: PerturbedLogistic, rows: Int64Array, at: Floats, slope: Floats, more: float
) -> tuple[Floats, float]:
    """The slope of the objective at a point, and how long it is at most.

    A score is off by (width + 2) ulps of Σ|w|, and its distance from the highest by some more; a
    probability by less than its scores, and by some ulps for each class; a sum of rows by as many
    ulps as it adds up numbers below 1, and those sums are added up exactly. All of it twice.
    """
    parts = [(part.T @ numbers).ravel() for numbers, _, part in _parts(asked, rows, at)]
    total = np.array([fsum(column) for column in zip(*parts, strict=True)] or np.zeros(at.size))
    total, penalty = total.reshape(at.shape), float(asked.penalty)
    found = total + penalty * at + slope
    each = (asked.columns + 8) * float(np.abs(at).sum(axis=1).max()) + 2 * asked.classes
    ends = np.abs(total) + penalty * np.abs(at) + np.abs(slope)
    errors = 2 * _ULP * (len(rows) * (each + 128 + _AT_ONCE) + 8 * ends)
    return found, float(np.linalg.norm(found) + np.linalg.norm(errors)) + more


def _slope_in_balls(
    asked: PerturbedLogistic, rows: Int64Array, at: Floats, move: Floats, slope: Floats, more: float
) -> tuple[Floats, float]:
    """The same at the sum of two points, proven whatever the rows are: slowly."""
    lines, width = at.shape
    near = np.empty_like(at)

    def length() -> Real:
        point = arb_mat(lines, width, at.ravel().tolist())
        point += arb_mat(lines, width, move.ravel().tolist())
        total = arb_mat(lines, width, slope.ravel().tolist()) + point * real(asked.penalty)
        for first in range(0, len(rows), _AT_ONCE):
            part = rows[first : first + _AT_ONCE]
            held = np.column_stack([part[:, :-2], np.full(len(part), asked.reach)])
            numbers = arb_mat(len(part), width, held.ravel().tolist()) / asked.reach
            raised = [score.exp() for score in (numbers * point.transpose()).entries()]
            pulls = _pulls_in_balls(asked, raised, part[:, -2:].tolist())
            total += arb_mat(len(part), lines, pulls).transpose() * numbers
        near[:] = np.array([float(n.mid()) for n in total.entries()]).reshape(at.shape)
        return sum(map(abs, total.entries()), arb(0))  # at least the length

    longest = upper(length, digits_bits=64)
    return near, float(longest) * (1 + 2.0**-50) + more


def _pulls_in_balls(
    asked: PerturbedLogistic, raised: list[Real], told: list[list[int]]
) -> list[Real]:
    """What each row pulls at each line, from its raised scores, its class and its weight."""
    lines, found = _lines(asked.classes), []
    for row, (kind, weight) in enumerate(told):
        own = raised[row * lines : (row + 1) * lines]
        total = sum(own, arb(1 if lines == 1 else 0))
        mine = kind - 1 if lines == 1 else kind
        found += [
            (each / total - (1 if place == mine else 0)) * weight / asked.whole
            for place, each in enumerate(own)
        ]
    return found


def _curvature(asked: PerturbedLogistic, rows: Int64Array, at: Floats) -> Floats:
    """The second slopes; a direction to go needs no proof."""
    lines, width = at.shape
    found = np.zeros((lines, width, lines, width))
    for numbers, (shares, weights), _ in _parts(asked, rows, at):
        for one, other in combinations_with_replacement(range(lines), 2):
            own = shares[:, one] if one == other else 0.0
            bent = weights * (own - shares[:, one] * shares[:, other])
            block = (numbers * bent[:, None]).T @ numbers
            found[one, :, other] += block
            if other > one:
                found[other, :, one] += block
    return found.reshape(at.size, at.size) + float(asked.penalty) * np.eye(at.size)


def _parts(
    asked: PerturbedLogistic, rows: Int64Array, at: Floats
) -> Iterator[tuple[Floats, tuple[Floats, Floats], Floats]]:
    """Some rows after the other: their numbers, shares of lines and weights, and slopes."""
    from scipy.special import expit, softmax  # noqa: PLC0415 - slow to load, seldom asked

    places = np.arange(1 if len(at) == 1 else 0, asked.classes)
    for first in range(0, len(rows), _AT_ONCE):
        part = rows[first : first + _AT_ONCE]
        numbers = np.column_stack([part[:, :-2] / asked.reach, np.ones(len(part))])
        weights = part[:, -1] / asked.whole
        scores = numbers @ at.T
        shares = expit(scores) if len(at) == 1 else softmax(scores, axis=1)
        told = (part[:, -2, None] == places).astype(np.float64)
        yield numbers, (shares, weights), weights[:, None] * (shares - told)
