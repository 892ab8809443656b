"""A tiny database through the door: near where noise is small, charged once, refused in time."""

import numpy as np
import pyarrow as pa
import pytest

import noisegate as ng
from noisegate.errors import SpecError, Unsupported
from noisegate.learners.items.net import NetDatabase
from noisegate.orders import FitOrder
from refusals import about

FACTS = {"ward": {"in": ["n", "s", "w"]}, "age": {"type": "integer", "between": [0, 99]}}


def gate(epsilon=1000, **more):
    """In quarters: 200 well in the north, 100 sick there, 100 well in the south."""
    ward = ["n"] * 300 + ["s"] * 100
    sick = [False] * 200 + [True] * 100 + [False] * 100
    rows = pa.table({"ward": ward, "sick": sick, "age": [1] * 400, "who": np.arange(400) // 2})
    return ng.open(rows, epsilon=epsilon, columns=FACTS, **more)


@pytest.mark.parametrize("accountant", ["pure", "zcdp"])
def test_a_table_of_quarters_is_found_again(accountant):
    asked = gate(delta="1e-6", accountant=accountant)
    net = NetDatabase(epsilon=8, size=4).fit(asked.matrix(None, ["ward", "sick"]))
    assert sorted(net.database_) == [("n", 0), ("n", 0), ("n", 1), ("s", 0)]  # else e^-100
    assert abs(net.rows_ - 400) <= 30
    assert net.answer(ward="n") == pytest.approx(300, abs=25)
    assert net.answer(ward="n", sick=1) == pytest.approx(100, abs=10)
    assert net.answer() == pytest.approx(net.rows_)
    assert net.counts_.shape == (3, 2)
    exact = {("n", 0): 200, ("n", 1): 100, ("s", 0): 100}
    off = [abs(net.answer(ward=w, sick=s) - exact.get((w, s), 0)) for w in "nsw" for s in (0, 1)]
    assert max(off) <= net.promise("0.999999")


def test_it_is_chosen_once_for_all_of_its_price():
    asked = gate(epsilon=5)
    first = NetDatabase(epsilon=1, size=3).fit(asked.matrix(None, ["ward", "sick"]))
    again = NetDatabase(epsilon=1, size=3).fit(asked.matrix(None, ["ward", "sick"]))
    assert (again.free_, again.database_, again.rows_) == (True, first.database_, first.rows_)
    assert (first.cost_.epsilon, again.cost_.epsilon, asked.spent.epsilon) == (1, 0, 1)
    NetDatabase(epsilon=1, size=3).fit(asked.matrix(None, ["ward", "sick"]), [{"ward": "n"}])
    assert asked.spent.epsilon == 2  # for other questions another one
    assert "this database of 'data'" in str(first.guarantee_)


def test_people_with_many_rows_count_for_their_cap():
    asked = gate(unit="who", rows_per_unit=1)
    net = NetDatabase(epsilon=50, size=4).fit(asked.matrix(None, ["ward"]), [{"ward": "n"}])
    assert net.rows_ == pytest.approx(200, abs=10)
    assert net.answer(ward="n") == pytest.approx(150, abs=10)


@pytest.mark.parametrize(
    ("columns", "questions", "size"),
    [
        (["age"], None, 3),
        (["ward"], [{"town": "n"}], 3),
        (["ward"], [{"ward": "x"}], 3),
        (["ward"], ["n"], 3),
        (["ward"], None, 7),
        (["ward"], None, 0),
    ],
)
def test_what_is_no_toy_or_no_question_is_refused_for_nothing(columns, questions, size):
    asked = gate()
    with pytest.raises((SpecError, Unsupported)) as refusal:
        NetDatabase(epsilon=1, size=size).fit(asked.matrix(None, columns), questions)
    assert refusal.value.fix
    assert asked.spent.epsilon == 0


def test_a_plan_says_how_far_it_reaches_and_too_many_databases_are_refused():
    asked = gate()
    plan = NetDatabase(epsilon=1, size=4).plan(asked.matrix(None, ["ward", "sick"]))
    assert plan.price.epsilon == 1
    assert "126 databases of 4 rows over 6 cells" in " ".join(plan.notes)
    towns = [f"t{number}" for number in range(90)]
    ages = ng.open(pa.table({"age": towns}), epsilon=9, columns={"age": {"in": towns}})
    with pytest.raises(Unsupported, check=about("cells")) as refused:
        NetDatabase(epsilon=1, size=5).fit(ages.matrix(None, ["age"]))
    assert "size=3" in refused.value.fix
    assert (asked.spent.epsilon, ages.spent.epsilon) == (0, 0)


def test_a_net_over_many_cells_is_one_order_of_the_gate():
    rows = pa.table({"town": ["t7"] * 300 + ["t8"] * 100})
    towns = [f"t{number}" for number in range(60)]
    asked = ng.open(rows, epsilon=1000, columns={"town": {"in": towns}})
    order = FitOrder(model="NetDatabase", columns=("town",), options={"size": 2}, epsilon=200)
    assert asked.plan(order).price.epsilon == 200
    net = asked.run(order)
    assert {row[0] for row in net.database_} <= {"t7", "t8"}
    assert abs(net.answer(town="t7") - 300) <= net.within_
