"""What a share of a price buys, under both accounts: never more than the share, nearly all of it."""

from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

import noisegate
from noisegate.accounting.pure import pure_loss
from noisegate.accounting.zcdp import zcdp_loss
from noisegate.desk.terms.price import Price
from noisegate.mechanisms.partitions.splits import Splits
from noisegate.privacy.distance import L1
from noisegate.privacy.event import DeclaredEvent, ExponentialEvent

SHARES = [Fraction(1, 7), Fraction(1, 2), Fraction(1)]


class Declared:
    """A choice about which nothing is known but its ε."""

    def __init__(self, epsilon):
        self.epsilon = epsilon

    def event(self, moved):
        return DeclaredEvent(epsilon=self.epsilon * moved.value)


def splits(epsilon):
    return Splits.for_epsilon(epsilon, shape=(4,), boxes=[(0, 3, 0)])


@pytest.mark.parametrize("made", [splits, Declared])
@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("moved", [1, 3])
def test_a_choice_costs_its_share_of_either_price(made, share, moved):
    rho = Price(amount=Fraction(1, 50), gaussian=True)
    event = rho.choice(made, share, L1(moved)).event(L1(moved))
    assert 1 - 1e-9 <= zcdp_loss(event).rho / (share * rho.amount) <= 1
    epsilon = Price(amount=Fraction(1, 50), gaussian=False)
    event = epsilon.choice(made, share, L1(moved)).event(L1(moved))
    assert pure_loss(event).epsilon == share * epsilon.amount


def test_an_exponential_choice_is_twice_as_sharp_as_one_of_which_only_epsilon_is_known():
    price = Price(amount=Fraction(1, 2), gaussian=True)
    known, unknown = (
        price.choice(each, Fraction(1), L1(1)).event(L1(1)) for each in (splits, Declared)
    )
    assert type(known) is ExponentialEvent
    assert (known.epsilon, unknown.epsilon) == (2, 1)
    assert zcdp_loss(DeclaredEvent(epsilon=2)).rho > price.amount  # the sharper price, if misused


@pytest.mark.parametrize("method", ["fourier", "kdtree", "dawa"])
def test_recipes_that_choose_use_all_of_their_price_and_no_more(method):
    columns = {"x": {"type": "integer", "between": [0, 31], "nullable": False}}
    rows = pa.table({"x": np.arange(400) % 32})
    spent = []
    for each in (method, "cells"):
        gate = noisegate.open(
            rows, epsilon=9, delta="1e-6", accountant="zcdp", table="t", columns=columns,
            ledger=":memory:",
        )  # fmt: skip
        gate.release("histogram", columns={"x": 1}, method=each, epsilon=1)
        spent.append(float(gate.spent.epsilon))
    assert spent[0] <= spent[1] <= spent[0] * 1.0001
