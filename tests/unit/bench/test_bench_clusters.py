"""The benchmark of k-means runs at a tiny size, and shows what it measured."""

import numpy as np
import pyarrow.parquet as pq
import pytest


@pytest.mark.long
def test_fits_are_timed_in_processes_of_their_own(bench, monkeypatch):
    """One is; to load the learners takes longer than to fit, so the other is timed in this one."""
    clusters, started = bench("clusters"), []

    def once(data, size, method, apart=clusters._in_a_process):
        started.append(method)
        if len(started) == 1:
            return apart(data, size, method)
        row = clusters.clustered(data, size, method)
        return row | {"met": row["wall_s"] <= clusters.TARGET_S}

    monkeypatch.setattr(clusters, "_in_a_process", once)
    found = clusters.measure((2000,))
    assert [(row["rows"], row["method"]) for row in found] == [(2000, "sulq"), (2000, "auto")]
    for row in found:
        assert row["met"]
        assert min(row["wall_s"], row["cpu_s"], row["peak_gib"], row["off"]) > 0


def test_no_row_is_clamped(bench, tmp_path):
    """Points are 8 from all bounds and rows lie 1 around them; the rows are always the same."""
    clusters = bench("clusters")
    clusters.write(tmp_path / "rows.parquet", 5000)
    rows = np.column_stack(pq.read_table(tmp_path / "rows.parquet").columns)
    assert rows.shape == (5000, clusters.COLUMNS)
    assert 0 < rows.min() < rows.max() < clusters.HIGH
    centres = [rows[place :: clusters.CLUSTERS].mean(axis=0) for place in range(clusters.CLUSTERS)]
    assert np.abs(centres - clusters.middles()).max() < 0.25  # 6 deviations
