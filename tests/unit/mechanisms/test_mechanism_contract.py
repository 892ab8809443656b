"""What all mechanisms promise: checked parameters, exact prices, plain records, no wrap-around."""

import json
from dataclasses import FrozenInstanceError, fields
from fractions import Fraction

import numpy as np
import pytest

from noisegate.accounting.pure import pure_loss
from noisegate.accounting.zcdp import ZCDPAccountant
from noisegate.errors import SpecError
from noisegate.mechanisms.additive.biased_crowd import BiasedCrowd
from noisegate.mechanisms.additive.box_noise import BoxNoise
from noisegate.mechanisms.additive.crowd_counts import CrowdCounts
from noisegate.mechanisms.additive.gaussian import DiscreteGaussian
from noisegate.mechanisms.additive.geometric import Geometric
from noisegate.mechanisms.additive.laplace import Laplace
from noisegate.mechanisms.additive.least_sum import LeastSum
from noisegate.mechanisms.additive.rounded_gaussian import RoundedGaussian
from noisegate.mechanisms.additive.truncated_geometric import TruncatedGeometric
from noisegate.mechanisms.base import INPUT_MAX, NoiseMechanism, to_record
from noisegate.mechanisms.catalogue import all_kinds, from_record
from noisegate.mechanisms.keys.key_selection import (
    KeySelection,
    ThresholdedGaussian,
    ThresholdedGeometric,
)
from noisegate.mechanisms.keys.sparse_geometric import SparseGeometric
from noisegate.mechanisms.keys.sparse_priority import SparsePriority
from noisegate.mechanisms.objective.perturbed_logistic import PerturbedLogistic
from noisegate.mechanisms.partitions.dawa_partition import DawaPartition
from noisegate.mechanisms.partitions.fourier_cut import FourierCut
from noisegate.mechanisms.partitions.furthest import Furthest
from noisegate.mechanisms.partitions.privtree import PrivTree
from noisegate.mechanisms.partitions.small_database import SmallDatabase
from noisegate.mechanisms.partitions.splits import Splits
from noisegate.mechanisms.partitions.unevenness import Unevenness
from noisegate.mechanisms.quantiles.brackets import Brackets, EvenBrackets
from noisegate.mechanisms.quantiles.quantile import Quantile
from noisegate.mechanisms.quantiles.quantiles import Quantiles
from noisegate.mechanisms.quantiles.winsorised import Winsorised
from noisegate.mechanisms.selection.above_threshold import AboveThreshold
from noisegate.mechanisms.selection.exponential import Exponential
from noisegate.mechanisms.selection.noisy_max import NoisyMax
from noisegate.mechanisms.selection.outside_band import OutsideBand
from noisegate.mechanisms.selection.permute_and_flip import PermuteAndFlip
from noisegate.mechanisms.selection.prior import PriorExponential
from noisegate.mechanisms.selection.stretches import StretchChoice
from noisegate.mechanisms.selection.top_k import TopK
from noisegate.mechanisms.smooth.barred import Barred
from noisegate.mechanisms.smooth.estimators import LocalHuber, LocalTrimmedMean
from noisegate.mechanisms.smooth.graph_numbers import GraphNumber, LocalGraph, WeightedCut
from noisegate.mechanisms.smooth.local_quantile import LocalQuantile
from noisegate.mechanisms.smooth.propose import ProposeTestRelease
from noisegate.mechanisms.smooth.smooth import SmoothLaplace, SmoothLognormal, SmoothStudent
from noisegate.privacy.distance import L1, L2, LInf1
from noisegate.privacy.loss import ApproxDP

THIRD = Fraction(1, 3)
EXAMPLES = (
    Laplace(scale=THIRD),
    Geometric(scale=Fraction(7, 2)),
    TruncatedGeometric(scale=THIRD, top=9),
    BoxNoise(scale=Fraction(7, 2), width=1),
    DiscreteGaussian(variance=THIRD),
    RoundedGaussian(sigma=Fraction(5)),
    Exponential(factor=THIRD, monotone=True),
    PriorExponential(factor=THIRD, weights=(3, 0, 1)),
    StretchChoice(factor=THIRD, reach=9, whole=1),
    PermuteAndFlip(factor=THIRD),
    TopK(k=3, factor=THIRD),
    NoisyMax(k=2, factor=THIRD, monotone=True),
    SmallDatabase(factor=THIRD, questions=(1, 0, 1, 1), cells=2, size=3, rows=40),
    AboveThreshold(threshold=-4, threshold_scale=THIRD, query_scale=THIRD, cutoff=2),
    Quantile(tau=THIRD, factor=THIRD, low=-6, high=6, step=3),
    Quantiles(taus=(THIRD, 2 * THIRD), epsilon_levels=(THIRD, THIRD), low=0, high=8),
    Brackets(taus=(THIRD, 2 * THIRD), factors=(THIRD, THIRD), low=-4, high=8, slack=THIRD),
    EvenBrackets(taus=(THIRD, 2 * THIRD), factors=(THIRD, THIRD), low=-4, high=8, slack=THIRD),
    KeySelection(epsilon=THIRD, delta=Fraction(1, 10**6)),
    ThresholdedGeometric(scale=THIRD, threshold=4),
    ThresholdedGaussian(variance=THIRD, threshold=4),
    PrivTree(scale=THIRD, decay=2, threshold=0, depth=3, shape=(4, 3)),
    Splits(factor=THIRD, shape=(4, 3), boxes=(0, 0, 3, 1, 0)),
    DawaPartition(scale=THIRD, penalty=7, sides=(4, 3)),
    FourierCut(factor=THIRD, cuts=(1, 3), noises=(0, 5), weights=(9, 2)),
    Unevenness(scale=THIRD, parts=8),
    SparseGeometric(scale=THIRD, domain=1 << 64, threshold=20, tau=30),
    SparsePriority(scale=THIRD, domain=1 << 40, threshold=8, size=5),
    OutsideBand(threshold=4, threshold_scale=THIRD, query_scale=THIRD, cutoff=2),
    Furthest(factor=THIRD, guesses=(5, -3)),
    CrowdCounts(probability=THIRD, crowd=5, epsilon=THIRD),
    BiasedCrowd(probabilities=(THIRD, THIRD / 2), inner=4, apart=True, crowd=5, epsilon=THIRD),
    SmoothStudent(scale=THIRD, beta=THIRD, low=0, high=9),
    SmoothLaplace(scale=7 * THIRD, beta=THIRD, epsilon=Fraction(1), low=-9, high=9),
    SmoothLognormal(scale=THIRD, beta=THIRD, sigma=THIRD, low=0, high=9),
    ProposeTestRelease(bound=3, test_scale=THIRD, threshold=8, scale=THIRD, low=0, high=9),
    Barred(noise=SmoothStudent(scale=THIRD, beta=THIRD, low=0, high=9), bar=Fraction(48)),
    LocalQuantile(tau=THIRD, noise=SmoothStudent(scale=THIRD, beta=THIRD, low=0, high=9)),
    LocalTrimmedMean(trim=THIRD, noise=SmoothStudent(scale=THIRD, beta=THIRD, low=0, high=9)),
    LocalHuber(clip=3, noise=SmoothStudent(scale=THIRD, beta=THIRD, low=0, high=9)),
    LeastSum(scale=THIRD),
    PerturbedLogistic(
        columns=2, classes=3, reach=9, whole=1, penalty=THIRD, scale=THIRD, digits=9, blur=THIRD
    ),
    Winsorised(factor=THIRD, scale=THIRD, high=2048, spread=3),
    GraphNumber(statistic="capped-edges", vertices=9, noise=Geometric(scale=THIRD), cap=3),
    WeightedCut(vertices=9, levels=4, base=2, noise=Geometric(scale=THIRD)),
    LocalGraph(
        statistic="spanning-tree",
        vertices=9,
        levels=4,
        noise=SmoothStudent(scale=THIRD, beta=THIRD, low=0, high=9),
    ),
)
NOISES = [example for example in EXAMPLES if isinstance(example, NoiseMechanism)]


def named(example):
    return example.name


@pytest.mark.parametrize("mechanism", EXAMPLES, ids=named)
def test_a_record_survives_json_and_comes_back_equal(mechanism):
    assert from_record(json.loads(json.dumps(to_record(mechanism)))) == mechanism


@pytest.mark.parametrize("mechanism", EXAMPLES, ids=named)
def test_a_mechanism_cannot_be_changed(mechanism):
    with pytest.raises((FrozenInstanceError, AttributeError)):
        setattr(mechanism, fields(mechanism)[0].name, 1)


def test_every_mechanism_in_the_catalogue_is_exemplified_here():
    assert {type(example) for example in EXAMPLES} == set(all_kinds().values())


@pytest.mark.parametrize(
    "record",
    [
        {"mechanism": "lotto/1"},
        {},
        {"mechanism": "geometric/1"},
        {"mechanism": "geometric/1", "scale": "1", "seed": "1"},
        {"mechanism": "geometric/1", "scale": "one"},
        {"mechanism": "geometric/1", "scale": "1/0"},
        {"mechanism": "geometric/1", "scale": None},
        {"mechanism": "quantiles/1", **dict.fromkeys(("taus", "epsilon_levels"), 3)},
    ],
)
def test_a_record_that_is_not_fully_understood_is_refused(record):
    with pytest.raises(SpecError):
        from_record(record)


GRID = {"low": 0, "high": 10}
SMALL = {"questions": (1, 0), "cells": 2, "size": 2, "rows": 9}
REFUSED = [
    lambda: Laplace(scale=0),
    lambda: Laplace(scale="1e-4"),
    lambda: Laplace(scale=1 << 51),
    lambda: Laplace.for_epsilon(0, sensitivity=L1(1)),
    lambda: Geometric(scale=-1),
    lambda: Geometric(scale=float("nan")),
    lambda: Geometric(scale=1 << 51),
    lambda: Geometric.for_epsilon(1, sensitivity=L1(0)),
    lambda: TruncatedGeometric(scale=0, top=3),
    lambda: TruncatedGeometric(scale=1, top=0),
    lambda: TruncatedGeometric(scale=1, top=True),
    lambda: TruncatedGeometric(scale=1, top=3).mass(4, 0),
    lambda: DiscreteGaussian(variance=0),
    lambda: DiscreteGaussian(variance=1 << 93),
    lambda: DiscreteGaussian.for_rho(0, sensitivity=L2(squared=1)),
    lambda: RoundedGaussian(sigma=0),
    lambda: RoundedGaussian(sigma=1 << 51),
    lambda: Exponential(factor=0),
    lambda: Exponential(factor=1 << 41),
    lambda: Exponential(factor=1, monotone=1),
    lambda: Exponential.for_epsilon(1, score_sensitivity=0),
    lambda: Exponential(factor=1).event(Fraction(0)),
    lambda: Exponential(factor=1).shortfall("0.9", candidates=0),
    lambda: PermuteAndFlip(factor=0),
    lambda: PermuteAndFlip(factor=1, monotone="yes"),
    lambda: TopK(k=0, factor=1),
    lambda: TopK(k=1, factor=0),
    lambda: TopK(k=1, factor=1, monotone=None),
    lambda: TopK.for_epsilon(1, k=0, score_sensitivity=1),
    lambda: TopK(k=3, factor=1).shortfall("0.9", candidates=2),
    lambda: TopK(k=3, factor=1).sample(np.arange(2)),
    lambda: NoisyMax(k=0, factor=1),
    lambda: NoisyMax(k=1, factor=0),
    lambda: NoisyMax(k=1, factor=1, monotone=2),
    lambda: NoisyMax(k=3, factor=1).sample(np.arange(3)),
    lambda: NoisyMax(k=3, factor=1).shortfall("0.9", candidates=3),
    lambda: NoisyMax(k=1, factor=1).gap_error(1, candidates=3),
    lambda: SmallDatabase(factor=0, **SMALL),
    lambda: SmallDatabase(factor=1, **SMALL | {"questions": (1, 2)}),
    lambda: SmallDatabase(factor=1, **SMALL | {"questions": (1, 0, 1)}),
    lambda: SmallDatabase(factor=1, **SMALL | {"questions": ()}),
    lambda: SmallDatabase(factor=1, **SMALL | {"cells": 17}),
    lambda: SmallDatabase(factor=1, **SMALL | {"size": 7}),
    lambda: SmallDatabase(factor=1, **SMALL | {"rows": 0}),
    lambda: SmallDatabase(factor=1, **SMALL).sample(np.arange(3)),
    lambda: AboveThreshold(threshold=0.5, threshold_scale=1, query_scale=1, cutoff=1),
    lambda: AboveThreshold(threshold=1 << 62, threshold_scale=1, query_scale=1, cutoff=1),
    lambda: AboveThreshold(threshold=0, threshold_scale=0, query_scale=1, cutoff=1),
    lambda: AboveThreshold(threshold=0, threshold_scale=1, query_scale=0, cutoff=1),
    lambda: AboveThreshold(threshold=0, threshold_scale=1, query_scale=1, cutoff=0),
    lambda: AboveThreshold(threshold=0, threshold_scale=1, query_scale=1, cutoff=1, monotone=0),
    lambda: AboveThreshold.for_epsilon(1, threshold=0, sensitivity=0, cutoff=1),
    lambda: OutsideBand(threshold=-1, threshold_scale=1, query_scale=1, cutoff=1),
    lambda: OutsideBand(threshold=0, threshold_scale=1, query_scale=0, cutoff=1),
    lambda: OutsideBand(threshold=0, threshold_scale=1, query_scale=1, cutoff=0),
    lambda: OutsideBand.for_epsilon(1, threshold=0, sensitivity=0, cutoff=1),
    lambda: Furthest(factor=0, guesses=(1,)),
    lambda: Furthest(factor=1, guesses=()),
    lambda: Furthest(factor=1, guesses=(1 << 61,)),
    lambda: Furthest(factor=1, guesses=(1, 2)).sample(np.arange(3)),
    lambda: Quantile(tau="3/2", factor=1, **GRID),
    lambda: Quantile(tau=Fraction(1, 10**9 + 1), factor=1, **GRID),
    lambda: Quantile(tau="1/2", factor=0, **GRID),
    lambda: Quantile(tau="1/2", factor=1, low=10, high=10),
    lambda: Quantile(tau="1/2", factor=1, low=0, high=10, step=3),
    lambda: Quantile(tau="1/2", factor=1, low=0, high=10, step=0),
    lambda: Quantile(tau="1/2", factor=1, low=0, high=1 << 59),
    lambda: Quantile(tau="1/2", factor=1, low=0.0, high=10),
    lambda: Quantile(tau="1/2", factor=1, **GRID).event(0),
    lambda: Quantiles.for_epsilon(1, taus=(), **GRID),
    lambda: Quantiles.for_epsilon(1, taus=("1/2", "1/4"), **GRID),
    lambda: Quantiles.for_epsilon(1, taus=(0, "1/4"), **GRID),
    lambda: Quantiles(taus=("1/4", "1/2"), epsilon_levels=(1,), **GRID),
    lambda: Quantiles(taus=("1/2",), epsilon_levels=(0,), **GRID),
    lambda: Quantiles.for_epsilon(1, taus=("1/2",), low=0, high=1 << 57),
    lambda: Quantiles.for_epsilon(1, taus=("1/2",), tie_bits=17, **GRID),
    lambda: Quantiles.for_epsilon(
        1, taus=(Fraction(1, 999_999_937), Fraction(999_999_929, 10**9)), **GRID
    ),
    lambda: Brackets.for_epsilon(1, taus=(), **GRID),
    lambda: Brackets.for_epsilon(1, taus=(0,), **GRID),
    lambda: Brackets(taus=("1/2",), factors=(1, 1), **GRID),
    lambda: Brackets(taus=("1/2",), factors=(0,), **GRID),
    lambda: Brackets(taus=("1/2",), factors=(1 << 41,), **GRID),
    lambda: Brackets(taus=("1/2",), factors=(1,), low=0, high=0),
    lambda: Brackets(taus=("1/2",), factors=(1,), slack=2, **GRID),
    lambda: Brackets(taus=("1/2",), factors=(1,), slack=Fraction(1, 10**9 + 1), **GRID),
    lambda: Brackets(taus=("1/2",), factors=(1,), **GRID).event(0),
    lambda: KeySelection(epsilon=0, delta="1e-6"),
    lambda: KeySelection(epsilon=1, delta=0),
    lambda: KeySelection(epsilon=1, delta=1),
    lambda: KeySelection.for_budget(1, "1e-6", keys_per_unit=0),
    lambda: KeySelection(epsilon=1, delta="1e-6").event(0),
    lambda: ThresholdedGeometric(scale=0, threshold=1),
    lambda: ThresholdedGeometric(scale=1, threshold=0),
    lambda: ThresholdedGaussian(variance=0, threshold=2),
    lambda: ThresholdedGaussian(variance=1, threshold=1),
    lambda: ThresholdedGaussian.for_budget(1, "1e-6", keys_per_unit=0),
    lambda: SmoothStudent(scale=0, beta=1, **GRID),
    lambda: SmoothStudent(scale=1, beta="1e-5", **GRID),
    lambda: SmoothStudent(scale=1, beta=1, low=10, high=0),
    lambda: ProposeTestRelease(bound=1, test_scale=1, threshold=8, scale=1, low=10, high=10),
    lambda: SmoothStudent(scale=1, beta=1, low=0, high=1 << 51),
    lambda: SmoothStudent.for_epsilon(1, beta="1/3", **GRID),
    lambda: SmoothStudent(scale=1, beta=1, **GRID).event(0),
    lambda: SmoothLaplace(scale=1, beta=1, epsilon=1, **GRID),
    lambda: SmoothLaplace.for_budget(1, 1, **GRID),
    lambda: SmoothLaplace.for_budget(1, "1e-6", beta="1/2", **GRID),
    lambda: SmoothLognormal.for_rho("1/2", beta=2, **GRID),
    lambda: SmoothLognormal(scale=1, beta=1, sigma=3, **GRID),
    lambda: ProposeTestRelease.for_budget(1, 1, bound=3, **GRID),
    lambda: ProposeTestRelease.for_budget("1e-4", "1e-6", bound=3, **GRID),
    lambda: ProposeTestRelease.for_budget(1, "1e-6", bound=0, **GRID),
    lambda: ProposeTestRelease.for_budget(1, "1e-6", bound=11, **GRID),
    lambda: LocalQuantile(tau="1/2", noise=Geometric(scale=1)),
    lambda: LeastSum(scale=0),
    lambda: LeastSum(scale=1).event(Fraction(0)),
    lambda: GraphNumber(statistic="edges", vertices=9, noise=Laplace(scale=1)),
    lambda: GraphNumber(statistic="cliques", vertices=9, noise=Geometric(scale=1)),
    lambda: GraphNumber(statistic="edges", vertices=2, noise=Geometric(scale=1)),
    lambda: GraphNumber(statistic="edges", vertices=9, noise=Geometric(scale=1), cap=2),
    lambda: GraphNumber(statistic="capped-edges", vertices=9, noise=Geometric(scale=1)),
    lambda: GraphNumber(statistic="bipartite-distance", vertices=23, noise=Geometric(scale=1)),
    lambda: LocalGraph(statistic="triangles", vertices=9, noise=Geometric(scale=1)),
    lambda: LocalGraph(
        statistic="triangles", vertices=9, levels=2, noise=SmoothStudent(scale=1, beta=1, **GRID)
    ),
    lambda: Exponential(factor=1).sample(np.zeros(0, np.int64)),
    lambda: Geometric(scale=1).sample(np.zeros(2)),
    lambda: Geometric(scale=1).sample([1, 2]),
]


@pytest.mark.parametrize("make", REFUSED)
def test_a_bad_parameter_is_refused_with_a_fix(make):
    with pytest.raises(SpecError) as refusal:
        make()
    assert refusal.value.fix


@pytest.mark.parametrize("mechanism", NOISES, ids=named)
@pytest.mark.parametrize("confidence", [0, 1, -1, "3/2"])
def test_a_confidence_outside_zero_and_one_is_refused(mechanism, confidence):
    with pytest.raises(SpecError):
        mechanism.interval(confidence)


@pytest.mark.parametrize("mechanism", NOISES, ids=named)
def test_noise_keeps_shape_and_type_and_never_wraps(mechanism):
    exact = np.array([[np.iinfo(np.int64).min, 0], [5, np.iinfo(np.int64).max]])
    noisy = mechanism.sample(exact)
    assert noisy.shape == exact.shape
    assert noisy.dtype == np.int64
    if not isinstance(mechanism, TruncatedGeometric):
        assert -INPUT_MAX <= noisy[0, 0] < -INPUT_MAX + 10**6
        assert INPUT_MAX - 10**6 < noisy[1, 1] <= INPUT_MAX


@pytest.mark.parametrize("mechanism", NOISES, ids=named)
def test_sampling_leaves_the_exact_answers_untouched(mechanism):
    exact = np.arange(5)
    mechanism.sample(exact)
    assert exact.tolist() == [0, 1, 2, 3, 4]


EPSILON = Fraction(7, 30)


@pytest.mark.parametrize(
    "event",
    [
        Laplace.for_epsilon(EPSILON, sensitivity=L1(3)).event(L1(3)),
        Geometric.for_epsilon(EPSILON, sensitivity=L1(3)).event(L1(3)),
        TruncatedGeometric.for_epsilon(EPSILON, top=9, sensitivity=L1(3)).event(L1(3)),
        BoxNoise.for_epsilon(EPSILON, width=9, sensitivity=LInf1(3)).event(LInf1(3)),
        Exponential.for_epsilon(EPSILON, score_sensitivity=3).event(Fraction(3)),
        Exponential.for_epsilon(EPSILON, score_sensitivity=3, monotone=True).event(Fraction(3)),
        PermuteAndFlip.for_epsilon(EPSILON, score_sensitivity=3).event(Fraction(3)),
        TopK.for_epsilon(EPSILON, k=7, score_sensitivity=3).event(Fraction(3)),
        NoisyMax.for_epsilon(EPSILON, k=7, score_sensitivity=3).event(Fraction(3)),
        AboveThreshold.for_epsilon(EPSILON, threshold=5, sensitivity=3, cutoff=4).event(
            Fraction(3)
        ),
        AboveThreshold.for_epsilon(
            EPSILON, threshold=5, sensitivity=3, cutoff=4, monotone=True
        ).event(Fraction(3)),
        Quantile.for_epsilon(EPSILON, tau="1/5", values_per_unit=3, **GRID).event(3),
        Quantiles.for_epsilon(EPSILON, taus=("1/5", "1/2"), values_per_unit=3, **GRID).event(3),
        Brackets.for_epsilon(EPSILON, taus=("1/5", "1/2"), values_per_unit=3, **GRID).event(3),
    ],
    ids=lambda event: event.name,
)
def test_a_mechanism_made_for_epsilon_costs_exactly_epsilon(event):
    assert pure_loss(event) == ApproxDP(EPSILON, 0)


def test_key_selection_costs_exactly_its_budget():
    event = KeySelection.for_budget(EPSILON, "1e-6", keys_per_unit=5).event(5)
    assert pure_loss(event) == ApproxDP(EPSILON, "1e-6")


def test_thresholded_counts_cost_their_epsilon_and_at_most_their_delta():
    event = ThresholdedGeometric.for_budget(EPSILON, "1e-6", keys_per_unit=5).event(5)
    assert event.epsilon == EPSILON
    assert Fraction("9e-7") < event.delta <= Fraction("1e-6")


def test_thresholded_counts_with_gaussian_noise_cost_their_rho_and_at_most_their_delta():
    made = ThresholdedGaussian.for_budget("1/8", "1e-6", keys_per_unit=5)
    rho, delta = ZCDPAccountant().price(made.event(5)).as_fractions()
    assert rho == Fraction(1, 8)
    assert (
        delta
        <= Fraction("1e-6")
        < ThresholdedGaussian(variance=made.variance, threshold=made.threshold - 1).leak(5)
    )


def test_gaussian_noise_made_for_rho_costs_exactly_rho():
    event = DiscreteGaussian.for_rho("1/8", sensitivity=L2(squared=5)).event(L2(squared=5))
    assert event.variance == 20
    assert ZCDPAccountant().price(event).as_fractions()[0] == Fraction(1, 8)
    rounded = RoundedGaussian(sigma="9/2").event(L2(squared=5))
    assert rounded.variance == Fraction(81, 4)


@pytest.mark.parametrize("beta", [None, "1/60"])
def test_smooth_noise_costs_at_most_its_price_and_hardly_less(beta):
    student = SmoothStudent.for_epsilon(EPSILON, beta=beta, **GRID)
    assert 1 - Fraction("1e-10") < pure_loss(student.event(1)).epsilon / EPSILON <= 1
    assert pure_loss(student.event(3)).epsilon == 3 * pure_loss(student.event(1)).epsilon
    laplace = pure_loss(SmoothLaplace.for_budget(EPSILON, "1e-6", beta=beta, **GRID).event(1))
    assert laplace.epsilon == EPSILON
    assert 1 - Fraction("1e-8") < laplace.delta * 10**6 <= 1
    lognormal = SmoothLognormal.for_rho("1/8", beta=beta, **GRID).event(1)
    rho, delta = ZCDPAccountant().price(lognormal).as_fractions()
    assert 1 - Fraction("1e-10") < 8 * rho <= 1
    assert delta == 0


def test_many_values_per_unit_multiply_the_price_of_quantiles():
    quantiles = Quantiles.for_epsilon(1, taus=("1/4", "1/2", "3/4"), **GRID)
    assert pure_loss(quantiles.event(1)) == ApproxDP(1, 0)
    assert pure_loss(quantiles.event(4)) == ApproxDP(4, 0)
    assert pure_loss(Quantile.for_epsilon(1, tau="1/4", **GRID).event(4)) == ApproxDP(4, 0)


def test_noise_that_stopped_early_ends_at_the_same_place_for_every_answer(monkeypatch):
    mechanism = Laplace(scale=1 << 50)
    limit = 1 << 62
    monkeypatch.setattr(
        "noisegate.mechanisms.additive.laplace.rounded",
        lambda *_, **__: np.array([-limit, limit, -limit, limit]),
    )
    exact = np.array([0, 0, 1, 1]) * INPUT_MAX
    assert mechanism.sample(exact).tolist() == [-INPUT_MAX, INPUT_MAX] * 2
