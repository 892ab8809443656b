"""The door asks mechanisms of its own list alone, however much others look like them."""

import inspect
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np
import pytest

from door import count_query, curator
from noisegate.algebra.tally import Values
from noisegate.curator.measurement import Measurement
from noisegate.errors import NoisegateError, Unsupported
from noisegate.mechanisms import catalogue
from noisegate.mechanisms.additive import geometric
from noisegate.mechanisms.additive.geometric import Geometric
from noisegate.mechanisms.additive.laplace import Laplace
from noisegate.mechanisms.base import Mechanism, NoiseMechanism, Takes
from noisegate.mechanisms.catalogue import all_kinds, capabilities_of, kind_named
from noisegate.mechanisms.partitions.privtree import PrivTree
from noisegate.mechanisms.quantiles.quantile import Quantile
from noisegate.mechanisms.smooth.local_quantile import LocalQuantile
from noisegate.mechanisms.smooth.smooth import SmoothStudent
from noisegate.privacy.capability import CAPABILITIES
from noisegate.privacy.distance import L1, L2, LInf1
from noisegate.transforms.query import Query
from noisegate.transforms.strategy import Groups, Strategy

TAKES = {L1: Takes.L1, L2: Takes.L2, LInf1: Takes.BOX, int: Takes.ROWS, Fraction: Takes.ANY_ONE}


class Heir(Geometric):
    """Says what geometric noise says, and adds none."""

    def sample(self, exact, *, bits=None):
        return exact


class Named(Geometric):
    """The same, under the name of the list."""

    name: ClassVar[str] = "geometric/1"

    def sample(self, exact, *, bits=None):
        return exact


@dataclass(frozen=True, kw_only=True)
class Claiming(NoiseMechanism[L1]):
    """Takes any question, at a price of its own."""

    name: ClassVar[str] = "claiming/1"
    takes: ClassVar[Takes] = Takes.L1

    def require(self, query, place):
        """Anything."""

    def event(self, sensitivity):
        return Geometric(scale=10**6).event(L1(1))

    def sample(self, exact, *, bits=None):
        return exact

    def interval(self, confidence):
        return 0


class Double:
    """No mechanism at all, but one to whoever asks its class."""

    name = "geometric/1"
    takes = Takes.L1
    scale = Fraction(1)
    __class__ = Geometric

    def require(self, query, place):
        """Anything."""


def dressed(kind):
    """The class under the name and the module of the one that it pretends to be."""
    kind.__name__, kind.__qualname__ = "Geometric", "Geometric"
    kind.__module__ = "noisegate.mechanisms.additive.geometric"
    return kind


FALSE = {
    "an heir": lambda: Heir(scale=1),
    "an heir with the name": lambda: Named(scale=1),
    "an heir in disguise": lambda: dressed(type("Twin", (Named,), {"name": "geometric/1"}))(
        scale=1
    ),
    "one that takes anything": Claiming,
    "one that only looks like it": Double,
    "a class": lambda: Geometric,
    "nothing": lambda: None,
}


@pytest.mark.parametrize("who", FALSE)
def test_what_is_not_on_the_list_is_refused_whatever_it_says_of_itself(who):
    false = FALSE[who]()
    with pytest.raises(Unsupported, match="not on its list"):
        capabilities_of(false)
    with pytest.raises(NoisegateError):
        Measurement(query=count_query(), mechanisms=(false,))


def test_a_false_mechanism_that_slipped_into_a_measurement_is_refused_before_a_charge():
    door = curator()
    asked = Measurement(query=count_query(), mechanisms=(Geometric(scale=1),))
    object.__setattr__(asked, "mechanisms", (Named(scale=1),))
    with pytest.raises(Unsupported, match="not on its list"):
        door.measure(asked)
    assert door.ledger.balance(door.account).spent.epsilon == 0


def test_a_listed_mechanism_that_slipped_to_another_question_is_refused_before_a_charge():
    """Its event would be about values, and what it read would be cells."""
    door = curator()
    asked = Measurement(query=count_query(by="ward"), mechanisms=(Geometric(scale=1),))
    median = Quantile.for_epsilon(1, tau="1/2", low=0, high=99, values_per_unit=1)
    for false in (median, Laplace(scale=1), PrivTree.for_epsilon(1, shape=(2,))):
        object.__setattr__(asked, "mechanisms", (false,))
        with pytest.raises(Unsupported):
            door.measure(asked)
    assert door.ledger.balance(door.account).spent.epsilon == 0


def test_noise_inside_of_noise_is_on_the_list_too():
    class Quiet(SmoothStudent):
        def sample(self, exact, *, bits=None):
            return exact[:1]

    values = Values(relation=count_query().tally.relation, term=count_query().tally.terms[0])
    noise = SmoothStudent.for_epsilon(1, low=0, high=1)
    asked = LocalQuantile(tau="1/2", noise=noise)
    assert Measurement(query=Query(values), mechanisms=(asked,)).capabilities == {"smooth"}
    false = Quiet(scale=noise.scale, beta=noise.beta, low=0, high=1)
    with pytest.raises(Unsupported, match="not on its list"):
        Measurement(query=Query(values), mechanisms=(LocalQuantile(tau="1/2", noise=false),))
    object.__setattr__(asked, "noise", Geometric(scale=1))  # of the list, and not by reaches
    with pytest.raises(NoisegateError):
        Measurement(query=Query(values), mechanisms=(asked,))


def test_the_list_cannot_be_extended():
    with pytest.raises(TypeError):
        catalogue._LISTED["claiming/1"] = ("", "additive.geometric", "Claiming")
    with pytest.raises(AttributeError):
        catalogue._LISTED.update({})
    geometric.Claiming = Claiming  # a module may hold what it likes: the list names classes
    try:
        with pytest.raises(Unsupported, match="not on its list"):
            capabilities_of(Claiming())
    finally:
        del geometric.Claiming
    Mechanism.register(Double)
    with pytest.raises(Unsupported, match="not on its list"):
        capabilities_of(Double())


def test_a_listed_mechanism_without_a_rule_is_refused():
    """Unknown means no: what does not say which questions it takes takes none."""
    with pytest.raises(Unsupported, match="no rule for this noise on sums"):
        Measurement(query=count_query(), mechanisms=(Laplace(scale=1),))
    silent = {name for name, kind in all_kinds().items() if kind.require is Mechanism.require}
    assert silent == {
        "laplace/1", "truncated-geometric/1", "gaussian/1", "outside-band/1",
        "winsorised/1", "smooth-student/1", "smooth-laplace/1", "smooth-lognormal/1",
        "propose-test-release/1", "barred-smooth/1",
    }  # fmt: skip


def test_every_mechanism_takes_the_sensitivity_that_its_event_is_about():
    for name, kind in all_kinds().items():
        if kind.require is Mechanism.require:
            continue
        (_, first) = inspect.signature(kind.event).parameters.values()
        wanted = TAKES.get(first.annotation, Takes.ANY_ONE)  # a number: of any one
        assert kind.takes is wanted, name


def test_every_capability_of_the_list_is_known():
    assert {entry[0] for entry in catalogue._LISTED.values()} - {""} <= set(CAPABILITIES)
    assert all(kind_named(name).name == name for name in catalogue._LISTED)


def test_a_strategy_of_somebody_else_is_refused():
    """Its norms would be what it says."""

    class Short(Strategy):
        l1s = (0,)

    block = Groups(np.array([0, 1, 1], np.int32), 2)
    tally = count_query(by="ward").tally
    assert Query(tally, Strategy(3, (block,))).asks == "combinations"
    twin = type("Strategy", (), {"cells": 3, "blocks": (block,), "l1s": (0,)})()
    for false in (Short(3, (block,)), twin, object()):
        with pytest.raises(Unsupported, match="no such strategy"):
            Query(tally, false)
    slipped = Query(tally, Strategy(3, (block,)))
    object.__setattr__(slipped, "strategy", Short(3, (block,)))
    with pytest.raises(Unsupported, match="no such strategy"):
        _ = slipped.l1s
