"""An accuracy beside a price: the least that is accurate enough, and never more than the price."""

import json
from contextlib import suppress
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from command_line import run
from pyarrow import csv

import noisegate as ng
from noisegate.errors import NoisegateError, OverBudget, SpecError, Unsupported
from refusals import about

COUNT = "SELECT COUNT(*) AS n FROM t"
GROUPS = "SELECT w, COUNT(*) AS n FROM t GROUP BY w"
SIZES = np.random.default_rng(5).integers(1, 12, 3_000)
WHO = np.repeat(np.arange(SIZES.size), SIZES)
ROWS = pa.table(
    {"who": WHO, "w": WHO % 4, "x": (WHO * 7 % 200).astype(float), "y": (WHO % 3).astype(str)}
)
POLICY = """
name = "t"
[budget]
epsilon = 20
[questions]
max_epsilon = 1
[tables.t]
source = "t.csv"
unit = "who"
[tables.t.columns]
who = { type = "integer" }
w = { type = "integer", in = [0, 1, 2, 3] }
x = { type = "number", between = [0, 200] }
"""


def opened(accountant="pure", epsilon=20, **terms):
    columns = {"w": {"in": [0, 1, 2, 3]}, "x": {"between": [0, 200]}}
    return ng.open(
        ROWS, table="t", unit="who", columns=columns, epsilon=epsilon, accountant=accountant,
        delta=0 if accountant == "pure" else "1e-6", **terms,
    )  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize(
    ("sql", "within", "accountant"),
    [
        (COUNT, 2_000, "pure"),
        (COUNT, 2_000, "zcdp"),
        (GROUPS, 1_500, "pure"),
        ("SELECT SUM(x) AS n FROM t", 200_000, "pure"),
        ("SELECT COUNT(*) * 1.0 / 2 AS n FROM t", 1_000, "pure"),
    ],
)
def test_less_than_the_price_is_spent_and_what_is_wanted_is_met(sql, within, accountant):
    """The ± of an answer may exceed the predicted one by what new noise says of the loss."""
    gate, price = opened(accountant), {"pure": 2, "zcdp": 15}[accountant]
    plan = gate.plan(sql, within=within, epsilon=price)
    assert (float(plan.price.epsilon), gate.spent.epsilon) == (pytest.approx(price, rel=1e-3), 0)
    assert any("the most it may cost" in words for words in plan.notes)
    answer = gate.sql(sql, within=within, epsilon=price)
    assert max(answer.margins()["n"]) <= 1.2 * within
    assert 0 < answer.cost.epsilon < price * 0.6
    assert answer.guarantee.added.epsilon < answer.guarantee.loss.epsilon
    assert answer.card().verify(gate.ledger) == []
    spent = gate.spent
    again = gate.sql(sql, within=within, epsilon=price)
    assert (again.free, again.rows, gate.spent) == (True, answer.rows, spent)
    assert gate.plan(sql, within=within, epsilon=price).free


@pytest.mark.parametrize("price", ["0.3", "1", "4"])
def test_nothing_costs_more_than_the_price(price):
    for within in (300, 2_000):
        gate = opened()
        with suppress(Unsupported):  # the look may show that no such price is enough
            gate.sql(COUNT, within=within, epsilon=price)
        assert 0 < gate.spent.epsilon <= Fraction(price)


def test_where_the_most_is_not_enough_the_look_is_paid_and_free_from_then_on():
    """A bound of one row would be: noise of scale 1 alone, ± 3."""
    gate = opened()
    for _ in range(2):
        with pytest.raises(Unsupported, check=about("accuracy"), match="up to ε = 1 "):
            gate.sql(COUNT, within=5, epsilon=1)
        assert 0 < gate.spent.epsilon < Fraction(1, 2)


@pytest.mark.parametrize(
    ("sql", "within"),
    [
        ("SELECT w, COUNT(*) AS n FROM t GROUP BY ROLLUP(w)", 4_000),
        ("SELECT COUNT(*) AS n, SUM(x) AS s FROM t", 100_000),
        pytest.param(GROUPS, 2_000, marks=pytest.mark.long),
        ("SELECT COUNT(*) AS n FROM t WHERE x > (SELECT SUM(x) / COUNT(*) FROM t)", 4_000),
    ],
)
def test_what_was_paid_for_is_found_again(sql, within):
    """What is on the shelf by now does not move the price that is found."""
    for _ in range(2):
        gate = opened()
        first = gate.sql(sql, within=within, epsilon=6)
        spent = gate.spent
        again = gate.sql(sql, within=within, epsilon=6)
        assert (again.free, again.rows, gate.spent) == (True, first.rows, spent)


def test_all_of_the_price_is_used_where_a_number_comes_first():
    """Once the first number is there, what is planned for all of ε is reached by all of ε."""
    sql = "SELECT COUNT(*) AS n FROM t WHERE x > (SELECT SUM(x) / COUNT(*) FROM t)"
    gate = opened()
    gate.sql(sql, epsilon=6)
    plan = gate.plan(sql, epsilon=6, fresh=True)
    foreseen = plan.expected.error.columns(0.95)["n"].most
    found = gate.plan(sql, within=1.5 * foreseen, epsilon=6, fresh=True)
    assert 0 < found.price.epsilon <= plan.price.epsilon


def test_a_look_that_is_there_is_used_and_the_plan_is_the_price():
    gate = opened()
    gate.caps("t", epsilon=2)
    plan = gate.plan(COUNT, within=400, epsilon=2)
    spent = gate.spent.epsilon
    answer = gate.sql(COUNT, within=400, epsilon=2)
    assert answer.cost == plan.price
    assert answer.cost.epsilon == gate.spent.epsilon - spent
    assert plan.margins()["n"] <= 400


def test_a_narrower_wish_costs_more():
    gate = opened()
    gate.caps("t", epsilon=5)
    wide, narrow = (gate.plan(COUNT, within=each, epsilon=4).price for each in (2_000, 300))
    assert 2 * wide.epsilon < narrow.epsilon


def test_where_the_bound_is_declared_the_price_is_that_of_the_accuracy_alone():
    gate = opened()
    alone = gate.plan(COUNT, within=400, rows_per_unit=12)
    both = gate.plan(COUNT, within=400, epsilon=2, rows_per_unit=12)
    assert both.price == alone.price
    with pytest.raises(Unsupported, check=about("accuracy"), match=r"up to ε = 0\.05"):
        gate.sql(COUNT, within=400, epsilon="0.05", rows_per_unit=12)
    assert gate.spent.epsilon == 0


CALCULATED = [
    ("SELECT 2 * COUNT(*) AS n FROM t", 400),
    ("SELECT w, SUM(COUNT(*)) OVER (ORDER BY w) AS n FROM t GROUP BY w", 400),
    ("SELECT w, k - LAG(k) OVER (ORDER BY w) AS n FROM (SELECT w, COUNT(*) AS k FROM t GROUP BY w)", 400),
    ("SELECT w, 100.0 * COUNT(*) / SUM(COUNT(*)) OVER () AS n FROM t GROUP BY w", 2),
    ("SELECT (SELECT SUM(x) FROM t) / (SELECT COUNT(*) FROM t) AS n", 5),
]  # fmt: skip


@pytest.mark.parametrize("accountant", ["pure", pytest.param("zcdp", marks=pytest.mark.long)])
@pytest.mark.parametrize(
    ("sql", "within"),
    [CALCULATED[0], *(pytest.param(*each, marks=pytest.mark.long) for each in CALCULATED[1:])],
)
def test_an_accuracy_is_that_of_the_numbers_which_are_shown(sql, within, accountant):
    """Each released number had it: a double erred by twice as much, and no price bought a share."""
    gate, terms = opened(accountant, epsilon=90), {"rows_per_unit": 12, "rows": 18_000}
    plan = gate.plan(sql, within=within, **terms)
    assert within / 2 < plan.margins()["n"] <= within
    answer = gate.sql(sql, within=within, **terms)
    assert answer.cost == plan.price
    known = [each for each in answer.margins()["n"] if each is not None]
    assert max(known) <= 1.15 * within  # shares, too, are of as many rows as noise shows
    assert gate.sql(sql, within=within, **terms).free
    most = 2 * plan.price.epsilon
    assert gate.plan(sql, within=within, epsilon=most, fresh=True, **terms).price == plan.price


@pytest.mark.long
@pytest.mark.parametrize("accountant", ["pure", "zcdp"])
@pytest.mark.parametrize(
    ("sql", "within", "price"),
    [(COUNT, 400, {"epsilon": 5}), (CALCULATED[0][0], 800, {}), (CALCULATED[0][0], 800, {"epsilon": 5})],
)  # fmt: skip
def test_an_accuracy_is_kept_beside_what_was_released(sql, within, price, accountant):
    """The difference of two prices was bought: both draws together erred by up to half as much again."""
    gate = opened(accountant, epsilon=90)
    gate.sql(COUNT, within=600, rows_per_unit=12)
    assert gate.plan(sql, within=within, rows_per_unit=12, **price).margins()["n"] <= within
    answer = gate.sql(sql, within=within, rows_per_unit=12, **price)
    assert max(answer.margins()["n"]) <= within
    assert not answer.free
    assert gate.sql(sql, within=within, rows_per_unit=12, **price).free


@pytest.mark.parametrize("price", [{}, {"epsilon": 5}])
def test_a_number_whose_error_no_rule_tells_errs_as_what_it_is_made_of(price):
    gate = opened()
    sql = f"SELECT w, n, RANK() OVER (ORDER BY n) AS place FROM ({GROUPS})"
    plan = gate.plan(sql, within=400, rows_per_unit=12, **price)
    assert 200 < plan.margins()["n"] <= 400
    largest = gate.plan(
        f"SELECT MAX(n) AS n FROM ({GROUPS})", within=400, rows_per_unit=12, **price
    )
    assert largest.price == plan.price


@pytest.mark.parametrize(
    ("sql", "terms", "code"),
    [
        (CALCULATED[3][0], {"within": 2, "rows_per_unit": 12}, "rows"),
        ("SELECT AVG(x) AS a FROM t", {"within": 5}, "rows"),
        ("SELECT AVG(x) AS a FROM t", {"within": 20, "rows": 18_000}, "accuracy"),
        (COUNT, {"within": 1}, "accuracy"),  # not with one row a unit, for all of the price
        (GROUPS, {"within": 1}, "accuracy"),
        ("SELECT MEDIAN(x) AS a FROM t", {"within": 5}, "accuracy"),
        ("SELECT MEDIAN(x) AS a FROM t", {"relative": "0.1", "rows": 18_000}, "accuracy"),
        ("SELECT COUNT(*) / 2 AS a FROM t", {"relative": "0.1", "rows": 18_000}, "accuracy"),
        (COUNT, {"relative": "0.1"}, "rows"),
        (COUNT, {"within": 400, "relative": "0.1", "rows": 18_000}, "price"),
        (COUNT, {"within": 400, "choose": ()}, "cap"),
        (COUNT, {"within": -1}, "positive"),
    ],
)
def test_what_cannot_be_foreseen_is_refused_before_the_charge(sql, terms, code):
    gate = opened()
    with pytest.raises(NoisegateError, check=about(code)):
        gate.sql(sql, epsilon=1, **terms)
    assert gate.spent.epsilon == 0


def test_a_share_needs_a_number_of_rows():
    gate = opened()
    with pytest.raises(Unsupported, check=about("rows")):
        gate.sql(CALCULATED[3][0], within=2, rows_per_unit=12)
    with pytest.raises(Unsupported, check=about("cap"), match="the most that it may cost"):
        gate.sql(CALCULATED[0][0], within=400)
    assert gate.spent.epsilon == 0


def test_groups_that_are_found_follow_from_a_price():
    gate = opened("zcdp")
    with pytest.raises(Unsupported, check=about("accuracy"), match="Which groups are found"):
        gate.sql("SELECT y, COUNT(*) FROM t GROUP BY y", within=4_000, epsilon=8, delta="1e-7")
    assert gate.spent.epsilon == 0


def test_an_accuracy_alone_is_refused_where_a_bound_is_estimated():
    gate = opened()
    with pytest.raises(Unsupported, check=about("cap"), match="the most that it may cost"):
        gate.sql(COUNT, within=400)
    assert gate.spent.epsilon == 0


def test_limits_see_the_most(tmp_path):
    csv.write_csv(ROWS, tmp_path / "t.csv")
    (tmp_path / "t.toml").write_text(POLICY)
    gate = ng.open(tmp_path / "t.toml", ledger=":memory:")
    with pytest.raises(SpecError, check=about("max-price")):
        gate.sql(COUNT, within=4_000, epsilon=2)
    with pytest.raises(OverBudget):
        opened(epsilon="0.5").sql(COUNT, within=4_000, epsilon=1)
    assert gate.spent.epsilon == 0


@pytest.mark.long
def test_a_share_of_the_rows_can_be_asked_for():
    """The ± of an answer may be larger than predicted, but not usually."""
    widths = []
    for _ in range(7):
        answer = opened().sql(COUNT, relative="0.05", rows=18_000, epsilon=2)
        widths.append(answer.margins()["n"][0])
        assert answer.cost.epsilon < 2
    assert np.median(widths) <= 1.2 * 0.05 * 18_000


def test_a_new_draw_keeps_the_look():
    gate = opened()
    first = gate.sql(COUNT, within=400, epsilon=2)
    again = gate.sql(COUNT, within=400, epsilon=2, fresh=True)
    assert 0 < again.cost.epsilon < first.cost.epsilon


def test_at_the_command_line_and_in_a_hint(tmp_path):
    csv.write_csv(ROWS, tmp_path / "t.csv")
    (tmp_path / "t.toml").write_text(POLICY)
    file, prices = str(tmp_path / "t.toml"), []
    hint = f"{COUNT} /* noisegate: within=500 epsilon=1 */"
    for words in ([COUNT, "--within", "500", "--epsilon", "1"], [hint]):
        found = json.loads(run("ask", file, *words, "--json").stdout)
        assert found["margins"][0][0] <= 600
        prices.append(found["price"])
    assert 0 < prices[0] < 1
    assert prices[1] == 0
