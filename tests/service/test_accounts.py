"""People, tokens and the log on the command line, over the store that a service uses."""

import csv
import io
import json
import re
import sqlite3
import stat
from fractions import Fraction
from pathlib import Path

import pytest
from typer.testing import CliRunner

from noisegate.cli import app
from noisegate.errors import NotFound, SpecError, Unauthenticated
from noisegate.orders import SqlOrder
from noisegate.server.service import Service
from noisegate.server.settings import Settings
from refusals import about

COUNT = SqlOrder.make(sql="SELECT COUNT(*) AS n FROM visits", epsilon="0.1")


def run(*words, stdin=None):
    return CliRunner().invoke(app, [str(word) for word in words], input=stdin)


def ok(*words, stdin=None):
    found = run(*words, stdin=stdin)
    assert found.exit_code == 0, (words, found.output, found.exception)
    return found.stdout


@pytest.fixture
def state(clinic):
    """The store beside the policy, with two people."""
    ok("account", "add", "ana", "--role", "analyst", "--state", clinic)
    ok(
        "account", "add", "sam", "--role", "steward", "--password-stdin", "--state", clinic,
        stdin="correct horse battery\n",
    )  # fmt: skip
    return clinic


@pytest.fixture
def opened(state):
    service = Service([state], settings=Settings(quantum=0))
    yield service
    service.close()


def test_what_the_commands_make_opens_the_service(state, opened):
    text = ok(
        "token", "new", "ana", "--state", state, "--label", "laptop", "--expires", "30d",
        "--dataset", "clinic", "--allow", "none", "--epsilon-question", "0.1",
        "--epsilon-hour", "1/2",
    ).strip()  # fmt: skip
    caller = opened.people.by_token(text)
    assert (caller.name, caller.role, caller.datasets) == ("ana", "analyst", {"clinic"})
    assert (caller.epsilon_question, caller.epsilon_hour) == (Fraction(1, 10), Fraction(1, 2))
    assert caller.allow == frozenset()
    assert opened.people.by_password("sam", "correct horse battery").is_steward
    ok(
        "account",
        "password",
        "sam",
        "--password-stdin",
        "--state",
        state,
        stdin="another one it is",
    )
    with pytest.raises(Unauthenticated):
        opened.people.by_password("sam", "correct horse battery")


def test_lists_show_no_secret(state):
    text = ok("token", "new", "ana", "--state", state, "--label", "laptop").strip()
    secret = text.split("_", 2)[2]
    for said in (
        ok("token", "list", "--state", state),
        ok("token", "list", "ana", "--state", state, "--json"),
        ok("account", "list", "--state", state),
        ok("account", "list", "--state", state, "--json"),
        ok("audit-log", "--state", state, "--json"),
    ):
        assert secret not in said
    (token,) = json.loads(ok("token", "list", "ana", "--state", state, "--json"))["tokens"]
    assert (token["label"], token["live"], token["datasets"]) == ("laptop", True, None)
    assert f"{state}.service" in map(str, state.parent.iterdir())
    assert stat.S_IMODE(Path(f"{state}.service").stat().st_mode) == 0o600
    people = json.loads(ok("account", "list", "--state", state, "--json"))["people"]
    assert [(each["name"], each["has_password"]) for each in people] == [
        ("ana", False),
        ("sam", True),
    ]


def test_a_revoked_token_and_a_disabled_person_open_nothing(state, opened):
    first, second = (ok("token", "new", "ana", "--state", state).strip() for _ in range(2))
    ok("token", "revoke", first.split("_")[1], "--state", state)
    with pytest.raises(Unauthenticated):
        opened.people.by_token(first)
    assert opened.people.by_token(second).name == "ana"
    ok("token", "revoke", second, "--state", state)  # its text names it too
    third = ok("token", "new", "ana", "--state", state).strip()
    ok("account", "disable", "ana", "--state", state)
    for text in (second, third):
        with pytest.raises(Unauthenticated):
            opened.people.by_token(text)
    states = [
        each["live"]
        for each in json.loads(ok("token", "list", "--state", state, "--json"))["tokens"]
    ]
    assert states == [True, False, False]  # live by itself: its owner is what ended


@pytest.mark.parametrize(
    ("words", "refused"),
    [
        (("account", "add", "ana", "--role", "analyst"), SpecError),
        (("account", "add", "eve", "--role", "queen"), SpecError),
        (("account", "add", "", "--role", "analyst"), SpecError),
        (("account", "password", "ana"), SpecError),
        (("account", "disable", "nobody"), NotFound),
        (("token", "new", "nobody"), NotFound),
        (("token", "new", "ana", "--expires", "soon"), SpecError),
        (("token", "new", "ana", "--expires", "-3d"), SpecError),
        (("token", "new", "ana", "--expires", "0d"), SpecError),
        (("token", "new", "ana", "--allow", "magic"), SpecError),
        (("token", "new", "ana", "--epsilon-hour", "0"), SpecError),
        (("token", "new", "ana", "--epsilon-question", "x"), SpecError),
        (("token", "revoke", "nothing"), NotFound),
        (("audit-log", "--since", "yesterday"), SpecError),
        (("audit-log", "--head", "x"), SpecError),
    ],
)
def test_what_cannot_be_is_refused_and_changes_nothing(state, words, refused):
    before = ok("account", "list", "--state", state), ok("token", "list", "--state", state)
    assert isinstance(run(*words, "--state", state).exception, refused)
    assert before == (
        ok("account", "list", "--state", state),
        ok("token", "list", "--state", state),
    )


def test_a_short_password_is_refused_and_adds_nobody(state):
    found = run(
        "account", "add", "eve", "--role", "analyst", "--password-stdin", "--state", state,
        stdin="short\n",
    )  # fmt: skip
    assert isinstance(found.exception, SpecError)
    assert "eve" not in ok("account", "list", "--state", state)


def test_looking_makes_no_store(tmp_path):
    for words in (("account", "list"), ("token", "list"), ("audit-log",)):
        found = run(*words, "--state", tmp_path / "none.service")
        assert isinstance(found.exception, SpecError)
        assert about("state")(found.exception)
    assert list(tmp_path.iterdir()) == []


# the log


@pytest.fixture
def asked(state, opened):
    """ana has asked twice, once in vain; a line each for what the commands did."""
    caller = opened.people.by_token(ok("token", "new", "ana", "--state", state).strip())
    view = opened.view(caller, "clinic")
    view.ask(COUNT)
    bad = SqlOrder.make(sql="SELECT COUNT(*) AS \"=1+1\" FROM visits WHERE day = DATE '2024-01-01'",
                        epsilon="0.1")  # fmt: skip
    view.ask(bad)
    return state


def test_the_log_says_who_asked_what_for_which_price(asked):
    lines = json.loads(ok("audit-log", "--state", asked, "--json"))["lines"]
    assert [each["action"] for each in lines] == ["add person"] * 2 + ["new token"] + ["ask"] * 2
    assert [each["seq"] for each in lines] == list(range(5))
    first = lines[3]
    assert (first["person"], first["dataset"], first["sql"]) == ("ana", "clinic", COUNT.sql)
    assert (first["price"], first["rows"], first["refused"]) == ("1/10", 1, None)
    (only,) = {
        each["person"]
        for each in json.loads(ok("audit-log", "--state", asked, "--json", "--person", "ana"))[
            "lines"
        ]
    }
    assert only == "ana"
    assert "SELECT" in ok("audit-log", "--state", asked, "--dataset", "clinic")


def test_the_log_is_cut_by_time(asked):
    def count(since):
        said = ok("audit-log", "--state", asked, "--json", "--since", since)
        return len(json.loads(said)["lines"])

    assert count("1h") == count("2020-01-01") == count("2020-01-01T00:00+02:00") == 5
    assert count("2999-01-01") == 0


def test_a_spreadsheet_computes_nothing_of_the_log(asked):
    rows = list(csv.DictReader(io.StringIO(ok("audit-log", "--state", asked, "--csv"))))
    assert len(rows) == 5
    assert rows[3]["sql"] == COUNT.sql
    assert not any(re.match(r"[=+@-]", cell or "") for row in rows for cell in row.values())


def test_a_changed_line_and_a_cut_tail_are_seen(asked):
    said = ok("audit-log", "--state", asked, "--verify")
    head = said.split()[-1]
    assert said.startswith("ok: 5 lines")
    assert json.loads(ok("audit-log", "--state", asked, "--verify", "--json"))["head"] == head
    with sqlite3.connect(f"{asked}.service") as store:
        store.execute("DELETE FROM access WHERE seq = 4")
    store.close()
    assert run("audit-log", "--state", asked, "--verify").exit_code == 0  # nothing in it tells
    cut = run("audit-log", "--state", asked, "--verify", "--head", head)
    assert cut.exit_code == 5
    assert "cut off" in cut.stdout
    with sqlite3.connect(f"{asked}.service") as store:
        store.execute("UPDATE access SET detail = replace(detail, '1/10', '1/100') WHERE seq = 3")
    store.close()
    changed = run("audit-log", "--state", asked, "--verify")
    assert changed.exit_code == 5
    assert "Line 3 does not follow" in changed.stdout
