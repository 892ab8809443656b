"""A part of the rest, and prices of a zCDP account, by every face of the service."""

from fractions import Fraction

import psycopg
import pytest
from browser import Everybody
from served import PEOPLE, QUICK, serving
from test_agents import use

import noisegate
from noisegate.errors import Forbidden, OverBudget
from noisegate.orders import order_from
from noisegate.server.service import Service
from refusals import about

COUNT = "SELECT COUNT(*) AS n FROM visits WHERE cost > {}"


def order(place, epsilon):
    return order_from({"kind": "sql", "sql": COUNT.format(place), "epsilon": epsilon})


@pytest.fixture
def concentrated(clinic):
    """The clinic with an account of ε = 2 for ana that adds up zCDP."""
    text = clinic.read_text().replace("[budget]", '[budget]\naccountant = "zcdp"')
    clinic.write_text(text.replace("max_epsilon = 1", "max_epsilon = 4"))
    made = Service([clinic], settings=QUICK)
    for name, role in PEOPLE.items():
        made.people.add(name, role)
    yield made
    made.close()


def test_over_http_and_by_a_client(concentrated):
    with serving(concentrated) as found:
        gate = noisegate.connect(found.url, token=found.tokens["ana"])
        whole = gate.remaining.epsilon
        tenth = gate.plan(COUNT.format(1), epsilon="10% of rest")
        assert whole / 10 < tenth.price.epsilon < whole  # a tenth of ρ
        answer = gate.sql(COUNT.format(1), epsilon="10% of rest")
        assert answer.cost.epsilon == tenth.price.epsilon
        rest = gate.sql(COUNT.format(2), epsilon="rest")
        assert rest.cost.epsilon < whole
        assert gate.remaining.epsilon == 0
        assert gate.sql(COUNT.format(2), epsilon="rest").free
        with pytest.raises(OverBudget):
            gate.sql(COUNT.format(3), epsilon="rest")


def test_caps_of_a_token_are_about_the_epsilon_of_one_question(concentrated):
    people = concentrated.people
    caller = people.by_token(people.new_token("ana", epsilon_question="0.5", epsilon_hour=1))
    view = concentrated.view(caller, "clinic")
    with pytest.raises(Forbidden, check=about("token")):
        view.ask(order(1, "rest"), seconds=30)
    with pytest.raises(Forbidden, check=about("token")):
        view.ask(order(1, "0.51"), seconds=30)
    for place in (1, 2):
        run = view.ask(order(place, "0.5"), seconds=30)
        assert run.result().made.cost.epsilon == Fraction(1, 2)
    assert view.spent_this_hour() == 1
    with pytest.raises(Forbidden, check=about("token")):
        view.ask(order(3, "0.01"), seconds=30)


def test_by_agents(concentrated):
    token = concentrated.people.new_token("ana")
    question = {"sql": COUNT.format(1), "epsilon": "1/10 of rest"}
    (planned,) = use(concentrated, token, ("plan_question", question))
    name, price = (planned.structured_content[key] for key in ("plan_id", "price"))
    (asked,) = use(concentrated, token, ("ask_question", {"plan_id": name}))
    assert asked.structured_content["price"] == price


def test_by_postgres_clients(wire):
    with psycopg.connect(wire.dsn(), autocommit=True) as session:
        session.execute("SET noisegate.epsilon = '1/1000 of rest'")
        before = wire.left()
        session.execute(COUNT.format(701)).fetchall()
        assert before - wire.left() == before / 1000
        with pytest.raises(psycopg.Error):
            session.execute("SET noisegate.epsilon = '2 of rest'")


def test_in_the_console(service):
    ana = Everybody(service)["ana"]
    fields = {"sql": COUNT.format(1), "by": "epsilon", "epsilon": "1/10 of rest", "within": ""}
    said = ana.submit("ask/price", fields, home="ask").json()
    assert "0.2" in said["html"]
