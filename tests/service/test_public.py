"""What leaves without a token, and what only stewards and auditors take along."""

import json
import shutil
import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path

import httpx
import pytest
from served import QUICK, serving
from wires import Wire

from noisegate.desk.card import Card, verify
from noisegate.errors import Forbidden
from noisegate.orders import order_from
from noisegate.server import pictures
from noisegate.server.http import http_app
from noisegate.server.serve import Serving
from noisegate.server.service import Service
from refusals import about

RELEASE = {
    "kind": "release", "name": "histogram", "columns": {"ward": None}, "table": "visits",
    "epsilon": 1,
}  # fmt: skip
COUNT = {"kind": "sql", "sql": "SELECT COUNT(*) AS n FROM visits", "epsilon": "0.1"}
ORDERS = "/datasets/clinic/orders"


@pytest.fixture
def call(service):
    with serving(service) as served, httpx.Client(base_url=served.url, timeout=60) as client:

        def made(person, method, path, **said):
            token = {} if person is None else {"Authorization": f"Bearer {served.tokens[person]}"}
            return client.request(method, path, headers=token | said.pop("headers", {}), **said)

        yield made


def test_a_release_is_public_only_while_the_steward_says_so(call):
    name = call("ana", "POST", ORDERS, json=RELEASE).headers["content-location"].split("/")[2]
    place = f"/public/{name}"
    assert call(None, "GET", place).status_code == 404
    assert call("ana", "POST", f"/releases/{name}/public").status_code == 404, "no steward"
    assert call("sam", "POST", f"/releases/{name}/public").status_code == 200
    assert [each["id"] for each in call(None, "GET", "/public").json()["releases"]] == [name]
    shown = call(None, "GET", place).json()
    assert shown["price"] == 1
    assert not {"remaining", "exact", "remaining_delta"} & shown.keys()
    assert "north" in call(None, "GET", place, headers={"Accept": "text/csv"}).text
    assert call(None, "GET", f"{place}/card").status_code == 200
    picture = call(None, "GET", f"{place}/picture.svg")
    assert picture.headers["content-type"].startswith("image/svg+xml")
    assert b"<svg" in picture.content
    assert picture.headers["content-security-policy"].startswith("default-src 'none'")
    assert picture.headers["x-content-type-options"] == "nosniff"
    assert call("sam", "DELETE", f"/releases/{name}/public").status_code == 200
    assert call(None, "GET", place).status_code == 404
    other = call("ana", "POST", ORDERS, json=COUNT).headers["content-location"].split("/")[2]
    assert call("sam", "POST", f"/releases/{other}/public").status_code == 404, "no release"


def test_a_public_card_names_nobody_and_the_ledger_confirms_it(call, service):
    name = call("ana", "POST", ORDERS, json=RELEASE).headers["content-location"].split("/")[2]
    call("sam", "POST", f"/releases/{name}/public")
    own = call("ana", "GET", f"/orders/{name}/card").text
    text = call(None, "GET", f"/public/{name}/card").text
    assert "clinic/ana" in own
    assert "clinic/ana" not in text
    ledger = service._hosted["clinic"].ledger
    assert verify(Card.from_json(text), ledger) == []
    lied = json.loads(text)
    lied["ledger"][0]["request"] = "clinic/ben: 1"
    assert verify(Card(lied), ledger), "a name that is said is checked"


def test_pictures_are_drawn_once_and_few_at_a_time(call, monkeypatch):
    """Whoever looks at public pictures keeps nobody waiting who has a token."""
    names = [
        call("ana", "POST", ORDERS, json=RELEASE | {"epsilon": each}).headers["content-location"]
        for each in ("0.1", "0.2", "0.3")
    ]
    names = [each.split("/")[2] for each in names]
    for name in names:
        call("sam", "POST", f"/releases/{name}/public")
    drawn, working, most, go = [], [], [], threading.Event()

    def slow(release):
        drawn.append(release)
        working.append(1)
        most.append(len(working))
        go.wait(20)
        working.pop()
        return b"<svg/>"

    monkeypatch.setattr(pictures, "svg_of", slow)
    looks = [
        threading.Thread(target=call, args=(None, "GET", f"/public/{name}/picture.svg"))
        for name in names * 12
    ]
    for look in looks:
        look.start()
    try:
        time.sleep(0.3)
        assert call("ana", "GET", "/datasets", timeout=5).status_code == 200
    finally:
        go.set()
        for look in looks:
            look.join()
    assert len(drawn) == len(names)
    assert max(most) <= pictures.AT_ONCE


def test_what_failed_cannot_be_public(call, service):
    call("ana", "POST", ORDERS, json=RELEASE | {"columns": {"nowhere": None}})
    (name,) = service.store.one("SELECT id FROM runs WHERE state = 'failed'")
    assert call("sam", "POST", f"/releases/{name}/public").status_code == 404
    assert call(None, "GET", "/public").json()["releases"] == []
    service.store.all("INSERT INTO published VALUES (?, 'clinic', '2026', 'sam')", name)
    assert call(None, "GET", f"/public/{name}").status_code == 404
    assert call("sam", "DELETE", f"/releases/{name}/public").status_code == 200


def test_an_export_can_be_restored_but_not_in_place_of_a_later_one(call, tmp_path):
    call("ana", "POST", ORDERS, json=COUNT)
    assert call("ana", "GET", "/ledger/export").status_code in (403, 404)
    early = call("aud", "GET", "/ledger/export")
    head = json.loads(early.headers["noisegate-head"])
    assert json.loads(early.text.splitlines()[-1])["hash"] == head["hash"]
    call("ana", "POST", ORDERS, json=COUNT | {"epsilon": "0.2"})
    (tmp_path / "early.jsonl").write_text(early.text)
    (tmp_path / "head.json").write_text(
        call("sam", "GET", "/ledger/export").headers["noisegate-head"]
    )

    def restored(name, *more):
        words = ["ledger", "restore", str(tmp_path / "early.jsonl"), str(tmp_path / name), *more]
        command = [Path(sys.executable).with_name("noisegate"), *words]
        return subprocess.run(command, capture_output=True, check=False).returncode

    assert restored("late.db", "--head", str(tmp_path / "head.json")) != 0
    assert not (tmp_path / "late.db").exists()
    assert restored("early.db", "--head", early.headers["noisegate-head"]) == 0


def test_an_export_is_for_those_who_may_see_all_of_the_ledger(clinic):
    """A token for one data set does not show what was asked of another in the same ledger."""
    text = clinic.read_text().replace("[budget]", 'ledger = "both.db"\n\n[budget]', 1)
    clinic.write_text(text)
    other = clinic.with_name("other.toml")
    other.write_text(text.replace('"clinic"', '"other"'))
    shutil.copytree(clinic.with_name("clinic"), clinic.with_name("other"))
    with closing(Service([clinic, other], settings=QUICK)) as made:
        made.people.add("ana", "analyst")
        made.people.add("aud", "auditor")
        made.view(made.people.caller_of("ana"), "other").ask(order_from(COUNT))
        part, whole = (
            made.people.by_token(made.people.new_token("aud", datasets=names))
            for names in (["clinic"], ["clinic", "other"])
        )
        with pytest.raises(Forbidden, check=about("shared-ledger")):
            made.view(part, "clinic").export()
        assert b"other/ana" in made.view(whole, "clinic").export()[0]


def test_a_request_for_another_name_is_refused(service):
    hosts = Serving().known_hosts
    transport = httpx.ASGITransport(http_app(service, hosts=hosts))

    async def status(name):
        async with httpx.AsyncClient(transport=transport, base_url=f"http://{name}") as client:
            return (await client.get("/health")).status_code

    import asyncio

    for name in ("localhost:8080", "127.0.0.1", "[::1]:99", "LOCALHOST"):
        assert asyncio.run(status(name)) == 200
    for name in ("evil.example", "localhost.evil.example", "127.0.0.1.evil.example:8080"):
        assert asyncio.run(status(name)) == 421
    assert Serving(hosts=("gate.example",)).known_hosts >= {"gate.example", "localhost"}


def test_a_failed_sign_in_on_the_wire_is_written_down():
    from psycopg import OperationalError, connect

    wire = Wire()
    try:
        for _ in range(2):
            with pytest.raises(OperationalError):
                connect(wire.dsn(password="ng_wrong", sslmode="disable"))
        lines = [each for each in wire.service.log.lines() if each.action == "sign-in-failed"]
        assert [each.detail["failed"] for each in lines] == [2, 1]
        assert {each.person for each in lines} == {"ana"}
        assert "ng_wrong" not in str(lines)
        with connect(wire.dsn()):
            pass
    finally:
        wire.stop()
