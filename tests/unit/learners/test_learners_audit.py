"""Every learner's claimed loss, taken from what it really asks.

A learner is run on rows and told noisy answers; at each question it is known how much likelier any
answer can be on the rows than on the neighbour, the rows without one. The sum of the logarithms over
all rounds of a fit may never exceed ε (under zCDP the divergences ρ), whatever was answered before.
A copy of the door that draws too little noise, or lets rows count twice, exceeds it.
"""

from fractions import Fraction

import numpy as np
import pytest

import noisegate
from noisegate import learners
from noisegate.desk.job import Receipt
from noisegate.desk.terms.price import Price
from noisegate.learners import base
from noisegate.learners.asking import NoisySums, noise_variance, noises
from noisegate.learners.fitting import Outcome
from noisegate.ledger.verify.anchor import NO_LOG
from noisegate.mechanisms.additive.box_noise import BoxNoise
from noisegate.mechanisms.additive.gaussian import DiscreteGaussian
from noisegate.noise.bits import SYSTEM
from noisegate.privacy.loss import ApproxDP
from noisegate.sources.source import Batch
from noisegate.transforms.statistics.numbers import Shape

DECLARED = {"bounds": (-1, 1), "classes": [0, 1, 2], "target_bounds": (-1, 1)}


class Audited:
    """Rows, the same without the first one, and the largest loss between them so far."""

    def __init__(self, rows, keys, task, price, *, scale=1.0, copies=1):
        held = np.rint(rows * task.reach).astype(np.int32)
        self._all, self._without = Batch(held, keys), Batch(held[copies:], keys[copies:])
        self._price, self._scale = price, scale
        self.columns, self.reach = held.shape[1], task.reach
        self.classes = 0 if task.number or keys.max() == 0 else 3
        self.gaussian, self.loss, self.rounds = price.gaussian, 0.0, 0
        self.objective = True

    @property
    def _shape(self):
        return Shape(self.columns, self.reach, self.classes)

    def totals(self, statistic, shares):
        blocks = statistic.blocks(self._shape)
        chosen = noises(blocks, shares, self._price, 1)
        pairs = zip(
            blocks, chosen,
            statistic.total([self._all], self._shape),
            statistic.total([self._without], self._shape),
            strict=True,
        )  # fmt: skip
        self.rounds += 1
        return [self._told(*each) for each in pairs]

    def _told(self, block, noise, exact, other):
        told = noise.sample(exact.reshape(-1), bits=SYSTEM).reshape(exact.shape)
        away = np.abs((exact - other).astype(float))
        if isinstance(noise, DiscreteGaussian):
            self.loss += (away**2).sum() / (2 * float(noise.variance)) * self._scale**2
        elif isinstance(noise, BoxNoise):  # a row of cells has one largest number
            self.loss += away.max(axis=1).sum() / float(noise.scale) * self._scale
        else:
            self.loss += away.sum() / float(noise.scale) * self._scale
        return NoisySums(
            told.reshape(block.cells, block.width).astype(float), noise_variance(noise)
        )

    def variance(self, statistic, shares):
        chosen = noises(statistic.blocks(self._shape), shares, self._price, 1)
        return [noise_variance(noise) for noise in chosen]

    def done(self, part, words):
        assert 0 <= part <= 1

    def keep(self, fitted):
        pass


def audited(monkeypatch, name, price, **how):
    """The loss of one fit, about the row that is furthest from all others."""
    coins = np.random.default_rng(3)
    rows = coins.uniform(-0.3, 0.3, (60, 3))
    rows[:3] = 1.0  # far out, so that they move all numbers as far as they can
    keys = coins.integers(0, 3, 60).astype(np.int32)
    made = getattr(learners, name)
    said = {each: value for each, value in DECLARED.items() if each in made().get_params()}
    seen = []

    def learn(matrix, task, *, epsilon, progress=None, fresh=False):
        held = np.hstack([rows, np.ones((60, 1))]) if task.number else rows
        has_classes = "classes" in said
        ask = Audited(held, keys if has_classes else 0 * keys, task, price, **how)
        fitted = task.algorithm(ask)
        seen.append(ask)
        nothing = ApproxDP(0)
        receipt = Receipt(
            cost=nothing, remaining=nothing, guarantee=None, question="", request_id="",
            practice=False, log=NO_LOG, free=False,
        )  # fmt: skip
        return Outcome(fitted, receipt, stopped=False)

    monkeypatch.setattr(base, "learn", learn)
    target = keys if "classes" in said else np.ones(60)
    model = made(epsilon=1, memory=noisegate.memory(100), **said)
    model.fit(rows, target if "classes" in said or "target_bounds" in said else None)
    (ask,) = seen
    assert ask.rounds >= 1
    return ask.loss


EPSILON, RHO = (
    Price(amount=Fraction(1), gaussian=False),
    Price(amount=Fraction(1, 2), gaussian=True),
)


@pytest.mark.parametrize("name", sorted(learners.ESTIMATORS))
def test_no_fit_loses_more_than_its_epsilon(monkeypatch, name):
    loss = audited(monkeypatch, name, EPSILON)
    assert 0.5 < loss <= 1 + 1e-9  # the far row is really counted


@pytest.mark.parametrize("name", sorted(learners.ESTIMATORS))
def test_no_fit_diverges_by_more_than_its_rho(monkeypatch, name):
    loss = audited(monkeypatch, name, RHO)
    assert 0.05 < loss <= 0.5 + 1e-9


@pytest.mark.parametrize("name", ["GaussianNB", "KMeans", "LogisticRegression", "PCA"])
def test_a_door_that_draws_a_third_of_the_noise_is_caught(monkeypatch, name):
    assert audited(monkeypatch, name, RHO, scale=3) > 0.5


@pytest.mark.parametrize("name", ["GaussianNB", "KMeans", "LinearRegression"])
def test_a_person_with_three_rows_who_counts_as_one_is_caught(monkeypatch, name):
    assert audited(monkeypatch, name, RHO, copies=3) > 0.5
