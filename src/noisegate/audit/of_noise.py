"""Audits of mechanisms that add noise, or show what passes a threshold."""

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Final

from noisegate.accounting.crowd import histogram_delta
from noisegate.audit.audit import Audit
from noisegate.audit.confidence import curve_claims
from noisegate.audit.draws import AtLeast, each, many
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
from noisegate.mechanisms.partitions.unevenness import Unevenness
from noisegate.planning.calibrate import discrete_gaussian_count_delta_up, gaussian_delta_up
from noisegate.privacy.distance import L1, L2, LInf1

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
_MORE: Final = Fraction(1, 16)  # a quarter more than its δ
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
        "key-selection", (_A_KEY, KeySelection(epsilon=Fraction(5, 4), delta=_MORE)), ((2,), (1,)),
        "a key of 2 units and of 1", broken_words="as if ε and δ were a quarter more",
    ),
    "key-selection of one unit": lambda: many(  # the δ itself: a key that one unit alone holds
        "key-selection of one unit", (_A_KEY, replace(_A_KEY, delta=_MORE)), ((1,), (0,)),
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
}  # fmt: skip
