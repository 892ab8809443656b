"""Exact choices among candidates: exponential mechanism, permute-and-flip, top-k, gaps.

Each candidate gets noise on its score and the largest wins. With Gumbel noise the winner follows
the exponential mechanism (and the k largest, in order, k of them in a row); with exponential noise
it follows permute-and-flip [DKXWZ21]. A candidate may stand for ``multiplicity`` equal ones: the
largest of m Gumbel variables is one of them shifted by ln m.

Noise is -ln(-ln U) or -ln U with U revealed lazily: floats sort out all candidates that stand clear
of the best by more than their error bounds; the few that remain are compared in ball arithmetic
with ever more bits. So the choice follows the claimed law exactly, in one vectorised pass.
"""

from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from math import floor
from typing import Final, Literal, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from noisegate.errors import SpecError
from noisegate.exact import Real, lower, real, upper
from noisegate.noise.bits import SYSTEM, Bits, Words
from noisegate.noise.chunks import CHUNK, Int64Array

Noise: TypeAlias = Literal["gumbel", "exponential"]
Floats: TypeAlias = NDArray[np.float64]

_ENTRY: Final = np.dtype(
    [("index", np.int64), ("word", np.uint64), ("low", np.float64), ("high", np.float64)]
)
_ULP: Final = 2.0**-46  # errors of NumPy's log and log1p (4 ulp) and of the arithmetic, with room


@final
@dataclass(frozen=True)
class Contest:
    """Integer scores, each weighing e^(factor · score), with optional multiplicities ≥ 0."""

    scores: Int64Array
    factor: Fraction
    multiplicity: Int64Array | None = None

    def __post_init__(self) -> None:
        if self.scores.ndim != 1 or self.scores.dtype != np.int64 or not self.scores.size:
            raise SpecError("Scores must be a row of int64.", fix="Give at least one candidate.")
        if not 0 <= self.factor < 1 << 900:
            raise SpecError("The factor is out of range.", fix="Use epsilon / (2 · sensitivity).")
        if max(-int(self.scores.min()), int(self.scores.max())) >= 1 << 61:
            raise SpecError("A score is beyond ±2**61.", fix="Clamp the scores.")
        if self.multiplicity is not None and (
            self.multiplicity.shape != self.scores.shape
            or self.multiplicity.min() < 0
            or self.multiplicity.max() < 1
        ):
            raise SpecError("The multiplicities do not fit.", fix="Use counts >= 0, not all 0.")


def choose(
    contest: Contest, *, k: int = 1, noise: Noise = "gumbel", bits: Bits = SYSTEM
) -> Int64Array:
    """Indices of the ``k`` candidates with the largest noisy scores, best first.

    Claim: with Gumbel noise, candidate i comes first with probability proportional to
        multiplicity_i · e^(factor · score_i), the next likewise among the rest; with exponential
        noise the first is permute-and-flip's. Rounding: none.

    >>> choose(Contest(np.array([0, 900, 3]), Fraction(1)))
    array([1])
    """
    counts = contest.multiplicity
    if counts is not None and noise != "gumbel":
        raise SpecError("Multiplicities need Gumbel noise.", fix="List the candidates.")
    candidates = contest.scores.size if counts is None else int(np.count_nonzero(counts))
    if not 1 <= k <= candidates:
        raise SpecError(f"k is {k} of {candidates} candidates.", fix="Use 1 <= k <= candidates.")
    live, words = _finalists(contest, k, noise, bits)
    if k == live.size == 1:
        return live
    pairs = zip(live.tolist(), words.tolist(), strict=True)
    racers = [_Racer(contest, index, noise, word, bits) for index, word in pairs]
    return np.array([racer.index for racer in _ranked(racers)[:k]], np.int64)


def choose_with_gaps(
    contest: Contest, *, k: int = 1, bits: Bits = SYSTEM
) -> tuple[Int64Array, Int64Array]:
    """The ``k`` candidates with the largest scores after exponential noise, and how far they lead.

    Claim: each score gets independent exponential noise of mean 1 / factor; the gaps are those
        between each of the k and the next, rounded down to whole scores. Rounding: none but that.

    >>> places, gaps = choose_with_gaps(Contest(np.array([0, 900, 3]), Fraction(1000)))
    >>> places.tolist(), int(gaps[0]) in range(890, 900)
    ([1], True)
    """
    if contest.multiplicity is not None or not 1 <= k < contest.scores.size or not contest.factor:
        raise SpecError(f"There are not {k} gaps.", fix="Use fewer than there are candidates.")
    live, words = _finalists(contest, k + 1, "exponential", bits)
    pairs = zip(live.tolist(), words.tolist(), strict=True)
    racers = _ranked([_Racer(contest, at, "exponential", word, bits) for at, word in pairs])
    gaps = [_whole_gap(*pair, contest.factor) for pair in pairwise(racers[: k + 1])]
    return np.array([each.index for each in racers[:k]], np.int64), np.array(gaps, np.int64)


def _whole_gap(first: "_Racer", second: "_Racer", factor: Fraction) -> int:
    """How far one leads the other in scores, rounded down; their noise is refined until it shows.

    Refining changes no order: the ends of both only draw nearer. Gaps stop at 2**62.
    """
    while True:
        ends = first.low, first.high, second.low, second.high
        if None not in ends:
            low, high = first.low - second.high, first.high - second.low  # type: ignore[operator]
            least, most = (floor(each / factor) for each in (low, high))
            if least == most:
                return min(least, 1 << 62)
        first.refine()
        second.refine()


def _finalists(contest: Contest, k: int, noise: Noise, bits: Bits) -> tuple[Int64Array, Words]:
    """Who may still be among the k best, and the words drawn for them; a chunk at a time."""
    counts = contest.multiplicity
    best = contest.scores.max() if counts is None else contest.scores[counts > 0].max()
    kept = np.empty(0, _ENTRY)
    for start in range(0, contest.scores.size, CHUNK):
        live = np.arange(start, min(start + CHUNK, contest.scores.size))
        live = live if counts is None else live[counts[live] > 0]
        words = bits.words(live.size, 64)
        entries = np.empty(live.size, _ENTRY)
        entries["index"], entries["word"] = live, words
        with np.errstate(all="ignore"):
            value, error = _rough(contest, live, words, noise, int(best))
            # What floats cannot bound may be anywhere; NaN would be sorted above everything.
            low, high = value - error, value + error
            entries["low"] = np.where(np.isnan(low), -np.inf, low)
            entries["high"] = np.where(np.isnan(high), np.inf, high)
        kept = np.concatenate([kept, entries])
        if kept.size > k:
            # The k-th largest lower end: who cannot reach it is beaten by k others for certain.
            bar = np.partition(kept["low"], -k)[-k]
            kept = kept[kept["high"] >= bar]
    return kept["index"].copy(), kept["word"].copy()


def _rough(
    contest: Contest, live: Int64Array, words: Words, noise: Noise, best: int
) -> tuple[Floats, Floats]:
    """Noisy scores as floats, less the best exact score, and a bound on their error."""
    scores = contest.scores[live]
    gap = (scores - best).astype(np.float64)
    value = gap * float(contest.factor)
    error = np.abs(value) * _ULP
    if contest.multiplicity is not None:
        shift = np.log(contest.multiplicity[live].astype(np.float64))
        value, error = value + shift, error + (shift + 1) * _ULP
    sample, sample_error = _rough_noise(words, noise)
    value = value + sample
    return value, error + sample_error + np.abs(value) * _ULP + _ULP


def _rough_noise(words: Words, noise: Noise) -> tuple[Floats, Floats]:
    """E = -ln U and how far it may be off, given that U lies in [word, word + 1) / 2**64.

    Below ½ the bounds of ln U differ by 1 / word. Above, with m = 2**64 - word, 1 - U lies in
    (m - 1, m] / 2**64, so E is known to a relative 2 / m. A Gumbel variable is -ln E.
    """
    is_upper = words >= np.uint64(1 << 63)
    m = (~words).astype(np.float64) + 1
    w = words.astype(np.float64)
    exponential = np.where(is_upper, -np.log1p(-m * 2.0**-64), -np.log(w * 2.0**-64))
    relative = np.where(is_upper, 2 / m, 2 / w / exponential) + _ULP
    if noise == "exponential":
        return exponential, exponential * relative
    off = np.where(relative < 0.25, 2 * relative, np.inf)
    gumbel = -np.log(exponential)
    return gumbel, off + np.abs(gumbel) * _ULP


class _Racer:
    """One candidate in ball arithmetic; its noise is refined on demand."""

    def __init__(self, contest: Contest, index: int, noise: Noise, word: int, bits: Bits) -> None:
        self.index, self._noise, self._bits = index, noise, bits
        self._exponent = contest.factor * int(contest.scores[index])
        counts = contest.multiplicity
        self._multiplicity = 1 if counts is None else int(counts[index])
        self._word, self._width = word, 64
        self._enclose()

    def refine(self) -> None:
        """Reveal 64 more bits."""
        self._word = self._word << 64 | self._bits.integer(64)
        self._width += 64
        self._enclose()

    def _enclose(self) -> None:
        full = 1 << self._width
        ends = self._word, self._word + 1
        self.low = self.high = None
        if ends[0] > 0:
            self.low = lower(lambda: self._key(Fraction(ends[0], full)), digits_bits=self._width)
        if ends[1] < full:
            self.high = upper(lambda: self._key(Fraction(ends[1], full)), digits_bits=self._width)
        if self._noise == "exponential":  # falls as U rises, and is 0 at U = 1
            self._enclose_falling(ends, full)

    def _enclose_falling(self, ends: tuple[int, int], full: int) -> None:
        self.low, self.high = self._exponent, None
        if ends[1] < full:
            self.low = lower(lambda: self._key(Fraction(ends[1], full)), digits_bits=self._width)
        if ends[0] > 0:
            self.high = upper(lambda: self._key(Fraction(ends[0], full)), digits_bits=self._width)

    def _key(self, u: Fraction) -> Real:
        exponential = -real(u).log()
        sample = exponential if self._noise == "exponential" else -exponential.log()
        return real(self._exponent) + real(self._multiplicity).log() + sample


def _ranked(racers: list[_Racer]) -> list[_Racer]:
    """Racers in falling order, refined until no two of them overlap."""
    while len(racers) > 1:
        racers = sorted(racers, key=_middle, reverse=True)
        clear = [_beats(first, second) for first, second in pairwise(racers)]
        if all(clear):
            break
        for racer, above, below in zip(racers, [True, *clear], [*clear, True], strict=True):
            if not (above and below):
                racer.refine()
    return racers


def _beats(first: _Racer, second: _Racer) -> bool:
    return first.low is not None and second.high is not None and first.low > second.high


def _middle(racer: _Racer) -> Fraction:
    if racer.low is None or racer.high is None:
        return Fraction(racer.high if racer.low is None else racer.low)  # type: ignore[arg-type]
    return (racer.low + racer.high) / 2
