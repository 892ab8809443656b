"""The benchmark of sparse releases runs at a tiny size, and shows what it measured."""

import sys
from pathlib import Path

BENCH = Path(__file__).parents[2] / "bench"


def test_sparse_releases_are_timed_in_processes_of_their_own(monkeypatch):
    monkeypatch.syspath_prepend(BENCH)
    import sparse

    try:
        few, all_shown = sparse.measure(1000)
    finally:
        sys.modules.pop("sparse", None)
    assert few["threshold"] > all_shown["threshold"]
    assert all_shown["shown"] >= 990  # a cell of 2 rows is missing with odds below e^-30
    assert few["wall_s"] > 0 < few["peak_gib"]
