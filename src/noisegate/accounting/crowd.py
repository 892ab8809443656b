"""What sampling adds to blending in a crowd: from "k like you" to an (ε, δ).

A mechanism is (k, ε)-crowd-blending if each row either has k - 1 others in the data that could take
its place, for a factor e^ε, or could be left out, for a factor e^ε [GHLP12]. That alone is not
differential privacy and does not compose. Run on a secret sample that holds each person
independently with probability p, it is (ε', δ)-differentially private, with the numbers below.

M is how many others could take a person's place, b(x) the chance that x of them are in the sample.

>>> float(round(histogram_delta(Fraction(1, 2), 50, log_up(Fraction(2))), 11))
9.2415e-07
>>> least_crowd(Fraction(1, 10), ApproxDP(log_up(Fraction(10, 9)), "1e-6"))
36
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import lru_cache, partial
from math import ceil, exp, expm1, floor, inf, log, log1p
from typing import Final, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from noisegate.errors import SpecError
from noisegate.exact import Real, log_up, real, upper
from noisegate.frozen import dataclass
from noisegate.privacy.loss import ApproxDP

Long: TypeAlias = NDArray[np.longdouble]

CROWD_MAX: Final = 100_000
EPSILON_MAX: Final = 100
SCAN_MAX: Final = 20_000  # others of one kind that are tried before an ε is refused as too small
_STEPS: Final = 60  # of a bisection
_NEAR: Final = 2.0**-20  # more than any number here is off
_NOTHING: Final = 2.0**-60  # of a δ
_TOO_MANY: Final = "An ε so small needs too many people to be sure of."
_APART: Final = 2.0**-40  # more than a share of the others is off


@final
@dataclass(frozen=True, slots=True)
class _Chances:
    """The chances b(x) from ``first`` on, until what follows is at most ``rest``.

    Each is made by at most 2 · M products, so it is off by at most that many roundings, and a
    difference of two by as much of the larger; `slack` allows four times that and what e^ε may be
    off, for all differences that are positive or could be.
    """

    others: int
    first: int
    values: Long
    rest: np.longdouble
    p: np.longdouble

    def slack(self, mass: np.longdouble) -> np.longdouble:
        return 8 * (2 * self.others + EPSILON_MAX) * np.finfo(np.longdouble).eps * mass + self.rest

    def excess(self, one: Long, other: Long) -> np.longdouble:
        """What ``one`` has above ``other``, place by place, rounded up."""
        near = one * (1 + _NEAR) >= other
        found: np.longdouble = np.maximum(one - other, 0).sum() + self.slack(one[near].sum())
        return found


@lru_cache(maxsize=256)
def histogram_delta(probability: Fraction, crowd: int, epsilon: Fraction) -> Fraction:
    """The δ at ε of a table of counts from a secret sample, counts below ``crowd`` not shown.

    Claim: the largest hockey-stick divergence at ε of neighbours, over all tables.
    Adjacency: add/remove one person, who has one row.
    Why: only the cell of that person differs: with M others there, y of the sample are in it with
        chance b(y) without and p b(y - 1) + (1 - p) b(y) with the person. All y < k look the same.
        Let N = M + 1. Coming adds to δ at y > q N alone, q = 1 - (1 - p) e^-ε. While q N < k - 1,
        δ is p b(k - 1) - (e^ε - 1) Σ b(y ≥ k), and one more other adds
        p b(k - 1) (N (1 - p) / (N + 1 - k) - e^ε) > 0 to it. From q N = k - 1 on, what is hidden
        would add nothing if it were shown, and where all is shown more others only help: whoever
        looks could toss their coins. So the first such N ≥ k has the largest δ. Leaving adds to δ
        at y < r N alone, r = 1 - (1 - p) e^ε, if that is positive. While r N < k - 1, δ is
        e^ε p b(k - 1) - (e^ε - 1) Σ b(y < k), or 0, and one more other adds
        p b(k - 1) (e^ε N (1 - p) / (N + 1 - k) - 1) > 0. From r N = k - 1 on, all that is hidden
        would add to δ if it were shown, so hiding it takes nothing away, and again more others
        help. All that leaving adds is at most the chance of fewer than k there.
    Rounding: up, by more than the products of one term can be off.
    """
    p, long = checked(probability, crowd, epsilon), _long(epsilon)
    search, rise, grown = _Search(p, crowd, 0.0, float(epsilon)), np.expm1(long), np.exp(long)

    def come(chances: _Chances) -> np.longdouble:
        before, here = _pairs(chances)
        return chances.excess(p * before + (1 - p) * here, grown * here)

    def leave(chances: _Chances) -> np.longdouble:
        before, here = _pairs(chances)
        there = p * before + (1 - p) * here
        gone = grown * p * before[0]  # more people leave fewer unseen: by p b(k - 1)
        hidden = max(gone - rise * _below(chances), 0) + chances.slack(gone)
        shown: np.longdouble = chances.excess(here, grown * there) + hidden
        return shown

    most = max(map(come, search.around(search.high)))
    if search.both and search.hidden(search.crossing(search.low + _APART)) > most:
        most = max(most, *map(leave, search.around(max(search.low, _APART))))
    return _rounded(most)


def blended_delta(
    probability: Fraction,
    crowd: int,
    within: Fraction,
    epsilon: Fraction,
    *,
    enough: Fraction = Fraction(1),
) -> Fraction:
    """The δ at ε of any (``crowd``, ``within``)-crowd-blending mechanism on a secret sample.

    Claim: the sampled mechanism is (ε, δ)-differentially private, in both directions.
    Adjacency: add/remove one person. Needs ε ≥ ln(1 - p + p e^within).
    Why: let x of the M others be in the sample. If x ≤ k - 2 the person may be left out. If
        x ≥ k - 1, any other that is not in the sample, chosen at random, may take the person's
        place, and the sample is then one with x + 1. As b(x) / b(x + 1) is
        (x + 1)(1 - p) / ((M - x) p), the outputs that come from y = x + 1 weigh at most
        (1 - p) + e^within (1 - p) y / (M + 1 - y) times what they weigh without the person; what
        is above e^ε is charged to δ at its own chance p b(x) [GHLP12, with constants]. Leaving
        takes the same steps with the factors turned round; where x ≤ k - 2 it costs no δ, as
        1 - p + p e^-within is at least e^-ε.
    Rounding: up.
    """
    p = checked(probability, crowd, epsilon, within)
    if epsilon < least_epsilon(probability, within):
        raise SpecError(
            "Below this ε, sampling alone gives no guarantee.",
            fix=f"Use an ε of at least {float(least_epsilon(probability, within)):.6g}.",
        )
    keeps, long = np.exp(-_long(within)), _long(epsilon)
    rise, grown = np.expm1(long) + p, np.exp(long)
    search = _Search(p, crowd, float(within), float(epsilon))

    def gap(chances: _Chances) -> np.longdouble:
        before, here = _pairs(chances)
        come = chances.excess(p * before, keeps * rise * here)
        if not search.both:
            return come
        places = np.arange(before.size, dtype=np.longdouble) + crowd - 1
        taken = keeps * places / (chances.others + 1 - places)
        taken[0] = 0  # nobody could take the place
        return max(come, chances.excess(before, grown * (1 - p) * (1 + taken) * before))

    return _largest(gap, search, enough)


def least_epsilon(probability: Fraction, within: Fraction) -> Fraction:
    """Where `blended_delta` begins: what sampling makes of ``within`` [LQS12]."""
    if within == 0:
        return Fraction(0)
    return upper(lambda: (real(probability) * real(within).expm1()).log1p())  # noqa: PLW0108 - precision


def closed_form(
    probability: Fraction,
    crowd: int,
    within: Fraction = Fraction(0),
    *,
    fraction: Fraction | None = None,
) -> ApproxDP:
    """A guarantee of any crowd-blending mechanism on a secret sample, without a search.

    Claim: (ln((1 - p)(1 + e^within q / (1 - q))), e^(-(k/q) KL(q‖p))) for any q = ``fraction`` in
        [1 - (1 - p)², 1); without one, its least value, where within = 0 has ε = ln(1 / (1 - p)).
    Adjacency: add/remove one person.
    Why: in `blended_delta` only y > q (M + 1) add to δ, and p Pr[Bin(M, p) ≥ x] is at most
        Pr[Bin(M + 1, p) ≥ x + 1] ≤ e^(-N KL(max(k/N, q)‖p)), N = M + 1, largest at N = k/q.
    Rounding: up.
    """
    p = Fraction(probability)
    checked(p, crowd, Fraction(1), within)
    least = 1 - (1 - p) ** 2
    q = least if fraction is None else fraction
    if not least <= q < 1:
        raise SpecError("The fraction is out of range.", fix=f"Use {float(least):.6g} to below 1.")
    grown = partial(_log, lambda: real(1 - p) * (1 + real(within).exp() * real(q) / real(1 - q)))
    return ApproxDP(upper(grown), tail(Fraction(crowd), q, p))


def change_one(probability: Fraction, loss: ApproxDP) -> ApproxDP:
    """What an add/remove guarantee of a sampled mechanism is for changing one person.

    Claim: (ε + ln(1 / (1 - p)), δ), which is less than for any mechanism with that guarantee.
    Adjacency: change-one. Why: without the person the output is at most 1 / (1 - p) times as likely
        as with it, as it may not be in the sample; then another one comes. Rounding: up.
    """
    if not 0 < probability < 1:
        raise SpecError("probability is out of range.", fix="Use 0 to 1.", about="sample")
    return ApproxDP(loss.epsilon + log_up(1 / (1 - probability)), loss.delta)


def least_crowd(probability: Fraction, target: ApproxDP, *, within: Fraction | None = None) -> int:
    """The smallest crowd that keeps the target: of a table of counts, or of any with ``within``.

    Why: a table that shows less is made of one that shows more, so δ falls with k. For other
        mechanisms it does where ε is at least ln(1 / (1 - p)); below, a k is found that keeps the
        target while k - 1 does not.
    """
    if target.delta <= 0:
        raise SpecError("No crowd achieves δ = 0.", fix="Allow a δ such as 1e-6.")
    keeps = partial(_keeps, probability, within, target)

    high = 1
    while not keeps(high):
        high *= 2
        if high > CROWD_MAX:
            raise SpecError(
                "No crowd achieves this guarantee.", fix="Allow a larger ε or δ, or sample less."
            )
    return bisect_left(range(high), x=True, lo=high // 2 + 1, key=keeps)


def least_loss(
    probability: Fraction, crowd: int, delta: Fraction, *, within: Fraction | None = None
) -> Fraction:
    """The smallest ε, to a millionth, at which the crowd keeps δ. Rounding: up."""
    if not 0 < delta < 1:
        raise SpecError("δ is not between 0 and 1.", fix="Use a δ such as 1e-6.")
    checked(probability, crowd, Fraction(1), within or Fraction(0))
    least = Fraction(0) if within is None else least_epsilon(probability, within)

    def keeps(epsilon: Fraction) -> bool:
        try:
            return _keeps(probability, within, ApproxDP(epsilon, delta), crowd)
        except SpecError:  # too many people would have to be tried
            raise SpecError(
                "For so small a sample or so large a crowd, ε is too small to compute.",
                fix="Give ε, for example 0.01, instead of δ or the crowd.",
                about="epsilon",
            ) from None

    high = max(least, log_up(1 / (1 - probability)))
    while not keeps(high):
        high = 2 * high
        if high > EPSILON_MAX:
            raise SpecError("No ε achieves this δ.", fix="Allow a larger δ, or a larger crowd.")
    low = least
    for _ in range(_STEPS):
        if high - low <= Fraction(1, 1_000_000) * high:
            break
        middle = Fraction(floor((low + high) / 2 * (1 << 40)) + 1, 1 << 40)
        low, high = (low, middle) if keeps(middle) else (middle, high)
    return high


def _keeps(probability: Fraction, within: Fraction | None, target: ApproxDP, crowd: int) -> bool:
    if within is None:
        found = histogram_delta(probability, crowd, target.epsilon)
    else:
        found = blended_delta(probability, crowd, within, target.epsilon, enough=target.delta)
    return found <= target.delta


@final
@dataclass(frozen=True, slots=True)
class _Search:
    """Which chances are needed for M others, and when no more others are.

    Coming adds to δ only at y > q (M + 1), and leaving only at y < r (M + 1), and only below
    ε = ln(1 / (1 - p)).
    """

    p: np.longdouble
    crowd: int
    within: float
    epsilon: float

    @property
    def both(self) -> bool:
        """Whether leaving can cost anything."""
        return self.epsilon < -log1p(-float(self.p)) * (1 + 1e-12)

    @property
    def high(self) -> float:
        """The q of coming."""
        odds = exp(-self.within) * (expm1(self.epsilon) + float(self.p)) / (1 - float(self.p))
        return odds / (1 + odds)

    @property
    def low(self) -> float:
        """The r of leaving."""
        odds = exp(self.within) * (exp(-self.epsilon) / (1 - float(self.p)) - 1)
        return max(odds / (1 + odds), 0.0)

    def first(self, others: int) -> int:
        """Where chances are needed from: k - 1, or where coming adds to δ, less a place."""
        if self.both:
            return self.crowd - 1
        return max(self.crowd - 1, min(floor(self.high * (others + 1)) - 2, others))

    def bound(self, others: int) -> float:
        """Chernoff's bound on all δ of so many others and more: of both tails."""
        p, crowd = float(self.p), self.crowd
        up = 1.0
        if (others + 1) * self.high > crowd:
            up = exp(-(others + 1) * _kl_float(self.high, p))
        if not self.both:
            return up
        return max(up, self._fewer(others, max(crowd - 1, self.low * (others + 1))))

    def hidden(self, others: int) -> float:
        """Chernoff's bound on the chance that fewer than k of the others are sampled."""
        return self._fewer(others, self.crowd - 1)

    def _fewer(self, others: int, most: float) -> float:
        p, share = float(self.p), most / others if others else 1.0
        return 1.0 if share >= p else exp(-others * _kl_float(share, p))

    def crossing(self, share: float) -> int:
        """The first M ≥ k - 1 of which this share, with the person, is at least k - 1."""
        return max(ceil((self.crowd - 1) / share), self.crowd) - 1

    def around(self, share: float) -> Iterator[_Chances]:
        """For the M of `crossing` and its neighbours, one of which it is without roundings."""
        middle, first = self.crossing(share), self.crowd - 1
        if middle >= first + SCAN_MAX:
            raise SpecError(_TOO_MANY, fix="Use a larger ε.")
        anchor = self.p**first
        for others in range(first, middle + 2):
            if others >= middle - 1:
                yield self._chances(others, first, anchor)
            anchor = self._climbed(anchor, others, first)

    def chances(self) -> Iterator[_Chances]:
        """For M = k - 1, k, and so on."""
        p, first = self.p, self.crowd - 1
        anchor, odds = p**first, p / (1 - p)
        for others in range(first, first + SCAN_MAX):
            yield self._chances(others, first, anchor)
            anchor = self._climbed(anchor, others, first)
            for _ in range(self.first(others + 1) - first):
                anchor = anchor * (others + 1 - first) / np.longdouble(first + 1) * odds
                first += 1
        raise SpecError(_TOO_MANY, fix="Use a larger ε.")

    def _climbed(self, anchor: np.longdouble, others: int, first: int) -> np.longdouble:
        """The chance of ``first`` for M + 1 others, from that for M."""
        return anchor * (others + 1) * (1 - self.p) / (others + 1 - first)

    def _chances(self, others: int, first: int, anchor: np.longdouble) -> _Chances:
        """For M others, of whom ``first`` are sampled with chance ``anchor``."""
        if anchor < np.finfo(np.longdouble).tiny * 2**64:
            raise SpecError("A crowd so large is never sampled.", fix="Use a smaller crowd.")
        p, odds = self.p, self.p / (1 - self.p)
        spread = 12 * (others * float(p) * (1 - float(p))) ** 0.5 + 60
        last = min(others, max(floor(others * float(p) + spread), first))
        places = np.arange(first, last, dtype=np.longdouble)
        steps = (others - places) / (places + 1) * odds
        values = anchor * np.concatenate([[np.longdouble(1)], np.cumprod(steps)])
        falls = (others - last) / np.longdouble(last + 1) * odds
        rest = values[-1] * falls / (1 - falls) if last < others else np.longdouble(0)
        return _Chances(others, first, values, rest, p)


def _largest(
    gap: Callable[[_Chances], np.longdouble], search: _Search, enough: Fraction
) -> Fraction:
    """The supremum over M, rounded up; or something above ``enough``.

    Where hardly ever fewer than k are sampled, hardly anything is hidden; to hide it too changes δ
    by at most that chance. And where nothing is hidden, more others only help: whoever looks could
    toss their coins. So the search may end there as well, with that chance on top.
    """
    most = np.longdouble(0)
    for chances in search.chances():
        most = max(most, gap(chances))
        hidden = search.hidden(chances.others)
        if hidden <= most * _NOTHING:
            most += hidden
            break
        if search.bound(chances.others) <= most or Fraction(float(most)) > enough:
            break
    return _rounded(most)


def _rounded(most: np.longdouble) -> Fraction:
    return min(Fraction(float(np.nextafter(float(most), inf))), Fraction(1))


def _pairs(chances: _Chances) -> tuple[Long, Long]:
    """The chances b(y - 1) and b(y), for y from one above the first on; the last b(y) is 0."""
    return chances.values, np.append(chances.values[1:], np.longdouble(0))


def _below(chances: _Chances) -> np.longdouble:
    """The chance of fewer than k: all that the others leave."""
    above: np.longdouble = chances.values[1:].sum()
    return max(1 - above, np.longdouble(0)) if above < 0.5 else _lowertail(chances)


def _lowertail(chances: _Chances) -> np.longdouble:
    """Σ b(x) for x < k, downwards from the anchor, so that small sums are not differences."""
    places = np.arange(chances.first, 0, -1, dtype=np.longdouble)
    ratios = places / (chances.others - places + 1) * ((1 - chances.p) / chances.p)
    found: np.longdouble = chances.values[0] * (1 + np.cumprod(ratios).sum())
    return found


def _kl_float(q: float, p: float) -> float:
    """KL(q‖p), rounded down by more than floats can be off, also where q is 1 to them."""
    ones = q * log(q / p) if q > 0 else 0.0
    zeros = (1 - q) * log((1 - q) / (1 - p)) if q < 1 else 0.0
    return (ones + zeros) * (1 - 1e-9) - 1e-13


def tail(crowd: Fraction, q: Fraction, p: Fraction) -> Fraction:
    """At least e^(-(k/q) KL(q‖p)), at most 1."""

    def exponent() -> Real:
        apart = real(q) * real(q / p).log() + real(1 - q) * real((1 - q) / (1 - p)).log()
        return -real(crowd / q) * apart

    return min(upper(lambda: exponent().exp()), Fraction(1))


def _log(compute: Callable[[], Real]) -> Real:
    return compute().log()


def checked(
    probability: Fraction, crowd: int, epsilon: Fraction, within: Fraction = Fraction(0)
) -> np.longdouble:
    """The probability, if all of them can be those of a crowd."""
    if not 0 < float(probability) < 1:
        raise SpecError("probability is out of range.", fix="Use 0 to 1.", about="sample")
    if type(crowd) is not int or not 1 <= crowd <= CROWD_MAX:
        raise SpecError("The crowd is not a number of people.", fix=f"Use 1 to {CROWD_MAX}.")
    if not 0 < epsilon <= EPSILON_MAX:
        raise SpecError("ε is out of range.", fix=f"Use an ε such as 0.1, at most {EPSILON_MAX}.")
    if within < 0:
        raise SpecError("within is negative.", fix="Use within >= 0.", about="within")
    return _long(probability)


def _long(value: Fraction) -> np.longdouble:
    """The number to the precision of a long double."""
    near = float(value)
    return np.longdouble(near) + np.longdouble(float(value - Fraction(near)))
