"""noisegate.connect gives a gate: the same methods, the same results, the same refusals."""

import socket
import threading
from contextlib import closing, suppress
from dataclasses import replace
from fractions import Fraction

import pytest
from served import PEOPLE, QUICK, serving

import noisegate
from noisegate.client import RemoteGate
from noisegate.client.calls import Reply, refusal_of
from noisegate.client.results import _HOMES
from noisegate.errors import (
    Forbidden,
    NoisegateError,
    NotFound,
    OperatorError,
    OverBudget,
    SpecError,
    Unauthenticated,
    Unsupported,
    Waiting,
)
from noisegate.isolated.lockdown import can_lock
from noisegate.orders import RELEASES, FitOrder, order_from
from noisegate.privacy.loss import ApproxDP
from noisegate.server.service import Service
from refusals import about

BY_WARD = "SELECT ward, COUNT(*) AS n, AVG(cost) AS cost FROM visits GROUP BY ward"
HARD = """
SELECT v.ward, COUNT(DISTINCT p.visit_id) AS n, SUM(days) AS days
FROM prescriptions p JOIN visits v ON p.visit_id = v.visit_id GROUP BY v.ward
"""
YEARS = """
SELECT BIN(y, 20), COUNT(*)
FROM (SELECT patient_id, MAX(birth_year) AS y FROM patients GROUP BY patient_id) AS u GROUP BY 1
"""
ORDERS = [  # of every kind; each is asked of a gate here and of one over the network
    {"kind": "sql", "sql": BY_WARD, "epsilon": "0.5"},
    {"kind": "sql", "sql": HARD, "epsilon": "0.5"},
    {"kind": "sql", "sql": "SELECT town, COUNT(*) AS n FROM patients GROUP BY town", "epsilon": 1},
    {"kind": "choose", "sql": "SELECT ward, COUNT(*) FROM visits GROUP BY ward", "epsilon": 1, "gap": True},
    {"kind": "choose", "sql": "SELECT COUNT(*) FILTER (WHERE at BETWEEN cost AND cost + 50) FROM visits", "candidates": {"at": {"from": 0, "to": 800}}, "epsilon": 1},
    {"kind": "auction", "column": "cost", "prices": [50, "100.5", 300], "table": "visits", "epsilon": 1},
    {"kind": "caps", "table": "visits", "epsilon": "0.5"},
    {"kind": "bounds", "table": "visits", "column": "cost", "epsilon": 1},
    {"kind": "statistic", "expressions": ["cost >= 100", "cost"], "table": "visits", "epsilon": 1},
    {"kind": "smooth", "sql": "SELECT MEDIAN(cost) FROM visits", "epsilon": 1, "rows_per_unit": 1},
    {"kind": "smooth", "sql": "SELECT AVG(cost) FROM visits", "trim": "0.1", "epsilon": 1, "rows_per_unit": 1},
    {"kind": "distance", "sql": "SELECT COUNT(*) FILTER (WHERE cost < 3) AS a, COUNT(*) FILTER (WHERE cost > 90) AS b FROM visits", "epsilon": 1},
    {"kind": "release", "name": "histogram", "table": "visits", "columns": {"ward": None, "cost": 100}, "epsilon": 1},
    {"kind": "release", "name": "cdf", "table": "visits", "columns": {"cost": 50}, "epsilon": 1},
    {"kind": "release", "name": "cube", "table": "visits", "columns": {"ward": None, "cost": 200}, "epsilon": 1},
    {"kind": "release", "name": "boxplot", "table": "visits", "columns": {"cost": None, "ward": None}, "epsilon": 1},
    {"kind": "release", "name": "describe", "table": "patients", "epsilon": 1},
    {"kind": "release", "name": "sparse", "table": "visits", "columns": {"cost": 50, "ward": None}, "epsilon": 1},
    {"kind": "release", "name": "synthetic", "table": "patients", "columns": ["sex", "birth_year"], "rows": 50, "epsilon": 1},
    {"kind": "release", "name": "crowd-histogram", "sql": YEARS, "probability": "1/10", "delta": "1e-8", "epsilon": 1},
    {"kind": "release", "name": "crowd-points", "sql": YEARS, "probability": "1/4", "delta": "1e-8", "epsilon": 1},
]  # fmt: skip


@pytest.fixture(scope="module")
def gate(served):
    return noisegate.connect(served.url, token=served.tokens["ana"])


@pytest.fixture(scope="module")
def here(served):
    """A gate in this process with the same account: what was paid for by one is free to the other."""
    (policy,) = served.service._hosted.values()
    return policy.gate("ana")


def test_a_remote_gate_has_the_methods_of_a_gate():
    public = {name for name in dir(noisegate.Gate) if not name.startswith("_")}
    own = {"door", "rules", "ledger", "settled"}  # what only a process with the ledger can hold
    assert public - own <= {name for name in dir(RemoteGate) if not name.startswith("_")}


@pytest.mark.parametrize("record", ORDERS, ids=lambda each: each.get("name", each["kind"]))
def test_what_comes_back_is_what_the_gate_itself_gives(gate, here, record):
    """The first asks and pays, the second finds the same in the ledger."""
    order = order_from(record)
    plan, expected = gate.plan(order), here.plan(order)
    assert str(plan) == str(expected)
    assert plan.to_dict(0.9) == expected.to_dict(0.9)
    assert (plan.price, plan.epsilon, plan.fits) == (
        expected.price,
        expected.epsilon,
        expected.fits,
    )
    spent = here.spent.epsilon
    paid, found = gate.run(order), here.run(order)
    assert type(paid) is type(found)
    if record["kind"] == "bounds":
        assert paid == found
        return
    if record["kind"] == "caps":
        assert (paid.units, paid.scale, str(paid)) == (found.units, found.scale, str(found))
        return
    assert paid.cost <= plan.price  # less where fewer groups are found than were paid for
    assert float(here.spent.epsilon - spent) == pytest.approx(float(paid.cost.epsilon), abs=1e-9)
    assert paid.guarantee == found.guarantee
    again = gate.run(order)
    assert again.cost == found.cost == ApproxDP(0)
    if record["kind"] == "statistic":
        assert paid.values.tolist() == found.values.tolist()
        assert paid.within(0.99).tolist() == found.within(0.99).tolist()
        return
    changing = {"remaining", "remaining_delta", "head", "reused"}
    at = 0.95 if record.get("name") in ("boxplot", "describe") else 0.8  # files hold some alone
    told, known = (
        {n: v for n, v in each.to_dict(at).items() if n not in changing} for each in (again, found)
    )
    assert told == known
    if record["kind"] in ("choose", "auction"):
        assert (again.winner, again.gap, again.shortfall(0.9)) == (
            found.winner,
            found.gap,
            found.shortfall(0.9),
        )
        return
    assert again.to_arrow(at).equals(found.to_arrow(at))
    measured, stated = again.card().to_dict(), found.card().to_dict()
    assert measured["ledger"] == stated["ledger"]
    assert measured["measurements"] == stated["measurements"]


def test_every_release_has_a_class_to_come_back_as():
    assert set(RELEASES) - {"questions"} == set(_HOMES) - {"apply"}


def test_a_model_comes_back_with_what_it_learned(gate):
    order = FitOrder.make(
        model="KMeans", table="visits", columns=["cost"], epsilon=1, options={"n_clusters": 2}
    )
    model = gate.run(order)
    assert type(model).__name__ == "KMeans"
    assert model.cluster_centers_.shape == (2, 1)
    assert model.cost_ == ApproxDP(1)
    assert gate.run(order).cost_ == ApproxDP(0)


def mean(rows):
    return rows["cost"].mean()


@pytest.mark.skipif(not can_lock(), reason="this machine cannot lock programs in")
def test_a_program_is_sent_as_text(gate, here):
    terms = {
        "table": "visits",
        "columns": ["cost"],
        "where": "cost IS NOT NULL",
        "range": (0, 800),
        "blocks": 5,
        "seconds": 0.5,
        "epsilon": 1,
    }
    made = gate.apply(mean, **terms)
    assert 0 <= made.value <= 800
    assert made.cost == ApproxDP(1)
    assert here.apply(mean, **terms).values == made.values


def test_the_gate_tells_what_is_public(gate, here):
    assert gate.spent == here.spent
    assert gate.remaining == here.remaining
    assert set(gate.tables) == set(here.tables)
    for name, table in here.tables.items():
        shown = {n: column for n, column in table.columns.items() if not column.hidden}
        assert set(gate.tables[name].columns) == set(shown)
        for column in shown.values():
            found = gate.tables[name].columns[column.name]
            assert (found.kind, found.keys, found.between) == (
                column.kind,
                column.keys,
                column.between,
            )
    assert "name" not in gate.tables["patients"].columns  # hidden
    assert gate.history()[0]["person"] == "ana"
    assert "protects one patient" in repr(gate)


def test_step_by_step_and_progress(gate):
    said = []
    order = order_from(
        {"kind": "sql", "sql": "SELECT COUNT(*) AS n FROM patients", "epsilon": "0.25"}
    )
    answer = gate.run(order, progress=lambda part, words: said.append((part, words)))
    assert said[-1] == (1.0, "done")
    asked = gate.table("patients").group_by("sex").agg(n="COUNT(*)").ask(epsilon=1)
    assert asked.columns == ("sex", "n")
    assert gate.sql("SELECT COUNT(*) AS n FROM patients", epsilon="0.25").rows == answer.rows
    assert gate.sql(
        "SELECT COUNT(*) AS n FROM patients", epsilon="0.25", fresh=True
    ).cost == ApproxDP("0.25")


def test_practice_is_free(gate):
    before = gate.spent
    answer = gate.practice.sql(BY_WARD, epsilon=1)
    assert answer.practice
    assert gate.spent == before


@pytest.mark.parametrize(("sql", "refusal"), [
    ("SELECT nope FROM visits", Unsupported),
    ("SELECT * FROM visits", Unsupported),
    ("SELECT COUNT(*) FROM elsewhere", Unsupported),
    ("SELEC", Unsupported),
])  # fmt: skip
def test_refusals_are_those_of_the_gate(gate, here, sql, refusal):
    with pytest.raises(refusal) as told:
        gate.sql(sql, epsilon=1)
    with pytest.raises(refusal) as known:
        here.sql(sql, epsilon=1)
    for each in ("code", "problem", "fix", "about"):
        assert getattr(told.value, each) == getattr(known.value, each)


def test_who_cannot_pay_is_told_so_by_class(served):
    gate = noisegate.connect(served.url, token=served.tokens["ben"], dataset="clinic")
    with pytest.raises(OverBudget, match="Nothing was spent"):
        for _ in range(5):
            gate.sql(BY_WARD, epsilon=1, fresh=True)


def test_wrong_addresses_and_tokens_are_refused_at_once(served, monkeypatch):
    token = served.tokens["ana"]
    monkeypatch.delenv("NOISEGATE_TOKEN", raising=False)
    for url, said, of in (
        ("ftp://x", token, "url"), ("https://", token, "url"), ("http://example.org", token, "clear"),
        (served.url, None, "token"), (served.url, "a b", "token"), (served.url, "ä", "token"),
    ):  # fmt: skip
        with pytest.raises(SpecError, check=about(of)):
            noisegate.connect(url, token=said)
    with pytest.raises(Unauthenticated):
        noisegate.connect(served.url, token="ng_x_y")
    with pytest.raises(NotFound):
        noisegate.connect(served.url, token=token, dataset="../audit")
    monkeypatch.setenv("NOISEGATE_TOKEN", token)
    assert noisegate.connect(served.url).dataset == "clinic"


def test_roles_hold(served):
    aud = noisegate.connect(served.url, token=served.tokens["aud"])
    assert aud.head.seq > 0
    with pytest.raises(Forbidden):
        aud.sql(BY_WARD, epsilon=1)
    with pytest.raises(Unsupported, check=about("account")):
        _ = aud.spent


def test_what_holds_a_door_open_says_so(gate):
    with pytest.raises(SpecError, check=about("session")):
        gate.many({"cost": 100}, table="visits", epsilon=1)
    for work in (lambda: gate.sample(0.1), gate.matrix):
        with pytest.raises(Unsupported):
            work()


def test_an_order_that_has_to_be_approved_says_so(clinic):
    service = Service([clinic], settings=replace(QUICK, approve_above=Fraction(1, 2)))
    for name, role in PEOPLE.items():
        service.people.add(name, role)
    with closing(service), serving(service) as found:
        gate = noisegate.connect(found.url, token=found.tokens["ana"])
        with pytest.raises(Waiting, check=about("approval")):
            gate.sql("SELECT COUNT(*) AS n FROM visits", epsilon=1)
        (run,) = service.waiting()
        service.approve(service.people.caller_of("sam"), run.id).wait()
        assert gate.spent == ApproxDP(1)
        assert gate.sql("SELECT COUNT(*) AS n FROM visits", epsilon=1).free


# a network that breaks


class Cutting:
    """Passes bytes on to a server, and cuts the first replies off after the request was heard."""

    def __init__(self, url, cuts):
        host, port = url.removeprefix("http://").split(":")
        self._target, self.left, self._open = (host, int(port)), cuts, True
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self):
        self._open = False
        self._listener.close()

    def _serve(self):
        while self._open:
            try:
                caller, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._pass_on, args=(caller,), daemon=True).start()

    def _pass_on(self, caller):
        server, heard = socket.create_connection(self._target), bytearray()
        threading.Thread(target=self._back, args=(caller, server, heard), daemon=True).start()
        with suppress(OSError):
            while said := caller.recv(1 << 16):
                heard += said
                server.sendall(said)
        server.close()

    def _back(self, caller, server, heard):
        with suppress(OSError), caller, server:
            while reply := server.recv(1 << 16):
                if b"POST" in heard and self.left:
                    self.left -= 1
                    caller.shutdown(socket.SHUT_RDWR)
                    return
                caller.sendall(reply)


def test_an_order_whose_reply_is_lost_is_paid_for_once(served, monkeypatch):
    monkeypatch.setattr("noisegate.client.calls._PAUSE", 0.01)
    with closing(Cutting(served.url, cuts=3)) as between:
        gate = noisegate.connect(between.url, token=served.tokens["ana"])
        before = gate.spent.epsilon
        answer = gate.sql("SELECT COUNT(*) AS n FROM visits", epsilon="0.125", fresh=True)
        assert between.left == 0
        assert answer.cost == ApproxDP("0.125")
        assert gate.spent.epsilon - before == Fraction(1, 8)


def test_a_service_that_is_not_there_is_the_operators(monkeypatch):
    monkeypatch.setattr("noisegate.client.calls._PAUSE", 0.001)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(OperatorError, check=about("unreachable")):
        noisegate.connect(f"http://127.0.0.1:{port}", token="ng_x_y")


@pytest.mark.parametrize(
    "body", [b"", b"<html>", b"[]", b'{"code": 1}', b'{"code": "x", "message": 1, "fix": ""}']
)
def test_strange_replies_are_refused(body):
    found = refusal_of(Reply(500, {}, body))
    assert isinstance(found, OperatorError)
    assert found.about == "strange"


def test_codes_of_a_newer_service_are_kept():
    found = refusal_of(Reply(418, {}, b'{"code": "tea.pot", "message": "No.", "fix": "Tea."}'))
    assert isinstance(found, NoisegateError)
    assert (found.code, str(found)) == ("tea.pot", "No. Tea.")
