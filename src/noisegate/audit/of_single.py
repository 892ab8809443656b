"""Audits of noise, of what passes a threshold, and of choices by score, quantiles, sparse vectors.

Exponential choices have log-ratios with a range of ε, so no one event spends all of it: where
its chance falls from p to q, ln p/q = ε + ln (1 - p) / (1 - q). A p of about a fifth needs the
fewest runs to tell ε from 5/4 of it. Exponential noise has no such loss. Chances are known exactly,
so `reachable` is derived, and so is how many runs a copy with a fifth too little noise needs.
"""

from collections.abc import Callable
from fractions import Fraction
from math import exp, log
from typing import Any, Final

import numpy as np

from noisegate.accounting.crowd import histogram_delta
from noisegate.audit.audit import Audit
from noisegate.audit.confidence import Floats, curve_claims
from noisegate.audit.draws import AtLeast, Blocks, each, many
from noisegate.frozen import replace
from noisegate.mechanisms.additive.biased_crowd import BiasedCrowd
from noisegate.mechanisms.additive.box_noise import BoxNoise
from noisegate.mechanisms.additive.crowd_counts import CrowdCounts
from noisegate.mechanisms.additive.gaussian import DiscreteGaussian
from noisegate.mechanisms.additive.geometric import Geometric
from noisegate.mechanisms.additive.laplace import Laplace
from noisegate.mechanisms.additive.least_sum import LeastSum
from noisegate.mechanisms.additive.rounded_gaussian import RoundedGaussian
from noisegate.mechanisms.additive.truncated_geometric import TruncatedGeometric
from noisegate.mechanisms.keys.key_selection import (
    KeySelection,
    ThresholdedGaussian,
    ThresholdedGeometric,
)
from noisegate.mechanisms.keys.sparse_geometric import SparseGeometric
from noisegate.mechanisms.keys.sparse_priority import SparsePriority
from noisegate.mechanisms.partitions.furthest import Furthest
from noisegate.mechanisms.partitions.small_database import SmallDatabase
from noisegate.mechanisms.partitions.splits import Splits
from noisegate.mechanisms.partitions.unevenness import Unevenness
from noisegate.mechanisms.quantiles.brackets import EvenBrackets
from noisegate.mechanisms.quantiles.quantile import Quantile
from noisegate.mechanisms.quantiles.quantiles import Quantiles
from noisegate.mechanisms.quantiles.winsorised import POINTS, Winsorised
from noisegate.mechanisms.selection.above_threshold import AboveThreshold
from noisegate.mechanisms.selection.exponential import Exponential
from noisegate.mechanisms.selection.noisy_max import NoisyMax
from noisegate.mechanisms.selection.outside_band import OutsideBand
from noisegate.mechanisms.selection.permute_and_flip import PermuteAndFlip
from noisegate.mechanisms.selection.prior import PriorExponential
from noisegate.mechanisms.selection.stretches import StretchChoice
from noisegate.mechanisms.selection.top_k import TopK
from noisegate.planning.calibrate import discrete_gaussian_count_delta_up, gaussian_delta_up
from noisegate.privacy.distance import L1, L2, LInf1

_MORE: Final = Fraction(5, 4)
_OTHERS: Final = 30
_ONE: Final = Fraction(1)
_SHARED: Final = (
    "the chosen candidate's own weight changes the odds too; all of ε needs many candidates"
)
_NOES: Final = "only infinitely many no's would use all of the threshold's share"


def _rarely(epsilon: int, others: float, trials: int) -> dict[str, Any]:
    """One candidate, e^(ε/2) ahead of so many others and as far behind: its odds are e^ε to 1."""
    lead = exp(epsilon / 2)
    ahead, behind = lead / (lead + others), 1 / (1 + lead * others)
    share = log(ahead / behind) / epsilon
    return {"event": _first, "trials": trials, "reachable": share, "why": _SHARED}


def _first(outputs: Floats) -> Floats:
    """The first candidate was chosen."""
    return np.asarray(outputs[:, 0] == 0, np.float64)


def _exponential() -> Audit:
    choice = Exponential.for_epsilon(3, score_sensitivity=1)
    scores = (1, *[0] * _OTHERS), (0, *[1] * _OTHERS)
    words = "31 candidates: the first 1 ahead of all others, and 1 behind"
    return each("exponential", choice, scores, words, moved=_ONE, **_rarely(3, _OTHERS, 100_000))


def _prior() -> Audit:
    """One other candidate of 30 times the weight is as 30 others."""
    weights = (1, _OTHERS)
    choice = PriorExponential.for_epsilon(3, score_sensitivity=1, weights=weights)
    words = "two candidates, the second of 30 times the weight: the first 1 ahead, and 1 behind"
    chances = _rarely(3, _OTHERS, 100_000)
    return each("prior-exponential", choice, ((1, 0), (0, 1)), words, moved=_ONE, **chances)


def _stretch_choice() -> Audit:
    """A unit holds one of 201 points: with it, e^ε to 200 others; without it, 1 to 200."""
    others, ahead = 200, exp(3) / (exp(3) + 200)
    choice = StretchChoice.for_epsilon(3, rows=1, reach=101, whole=1)
    cells = (-100, -100, 0, 1), ()
    words = "one row that holds the first of 201 points, and no row"
    return each(
        "stretch-choice", choice, cells, words, moved=L1(1), event=_first, trials=100_000,
        reachable=log(ahead * (1 + others)) / 3, why=_SHARED,
    )  # fmt: skip


def _permute_and_flip() -> Audit:
    """Who is d behind one other wins with e^(-factor d) / 2: from d = 0 to 2 that is all of ε."""
    choice = PermuteAndFlip.for_epsilon(2, score_sensitivity=1)
    words = "two candidates: level, and the first 2 behind"
    return each(
        "permute-and-flip", choice, ((1, 1), (0, 2)), words, moved=_ONE, event=_first, trials=40_000
    )


def _top_k() -> Audit:
    """With odds x of each of the two to all others, both come first with 2x² / (2x + 1)(x + 1)."""
    others, trials = 15, 1_000_000
    choice = TopK.for_epsilon(3, k=2, score_sensitivity=1)
    odds = [exp(lead * float(choice.factor)) / others for lead in (1, -1)]
    ahead, behind = (2 * x * x / ((2 * x + 1) * (x + 1)) for x in odds)
    cells = (1, 1, *[0] * others), (0, 0, *[1] * others)
    words = "17 candidates: two of them 1 ahead of all others, and 1 behind; both are chosen"
    return each(
        "top-k", choice, cells, words, width=2, moved=_ONE, trials=trials,
        event=lambda outputs: (outputs < 2).all(1).astype(float),
        reachable=log(ahead / behind) / 3, why=_SHARED,
    )  # fmt: skip


def _noisy_max() -> Audit:
    """A lead of 10 and more needs noise that is 0, or 2, ahead: 1/2 and e^(-2 factor) / 2."""
    choice = NoisyMax.for_epsilon(2, k=1, score_sensitivity=1)
    words = "two candidates: the first 10 ahead of the second, and 8 ahead"
    cells = (10, 0), (9, 1)
    return each(
        "noisy-max", choice, cells, words, width=2, moved=_ONE, trials=40_000,
        event=lambda outputs: ((outputs[:, 0] == 0) & (outputs[:, 1] >= 10)).astype(float),
    )  # fmt: skip


def _above_threshold() -> Audit:
    """The chances, 0.337 and 0.0085, are sums over the threshold's noise."""
    sparse = AboveThreshold.for_epsilon(4, threshold=0, sensitivity=1, cutoff=1)
    words = "questions at (-1, -1, -1, 0) and (0, 0, 0, -1) of the threshold: three no's, then yes"
    return each(
        "above-threshold", sparse, ((-1, -1, -1, 0), (0, 0, 0, -1)), words, width=4, moved=_ONE,
        event=_late, trials=100_000, reachable=0.92, why=_NOES,
    )  # fmt: skip


def _outside_band() -> Audit:
    """Likewise; the other end is too far away to matter."""
    band = OutsideBand.for_epsilon(4, threshold=8, sensitivity=1, cutoff=1)
    words = "differences (7, 7, 7, 8) and (8, 8, 8, 8) for a band up to 8: three no's, then above"
    return each(
        "outside-band", band, ((7, 7, 7, 8), (8, 8, 8, 8)), words, width=4, moved=_ONE,
        event=_late, trials=100_000, reachable=0.97, why=_NOES,
    )  # fmt: skip


def _late(outputs: Floats) -> Floats:
    """Three no's, then a yes."""
    return np.asarray((outputs == np.array([0, 0, 0, 1])).all(1), np.float64)


_VALUE: Final = 20
_LAST: Final = 99
_TWO_VALUES: Final = ((_VALUE,), (_VALUE, _LAST))


def _below(outputs: Floats) -> Floats:
    """The median was found below the value that both neighbours hold."""
    return np.asarray(outputs[:, 0] < _VALUE, np.float64)


def _below_chances(factor: float) -> tuple[float, float]:
    """Of one value all other points are half a rank off; of two those below are one rank off."""
    half = exp(-factor / 2)
    below, above = _VALUE, _LAST - _VALUE
    one = below * half / (1 + (below + above) * half)
    return one, below * half**2 / (1 + above + below * half**2)


def _quantile() -> Audit:
    middle = Quantile.for_epsilon(3, tau="1/2", low=0, high=_LAST)
    one, two = _below_chances(3)
    words = "one value at 20 of 0, …, 99, without and with one at 99: few points lie below"
    return each(
        "quantile", middle, _TWO_VALUES, words, event=_below, trials=120_000,
        reachable=log(one / two) / 3, why=_SHARED,
    )  # fmt: skip


def _quantiles() -> Audit:
    first, second = Fraction(57, 20), Fraction(3, 20)
    pair = tuple(
        Quantiles(
            taus=(Fraction(1, 2), Fraction(3, 4)), low=0, high=_LAST, tie_bits=0,
            epsilon_levels=(times * first, times * second),
        )
        for times in (_ONE, _MORE)
    )  # fmt: skip
    one, two = _below_chances(float(first))
    words = "a value at 20 of 0, …, 99, without and with one at 99; 19/20 of ε on the median"
    return each(
        "quantiles", (pair[0], pair[1]), _TWO_VALUES, words, width=2, trials=260_000,
        reachable=log(one / two) / 3, event=_below,
        why="the second level, a twentieth of ε, chooses among points that the first left",
    )  # fmt: skip


def _brackets() -> Audit:
    middle = EvenBrackets.for_epsilon(3, taus=("1/2",), low=0, high=_LAST)
    pair = middle, replace(middle, factors=(_MORE * middle.factors[0],))
    one, two = _below_chances(3)  # of so few values all radii are as good as each other
    words = "one value at 20 of 0, …, 99, without and with one at 99: few points lie below"
    return each(
        "brackets", pair, _TWO_VALUES, words, width=2, event=_below, trials=120_000,
        reachable=log(one / two) / 3, why=_SHARED,
    )  # fmt: skip


def _furthest() -> Audit:
    choice = Furthest.for_epsilon(3, guesses=(1, *[10] * _OTHERS), score_sensitivity=1)
    words = "31 answers of 6 and of 5; the first guess is 1, all others 10"
    cells = (6,) * (_OTHERS + 1), (5,) * (_OTHERS + 1)
    return each("furthest", choice, cells, words, moved=_ONE, **_rarely(3, _OTHERS, 100_000))


def _small_database() -> Audit:
    cells, others = 16, 15
    questions = [int(row == column) for row in range(cells) for column in range(cells)]
    choice = SmallDatabase.for_epsilon(
        3, questions=questions, cells=cells, size=1, rows=10, score_sensitivity=1
    )
    words = "16 answers: the first database of one row 1 nearer than all others, and 1 further"
    near, far = (1, *[0] * others), (0, *[1] * others)
    return each(
        "small-database", choice, (near, far), words, moved=_ONE, **_rarely(3, others, 120_000)
    )


def _splits() -> Audit:
    """Cuts behind the second cell lose 2 · factor = ε to the first cut when a row is there."""
    size, parts = 101, 200
    boxes = [(size * part, size * part + size - 1, 0) for part in range(parts)]
    choice = Splits.for_epsilon(3, shape=(size * parts,), boxes=boxes)
    cells = (10, 1, *[0] * (size - 2)), (10, *[0] * (size - 1))
    others, lead = size - 2, exp(3)
    words = "10 rows in the first of 101 cells, with and without one in the second"
    return many(
        "splits", choice, cells, words, kind=Blocks, moved=L1(1), trials=100_000,
        event=lambda outputs: (outputs[:, 0] == 1).astype(float),
        reachable=log(lead / (lead + others) * (1 + others)) / 3, why=_SHARED,
    )  # fmt: skip


def _winsorised() -> Audit:
    """So many numbers that quartiles are 0 and `POINTS` but for two in a million runs."""
    half = 800
    honest = Winsorised(factor=Fraction(1, 20), scale=Fraction(5, 9), high=POINTS)
    cells = (POINTS, *[0, POINTS] * half), (0, *[0, POINTS] * half)
    words = f"1,601 numbers at both ends of 0, …, {POINTS}; one of them changes from end to end"
    return each(
        "winsorised", honest, cells, words, width=3, reachable=0.9, trials=60_000,
        event=lambda outputs: outputs[:, 0] - (half + 1) * (outputs[:, 2] - outputs[:, 1]) + 0.5,
        why="both quartiles are chosen too, for a tenth of ε, and hardly change",
    )  # fmt: skip


_EPSILONS: Final = (Fraction(1, 2), Fraction(1), Fraction(3, 2))


def _discrete_gaussian() -> Audit:
    noise = DiscreteGaussian(variance=Fraction(1))
    claims = curve_claims(
        lambda epsilon: discrete_gaussian_count_delta_up(epsilon, variance=noise.variance),
        _EPSILONS,
    )
    return many("discrete-gaussian", noise, ((1,), (0,)), "counts of 1 and of 0", claims=claims)


def _gaussian() -> Audit:
    noise = RoundedGaussian(sigma=Fraction(20))
    moved = L2(squared=Fraction(400))
    claims = curve_claims(
        lambda epsilon: gaussian_delta_up(epsilon, variance=Fraction(400), sensitivity=moved),
        _EPSILONS,
    )
    return many("gaussian", noise, ((20,), (0,)), "sums of 20 and of 0", claims=claims)


def _thresholded() -> Audit:
    keys = ThresholdedGeometric.for_budget(1, "0.001", keys_per_unit=1)
    count = keys.threshold + 2
    words = f"a key of {count} units and of {count - 1}"
    return many("thresholded-geometric", keys, ((count,), (count - 1,)), words)


def _thresholded_gaussian() -> Audit:
    """Where both neighbours have the key, shown counts are a part of counts with Gaussian noise."""
    keys = ThresholdedGaussian.for_budget(Fraction(1, 2), "0.001", keys_per_unit=1)
    claims = curve_claims(
        lambda epsilon: discrete_gaussian_count_delta_up(epsilon, variance=keys.variance), _EPSILONS
    )
    count = keys.threshold + 2
    words = f"a key of {count} units and of {count - 1}"
    return many("thresholded-gaussian", keys, ((count,), (count - 1,)), words, claims=claims)


def _crowd() -> Audit:
    chance, crowd, epsilon = Fraction(1, 2), 5, Fraction(4, 5)
    counts = CrowdCounts(probability=chance, crowd=crowd, epsilon=epsilon)
    claims = {float(histogram_delta(chance, crowd, epsilon)): float(epsilon)}
    pair = counts, replace(counts, probability=Fraction(3, 5))
    return many(
        "crowd-counts", pair, ((6,), (5,)), "a group of 6 people and of 5", claims=claims,
        broken_words="3 of 5 people in the sample instead of 1 of 2",
    )  # fmt: skip


def _biased_crowd() -> Audit:
    chances, crowd, epsilon = (Fraction(1, 2), Fraction(1, 3)), 5, Fraction(4, 5)
    counts = BiasedCrowd(probabilities=chances, inner=1, apart=True, crowd=crowd, epsilon=epsilon)
    claims = {float(max(histogram_delta(p, crowd, epsilon) for p in chances)): float(epsilon)}
    pair = counts, replace(counts, probabilities=(Fraction(3, 5), Fraction(1, 3)))
    words = "a group of 6 people and of 5, beside one that is sampled less"
    return many(
        "biased-crowd", pair, ((6, 4), (5, 4)), words, claims=claims,
        broken_words="3 of 5 people in the sample instead of 1 of 2",
    )  # fmt: skip


_A_KEY: Final = KeySelection(epsilon=Fraction(1), delta=Fraction(1, 20))
_LOOSE: Final = Fraction(1, 16)  # a quarter more than its δ
_COUNTS: Final = "counts of 1 and of 0"

AUDITS: Final[dict[str, Callable[[], Audit]]] = {
    "geometric": lambda: many(
        "geometric", Geometric(scale=Fraction(1)), ((1,), (0,)), _COUNTS, moved=L1(1)
    ),
    "truncated-geometric": lambda: many(
        "truncated-geometric", TruncatedGeometric(scale=Fraction(1), top=5), ((1,), (0,)), _COUNTS,
        moved=L1(1),
    ),
    "laplace": lambda: many(
        "laplace", Laplace(scale=Fraction(20)), ((20,), (0,)), "sums of 20 and of 0", moved=L1(20)
    ),
    "box-noise": lambda: many(
        "box-noise", BoxNoise(scale=Fraction(4), width=3), ((4, 4, 4), (0, 0, 0)),
        "cells of (4, 4, 4) and of (0, 0, 0): the largest change of any number is 4",
        moved=LInf1(4),
    ),
    "discrete-gaussian": _discrete_gaussian,
    "gaussian": _gaussian,
    "key-selection": lambda: many(
        "key-selection", (_A_KEY, KeySelection(epsilon=Fraction(5, 4), delta=_LOOSE)), ((2,), (1,)),
        "a key of 2 units and of 1", broken_words="as if ε and δ were a quarter more",
    ),
    "key-selection of one unit": lambda: many(  # the δ itself: a key that one unit alone holds
        "key-selection of one unit", (_A_KEY, replace(_A_KEY, delta=_LOOSE)), ((1,), (0,)),
        "a key of 1 unit and of none", reachable=0.0,
        why="all of it is δ: the key is never shown without the unit",
        broken_words="a δ that is a quarter more",
    ),
    "thresholded-geometric": _thresholded,
    "thresholded-gaussian": _thresholded_gaussian,
    "least-sum": lambda: each(
        "least-sum", LeastSum(scale=Fraction(1, 2)), ((1, 1, 1), (0, 0, 0)),
        "sums of 1 each, and of 0 each", event=AtLeast(1),
    ),
    "unevenness": lambda: each(
        "unevenness", Unevenness(scale=Fraction(1, 2), parts=2), ((5, 0), (4, 0)),
        "cells (5, 0) and (4, 0)", moved=L1(1), event=AtLeast(5),
    ),
    "sparse-geometric": lambda: each(
        "sparse-geometric",
        SparseGeometric.for_epsilon(2, sensitivity=L1(1), domain=8, threshold=1),
        ((1, 0, 0, 0, 0, 0, 0, 0), (0,) * 8),
        "one row in the first of 8 cells, and none: the cell is listed, or one of the empty",
        width=8, moved=L1(1), event=AtLeast(1),
    ),
    "sparse-priority": lambda: each(
        "sparse-priority",
        SparsePriority.for_epsilon(2, sensitivity=L1(1), domain=4, threshold=1, size=4),
        ((1, 0, 0, 0), (0, 0, 0, 0)), "one row in the first of 4 cells, and none",
        width=4, moved=L1(1), event=AtLeast(1), trials=8_000,
    ),
    "crowd-counts": _crowd,
    "biased-crowd": _biased_crowd,
    "exponential": _exponential,
    "prior-exponential": _prior,
    "stretch-choice": _stretch_choice,
    "permute-and-flip": _permute_and_flip,
    "top-k": _top_k,
    "noisy-max": _noisy_max,
    "furthest": _furthest,
    "small-database": _small_database,
    "splits": _splits,
    "quantile": _quantile,
    "quantiles": _quantiles,
    "brackets": _brackets,
    "winsorised": _winsorised,
    "above-threshold": _above_threshold,
    "outside-band": _outside_band,
}  # fmt: skip
