"""The calls over HTTP: orders, forms, waiting, one shape of errors, and what strangers try."""

import asyncio
import io
import json
import re
import socket
import threading
from contextlib import closing, contextmanager
from datetime import timedelta
from fractions import Fraction
from pathlib import Path

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from clinics import own_rows
from served import PEOPLE, QUICK, serving

from noisegate.releases.forms.table import TableRelease
from noisegate.server.http.asked import BODY_MAX, TYPES
from noisegate.server.http.table import CALLS, description
from noisegate.server.service import Service

DOCS = Path(__file__).parents[2] / "docs"
COUNT = {
    "kind": "sql",
    "sql": "SELECT ward, COUNT(*) AS n FROM visits WHERE cost > 17 GROUP BY ward",
    "epsilon": "0.5",
}
RELEASE = {
    "kind": "release",
    "name": "histogram",
    "columns": {"ward": None},
    "table": "visits",
    "epsilon": 1,
}
ORDERS = "/datasets/clinic/orders"


@contextmanager
def running(policy):
    """A service of its own."""
    service = Service([policy], settings=QUICK)
    for name, role in PEOPLE.items():
        service.people.add(name, role)
    with closing(service), serving(service) as found:
        yield found


@pytest.fixture
def call(served):
    """Calls by somebody: ``call("ana", "GET", "/datasets")``."""
    with httpx.Client(base_url=served.url, timeout=30) as client:

        def made(person, method, path, **said):
            headers = dict(said.pop("headers", {}))
            if person is not None:
                headers.setdefault("Authorization", f"Bearer {served.tokens.get(person, person)}")
            return client.request(method, path, headers=headers, **said)

        yield made


def fails(reply, status, code):
    """It is refused in the one shape."""
    body = reply.json()
    assert (reply.status_code, body["code"]) == (status, code), body
    assert body.keys() <= {"code", "message", "fix", "reference", "plan"}
    assert body["message"]
    assert body["fix"]
    assert reply.headers["content-type"] == "application/json"
    assert reply.headers["cache-control"] == "no-store"
    return body


# orders


def test_an_order_is_planned_practised_and_run(call):
    alone = COUNT | {"sql": COUNT["sql"].replace("17", "18")}  # no other test has paid for it
    plan = call("ana", "POST", "/datasets/clinic/plan", json=alone).json()
    assert (plan["exact"]["price"], plan["fits"]) == (["1/2", "0"], True)
    made_up = call("ana", "POST", "/datasets/clinic/practice", json=alone).json()
    assert made_up["practice"]
    answer = call("ana", "POST", ORDERS, json=alone)
    assert answer.status_code == 200
    assert answer.json()["price"] == 0.5
    assert not answer.json()["practice"]
    assert call("ana", "POST", ORDERS, json=alone).json()["free"]
    place = answer.headers["content-location"]
    assert call("ana", "GET", place).json()["rows"] == answer.json()["rows"]
    run = call("ana", "GET", place.removesuffix("/result")).json()
    assert (run["state"], run["exact"]["cost"]) == ("done", ["1/2", "0"])


def test_sql_is_sent_as_it_is(call):
    sent = {
        "headers": {"Content-Type": "text/sql"},
        "content": "SELECT COUNT(*) AS n FROM patients",
    }
    plan = call("ana", "POST", "/datasets/clinic/plan?within=30&confidence=0.99", **sent).json()
    assert plan["confidence"] == 0.99
    assert plan["margins"]["n"] <= 30
    dear = call("ana", "POST", f"{ORDERS}?epsilon=1/4&rows_per_unit=1&fresh=true", **sent).json()
    assert (dear["price"], dear["columns"]) == (0.25, ["n"])
    fails(call("ana", "POST", f"{ORDERS}?epsilom=1", **sent), 400, "bad-parameter.parameter")
    fails(
        call("ana", "POST", f"{ORDERS}?epsilon=1&epsilon=2", **sent), 400, "bad-parameter.parameter"
    )
    fails(call("ana", "POST", f"{ORDERS}?rows=1e3", **sent), 400, "bad-parameter.rows")


def test_every_form_holds_the_same_numbers(call):
    def got(kind):
        reply = call("ana", "POST", ORDERS, json=COUNT, headers={"Accept": kind})
        assert reply.headers["content-type"].partition(";")[0] == kind
        return reply.content

    rows = json.loads(got(TYPES["json"]))["rows"]
    arrow = pa.ipc.open_stream(got(TYPES["arrow"])).read_all()
    parquet = pq.read_table(io.BytesIO(got(TYPES["parquet"])))
    assert arrow.column_names == parquet.column_names == ["ward", "n", "n_margin"]
    assert arrow.to_pydict() == parquet.to_pydict()
    assert [[row["ward"], row["n"]] for row in arrow.to_pylist()] == rows
    lines = got(TYPES["csv"]).decode().splitlines()
    assert [line.split(",")[:2] for line in lines[1:]] == [[name, str(n)] for name, n in rows]


def test_a_form_is_found_by_what_is_accepted(call):
    reply = call(
        "ana",
        "POST",
        ORDERS,
        json=COUNT,
        headers={"Accept": "image/png;q=1, text/*;q=0.5, application/json;q=0.4"},
    )
    assert reply.headers["content-type"].startswith("text/csv")
    before = call("ana", "GET", "/datasets/clinic").json()["exact"]
    asked = {"json": COUNT | {"fresh": True}, "headers": {"Accept": "image/png"}}
    fails(call("ana", "POST", ORDERS, **asked), 406, "request.accept")
    choice = {"kind": "choose", "sql": COUNT["sql"], "epsilon": 1}
    fails(
        call("ana", "POST", ORDERS, json=choice, headers={"Accept": "text/csv"}),
        406,
        "request.accept",
    )
    assert call("ana", "GET", "/datasets/clinic").json()["exact"] == before


def test_a_release_is_a_file_with_a_card(call, tmp_path):
    made = call("ana", "POST", ORDERS, json=RELEASE, headers={"Accept": TYPES["parquet"]})
    (tmp_path / "wards.parquet").write_bytes(made.content)
    release = TableRelease.load(tmp_path / "wards.parquet")
    listed = call("ana", "GET", "/releases").json()["releases"]
    name = made.headers["content-location"].split("/")[2]
    assert name in [each["id"] for each in listed]
    shown = call("ana", "GET", f"/releases/{name}").json()
    assert [row[-1] for row in shown["rows"]] == release.values.tolist()
    card = call("ana", "GET", f"/releases/{name}/card").json()
    assert card["ledger"]
    assert release.card().to_dict()["measurements"] == card["measurements"]
    asked = call("ana", "POST", ORDERS, json=COUNT).headers["content-location"].split("/")[2]
    fails(call("ana", "GET", f"/releases/{asked}"), 404, "not-found")


def test_a_caller_who_does_not_wait_is_told_where_to_look(call):
    asked = {"json": COUNT | {"fresh": True}, "headers": {"Prefer": "respond-async"}}
    reply = call("ana", "POST", ORDERS, **asked)
    assert reply.status_code == 202
    place = reply.headers["location"]
    result = call("ana", "GET", f"{place}/result", headers={"Prefer": "wait=20"})
    assert (result.status_code, result.json()["price"]) == (200, 0.5)
    assert call("ana", "GET", place).json()["state"] == "done"


def test_a_queued_run_is_cancelled_for_nothing(clinic):
    with running(clinic) as found, httpx.Client(base_url=found.url) as client:
        busy = threading.Event()
        for n in range(QUICK.workers):
            found.service.queue.submit(f"x{n}", lambda: busy.wait(60))  # also where the test fails
        client.headers["Authorization"] = f"Bearer {found.tokens['ana']}"
        started = client.post(ORDERS, json=COUNT, headers={"Prefer": "wait=0.1"})
        assert (started.status_code, started.json()["state"]) == (202, "queued")
        place = started.headers["location"]
        assert client.delete(place).json()["state"] == "cancelled"
        fails(client.get(f"{place}/result"), 409, "cancelled")
        busy.set()
        assert client.get("/datasets/clinic").json()["exact"]["spent"] == ["0", "0"]


def test_what_the_account_cannot_pay_comes_with_its_plan(call):
    dear = COUNT | {"fresh": True, "epsilon": 1}  # ben has 3
    replies = [call("ben", "POST", ORDERS, json=dear) for _ in range(4)]
    assert fails(replies[-1], 402, "over-budget")["plan"]["fits"] is False
    spent = call("ben", "GET", "/datasets/clinic").json()["exact"]["spent"]
    assert call("ben", "POST", ORDERS, json=dear).status_code == 402
    assert call("ben", "GET", "/datasets/clinic").json()["exact"]["spent"] == spent


def test_a_look_that_finds_nothing_is_paid_for_once_and_says_so(clinic):
    """By chance alone a range stands out from noise this wide once in 1,000 times, twice in 10⁶."""
    look = {"kind": "bounds", "table": "visits", "column": "cost"}
    looks = [look | {"epsilon": epsilon} for epsilon in ("0.00001", "0.00002")]
    with running(clinic) as made:
        said = {"Authorization": f"Bearer {made.tokens['ana']}"}
        with httpx.Client(base_url=made.url, timeout=30, headers=said) as client:

            def spent():
                return Fraction(client.get("/datasets/clinic").json()["exact"]["spent"][0])

            assert spent() == 0
            found = next(each for each in looks if client.post(ORDERS, json=each).is_error)
            before = spent()
            told = fails(client.post(ORDERS, json=found), 422, "unsupported.no-range")
            assert "was paid for" in told["message"]
            assert spent() == before >= Fraction("0.00001")


def test_the_page_and_the_description_name_what_is_refused_after_a_charge():
    page, told = (DOCS / "service.md").read_text(), description()["paths"]
    answers = told["/datasets/{dataset}/orders"]["post"]["responses"]
    for code, status in (("no-range", "422"), ("after-paying", "422"), ("partly", "402")):
        assert re.search(rf"`[a-z-]+\.{code}`", page)
        assert code in answers[status]["description"]


# idempotency


def test_the_same_key_is_the_same_run_and_another_body_is_refused(call):
    fresh = COUNT | {"fresh": True}
    said = {"Idempotency-Key": "test-key-1"}
    first = call("ana", "POST", ORDERS, json=fresh, headers=said)
    spent = call("ana", "GET", "/datasets/clinic").json()["exact"]["spent"]
    second = call("ana", "POST", ORDERS, json=fresh, headers=said)
    assert second.json() == first.json()
    assert second.headers["content-location"] == first.headers["content-location"]
    assert call("ana", "GET", "/datasets/clinic").json()["exact"]["spent"] == spent
    other = fresh | {"epsilon": "0.25"}
    fails(call("ana", "POST", ORDERS, json=other, headers=said), 409, "request-conflict.key")
    fails(
        call("ana", "POST", ORDERS, json=fresh, headers={"Idempotency-Key": "k" * 201}),
        400,
        "bad-parameter",
    )
    theirs = call("ben", "POST", ORDERS, json=COUNT, headers=said)  # keys belong to their people
    assert theirs.headers["content-location"] != first.headers["content-location"]


@pytest.mark.long
def test_two_hundred_wait_at_once(clinic):
    """While all workers are busy; others still plan."""
    with running(clinic) as found:
        busy = threading.Event()
        for n in range(QUICK.workers):
            found.service.queue.submit(f"x{n}", lambda: busy.wait(60))  # also where the test fails

        async def waiting():
            headers = {"Authorization": f"Bearer {found.tokens['ana']}"}
            keyed = headers | {"Prefer": "wait=60", "Idempotency-Key": "one"}
            limits = httpx.Limits(max_connections=300)
            async with httpx.AsyncClient(base_url=found.url, limits=limits, timeout=60) as client:
                waits = [
                    asyncio.create_task(client.post(ORDERS, json=COUNT, headers=keyed))
                    for _ in range(200)
                ]
                await asyncio.sleep(1)
                plan = await client.post("/datasets/clinic/plan", json=COUNT, headers=headers)
                assert plan.status_code == 200
                assert not any(each.done() for each in waits)
                busy.set()
                return await asyncio.gather(*waits)

        replies = asyncio.run(waiting())
        assert {each.status_code for each in replies} == {200}
        assert len({each.text for each in replies}) == 1


# who is there


@pytest.mark.parametrize(
    "path", ["/datasets", "/datasets/clinic", "/history", "/releases", "/metrics"]
)
def test_without_a_token_nothing_is_told(call, path):
    for said in (
        {},
        {"Authorization": "Basic eDp5"},
        {"Authorization": "Bearer"},
        {"Authorization": "Bearer ng_a_b"},
    ):
        reply = call(None, "GET", path, headers=said)
        fails(reply, 401, "unauthenticated")
        assert reply.headers["www-authenticate"].startswith("Bearer")


def test_tokens_that_ended_or_are_for_other_data_sets_open_nothing(served, call):
    people = served.service.people
    expired = people.new_token("ana", expires=timedelta(seconds=-1))
    other = people.new_token("ana", datasets=["elsewhere"])
    revoked = people.new_token("ana")
    people.revoke(revoked.split("_")[1])
    for token in (expired, revoked, revoked[:-1], f"{revoked}x"):
        fails(call(token, "GET", "/datasets/clinic"), 401, "unauthenticated")
    fails(call(other, "GET", "/datasets/clinic"), 404, "not-found")
    fails(call(other, "POST", ORDERS, json=COUNT), 404, "not-found")
    assert call(other, "GET", "/datasets").json() == {"datasets": []}
    same = call("ana", "GET", "/datasets/nowhere").json()
    assert same == call(other, "GET", "/datasets/clinic").json()


def test_an_analyst_is_no_steward(call):
    for path in ("/ledger/head", "/audit", "/metrics"):
        fails(call("ana", "GET", path), 403, "forbidden.role")
        assert call("aud", "GET", path).status_code == 200
        assert call("sam", "GET", path).status_code == 200
    fails(call("aud", "POST", ORDERS, json=COUNT), 403, "forbidden.asker")


def test_runs_belong_to_their_people(call):
    place = call("ana", "POST", ORDERS, json=COUNT).headers["content-location"]
    run = place.removesuffix("/result")
    for path in (run, place, f"{run}/card", f"{run}/entries"):
        fails(call("ben", "GET", path), 404, "not-found")
    fails(call("ben", "DELETE", run), 404, "not-found")
    assert all(each["person"] == "ben" for each in call("ben", "GET", "/history").json()["runs"])
    assert call("sam", "GET", run).status_code == 200


# what strangers send


@pytest.mark.parametrize(("body", "code"), [
    (b"", "bad-parameter.json"),
    (b"[]", "bad-parameter.json"),
    (b"nope", "bad-parameter.json"),
    (b"\xff\xfe", "bad-parameter.encoding"),
    (b'{"kind": "sql", "kind": "sql"}', "bad-parameter.json"),
    (b'{"kind": "sql", "sql": "SELECT 1", "epsilon": NaN}', "bad-parameter.json"),
    (b"[" * 100_000, "bad-parameter.json"),
    (b'{"a":' * 500 + b"1" + b"}" * 500, "bad-parameter.depth"),
    (b'{"kind": "nope"}', "bad-parameter.name"),
    (b'{"kind": "sql"}', "bad-parameter.missing"),
    (b'{"kind": "sql", "sql": "SELECT 1", "fresh": "yes"}', "bad-parameter.fresh"),
    (b'{"kind": "sql", "sql": "SELECT COUNT(*) FROM visits", "epsilon": "1e999999999"}', None),
])  # fmt: skip
def test_bodies_that_are_no_orders_are_refused(call, body, code):
    sent = {"content": body, "headers": {"Content-Type": "application/json"}}
    for path in ("/datasets/clinic/plan", ORDERS):
        reply = call("ana", "POST", path, **sent)
        assert reply.status_code == 400, reply.text
        assert code in (None, reply.json()["code"])


def test_large_bodies_and_other_types_are_refused(call):
    large = {"content": b" " * (BODY_MAX + 1), "headers": {"Content-Type": "application/json"}}
    fails(call("ana", "POST", ORDERS, **large), 413, "request.size")
    for kind in ("text/plain", "application/x-www-form-urlencoded", "", "multipart/form-data"):
        sent = {"content": b"x", "headers": {"Content-Type": kind}}
        fails(call("ana", "POST", ORDERS, **sent), 415, "request.type")
    fails(call("nobody", "POST", ORDERS, **large), 401, "unauthenticated")


@pytest.mark.parametrize("path", [
    "/datasets/..%2f..%2fetc%2fpasswd", "/datasets/%00", "/datasets/clinic%00", "/orders/../datasets",
    "/orders/%2e%2e", "/orders/' OR 1=1 --", "/orders/" + "0" * 32, "/orders/" + "g" * 32,
    "/releases/..%2f/card", "/datasets/clinic/", "//datasets", "/datasets/<script>",
])  # fmt: skip
def test_paths_that_lead_nowhere_are_not_found(call, path):
    reply = call("sam", "GET", path)
    if reply.url.path != "/datasets":  # the client tidies some
        fails(reply, 404, "not-found")


@pytest.mark.parametrize("text", [
    "'; DROP TABLE visits; --", "SELECT * FROM visits", "SELECT COUNT(*) FROM people; SELECT 1",
    "SELECT COUNT(*) FROM read_csv('/etc/passwd')", "COPY visits TO 'x.csv'", "\x00", "<b>" * 1000,
    "SELECT COUNT(*) FROM visits WHERE ward = (SELECT ward FROM visits LIMIT 1)",
])  # fmt: skip
def test_sql_in_text_fields_is_refused_for_nothing(call, text):
    before = call("ana", "GET", "/datasets/clinic").json()["exact"]
    orders = [
        {"kind": "sql", "sql": text, "epsilon": 1},
        {"kind": "caps", "table": text, "epsilon": 1},
        {"kind": "bounds", "table": "visits", "column": text, "epsilon": 1},
        {"kind": "statistic", "expressions": [text], "table": "visits", "epsilon": 1},
        {
            "kind": "statistic",
            "expressions": ["cost"],
            "where": text,
            "table": "visits",
            "epsilon": 1,
        },
        {
            "kind": "release",
            "name": "histogram",
            "columns": {text: None},
            "table": "visits",
            "epsilon": 1,
        },
    ]
    for order in orders:
        reply = call("ana", "POST", ORDERS, json=order)
        assert reply.status_code in (400, 422), reply.text
    for path in (f"/history?dataset={text[:50]}", f"/datasets/clinic/{text[:50]}"):
        assert call("ana", "GET", path.replace("\x00", "%00")).status_code == 404
    assert call("ana", "GET", "/datasets/clinic").json()["exact"] == before


def test_errors_of_the_operator_are_a_reference_to_analysts(clinic, caplog):
    own_rows(clinic)
    with running(clinic) as found, httpx.Client(base_url=found.url) as client:
        rows = clinic.parent / "clinic" / "visits.csv"
        rows.rename(rows.with_suffix(".gone"))
        client.headers["Authorization"] = f"Bearer {found.tokens['ana']}"
        shown = fails(client.post(ORDERS, json=COUNT), 503, "unavailable")
    assert "visits" not in json.dumps(shown)
    assert re.fullmatch("[0-9a-f]{8}", shown["reference"])
    assert shown["reference"] in caplog.text


def test_no_header_tells_a_version(call):
    for reply in (
        call(None, "GET", "/health"),
        call("ana", "GET", "/datasets"),
        call(None, "GET", "/x"),
    ):
        told = " ".join(f"{name}: {value}" for name, value in reply.headers.items()).lower()
        assert "uvicorn" not in told
        assert "server:" not in told
        assert "python" not in told
        assert reply.headers["x-content-type-options"] == "nosniff"
        assert reply.headers["cache-control"] == "no-store"


def test_a_request_is_named_in_its_reply(call):
    assert (
        call(None, "GET", "/health", headers={"X-Request-Id": "abc-1"}).headers["x-request-id"]
        == "abc-1"
    )
    forged = call(None, "GET", "/health", headers={"X-Request-Id": "a b<script>"}).headers[
        "x-request-id"
    ]
    assert re.fullmatch("[0-9a-f]{32}", forged)


def test_a_client_that_breaks_off_harms_nobody(served, call):
    host, port = served.url.removeprefix("http://").split(":")
    for text in (
        b"POST /datasets/clinic/orders HTTP/1.1\r\nHost: x\r\nContent-Le",
        b"\x16\x03\x01\x00",
        b"GET / HTTP/9\r\n\r\n",
    ):
        with socket.create_connection((host, int(port))) as half:
            half.sendall(text)
    assert call(None, "GET", "/ready").json()["status"] == "ready"


def test_health_readiness_and_metrics(call):
    assert call(None, "GET", "/health").json() == {"status": "ok"}
    assert call(None, "GET", "/ready").json()["datasets"] == 1
    text = call("sam", "GET", "/metrics").text
    assert re.search(r'^noisegate_orders_total\{outcome="answered"\} \d+$', text, re.MULTILINE)


# the description


def test_every_call_is_described_and_documented(call):
    told = call(None, "GET", "/openapi.json").json()
    assert told == json.loads(json.dumps(description()))
    page = (DOCS / "service.md").read_text()
    for each in CALLS:
        assert each.method.lower() in told["paths"][each.path]
        assert f"`{each.method} {each.path}`" in page, each.path
    assert sum(len(each) for each in told["paths"].values()) == len(CALLS)


def test_the_description_is_openapi(call):
    import jsonschema

    told = description()
    assert told["openapi"].startswith("3.1")
    for name in told["components"]["schemas"]:
        shape = {"$ref": f"#/components/schemas/{name}", "components": told["components"]}
        jsonschema.Draft202012Validator.check_schema(shape)
    order = {"$ref": "#/components/schemas/Order", "components": told["components"]}
    jsonschema.Draft202012Validator(order).validate(COUNT | {"fresh": True})
    jsonschema.Draft202012Validator(order).validate(RELEASE)
