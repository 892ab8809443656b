"""Releases through the door: paid once, the same for ever, and what interrupts them."""

import subprocess
import sys
from fractions import Fraction
from functools import cache

import numpy as np
import pyarrow as pa
import pytest
from scipy.stats import binom

import noisegate
from noisegate.curator.allowance import Allowance
from noisegate.desk.card import verify
from noisegate.errors import NoisegateError, OverBudget, RequestConflict, SpecError
from noisegate.releases.cells.estimate import Predicted, tail_factor
from noisegate.releases.cells.workload import all_ranges
from noisegate.releases.forms import table_job
from noisegate.releases.recipes import FROM_ZERO
from noisegate.releases.recipes.cells import Cells
from refusals import about, listed

FACTS = {"age": {"between": [0, 99], "nullable": False}, "ward": {"in": ["north", "south"]}}
SQL = "SELECT COUNT(*) AS n FROM people GROUP BY BIN(age, 10), ward"
AGES = np.arange(600) * 7 % 100
EXACT = np.stack([np.bincount(AGES[side::2] // 10, minlength=10) for side in (0, 1)], axis=1)


def people():
    return pa.table({"age": AGES, "ward": ["north", "south"] * 300})


def gate_of(ledger=":memory:", epsilon=5, **more):
    return noisegate.open(
        people(), epsilon=epsilon, columns=FACTS, table="people", ledger=ledger, **more
    )


unspent = cache(gate_of)  # for all orders that are refused


def test_a_release_is_paid_once_and_is_the_same_ever_after():
    gate = gate_of()
    first = gate.release("histogram", SQL, epsilon=0.5, method="cells")
    again = gate.release("histogram", SQL, epsilon=0.5, method="cells")
    other = gate.release("table", columns={"age": 10, "ward": None}, epsilon="0.5", method="cells")
    assert (first.free, again.free, other.free) == (False, True, True)
    assert first.values.tolist() == again.values.tolist() == other.values.tolist()
    assert gate.spent.epsilon == Fraction(1, 2)
    assert gate.ledger.verify().ok
    assert again.query(age=(20, 39)) == first.query(age=(20, 39))


@pytest.mark.long
@pytest.mark.parametrize("method", ["adaptive", "planned", "dawa", "ahp"])
def test_methods_that_look_first_have_margins_which_stay(method, tmp_path):
    gate = gate_of()
    made = gate.release("histogram", columns={"age": 5}, where="age < 90", method=method, epsilon=1)
    assert made.margins().shape == made.shape
    assert "± ?" not in str(made)
    assert "No ± is known" not in made.footer()
    again = gate.release(
        "histogram", columns={"age": 5}, where="age < 90", method=method, epsilon=1
    )
    made.save(tmp_path / "made.parquet")
    read = noisegate.TableRelease.load(tmp_path / "made.parquet")
    for other in (again, read):
        assert other.margins(0.9).tolist() == made.margins(0.9).tolist()
        assert other.query(age=(20, 59)) == made.query(age=(20, 59))


def test_it_is_the_same_in_another_process_and_for_another_analyst(tmp_path):
    rows, book = tmp_path / "people.csv", tmp_path / "book"
    rows.write_text("age\n" + "".join(f"{age}\n" for age in AGES))
    terms = {"epsilon": 5, "ledger": str(book), "columns": {"age": {"between": [0, 99]}}}
    made = noisegate.open(rows, analyst="ann", **terms).release(
        "cells", columns={"age": 10}, epsilon=0.5
    )
    code = f"""
import noisegate
gate = noisegate.open({str(rows)!r}, analyst="bob", **{terms!r})
made = gate.release("cells", columns={{"age": 10}}, epsilon=0.5)
print(made.free, made.values.tolist(), made.margins().tolist(), gate.ledger.balance("people").spent)
"""
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    expected = f"True {made.values.tolist()} {made.margins().tolist()} ε = 0.5"
    assert said.stdout.strip() == expected


def test_other_terms_are_another_release():
    gate = gate_of()
    terms = [
        {"epsilon": 0.5},
        {"epsilon": 0.25},
        {"epsilon": 0.5, "workload": "ranges"},
        {"epsilon": 0.5, "workload": [{"age": (0, 19)}]},
        {"epsilon": 0.5, "workload": [{"age": (0, 29)}]},
    ]
    made = [gate.release("cells", SQL, **each) for each in terms]
    assert not any(each.free for each in made)
    assert all(gate.release("cells", SQL, **each).free for each in terms)
    assert gate.release("cells", SQL, epsilon=0.5, fresh=True).free is False
    assert gate.spent.epsilon == Fraction(11, 4)


def test_a_plan_is_free_and_says_what_a_release_then_costs_and_errs():
    gate = gate_of()
    plan = gate.release_plan("cells", SQL, epsilon=0.5)
    assert (plan.price.epsilon, plan.fits, plan.expected.method, plan.expected.shape) == (
        0.5,
        True,
        "cells",
        (10, 2),
    )
    ratio = -np.expm1(-0.5)
    assert plan.expected.rms == pytest.approx(np.sqrt(2 * (1 - ratio)) / ratio)
    assert plan.expected.margin(0.95) == pytest.approx(
        plan.expected.rms * tail_factor(0.05, gaussian=False)
    )
    assert len(gate.history()) == 1  # the account alone
    assert "about ± 6.05 at 95% confidence" in str(plan)
    assert plan.to_dict()["questions"] == 20
    assert "<table>" in plan._repr_html_()
    gate.release("cells", SQL, epsilon=0.5)
    again = gate.release_plan("cells", SQL, epsilon=0.5)
    assert (again.price.epsilon, again.fits) == (0, True)
    assert not gate.release_plan("cells", SQL, epsilon=6).fits


def test_the_mean_error_of_cells_is_as_predicted():
    """1000 draws at ε = 0.1; the spread of their mean square is √(5 / 1000) of it: Laplace noise
    has kurtosis 6. Six spreads away is a false alarm below 1e-6, and below a factor of two.
    """
    sql = "SELECT COUNT(*) FROM people GROUP BY age, ward"
    gate = gate_of(epsilon=1000)
    plan = gate.release_plan("cells", sql, epsilon="0.1")
    exact = np.stack([np.bincount(AGES[side::2], minlength=100) for side in (0, 1)], axis=1)
    made = [gate.release("cells", sql, epsilon="0.1", fresh=True) for _ in range(5)]
    raw = [each.making.estimate(each.shape).cells - exact for each in made]
    assert np.mean(np.square(raw)) / plan.expected.rms**2 == pytest.approx(1, abs=0.43)
    after = np.mean(np.square([each.values - exact for each in made]))
    assert after < plan.expected.rms**2 / 2  # what cannot be is mended


def test_margins_cover_the_exact_numbers():
    """Misses of independent noise; a false alarm has probability 1e-6 for each kind of sum."""
    gate = gate_of(epsilon=1000)
    missed = {"cells": 0, "range": 0, "parts": 0, "total": 0}
    for _ in range(60):
        made = gate.release("cells", SQL, epsilon=0.5, fresh=True)
        missed["cells"] += int(np.sum(np.abs(made.values - EXACT) > made.margins(0.9)))
        sums = {
            "range": (made.query(0.9, age=(20, 59), ward="south"), EXACT[2:6, 1].sum()),
            "parts": (made.query(0.9, age=[0, 30, 90]), EXACT[[0, 3, 9]].sum()),
            "total": (made.query(0.9), EXACT.sum()),
        }
        for name, (found, exact) in sums.items():
            missed[name] += abs(found.value - exact) > found.margin
    assert missed["cells"] <= binom.isf(1e-6, 60 * 20, 0.1)
    assert all(missed[name] <= binom.isf(1e-6, 60, 0.1) for name in ("range", "parts", "total"))


def test_in_an_account_of_zcdp_the_price_is_the_rho_that_implies_it():
    gate = gate_of(delta="1e-6", accountant="zcdp", epsilon=10)
    made = gate.release("cells", SQL, epsilon=1)
    assert made.making.price.gaussian
    assert made.making.price.amount == gate._desk.bought(Fraction(1)) ** 2 / 2
    assert gate.release("cells", SQL, epsilon=1).values.tolist() == made.values.tolist()
    asked = gate_of(delta="1e-6", accountant="zcdp", epsilon=10)
    asked.sql(SQL, epsilon=1)
    assert gate.spent == asked.spent


def test_the_policys_price_and_limit_hold():
    gate = gate_of()
    with pytest.raises(SpecError, check=about("price")):
        gate.release("cells", SQL)
    rules = noisegate.gate.Rules(epsilon=Fraction(1, 4), epsilon_max=Fraction(1, 2))
    gate = noisegate.Gate(gate.door, rules)
    assert gate.release_plan("cells", SQL).price.epsilon == Fraction(1, 4)
    hinted = SQL.replace("SELECT", "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 0.125)")
    assert gate.release_plan("histogram", hinted).price.epsilon == Fraction(1, 8)
    with pytest.raises(SpecError, check=about("max-price")):
        gate.release("cells", SQL, epsilon=1)


def test_over_budget_is_refused_before_anything_is_drawn():
    gate = gate_of(epsilon=1)
    with pytest.raises(OverBudget):
        gate.release("cells", SQL, epsilon=2)
    assert gate.spent.epsilon == 0


@pytest.mark.parametrize(
    ("terms", "words"),
    [
        ({"name": "histogramm"}, "name 'histogramm'"),
        *(({"name": name}, "name") for name in (None, 5, [], ["histogram"], "", b"cells")),
        ({"table": ["people"]}, "table"),
        ({"where": 5}, "where"),
        ({"columns": 5}, "columns"),
        ({"name": "cube", "columns": {"age": 5}, "sql": None, "rows_per_unit": "many"}, "rows_per_unit"),
        ({"method": "magic"}, "method 'magic'"),
        ({"name": "cells", "method": "other"}, "method"),
        ({"workload": "all"}, "workload 'all'"),
        ({"workload": "prefixes"}, "axes"),
        ({"workload": []}, "workload"),
        ({"workload": ["age"]}, "range"),
        ({"workload": [{"sex": 1}]}, "axis 'sex'"),
        ({"workload": [{"age": [0, 50]}]}, "gaps"),
        ({"workload": all_ranges((3,))}, "shape"),
        ({"epsilon": 0}, "number|positive epsilon"),
        ({"epsilon": -1}, "number|positive epsilon"),
        ({"epsilon": "much"}, "number|positive epsilon"),
        ({"rows_per_unit": 0}, "cap"),
        ({"method": "cells", "depth": 3}, "option"),
        ({"method": "cells", "depth": object()}, "option"),
        ({"table": "people"}, "where"),
        ({"columns": {"age": 5}}, "columns"),
        ({"sql": None}, "columns"),
        ({"sql": None, "columns": {"age": 5}, "table": "x"}, "table 'x'"),
        ({"name": "map"}, "axes"),
        ({"name": "series"}, "axes"),
        ({"sql": SQL.replace("SELECT", "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (within = 3)"),
          "epsilon": None}, "price"),
    ],
)  # fmt: skip
def test_bad_terms_are_refused_before_any_charge(terms, words):
    gate = unspent()
    asked = {"name": "histogram", "sql": SQL, "epsilon": 0.5} | terms
    for ask in (gate.release, gate.release_plan):
        with pytest.raises(NoisegateError, check=listed(words)) as refused:
            ask(**asked)
        assert refused.value.fix
    assert len(gate.history()) == 1


def test_an_interrupt_charges_what_was_drawn_and_leaves_a_clean_ledger(monkeypatch):
    gate = gate_of()

    def interrupt(part, words):
        if part == at:
            raise KeyboardInterrupt

    at = 0.0
    with pytest.raises(KeyboardInterrupt):
        gate.release("cells", SQL, epsilon=0.5, progress=interrupt)
    assert gate.spent.epsilon == 0  # nothing was drawn yet
    at = 0.99
    with pytest.raises(KeyboardInterrupt):
        gate.release("cells", SQL, epsilon=0.5, progress=interrupt)
    assert gate.spent.epsilon == Fraction(1, 2)
    assert gate.ledger.verify().ok
    made = gate.release("cells", SQL, epsilon=0.5)
    assert gate.spent.epsilon == 1
    assert gate.release("cells", SQL, epsilon=0.5).values.tolist() == made.values.tolist()
    assert gate.spent.epsilon == 1


def test_a_release_that_was_killed_stays_spent_and_can_be_made_anew(monkeypatch):
    gate = gate_of()
    with monkeypatch.context() as patch:
        patch.setattr(Allowance, "close", lambda self: None)  # as if the process had died
        gate.release("cells", SQL, epsilon=0.5)
    with pytest.raises(RequestConflict, match="fresh=True"):
        gate.release("cells", SQL, epsilon=0.5)
    assert gate.spent.epsilon == Fraction(1, 2)
    made = gate.release("cells", SQL, epsilon=0.5, fresh=True)
    assert gate.release("cells", SQL, epsilon=0.5).values.tolist() == made.values.tolist()
    assert gate.spent.epsilon == 1


def test_sums_that_may_be_negative_go_to_the_tree():
    """The rule of auto is for numbers from 0 on: it would clip at 0."""
    gate = gate_of()
    sql = "SELECT SUM(age - 50) FROM people GROUP BY BIN(age, 1)"
    plan = gate.release_plan("histogram", sql, epsilon=1)
    assert (plan.expected.method, gate.release_plan("cells", sql, epsilon=1).expected.method) == (
        "tree",
        "cells",
    )
    made = gate.release("histogram", sql, epsilon=4)
    assert made.method == "tree"
    assert made.values[:10].sum() < 0 < made.values[-10:].sum()  # ± 60 × 45, noise of 25 × √10


@pytest.mark.parametrize("method", ["cells", "tree", "haar", "quadtree", "fourier", "marginals"])
def test_only_plans_of_sums_from_0_on_speak_of_clipping(method):
    gate, terms = gate_of(), {"frequencies": 6} if method == "fourier" else {}
    for term, clipped in (("age", True), ("age - 50", False)):
        sql = f"SELECT SUM({term}) FROM people GROUP BY BIN(age, 10)"
        plan = gate.release_plan("histogram", sql, epsilon=1, method=method, **terms)
        assert plan.expected.rms is not None
        assert ("clipping" in str(plan)) == clipped


def test_the_plan_of_a_hierarchy_states_every_level_in_the_units_of_the_sum():
    gate, terms = gate_of(epsilon=50), {"epsilon": 1, "parents": [[0] * 5 + [1] * 5]}
    counts, sums = (
        gate.release_plan("totals", f"SELECT {term} FROM people GROUP BY BIN(age, 10)", **terms)
        for term in ("COUNT(*)", "SUM(age / 8)")
    )
    for plan in (counts, sums):
        single, parent, whole = plan.expected.level_margins(0.9)
        assert single == pytest.approx(plan.expected.margin(0.9))
        assert single < parent < whole
        assert f"± {plan.expected.level_margins()[2]:.3g}, from single keys to all" in str(plan)
        assert plan.to_dict(0.9)["level_margins"] == [single, parent, whole]
    reach = 99 / 8  # of a row in a sum
    assert sums.expected.level_margins() == pytest.approx(
        [reach * e for e in counts.expected.level_margins()], 0.05
    )


def test_bins_without_bounds_say_which_bounds_are_missing():
    gate = noisegate.open(people(), epsilon=1, table="people", ledger=":memory:")
    for asked in ({"sql": "SELECT COUNT(*) FROM people GROUP BY BIN(age, 5)"},
                  {"columns": {"age": 5}}):  # fmt: skip
        with pytest.raises(NoisegateError, check=about("bounds"), match="'age'") as refused:
            gate.release("histogram", epsilon=1, **asked)
        assert "between = [low, high] for 'age'" in refused.value.fix
    own = "SELECT COUNT(*) FROM people GROUP BY BIN(LEAST(GREATEST(age, 0), 99), 10)"
    assert gate.release_plan("histogram", own, epsilon=1).expected.shape == (10,)


def test_progress_is_told_from_0_to_1():
    told = []
    gate_of().release("cells", SQL, epsilon=1, progress=lambda part, words: told.append(part))
    assert told == sorted(told)
    assert (told[0], told[-1]) == (0.0, 1.0)


def test_auto_takes_the_method_that_predicts_the_least_error(monkeypatch):
    class Fake(Cells):
        def __init__(self, rms):
            object.__setattr__(self, "_rms", rms)

        def predict(self, ask, workload):
            return Predicted(rms=self._rms, words="")

    def fake(name, **options):
        if name == "refuses":
            raise SpecError("Not this.", fix="Another.")
        return type("Kind", (Fake,), {"__slots__": ("_rms",)})({"a": 3.0, "b": 2.0}.get(name))

    monkeypatch.setattr(table_job, "RECIPES", dict.fromkeys(("a", "refuses", "b", "unknown")))
    monkeypatch.setattr(table_job, "recipe", fake)
    gate = gate_of()
    assert gate.release_plan("histogram", SQL, epsilon=1).expected.method == "b"
    assert gate.release_plan("histogram", SQL, epsilon=1, method="unknown").expected.rms is None


@pytest.mark.parametrize("method", sorted(FROM_ZERO))
def test_sums_that_may_be_negative_are_refused_by_methods_for_numbers_from_0_on(method):
    gate = gate_of()
    sql = "SELECT SUM(age - 50) FROM people GROUP BY BIN(age, 1)"
    with pytest.raises(SpecError, check=about("sign"), match=f"'{method}'"):
        gate.release("histogram", sql, epsilon=1, method=method)
    assert gate.spent.epsilon == 0


@pytest.mark.parametrize(
    ("method", "words"),
    [
        ("cells", "about ±"),
        ("planned", "at most about ±"),
        ("adaptive", "± 3.28 by noise alone at"),
        ("fourier", "by noise alone to about ±"),
    ],
)
def test_every_plan_says_how_far_it_may_be_off(method, words):
    plan = gate_of().release_plan("series", columns={"age": 1}, epsilon=1, method=method)
    assert words in str(plan)
    told = plan.to_dict()
    known = [told[name] for name in ("margin", "most_margin", "noise_margin")]
    assert sum(each is not None for each in known) == 1 + (method == "fourier")


def test_tables_too_large_to_list_are_asked_for_by_the_same_word():
    gate = gate_of()
    sql = "SELECT COUNT(*) FROM people GROUP BY age, ward"
    assert gate.release_plan("sparse", sql, epsilon=1, threshold=5).fits
    made = gate.release("sparse", sql, epsilon=1, threshold=5)
    again = gate.release("sparse", sql, epsilon=1, threshold=5)
    assert (made.cost.epsilon, again.cost.epsilon, gate.spent.epsilon) == (1, 0, 1)
    for terms in ({"method": "tree"}, {"workload": "cells"}, {"treshold": 5}):
        with pytest.raises(SpecError, check=about("method", "option"), match="sparse"):
            gate.release("sparse", sql, epsilon=1, **terms)


def test_which_of_many_sums_are_large_is_asked_for_by_the_same_word():
    gate = gate_of()
    sql, asked = "SELECT COUNT(*) FROM people GROUP BY ward", [{"ward": "north"}, {"ward": "south"}]
    terms = {"epsilon": 2, "questions": asked, "threshold": 100}
    assert gate.release_plan("above", sql, **terms).fits
    assert gate.release("above", sql, **terms).answers.tolist() == [True, True]
    with pytest.raises(SpecError, match="'threshold'"):
        gate.release("above", sql, epsilon=1, questions=asked)


def test_the_card_is_confirmed_by_the_ledger():
    gate = gate_of()
    made = gate.release("cells", SQL, epsilon=0.5)
    assert verify(made.card(), gate.ledger) == []
    assert [line["kind"] for line in made.card().record["ledger"]] == ["reserve", "close"]
    assert "ε = 0.5 for adding or removing one row" in made.card().to_markdown()


def test_practice_is_free_and_says_so():
    gate = gate_of(practice=True)
    made = gate.release("cells", SQL, epsilon=0.5)
    assert made.practice
    assert "PRACTICE" in made.footer()
    with pytest.raises(SpecError, check=about("practice")):
        made.card()


def test_several_rows_of_a_person_are_capped_and_numbers_are_whole():
    rows = pa.table({"pid": [i % 50 for i in range(600)], "age": AGES})
    gate = noisegate.open(
        rows, epsilon=1000, unit="pid", rows_per_unit=12, table="people",
        columns={"age": {"between": [0, 99], "nullable": False}},
    )  # fmt: skip
    made = gate.release("cells", columns={"age": 10}, epsilon=500)
    assert made.values.dtype == np.int64
    assert np.abs(made.values - EXACT.sum(axis=1)).max() <= 1
    assert gate.spent.epsilon == 500
    assert any("12 rows per person" in words for words in made.words)


def test_sums_may_be_negative_and_need_not_be_whole():
    gate = gate_of(epsilon=10_000)
    made = gate.release("cells", "SELECT SUM(age - 60) FROM people GROUP BY ward", epsilon=2000)
    exact = [int((AGES[side::2] - 60).sum()) for side in (0, 1)]
    assert made.values.tolist() == pytest.approx(exact, abs=5)
    assert made.values.max() < 0
    half = gate.release("cells", "SELECT SUM(age / 2) FROM people GROUP BY ward", epsilon=2000)
    assert half.values.dtype == np.float64
    assert half.values.tolist() == pytest.approx([AGES[s::2].sum() / 2 for s in (0, 1)], abs=3)
    assert half.query(ward="north").margin < 1
