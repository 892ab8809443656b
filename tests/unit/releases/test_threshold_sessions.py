"""Threshold questions one after the other: paid by the yeses, with gaps that cost nothing more."""

import json
import math
from fractions import Fraction

import pyarrow as pa
import pytest
from pyarrow import csv
from typer.testing import CliRunner

import noisegate as ng
from noisegate import orders
from noisegate.accounting.pure import pure_loss
from noisegate.accounting.zcdp import zcdp_loss
from noisegate.cli import app
from noisegate.errors import OverBudget, RequestConflict, SpecError, Unsupported
from noisegate.ledger.open import open_ledger
from noisegate.mechanisms.additive.gaussian import DiscreteGaussian
from noisegate.mechanisms.selection.above_threshold import AboveThreshold
from noisegate.privacy.distance import L2
from noisegate.privacy.loss import ApproxDP
from refusals import about

COLUMNS = {"ward": {"in": ["north", "south", "west"]}, "age": {"between": [0, 100]}}
ROWS = pa.table({
    "ward": ["north"] * 300 + ["south"] * 30 + ["west"] * 400, "age": [*range(73)] * 10,
    "id": [number // 2 for number in range(730)],
})  # fmt: skip


def people(**terms):
    return ng.open(ROWS, columns=COLUMNS, table="people", **{"epsilon": 100, **terms})


def count(ward):
    return f"SELECT COUNT(*) FROM people WHERE ward = '{ward}'"


@pytest.mark.parametrize("unit", [None, "id"])
@pytest.mark.parametrize("accountant", ["pure", "zcdp"])
def test_a_session_answers_in_turn_and_gives_values_and_gaps(unit, accountant):
    terms = {"unit": unit, "rows_per_unit": 2} if unit else {}
    delta = {"delta": 1e-6} if accountant == "zcdp" else {}
    gate = people(accountant=accountant, **delta, **terms)
    asked = {"count": 2, "epsilon": 40, "values": True, "bound": 2 if unit else 1}
    plan = gate.thresholds_plan(150, **asked)
    with gate.thresholds(150, **asked) as session:
        heard = {ward: session.ask(count(ward)) for ward in ("south", "north", "south ", "west")}
        with pytest.raises(RequestConflict, check=about("over")):
            session.ask(count("north"))
        answer = session.answer()
    assert [each.reaches for each in heard.values()] == [False, True, False, True]  # e^-30
    assert abs(heard["north"].value - 300) <= 20
    assert abs(heard["west"].gap + 150 - 400) <= heard["west"].gap_margin + 20
    assert answer.to_arrow()["reaches"].to_pylist() == [False, True, False, True]
    assert answer.cost.epsilon <= plan.price.epsilon
    assert answer.card().record["price"]
    assert gate.ledger.verify().ok


def test_what_was_not_drawn_is_given_back():
    gate = people()
    with gate.thresholds(10_000, count=3, epsilon=2, values=True):
        pass
    assert gate.spent == ApproxDP(0)
    with gate.thresholds(10_000, count=3, epsilon=2, values=True) as session:
        assert not session.ask(count("west")).reaches  # e^-400
    assert gate.spent == ApproxDP(1)
    assert gate.ledger.verify().ok


@pytest.mark.parametrize(
    ("sql", "subject"),
    [
        ("SELECT SUM(age) FROM people", "bound"),
        ("SELECT SUM(age - 50) FROM people", "monotone"),
        ("SELECT ward, COUNT(*) FROM people GROUP BY ward", "threshold"),
        ("SELECT AVG(age) FROM people", "threshold"),
        ("SELECT COUNT(*), COUNT(*) FILTER (WHERE age < 3) FROM people", "threshold"),
    ],
)
def test_other_questions_are_refused_and_the_session_goes_on(sql, subject):
    gate = people()
    with gate.thresholds(100, count=1, epsilon=2) as session:
        with pytest.raises(Unsupported, check=about(subject)):
            session.ask(sql)
        assert not session.answers
    assert gate.spent == ApproxDP(0)


def test_a_wrong_session_is_refused_before_the_charge():
    gate = people(epsilon=1)
    for terms, refusal in (
        ({"count": 0, "epsilon": 1}, SpecError),
        ({"count": 1, "epsilon": 1, "bound": 0}, SpecError),
        ({"count": 1, "epsilon": 2}, OverBudget),
    ):
        with pytest.raises(refusal), gate.thresholds(5, **terms):
            pass
    assert gate.spent == ApproxDP(0)
    with gate.thresholds(5, count=1, epsilon=1) as session:
        pass
    with pytest.raises(RequestConflict):
        session.ask(count("north"))


def test_a_session_about_a_part_shares_its_price():
    gate = people()
    parts = gate.partition("ward")
    for ward in ("north", "south"):
        with parts[ward].thresholds(100, count=1, epsilon=2) as session:
            assert session.ask("SELECT COUNT(*) FROM people").reaches is (ward == "north")  # e^-60
    assert gate.spent == ApproxDP(2)


def test_plans_compare_with_plain_questions():
    gate = people()
    few, many = (gate.thresholds_plan(9, count=2, epsilon=1, questions=n) for n in (2, 500))
    assert "plain questions would err less" in str(few)
    assert "comparing errs less" in str(many)
    above = {"questions": "cells", "threshold": 50, "epsilon": 1}
    assert "plain cells" in str(gate.release_plan("above", columns={"age": 10}, **above))


@pytest.mark.parametrize("accountant", ["zcdp", "renyi-8"])
@pytest.mark.parametrize("count", [1, 5, 40])
def test_where_rho_adds_up_a_session_with_values_spends_its_price_and_no_more(accountant, count):
    gate = people(accountant=accountant, delta=1e-6)
    asked = {"count": count, "epsilon": 1, "values": True}
    plan, alone = (
        gate.thresholds_plan(150, **asked),
        gate.thresholds_plan(150, count=count, epsilon=1),
    )
    spec = plan.expected.spec
    assert 1 - 1e-6 < plan.price.epsilon <= 1
    # The event itself: a pure step of ε costs ε²/2 at most, the run and each value by itself.
    run, each = pure_loss(spec.noise.event(Fraction(1))).epsilon, 1 / spec.number.scale
    whole = pure_loss(alone.expected.spec.noise.event(Fraction(1))).epsilon
    assert run**2 + count * each**2 <= whole**2
    assert zcdp_loss(spec.event()).rho <= whole**2 / 2
    # Half of ρ each: √2 of the noise of a session without values, where half of ε had 2.
    assert float(whole / run) == pytest.approx(math.sqrt(2), rel=1e-9)
    assert float(whole / each) == pytest.approx(math.sqrt(2 * count), rel=1e-9)
    with gate.thresholds(150, **asked) as session:
        assert session.ask("SELECT COUNT(*) FROM people WHERE age < 0").reaches in (False, True)
        assert session.answer().cost.epsilon <= 1


def test_plain_questions_that_a_plan_compares_with_share_rho():
    """A hundred such questions would be ± 3,549 if they shared ε; in fact they are ± 163."""
    terms = {"count": 5, "epsilon": 1, "questions": 100}
    asked = people(accountant="zcdp", delta=1e-6, epsilon=3).thresholds_plan(150, **terms)
    share = Fraction(asked.expected.epsilon) ** 2 / 2 / 100
    noise = DiscreteGaussian.for_rho(share, sensitivity=L2(squared=1))
    assert asked.expected.plain() == float(noise.interval(1 - Fraction(1, 2000)))
    assert "plain questions would err less" in str(asked)
    above = {"questions": "cells", "threshold": 50, "epsilon": 1, "columns": {"age": 10}}
    cells = people(accountant="zcdp", delta=1e-6).release_plan("above", **above).expected.cells
    assert type(cells) is DiscreteGaussian or cells.scale <= 1 / asked.expected.epsilon


def test_a_list_with_values_that_was_paid_for_with_half_of_its_epsilon_is_found(monkeypatch):
    gate = people(accountant="zcdp", delta=1e-6)
    order = orders.ThresholdsOrder(
        threshold=150, questions=[count("north"), count("south")], values=True, epsilon=2
    )
    former = gate._desk.run(order.job(gate._desk, rho=False))
    spent = gate.spent
    monkeypatch.setattr("noisegate.releases.thresholds.listed._SINCE", "9999-12-31")
    again = gate.run(order)
    assert again.rows == former.rows
    assert again.margins() == former.margins()
    assert again.free
    assert gate.spent == spent
    assert gate.run(order, fresh=True).margins()["value"][0] < former.margins()["value"][0]
    monkeypatch.setattr("noisegate.releases.thresholds.listed._SINCE", "2000-01-01")
    assert gate.plan(order).price.epsilon == 0  # the new one, by now


def test_the_command_line_asks_a_file_of_questions(tmp_path):
    csv.write_csv(ROWS, tmp_path / "people.csv")
    (tmp_path / "asked.sql").write_text("\n".join(count(ward) for ward in ("south", "west")))
    done = CliRunner().invoke(app, [
        "thresholds", str(tmp_path / "people.csv"), "--threshold", "150", "--count", "1",
        "--questions", str(tmp_path / "asked.sql"), "--epsilon", "20", "--budget", "20",
        "--keys", "ward=north,south,west", "--json",
    ])  # fmt: skip
    assert done.exit_code == 0, done.output
    assert [row[1] for row in json.loads(done.stdout)["rows"]] == [False, True]


def test_a_wrong_line_of_a_file_costs_nothing(tmp_path):
    csv.write_csv(ROWS, tmp_path / "people.csv")
    (tmp_path / "asked.sql").write_text(f"{count('south')}\nSELECT MAX(age) FROM people")
    said = ["--budget", "20", "--keys", "ward=north,south,west", "--ledger", str(tmp_path / "l")]
    done = CliRunner().invoke(app, [
        "thresholds", str(tmp_path / "people.csv"), "--threshold", "150", "--count", "1",
        "--questions", str(tmp_path / "asked.sql"), "--epsilon", "20", *said,
    ])  # fmt: skip
    assert done.exit_code != 0
    ledger = open_ledger(str(tmp_path / "l"))
    assert [ledger.balance(each).spent for each in ledger.accounts()] == [ApproxDP(0)]


def test_what_a_contribution_bound_leaves_out_is_said():
    gate = people(unit="id", rows_per_unit=1)
    with gate.thresholds(5, count=1, epsilon=90, values=True) as session:
        heard = session.ask("SELECT COUNT(*) FROM people")
        answer = session.answer()
    assert abs(heard.value - 365) < 30  # of 730 rows; noise beyond has e^-100
    assert heard.notes[0].startswith("Capped: 1 row")
    assert set(heard.notes) <= set(answer.caveats)
    usual, surer = (answer.margins(each) for each in (0.95, 0.999))
    assert (usual["gap"], usual["value"]) == ((heard.gap_margin,), (heard.margin,))
    assert all(surer[name][0] > usual[name][0] for name in ("gap", "value"))


def test_a_bound_that_nobody_declared_can_be_given_to_a_session():
    gate = people(unit="id", rows_per_unit=None)
    with pytest.raises(Unsupported), gate.thresholds(5, count=1, epsilon=1) as session:
        session.ask("SELECT COUNT(*) FROM people")
    with gate.thresholds(5, count=1, epsilon=20, rows_per_unit=1) as session:
        session.require("SELECT COUNT(*) FROM people")
        assert session.ask("SELECT COUNT(*) FROM people").notes[0].startswith("Capped: 1 row")


def outcomes(noise, answers):
    """Exact chances (up to tails) of all (place of the first yes, its gap) of a run with one yes."""
    top, found = 400, {}
    first, second = (math.exp(-1 / float(s)) for s in (noise.threshold_scale, noise.query_scale))

    def mass(alpha, z):
        return (1 - alpha) / (1 + alpha) * alpha ** abs(z)

    for rho in range(-60, 61):
        bar, left = noise.threshold + rho, mass(first, rho)
        for place, answer in enumerate(answers):
            below = sum(mass(second, z) for z in range(-top, bar - answer))
            for gap in range(12):
                chance = mass(second, bar + gap - answer)
                found[place, gap] = found.get((place, gap), 0) + left * chance
            left *= below
        found["none"] = found.get("none", 0) + left
    return found


def worst(noise, one, other):
    found = outcomes(noise, one), outcomes(noise, other)
    return max(abs(math.log(found[0][key] / found[1][key])) for key in found[0])


@pytest.mark.parametrize(
    ("one", "other", "monotone"),
    [((4, 5, 6), (5, 5, 7), True), ((4, 5, 6), (5, 4, 7), False), ((5, 6, 7), (4, 5, 6), True)],
)
def test_gaps_cost_nothing_more(one, other, monotone):
    terms = {"threshold": 7, "sensitivity": 1, "cutoff": 1, "monotone": monotone}
    noise = AboveThreshold.for_epsilon(1, **terms)
    assert worst(noise, one, other) <= 1 + 1e-6
    assert worst(noise, other, one) <= 1 + 1e-6


def test_a_run_with_half_the_noise_is_caught():
    terms = {"threshold": 7, "sensitivity": 1, "cutoff": 1, "monotone": True}
    broken = AboveThreshold.for_epsilon(Fraction(5, 2), **terms)
    assert worst(broken, (4, 5, 6), (5, 6, 7)) > 1
