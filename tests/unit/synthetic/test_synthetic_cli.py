"""The command that makes synthetic rows: plan, rows, report, and what it refuses."""

import json

import pytest
from command_line import run

from noisegate.synthetic.release import SyntheticRelease

FACTS = ("--keys", "ward=north,south", "--between", "age=0,99", "--type", "age=integer")


@pytest.fixture
def folder(tmp_path):
    rows = "".join(f"{i},{i * 7 % 100},{'north' if i % 4 else 'south'}\n" for i in range(400))
    (tmp_path / "people.csv").write_text("id,age,ward\n" + rows)
    return tmp_path


def release(folder, *words, epsilon="0.5", columns="age,ward", code=0):
    terms = ("--epsilon", epsilon, "--budget", "1", *FACTS)
    named = () if columns is None else ("--columns", columns)
    words = ("release", "synthetic", "people.csv", *terms, *named, *words)
    return run(*words, code=code, cwd=folder)


def test_rows_are_planned_made_saved_and_free_from_then_on(folder):
    assert "all pairs of columns: 1 table" in release(folder, "--plan").stdout
    assert not (folder / "people.csv.ledger").exists()
    saved = ("--save", "out.parquet", "--save", "out.csv", "--report", "out.md")
    shown = release(folder, "--rows", "50", *saved).stdout
    assert "┃ age ┃ ward" in shown
    assert "50 synthetic rows by" in shown
    assert "left ε = 0.5" in shown
    assert (folder / "out.md").read_text().startswith("# Synthetic rows: people")
    again = json.loads(release(folder, "--rows", "50", "--json").stdout)
    assert (again["free"], again["remaining"], len(again["rows"])) == (True, 0.5, 50)
    kept = SyntheticRelease.load(folder / "out.parquet")
    assert again["rows"] == [list(row.values()) for row in kept.to_arrow().to_pylist()]
    assert len((folder / "out.csv").read_text().splitlines()) == 51
    assert json.loads(release(folder, "--plan", "--json").stdout)["price"] == 0
    assert "ok" in run("ledger", "verify", "people.csv", cwd=folder).stdout


def test_workloads_are_numbers_sets_or_a_file_of_questions(folder):
    (folder / "asked.sql").write_text(
        "SELECT COUNT(*) FROM people WHERE age < 18 AND ward = 'north';\n"
        "SELECT COUNT(*) FROM people WHERE age >= 65;\n"
    )
    plans = {
        words: json.loads(release(folder, "--plan", "--json", "--workload", words).stdout)
        for words in ("1", "age+ward,ward", "asked.sql", "age+ward=3,ward")
    }
    assert [plan["tables"] for plan in plans.values()] == [2, 2, 2, 2]
    assert plans["age+ward=3,ward"]["workload"] == "given sets of columns, by weights"
    assert plans["asked.sql"]["columns"]["age"] > plans["1"]["columns"]["age"]
    assert plans["asked.sql"]["workload"] == "given questions"
    words = ("people.csv", "--workload", "asked.sql", "--epsilon", "0.5", "--budget", "1")
    table = run("release", "questions", *words, *FACTS, "--save", "asked.svg", cwd=folder)
    assert "cells by 'questions'" in table.stdout
    assert "no model of the other errors is known" in table.stdout
    assert "No ± is known." in (folder / "asked.svg").read_text()
    (folder / "lines.sql").write_text(
        "-- one a line\nSELECT COUNT(*) FROM people WHERE age < 18 AND ward = 'north'\n"
        "SELECT COUNT(*) FROM people WHERE age >= 65\n"
    )
    same = json.loads(release(folder, "--plan", "--json", "--workload", "lines.sql").stdout)
    assert same == plans["asked.sql"]


def test_refusals_come_before_any_charge(folder):
    assert "'id' (text without a list of keys)" in release(folder, columns=None, code=2).stderr
    assert "over-budget" in release(folder, epsilon="2", code=3).stderr
    assert "unknown file ending" in release(folder, "--save", "out.xlsx", code=2).stderr
    assert "unknown file ending" in release(folder, "--report", "out.pdf", code=2).stderr
    assert "number of rows" in release(folder, "--rows", "0", code=2).stderr
    words = ("release", "histogram", "people.csv", "--columns", "age=5", "--rows", "5")
    refused = run(*words, "--epsilon", "1", "--budget", "1", *FACTS, code=2, cwd=folder)
    assert "synthetic rows" in refused.stderr
    assert "not understood" in release(folder, "--type", "age", code=2).stderr
    shown = run("ledger", "show", "people.csv", "--entries", cwd=folder).stdout
    assert "reserve" not in shown


def test_bounds_can_be_found_first(folder):
    words = ("--choose", "bounds", "--rows", "5", "--type", "id=integer")
    made = release(folder, *words, columns="id,ward", epsilon="1").stdout
    assert "5 synthetic rows" in made
    assert "the bounds of id, as estimated" in made
