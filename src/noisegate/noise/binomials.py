"""How many of n coins show 1, exactly, for any n below 2**62.

Small n are tabulated. For large n the mass function q is log-concave with mode M, which bounds it
by q(M + k) ≤ q(M) · min(1, e^(1 - q(M) |k|)) [Dev87]; with a whole number a ≥ 1 / q(M) the envelope
is 1 for |k| ≤ a and e^(-j/a) at |k| = a + 1 + j, which is drawn from exactly and accepted with a
certified coin.
"""

from fractions import Fraction
from functools import lru_cache, partial
from math import ceil, comb
from typing import Final, final

import numpy as np

from noisegate.exact import Number, Real, enclose, lower, real
from noisegate.frozen import dataclass
from noisegate.noise.bits import SYSTEM, Bits
from noisegate.noise.chunks import Int64Array, Size, in_chunks, whole
from noisegate.noise.coins import falls_below
from noisegate.noise.geometric import geometric
from noisegate.noise.law import Certified, Law, Probability, as_real, clamp_to_unit, probability
from noisegate.noise.table import table_for
from noisegate.noise.uniform import uniform_below

TABLE_TRIALS_MAX: Final = 1024


@final
@dataclass(frozen=True)
class Binomial(Law):
    """The number of ones among ``trials`` coins of bias p, by certified partial sums."""

    trials: int
    p: Probability

    @property
    def support(self) -> tuple[int, int]:  # type: ignore[override]  # noqa: D102
        return 0, self.trials

    def cdf(self, k: int, bits: int) -> tuple[int, int]:  # noqa: D102
        if k < 0 or k >= self.trials:
            return (0, 0) if k < 0 else (1 << bits, 1 << bits)
        return _partial_sums(self.trials, self.p, bits)[k]


@lru_cache(maxsize=128)
def _partial_sums(trials: int, p: Probability, bits: int) -> list[tuple[int, int]]:
    guard = bits + trials.bit_length() + 8
    sums, low, high = [], 0, 0
    for k in range(trials):
        mass = enclose(partial(_mass, trials, p, k), bits=guard)
        low, high = low + max(mass[0], 0), high + mass[1]
        shift = guard - bits
        sums.append(clamp_to_unit((low >> shift, -(-high >> shift)), bits))
    return sums


def _mass(trials: int, p: Probability, k: int) -> Real:
    return comb(trials, k) * as_real(p) ** k * (1 - as_real(p)) ** (trials - k)


def binomial(
    trials: int, p: Number | Certified, size: Size = 1, *, bits: Bits = SYSTEM
) -> Int64Array:
    """``size`` independent draws of the number of ones among ``trials`` coins of bias ``p``.

    Claim: exact. Why: inversion of certified sums, or rejection as derived above.

    >>> binomial(10, 1, 2), binomial(10**15, "1/2").shape
    (array([10, 10]), (1,))
    """
    trials, coin = whole(trials, "trials", least=0, below=1 << 62), probability(p)
    if coin in (0, 1) or trials == 0:
        return in_chunks(size, lambda count: np.full(count, trials if coin == 1 else 0))
    if trials <= TABLE_TRIALS_MAX:
        table = table_for(Binomial(trials, coin))
        return in_chunks(size, lambda count: table.sample(count, bits))
    envelope = _envelope(trials, coin)
    return in_chunks(
        size, lambda count: np.array([_by_rejection(envelope, bits) for _ in range(count)])
    )


@final
@dataclass(frozen=True)
class _Envelope:
    trials: int
    p: Probability
    mode: int
    half: int  # a in the formulas above


@lru_cache(maxsize=128)
def _envelope(trials: int, p: Probability) -> _Envelope:
    mode = _mode(trials, p)
    peak = lower(lambda: _log_mass(trials, p, mode).exp(), digits_bits=32)
    return _Envelope(trials, p, mode, ceil(1 / peak))


def _mode(trials: int, p: Probability) -> int:
    """⌊(n + 1) p⌋. Where (n + 1) p is whole, it and its predecessor are both modes."""
    if isinstance(p, Fraction):
        return min((trials + 1) * p.numerator // p.denominator, trials)
    bits = 64
    while True:
        low, high = enclose(lambda: (trials + 1) * as_real(p), bits=bits)
        if low >> bits == high >> bits:
            return min(low >> bits, trials)
        bits *= 2


def _log_mass(trials: int, p: Probability, k: int) -> Real:
    ways = real(trials + 1).lgamma() - real(k + 1).lgamma() - real(trials - k + 1).lgamma()
    return ways + k * as_real(p).log() + (trials - k) * (-as_real(p)).log1p()


def _by_rejection(envelope: _Envelope, bits: Bits) -> int:
    half = envelope.half

    def centre() -> Real:  # 2a + 1 points of weight 1 against two tails of e^(-j/a)
        points = real(2 * half + 1)
        return points / (points + 2 / (1 - (-real(Fraction(1, half))).exp()))

    while True:
        if falls_below(Certified(("centre", half), centre), bits.integer(64), 64, bits):
            offset, steps = int(uniform_below(2 * half + 1, 1, bits=bits)[0]) - half, 0
        else:
            steps = int(geometric(half, 1, bits=bits)[0])
            offset = (half + 1 + steps) * (1 if bits.integer(1) else -1)
        if _accepted(envelope, offset, steps, bits):
            return envelope.mode + offset


def _accepted(envelope: _Envelope, offset: int, steps: int, bits: Bits) -> bool:
    k, trials, p = envelope.mode + offset, envelope.trials, envelope.p
    if not 0 <= k <= trials:
        return False

    def ratio() -> Real:
        fall = _log_mass(trials, p, k) - _log_mass(trials, p, envelope.mode)
        return (fall + real(Fraction(steps, envelope.half))).exp()

    if offset == 0:
        return True
    return falls_below(Certified(("ratio", k), ratio), bits.integer(64), 64, bits)
