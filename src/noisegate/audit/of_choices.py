"""Audits of choices by score, quantiles and sparse vectors.

A choice spends all of its ε only where one candidate rises against all others and is chosen rarely
all the same; with 20 candidates that is 93 % of it.
"""

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any, Final

import numpy as np

from noisegate.audit.audit import Audit
from noisegate.audit.confidence import Floats
from noisegate.audit.draws import Blocks
from noisegate.audit.registry import each, many, weaker
from noisegate.mechanisms.above_threshold import AboveThreshold
from noisegate.mechanisms.exponential import Exponential
from noisegate.mechanisms.furthest import Furthest
from noisegate.mechanisms.noisy_max import NoisyMax
from noisegate.mechanisms.outside_band import OutsideBand
from noisegate.mechanisms.permute_and_flip import PermuteAndFlip
from noisegate.mechanisms.quantile import Quantile
from noisegate.mechanisms.quantiles import Quantiles
from noisegate.mechanisms.small_database import SmallDatabase
from noisegate.mechanisms.splits import Splits
from noisegate.mechanisms.top_k import TopK
from noisegate.mechanisms.winsorised import POINTS, Winsorised

_MORE: Final = Fraction(5, 4)
_FOUR_FIFTHS: Final = Fraction(4, 5)
_OTHERS: Final = 19
_LEADS: Final = (1, *[0] * _OTHERS), (0, *[1] * _OTHERS)
_AGAINST: Final = "20 candidates: the first 1 ahead of all others, and 1 behind"
_ONE: Final = Fraction(1)
_RARE: Final[dict[str, Any]] = {
    "trials": 36_000,
    "reachable": 0.93,
    "why": "the chosen candidate takes a share of the odds itself; all of ε needs many candidates",
}
_NOES: Final = "only infinitely many no's would use all of the threshold's share"


def _first(outputs: Floats) -> Floats:
    """The first candidate was chosen."""
    return np.asarray(outputs[:, 0] == 0, np.float64)


def _below(outputs: Floats) -> Floats:
    """The median was found below the only value that both neighbours hold."""
    return np.asarray(outputs[:, 0] < 5, np.float64)


def _exponential() -> Audit:
    choice = Exponential.for_epsilon(3, score_sensitivity=1)
    pair = choice, weaker(choice, factor=_MORE)
    return each("exponential", pair, _LEADS, _AGAINST, moved=_ONE, event=_first, **_RARE)


def _permute_and_flip() -> Audit:
    choice = PermuteAndFlip.for_epsilon(3, score_sensitivity=1)
    pair = choice, weaker(choice, factor=_MORE)
    return each("permute-and-flip", pair, _LEADS, _AGAINST, moved=_ONE, event=_first, **_RARE)


def _top_k() -> Audit:
    choice = TopK.for_epsilon(3, k=2, score_sensitivity=1)
    pair = choice, weaker(choice, factor=Fraction(3, 2))
    cells = (1, 1, *[0] * 10), (0, 0, *[1] * 10)
    words = "12 candidates: two of them 1 ahead of all others, and 1 behind; both are chosen"
    return each(
        "top-k", pair, cells, words, width=2, moved=_ONE, trials=36_000, reachable=0.86,
        event=lambda outputs: (outputs < 2).all(1).astype(float),
        broken_words="a third too little noise", why=_RARE["why"],
    )  # fmt: skip


def _noisy_max() -> Audit:
    choice = NoisyMax.for_epsilon(2, k=1, score_sensitivity=1)
    pair = choice, weaker(choice, factor=_MORE)
    words = "two candidates: the first 10 ahead of the second, and 8 ahead"
    cells = (10, 0), (9, 1)
    return each(
        "noisy-max", pair, cells, words, width=2, moved=_ONE, trials=8_000,
        event=lambda outputs: ((outputs[:, 0] == 0) & (outputs[:, 1] >= 10)).astype(float),
    )  # fmt: skip


def _above_threshold() -> Audit:
    sparse = AboveThreshold.for_epsilon(4, threshold=0, sensitivity=1, cutoff=1)
    pair = sparse, weaker(sparse, threshold_scale=_FOUR_FIFTHS, query_scale=_FOUR_FIFTHS)
    words = "questions at (-1, -1, -1, 0) and (0, 0, 0, -1) of the threshold: three no's, then yes"
    return each(
        "above-threshold", pair, ((-1, -1, -1, 0), (0, 0, 0, -1)), words, width=4, moved=_ONE,
        event=_late, trials=36_000, reachable=0.92, why=_NOES,
    )  # fmt: skip


def _outside_band() -> Audit:
    band = OutsideBand.for_epsilon(4, threshold=8, sensitivity=1, cutoff=1)
    pair = band, weaker(band, threshold_scale=_FOUR_FIFTHS, query_scale=_FOUR_FIFTHS)
    words = "differences (7, 7, 7, 8) and (8, 8, 8, 8) for a band up to 8: three no's, then above"
    return each(
        "outside-band", pair, ((7, 7, 7, 8), (8, 8, 8, 8)), words, width=4, moved=_ONE,
        event=_late, trials=16_000, reachable=0.97, why=_NOES,
    )  # fmt: skip


def _late(outputs: Floats) -> Floats:
    """Three no's, then a yes."""
    return np.asarray(outputs == [0, 0, 0, 1]).all(1, np.float64)


def _quantile() -> Audit:
    middle = Quantile.for_epsilon(3, tau="1/2", low=0, high=99)
    pair = middle, weaker(middle, factor=_MORE)
    words = "one value at 5 of 0, …, 99, without and with one at 99: few points lie below"
    return each("quantile", pair, ((5,), (5, 99)), words, event=_below, **_RARE)


def _quantiles() -> Audit:
    pair = tuple(
        Quantiles(
            taus=(Fraction(1, 2), Fraction(3, 4)), low=0, high=99, tie_bits=0,
            epsilon_levels=(times * Fraction(27, 10), times * Fraction(3, 10)),
        )
        for times in (Fraction(1), Fraction(3, 2))
    )  # fmt: skip
    words = "a value at 5 of 0, …, 99, without and with one at 99; nine tenths of ε on the median"
    return each(
        "quantiles", (pair[0], pair[1]), ((5,), (5, 99)), words, width=2, trials=12_000,
        reachable=0.85, event=_below,
        why="the second level chooses among points that the first left",
        broken_words="half as much ε again",
    )  # fmt: skip


def _furthest() -> Audit:
    choice = Furthest.for_epsilon(3, guesses=(1, *[10] * _OTHERS), score_sensitivity=1)
    pair = choice, weaker(choice, factor=_MORE)
    words = "20 answers of 6 and of 5; the first guess is 1, all others 10"
    return each("furthest", pair, ((6,) * 20, (5,) * 20), words, moved=_ONE, event=_first, **_RARE)


def _small_database() -> Audit:
    cells = 16
    questions = [int(row == column) for row in range(cells) for column in range(cells)]
    choice = SmallDatabase.for_epsilon(
        3, questions=questions, cells=cells, size=1, rows=10, score_sensitivity=1
    )
    pair = choice, weaker(choice, factor=_MORE)
    words = "16 answers: the first database of one row 1 nearer than all others, and 1 further"
    near, far = (1, *[0] * 15), (0, *[1] * 15)
    return each("small-database", pair, (near, far), words, moved=_ONE, event=_first, **_RARE)


def _splits() -> Audit:
    from noisegate.privacy.distance import L1  # noqa: PLC0415 - one use

    size, parts = 101, 200
    boxes = [(size * part, size * part + size - 1, 0) for part in range(parts)]
    choice = Splits.for_epsilon(3, shape=(size * parts,), boxes=boxes)
    pair = choice, weaker(choice, factor=_MORE)
    cells = (10, 1, *[0] * (size - 2)), (10, *[0] * (size - 1))
    words = "10 rows in the first of 101 cells, with and without one in the second"
    return many(
        "splits", pair, cells, words, kind=Blocks, moved=L1(1),
        event=lambda outputs: (outputs[:, 0] == 1).astype(float), **_RARE,
    )  # fmt: skip


def _winsorised() -> Audit:
    honest = Winsorised(factor=Fraction(1, 20), scale=Fraction(5, 9), high=POINTS)
    pair = honest, replace(honest, factor=honest.factor * 2, scale=honest.scale / 2)
    cells = (POINTS, *[0, POINTS] * 10), (0, *[0, POINTS] * 10)
    words = f"21 numbers at both ends of 0, …, {POINTS}; one of them changes from end to end"
    return each(
        "winsorised", pair, cells, words, width=3, reachable=0.9, trials=3_000,
        broken_words="half of the noise",
        event=lambda outputs: outputs[:, 0] - 11 * (outputs[:, 2] - outputs[:, 1]) + 0.5,
        why="both quartiles are chosen too, for a tenth of ε, and hardly change",
    )  # fmt: skip


AUDITS: Final[dict[str, Callable[[], Audit]]] = {
    "exponential": _exponential,
    "permute-and-flip": _permute_and_flip,
    "top-k": _top_k,
    "noisy-max": _noisy_max,
    "furthest": _furthest,
    "small-database": _small_database,
    "splits": _splits,
    "quantile": _quantile,
    "quantiles": _quantiles,
    "winsorised": _winsorised,
    "above-threshold": _above_threshold,
    "outside-band": _outside_band,
}
