"""Exact choices among candidates: exponential mechanism, permute-and-flip, top-k, gaps.

Each candidate gets noise on its score and the largest wins. With Gumbel noise the winner follows
the exponential mechanism (and the k largest, in order, k of them in a row); with exponential noise
it follows permute-and-flip [DKXWZ21]. A candidate may stand for ``multiplicity`` equal ones: the
largest of m Gumbel variables is one of them shifted by ln m.

Noise is -ln(-ln U) or -ln U with U revealed lazily: floats sort out all candidates that stand clear
of the best by more than their error bounds; the few that remain are compared in ball arithmetic
with ever more bits. So the choice follows the claimed law exactly, in one vectorised pass.
"""

from collections.abc import Iterator
from fractions import Fraction
from itertools import pairwise
from math import floor
from typing import Final, Literal, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from noisegate.errors import SpecError
from noisegate.exact import Real, lower, real, upper
from noisegate.frozen import dataclass
from noisegate.noise.bits import SYSTEM, Bits, Words
from noisegate.noise.chunks import CHUNK, Int64Array

Noise: TypeAlias = Literal["gumbel", "exponential"]
Floats: TypeAlias = NDArray[np.float64]

_ENTRY: Final = np.dtype(
    [("index", np.int64), ("word", np.uint64), ("low", np.float64), ("high", np.float64)]
)
_GAP_MAX: Final = 2.0**50  # beyond it floats do not tell whole numbers apart
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
            raise SpecError("The multiplicities do not match.", fix="Use counts >= 0, not all 0.")


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
    found: Int64Array = choose_times(contest, 1, k=k, noise=noise, bits=bits)[0]
    return found


def choose_times(
    contest: Contest, times: int, *, k: int = 1, noise: Noise = "gumbel", bits: Bits = SYSTEM
) -> Int64Array:
    """The same for so many independent choices, a choice a row.

    >>> choose_times(Contest(np.array([0, 900, 3]), Fraction(1)), 2).tolist()
    [[1], [1]]
    """
    counts = contest.multiplicity
    if counts is not None and noise != "gumbel":
        raise SpecError(
            "Multiplicities need Gumbel noise.", fix="List the candidates.", about="gumbel"
        )
    candidates = contest.scores.size if counts is None else int(np.count_nonzero(counts))
    if not 1 <= k <= candidates:
        raise SpecError(
            f"k is {k} of {candidates} candidates.", fix="Use 1 <= k <= candidates.", about="k"
        )
    found = np.empty((times, k), np.int64)
    for start, heat in _heats(contest, times, k, noise, bits):
        places = found[start : start + len(heat.places)]
        places[:] = heat.places
        for row in np.flatnonzero(~heat.is_sure).tolist():
            racers = heat.racers(contest, row, noise, bits)
            places[row] = [racer.index for racer in racers]
    return found


def choose_with_gaps_times(
    contest: Contest, times: int, *, k: int = 1, bits: Bits = SYSTEM
) -> tuple[Int64Array, Int64Array]:
    """The ``k`` candidates with the largest scores after exponential noise, and how far they lead.

    So many independent choices, a choice a row of both.
    Claim: each score gets independent exponential noise of mean 1 / factor; the gaps are those
        between each of the k and the next, rounded down to whole scores. Rounding: none but that.

    >>> places, gaps = choose_with_gaps_times(Contest(np.array([0, 900, 3]), Fraction(1000)), 1)
    >>> places.tolist(), int(gaps[0, 0]) in range(890, 900)
    ([[1]], True)
    """
    if contest.multiplicity is not None or not 1 <= k < contest.scores.size or not contest.factor:
        raise SpecError(
            f"There are fewer than {k} gaps.", fix="Use k below the number of candidates."
        )
    places, gaps = np.empty((2, times, k), np.int64)
    for start, heat in _heats(contest, times, k + 1, "exponential", bits):
        rows = slice(start, start + len(heat.places))
        least, most = heat.gaps(contest.factor)
        places[rows], gaps[rows] = heat.places[:, :k], np.where(least == most, least, 0)
        is_sure = heat.is_sure & (least == most).all(axis=1)
        for row in np.flatnonzero(~is_sure).tolist():
            racers = heat.racers(contest, row, "exponential", bits)
            places[start + row] = [racer.index for racer in racers[:k]]
            gaps[start + row] = [_whole_gap(*pair, contest.factor) for pair in pairwise(racers)]
    return places, gaps


@final
@dataclass(frozen=True)
class _Heat:
    """Races among the same candidates, by floats: the leaders of each row, best first."""

    live: Int64Array  # who races
    words: Words  # of each race and racer
    low: Floats  # bounds of all noisy scores
    high: Floats
    order: Int64Array  # of the leaders, as places among those who race
    is_sure: NDArray[np.bool_]  # whether that order is proven

    @property
    def places(self) -> Int64Array:
        """The leaders."""
        return self.live[self.order]

    def gaps(self, factor: Fraction) -> tuple[Floats, Floats]:
        """Bounds of the whole gaps between the leaders; they differ where floats cannot tell."""
        rows = np.arange(len(self.order))[:, None]
        low, high = self.low[rows, self.order], self.high[rows, self.order]
        with np.errstate(all="ignore"):
            least = (low[:, :-1] - high[:, 1:]) / float(factor)
            most = (high[:, :-1] - low[:, 1:]) / float(factor)
            slack = (np.abs(least) + np.abs(most)) * _ULP
            least, most = np.floor(least - slack), np.floor(most + slack)
        far = ~(np.abs(most) < _GAP_MAX)
        least[far], most[far] = 0, 1
        return least, most

    def racers(self, contest: Contest, row: int, noise: Noise, bits: Bits) -> "list[_Racer]":
        """The leaders of one race in ball arithmetic, best first."""
        most = self.order.shape[1]
        bar = np.partition(self.low[row], -most)[-most]
        live = np.flatnonzero(self.high[row] >= bar)
        pairs = zip(self.live[live].tolist(), self.words[row, live].tolist(), strict=True)
        racers = [_Racer(contest, index, noise, word, bits) for index, word in pairs]
        return _ranked(racers)[:most]


def _heats(
    contest: Contest, times: int, most: int, noise: Noise, bits: Bits
) -> Iterator[tuple[int, _Heat]]:
    """Races for the first ``most`` places: the first of each group, and the group."""
    counts = contest.multiplicity
    best = int(contest.scores.max() if counts is None else contest.scores[counts > 0].max())
    if contest.scores.size > CHUNK:
        for start in range(times):
            live, words = _finalists(contest, most, noise, bits, best)
            yield start, _heat(contest, live, words[None], most, noise, best)
        return
    live = np.arange(contest.scores.size) if counts is None else np.flatnonzero(counts)
    step = max(1, CHUNK // live.size)
    for start in range(0, times, step):
        rows = min(step, times - start)
        words = bits.words(rows * live.size, 64).reshape(rows, live.size)
        yield start, _heat(contest, live, words, most, noise, best)


def _heat(
    contest: Contest, live: Int64Array, words: Words, most: int, noise: Noise, best: int
) -> _Heat:
    """Who leads each row. It is proven where each leader is clear of all who come after."""
    low, high = _ends(contest, live, words, noise, best)
    rows = np.arange(len(low))[:, None]
    if most == 1:
        order = low.argmax(axis=1)[:, None]
    else:
        order = np.argpartition(-low, most - 1, axis=1)[:, :most]
        order = order[rows, (-low[rows, order]).argsort(axis=1)]
    bars, rest = high[rows, order], high.copy()
    rest[rows, order] = -np.inf
    bars[:, :-1], bars[:, -1] = bars[:, 1:], rest.max(axis=1)
    bars = np.maximum.accumulate(bars[:, ::-1], axis=1)[:, ::-1]
    is_sure = (low[rows, order] > bars).all(axis=1)
    return _Heat(live, words, low, high, order, is_sure)


def _ends(
    contest: Contest, live: Int64Array, words: Words, noise: Noise, best: int
) -> tuple[Floats, Floats]:
    """Bounds of noisy scores. What floats cannot bound may be anywhere: NaN would sort on top."""
    with np.errstate(all="ignore"):
        value, error = _rough(contest, live, words, noise, best)
        low, high = value - error, value + error
    low[np.isnan(low)], high[np.isnan(high)] = -np.inf, np.inf
    return low, high


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


def _finalists(
    contest: Contest, k: int, noise: Noise, bits: Bits, best: int
) -> tuple[Int64Array, Words]:
    """Who may still be among the k best, and the words drawn for them; a chunk at a time."""
    counts = contest.multiplicity
    kept = np.empty(0, _ENTRY)
    for start in range(0, contest.scores.size, CHUNK):
        live = np.arange(start, min(start + CHUNK, contest.scores.size))
        live = live if counts is None else live[counts[live] > 0]
        entries = np.empty(live.size, _ENTRY)
        entries["index"], entries["word"] = live, bits.words(live.size, 64)
        ends = _ends(contest, live, entries["word"], noise, best)
        entries["low"], entries["high"] = ends
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


def choose_each(contest: Contest, starts: Int64Array, *, bits: Bits = SYSTEM) -> Int64Array:
    """The index of each stretch's winner; stretch i begins at ``starts[i]`` and ends at the next.

    Claim: candidate i wins its stretch with probability proportional to e^(factor · score_i) among
        that stretch, independently of the others. Why: as in `choose`: Gumbel noise, the largest
        wins; who is not clear of the best of its stretch races in ball arithmetic. Scores are taken
        relative to the best of their stretch, which changes no odds. Rounding: none.

    >>> from fractions import Fraction
    >>> choose_each(Contest(np.array([0, 900, 3, 950, 1]), Fraction(1)), np.array([0, 2]))
    array([1, 3])
    """
    size = contest.scores.size
    if starts.ndim != 1 or not starts.size or starts[0] != 0 or contest.multiplicity is not None:
        raise SpecError("The stretches do not match.", fix="Begin at 0; list every candidate.")
    lengths = np.diff(starts, append=size)
    if lengths.min() < 1:
        raise SpecError("A stretch has no candidate.", fix="Leave it out.")
    best = np.maximum.reduceat(contest.scores, starts)
    race = Contest(contest.scores - np.repeat(best, lengths), contest.factor)
    words = bits.words(size, 64)
    low, high = _ends(race, np.arange(size), words, "gumbel", 0)
    bar = np.repeat(np.maximum.reduceat(low, starts), lengths)
    live = np.flatnonzero(high >= bar)
    stretch = np.repeat(np.arange(starts.size), lengths)[live]
    firsts = np.flatnonzero(np.diff(stretch, prepend=-1))
    winners = live[firsts]
    for at in np.flatnonzero(np.diff(firsts, append=live.size) > 1).tolist():
        rivals = live[stretch == at].tolist()
        racers = [_Racer(race, i, "gumbel", int(words[i]), bits) for i in rivals]
        winners[at] = _ranked(racers)[0].index
    return winners
