"""Losses that are kept are those of all that was asked, priced as one event: to the last digit."""

from fractions import Fraction
from functools import lru_cache
from random import Random
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from door import WARDS, Watched, count_query, counting, curator
from noisegate.accounting.accountants import accountant_named
from noisegate.curator import parts
from noisegate.curator.measurement import Measurement
from noisegate.curator.parts import Cut, PartAccount
from noisegate.errors import OverBudget
from noisegate.mechanisms.additive.gaussian import DiscreteGaussian
from noisegate.mechanisms.additive.geometric import Geometric
from noisegate.privacy.distance import L1, L2, LInf1
from noisegate.privacy.event import (
    EVENTS,
    AboveThresholdEvent,
    BoxNoiseEvent,
    CrowdCountsEvent,
    DeclaredEvent,
    DeclaredZCDPEvent,
    DiscreteGaussianEvent,
    ExponentialEvent,
    GaussianEvent,
    GeometricEvent,
    Group,
    InPart,
    KeySelectionEvent,
    LaplaceEvent,
    NothingEvent,
    Parallel,
    PermuteAndFlipEvent,
    PoissonSampled,
    ProposeTestReleaseEvent,
    Repeated,
    Sequential,
    SmoothLaplaceEvent,
    SmoothLognormalEvent,
    SmoothStudentEvent,
    ThresholdedGaussianEvent,
    TopKEvent,
)
from noisegate.transforms.query import Query
from noisegate.transforms.strategy import Groups, Strategy

COUNT = GeometricEvent(scale=7, sensitivity=L1(1))
SELECTION = KeySelectionEvent(epsilon="1/3", delta="1e-9")
WITH_EPSILON = (
    NothingEvent(),
    COUNT,
    LaplaceEvent(scale=11, sensitivity=L1(2)),
    BoxNoiseEvent(scale=13, sensitivity=LInf1(1)),
    ExponentialEvent(epsilon="1/5"),
    TopKEvent(k=3, epsilon_each="1/17"),
    PermuteAndFlipEvent(epsilon="1/6"),
    AboveThresholdEvent(epsilon_threshold="1/4", epsilon_queries="1/9", cutoff=2),
    SELECTION,
    CrowdCountsEvent(probability="1/10", crowd=40, epsilon=1),
    SmoothStudentEvent(scale=5, beta="1/20"),
    SmoothLaplaceEvent(scale=8, beta="1/20", epsilon="1/2"),
    ProposeTestReleaseEvent(epsilon_test="1/7", epsilon_release="1/8", delta="1e-7"),
    DeclaredEvent(epsilon="1/19", delta="1e-8"),
    Sequential(events=(COUNT, SELECTION)),
    Parallel(events=(COUNT, SELECTION)),
    Repeated(event=COUNT, count=5),
    Group(event=SELECTION, size=2),
    PoissonSampled(event=SELECTION, probability="1/3"),
)
WITHOUT = (
    DiscreteGaussianEvent(variance=90, sensitivity=L2(squared=2)),
    GaussianEvent(variance=70, sensitivity=L2(squared=3)),
    SmoothLognormalEvent(scale=6, beta="1/20", sigma="1/2"),
    DeclaredZCDPEvent(rho="1/99"),
    ThresholdedGaussianEvent(variance=80, keys=2, delta="1e-9"),
)
CHAINS = {
    ("pure",): WITH_EPSILON,
    ("pure", "zcdp", "renyi-3"): WITH_EPSILON,
    ("zcdp", "renyi-3"): WITH_EPSILON + WITHOUT,
}


@lru_cache(maxsize=1024)
def loss(accountant, event):
    return accountant_named(accountant).loss(event)


def losses(chain, event):
    return {name: loss(name, event) for name in chain}


def test_histories_hold_every_kind_of_event():
    """But for what only the door says: which part of the units a question is about."""
    named = {type(event) for event in WITH_EPSILON + WITHOUT}
    assert named == set(EVENTS.values()) - {InPart}


def require_exact_sums(random):
    """A history of questions, accounts of cells and cuts: all losses are those of `used`."""
    chain, events = random.choice(list(CHAINS.items()))
    nothing = losses(chain, NothingEvent())
    whole = PartAccount((), nothing)
    known = [whole]
    for turn in range(random.randint(1, 12)):
        part, event = random.choice(known), random.choice(events)
        kind = random.choice(["ask", "ask", "cells", "cut"])
        if kind == "cut":
            cut = Cut(part, nothing)
            cut.parts = tuple(PartAccount(((str(turn), key),), nothing, cut) for key in range(3))
            part.cuts.append(cut)
            known += cut.parts
            continue
        name = random.choice("ab")
        more, less = losses(chain, event), part.cells.get(name, (None, nothing))[1]
        for place, found in part.after(more, nothing if kind == "ask" else less):
            place.loss = found
        if kind == "ask":
            part.events.append(event)
        else:  # a loss that may fall, which no account of cells should
            part.cells[name] = SimpleNamespace(event=lambda event=event: event), more
    for part in known:
        assert part.loss == losses(chain, part.used())


@settings(max_examples=60)
@given(random=st.randoms(use_true_random=False))
def test_what_is_kept_is_the_price_of_all_that_was_asked(random):
    require_exact_sums(random)


def never_falls(self, part, loss):
    return parts._each(parts.largest, loss, self.loss)


def last_part(self, part, loss):
    return loss


def adds_parts(self, part, loss):
    return parts._changed(self.loss, loss, part.loss)


def keeps_what_was_replaced(loss, more, less):
    return parts._each(parts.added, loss, more)


def stays_below(self, more, less):
    return [(self, parts._changed(self.loss, more, less))]


@pytest.mark.parametrize(
    ("owner", "name", "broken"),
    [
        (Cut, "dearest", never_falls),
        (Cut, "dearest", last_part),
        (Cut, "dearest", adds_parts),
        (parts, "_changed", keeps_what_was_replaced),
        (PartAccount, "after", stays_below),
    ],
)
def test_sums_that_are_kept_wrongly_are_caught(owner, name, broken, monkeypatch):
    monkeypatch.setattr(owner, name, broken)
    with pytest.raises(AssertionError):
        for seed in range(100):
            require_exact_sums(Random(seed))


# through the door


def some_question(random, *, gaussian):
    scale = Fraction(random.randint(40, 90), random.randint(1, 3))
    noise = DiscreteGaussian(variance=scale * scale) if gaussian else Geometric(scale=scale)
    tally = count_query(by=random.choice(["ward", None])).tally
    if random.random() < 0.5:
        return Measurement(query=Query(tally), mechanisms=(noise,))
    labels = np.array([random.randint(-1, 0) for _ in range(tally.cells)], np.int32)
    strategy = Strategy(tally.cells, (Groups(labels, 1),))
    return Measurement(query=Query(tally, strategy), mechanisms=(noise,))


def require_one_price(random, source, accountant, sample):
    """All that is asked of an allowance, and what it gives back, at the price of one event."""
    delta = "0" if accountant == "pure" else "1e-6"
    door = curator(budget=9, source=source, accountant=accountant, delta=delta)
    event = DeclaredEvent(epsilon=random.choice(["0.05", "0.2"]))
    if sample is not None:
        event = PoissonSampled(event=event, probability=sample)
    refused = 0
    with door.allowance(event, question="recipe", request_id="recipe") as recipe:
        recipe._draw = lambda measurement, request_id: None
        scopes = [recipe.whole]
        for _ in range(12):
            scope = random.choice(scopes)
            if len(scopes) == 1 and random.random() < 0.2:
                scopes += scope.cut("ward", WARDS)
                continue
            before = recipe.used()
            gaussian = accountant != "pure" and sample is None and random.random() < 0.5
            try:
                scope.measure(some_question(random, gaussian=gaussian))
            except OverBudget:
                refused += 1
                assert recipe.used() == before
            kept = recipe._charges(recipe._whole.loss)
            assert kept == door.ledger.quote(recipe.used(), account="clinic").charges
    assert door.ledger.balance("clinic").charge == kept["clinic"]
    return refused


@pytest.mark.parametrize(
    ("accountant", "sample"),
    [("pure", None), ("zcdp", None), ("renyi-3", None), ("pure", "1/3"), ("zcdp", "1/3")],
)
def test_an_allowance_is_charged_the_price_of_all_that_was_asked(accountant, sample):
    source = Watched()
    refused = [require_one_price(Random(s), source, accountant, sample) for s in range(8)]
    assert 0 < sum(refused) < 64


def test_a_question_is_priced_alone_however_many_came_before():
    door, question = curator(budget=99), counting("0.01")
    priced = []
    with door.allowance(DeclaredEvent(epsilon=30), question="q", request_id="q") as recipe:
        recipe._draw = lambda measurement, request_id: None
        ask, recipe._priced = recipe._priced, lambda event: priced.append(event) or ask(event)
        for _ in range(100):
            recipe.whole.measure(question)
    assert priced == [question.event()] * 100
