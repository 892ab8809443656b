"""Distances that a program computes: on the steward's word alone, and never on an analyst's."""

from fractions import Fraction

import pyarrow as pa
import pytest

import noisegate as ng
from noisegate.algebra.blocks import STEPS
from noisegate.curator.claimed import ClaimedMeasurement
from noisegate.desk.desk import Desk
from noisegate.errors import NoisegateError, SpecError, Unsupported
from noisegate.isolated.lockdown import can_lock
from noisegate.mechanisms.additive.gaussian import DiscreteGaussian
from noisegate.mechanisms.additive.geometric import Geometric
from noisegate.programs.text import program_of
from noisegate.robust.distances import ClaimOrder
from refusals import about

pytestmark = pytest.mark.skipif(not can_lock(), reason="this machine cannot lock programs in")
FACTS = {"x": {"type": "integer", "between": [0, 99]}}


def repeated(rows):
    """How many rows must go until no two are alike."""
    seen = set()
    for value in rows["x"]:
        seen.add(int(value))
    return len(rows["x"]) - len(seen)


def gate(epsilon=200, **more):
    return ng.open(pa.table({"x": [1, 2, 2, 3, 3, 3]}), epsilon=epsilon, columns=FACTS, **more)


def test_a_steward_may_vouch_for_a_program_and_the_promise_says_so():
    door = gate()
    answer = door.distance(repeated, trusted=True, epsilon=40, seconds="0.5")
    assert answer.rows == ((3,),)  # e^-40
    assert (
        "provided that one unit with all its rows changes the result of 'repeated'"
        in answer.promise
    )
    assert door.distance(repeated, trusted=True, epsilon=40, seconds="0.5").free
    assert door.spent.epsilon == 40
    assert "claimed" in answer.questions[0]


def test_an_analyst_may_not_vouch():
    door = gate(analyst="ana", share=100)
    with pytest.raises(Unsupported, check=about("steward")):
        door.distance(repeated, trusted=True, epsilon=1, seconds="0.5")
    assert door.spent.epsilon == 0


@pytest.mark.parametrize(
    ("asked", "terms", "kind"),
    [
        (repeated, {}, SpecError),
        (repeated, {"trusted": 1}, SpecError),
        (repeated, {"trusted": True, "centers": [1]}, SpecError),
        (repeated, {"trusted": True, "columns": ["y"]}, SpecError),
        ("nowhere.py:f", {"trusted": True}, SpecError),
        (None, {"trusted": True}, SpecError),
    ],
)
def test_what_nobody_vouches_for_is_refused_before_any_charge(asked, terms, kind):
    door = gate()
    with pytest.raises(kind) as refusal:
        door.distance(asked, epsilon=1, **terms)
    assert refusal.value.fix
    assert door.spent.epsilon == 0


def test_the_door_takes_one_whole_number_of_all_rows_only():
    door = gate()
    order = ClaimOrder(program=program_of(repeated), trusted=True, epsilon=1)
    query = order.job(Desk(door._curator, door._rules)).measurement.query
    fair = ClaimedMeasurement(query=query, noise=Geometric(scale=1))
    assert fair.event().sensitivity.value == 1
    with pytest.raises(NoisegateError):
        ClaimedMeasurement(query=query, noise=DiscreteGaussian(variance=1))


def most_common(rows):
    """How often each of 2 and 3 occurs: one row moves each by at most 1."""
    return [int((rows["x"] == value).sum()) for value in (2, 3)]


SCORED = {"candidates": ["two", "three"], "range": (0, 100), "sensitivity": 1, "seconds": "0.5"}


def test_a_steward_may_vouch_for_scores_and_an_analyst_may_not():
    door = gate()
    chosen = door.choose_by(most_common, trusted=True, epsilon=100, **SCORED)
    assert chosen.winner == "three"  # the other with e^-50
    assert "provided that one unit with all its rows changes each score of" in str(chosen.guarantee)
    assert chosen.cost.epsilon == 100
    assert door.choose_by(most_common, trusted=True, epsilon=100, **SCORED).free
    other = gate(analyst="ana", share=100)
    with pytest.raises(Unsupported, check=about("steward")):
        other.choose_by(most_common, trusted=True, epsilon=1, **SCORED)
    for terms in ({}, {"trusted": True, "blocks": 2}, {"trusted": True, "sensitivity": None}):
        with pytest.raises(SpecError, check=about("trusted")):
            door.choose_by(most_common, epsilon=1, **SCORED | terms)
    assert (other.spent.epsilon, door.spent.epsilon) == (0, 100)


def test_the_steps_of_a_vouched_score_hold_its_rounding():
    """Two scores that are the sensitivity apart are at most so many steps apart on the grid."""
    door = gate()
    order = ng.orders.ScoreOrder.of(
        most_common, trusted=True, epsilon=1, **SCORED | {"range": (0, 7)}
    )
    asked = order.job(door._desk).measurement
    low, high = asked.query.tally.ranges[0]
    steps = [round((v - low) * STEPS / (high - low)) for v in (Fraction(n, 3) for n in range(22))]
    assert max(b - a for a, b in zip(steps, steps[3:], strict=False)) <= asked.steps
    assert asked.event().epsilon == 1


def test_plans_say_how_many_blocks_a_person_may_change():
    """One block; of several that run at once, as many as may notice it: which the price knows."""
    terms = {"candidates": ["two", "three"], "range": (0, 1), "blocks": 8, "epsilon": 1}
    one, four = (gate().choose_by_plan(most_common, workers=n, **terms) for n in (1, 4))
    assert "is in one block of 8" in str(one)
    assert "which 3 that run beside it may notice: 4 of 8" in str(four)
    assert four.expected.shortfall(0.95) > one.expected.shortfall(0.95)
