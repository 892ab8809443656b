import json
import subprocess
import sys
from pathlib import Path

import pytest

NOISEGATE = Path(sys.executable).with_name("noisegate")
TOTAL = "SELECT COUNT(*) AS n FROM people"


def run(*words, code=0, cwd=None):
    done = subprocess.run([NOISEGATE, *words], capture_output=True, text=True, cwd=cwd, check=False)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    return done


@pytest.fixture
def folder(tmp_path):
    rows = "".join(f"{i},{'north' if i % 4 else 'south'}\n" for i in range(400))
    (tmp_path / "people.csv").write_text("id,ward\n" + rows)
    return tmp_path


def ask(folder, *words, code=0, epsilon="0.5"):
    return run(
        "ask",
        "people.csv",
        TOTAL,
        "--epsilon",
        epsilon,
        "--budget",
        "1",
        *words,
        code=code,
        cwd=folder,
    )


def test_the_story_of_the_readme(folder):
    shown = ask(folder).stdout
    assert "± 6" in shown
    assert "left ε = 0.5" in shown
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
    assert (accounts[0]["spent"], accounts[0]["left"]) == ("ε = 1", "ε = 0")
    assert "reserve" in run("ledger", "show", "people.csv", "--entries", cwd=folder).stdout
    lines = run("ledger", "export", "people.csv", cwd=folder).stdout.splitlines()
    assert [json.loads(line)["kind"] for line in lines[:3]] == ["ledger", "account", "reserve"]
    run("ledger", "budget", "people.csv", "people", "2", "--reason", "second year", cwd=folder)
    assert (
        json.loads(
            run("ask", "people.csv", TOTAL, "--epsilon", "0.25", "--json", cwd=folder).stdout
        )["price"]
        == 0.25
    )


def test_errors_are_json_where_json_is_asked_for(folder):
    error = json.loads(ask(folder, "--json", epsilon="3", code=3).stdout)["error"]
    assert error["code"] == "over-budget"
    assert error["fix"]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("ask", "nope.csv", TOTAL, "--epsilon", "1"), 4, "no file"),
        (
            ("ask", "people.csv", "SELECT * FROM people", "--epsilon", "1", "--budget", "1"),
            2,
            "not offered",
        ),
        (("ask", "people.csv", TOTAL, "--epsilon", "nan", "--budget", "1"), 2, "epsilon"),
        (("ask", "people.csv", TOTAL, "--budget", "1"), 2, "epsilon or within"),
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
    assert lines[0] == "ward,n,margin"
    assert [line.split(",")[0] for line in lines[1:]] == ["north", "south"]
    assert {line.split(",")[2] for line in lines[1:]} == {"20"}


def test_a_plan_leaves_nothing_behind(folder):
    shown = json.loads(
        run("plan", "people.csv", TOTAL, "--epsilon", "0.5", "--json", cwd=folder).stdout
    )
    assert (shown["price"], shown["margin"]) == (0.5, 6)
    assert [file.name for file in folder.iterdir()] == ["people.csv"]
    assert "± 6" in run("plan", "people.csv", TOTAL, "--epsilon", "0.5", cwd=folder).stdout


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
    assert facts["epsilon"] == "1/2"


def test_what_a_budget_buys():
    words = ("what-if", "--budget", "1", "--delta", "1e-6", "--json")
    facts = json.loads(run(*words, "--epsilon", "0.01").stdout)
    assert facts["error of one count"] == "± 300"
    assert facts["counts that fit, sums of ε"] == "100"
    zcdp, best = (int(facts[key].replace(",", "")) for key in list(facts)[-2:])
    assert 100 < zcdp < best
    assert "± 50" in run(*words[:-1], "--within", "50").stdout
    assert "exactly one" in run(*words, code=2).stderr


def test_help_names_every_command():
    shown = run("--help").stdout
    for command in ("ask", "plan", "ledger", "demo", "explain-epsilon", "what-if"):
        assert command in shown


def test_the_demo_runs():
    shown = " ".join(run("demo").stdout.split())
    assert "chain and sums verified" in shown
    assert "answered from the ledger" in shown
    assert "Nothing was spent" in shown
