"""Parts and lists of thresholds as orders: here, over HTTP, to agents and to Postgres clients."""

import json
from fractions import Fraction

import duckdb
import numpy as np
import psycopg
import pytest
from served import serving
from starlette.testclient import TestClient
from test_agents import use
from typer.testing import CliRunner
from wires import Wire

import noisegate as ng
from noisegate.cli import app
from noisegate.errors import OverBudget, SpecError, Unsupported
from noisegate.orders import order_from
from noisegate.privacy.loss import ApproxDP
from noisegate.server.http import http_app
from refusals import about

WARDS = ["north", "south", "west"]
POLICY = """
name = "study"
snapshot = "2026-01"
ledger = "study.ledger"
[budget]
epsilon = 400
delta = 1e-6
accountant = "zcdp"
[questions]
max_epsilon = 60
[analysts.ana]
epsilon = 300
delta = 1e-6
[analysts.ben]
epsilon = 80
delta = 1e-6
[tables.patients]
source = "patients.csv"
unit = { column = "id", ids = "patient" }
rows_per_unit = 1
columns.ward = { in = ["north", "south", "west"] }
[tables.visits]
source = "visits.csv"
unit = { column = "patient", ids = "patient" }
rows_per_unit = 40
columns.cost = { between = [0, 100] }
columns.place = { in = ["north", "south", "west"] }
columns.doctor = { type = "text" }
"""
COUNT = "SELECT COUNT(*) AS n FROM visits WHERE cost >= {}"
NORTH, SOUTH = ({"by": "place", "key": key, "table": "visits", "several": "first"} for key in WARDS[:2])  # fmt: skip


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """Patients with many visits at several places, some NULLs, and keys that nobody declared."""
    folder, rng, n = tmp_path_factory.mktemp("study"), np.random.default_rng(3), 4000
    visits = ["patient,cost,place,doctor"]
    for patient, cost, place, who in zip(
        rng.integers(0, 500, n), rng.integers(0, 100, n), rng.choice([*WARDS, "east", ""], n),
        rng.integers(0, 9, n), strict=True,
    ):  # fmt: skip
        visits.append(f"{patient},{'' if cost < 3 else cost},{place},dr{who}")
    (folder / "visits.csv").write_text("\n".join(visits))
    patients = [f"{each},{WARDS[each % 3]}" for each in range(500)]
    (folder / "patients.csv").write_text("id,ward\n" + "\n".join(patients))
    (folder / "study.toml").write_text(POLICY)
    made = Wire(folder / "study.toml")
    made.data = folder
    yield made
    made.stop()


def charged(study, account="study"):
    return study.service._hosted["study"].ledger.balance(account).charge


def exact(study, cost, place):
    """How many visits are at a place of those whose first place, by name, is that one."""
    rows = f"(FROM read_csv('{study.data}/visits.csv', header=true) WHERE place IN ('north','south','west'))"
    sql = f"""SELECT COUNT(*) FROM (SELECT *, MIN(place) OVER (PARTITION BY patient) AS first FROM {rows})
    WHERE place = first AND place = '{place}' AND cost >= {cost}"""
    return duckdb.sql(sql).fetchall()[0][0]


def test_every_face_asks_about_the_same_part_at_the_same_price(study):
    order = {"kind": "sql", "sql": COUNT.format(10), "epsilon": 30, "part": NORTH}
    gate = study.gate("ana", "study")
    plan = gate.plan(order_from(order))
    assert any("charged" in each for each in plan.notes)
    with serving(study.service) as served:
        remote = ng.connect(served.url, token=study.tokens["ana"], dataset="study")
        made = remote.partition("place", table="visits", several="first")
        assert list(made) == WARDS
        north = made["north"].sql(COUNT.format(10), epsilon=30)
        assert north.cost == plan.price
        level = charged(study), charged(study, "study/ana")
        assert made["south"].sql(COUNT.format(10), epsilon=30).cost == plan.price
        assert (charged(study), charged(study, "study/ana")) == level  # the dearest was paid
        with pytest.raises(SpecError, check=about("partition")):
            made["north"].partition("place")
        with pytest.raises(SpecError, check=about("partition")):
            made["north"].plan(order_from(order))
        with pytest.raises(SpecError, check=about("part")):
            remote.sql(COUNT.format(10), epsilon=1, part=NORTH | {"key": "east"})
    assert abs(north.rows[0][0] - exact(study, 10, "north")) <= 60  # 6 sigma
    assert gate.run(order_from(order)).rows[0][0] == north.rows[0][0]  # found, from the ledger
    assert gate.partition("place", table="visits", several="first")["north"].sql(
        COUNT.format(10), epsilon=30
    ).cost == ApproxDP(0)
    header = {"Authorization": f"Bearer {study.tokens['ana']}"}
    web = TestClient(http_app(study.service), base_url="http://localhost")
    reply = web.post("/datasets/study/orders", json=order, headers=header)
    assert reply.json()["rows"][0][0] == north.rows[0][0]
    with psycopg.connect(study.dsn("ana", dbname="study"), autocommit=True) as session:
        session.execute("SET noisegate.partition = 'visits.place'; SET noisegate.part = 'north'")
        session.execute("SET noisegate.several = 'first'; SET noisegate.epsilon = '30'")
        assert session.execute(COUNT.format(10)).fetchone()[0] == north.rows[0][0]
        level = charged(study), charged(study, "study/ana")
        session.execute("RESET noisegate.partition; RESET noisegate.part")
        session.execute("SET noisegate.epsilon = '20'")
        assert session.execute(COUNT.format(10)).fetchone()[0] > north.rows[0][0] + 500  # of all
        assert charged(study).amount > level[0].amount
        level = charged(study), charged(study, "study/ana")
    (found,) = use(
        study.service, study.tokens["ana"],
        ("practise", {"sql": COUNT.format(10), "epsilon": 30, "part": NORTH, "dataset": "study"}),
    )  # fmt: skip
    assert not found.is_error
    assert (charged(study), charged(study, "study/ana")) == level


def test_two_analysts_share_parts_and_wrong_ones_are_refused_before_any_charge(study):
    before, ana = charged(study), study.gate("ana", "study")
    ben = study.gate("ben", "study")
    sql = COUNT.format(50)
    ages = {"by": ["cost < 20", "cost < 60"], "table": "visits", "several": "first"}
    ana.sql(sql, epsilon=5, part=ages | {"key": "cost < 20"})
    level = charged(study)
    assert level.amount > before.amount
    ben.sql(sql, epsilon=5, part=ages | {"key": "cost < 60"})
    assert charged(study) == level  # of the data set; his own account pays
    assert ben.spent.epsilon > 0
    spent = charged(study), ben.spent
    for part, refusal in (
        ({"by": "place", "key": "north", "table": "visits"}, Unsupported),  # several is not said
        (NORTH | {"several": "last"}, SpecError),
        (NORTH | {"by": "doctor"}, (SpecError, Unsupported)),  # keys are not declared
        (NORTH | {"by": "nobody"}, Unsupported),
        (NORTH | {"by": []}, SpecError),
        (NORTH | {"more": 1}, SpecError),
    ):
        with pytest.raises(refusal):
            ben.sql(sql, epsilon=1, part=part)
    with pytest.raises(OverBudget):
        ben.sql(COUNT.format(1), epsilon=59.5, part=SOUTH)
        ben.sql(COUNT.format(2), epsilon=59.5, part=SOUTH)
        ben.sql(COUNT.format(3), epsilon=59.5, part=SOUTH)
    ledger = study.service._hosted["study"].ledger
    assert ledger.verify().ok
    assert spent[0].amount <= charged(study).amount


def test_a_list_of_thresholds_is_an_order_that_is_paid_once(study):
    gate = study.gate("ana", "study")
    asked = [COUNT.format(low) for low in (101, 40, 0, 20)]
    order = order_from({
        "kind": "thresholds", "threshold": 1500, "questions": asked, "count": 2, "epsilon": 50,
        "bound": 40, "values": True,
    })  # fmt: skip
    plan, before = gate.plan(order), charged(study, "study/ana")
    with serving(study.service) as served:
        remote = ng.connect(served.url, token=study.tokens["ana"], dataset="study")
        answer = remote.run(order)
        terms = {"count": 2, "epsilon": 50, "bound": 40, "values": True}
        assert remote.compare_plan(1500, asked, **terms).price == ApproxDP(0)
        again = remote.compare(1500, asked, **terms)
        off = answer.margins()["value"][1]
        assert answer.card().record["price"]
    assert answer.cost.epsilon == pytest.approx(float(plan.price.epsilon))
    assert again.cost == ApproxDP(0)
    assert again.rows == answer.rows
    columns = answer.to_arrow().to_pydict()
    assert columns["reaches"] == [False, True, True]  # 0, 2400, 3900 of 4000: e^-20; then it ends
    for sql, value in zip(columns["question"][1:], columns["value"][1:], strict=True):
        counted = sql.replace("visits", f"read_csv('{study.data}/visits.csv', header=true)")
        true = duckdb.sql(counted).fetchall()[0][0]
        assert abs(value - true) <= 4 * off
    assert "unanswered" in " ".join(answer.caveats)
    assert charged(study, "study/ana").amount > before.amount
    assert gate.plan(order).free
    level = charged(study, "study/ana")
    for wrong, refusal in (
        ({"questions": [*asked, "SELECT AVG(cost) FROM visits"]}, Unsupported),
        ({"questions": asked, "bound": 39}, Unsupported),
        ({"questions": []}, SpecError),
        ({"questions": asked, "count": 0}, SpecError),
        ({"questions": asked, "epsilon": 61}, Exception),
    ):
        said = {
            "kind": "thresholds",
            "threshold": 9,
            "count": 1,
            "epsilon": 1,
            "bound": 40,
            **wrong,
        }
        with pytest.raises(refusal):
            gate.run(order_from(said))
    assert charged(study, "study/ana") == level


def test_a_list_of_thresholds_about_a_part_is_found_there_alone(study):
    gate = study.gate("ben", "study")
    terms = {"threshold": 5, "questions": [COUNT.format(0)], "bound": 40, "epsilon": Fraction(1, 2)}
    for ward in ("north", "west"):
        order = order_from({"kind": "thresholds", **terms, "part": NORTH | {"key": ward}})
        plan = gate.plan(order)
        assert not plan.free
        assert gate.run(order).cost == plan.price
        assert gate.plan(order).free
    assert not gate.plan(order_from({"kind": "thresholds", **terms})).free


def test_the_command_line_writes_orders_with_their_part(study, tmp_path):
    file, run = str(study.data / "study.toml"), CliRunner()
    words = ["ask", file, COUNT.format(10), "--epsilon", "30", "--analyst", "ana"]
    words += ["--partition", "visits.place", "--part", "north", "--several", "first"]
    printed = run.invoke(app, [*words, "--print-order"]).stdout
    assert json.loads(printed)["part"]["by"] == ["visits.place"]
    (tmp_path / "order.json").write_text(printed)
    named = ["order", file, str(tmp_path / "order.json"), "--analyst", "ana", "--json"]
    found = json.loads(run.invoke(app, named).stdout)
    assert found["price"] == 0
    (tmp_path / "asked.sql").write_text(COUNT.format(0))
    words = ["thresholds", file, "--threshold", "5", "--count", "1", "--bound", "40"]
    words += ["--questions", str(tmp_path / "asked.sql"), "--analyst", "ben", "--epsilon", "1/2"]
    words += ["--partition", "visits.place", "--part", "north", "--several", "first", "--json"]
    assert json.loads(run.invoke(app, words).stdout)["price"] == 0
