"""Robust means as analysts ask for them: by groups, of units, refused, on the command line."""

import json

import numpy as np
import pyarrow as pa
import pytest
from command_line import run

import noisegate as ng
from noisegate.errors import NoisegateError
from refusals import about

FACTS = {"cost": {"between": [0, 100_000]}, "ward": {"in": ["north", "south"]}}
SQL = "SELECT AVG(cost) AS m FROM visits"


def rows():
    """3,000 visits of 1,200 people; a hundredth of the costs is wrong by a factor of a hundred."""
    dice = np.random.default_rng(2)
    cost = dice.normal(300, 40, 3000)
    cost[::100] *= 100
    who = dice.integers(0, 1200, 3000)
    return pa.table(
        {
            "who": pa.array([None if n % 500 == 7 else int(v) for n, v in enumerate(who)]),
            "cost": pa.array([None if n % 200 == 3 else float(v) for n, v in enumerate(cost)]),
            "ward": ["north" if n % 3 else "south" for n in range(3000)],
        }
    )


ROWS = rows()


@pytest.fixture(scope="module")
def gate():
    return ng.open(ROWS, epsilon=10**6, delta="1e-3", columns=FACTS, table="visits",
                   ledger=":memory:")  # fmt: skip


@pytest.fixture(scope="module")
def units():
    return ng.open(ROWS, epsilon=10**6, delta="1e-3", columns=FACTS, table="visits", unit="who",
                   rows_per_unit=2, ledger=":memory:", accountant="zcdp")  # fmt: skip


def held(ward=None):
    frame = ROWS.to_pandas().dropna(subset=["cost"])
    return np.sort((frame if ward is None else frame[frame.ward == ward]).cost.to_numpy())


def trimmed(values, share=0.1):
    cut = int(share * values.size)
    return values[cut : values.size - cut].mean()


def test_a_trimmed_mean_is_near_its_exact_value_by_group(gate):
    """Noise of ε = 50 moves it by less than 1 but for one run in 10⁶: the bound is about 0.1."""
    found = gate.smooth(
        "SELECT ward, AVG(cost) AS m FROM visits GROUP BY ward", trim="0.1", epsilon=50
    )
    assert dict(found.rows) == pytest.approx(
        {ward: trimmed(held(ward)) for ward in ("north", "south")}, abs=1
    )


def test_hubers_estimate_is_near_its_exact_value(gate):
    values = held()
    found = gate.smooth(SQL, clip=100, epsilon=50).rows[0][0]
    assert abs(np.clip(values - found, -100, 100).sum()) < values.size  # within 1 of the balance
    assert abs(found - np.median(values)) < 10


def test_wrong_entries_and_wide_bounds_hardly_matter(gate):
    """Both errors are typical ones: the plain mean is off by hundreds by the wrong entries."""
    assert abs(held().mean() - 300) > 250
    assert abs(trimmed(held()) - 300) < 5
    robust = [gate.smooth(SQL, trim="0.1", epsilon=1, fresh=True).rows[0][0] for _ in range(9)]
    assert np.median(np.abs(np.array(robust) - trimmed(held()))) < 2


def test_units_with_several_rows_pay_for_all_of_them(gate, units):
    one, two = (each.smooth_plan(SQL, trim="0.1", epsilon=1) for each in (gate, units))
    assert two.expected.noise.spread > 2 * one.expected.noise.spread
    found = units.smooth(SQL, trim="0.1", epsilon=50)
    assert abs(found.rows[0][0] - trimmed(held())) < 5  # of two values of a unit at most
    assert 0 < found.cost.epsilon <= 50


def test_a_tested_bound_gives_a_public_error(gate):
    found = gate.smooth(SQL, trim="0.1", epsilon=8, delta="1e-6", method="ptr", bound=3)
    assert found.margins()["m"][0] > 0
    assert abs(found.rows[0][0] - trimmed(held())) < 30


@pytest.mark.parametrize(
    ("sql", "terms", "code"),
    [
        (SQL, {"trim": "0.1", "clip": 5}, "estimator"),
        (SQL, {"trim": "0.5"}, "trim"),
        (SQL, {"trim": 0}, "trim"),
        ("SELECT MEDIAN(cost) FROM visits", {"trim": "0.1"}, "estimator"),
        ("SELECT AVG(cost), COUNT(*) FROM visits", {"clip": 9}, "estimator"),
    ],
)
def test_wrong_robust_means_are_refused_before_any_charge(gate, sql, terms, code):
    before = gate.spent
    with pytest.raises(NoisegateError, check=about(code)):
        gate.smooth(sql, epsilon=1, **terms)
    with pytest.raises(NoisegateError):
        gate.smooth(SQL, epsilon=1, clip=-3)
    assert gate.spent == before


def test_the_command_asks_for_both(tmp_path):
    from pyarrow import csv

    csv.write_csv(ROWS, tmp_path / "visits.csv")
    words = ("smooth", "visits.csv", SQL, "--epsilon", "20", "--between", "cost=0,100000", "--json")
    first = json.loads(run(*words, "--trim", "0.1", "--budget", "60", cwd=tmp_path).stdout)
    other = json.loads(run(*words, "--clip", "100", cwd=tmp_path).stdout)
    assert (first["price"], other["price"]) == pytest.approx((20, 20))
    assert abs(first["rows"][0][0] - other["rows"][0][0]) < 30
