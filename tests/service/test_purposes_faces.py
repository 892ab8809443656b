"""Purposes and the one share of an analyst, over the wire, through agents, HTTP and the shell."""

from collections import Counter

import psycopg
import pytest
from starlette.testclient import TestClient
from test_agents import text, use
from test_purposes import ZCDP, policy
from typer.testing import CliRunner
from wires import Wire

from noisegate.cli import app
from noisegate.server.agents.arguments import Planning
from noisegate.server.http import http_app
from noisegate.sql.order import SqlTerms

COUNT = "SELECT COUNT(*) AS n FROM visits WHERE age > {}"


@pytest.fixture(scope="module", params=["", ZCDP], ids=["pure", "zcdp"])
def study(request, tmp_path_factory):
    made = Wire(policy(tmp_path_factory.mktemp("faces"), request.param))
    yield made
    made.stop()


def charged(study):
    """How many questions each account has paid for."""
    view = study.view("sam", "study")
    return Counter({each["account"]: each["questions"] for each in view.budgets()["accounts"]})


def client(study, name="ana", **more):
    found = psycopg.connect(study.dsn(name, dbname="study", **more), autocommit=True)
    found.notices = []
    found.add_notice_handler(lambda told: found.notices.append(told.message_primary))
    return found


def shown(session, name):
    return session.execute(f"SHOW noisegate.{name}").fetchone()[0]


def test_a_postgres_client_says_what_it_asks_for(study):
    before = charged(study)
    with client(study) as ana:
        ana.execute("SET noisegate.epsilon = '0.1'")
        whole = float(shown(ana, "remaining"))
        for refused in (None, "gossip"):
            if refused is not None:
                ana.execute(f"SET noisegate.purpose = '{refused}'")
            with pytest.raises(psycopg.Error) as told:
                ana.execute(COUNT.format(1))
            assert "purpose" in str(told.value)
        assert charged(study) == before
        ana.execute("SET noisegate.purpose = 'report'")
        assert shown(ana, "purpose") == "report"
        assert ana.execute("EXPLAIN " + COUNT.format(1)).fetchall()
        assert charged(study)["study/ana"] == before["study/ana"]
        ((found,),) = ana.execute(COUNT.format(1)).fetchall()
        assert abs(found - 390) < 300
        assert any("0.1" in each and "left" in each for each in ana.notices)
        paid = charged(study)
        assert paid["study/ana"] == before["study/ana"] + 1
        assert paid["study/for report/ana"] == before["study/for report/ana"] + 1
        ana.execute("SET noisegate.purpose = 'trial'")
        ana.execute(COUNT.format(1))
        assert charged(study) == paid, "free"
        ana.execute("RESET noisegate.purpose")
        assert float(shown(ana, "remaining")) < whole
    with client(study, "ben", options="-c noisegate.purpose=trial") as ben:
        ben.execute("SET noisegate.epsilon = '0.1'")
        with pytest.raises(psycopg.Error, match="may not ask for the purpose"):
            ben.execute(COUNT.format(2))


def test_a_token_for_one_purpose_needs_no_setting_and_takes_no_other(study):
    bound = study.service.people.new_token("ana", purpose="report")
    with client(study, password=bound) as ana:
        ana.execute("SET noisegate.epsilon = '0.1'")
        assert ana.execute(COUNT.format(3)).fetchall()
        ana.execute("SET noisegate.purpose = 'trial'")
        with pytest.raises(psycopg.Error, match="for the purpose 'report' alone"):
            ana.execute(COUNT.format(4))


def test_agents_plan_and_ask_for_a_purpose_and_hear_of_the_one_share(study):
    before, token = charged(study), study.tokens["ana"]
    asked = {"sql": COUNT.format(5), "epsilon": 0.1, "dataset": "study"}
    listed, unsaid, planned, left = use(
        study.service, token, ("list_tables", {"dataset": "study"}), ("plan_question", asked),
        ("plan_question", asked | {"purpose": "report"}),
        ("remaining_budget", {"dataset": "study"}),
    )  # fmt: skip
    assert text(listed).count("- purpose report") == 1
    assert unsaid.is_error
    assert "report, trial" in text(unsaid)
    assert "for all purposes together" in text(left)
    assert left.structured_content["share"]["epsilon"] == 2
    assert charged(study) == before
    name = planned.structured_content["plan_id"]
    (answer,) = use(study.service, token, ("ask_question", {"plan_id": name}))
    assert not answer.is_error
    assert "for all purposes together" in text(answer)
    assert charged(study)["study/for report/ana"] == before["study/for report/ana"] + 1


def test_no_face_spends_more_than_the_share_of_all_purposes(study):
    """The last of these: it uses the share up."""
    view = study.view("ana", "study")
    with client(study) as ana:
        ana.execute("SET noisegate.purpose = 'report'; SET noisegate.epsilon = 'rest'")
        ana.execute(COUNT.format(6))
        ana.execute("SET noisegate.purpose = 'trial'; SET noisegate.epsilon = '0.01'")
        before = charged(study)
        with pytest.raises(psycopg.Error, match="study/ana"):
            ana.execute(COUNT.format(7))
    assert charged(study) == before
    assert view.share()["remaining"] == pytest.approx(0, abs=1e-9)
    web = TestClient(http_app(study.service), base_url="http://localhost")
    header = {"Authorization": f"Bearer {study.tokens['ana']}"}
    (told,) = web.get("/budgets?dataset=study", headers=header).json()["budgets"]
    assert told["share"]["remaining"] == pytest.approx(0, abs=1e-9)
    assert "accounts" not in told
    sql = {"kind": "sql", "sql": COUNT.format(8), "epsilon": 0.01, "purpose": "trial"}
    reply = web.post("/datasets/study/orders", json=sql, headers=header)
    assert (reply.status_code, reply.json()["code"]) == (402, "over-budget")
    file = view.hosted.policy.file
    words = ["ask", str(file), COUNT.format(9), "--analyst", "ana", "--purpose", "trial"]
    ended = CliRunner().invoke(app, [*words, "--epsilon", "0.01"])
    assert ended.exception is not None
    assert getattr(ended.exception, "code", "") == "over-budget"
    assert charged(study) == before


def test_agents_can_say_whatever_stands_beside_sql():
    assert SqlTerms.__annotations__.keys() <= Planning.model_fields.keys()
