"""Distances over public lists, to a good clustering, and cuts by weight."""

from itertools import combinations

import numpy as np
import pyarrow as pa
import pytest
from command_line import run

import noisegate as ng
from noisegate.errors import NoisegateError
from refusals import about

FACTS = {"x": {"between": [0, 60]}, "y": {"between": [-30, 30]}}


def rows():
    """Two groups of 300 around (15, -15) and (45, 15), and 40 rows anywhere; some have no y."""
    dice = np.random.default_rng(4)
    points = [dice.normal(at, 2, (300, 2)) for at in ((15, -15), (45, 15))]
    held = np.vstack([*points, dice.uniform((0, -30), (60, 30), (40, 2))])
    return pa.table(
        {
            "who": np.arange(640) // 2,
            "x": held[:, 0],
            "y": pa.array([None if n % 80 == 5 else float(v) for n, v in enumerate(held[:, 1])]),
        }
    )


ROWS = rows()


@pytest.fixture(scope="module")
def gate():
    return ng.open(ROWS, epsilon=10**4, columns=FACTS, table="spots", ledger=":memory:")


@pytest.fixture(scope="module")
def units():
    return ng.open(ROWS, epsilon=10**4, columns=FACTS, table="spots", unit="who", rows_per_unit=2,
                   ledger=":memory:")  # fmt: skip


def outside(k, grid, radius):
    """The exact distance of rows where they are, not at the middle of bins."""
    points = ROWS.to_pandas()[["x", "y"]].dropna().to_numpy()
    axes = [low + (np.arange(grid) + 0.5) * 60 / grid for low in (0, -30)]
    centres = np.array([(a, b) for a in axes[0] for b in axes[1]])
    far = ((points[:, None] - centres[None]) ** 2).sum(axis=2) > radius**2
    return min(
        int(far[:, list(chosen)].all(axis=1).sum()) for chosen in combinations(range(grid**2), k)
    )


def test_a_good_clustering_is_near_with_as_many_centres_as_there_are_groups(gate, units):
    """Noise of ε = 20 reaches 2 with e^-40; bins move single rows across the edge of a ball."""
    near = gate.distance(columns=["x", "y"], clusters=2, grid=6, radius=12, epsilon=20)
    assert abs(near.rows[0][0] - outside(2, 6, 12)) <= 6
    far = gate.distance(columns=["x", "y"], clusters=1, grid=6, radius=12, epsilon=20)
    assert far.rows[0][0] > 250
    assert near.margins(0.99)["distance"][0] <= 1
    assert any("middle of public bins" in each for each in near.caveats)
    plan = units.distance_plan(columns=["x", "y"], clusters=2, grid=6, radius=12, epsilon=1)
    assert plan.margins(0.95)[plan.expected.asked] == pytest.approx(
        6, abs=1
    )  # a unit moves it by 2


def test_the_least_count_over_a_list_is_that_of_its_best_candidate(gate):
    sql = "SELECT COUNT(*) FILTER (WHERE ABS(BIN(x, 0.5) - at) > 20) FROM spots"
    found = gate.distance(sql, candidates={"at": list(range(61))}, epsilon=30)
    x = np.floor(ROWS["x"].to_numpy() * 2) / 2
    truth = min(int((np.abs(x - at) > 20).sum()) for at in range(61))
    assert abs(found.rows[0][0] - truth) <= 1


def test_a_cut_by_weight_is_exact_at_a_large_epsilon():
    edges = [(a, b, 5.0) for a, b in combinations(range(8), 2)]
    edges += [(8 + a, 8 + b, 5.0) for a, b in combinations(range(8), 2)] + [
        (0, 8, 2.0),
        (1, 9, 1.5),
    ]
    table = pa.table(dict(zip("abw", map(list, zip(*edges, strict=True)), strict=True)))
    facts = {"w": {"between": [0, 5]}} | {c: {"type": "integer", "between": [0, 15]} for c in "ab"}
    door = ng.open(table, epsilon=10**4, columns=facts, table="roads", ledger=":memory:")
    roads = door.graph("roads", source="a", target="b")
    answer = roads.min_cut("w", step="1/2", epsilon=300)
    assert answer.rows == ((3.5,),)  # off by half a step with e^-30
    assert any("steps of 0.5, rounded down" in each for each in answer.caveats)
    assert roads.min_cut("w", step="1/2", epsilon=1).margins()["min_cut"][0] == pytest.approx(
        15, abs=1
    )
    with pytest.raises(NoisegateError):
        roads.min_cut("w", epsilon=1, step=9)  # all weights alike


@pytest.mark.parametrize(
    ("terms", "code"),
    [
        ({"columns": ["x", "y"], "clusters": 4, "grid": 9, "radius": 3}, "clusters"),
        ({"columns": ["x", "y"], "clusters": 2, "centers": [[1, 2]], "radius": 3}, "clusters"),
        ({"columns": ["who"], "clusters": 2, "radius": 3}, "bounds"),
        ({"columns": ["x"], "radius": 3, "candidates": {"a": [1, 2]}}, "candidates"),
    ],
)
def test_wrong_clusterings_are_refused_before_any_charge(gate, terms, code):
    before = gate.spent
    with pytest.raises(NoisegateError, check=about(code)):
        gate.distance(epsilon=1, **terms)
    assert gate.spent == before


def test_the_command_measures_the_distance_to_a_clustering(tmp_path):
    from pyarrow import csv

    csv.write_csv(ROWS, tmp_path / "spots.csv")
    words = ("distance", "spots.csv", "--columns", "x,y", "--clusters", "2", "--radius", "12",
             "--between", "x=0,60", "--between", "y=-30,30", "--epsilon", "2", "--budget", "4")  # fmt: skip
    assert "±" in run(*words, cwd=tmp_path).stdout
    assert "630 numbers" in run(*words, "--plan", cwd=tmp_path).stdout  # pairs of 36 centres
