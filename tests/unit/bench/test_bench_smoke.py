"""The benchmark itself: it runs at tiny sizes, and what it shows is what it measured."""

import json
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest

BENCH = Path(__file__).parents[3] / "bench"


def positive(row: dict, *fields: str) -> bool:
    return all(isinstance(row[field], int | float) and row[field] > 0 for field in fields)


def test_every_law_is_drawn_and_beside_numpy(bench):
    noise = bench("noise")
    found = noise.measure(5000, repeats=1)
    assert [row["law"] for row in found["room"]] == [case.law for case in noise.CASES]
    assert len(found["speed"]) == len(noise.CASES) + 1
    for row in found["speed"]:
        assert positive(row, "size", "wall_ms", "cpu_ms", "draws_per_s", "times_numpy"), row
        assert row["times_numpy"] == pytest.approx(row["numpy_cpu_ms"] / row["cpu_ms"])
        assert (row["target"] is None) == (row["met"] is None)
    for row in found["room"]:
        assert positive(row, "first_ms", "again_ms", "peak_arrays"), row


def test_each_counterpart_of_numpy_exists(bench):
    noise = bench("noise")
    assert {case.numpy for case in (*noise.CASES, noise.HISTOGRAM)} == set(noise.NUMPY)


def test_a_target_is_missed_on_the_wrong_side_of_its_number(bench):
    noise = bench("noise")
    assert noise.AS_FAST_AS_NUMPY.met({"times_numpy": 1.0})
    assert not noise.AS_FAST_AS_NUMPY.met({"times_numpy": 0.99})
    assert noise.HUNDRED_OPENDP.met({"draws_per_s": 7_800_000})
    assert not noise.HUNDRED_OPENDP.met({"draws_per_s": 7_700_000})
    assert not noise.UNDER_5_MS.met({"wall_ms": 5.0})
    assert not noise.THREE_ARRAYS.met({"peak_arrays": 3.1})


def test_peak_memory_counts_every_array_that_lives_at_once(bench):
    noise = bench("noise")
    one = 8 << 20
    peak = noise.peak_bytes(lambda: [np.ones(1 << 20) for _ in range(3)])
    assert 3 * one <= peak < 3.1 * one


def test_forgotten_tables_are_built_again(bench):
    noise = bench("noise")
    from noisegate.noise.table import table_for

    noise.discrete_laplace(1, 5)
    assert table_for.cache_info().currsize > 0
    noise.forget_tables()
    assert table_for.cache_info().currsize == 0


def test_runs_in_turns_give_one_median_each(bench):
    clock = bench("clock")
    calls = []
    found = clock.side_by_side([partial(calls.append, "a"), partial(calls.append, "b")], repeats=3)
    assert calls == ["a", "b"] * 4
    assert len(found) == 2
    assert clock.Timing.of([clock.Timing(w, 1) for w in (9, 1, 2)]).wall_ms == 2


def test_a_slow_peer_is_run_once(bench):
    clock = bench("clock")
    calls = []
    clock.until(lambda: calls.append(1), repeats=5, limit_s=0)
    assert len(calls) == 1


def test_the_door_is_measured_beside_the_plain_query(bench, tmp_path):
    door = bench("door")
    rows = door.questions(tmp_path, 1000, repeats=1)
    assert len(rows) == 8
    assert [row["way"] for row in rows if row["times_plain"] == 1] == [
        rows[0]["way"],
        rows[4]["way"],
    ]
    assert all(positive(row, "wall_ms", "times_plain") for row in rows)


def test_whole_processes_answer_beside_plain_duckdb(bench, tmp_path):
    plain, ask, *others = bench("door").processes(tmp_path, repeats=1)
    assert plain["times_plain"] == 1
    assert ask["times_plain"] == pytest.approx(ask["wall_ms"] / plain["wall_ms"])
    assert all(positive(row, "wall_ms") and "times_plain" not in row for row in others)


def test_questions_are_measured_beside_the_plain_query_before_them(bench, tmp_path):
    query = bench("query")
    rows = query.questions(query.table(3000, cache=tmp_path), repeats=1)
    plain = [row for row in rows if "target" not in row]
    assert [("plain" in row["way"] or "numpy" in row["way"]) for row in plain] == [True] * 5
    base = None
    for row in rows:
        assert positive(row, "wall_ms", "cpu_ms")
        if "target" not in row:
            base = row
            continue
        assert row["times_cpu"] == pytest.approx(row["cpu_ms"] / base["cpu_ms"])
        worse = max(row["times_cpu"], row["times_wall"])
        assert row["met"] == (worse <= float(row["target"].split()[0]))
    assert 0 <= rows[-1]["rank_error"] < 0.01


def test_a_rank_error_is_the_distance_to_the_nearest_rank_of_an_answer(bench):
    query = bench("query")
    values = np.arange(1.0, 101.0)
    assert query.rank_error(values, (25.0, 50.0, 75.0)) == 0
    assert query.rank_error(values, (25.0, 50.0, 78.5)) == pytest.approx(0.03)
    assert query.rank_error(values, (22.0, 50.0, 75.0)) == pytest.approx(0.03)
    assert query.rank_error(np.ones(100), (1.0, 1.0, 1.0)) == 0


def test_quantiles_are_measured_beside_what_they_cannot_do_without(bench):
    rows = bench("quantiles").measure(20_000, 20, repeats=1)
    for base, ours in (rows[:2], rows[2:]):
        assert positive(base, "wall_ms", "cpu_ms")
        assert ours["times_cpu"] == pytest.approx(ours["cpu_ms"] / base["cpu_ms"])
        assert ours["met"] == (ours["times_cpu"] <= float(ours["target"].split()[0]))
    assert 0 <= rows[1]["rank_error"] < 0.01


def test_the_table_of_questions_is_made_once_and_has_a_heavy_tail(bench, tmp_path):
    import pyarrow.parquet as pq

    query = bench("query")
    path = query.table(20_000, cache=tmp_path)
    made = path.stat().st_mtime_ns
    assert query.table(20_000, cache=tmp_path).stat().st_mtime_ns == made
    table = pq.read_table(path)
    assert table.column_names == ["user", "g", "x", "y", "d"]
    assert table.num_rows == 20_000
    assert np.bincount(table["user"].to_numpy()).max() > 10 * query.ROWS_PER_USER


@pytest.mark.parametrize("name", ["plain", "rows", "10 groups per user", "10 rows per user"])
def test_memory_is_measured_in_a_process_that_answers(bench, tmp_path, name):
    query = bench("query")
    found = query.peak(query.table(2000, cache=tmp_path), name)
    assert positive(found, "wall_ms", "cpu_ms", "peak_gib")
    assert found["peak_gib"] < query.LARGE_GIB


def test_processes_have_a_target_each(bench):
    ask, helped = bench("query").processes(repeats=1)
    assert positive(ask, "wall_ms", "cpu_ms")
    assert ask["met"] == (max(ask["times_wall"], ask["times_cpu"]) <= 3)
    assert helped["met"] == (max(helped["times_wall"], helped["times_cpu"]) <= 2)


def test_the_ledger_tells_pairs_a_second_of_each_store(bench, monkeypatch):
    ledger = bench("ledger")
    monkeypatch.setattr(ledger, "get_server", None)  # a Postgres server takes seconds to start
    rates = ledger.measure(3)
    assert set(rates) == {"memory", "sqlite"}
    assert all(rate > 0 for rate in rates.values())


def test_a_peer_that_fails_has_a_row_that_says_why(bench, monkeypatch, tmp_path):
    peers = bench("peers")
    monkeypatch.setattr(peers, "environment", lambda peer: Path(sys.executable))
    monkeypatch.setattr(peers, "BENCH", tmp_path)
    (row,) = peers.measure(10, peers=("opendp",))
    assert row["peer"] == "opendp"
    assert row["failed"].startswith("could not run")


def test_a_peer_is_shown_with_its_ratio_and_without_the_laws_it_lacks(bench, monkeypatch):
    peers = bench("peers")
    law = "discrete Laplace, scale 1"
    said = {"release": "Peer 1", "laws": {law: {"wall_ms": 50.0, "cpu_ms": 40.0}}}
    monkeypatch.setattr(peers, "_run", lambda peer, cells: said)
    first, *others = peers.measure(100, peers=("peer",))
    assert first["law"] == law
    assert first["times_peer"] == pytest.approx(40.0 / first["ours_cpu_ms"])
    assert [row["failed"] for row in others] == ["it has no such law"] * (len(peers.OURS) - 1)


def test_every_peer_has_pins_and_a_script(bench):
    peers = bench("peers")
    for peer in peers.PEERS:
        pins = (BENCH / "peers" / f"{peer}.txt").read_text().split()
        assert pins
        assert all("==" in pin for pin in pins)
        script = (BENCH / "peers" / f"run_{peer}.py").read_text()
        assert all(f'"{law}"' in script for law in peers.OURS)


def test_a_cell_without_a_value_is_a_dash_and_a_missed_target_says_so(bench):
    show = bench("show")
    row = {"met": False, "draws_per_s": 12_345_678.0, "size": 64909}
    assert show.cell(row, "law", "") == "–"
    assert show.cell(row, "met", "met") == "missed"
    assert show.cell(row, "draws_per_s", "millions") == "12.35"
    assert show.cell(row, "size", ",d") == "64,909"


def test_a_peers_report_is_one_json_object(bench, capsys):
    clock = bench("clock")
    clock.report({"good": lambda: None, "bad": lambda: 1 / 0}, release="Peer 1")
    said = json.loads(capsys.readouterr().out)
    assert positive(said["laws"]["good"], "wall_ms")
    assert said["laws"]["bad"] == {"failed": "ZeroDivisionError: division by zero"}


def test_everyday_questions_are_timed_beside_duckdb(bench):
    found = bench("everyday").measure(2)
    assert [row["way"].partition(",")[0] for row in found] == ["shop"] * 2 + ["logs"] * 2 + [
        "clinic"
    ] * 2
    assert all(positive(row, "wall_ms", "cpu_ms") for row in found)
    assert all(positive(row, "times_wall", "times_cpu") for row in found[1::2])
