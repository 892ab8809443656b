"""Synthetic rows through the door: paid once, the same for ever, in the schema of the original."""

import json
import subprocess
import sys
from fractions import Fraction
from functools import partial
from itertools import combinations

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import csv, ipc
from scipy.stats import binom

import noisegate
from noisegate.desk.card import verify
from noisegate.errors import NoisegateError, OverBudget
from noisegate.releases.cells.estimate import tail_factor
from noisegate.synthetic.model.drawing import numbers
from noisegate.synthetic.recipes import SYNTHESIZERS, TablesWorkload
from noisegate.synthetic.recipes.shared import groups_shares
from noisegate.synthetic.release import SyntheticRelease
from refusals import about, listed

COUNT = 1200
AGES = np.arange(COUNT) * 7 % 100
WARDS = np.where(AGES % 10 < 7, "north", "south")
FACTS = {
    "ward": {"in": ["north", "south"]},
    "age": {"between": [0, 99], "nullable": False},
    "married": {"nullable": False},
}
COLUMNS = ["ward", "age", "married"]
TERMS = {"columns": COLUMNS, "epsilon": 2, "method": "chosen"}


def people():
    return pa.table(
        {
            "id": np.arange(COUNT),
            "ward": WARDS,
            "age": AGES,
            "married": AGES >= 30,
            "region": np.where(WARDS == "north", "up", "down"),
        }
    )


def gate_of(ledger=":memory:", epsilon=20, **more):
    return noisegate.open(
        people(), epsilon=epsilon, columns=FACTS, table="people", ledger=ledger, **more
    )


@pytest.fixture(scope="module")
def gate():
    return gate_of()


@pytest.fixture(scope="module")
def made(gate):
    return gate.release("synthetic", rows=1000, **TERMS)


def exact(ages=(0, 99), ward=None, married=None):
    held = (ages[0] <= AGES) & (ages[1] >= AGES)
    held &= True if ward is None else ward == WARDS
    held &= True if married is None else (AGES >= 30) == married
    return int(held.sum())


def test_rows_have_the_columns_and_types_of_the_original(made):
    table = made.to_arrow()
    assert table.schema.names == ["ward", "age", "married"]
    assert table.schema.types == [pa.string(), pa.int64(), pa.bool_()]
    assert (len(made), table.num_rows, made.columns) == (1000, 1000, tuple(table.schema.names))
    frame = made.to_pandas()
    assert set(frame.ward) == {"north", "south"}
    assert frame.age.between(0, 99).all()
    assert made.to_polars().shape == (1000, 3)


def test_tables_of_the_rows_are_near_those_of_the_original(made):
    """Noise of ε = 2 over three tables; a tenth of the rows is far beyond it."""
    frame = made.to_pandas()
    for ages in ((0, 29), (30, 59), (60, 99)):
        for ward in ("north", "south"):
            part = ((frame.age.between(*ages)) & (frame.ward == ward)).mean()
            assert part == pytest.approx(exact(ages, ward) / COUNT, abs=0.1)
    assert (frame.married == (frame.age >= 30)).mean() > 0.85


@pytest.mark.parametrize("method", SYNTHESIZERS)
def test_every_synthesizer_makes_rows_within_its_price(gate, method):
    """The ± holds but for one run in 10^8."""
    spent = gate.spent.epsilon
    made = gate.release("synthetic", columns=COLUMNS, epsilon=1, method=method, rows=100)
    assert 0 < gate.spent.epsilon - spent <= 1
    assert made.to_arrow().schema.names == COLUMNS
    assert made.method == method
    found = made.query("0.99999999", ward="north")
    assert abs(found.value - exact(ward="north")) <= found.margin
    assert gate.release("synthetic", columns=COLUMNS, epsilon=1, method=method, rows=100).free


def test_it_is_paid_once_and_any_number_of_rows_is_free(gate, made):
    spent = gate.spent
    again = gate.release("synthetic", rows=1000, **TERMS)
    more = gate.release("synthetic", rows=5000, **TERMS)
    usual = gate.release("synthetic", **TERMS)
    assert (made.free, again.free, more.free, usual.free) == (False, True, True, True)
    assert 1.999 < made.cost.epsilon <= 2  # what nothing was drawn for is given back
    assert again.cost.epsilon == 0
    assert again.to_arrow().equals(made.to_arrow())
    assert len(more) == 5000
    assert len(usual) == usual.total.value
    assert gate.spent == spent
    assert gate.release_plan("synthetic", **TERMS).price.epsilon == 0
    assert gate.ledger.verify().ok
    assert verify(made.card(), gate.ledger) == []
    assert verify(again.card(), gate.ledger) == []


@pytest.mark.long
def test_it_is_the_same_in_another_process_and_for_another_analyst(tmp_path):
    rows, book = tmp_path / "people.parquet", tmp_path / "book"
    pq.write_table(people(), rows)
    terms = {"epsilon": 5, "ledger": str(book), "columns": FACTS}
    asked = {"columns": ["ward", "age"], "epsilon": 1, "rows": 50}
    made = noisegate.open(rows, analyst="ann", **terms).release("synthetic", **asked)
    code = f"""
import noisegate
gate = noisegate.open({str(rows)!r}, analyst="bob", **{terms!r})
made = gate.release("synthetic", **{asked!r})
print(made.free, made.to_arrow().to_pydict(), gate.ledger.balance("people").spent)
"""
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == f"True {made.to_arrow().to_pydict()} {made.cost}"


def test_a_plan_is_free_and_says_what_would_be_measured(gate):
    plan = gate.release_plan("synthetic", columns=["ward", "age"], epsilon="0.7")
    assert (plan.price.epsilon, plan.fits, plan.expected.tables) == (Fraction(7, 10), True, 1)
    assert dict(plan.expected.columns) == {"ward": 2, "age": 20}
    assert plan.expected.cells == 40
    ratio = -np.expm1(-0.7)
    assert plan.expected.rms == pytest.approx(np.sqrt(2 * (1 - ratio)) / ratio)
    assert "price       ε = 0.7" in str(plan)
    assert "of a cell of a column ± " in str(plan)
    assert "<table>" in plan._repr_html_()
    assert plan.to_dict()["tables"] == 1
    assert not gate.release_plan("synthetic", columns=["ward"], epsilon=100).fits


def test_a_workload_with_weights_is_a_release_of_its_own():
    gate = gate_of()
    terms = {"columns": COLUMNS, "epsilon": 1, "method": "chosen"}
    sets = [("ward", "age"), ("age", "married")]
    plain = gate.release("synthetic", workload=sets, **terms)
    equal = gate.release("synthetic", workload=dict.fromkeys(sets, 3), **terms)
    heavy = gate.release("synthetic", workload=dict(zip(sets, ("0.5", 8), strict=True)), **terms)
    assert (plain.free, equal.free, heavy.free) == (False, True, False)
    margins = {line.names: line.margin for line in heavy.report().lines}
    assert margins["age", "married"] < 0.6 * margins["ward", "age"]  # noise as weights^-1/3
    asked = "SELECT COUNT(*) FROM people WHERE "
    questions = {f"{asked}age < 30": 1, f"{asked}age < 30 AND married": 2, f"{asked}age >= 50": 5}
    plan = gate.release_plan("synthetic", workload=questions, **terms)
    assert (plan.expected.tables, plan.expected.workload) == (2, "given questions, by weights")


def test_a_plan_says_the_noise_of_what_will_be_measured(gate):
    """Geometric noise; a table of columns has a part of three twentieths, or of all."""
    plan = gate.release_plan("synthetic", columns=COLUMNS, epsilon="0.7")
    pairs = tuple(combinations(range(3), 2))
    grouped = partial(groups_shares, (2, 20, 2), TablesWorkload(pairs))
    most = max(grouped(Fraction(1)).values())
    least = min(grouped(Fraction(3, 20)).values())
    table = Fraction(7, 10) / len(pairs)  # without columns and looks

    def rms(share):
        ratio = -np.expm1(-0.7 * float(share))
        return np.sqrt(2 * (1 - ratio)) / ratio

    (column, *ends), (other, *alike) = plan.expected.noise
    together = "a column, or of a few small ones together"
    assert (column, other) == (together, "a table, if all are measured equally")
    assert ends == pytest.approx([rms(most), rms(least)])
    assert alike == pytest.approx([rms(table)] * 2)
    reach = plan.to_dict()["noise"][together][1]
    assert reach == pytest.approx(tail_factor(0.05, gaussian=False) * rms(least))
    two = gate.release_plan("synthetic", columns=COLUMNS[::2], epsilon="0.7").expected.noise
    assert two == ((together, pytest.approx(rms(1)), pytest.approx(rms(Fraction(99, 100)))),)


def test_sampling_keeps_conditions_and_is_free(gate, made):
    spent = gate.spent
    found = made.sample(300, where={"ward": "north", "age": (20, 39)}).to_pandas()
    assert len(found) == 300
    assert set(found.ward) == {"north"}
    assert found.age.between(20, 39).all()
    assert found.married.mean() == pytest.approx(0.5, abs=0.2)
    again, other = made.sample(50), made.sample(50, seed=1)
    assert made.sample(50).equals(again)
    assert not other.equals(again)
    assert gate.spent == spent
    for bad in ({"age": (20, 38)}, {"town": "x"}, {"ward": "west"}):
        with pytest.raises(NoisegateError):
            made.sample(5, where=bad)
    for rows in (0, -1, 1.5, 1 << 40):
        with pytest.raises(NoisegateError, check=about("rows")):
            made.sample(rows)


@pytest.fixture(scope="module")
def untouched():
    return gate_of()


@pytest.fixture(scope="module")
def many():
    gate = gate_of(epsilon=10**4)
    terms = TERMS | {"epsilon": 1, "fresh": True}
    return [gate.release("synthetic", **terms) for _ in range(10)]


def test_the_margins_of_answers_hold_as_often_as_they_say(many):
    """Misses at 90 %; a false alarm has probability 1e-6."""
    asked = [
        {},
        {"ward": "north"},
        {"age": (20, 39), "ward": "north"},
        {"age": (30, 99), "married": True},
        {"ward": "south", "age": (0, 29), "married": False},
    ]
    missed = 0
    for made in many:
        for where in asked:
            found = made.query(0.9, **where)
            sought = exact(where.get("age", (0, 99)), where.get("ward"), where.get("married"))
            missed += abs(found.value - sought) > found.margin
    assert missed <= binom.isf(1e-6, len(many) * len(asked), 0.1)


def test_a_margin_of_columns_that_no_table_holds_is_likely_and_bounds_are_proven():
    gate = gate_of()
    made = gate.release("synthetic", **TERMS)  # all pairs
    pair, triple = {"age": (20, 39), "ward": "north"}, {"married": True}
    assert made.query(**pair) == made.bounds(**pair)
    likely, proven = made.query(**pair, **triple), made.bounds(**pair, **triple)
    assert likely.value == proven.value
    assert likely.margin < 0.95 * proven.margin
    alone = gate.release("synthetic", **TERMS | {"method": "independent"})
    assert alone.query(**pair) == alone.bounds(**pair)  # nothing says how columns are linked


def test_the_distance_to_the_exact_table_is_at_most_what_the_report_says(many):
    """Misses at 95 %; a false alarm has probability 1e-6."""
    original = np.stack([WARDS == "south", AGES // 5, AGES >= 30], axis=1).astype(int)
    missed = count = 0
    for made in many:
        sizes = made.fitted.layout.sizes
        for line in made.report().lines:
            axes = tuple(sorted(made.columns.index(name) for name in line.names))
            cells = int(np.prod([sizes[axis] for axis in axes]))
            parts = [
                np.bincount(numbers(rows.T, axes, sizes), minlength=cells) / len(rows)
                for rows in (original, made.cells)
            ]
            missed += np.abs(parts[0] - parts[1]).sum() / 2 > line.most
            count += 1
    assert missed <= binom.isf(1e-6, count, 0.05)


def test_files_hold_the_rows_and_parquet_all_of_it(made, tmp_path):
    for ending in ("parquet", "csv", "arrow", "duckdb", "json", "md"):
        made.save(tmp_path / f"out.{ending}")
    rows = made.to_arrow()
    again = SyntheticRelease.load(tmp_path / "out.parquet")
    assert again.to_arrow().equals(rows)
    assert again.query(age=(20, 39)) == made.query(age=(20, 39))
    assert again.sample(20).equals(made.sample(20))
    assert str(again.report()) == str(made.report())
    assert again.card().to_dict() == made.card().to_dict()
    assert (again.free, again.remaining) == (True, None)
    assert csv.read_csv(tmp_path / "out.csv").equals(rows)
    with pa.memory_map(str(tmp_path / "out.arrow")) as file:
        assert ipc.open_file(file).read_all().equals(rows)
    with duckdb.connect(str(tmp_path / "out.duckdb")) as connection:
        assert connection.sql("SELECT * FROM people").to_arrow_table().equals(rows)
    said = json.loads((tmp_path / "out.json").read_text())
    assert (len(said["rows"]), said["report"]["confidence"]) == (1000, 0.95)
    assert "in these synthetic rows of 'people'" in (tmp_path / "out.md").read_text()
    with pytest.raises(NoisegateError, check=about("ending")):
        made.save(tmp_path / "out.xlsx")
    with pytest.raises(NoisegateError, check=about("kind")):
        SyntheticRelease.load(tmp_path / "out.csv")


def test_the_report_compares_with_what_was_measured_and_shows_pictures(made, tmp_path):
    report = made.report()
    assert {line.names for line in report.lines} <= {
        ("ward",), ("age",), ("married",), ("ward", "age"), ("ward", "married"), ("age", "married"),
    }  # fmt: skip
    for line in report.lines:
        assert 0 <= line.distance <= line.most <= 1
        assert line.noise < line.most
        assert 0 <= line.inside <= 1
    cells = [line.cells for line in report.lines]
    inside = np.average([line.inside for line in report.lines], weights=cells)
    assert inside > 0.5  # of 24 cells or more, each with 95 %: below has probability 1e-9
    assert "synthetic rows" in str(report)
    assert report.to_markdown().startswith("# Synthetic rows: people")
    made.save(tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert page.count("<svg") == 3
    assert "<script" not in page
    assert "http" not in page.replace("http://www.w3.org", "")
    assert "<table>" in report._repr_html_()
    with pytest.raises(NoisegateError, check=about("ending")):
        report.save(tmp_path / "report.pdf")
    assert made.plot("age").to_dict()["layer"]
    with pytest.raises(NoisegateError, check=about("column")):
        made.plot("id")


def test_what_is_known_is_kept_exactly():
    terms = TERMS | {
        "total": COUNT,
        "determined": {"region": ("ward", {"north": "up", "south": "down"})},
        "impossible": ["age < 30 AND married", {"age": (95, 99), "ward": "south"}],
    }
    columns = {**FACTS, "region": {"in": ["up", "down"]}}
    gate = noisegate.open(people(), epsilon=20, table="people", columns=columns)
    made = gate.release("synthetic", **terms)
    frame = made.to_pandas()
    assert list(frame.columns) == ["ward", "age", "married", "region"]
    assert len(frame) == COUNT
    assert (frame.region == np.where(frame.ward == "north", "up", "down")).all()
    assert not (frame.married & (frame.age < 30)).any()
    assert not ((frame.ward == "south") & (frame.age >= 95)).any()
    assert (made.total.value, made.total.margin) == (COUNT, 0)
    never = made.query(age=(0, 29), married=True)
    assert (never.value, never.margin) == (0, 0)
    few = made.sample(100, where={"age": (0, 49), "married": True}).to_pandas()
    assert (few.age >= 30).all()
    with pytest.raises(NoisegateError, check=about("no-rows")):
        made.sample(10, where={"age": (0, 29), "married": True})


@pytest.mark.parametrize("method", ["auto", "mst", "independent"])
def test_rows_that_are_on_no_list_are_in_no_table(method):
    # ± 3 at most where ε is 200: a wrong number by chance once in 10**9 runs
    rows = pa.table(
        {
            "ward": ["n", "s", "x", None, "n"] * 40,
            "sick": [True, False] * 100,
            "age": list(range(40)) * 5,
        }
    )
    facts = {"ward": {"in": ["n", "s"]}, "sick": {"nullable": False}}
    facts["age"] = {"type": "integer", "between": [0, 39]}
    gate = noisegate.open(rows, epsilon=1000, table="t", columns=facts)
    made = gate.release("synthetic", columns=list(facts), epsilon=200, method=method)
    assert abs(made.total.value - 120) <= 3
    assert abs(made.query(sick=True).value - 60) <= 3
    assert abs(made.query(ward="n").value - 80) <= 3


def test_bins_begin_where_what_is_impossible_ends(gate):
    made = gate.release("synthetic", impossible=["age < 18 AND married"], **TERMS)
    frame = made.to_pandas()
    assert 18 in made.fitted.layout.axes[1].keys
    assert not (frame.married & (frame.age < 18)).any()


def test_a_map_is_no_part_of_what_was_measured():
    """The same release, free, with another column that follows."""
    columns = {**FACTS, "region": {"in": ["up", "down", "west"]}}
    gate = noisegate.open(people(), epsilon=20, table="people", columns=columns)
    made = [
        gate.release("synthetic", determined={"region": ("ward", values)}, rows=50, **TERMS)
        for values in ({"north": "up", "south": "down"}, {"north": "west", "south": "west"})
    ]
    assert [each.free for each in made] == [False, True]
    assert set(made[0].to_pandas().region) == {"up", "down"}
    assert set(made[1].to_pandas().region) == {"west"}
    assert made[0].to_pandas().age.tolist() == made[1].to_pandas().age.tolist()


def test_bounds_that_nobody_declared_are_found_inside_the_price():
    facts = {"ward": FACTS["ward"]}
    gate = noisegate.open(people(), epsilon=20, table="people", columns=facts)
    terms = {"columns": ["ward", "age"], "epsilon": 5, "choose": "bounds"}
    plan = gate.release_plan("synthetic", **terms)
    assert (plan.price.epsilon, gate.spent.epsilon) == (5, 0)
    assert any("estimated first" in words for words in plan.notes)
    made = gate.release("synthetic", **terms)
    assert 4.999 < gate.spent.epsilon <= 5
    assert made.cost.epsilon == made.guarantee.loss.epsilon == gate.spent.epsilon
    assert any("as estimated: " in words for words in made.words)
    assert made.to_pandas().age.max() <= 128
    assert gate.release("synthetic", **terms).free
    assert gate.spent.epsilon == made.cost.epsilon
    poor = noisegate.open(people(), epsilon=1, table="people", columns=facts)
    with pytest.raises(OverBudget):
        poor.release("synthetic", **terms)
    assert poor.spent.epsilon == 0


def test_bins_of_like_size_are_found_inside_the_price():
    """900 rows are 0, so their number gets a bin of its own; others are even from 1 to 9999."""
    values = np.where(np.arange(1200) < 900, 0, np.arange(1200) * 7919 % 9999 + 1)
    table = pa.table({"gain": values, "ward": WARDS})
    facts = {"gain": {"between": [0, 9999], "nullable": False}, "ward": FACTS["ward"]}
    gate = noisegate.open(table, epsilon=20, table="people", columns=facts)
    terms = {"epsilon": 10, "choose": "bins"}
    assert gate.release_plan("synthetic", **terms).price.epsilon == 10
    made = gate.release("synthetic", **terms)
    assert 9.999 < made.cost.epsilon <= 10
    assert made.cost.epsilon == made.guarantee.loss.epsilon == gate.spent.epsilon
    gain = made.fitted.layout.axes[0]
    assert gain.keys[:2] == (0, 1)
    assert 4 <= gain.size <= 9
    assert (made.to_pandas().gain == 0).mean() == pytest.approx(0.75, abs=0.02)
    assert gate.release("synthetic", **terms).free
    assert gate.release_plan("synthetic", **terms).price.epsilon == 0
    assert gate.spent.epsilon == made.cost.epsilon


def test_bounds_and_bins_can_be_found_together():
    gate = noisegate.open(people(), epsilon=20, table="people", columns={"ward": FACTS["ward"]})
    terms = {"columns": ["ward", "age"], "epsilon": 10, "choose": ["bounds", "bins"]}
    made = gate.release("synthetic", **terms)
    assert 9.999 < gate.spent.epsilon == made.cost.epsilon <= 10
    assert [words.partition(",")[0] for words in made.words[:2]] == [
        "the bounds of age",
        "the bins of age",
    ]
    ages = made.to_pandas().age.dropna()
    assert ages.quantile(0.5) == pytest.approx(np.median(AGES), abs=8)


def test_rows_without_a_value_are_in_no_bin_that_is_found():
    """GREATEST passes over NULL: two thirds of the levels would be the lower bound."""
    some = pa.array([None if place % 3 else 100.0 + place % 20 for place in range(3_000)])
    gate = noisegate.open(pa.table({"age": some}), epsilon=2000, table="people")
    made = gate.release("synthetic", columns=["age"], epsilon=1000, choose=["bounds", "bins"])
    (axis,) = made.fitted.layout.axes
    assert sum(100 < end < 120 for end in axis.ends) > 10


def test_a_zcdp_account_pays_half_the_square():
    gate = gate_of(delta="1e-6", accountant="zcdp")
    made = gate.release("synthetic", columns=["ward", "married"], epsilon=1)
    assert made.fitted.gaussian
    asked = gate_of(delta="1e-6", accountant="zcdp")
    asked.sql("SELECT ward, COUNT(*) FROM people GROUP BY ward", epsilon=1)
    assert float(gate.spent.epsilon) == pytest.approx(float(asked.spent.epsilon), rel=1e-3)
    assert gate.release("synthetic", columns=["ward", "married"], epsilon=1).free


def test_a_person_with_several_rows_weighs_as_the_cap_says():
    rows = people().set_column(0, "id", pa.array(np.arange(COUNT) // 4))
    gate = noisegate.open(
        rows, epsilon=20, table="people", columns=FACTS, unit="id", rows_per_unit=4
    )
    made = gate.release("synthetic", columns=["id", "ward", "married"], epsilon=8)
    assert made.to_arrow().schema.names == ["id", "ward", "married"]
    assert made.to_arrow()["id"].to_pylist() == list(range(1, len(made) + 1))
    total = made.query("0.99999999")
    assert abs(total.value - COUNT) <= total.margin
    assert any("4 rows per" in words for words in made.words)


@pytest.mark.parametrize(
    ("terms", "words"),
    [
        ({"columns": None}, "undeclared"),
        ({"columns": ["town"]}, "column 'town'"),
        ({"table": "x"}, "table 'x'"),
        ({"sql": "SELECT COUNT(*) FROM people"}, "option 'sql'"),
        ({"groups_per_unit": 2}, "option 'groups_per_unit'"),
        ({"method": "magic"}, "method"),
        ({"epsilon": 0}, "positive epsilon"),
        ({"epsilon": None}, "price"),
        ({"rows": 0}, "rows"),
        ({"rows": "many"}, "rows"),
        ({"total": -5}, "rows"),
        ({"workload": 4}, "workload"),
        ({"workload": "pairs"}, "workload"),
        ({"workload": [["ward", "town"]]}, "column"),
        ({"workload": []}, "workload"),
        ({"workload": {}}, "workload"),
        ({"workload": {("ward", "age"): 0}}, "number|positive weight"),
        ({"workload": {("ward", "age"): "much"}}, "number|positive weight"),
        ({"workload": {"ward": 2}}, "workload"),
        ({"workload": ["SELECT COUNT(*) FROM people WHERE id < 5"]}, "bounds"),
        ({"choose": "caps"}, "choice"),
        ({"columns": {"age": 5, "ward": None}, "impossible": ["age < 13"]}, "bin"),
        ({"impossible": "age < 13"}, "impossible"),
        ({"impossible": [{"age": (0, 99)}]}, "impossible"),
        ({"impossible": ["married", "NOT married"]}, "impossible"),
        ({"impossible": {"age": 3}}, "impossible"),
        ({"evidence": [3]}, "evidence"),
        ({"depth": object()}, "option"),
        ({"depth": 3}, "option"),
        ({"method": "chosen", "cells_max": 5}, "cells"),
        ({"method": "chosen", "cells_max": "many"}, "cells"),
    ],
)
def test_bad_terms_are_refused_before_any_charge(untouched, terms, words):
    for ask in (untouched.release, untouched.release_plan):
        with pytest.raises(NoisegateError, check=listed(words)) as refused:
            ask("synthetic", **(TERMS | terms))
        assert refused.value.fix
    assert len(untouched.history()) == 1


def test_over_budget_is_refused_before_anything_is_drawn():
    gate = gate_of(epsilon=1)
    with pytest.raises(OverBudget):
        gate.release("synthetic", **TERMS)
    assert gate.spent.epsilon == 0


def test_an_interrupt_charges_what_was_drawn_and_leaves_a_clean_ledger():
    gate = gate_of()

    def interrupt(part, _):
        if part == at:
            raise KeyboardInterrupt

    at = 0.0
    with pytest.raises(KeyboardInterrupt):
        gate.release("synthetic", progress=interrupt, **TERMS)
    assert gate.spent.epsilon == 0
    at = 0.99
    with pytest.raises(KeyboardInterrupt):
        gate.release("synthetic", progress=interrupt, **TERMS)
    assert 0 < gate.spent.epsilon <= 2
    assert gate.ledger.verify().ok
    made = gate.release("synthetic", **TERMS)
    assert gate.release("synthetic", **TERMS).to_arrow().equals(made.to_arrow())


def test_practice_costs_nothing_and_has_no_card():
    gate = gate_of(practice=True)
    made = gate.release("synthetic", rows=30, **TERMS)
    assert len(made.to_pandas()) == 30
    assert "made up" in made.promise
    with pytest.raises(NoisegateError, check=about("practice")):
        made.card()


def test_it_shows_itself(made):
    assert "1,000 synthetic rows" in repr(made)
    assert "980 more rows" in str(made)
    assert "<table" in made._repr_html_()
    assert made.method in made.headline


def test_rows_are_moved_towards_tables_that_the_model_has_no_room_for():
    """Two columns that say much about each other, in a model that holds each by itself."""
    twins = np.arange(400) % 20
    table = pa.table({"a": twins, "b": twins})
    facts = {name: {"between": [0, 19], "nullable": False} for name in ("a", "b")}
    gate = noisegate.open(table, epsilon=20, table="twins", columns=facts)
    terms = {"epsilon": 10, "method": "chosen", "workload": [["a"], ["b"], ["a", "b"]]}
    made = gate.release("synthetic", cells_max=60, rows=400, **terms)
    assert any("did not fit" in words for words in made.words)
    frame = made.to_pandas()
    assert (frame.a == frame.b).mean() > 0.5
    again = gate.release("synthetic", cells_max=60, rows=400, **terms)
    assert (again.free, again.to_arrow().equals(made.to_arrow())) == (True, True)


def test_pairs_of_a_small_table_are_kept_where_columns_alone_would_lose_them():
    """600 rows of six columns, each like the one before: 0.07 off, independent columns are 0.22."""
    coins = np.random.default_rng(4)
    held = coins.normal(size=(600, 6))
    for place in range(1, 6):
        held[:, place] = 0.8 * held[:, place - 1] + 0.6 * held[:, place]
    cells = np.digitize(held, [-0.8, 0, 0.8])
    columns = {f"c{k}": {"type": "integer", "in": [0, 1, 2, 3]} for k in range(6)}
    off = []
    for _ in range(5):
        rows = pa.table({f"c{k}": cells[:, k] for k in range(6)})
        gate = noisegate.open(rows, epsilon=2, columns=columns)
        made = gate.release("synthetic", table="data", epsilon=2).sample(20_000).to_pandas()
        drawn = np.column_stack([made[f"c{k}"] for k in range(6)])
        off += [
            np.abs(_shares(cells, one, two) - _shares(drawn, one, two)).sum() / 2
            for one, two in combinations(range(6), 2)
        ]
    assert np.mean(off) < 0.15


def _shares(cells, one, two):
    return np.bincount(4 * cells[:, one] + cells[:, two], minlength=16) / len(cells)
