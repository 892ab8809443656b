"""An ε means the same in every account: this order alone is (ε, δ)-private, δ the account's."""

import json
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from test_desk import COLUMNS, ORDERS, ROWS
from typer.testing import CliRunner

import noisegate as ng
from noisegate import learners, orders
from noisegate.accounting.accountant import GRAINS_PER_ONE, Charge
from noisegate.accounting.accountants import accountant_named
from noisegate.cli import app
from noisegate.desk.terms.price import share_of, step_of, together, without
from noisegate.desk.terms.terms import Rest, rest_of
from noisegate.errors import OverBudget, SpecError
from noisegate.ledger.open import open_ledger
from noisegate.privacy.conversion import epsilon_of_zcdp_up
from noisegate.privacy.distance import L1
from noisegate.privacy.event import GeometricEvent, PoissonSampled
from noisegate.privacy.loss import ApproxDP
from refusals import about

COUNT = "SELECT COUNT(*) AS n FROM people"
BUDGETS = [("1", "1e-9"), ("2", "1e-7"), ("1/3", "1e-6"), ("0.001", "1e-12"), ("100", "1e-3")]
PARTS = [Fraction(1), Fraction(7, 10), Fraction(3, 10), Fraction(1, 10), Fraction(1, 997)]
WHOLE = {name: order for name, order in ORDERS.items() if not name.startswith("crowd")}
ONCE = {"caps": {"unit": "age"}}  # how the rows are opened for it
CONCENTRATED = ["zcdp", "renyi-64"]


def opened(accountant="zcdp", epsilon=1, delta="1e-9", **more):
    return ng.open(
        ROWS, table="people", columns=COLUMNS, epsilon=epsilon,
        delta=0 if accountant == "pure" else delta, ledger=more.pop("ledger", ":memory:"),
        accountant=accountant, **more,
    )  # fmt: skip


def counts(number):
    return [f"{COUNT} WHERE age > {place}" for place in range(number)]


# what an account sells


@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("part", PARTS)
def test_an_order_alone_keeps_the_epsilon_that_was_asked_for(budget, part):
    zcdp, whole = accountant_named("zcdp"), ApproxDP(*budget)
    asked = whole.epsilon * part
    rho = zcdp.rho(asked, whole)
    assert epsilon_of_zcdp_up(rho, delta=whole.delta / 2) <= asked * (1 + Fraction(1, 10**12))
    more = rho * (1 + Fraction(1, 10**6))
    assert epsilon_of_zcdp_up(more, delta=whole.delta / 2) > asked  # no looser than it must be
    charge = Charge.rounded_up(rho, Fraction(0))
    assert zcdp.implied(charge, whole).epsilon == asked
    assert (charge.amount == zcdp.limit(whole).amount) == (part == 1)


@pytest.mark.parametrize("accountant", ["pure", *CONCENTRATED])
@pytest.mark.parametrize("budget", [("1", "1e-9"), ("2", "1e-7")])
@pytest.mark.parametrize("spent", [0, 1, 10**6, 10**20, 10**27])
def test_what_is_said_to_be_left_can_be_asked_for(accountant, budget, spent):
    found, whole = accountant_named(accountant), ApproxDP(*budget)
    limit = found.limit(whole)
    left = Charge(max(0, limit.amount - spent), limit.delta)
    room = found.room(left, whole).epsilon
    assert room <= whole.epsilon
    assert (room == whole.epsilon) == (spent == 0)
    rho = found.rho(room, whole)
    if rho is not None and room:
        order = getattr(found, "order", 1)
        assert rho * order <= Fraction(left.amount, GRAINS_PER_ONE)
    assert found.room(Charge(0, 0), whole).epsilon == 0


def test_parts_of_a_step_never_pass_the_whole():
    step = step_of(Fraction(1, 70))
    parts = [share_of(step, Fraction(1, 7), rho=True) for _ in range(7)]
    assert together(parts, rho=True) <= step
    assert together([*parts[:3], without(step, parts[:3], rho=True)], rho=True) <= step
    assert together(parts, rho=False) == sum(parts)
    assert without(Fraction(1), [Fraction(1, 3)], rho=False) == Fraction(2, 3)


# every kind of order


@pytest.mark.parametrize("name", WHOLE)
def test_an_order_for_the_whole_account_is_taken_and_leaves_nothing(name):
    order, gate = replace(WHOLE[name], epsilon=1), opened(**ONCE.get(name, {}))
    more = gate.plan(replace(order, epsilon="1.0001"))
    assert not more.fits
    with pytest.raises(OverBudget):
        gate.run(replace(order, epsilon="1.0001"))
    assert gate.spent.epsilon == 0  # refused before the charge
    plan = gate.plan(order)
    assert (plan.epsilon, plan.price.epsilon, plan.fits) == (1, 1, True)
    made = gate.run(order)
    cost = getattr(made, "cost", getattr(made, "cost_", plan.price))
    assert cost.epsilon <= 1
    if name != "fit":  # a learner may leave a part of its price, which goes back
        assert cost == plan.price
        assert 1 - gate.spent.epsilon <= Fraction(1, 10**9)
        assert gate.remaining.epsilon == 0
    assert gate.spent.epsilon <= 1
    assert gate.plan(order).free
    assert gate.ledger.verify().ok


@pytest.mark.parametrize("accountant", CONCENTRATED)
def test_orders_together_cost_less_than_their_sum_and_never_more_than_the_budget(accountant):
    gate = opened(accountant)
    for sql in counts(8):
        answer = gate.sql(sql, epsilon="0.3")
        assert answer.cost.epsilon == Fraction(3, 10)
    assert Fraction(3, 10) < gate.spent.epsilon < 1
    with pytest.raises(OverBudget):
        for sql in counts(79)[8:]:
            gate.sql(sql, epsilon="0.3")
    left = gate.remaining.epsilon
    assert 0 < left < Fraction(3, 10)
    gate.sql("SELECT SUM(age) AS s FROM people", epsilon=float(left))  # just as it is read
    assert gate.remaining.epsilon == 0
    assert gate.spent.epsilon <= 1


@pytest.mark.parametrize("accountant", CONCENTRATED)
def test_blocks_looks_and_numbers_that_come_first_share_the_price(accountant):
    for sql, terms in [
        (f"SELECT ({COUNT}) + (SELECT SUM(cost) FROM people)", {}),
        (f"{COUNT} WHERE cost > (SELECT AVG(cost) FROM people)", {}),
        ("SELECT AVG(cost), MEDIAN(age) FROM people", {"choose": "bounds"}),
    ]:
        gate = opened(accountant)
        plan = gate.plan(sql, epsilon="0.5", **terms)
        assert plan.epsilon == Fraction(1, 2)
        answer = gate.sql(sql, epsilon="0.5", **terms)
        assert answer.cost == plan.price
        assert answer.cost.epsilon <= Fraction(1, 2)
        if accountant == "zcdp":  # at one order of Rényi's, a pure step costs less
            assert answer.cost.epsilon == Fraction(1, 2)


@pytest.mark.parametrize("accountant", ["pure", *CONCENTRATED])
@pytest.mark.parametrize(
    "sql", ["SELECT 1 AS x", "SELECT * FROM codes", "SELECT SUM(0 * age) AS x FROM people"]
)
def test_what_reads_no_private_row_is_free_in_every_account(tmp_path, accountant, sql):
    (tmp_path / "codes.csv").write_text("x\n1\n")
    (tmp_path / "people.csv").write_text("age\n40\n")
    (tmp_path / "p.toml").write_text(
        f'name = "p"\n[budget]\nepsilon = 20\ndelta = 1e-6\naccountant = "{accountant}"\n[tables.codes]\n'
        "public = true\n[tables.people]\nrows_max = 1000\nevery_row_is_one_person = true\n"
        "[tables.people.columns]\nage = { between = [0, 99] }\n"
    )
    gate = ng.open(tmp_path / "p.toml")
    for epsilon in (None, 0.5) if "people" not in sql else (0.5,):
        assert gate.plan(sql, epsilon=epsilon).price.epsilon == 0
        assert gate.sql(sql, epsilon=epsilon).free
    assert gate.spent.epsilon == 0


def test_an_error_that_is_asked_for_is_priced_in_the_same_currency():
    gate = opened(epsilon=2, delta="1e-7")
    plan = gate.plan(COUNT, within=100)
    answer = gate.sql(COUNT, within=100)
    assert answer.cost == plan.price
    assert answer.cost.epsilon == pytest.approx(plan.epsilon)
    again = opened(epsilon=2, delta="1e-7").plan(COUNT, epsilon=plan.epsilon)
    assert again.margins()["n"] == pytest.approx(100, abs=1)


@pytest.mark.parametrize("name", ["sql", "histogram", "statistic", "distance"])
def test_a_sample_is_asked_at_the_same_price(name):
    gate = opened(epsilon=2, delta="1e-7")
    sample, order = gate.sample("1/2"), replace(ORDERS[name], epsilon=1)
    plan = sample.plan(order)
    assert plan.price.epsilon <= 1
    assert sample.run(order).cost == plan.price
    assert gate.spent.epsilon == pytest.approx(plan.price.epsilon, rel=1e-6)


def test_a_limit_for_one_question_is_in_the_same_currency(tmp_path):
    policy_in(tmp_path, "[questions]\nmax_epsilon = 0.5\n")
    gate = ng.open(tmp_path / "people.toml", ledger=":memory:", analyst="ben")
    assert gate.sql(COUNT, epsilon="0.5").cost.epsilon == Fraction(1, 2)
    with pytest.raises(SpecError, check=about("max-price")):
        gate.sql(COUNT, epsilon="0.501")
    with pytest.raises(SpecError, check=about("max-price")):
        gate.sql(COUNT, within=2)


def policy_in(folder, more=""):
    from pyarrow import csv

    csv.write_csv(ROWS, folder / "people.csv")
    (folder / "people.toml").write_text(
        'name = "people"\nsource = "."\nprotects = "person"\n\n[budget]\nepsilon = 2\n'
        'delta = 1e-7\naccountant = "zcdp"\n\n[analysts]\nana = { epsilon = 1, delta = 1e-9 }\n'
        f"ben = 2\n\n{more}\n[tables.people]\nrows_max = 1000\nevery_row_is_one_person = true\n\n[tables.people.columns]\n"
        'age = { type = "integer", between = [0, 79] }\n'
        'ward = { in = ["north", "south", "west"] }\ncost = { type = "number", between = [0, 500] }\n'
    )


def test_each_analyst_asks_in_terms_of_the_account_that_pays():
    book = open_ledger(":memory:")
    root = opened(epsilon=2, delta="1e-7", ledger=book)
    ana = opened(epsilon=2, delta="1e-7", ledger=book, analyst="ana", share=1)
    ben = opened(epsilon=2, delta="1e-7", ledger=book, analyst="ben")
    assert (ana.remaining.epsilon, ben.remaining.epsilon) == (1, 2)
    ana.sql(COUNT, epsilon=1)
    assert ana.remaining.epsilon == 0
    left = ben.remaining.epsilon  # the data set has less than ben
    assert left == root.remaining.epsilon < 2
    ben.sql("SELECT SUM(age) AS s FROM people", epsilon="rest")
    assert root.remaining.epsilon == ben.remaining.epsilon == 0
    with pytest.raises(OverBudget, check=about("rest")) as refused:
        ben.sql("SELECT AVG(cost) FROM people", epsilon="rest")
    assert f"in the account {root.door.account!r}" in str(refused.value)  # ben's own has some left


# a part of the rest


def test_a_part_of_the_rest_is_read_in_many_spellings():
    assert rest_of("rest") == rest_of(" The REST ") == Rest("rest")
    tenth = [
        rest_of(said) for said in ("1/10 of rest", "0.1 of the rest", "10% of rest", "10 % of rest")
    ]
    assert {(str(each), each.share) for each in tenth} == {("1/10 of rest", Fraction(1, 10))}
    assert rest_of("0.5") is rest_of(Fraction(1, 2)) is rest_of("restful") is None
    for said in ("0 of rest", "2 of rest", "101% of rest", "-1 of rest"):
        with pytest.raises(SpecError, check=about("rest")):
            rest_of(said)
    order = orders.order_from({"kind": "sql", "sql": COUNT, "epsilon": "10% of rest"})
    assert orders.order_from(json.loads(order.to_json())) == order


@pytest.mark.parametrize("accountant", ["pure", *CONCENTRATED])
def test_ten_tenths_of_the_rest_fit(accountant):
    gate = opened(accountant)
    gate.sql("SELECT SUM(cost) FROM people", epsilon="0.2")
    tenth = gate.plan(COUNT, epsilon="1/10 of rest").epsilon
    for sql in counts(10):
        assert gate.sql(sql, epsilon=tenth).cost.epsilon == tenth
    assert gate.remaining.epsilon == 0
    with pytest.raises(OverBudget, check=about("rest")):
        gate.sql("SELECT MEDIAN(age) FROM people", epsilon="1/10 of rest")


@pytest.mark.parametrize("accountant", ["pure", "zcdp"])
@pytest.mark.parametrize(
    "name", ["sql", "choose", "histogram", "boxplot", "statistic", "describe", "fit"]
)
def test_what_was_asked_for_the_rest_is_found_again(name, accountant):
    gate, order = opened(accountant), replace(ORDERS[name], epsilon="1/2 of rest")
    gate.sql(COUNT, epsilon="0.2")
    gate.run(order)
    spent = gate.spent
    assert gate.plan(order).free
    gate.run(order)
    assert gate.spent == spent
    gate.run(replace(order, epsilon="rest"))
    assert gate.spent.epsilon <= 1


def test_the_rest_can_be_asked_for_in_sql_and_by_learners():
    for sql in (
        f"{COUNT} /* noisegate: epsilon=1/2 of rest */",
        f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon='50% of rest') {COUNT[7:]}",
    ):
        gate = opened("pure")
        assert gate.sql(sql).cost.epsilon == Fraction(1, 2)
    model = learners.PCA(n_components=1, epsilon="rest").fit(gate.matrix("people", ["age", "cost"]))
    assert Fraction(2, 5) < model.cost_.epsilon <= Fraction(1, 2)  # what is left over goes back
    gate = opened()
    with gate.many({"ward": None}, epsilon="rest", start=1, surprises=2) as session:
        assert session.count(ward="north").margin
    assert gate.choose(
        f"{COUNT} GROUP BY ward".replace("COUNT", "ward, COUNT"), epsilon="rest"
    ).winner


def test_the_rest_at_the_command_line(tmp_path):
    policy_in(tmp_path)
    sums = "SELECT SUM(age) AS s FROM people"
    for sql, said, price in (
        (COUNT, "1/2 of rest", 0.697), (sums, "rest", 0.697), (sums, "rest", 0), (COUNT, "rest", 0),
    ):  # fmt: skip
        words = ["ask", str(tmp_path / "people.toml"), sql, "--analyst", "ana", "--json"]
        found = CliRunner().invoke(app, [*words, "--epsilon", said])
        assert found.exit_code == 0, found.output
        assert json.loads(found.stdout)["price"] == pytest.approx(price, abs=0.001)


# what is told about an event holds for it


@pytest.mark.parametrize("order", ["8", "16", "200"])
@pytest.mark.parametrize("chance", ["1/10", "1/1000"])
def test_no_loss_is_told_that_a_sampled_event_exceeds(order, chance):
    """The curve of geometric noise on a count of a sample, summed up to 60 scales."""
    event = PoissonSampled(
        event=GeometricEvent(scale=Fraction(1, 2), sensitivity=L1(1)), probability=Fraction(chance)
    )
    told = accountant_named(f"renyi-{order}").told(event, ApproxDP(8, "1e-6"))
    noise = np.exp(-2.0 * np.abs(np.arange(-60, 62)))
    out = noise / noise.sum()
    held = (1 - float(Fraction(chance))) * out + float(Fraction(chance)) * np.roll(out, 1)
    factor = np.exp(float(told.epsilon))
    exceeds = max(np.maximum(a - factor * b, 0).sum() for a, b in ((out, held), (held, out)))
    assert exceeds <= float(told.delta) * (1 + 1e-9)


def test_a_new_draw_has_the_price_of_today_whatever_was_bought_before(monkeypatch):
    monkeypatch.setattr("noisegate.desk.desk._SAME", "9999-12-31")  # so this ledger is an older one
    gate = opened(epsilon=10, delta="1e-6")
    rows = gate.matrix("people", ["age"])
    former = replace(rows, rules=replace(rows.rules, former=True))
    bought = learners.KMeans(n_clusters=1, epsilon="0.5").fit(former)
    assert learners.KMeans(n_clusters=1, epsilon="0.5").fit(rows).cost_.epsilon == 0
    anew = learners.KMeans(n_clusters=1, epsilon="0.5")
    assert anew.plan(rows, fresh=True).price.epsilon == Fraction("0.5")
    assert anew.fit(rows, fresh=True).cost_.epsilon == Fraction("0.5") < bought.cost_.epsilon
