"""Numbers that are measured first: paid by a share, used as they were drawn, refused before."""

from fractions import Fraction

import pyarrow as pa
import pytest
from people_gates import HIGH, gate_of, people

from noisegate.algebra.expression import Call, Literal
from noisegate.errors import NoisegateError, OverBudget, SpecError, Unsupported
from noisegate.privacy.domain import Kind
from noisegate.sql.steps.asked import number_of
from refusals import about

ABOVE = "SELECT COUNT(*) AS n FROM people WHERE v > (SELECT AVG(v) FROM people)"


@pytest.mark.parametrize(
    ("sql", "n"),
    [
        (ABOVE, 40),  # of 0, 1, 2, forty times each
        ("SELECT COUNT(*) AS n FROM people WHERE v >= (SELECT COUNT(*) FROM people) / 120", 80),
        ("SELECT SUM(v - (SELECT MAX(v) FROM people)) AS n FROM people", -120),
        ("SELECT COUNT_IF(v = (SELECT MIN(v) FROM people WHERE k = 1)) AS n FROM people", 40),
        ("WITH a AS (SELECT * FROM people WHERE v > 0) SELECT COUNT(*) AS n FROM a WHERE v > (SELECT AVG(v) FROM a)", 40),
        (f"SELECT COUNT(*) AS n FROM people WHERE v < (SELECT AVG(v) FROM people) AND v < ({ABOVE})", 40),
        ("SELECT COUNT(*) AS n FROM people WHERE v > (SELECT AVG(v) FROM people HAVING COUNT(*) < 3)", 0),
    ],
)  # fmt: skip
def test_the_question_is_asked_with_the_number_that_was_measured(sql, n):
    assert gate_of().sql(sql, epsilon=HIGH).to_pandas().n[0] == pytest.approx(n, abs=1.0)


def test_the_plan_and_the_answer_say_what_is_measured_first_and_for_how_much():
    gate = gate_of()
    plan = gate.plan(ABOVE, epsilon=20)
    (first,) = plan.expected.firsts
    assert (first.sql, first.epsilon) == ("SELECT AVG(v) FROM people", 10)
    assert (plan.epsilon, plan.price.epsilon) == (20, 20)
    assert ("first", first.sql) in plan.facts()
    assert plan.to_dict()["first"][0]["epsilon"] == 10
    answer = gate.sql(ABOVE, epsilon=20)
    (words,) = (words for words in answer.caveats if "measured first" in words)
    value = gate.sql(first.sql, epsilon=10)
    assert value.free
    ((width,),) = value.margins().values()
    assert f"for ε = 10, and {value.rows[0][0]} (± {width:.6g}) is used" in words
    assert words.endswith("and does not include the number's own error.")
    assert words in str(answer)
    assert words in answer.to_dict()["caveats"]
    assert "does not include the number" in answer._repr_html_()
    explained = gate_of().sql("EXPLAIN " + ABOVE, epsilon=20).to_pandas()
    assert "first" in set(explained["about"])


def test_a_question_that_was_paid_for_is_free_without_any_budget_left():
    gate = gate_of(budget=20)
    first = gate.sql(ABOVE, epsilon=20)
    assert gate.remaining.epsilon == 0
    again = gate.sql(ABOVE, epsilon=20)
    assert again.free
    assert again.to_pandas().equals(first.to_pandas())


@pytest.mark.parametrize(
    ("sql", "terms", "why"),
    [
        (ABOVE, {"epsilon": 21}, OverBudget),  # a half of it would fit
        (ABOVE, {"within": 5}, SpecError),
        ("SELECT SQRT(v) AS h, COUNT(*) AS n FROM people WHERE v > (SELECT AVG(v) FROM people) GROUP BY h", {"epsilon": 2}, Unsupported),
        ("SELECT COUNT(*) AS n FROM people WHERE ward > (SELECT AVG(v) FROM people)", {"epsilon": 2}, Unsupported),
        ("SELECT COUNT(*) AS n FROM people WHERE v > (SELECT QUANTILE_CONT(v, [0.1, 0.5]) FROM people)", {"epsilon": 2}, Unsupported),
        ("SELECT COUNT(*) AS n FROM people WHERE v > (SELECT COUNT(*) > 3 FROM people)", {"epsilon": 2}, Unsupported),
        ("SELECT COUNT(*) AS n FROM people WHERE v > (SELECT SUM(pid) FROM people)", {"epsilon": 2}, NoisegateError),
        ("SELECT COUNT(*) AS n FROM people WHERE v > (SELECT v FROM people)", {"epsilon": 2}, Unsupported),
        ("SELECT SQRT(COUNT(*), 2) AS n FROM people WHERE v > (SELECT AVG(v) FROM people)", {"epsilon": 2}, NoisegateError),
    ],
)  # fmt: skip
def test_what_can_be_refused_is_refused_before_the_first_charge(sql, terms, why):
    gate = gate_of(budget=20)
    with pytest.raises(why):
        gate.sql(sql, **terms)
    assert gate.spent.epsilon == 0


def test_the_price_of_all_parts_together_is_what_a_policy_limits():
    gate = gate_of(epsilon_max=Fraction(3, 2))
    with pytest.raises(SpecError, check=about("max-price")):
        gate.sql(ABOVE, epsilon=2)
    assert gate.spent.epsilon == 0


def test_with_units_and_groups_to_find_delta_is_shared_too():
    gate = gate_of(
        people(unit="pid", rows_per_unit_max=3, groups_per_unit_max=2),
        delta=Fraction(1, 100),
        keys_delta=Fraction(1, 1000),
    )
    sql = "SELECT pid % 2 AS p, COUNT(*) AS n FROM people WHERE v >= (SELECT AVG(v) FROM people) GROUP BY p"
    plan = gate.plan(sql, epsilon=40)
    answer = gate.sql(sql, epsilon=40)
    assert answer.cost == plan.price
    assert answer.cost.delta <= Fraction(1, 2000)


@pytest.mark.parametrize(
    ("values", "kind", "expression"),
    [
        ([2], pa.int64(), Literal(2)),
        ([None], pa.int64(), Literal(None, Kind.INTEGER)),
        ([1 << 63], pa.uint64(), Literal(None, Kind.INTEGER)),
        ([0.5], pa.float64(), Call("to_number", (Literal(Fraction(1, 2)),))),
        ([float("nan")], pa.float64(), Literal(None, Kind.NUMBER)),
        ([float("inf")], pa.float64(), Literal(None, Kind.NUMBER)),
        ([], pa.float64(), Literal(None, Kind.NUMBER)),
        ([], pa.date32(), Literal(None, Kind.DATE)),
    ],
)
def test_a_number_is_written_as_it_is_or_missing(values, kind, expression):
    assert number_of(pa.table({"x": pa.array(values, kind)}))[0] == expression


@pytest.mark.parametrize(
    "table", [pa.table({"x": [1, 2]}), pa.table({"x": [1], "y": [1]}), pa.table({"x": ["a"]}), pa.table({"x": [[1]]})]
)  # fmt: skip
def test_what_is_no_number_is_refused(table):
    with pytest.raises(Unsupported):
        number_of(table)
