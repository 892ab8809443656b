import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import NOISEGATE, process, run
from typer.main import get_command
from typer.testing import CliRunner

import noisegate
from noisegate.cli import app
from noisegate.cli.help import named_in
from noisegate.ledger.open import open_ledger

TOTAL = "SELECT COUNT(*) AS n FROM people"


@pytest.fixture
def folder(tmp_path):
    rows = "".join(f"{i},{'north' if i % 4 else 'south'}\n" for i in range(400))
    (tmp_path / "people.csv").write_text("id,ward\n" + rows)
    return tmp_path


def ask(folder, *words, code=0, epsilon="0.5", by=run):
    terms = ("--epsilon", epsilon, "--budget", "1")
    return by("ask", "people.csv", TOTAL, *terms, *words, code=code, cwd=folder)


def test_the_story_of_the_readme(folder):
    shown = ask(folder, by=process).stdout
    assert "± 6" in shown
    assert "left ε = 0.5" in shown
    left = {each.name for each in folder.iterdir()}  # of a process that ends without freeing
    assert left == {"people.csv", "people.csv.ledger"}
    first = json.loads(ask(folder, "--json").stdout)
    assert first["free"]
    assert (first["price"], first["remaining"]) == (0.0, 0.5)
    assert (first["columns"], first["margins"]) == (["n"], [[6]])
    second = json.loads(ask(folder, "--fresh", "--json").stdout)
    assert (second["price"], second["remaining"], second["free"]) == (0.5, 0.0, False)
    refused = ask(folder, "--fresh", code=3)
    assert "over-budget" in refused.stderr
    assert refused.stdout == ""
    verdict = run("ledger", "verify", "people.csv", cwd=folder).stdout
    assert verdict.startswith("ok: 6 entries")
    accounts = json.loads(run("ledger", "show", "people.csv", "--json", cwd=folder).stdout)[
        "accounts"
    ]
    assert (accounts[0]["spent"], accounts[0]["left"]) == (1.0, 0.0)
    assert "reserve" in run("ledger", "show", "people.csv", "--entries", cwd=folder).stdout
    lines = run("ledger", "export", "people.csv", cwd=folder).stdout.splitlines()
    assert [json.loads(line)["kind"] for line in lines[:3]] == ["ledger", "account", "reserve"]
    run("ledger", "budget", "people.csv", "people", "2", "--reason", "second year", cwd=folder)
    words = ("ask", "people.csv", TOTAL, "--epsilon", "0.25", "--json")
    assert json.loads(run(*words, cwd=folder).stdout)["free"]  # more was paid for it already
    assert json.loads(run(*words, "--fresh", cwd=folder).stdout)["price"] == 0.25


def test_errors_are_json_where_json_is_asked_for(folder):
    error = json.loads(ask(folder, "--json", epsilon="3", code=3, by=process).stdout)["error"]
    assert error["code"] == "over-budget"
    assert error["fix"]
    words = f"{NOISEGATE} ask people.csv --json | true; echo ${{PIPESTATUS[0]}}"  # nobody reads
    told = subprocess.run(
        ["bash", "-c", words], capture_output=True, text=True, cwd=folder, check=True
    )
    assert told.stdout == "2\n"
    assert "Traceback" not in told.stderr


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("ask", "nope.csv", TOTAL, "--epsilon", "1"), 4, "no file"),
        (
            ("ask", "people.csv", "SELECT * FROM people", "--epsilon", "1", "--budget", "1"),
            2,
            "rows stay private",
        ),
        (("ask", "people.csv", TOTAL, "--epsilon", "nan", "--budget", "1"), 2, "epsilon"),
        (("ask", "people.csv", TOTAL, "--budget", "1"), 2, "The question has no price"),
        (("ask", "people.csv", TOTAL, "--epsilon", "1"), 4, "no budget"),
        (
            ("ask", "people.csv", TOTAL, "--epsilon", "1", "--budget", "1", "--keys", "ward"),
            2,
            "--keys",
        ),
        (("ledger", "verify", "people.csv"), 5, "not a ledger"),
        (("ledger", "verify", "nowhere.ledger"), 2, "no ledger"),
        (("explain-epsilon", "-1"), 2, ""),
    ],
)
def test_bad_input_gets_a_clear_error(folder, words, code, said):
    assert said in run(*words, code=code, cwd=folder).stderr


def test_keys_and_csv(folder):
    sql = "SELECT ward, COUNT(*) AS n FROM people GROUP BY ward"
    words = (
        "ask",
        "people.csv",
        sql,
        "--within",
        "20",
        "--budget",
        "1",
        "--keys",
        "ward=north,south",
        "--csv",
    )
    lines = run(*words, cwd=folder).stdout.split()
    assert lines[0] == "ward,n,n_margin"
    assert [line.split(",")[0] for line in lines[1:]] == ["north", "south"]
    assert {line.split(",")[2] for line in lines[1:]} == {"20"}


def test_a_plan_leaves_nothing_behind(folder):
    shown = json.loads(
        run("plan", "people.csv", TOTAL, "--epsilon", "0.5", "--json", cwd=folder).stdout
    )
    assert (shown["price"], shown["margins"]) == (0.5, {"n": 6})
    assert [file.name for file in folder.iterdir()] == ["people.csv"]
    assert "± 6" in run("plan", "people.csv", TOTAL, "--epsilon", "0.5", cwd=folder).stdout


def test_a_relative_error_and_the_error_of_an_average_can_be_asked_for(folder):
    rows = ("--rows", "10000", "--budget", "1")
    shown = run("ask", "people.csv", TOTAL, "--relative", "0.05", *rows, cwd=folder).stdout
    assert "± 500" in shown
    mean = "SELECT AVG(id) AS mean FROM people"
    words = ("plan", "people.csv", mean, "--epsilon", "0.5", "--between", "id=0,400")
    assert "for about 10,000 rows" in run(*words, *rows, cwd=folder).stdout
    refused = run("ask", "people.csv", TOTAL, "--relative", "0.05", code=2, cwd=folder).stderr
    assert "--rows 10000" in refused


def test_a_damaged_ledger_is_noticed(folder):
    import sqlite3

    ask(folder)
    raw = sqlite3.connect(folder / "people.csv.ledger")
    for (name,) in raw.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
        raw.execute(f'DROP TRIGGER "{name}"')
    raw.execute("DELETE FROM entries WHERE seq = 2")
    raw.commit()
    raw.close()
    assert "NOT OK" in run("ledger", "verify", "people.csv", code=5, cwd=folder).stdout


def test_a_file_that_is_no_ledger_is_left_alone(folder):
    (folder / "people.csv.ledger").write_text("dear diary")
    ask(folder, code=5)
    assert (folder / "people.csv.ledger").read_text() == "dear diary"


def test_epsilon_is_explained():
    shown = run("explain-epsilon", "0.5").stdout
    assert "62.25 %" in shown
    assert "24.5" in shown
    facts = json.loads(run("explain-epsilon", "1/2", "--json").stdout)
    assert (facts["epsilon"], facts["posterior"]) == (0.5, 0.62246)


def test_what_a_budget_buys():
    words = ("what-if", "--budget", "1", "--delta", "1e-6", "--json")
    facts = json.loads(run(*words, "--epsilon", "0.01").stdout)
    assert facts["error of one count"] == 300
    assert facts["counts that fit, sums of ε"] == 100
    assert facts["… at best, if fixed beforehand"] > 100
    assert facts["on a zcdp account: price of one count"] == 0.01
    assert facts["… counts that fit"] > 1000
    assert facts["100 counts cost"].startswith("ε = 1; on a zcdp account 0.")
    assert "± 50" in run(*words[:-1], "--within", "50").stdout
    assert "exactly one" in run(*words, code=2).stderr


def test_help_names_every_command():
    shown = process("--help").stdout
    for command in ("ask", "plan", "shell", "init", "check", "policy", "ledger", "demo",
                    "explain-epsilon", "what-if"):  # fmt: skip
        assert command in shown


def test_the_demo_runs():
    shown = " ".join(run("demo").stdout.split())
    assert "chain and sums verified" in shown
    assert "answered from the ledger" in shown
    assert "Nothing was spent" in shown
    assert "made-up rows" in shown


def test_a_picture_that_cannot_be_drawn_is_refused_before_any_charge(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "altair", None)
    assert "[plot]" in ask(folder, "--save", "x.png", code=2).stderr
    assert "free" not in ask(folder).stdout


def test_a_model_is_drawn_and_one_without_a_picture_says_so_first(folder):
    pytest.importorskip("vl_convert")
    terms = ("--keys", "ward=north,south", "--between", "id=0,400", "--type", "id=integer")
    paid = ("--epsilon", "1", "--budget", "1", "--columns", "id", *terms)
    refused = run(
        "learn", "people.csv", "StandardScaler", *paid, "--save", "x.png", code=2, cwd=folder
    )
    assert ".joblib, .json, .md." in refused.stderr
    told = ("--target", "ward", "--save", "x.SVG")
    run("learn", "people.csv", "GaussianNB", *paid, *told, cwd=folder)
    assert "GaussianNB: bars" in (folder / "x.SVG").read_text()


# with a policy

EXAMPLES = Path(__file__).parents[3] / "examples"
BY_SEX = "SELECT sex, COUNT(*) AS n FROM patients GROUP BY sex"


@pytest.fixture
def clinic(tmp_path):
    return copied(tmp_path)


@pytest.fixture(scope="module")
def unspent(tmp_path_factory):
    """A clinic of which nothing is ever spent."""
    return copied(tmp_path_factory.mktemp("unspent"))


def copied(folder):
    shutil.copytree(EXAMPLES / "clinic", folder / "clinic")
    shutil.copy(EXAMPLES / "clinic.toml", folder)
    return folder


def test_the_story_of_an_analyst(clinic):
    words = ("clinic.toml", BY_SEX, "--analyst", "ana", "--epsilon", "0.5", "--json")
    planned = json.loads(run("plan", *words, cwd=clinic).stdout)
    assert (planned["price"], planned["fits"]) == (0.5, True)
    first = json.loads(run("ask", *words, cwd=clinic).stdout)
    assert [row[0] for row in first["rows"]] == ["f", "m", "x"]
    assert (first["price"], first["remaining"]) == (0.5, 1.5)
    assert all(5 < margin < 7 for _, margin in first["margins"])
    assert "one patient" in first["guarantee"]
    again = json.loads(run("ask", *words, cwd=clinic).stdout)
    assert (again["rows"], again["free"]) == (first["rows"], True)
    assert json.loads(run("plan", *words, cwd=clinic).stdout)["price"] == 0
    accounts = json.loads(run("ledger", "show", "clinic.toml", "--json", cwd=clinic).stdout)
    assert [each["account"] for each in accounts["accounts"]] == ["clinic", "clinic/ana"]
    words = ("ledger", "budget", "clinic.toml", "ana", "2.5", "--reason", "a longer study")
    raised = json.loads(run(*words, "--json", cwd=clinic).stdout)
    assert (raised["account"], raised["budget"], raised["spent"]) == ("clinic/ana", 2.5, 0.5)
    assert "ana = 2.5 " in (clinic / "clinic.toml").read_text()  # and in the policy, in one command
    again = json.loads(
        run("plan", "clinic.toml", BY_SEX, "--analyst", "ana", "--json", cwd=clinic).stdout
    )
    assert again["fits"]
    run("ledger", "budget", "clinic.toml", "clinic", "5", "--reason", "year two", cwd=clinic)
    assert "epsilon = 5" in (clinic / "clinic.toml").read_text()


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ((BY_SEX,), 4, "ana, ben"),
        ((BY_SEX, "--analyst", "eve"), 4, "'eve'"),
        ((BY_SEX, "--analyst", "ana", "--budget", "9"), 2, "policy already states the budget"),
        ((BY_SEX, "--analyst", "ana", "--epsilon", "1.5"), 2, "at most ε = 1"),
        (("SELECT COUNT(*) FROM nowhere", "--analyst", "ana"), 2, "patients, visits"),
        (("SELECT name, COUNT(*) FROM patients GROUP BY name", "--analyst", "ana"), 2, "'name'"),
        ((BY_SEX, "--analyst", "ana", "--save", "answer.xlsx"), 2, "ending"),
    ],
)
def test_a_policy_refuses_in_clear_words_and_nothing_is_spent(unspent, words, code, said):
    assert said in run("ask", "clinic.toml", *words, code=code, cwd=unspent).stderr
    if (kept := unspent / "clinic.toml.ledger").is_file():
        with open_ledger(str(kept)) as ledger:
            assert {str(ledger.balance(each).spent) for each in ledger.accounts()} <= {"ε = 0"}


def test_practice_leaves_nothing_behind(clinic):
    before = sorted(file.name for file in clinic.iterdir())
    words = ("ask", "clinic.toml", BY_SEX, "--analyst", "ana", "--practice", "--json")
    assert len(json.loads(run(*words, cwd=clinic).stdout)["rows"]) == 3
    assert sorted(file.name for file in clinic.iterdir()) == before


def test_an_answer_is_saved_in_the_form_of_the_ending(clinic):
    names = ("a.csv", "a.json", "a.parquet", "a.svg", "a.md")
    saved = [word for name in names for word in ("--save", name)]
    run("ask", "clinic.toml", BY_SEX, "--analyst", "ben", *saved, cwd=clinic)
    assert (clinic / "a.csv").read_text().startswith("sex,n,n_margin\n")
    assert json.loads((clinic / "a.json").read_text())["columns"] == ["sex", "n"]
    assert (clinic / "a.parquet").read_bytes()[:4] == b"PAR1"
    assert "<svg" in (clinic / "a.svg").read_text()
    assert "ε = 0.1 for adding or removing one patient" in (clinic / "a.md").read_text()


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT sex, CASE WHEN COUNT(*) > 9 THEN 'many' END AS n FROM patients GROUP BY sex",
        "SELECT town FROM patients GROUP BY town",
    ],
)
def test_a_picture_of_no_numbers_is_refused_before_any_charge(clinic, sql):
    words = ("ask", "clinic.toml", sql, "--analyst", "ben", "--keys-delta", "1e-9")
    refused = run(*words, "--save", "a.csv", "--save", "a.svg", code=2, cwd=clinic)
    assert "no numeric column to plot" in refused.stderr
    assert not (clinic / "a.csv").exists()
    gate = noisegate.open(clinic / "clinic.toml", analyst="ben")
    assert gate.spent.epsilon == 0
    run(*words, "--save", "a.csv", cwd=clinic)
    assert gate.spent.epsilon > 0


def test_a_policy_is_drafted_checked_and_shown(clinic):
    files = ("clinic/patients.csv", "clinic/visits.csv")
    shown = run("init", *files, cwd=clinic).stdout
    assert 'unit = "patient_id"' in shown
    assert "check draft.toml" in run("init", *files, "--to", "draft.toml", cwd=clinic).stdout
    assert (clinic / "draft.toml").read_text() == shown
    assert "exists" in run("init", *files, "--to", "draft.toml", code=2, cwd=clinic).stderr
    assert "rows_per_unit" in run("check", "draft.toml", cwd=clinic).stdout
    found = json.loads(run("check", "clinic.toml", "--json", cwd=clinic).stdout)["findings"]
    assert {each["severity"] for each in found} == {"advice"}
    assert "| ward" in run("policy", "show", "clinic.toml", cwd=clinic).stdout
    assert json.loads(run("policy", "schema").stdout)["type"] == "object"


def test_a_policy_with_an_error_fails_the_check(clinic):
    text = (clinic / "clinic.toml").read_text()
    (clinic / "bad.toml").write_text(text.replace("rows_per_unit = 20", "rows_per_unti = 20"))
    assert "rows_per_unit" in run("check", "bad.toml", code=4, cwd=clinic).stderr


def test_the_shell_asks_and_goes_on_after_a_refusal(clinic):
    typed = f"{BY_SEX};\nSELECT * FROM visits;\n\\budget\n\\quit\n"
    shown = process("shell", "clinic.toml", "--analyst", "ana", cwd=clinic, typed=typed).stdout
    assert "price ε = 0.1" in shown
    assert "rows stay private" in shown
    assert "spent ε = 0.1" in shown


@pytest.mark.parametrize(
    "words", [["-h"], ["ask", "-h"], ["ledger", "-h"], ["ledger", "verify", "-h"], ["asc"]]
)
def test_commands_that_nobody_named_are_listed_and_not_made(words):
    runner = CliRunner()
    whole, lean = (runner.invoke(each, words) for each in (app, named_in(app, words)))
    assert (whole.output, whole.exit_code) == (lean.output, lean.exit_code)
    made = get_command(named_in(app, words)).commands
    assert {name for name, each in made.items() if getattr(each, "commands", each.params)} <= {
        *words
    }
