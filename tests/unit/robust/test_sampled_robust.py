"""Robust numbers about a secret sample: medians, graphs, distances, at their amplified price."""

from fractions import Fraction
from itertools import combinations

import numpy as np
import pyarrow as pa
import pytest
from typer.testing import CliRunner

import noisegate as ng
from noisegate.accounting.amplification import poisson
from noisegate.accounting.pure import pure_loss
from noisegate.cli import app
from noisegate.errors import SpecError, Unsupported
from noisegate.privacy.event import (
    GeometricEvent,
    PoissonSampled,
    ProposeTestReleaseEvent,
    SmoothLaplaceEvent,
    SmoothStudentEvent,
    decode,
)
from noisegate.sql.laws.sampling import sampling_of
from refusals import about

P = Fraction(1, 4)
ROWS = pa.table({"age": [40] * 4000, "x": np.arange(4000) % 4, "who": np.arange(4000) // 2})
FACTS = {
    "age": {"type": "integer", "between": [0, 120]},
    "x": {"type": "integer", "between": [0, 3]},
}
MEDIAN = "SELECT MEDIAN(age) AS middle FROM data"
COUNTS = "SELECT COUNT(*) FILTER (WHERE x = 1) AS a, COUNT(*) FILTER (WHERE x < 3) AS b FROM data"
PAIRS = list(combinations(range(30), 2))  # 435 edges
EDGES = pa.table({"a": [a for a, _ in PAIRS], "b": [b for _, b in PAIRS]})
ENDS = {name: {"type": "integer", "between": [0, 29]} for name in "ab"}


def gate(**more):
    return ng.open(ROWS, epsilon=100, columns=FACTS, **({"delta": 1e-3} | more))


def event_of(door):
    (entry,) = [each for each in door.history() if each.kind == "reserve"]
    return decode(entry.body["event"])


@pytest.mark.parametrize(
    ("terms", "kind", "accountant"),
    [
        ({}, SmoothStudentEvent, "pure"),
        ({}, SmoothStudentEvent, "zcdp"),
        ({"delta": "1e-6"}, SmoothLaplaceEvent, "pure"),
        ({"delta": "1e-6", "method": "ptr", "bound": 5}, ProposeTestReleaseEvent, "pure"),
    ],
)
def test_a_median_of_a_sample_has_noise_for_the_inner_price(terms, kind, accountant):
    """All are 40, so no noise by reaches is left; with a bound that is tested, there is some."""
    door = gate(accountant=accountant)
    price = door._desk.asked(Fraction(1))
    answer = door.sample(P).smooth(MEDIAN, epsilon=price, **terms)
    assert answer.rows == ((40,),) or "bound" in terms
    event = event_of(door)
    assert isinstance(event, PoissonSampled)
    assert isinstance(event.event, kind)
    inner, outer = pure_loss(event.event), pure_loss(event)
    assert outer == poisson(inner, probability=P)
    assert Fraction(999, 1000) < outer.epsilon <= 1
    assert inner.epsilon > 2 * outer.epsilon
    assert outer.delta <= Fraction(1, 10**6) < inner.delta * 5 or not terms
    assert any("secret sample" in words for words in answer.caveats)
    assert door.sample(P).smooth(MEDIAN, epsilon=price, **terms).free


def test_values_of_one_unit_are_sampled_together_and_paid_for_together():
    door = ng.open(ROWS, epsilon=100, delta=1e-3, unit="who", columns=FACTS)
    asked = {"epsilon": 1, "delta": "1e-6", "rows_per_unit": 2}
    door.sample(P).smooth(MEDIAN, **asked)
    event = event_of(door)
    assert event.event.size == 2
    loss = pure_loss(event)
    assert Fraction(999, 1000) < loss.epsilon <= 1
    assert loss.delta <= Fraction(1, 10**6)


def test_numbers_of_a_graph_are_those_of_the_sample():
    """Of 435 edges 109 are expected: beyond six standard deviations once in 5 · 10⁸ runs."""
    door = ng.open(EDGES, epsilon=100, columns=ENDS, table="roads")
    roads = door.sample(P).graph("roads", source="a", target="b")
    answer = roads.edges(epsilon=5)
    assert abs(answer.rows[0][0] - 435 / 4) < 6 * (435 * 3 / 16) ** 0.5 + 6
    assert any("not scaled up" in words for words in answer.caveats)
    event = event_of(door)
    assert isinstance(event.event, GeometricEvent)
    assert Fraction(499, 100) < pure_loss(event).epsilon <= 5
    assert isinstance(roads.triangles(epsilon=5).rows[0][0], int)
    assert roads.degrees(epsilon=5).to_arrow().num_rows == 30
    with pytest.raises(SpecError, check=about("sample")):
        door.sample(P).graph("roads", source="a", target="b", level="node")


def test_accounts_of_rho_have_no_gaussian_noise_about_a_sampled_graph():
    more = {"delta": 1e-6, "accountant": "zcdp"}
    door = ng.open(EDGES, epsilon=100, columns=ENDS, table="roads", **more)
    door.sample(P).graph("roads", source="a", target="b").degrees(epsilon=1)
    assert isinstance(event_of(door).event, GeometricEvent)


def test_the_least_of_several_counts_is_scaled_up_and_its_bars_hold_sampling():
    """1,000 and 3,000 rows: the least is a binomial number, beyond its ± once in 10⁶ runs."""
    door = gate()
    answer = door.sample(P).distance(COUNTS, epsilon=1)
    ((value,),) = answer.rows
    assert value % 4 == 0
    sure = 1 - Fraction(1, 10**6)
    assert abs(value - 1000) <= answer.margins(sure)["distance"][0]
    (width,) = answer.margins(Fraction(95, 100))["distance"]
    sampling = sampling_of(P, 1, Fraction(4))
    alone = sampling.widened(np.array([float(value)]), np.zeros(1), 0.0125)[0]
    assert 1.96 * (1000 * 3) ** 0.5 < alone < width < alone + 40
    assert Fraction(999, 1000) < door.spent.epsilon <= 1


def test_balls_of_a_sample_are_counted_as_any_sum():
    door = gate()
    asked = {"columns": ["x"], "centers": [(0,)], "radius": 1, "epsilon": 5}
    answer = door.sample(P).distance(**asked)
    assert abs(answer.rows[0][0] - 2000) < 6 * (2000 * 3) ** 0.5 + 60
    assert isinstance(event_of(door), PoissonSampled)


def test_plans_say_that_sampling_adds_to_the_error_and_cost_nothing():
    door = gate()
    plan = door.sample(P).distance_plan(COUNTS, epsilon=5)
    assert "what sampling adds" in str(plan)
    assert plan.price.epsilon <= 5
    assert "secret sample" in str(door.sample(P).smooth_plan(MEDIAN, epsilon=1))
    assert door.spent.epsilon == 0


def test_a_program_of_the_steward_sees_all_rows():
    door = gate()
    with pytest.raises((SpecError, Unsupported), check=about("sample")):
        door.sample(P).distance(lambda rows: 0, trusted=True, epsilon=1)
    assert door.spent.epsilon == 0


def test_the_command_line_asks_about_a_sample(tmp_path, monkeypatch):
    """A table of equal ages: their median is exact in any sample."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    (tmp_path / "rows.csv").write_text("age\n" + "40\n" * 4000)
    asked = ["smooth", str(tmp_path / "rows.csv"), "SELECT MEDIAN(age) FROM rows", "--epsilon", "1",
             "--budget", "2", "--sample", "1/4", "--between", "age=0,120", "--type", "age=integer"]  # fmt: skip
    found = CliRunner().invoke(app, asked)
    assert found.exit_code == 0
    assert "40" in found.stdout
    assert "secret sample" in found.stdout
