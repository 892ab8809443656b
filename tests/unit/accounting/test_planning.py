"""How many questions, how much data, which share."""

import math
from fractions import Fraction

import pytest

from noisegate.accounting.pure import PureAccountant
from noisegate.accounting.zcdp import ZCDPAccountant
from noisegate.errors import SpecError
from noisegate.planning.composition import optimal_delta_up
from noisegate.planning.enough import (
    questions,
    questions_optimal,
    sample_size,
)
from noisegate.privacy.event import DeclaredEvent, KeySelectionEvent, NothingEvent
from noisegate.privacy.loss import ApproxDP
from refusals import about

TENTH, BUDGET = Fraction(1, 10), ApproxDP(1, "1e-6")


def test_the_textbook_sample_size_is_right_63_percent_of_the_time():
    nearly = Fraction(math.exp(-1))
    found = sample_size(bound=1, accuracy="0.01", epsilon="0.1", failure=nearly)
    assert found in {1000, 1001}  # b/(γε) for b = 1, γ = 0.01, ε = 0.1


@pytest.mark.parametrize("queries", [1, 10, 1000])
def test_the_sample_size_keeps_its_confidence_for_all_queries_at_once(queries):
    size = sample_size(bound=2, accuracy="0.1", epsilon="0.5", failure="0.05", queries=queries)
    assert size == math.ceil(2 * math.log(queries / 0.05) / 0.05)
    assert queries * math.exp(-size * 0.025) <= 0.05 < queries * math.exp(-(size - 1) * 0.025)


def test_a_budget_buys_whole_questions():
    tenth = DeclaredEvent(epsilon=TENTH)
    assert questions(tenth, ApproxDP("0.99"), accountant=PureAccountant()) == 9
    assert questions(tenth, ApproxDP(1), accountant=PureAccountant()) == 10
    small = DeclaredEvent(epsilon=Fraction(1, 1000))
    assert questions(small, BUDGET, accountant=ZCDPAccountant()) > 40_000
    keys = KeySelectionEvent(epsilon=Fraction(1, 1000), delta=Fraction(1, 10**7))
    assert questions(keys, BUDGET, accountant=PureAccountant()) == 10
    assert questions(keys, BUDGET, accountant=ZCDPAccountant()) == 5


def test_a_free_event_has_no_number_of_questions():
    with pytest.raises(SpecError, check=about("free")):
        questions(NothingEvent(), BUDGET, accountant=PureAccountant())


def test_optimal_composition_buys_the_most_and_not_one_more():
    each = Fraction(1, 100)
    count = questions_optimal(BUDGET, epsilon_each=each)
    assert optimal_delta_up(each, count=count, total=Fraction(1)) <= BUDGET.delta
    assert optimal_delta_up(each, count=count + 1, total=Fraction(1)) > BUDGET.delta
    assert count > questions(DeclaredEvent(epsilon=each), BUDGET, accountant=ZCDPAccountant())
    assert questions_optimal(ApproxDP(1), epsilon_each=TENTH) == 10


def test_a_delta_of_one_promises_nothing_and_is_refused():
    nothing = ApproxDP(1, 1)
    with pytest.raises(SpecError, check=about("delta")):
        questions_optimal(nothing, epsilon_each=1)


def test_impossible_plans_are_refused():
    with pytest.raises(SpecError, check=about("failure")):
        sample_size(bound=1, accuracy=1, epsilon=1, failure=1)
    with pytest.raises(SpecError, check=about("count")):
        sample_size(bound=1, accuracy=1, epsilon=1, failure="0.1", queries=0)
