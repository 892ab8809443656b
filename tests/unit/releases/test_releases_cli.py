"""The command that publishes: plan, release, save, and the exit codes of refusals."""

import json
import re
import subprocess
import sys
from io import StringIO

import pytest
from command_line import NOISEGATE, run

from noisegate.cli import printing
from noisegate.cli.analysts import releases
from noisegate.releases.forms.table import TableRelease

SQL = "SELECT COUNT(*) AS n FROM people GROUP BY BIN(age, 25)"
AGE = ("--between", "age=0,99")


@pytest.fixture
def folder(tmp_path):
    rows = "".join(f"{i * 7 % 100},{'north' if i % 4 else 'south'}\n" for i in range(400))
    (tmp_path / "people.csv").write_text("age,ward\n" + rows)
    return tmp_path


def release(folder, *words, sql=SQL, epsilon="0.5", code=0):
    named = () if sql is None else (sql,)
    terms = ("--epsilon", epsilon, "--budget", "1", "--method", "cells", *AGE)
    return run("release", "histogram", "people.csv", *named, *terms, *words, code=code, cwd=folder)


def test_a_release_is_planned_made_saved_and_free_from_then_on(folder):
    plan = release(folder, "--plan").stdout
    assert "about ± 6.05 at 95% confidence" in plan
    assert not (folder / "people.csv.ledger").exists()
    shown = release(folder, "--save", "out.parquet", "--save", "out.csv").stdout
    assert "│ 25 to 50" in shown
    assert "5 cells by" in shown
    assert "left ε = 0.5" in shown
    again = json.loads(release(folder, "--json").stdout)
    assert (again["free"], again["remaining"], again["shape"]) == (True, 0.5, [5])
    kept = TableRelease.load(folder / "out.parquet")
    assert [row[1] for row in again["rows"]] == kept.values.tolist()
    assert (folder / "out.csv").read_text() == release(folder, "--csv").stdout
    assert json.loads(release(folder, "--plan", "--json").stdout)["price"] == 0
    assert "ok" in run("ledger", "verify", "people.csv", cwd=folder).stdout


def test_columns_stand_in_for_sql(folder):
    words = ("--columns", "age=0:18:65:99,ward", "--keys", "ward=north,south", "--json")
    found = json.loads(release(folder, *words, "--where", "age > 10", sql=None).stdout)
    assert found["shape"] == [4, 2]
    assert found["rows"][2][:2] == [18, "north"]


def test_refusals_end_as_those_of_questions_do(folder):
    assert "over-budget" in release(folder, epsilon="2", code=3).stderr
    assert "no release" in run("release", "x", "people.csv", SQL, "--epsilon", "1", "--budget", "1",
                               *AGE, code=2, cwd=folder).stderr  # fmt: skip
    assert "not understood" in release(folder, "--columns", "=5", sql=None, code=2).stderr
    assert "not understood" in release(folder, "--option", "depth", code=2).stderr
    assert "has no option" in release(folder, "--option", "depth=3", code=2).stderr
    assert "ending" in release(folder, "--save", "out.xyz", code=2).stderr
    error = json.loads(release(folder, "--method", "magic", "--json", code=2).stdout)["error"]
    assert error["code"] == "bad-parameter.method"
    assert "spent" in run("ledger", "show", "people.csv", cwd=folder).stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--confidence", "2"), "confidence is 2"),
        (("--confidence", "sure"), "confidence is 'sure'"),
        (("--columns", "age=5,ward,age=10"), "names age twice"),
        (("--columns", "age=5", "--workload", "age="), "not understood"),
        (("--columns", "age=5", "--workload", "ward=north"), "no axis 'ward'"),
        (("--columns", "age=5", "--option", "depth=3"), "has no option"),
    ],
)
def test_what_is_said_wrong_is_refused_before_any_charge(folder, words, said):
    sql = None if "--columns" in words else SQL
    assert said in release(folder, *words, sql=sql, code=2).stderr
    assert "left ε = 0" in release(folder, epsilon="1").stdout  # all of it was still there


def test_ranges_are_listed_on_one_line():
    assert releases.ranges_of("age=20:39,age=40:+ward=north") == [
        {"age": (20, 39)},
        {"age": (40, None), "ward": "north"},
    ]
    assert releases.ranges_of("day=2024-01-01:2024-02-29") == [
        {"day": ("2024-01-01", "2024-02-29")}
    ]
    assert releases.ranges_of("cells") == "cells"


def test_ranges_are_asked_of_a_release_and_of_those_above(folder):
    words = ("--columns", "age=25", "--workload", "age=25:50,age=50:", "--plan", "--json")
    assert json.loads(release(folder, *words, sql=None).stdout)["questions"] == 2
    terms = ("--epsilon", "1", "--budget", "1", *AGE, "--columns", "age=25", "--json")
    asked = ("--option", "questions=age=25:50,age=25:75", "--option", "threshold=150")
    found = json.loads(run("release", "above", "people.csv", *terms, *asked, cwd=folder).stdout)
    assert [row[0] for row in found["rows"]] == ["age: 25 to 50", "age: 25 to 75"]


OWN = {
    "cube": ("--option", "sets=1"),
    "sparse": (),
    "above": ("--option", "questions=cells", "--option", "threshold=20"),
}


@pytest.mark.parametrize("name", OWN)
def test_names_with_own_results_are_planned_as_facts_and_as_json(folder, name):
    terms = ("--epsilon", "1", "--budget", "1", *AGE, "--columns", "age=25", "--plan")
    more = (*OWN[name], "--confidence", "0.9")
    shown = run("release", name, "people.csv", *terms, *more, cwd=folder).stdout
    assert "│ error" in shown
    assert "at 90% confidence" in shown
    assert re.search(r"│ price +│ ε = 1 ", shown)
    plan = json.loads(
        run("release", name, "people.csv", *terms, *more, "--json", cwd=folder).stdout
    )
    assert (plan["price"], plan["fits"], plan["confidence"]) == (1, True, 0.9)


def test_progress_is_drawn_on_a_terminal_and_nowhere_else(folder, monkeypatch):
    assert release(folder).stderr == ""
    terminal = StringIO()
    terminal.isatty = lambda: True
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    with printing.bar() as progress:
        progress(0.5, "measuring by cells")
    assert "measuring" in terminal.getvalue()


def test_help_names_the_options(tmp_path):
    said = subprocess.run(
        [NOISEGATE, "release", "--help"], capture_output=True, text=True, check=True, cwd=tmp_path
    ).stdout
    assert all(option in said for option in ("--method", "--workload", "--save", "--plan"))


@pytest.mark.parametrize("name", ["crowd-histogram", "crowd-points"])
def test_crowds_are_planned_made_shown_and_saved(folder, name):
    terms = (
        "people.csv", "--columns", "age=25", *AGE, "--epsilon", "1", "--option", "probability=1/2",
        "--option", "crowd=12", "--budget", "2", "--delta", "0.01",
    )  # fmt: skip
    plan = run("release", name, *terms, "--plan", cwd=folder).stdout
    assert "each person with probability 1/2" in plan
    shown = run("release", name, *terms, "--save", "out.csv", "--save", "out.md", cwd=folder).stdout
    assert "a crowd of 12" in shown
    assert "left (ε = 1" in shown
    assert (folder / "out.csv").stat().st_size > 20
    assert "nobody knows who is in the sample" in (folder / "out.md").read_text()
    again = json.loads(run("release", name, *terms, "--json", cwd=folder).stdout)
    assert again["free"]


def test_a_release_of_a_sample_is_another_one(folder):
    made = json.loads(release(folder, "--sample", "1/2", "--json").stdout)
    assert 0.4999 < made["price"] <= 0.5
    assert any("secret sample" in words for words in made["caveats"])
    assert not json.loads(release(folder, "--json").stdout)["free"]
    assert "The sampling probability" in release(folder, "--sample", "1", code=2).stderr
