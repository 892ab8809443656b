"""The benchmark of sparse releases runs at a tiny size, and shows what it measured."""


def test_sparse_releases_are_timed_in_processes_of_their_own(bench):
    few, all_shown = bench("sparse").measure(1000)
    assert few["threshold"] > all_shown["threshold"]
    assert all_shown["shown"] >= 990  # a cell of 2 rows is missing with odds below e^-30
    assert few["wall_s"] > 0 < few["peak_gib"]
