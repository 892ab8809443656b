"""The benchmark of sparse releases runs at a tiny size, and shows what it measured."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest


@pytest.mark.long
def test_sparse_releases_are_timed_in_processes_of_their_own(bench):
    few, all_shown = bench("sparse").measure(1000)
    assert few["threshold"] > all_shown["threshold"]
    assert all_shown["shown"] >= 990  # a cell of 2 rows is missing with odds below e^-30
    assert few["wall_s"] > 0 < few["peak_gib"]


def test_the_peak_of_a_process_is_its_own_and_not_of_who_started_it(bench):
    ballast = np.ones(1 << 25)  # a quarter of a GiB
    folder = Path(bench("clock").__file__).parent
    command = [sys.executable, "-c", "import clock; print(clock.peak_gib())"]
    said = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout
    assert 0 < float(said) < ballast.nbytes / 2**30 / 2 < bench("clock").peak_gib()
