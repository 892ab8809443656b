"""What was answered before is told again at once: written down first, with what is left by now."""

import asyncio
from contextlib import closing

import httpx
import pytest
from served import PEOPLE, serving

from noisegate.errors import Paused, SpecError
from noisegate.orders import order_from
from noisegate.server import views
from noisegate.server.access import AuditLog
from noisegate.server.http.asked import Strokes
from noisegate.server.service import Service
from noisegate.server.settings import Settings

PLACE = "/datasets/clinic/orders"
COUNT = {"kind": "sql", "sql": "SELECT COUNT(*) AS n FROM visits", "epsilon": "0.1"}
OTHER = COUNT | {"sql": "SELECT COUNT(*) AS n FROM visits WHERE cost > 7"}


@pytest.fixture
def site(clinic):
    """A service with a quantum, so that what is left is remembered for a while."""
    with closing(Service([clinic], settings=Settings(quantum=0.05))) as made:
        for name, role in PEOPLE.items():
            made.people.add(name, role)
        with serving(made) as found:
            yield found


@pytest.fixture
def ask(site):
    def asked(name, order=COUNT, **terms):
        headers = {"Authorization": f"Bearer {site.tokens[name]}"} | terms.pop("headers", {})
        return httpx.post(site.url + PLACE, json=order, headers=headers, timeout=60, **terms)

    return asked


def test_it_is_told_again_for_free_and_without_the_queue(site, ask, monkeypatch):
    first = ask("ana").json()
    monkeypatch.setattr(site.service.queue, "submit", None)  # whoever needs it fails
    again = [ask("ana").json() for _ in range(3)]
    assert [each["rows"] for each in again] == [first["rows"]] * 3
    assert [each["price"] for each in again] == [0.0] * 3
    lines = site.service.log.lines(person="ana")
    assert [line.detail["price"] for line in lines] == ["0", "0", "0", "1/10"]
    assert [line.detail["run"] for line in lines] == [
        each["id"] for each in site.service.view(_ana(site), "clinic").history()
    ]
    assert site.service.log.broken() is None


@pytest.mark.parametrize(
    "order",
    [
        COUNT | {"sql": "SELECT CURRENT_DATE AS today, COUNT(*) AS n FROM visits WHERE day < CURRENT_DATE"},
        {"kind": "release", "name": "boxplot", "columns": {"cost": None}, "table": "visits", "where": "day < CURRENT_DATE", "epsilon": "0.1"},
    ],
)  # fmt: skip
def test_what_was_made_of_the_clock_is_asked_again_by_what_it_says_now(ask, monkeypatch, order):
    prices = []
    for moment in ("2024-05-01 08:00", "2024-05-01 09:00", "2024-05-02 08:00"):
        monkeypatch.setattr(views, "now", lambda said=moment: f"{said}+00:00")
        told = ask("ana", order).json()
        prices.append(told["price"])
        assert moment[:10] in str(told)
    assert prices == [0.1, 0.0, 0.1]


def test_explain_tells_the_price_of_now(ask):
    """A question is free once it was paid for, and has its price again once it is another one."""
    explained = COUNT | {"sql": f"EXPLAIN {COUNT['sql']}"}
    before = ask("ana", explained).json()["rows"]
    ask("ana")
    after = ask("ana", explained).json()["rows"]
    assert ["price", "ε = 0.1"] in before
    assert ["price", "free: released before"] in after


def _ana(site):
    return site.service.people.caller_of("ana")


def test_what_is_left_is_that_of_now(site, ask):
    """Whoever spent it meanwhile, and whatever a steward changed."""
    left = [ask("ana").json()["exact"]["remaining"]]
    for name, order in (("ana", OTHER), ("ben", OTHER | {"fresh": True})):
        assert ask(name, order).status_code == 200
        left.append(ask("ana").json()["exact"]["remaining"])
        view = site.service.view(_ana(site), "clinic")
        assert left[-1][0] == str(view.gate.remaining.epsilon)
    assert left[0] != left[1]


def test_nothing_is_told_again_that_could_not_be_logged(site, ask, monkeypatch):
    assert ask("ana").status_code == 200

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(AuditLog, "write", full)
        reply = ask("ana")
    assert (reply.status_code, reply.json()["code"]) == (503, "unavailable")
    assert "rows" not in reply.json()
    assert ask("ana").json()["price"] == 0.0


def test_it_is_not_told_to_others_nor_while_the_steward_has_paused(site, ask):
    assert ask("ana").status_code == 200
    token = site.service.people.new_token("ana")
    assert ask("ana", headers={"Authorization": f"Bearer {token}"}).status_code == 200
    site.service.people.revoke(token.split("_")[1])
    assert ask("ana", headers={"Authorization": f"Bearer {token}"}).status_code == 401
    sam = site.service.people.caller_of("sam")
    site.service.pause(sam, "clinic")
    reply = ask("ana")
    assert (reply.status_code, reply.json()["code"]) == (503, Paused.code)
    site.service.resume(sam, "clinic")
    assert ask("ana").status_code == 200
    site.service.people.disable("ana")
    assert ask("ana").status_code == 401


@pytest.mark.parametrize("limit", [{"epsilon_question": "0.01"}, {"epsilon_hour": "0.01"}])
def test_a_limited_token_goes_the_long_way(site, limit):
    view = site.service.view(_ana(site), "clinic")
    site.service._answers._quantum = 60
    order = order_from(COUNT)
    view.ask(order)
    assert view.known(order) is None, "the ledger has changed"
    view.ask(order)
    assert view.known(order) is not None
    people = site.service.people
    poor = people.by_token(people.new_token("ana", **limit))
    limited = site.service.view(poor, "clinic")
    assert limited.known(order) is None
    assert limited.ask(order).result().price.epsilon == 0, "which is free as well"


def test_one_that_fails_leaves_the_others_of_its_stroke(service):
    def write(name):
        def work(do):
            do("INSERT INTO secrets VALUES (?, ?)", (name, "x"))
            if name == "b":
                raise SpecError("no", fix="yes")
            return name

        return work

    async def all_of_them():
        from anyio import CapacityLimiter

        strokes = Strokes(service.store, CapacityLimiter(1))
        return await asyncio.gather(
            *(strokes.do(write(name)) for name in ("a", "b", "c", "a")), return_exceptions=True
        )

    a, b, c, twice = asyncio.run(all_of_them())
    assert (a, c) == ("a", "c")
    assert isinstance(b, SpecError)
    assert twice.code == "operator-error.store"
    kept = service.store.all("SELECT name FROM secrets WHERE value = 'x' ORDER BY name")
    assert kept == [("a",), ("c",)]
