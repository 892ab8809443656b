"""The page about benchmarks: drawn from the files of the runs, the same each time, and whole."""

import json
import re

import numpy as np
import pytest

COLUMNS = (
    ("way", "way", ""),
    ("ratio", "ratio", ".2f"),
    ("target", "target", ""),
    ("met", "met", "met"),
)


@pytest.fixture
def kept(bench, tmp_path, monkeypatch):
    """Keeps a section as a run does, in a folder of this test."""
    keep = bench("keep")
    monkeypatch.setattr(keep, "RUNS", tmp_path / "runs")

    def run(section, rows, **terms):
        table = keep.Shown("A | table_of 2**64", COLUMNS, rows)
        work = keep.Run(section, f"python bench/run.py --only {section}", "3 runs", **terms)
        seen = []
        file = work.keep(lambda: iter([table]), seen.append)
        assert seen == [table]
        return file

    return run


def test_a_run_becomes_a_section_and_what_was_not_run_keeps_its_place(bench, kept, tmp_path):
    report, places = bench("report"), bench("places")
    rows = [
        {"way": "plain", "ratio": 1.0},
        {"way": "ours", "ratio": 1.2, "target": "≤ 1.25", "met": True},
        {"way": "a*b", "ratio": float("nan"), "target": "≤ 1.25", "met": False},
    ]
    record = json.loads(kept("ledger", rows).read_text())
    assert record["tables"][0]["rows"][2]["ratio"] is None
    assert record["commit"]
    assert report.take_in(tmp_path / "runs", tmp_path / "results") == ["ledger"]
    text, drawn = report.page(tmp_path / "results")
    assert drawn == {}
    section = text.partition("### Ledger\n")[2].partition("\n#")[0]
    for words in (record["date"], record["commit"], record["machine"], record["effort"],
                  "load ", "`python bench/run.py --only ledger`", "A \\| table\\_of 2\\*\\*64",
                  "| ours | 1.20 | ≤ 1.25 | met |", "| a\\*b | – | ≤ 1.25 | **missed** |"):  # fmt: skip
        assert words in " ".join(section.split()), words
    every = [place for group in places.PLACES.values() for place in group]
    assert text.count("*Not run.*") == len(every) - 1
    assert all(f"\n### {place.title}\n" in text for place in every)
    assert re.search(r"\| \[Ledger\]\(#ledger\) \| [^\n]* \| 1 of 2 \| 1 \|", text)
    assert not re.search(r"\bnan\b", text, re.IGNORECASE)
    assert report.page(tmp_path / "results") == (text, drawn)


def test_less_effort_never_takes_the_place_of_more(bench, kept, tmp_path):
    report, results = bench("report"), tmp_path / "results"
    kept("door", [{"way": "few"}], quick=True)
    assert report.take_in(tmp_path / "runs", results) == ["door"]
    assert "With the least effort" in report.page(results)[0]
    kept("door", [{"way": "many"}])
    assert report.take_in(tmp_path / "runs", results) == ["door"]
    kept("door", [{"way": "few again"}], quick=True)
    assert report.take_in(tmp_path / "runs", results) == []
    assert "many" in report.page(results)[0]


def test_what_failed_is_told_and_the_next_section_is_run(bench, kept, tmp_path, capsys):
    keep, show = bench("keep"), bench("show")
    table = keep.Shown("a table", COLUMNS, [{"way": "ours"}])
    runs = [
        (keep.Run("door", "c", "w"), lambda: iter([1 / 0])),
        (keep.Run("ledger", "c", "w"), lambda: iter([table])),
    ]
    with pytest.raises(SystemExit, match="failed: door"):
        keep.every(runs, show.console(100), resume=False)
    assert [file.stem for file in (tmp_path / "runs").iterdir()] == ["ledger"]
    assert "ZeroDivisionError" in capsys.readouterr().out


def test_a_section_of_this_commit_is_not_run_again(bench, kept, monkeypatch):
    keep = bench("keep")
    monkeypatch.setattr(keep, "commit", lambda: "12345678")
    kept("door", [])
    assert keep.Run("door", "", "3 runs").is_done
    assert keep.Run("door", "", "less", quick=True).is_done
    assert not keep.Run("door", "", "9 runs").is_done
    assert not keep.Run("ledger", "", "3 runs").is_done
    monkeypatch.setattr(keep, "commit", lambda: "12345679")
    assert not keep.Run("door", "", "3 runs").is_done


def test_every_section_has_its_place_and_every_place_a_section(bench):
    run, accuracy, places = bench("run"), bench("accuracy"), bench("places")
    worlds = bench("truth_worlds")
    named = [name for group in places.PLACES.values() for place in group for name in place.sections]
    assert len(named) == len(set(named))
    truth = {f"truth-{world.name}{way}" for world in worlds.WORLDS for way in ("", "-zcdp")}
    others = {"truth-held", "truth-far", "service"}
    assert set(named) == {*run.SECTIONS, *accuracy.SECTIONS} | truth | others


def test_the_page_is_what_the_kept_results_say(bench):
    """Whoever runs the bench anew writes the page anew: `python bench/report.py`."""
    report = bench("report")
    text, drawn = report.page()
    assert report.PAGE.read_text() == text
    assert {file.name: file.read_text() for file in report.DRAWN.iterdir()} == drawn
    assert not re.search(r"\b(nan|inf)\b", text, re.IGNORECASE)
    for file in report.RESULTS.glob("*.json"):
        record = json.loads(file.read_text())
        assert record["date"].partition(" ")[0] in text
        if not file.stem.startswith("truth-"):
            assert [t for t in record["tables"] if report._safe(t["title"]) not in text] == []


def test_held_shapes_are_those_of_their_seed_and_no_others(bench):
    held = bench("held")
    for families, size in ((held.LINES, (1024,)), (held.MAPS, (64, 64))):
        for family in families.values():
            one, again, other = (family(np.random.default_rng([seed, 1])) for seed in (1, 1, 2))
            assert one.shape == size
            assert (one > 0).all()
            assert (one == again).all()
            assert (one / one.sum() != other / other.sum()).any()


def test_a_held_release_stands_beside_the_best_published_one_of_the_same_tables(bench, monkeypatch):
    held, section = bench("held"), bench("section")
    effort = section.Effort(trials=2, beside=0, quick=True, say=print)
    errors = {"cells": 3.0, "haar": None, "tree": 2.0, "dawa": 4.0, "mwem": 5.0, "ahp": 6.0}
    monkeypatch.setattr(held, "error_of", lambda method, *_: errors[method])
    monkeypatch.setattr(held, "uniform", lambda *_: 7.0)
    row = held._shown(held.compared(np.arange(1, 17), held.prefixes(16), 500, effort, seed=1))
    assert (row["peer"], row["peer_error"]) == ("HB", 2.0)
    assert row["ratio"] == pytest.approx(row["auto"] / 2)
    assert len(row["within_each"]) == 2
    assert row["least"] <= row["within"] <= 1
    assert row["holds"] == (row["within"] >= 0.95)
    other = row | {"ratio": 3.0, "within_each": [0.5]}
    found = held.summary("all", [row | {"ratio": 1.0, "within_each": [1.0, 0.9]}, other])
    assert (found["regret"], found["worst"], found["near"], found["ahead"]) == (2.0, 3.0, 1, 1)
    assert (found["within"], found["least"], found["releases"]) == (pytest.approx(0.8), 0.5, 3)


def test_targets_of_error_bars_are_of_caps_that_are_found(bench):
    summed = bench("truth_summary").summary
    row = {"table": "t", "epsilon": 1.0, "times_best": 1.2, "width": 2.0}
    rows = [
        row | {"way": "found", "inside": 1.0},
        row | {"way": "found", "inside": 0.7},
        row | {"way": "found", "failed": "refused"},
        row | {"way": "declared", "inside": 0.1},
    ]
    found, declared = summed(rows)
    assert (found["questions"], found["refused"], found["below"]) == (3, 1, 1)
    assert (found["inside_met"], found["none_below"], found["times_met"]) == (False, False, True)
    assert (found["inside"], found["inside_target"]) == (0.85, "≥ 0.95")
    judged = ("inside_target", "inside_met", "none_below", "times_target", "times_met")
    assert [declared[name] for name in judged] == [None] * 5
    assert [each["table"] for each in summed(rows, each_table=True)] == ["t", "t"]
