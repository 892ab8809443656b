"""The benchmark of accuracy: it runs on tiny tables, and shows what it measured."""

import struct
import sys
import zlib
from fractions import Fraction

import numpy as np
import pytest

from noisegate.releases.cells.workload import cells, prefixes
from noisegate.releases.recipes import RECIPES


@pytest.fixture
def grids(bench):
    return bench("grids")


@pytest.fixture
def maps(bench):
    return bench("maps")


def test_a_cell_of_the_table_is_auto_beside_peer_and_recipes(grids):
    peer = grids.Peer("HB", 0.2, 0.3, 0.15, own=True)  # ten times what auto errs by
    row = grids.compared(np.arange(64), prefixes(64), 500, peer, (3, 1))
    assert row["trials"] == 3
    assert row["ratio"] == pytest.approx(row["auto"] / (0.2 * 500))
    assert row["met"] == (row["ratio"] <= 1.1)
    assert row["peer"] == "HB (own run)"
    assert set(grids.BESIDE[1]) & set(RECIPES) <= set(row)


def test_what_few_trials_do_not_tell_is_tried_further_beside_uniform_on_the_same_tables(
    grids, monkeypatch
):
    peer = grids.Peer(grids.UNIFORM, 0.01, None, None, own=False)
    ours = iter([1.1, 1.2] * 10)
    monkeypatch.setattr(grids, "error_of", lambda *_: next(ours))
    monkeypatch.setattr(grids, "uniform", lambda *_: 1.0)
    monkeypatch.setattr(grids, "FURTHER", 8)
    row = grids.compared(np.arange(64), prefixes(64), 500, peer, (2, 0))
    assert row["trials"] == 6  # 1.15 is then twice .055 / √6 above 1.1; before, it was not
    assert row["ratio"] == pytest.approx(1.15)
    assert row["peer_error"] == 1
    assert not row["met"]


def test_uniform_errs_by_the_noise_of_the_total_and_by_what_is_uneven(grids, monkeypatch):
    monkeypatch.setattr(grids, "EPSILON", Fraction(900))
    assert grids.uniform(np.array([2, 2, 2, 2]), prefixes(4)) == 0
    assert grids.uniform(np.array([3, 1, 3, 1]), prefixes(4)) == pytest.approx(np.sqrt(2) / 4)


def test_the_error_is_the_norm_over_questions_of_what_is_released(grids, monkeypatch):
    table = np.array([5, 0, 7, 1])
    monkeypatch.setattr(grids, "EPSILON", Fraction(900))
    assert grids.error_of("cells", table, prefixes(4)) == 0
    monkeypatch.setattr(grids, "released", lambda *_: np.array([5, 3, 7, 1]))
    assert grids.error_of("cells", table, prefixes(4)) == pytest.approx(np.sqrt(27) / 4)


def test_a_recipe_that_cannot_do_it_has_no_error(grids):
    assert grids.error_of("planned", np.ones((4, 4), int), cells((3, 3))) is None


def test_every_peer_of_the_tables_is_there(grids):
    assert len(grids.ONE_D) == 10 * 3 * 2
    assert len(grids.TWO_D) == 7 * 2
    assert all(0 < peer.error < 0.1 for peer in (*grids.ONE_D.values(), *grids.TWO_D.values()))
    assert "HB+NN" not in {peer.name for peer in grids.ONE_D.values()}


def test_regret_is_the_mean_ratio_to_the_best_peer(grids):
    row = {"peer_error": 2.0, "met": True}
    rows = [
        row | {"ratio": 1.0, "dawa_published": 3.0},
        row | {"ratio": 0.5, "dawa_published": None},
    ]
    every, known = grids.summary(rows)
    assert (every["regret"], every["count"], every["met_count"]) == (0.75, 2, 2)
    assert (known["regret"], known["dawa"], known["met"]) == (1.0, 1.5, True)


def test_the_plain_mechanism_is_equal_only_within_its_errors(maps):
    exact = 2 * np.exp(-0.1) / (1 - np.exp(-0.2))
    row = maps._map_row(0.1, {"plain": [exact - 0.1, exact + 0.1], "auto": [3.0, 3.2]}, 65536)
    assert row["equal"]
    assert row["met"]
    row = maps._map_row(0.1, {"plain": [9.0, 9.01], "auto": [3.1, 3.1]}, 65536)
    assert row["equal"] is False
    assert row["met"] is False
    assert maps._map_row(1, {"plain": [1.0], "auto": [1.0]}, 65536)["met"] is None


def test_workloads_are_those_of_the_published_figures(grids):
    asked = grids.random_ranges(4096)
    assert asked.size == 2000
    lengths = asked.highs - asked.lows + 1
    assert lengths.mean() == pytest.approx(2048, rel=0.05)  # 1 in 10^6 is 5 errors of 26
    assert grids.random_rectangles(128).lows.shape == (2000, 2)
    assert grids.sample(np.array([[1, 3], [0, 4]]), 1000, seed=1).sum() == 1000


def test_a_picture_is_a_png_that_can_be_read(maps):
    pixels = np.arange(12, dtype=np.uint8).reshape(3, 4)
    data = maps.png(pixels)
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    assert struct.unpack(">II", data[16:24]) == (4, 3)
    size = struct.unpack(">I", data[33:37])[0]
    lines = zlib.decompress(data[41 : 41 + size])
    assert [list(lines[at + 1 : at + 5]) for at in (0, 5, 10)] == pixels.tolist()


def test_without_the_data_it_says_where_they_belong(bench, monkeypatch, tmp_path, capsys):
    accuracy = bench("accuracy")
    monkeypatch.setattr(accuracy, "ROOT", tmp_path / "repository")
    monkeypatch.setattr(accuracy, "DATA", tmp_path / "shared" / "data")
    monkeypatch.setattr(sys, "argv", ["accuracy.py"])
    with pytest.raises(SystemExit):
        accuracy.main()
    assert "The data are not here" in capsys.readouterr().out


def test_maps_are_named_by_row_and_price(maps, monkeypatch, tmp_path):
    shown = []
    monkeypatch.setattr("vl_convert.svg_to_png", lambda svg: shown.append(svg) or b"PNG")
    monkeypatch.setattr(maps, "PICTURE", tmp_path / "bench" / "map.png")
    maps.save_pictures({name: [np.ones((4, 4))] * 4 for name in ("truth", "plain", "auto")})
    assert (tmp_path / "bench" / "map.png").read_bytes() == b"PNG"
    for words in ("truth", "plain", "auto", "ε = 1", "ε = 0.1", "ε = 0.01", "ε = 0.001"):
        assert f">{words}</text>" in shown[0]
    assert shown[0].count("<image") == 12


def test_a_sparse_tables_error_is_summed_over_all_cells(bench, monkeypatch):
    errors = bench("sparse_error")
    table = np.array([[0, 40, 0, 7], [0, 0, 300, 0]])
    held = np.flatnonzero(table)
    assert errors.summary_error(held, table.ravel(), Fraction(900)) == 0
    monkeypatch.setattr(errors, "least_error", lambda noise, values: 30)
    assert errors.summary_error(held, table.ravel(), Fraction(900)) == 7
    assert errors.auto_error(table, Fraction(900)) == 0
    effort = bench("section").Effort(trials=2, beside=1, quick=True, say=print)
    row = errors.compared("x", table, "900", (0.5, 0.2), effort)
    assert (row["cells"], row["filled"], row["rows"], row["auto"]) == (8, 3, 347, 0)
    assert (row["ratio"], row["met"]) == (pytest.approx(7 / 347 / 0.2), True)


def test_distances_of_marginals_are_half_of_what_shares_differ(bench):
    marginals = bench("marginals")
    rows = np.arange(60) % 3
    table = marginals.Coded((3, 2), [rows, (rows > 0).astype(np.int64)])
    assert table.counts((0, 1)).tolist() == [[20, 0], [0, 20], [0, 20]]
    assert marginals.distances(table, Fraction(10**4)) == [0]
    assert 0 < marginals.distances(table, Fraction(1, 100))[0] <= 1


def test_running_totals_are_measured_beside_their_prediction(bench):
    series = bench("series")
    row = series.compared(np.arange(15), gaussian=True, factor="root", trials=400)
    assert row["ratio"] == pytest.approx(row["measured"] ** 2 / row["predicted"] ** 2)
    assert row["equal"] == (abs(row["ratio"] - 1) <= 5 * row["ratio_se"])
    assert 0.5 < row["ratio"] < 2  # the spread of each trial is below 1: 10 errors
    tree = series.compared(np.zeros(15, np.int64), gaussian=False, factor="tree", trials=2)
    assert tree["plain"] > tree["predicted"]
