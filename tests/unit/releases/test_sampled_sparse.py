"""Tables too large to list, and thresholds, about a secret sample: amplified, scaled up, with ±."""

from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

import noisegate as ng
from noisegate.accounting.amplification import poisson
from noisegate.accounting.pure import pure_loss
from noisegate.errors import SpecError
from noisegate.privacy.event import AboveThresholdEvent, GeometricEvent, PoissonSampled, decode
from noisegate.privacy.loss import ApproxDP
from noisegate.releases.sparse.summary import SparseRelease
from refusals import about

P = Fraction(1, 4)
# 30 cells of 400 rows each, among a hundred million
ROWS = pa.table({"x": np.repeat(np.arange(30) * 317, 400), "y": np.repeat(np.arange(30) * 100, 400),
                 "who": np.arange(12_000) // 2, "gain": np.arange(12_000) % 3 - 1})  # fmt: skip
FACTS = {name: {"type": "integer", "between": [0, 9999]} for name in "xy"} | {
    "gain": {"type": "integer", "between": [-1, 1]}
}
CELLS = {"x": None, "y": None}


def gate(**more):
    return ng.open(ROWS, epsilon=100, columns=FACTS, **more)


def event_of(door):
    (entry,) = [each for each in door.history() if each.kind == "reserve"]
    return decode(entry.body["event"])


def test_a_sparse_table_of_a_sample_is_scaled_up_at_its_amplified_price(tmp_path):
    """A cell has 100 of the sample and its ± at 1 - 10⁻⁸: one of 30 fails once in 3 · 10⁶ runs.

    All 30 are shown, unless 100 falls below the threshold of some 12: beyond ten deviations.
    """
    door = gate()
    plan = door.sample(P).release_plan("sparse", columns=CELLS, epsilon=1)
    made = door.sample(P).release("sparse", columns=CELLS, epsilon=1)
    event = event_of(door)
    assert isinstance(event, PoissonSampled)
    assert isinstance(event.event, GeometricEvent)
    inner = ApproxDP(1 / event.event.scale)
    assert pure_loss(event) == poisson(inner, probability=P)
    assert Fraction(999, 1000) < made.cost.epsilon == plan.price.epsilon <= 1
    table = made.to_arrow(1 - Fraction(1, 10**8)).to_pandas()
    held = table[(table.x * 100 == table.y * 317)]
    assert len(held) == 30
    assert (held.n % 4 == 0).all()
    assert ((held.n - 400).abs() <= held.n_margin).all()
    narrow = made.to_arrow(0.95).to_pandas()["n_margin"]
    assert (narrow < 4 * (400 * 3) ** 0.5).all()
    made.save(tmp_path / "cells.parquet")
    again = SparseRelease.load(tmp_path / "cells.parquet")
    assert again.to_arrow(0.95) == made.to_arrow(0.95)
    assert again.query(x=(0, 999)) == made.query(x=(0, 999))
    assert any("secret sample" in words for words in made.words)
    assert door.sample(P).release("sparse", columns=CELLS, epsilon=1).free


def test_sums_and_what_is_missing_hold_what_sampling_adds():
    """Four cells of 400: the sum is a binomial number, outside its ± once in 10⁷ runs."""
    made, whole = (
        door.release("sparse", columns=CELLS, epsilon=2) for door in (gate().sample(P), gate())
    )
    sure = 1 - Fraction(1, 10**7)
    found = made.query(sure, x=(0, 999), y=(0, 300))
    assert found.shown >= 4
    assert found.low <= 1600 <= found.high
    assert found.high - found.low > 2 * 1.96 * (1600 * 3) ** 0.5
    assert made.missing(0.95) > 4 * whole.missing(0.95) / 2
    below = int(made.missing(0.95))
    chance = float(P)
    spread = (below * chance * (1 - chance)) ** 0.5
    assert made.bar + 1.9 * spread < below * chance  # enough of them are in the sample


def test_a_unit_with_several_rows_is_sampled_with_all_of_them():
    door = gate(unit="who")
    made = door.sample(P).release("sparse", columns=CELLS, epsilon=2, rows_per_unit=2)
    assert made.sampling.reach == 2
    assert not made.sampling.ones
    assert Fraction(1999, 1000) < pure_loss(event_of(door)).epsilon <= 2


def test_thresholds_about_a_sample_are_compared_at_the_amplified_price():
    """Sums of 4,000, 8,000 and 12,000 against 6,000 ± 1,000: wrong once in 10⁹ runs or less."""
    door = gate()
    asked = {"columns": {"x": 100}, "threshold": 6000, "epsilon": 1, "most": 2}
    boxes = [{"x": (0, 3099)}, {"x": (0, 6199)}, {"x": (0, 9999)}]
    plan = door.sample(P).release_plan("above", questions=boxes, **asked)
    made = door.sample(P).release("above", questions=boxes, **asked)
    assert made.answers.tolist() == [False, True, True]
    event = event_of(door)
    assert isinstance(event.event, AboveThresholdEvent)
    assert Fraction(999, 1000) < pure_loss(event).epsilon <= 1
    spread = (6000 * 3) ** 0.5
    assert 1.96 * spread < made.margin_at(0.95) == plan.expected.margin(0.95) < 4 * spread
    assert any("secret sample" in words for words in made.answer().caveats)


def test_sums_of_either_sign_have_no_threshold_about_a_sample():
    door = gate()
    sql = "SELECT SUM(gain) FROM data GROUP BY BIN(x, 100)"
    with pytest.raises(SpecError, check=about("sign")):
        door.sample(P).release("above", sql, questions="cells", threshold=5, epsilon=1)
    assert door.spent.epsilon == 0
