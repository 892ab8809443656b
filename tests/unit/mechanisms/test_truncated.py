"""Counts with truncated geometric noise stay in their range, and their ± holds at its ends."""

from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

import noisegate as ng
from noisegate.errors import SpecError
from noisegate.mechanisms.additive.geometric import Geometric
from noisegate.mechanisms.additive.truncated_geometric import TruncatedGeometric
from noisegate.privacy.loss import ApproxDP
from noisegate.sql.estimates.columns import truncated_bars
from noisegate.sql.laws.known import released
from refusals import about

SQL = "SELECT ward, COUNT(*) AS n FROM people GROUP BY ward"


@pytest.fixture(scope="module")
def gate():
    rows = pa.table({"ward": ["north"] * 30 + ["south"] * 2, "age": list(range(32))})
    columns = {"ward": {"in": ["north", "south", "west"]}, "age": {"between": [0, 99]}}
    return ng.open(rows, epsilon=100, columns=columns, table="people")


@pytest.mark.parametrize(("scale", "top"), [(1, 3), (2, 40), (7, 30), (30, 25)])
def test_the_interval_of_what_is_shown_holds_for_every_count(scale, top):
    noise, level = TruncatedGeometric(scale=Fraction(scale), top=top), Fraction(95, 100)
    shown = np.arange(top + 1)
    bars = released(shown, Geometric(scale=Fraction(scale)), Fraction(1)).bars
    ends = truncated_bars(shown.astype(float), bars, top)(level)
    plain = bars(level)
    for count in range(top + 1):
        held = [m for m in range(top + 1) if ends.low[m] <= count <= ends.high[m]]
        assert sum(noise.mass(m, count)[0] for m in held) >= level
    assert (ends.low >= np.maximum(plain.low, 0)).all()
    assert (ends.high <= np.minimum(plain.high, top)).all()
    narrower = (ends.high - ends.low).sum() < (
        np.clip(plain.high, 0, top) - np.clip(plain.low, 0, top)
    ).sum()
    assert narrower or scale == 30


def test_a_count_stays_in_its_range_at_the_same_price(gate):
    before = gate.spent
    drawn = [
        gate.sql(SQL, epsilon=1, noise="truncated", top=30, fresh=True).to_arrow()["n"].to_pylist()
        for _ in range(8)
    ]
    assert all(0 <= count <= 30 for row in drawn for count in row)
    assert gate.spent.epsilon - before.epsilon == 8
    assert min(row[2] for row in drawn) == 0  # not so with (1 - 0.73)^8 < 4e-5


def test_what_was_counted_before_is_cut_at_no_cost(gate):
    gate.sql(f"{SQL} /* noisegate: noise=truncated top=9 */", epsilon=1, fresh=True)
    spent = gate.spent
    plain = gate.sql(SQL, epsilon=1)
    cut = gate.sql(f"{SQL} /* noisegate: noise=truncated top=9 */", epsilon=1)
    assert cut.cost == ApproxDP(0) == plain.cost
    assert gate.spent == spent
    counts = plain.to_arrow()["n"].to_numpy()
    assert cut.to_arrow()["n"].to_pylist() == np.clip(counts, 0, 9).tolist()
    assert any("cut to 0 … 9" in each for each in cut.caveats)


@pytest.mark.parametrize(
    ("sql", "terms", "subject"),
    [
        (SQL, {"noise": "gaussian"}, "noise"),
        (SQL, {"noise": "truncated"}, "top"),
        (SQL, {"noise": "truncated", "top": 0}, "top"),
        (SQL, {"top": 10}, "top"),
        ("SELECT SUM(age) FROM people", {"noise": "truncated", "top": 10}, "noise"),
    ],
)
def test_what_cannot_be_cut_is_refused_before_the_charge(gate, sql, terms, subject):
    spent = gate.spent
    with pytest.raises(SpecError, check=about(subject)):
        gate.sql(sql, epsilon=1, **terms)
    assert gate.spent == spent
