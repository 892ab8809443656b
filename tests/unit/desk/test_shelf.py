"""Never pay twice: what was released answers again, and says so truly."""

from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from people_gates import (
    BY_K,
    BY_WARD,
    CELLS,
    COUNT,
    HIGH,
    charged,
    gate_of,
    many,
    people,
    source_of,
)
from scipy import stats

import noisegate
from noisegate.curator.curator import Curator
from noisegate.curator.measurement import Measurement
from noisegate.desk.card import Card, verify
from noisegate.gate import Gate, Rules
from noisegate.ledger.open import open_ledger
from noisegate.mechanisms.additive.geometric import Geometric
from noisegate.privacy.domain import Column, Kind
from noisegate.privacy.event import NothingEvent
from noisegate.privacy.loss import ApproxDP
from noisegate.sql.reuse.shelf import Shelf
from noisegate.transforms.query import Query
from noisegate.transforms.strategy import Groups, Strategy

ALARM = 1e-9
COUNTED = "SELECT COUNT(*) AS n FROM t"


def missed(answer, column, exact=0):
    """How many error bars at 95 % do not hold the exact number."""
    place = answer.columns.index(column)
    widths = answer.margins()[column]
    return sum(
        abs(row[place] - exact) > width for row, width in zip(answer.rows, widths, strict=True)
    )


def most_misses(runs):
    """More have a probability below ALARM, if each bar fails in one of twenty runs."""
    return int(stats.binom.isf(ALARM, runs, 0.05))


# the same, reordered, picked, added up


def test_the_same_question_is_free_and_has_the_same_answer():
    gate = gate_of()
    first, paid = charged(gate, BY_WARD, epsilon="0.5")
    again, free = charged(gate, BY_WARD, epsilon="0.5")
    assert (paid, free) == (Fraction(1, 2), 0)
    assert (again.rows, again.margins()) == (first.rows, first.margins())
    assert again.free
    assert not first.free
    assert str(again.guarantee) == str(first.guarantee)
    assert again.plan.expected.reused == ("asked before",)
    assert "free: answered from the ledger" in again.footer()


def test_a_question_that_another_settles_amid_the_look_at_the_shelf_is_one_question(monkeypatch):
    """Half of it found and half bought again would be a second draw of the same terms."""
    ledger = open_ledger(":memory:")
    sql = "SELECT ward, COUNT(*) AS n, AVG(v) AS a FROM people GROUP BY ward"
    gate, other = gate_of(ledger=ledger), gate_of(ledger=ledger)
    reads, read = [], Shelf._read

    def reading(shelf):
        found = read(shelf)
        reads.append(shelf)
        if len(reads) == 1:
            other.sql(sql, epsilon=1)
        return found

    monkeypatch.setattr(Shelf, "_read", reading)
    one = gate.sql(sql, epsilon=1)
    monkeypatch.undo()
    assert one.rows == other.sql(sql, epsilon=1).rows
    assert gate.spent.epsilon == 1


def test_other_orders_names_and_spellings_are_the_same_question():
    gate = gate_of()
    first = gate.sql("SELECT ward, k, COUNT(*) AS n FROM people GROUP BY ward, k", epsilon=1)
    again, paid = charged(
        gate, "select K, Ward as w, count(*) from People group by 1, 2 order by 2, 1", epsilon=1
    )
    assert paid == 0
    assert {(w, k): n for w, k, n in first.rows} == {(w, k): n for k, w, n in again.rows}


def test_a_filter_on_released_keys_reads_off_the_released_number():
    gate = gate_of()
    shown = dict(gate.sql(BY_WARD, epsilon=1).rows)
    for condition, ward in [
        ("ward = 'north'", "north"),
        ("'south' = ward", "south"),
        ("ward IN ('south')", "south"),
        ("ward IS NULL", None),
    ]:
        answer, paid = charged(gate, f"{COUNT} WHERE {condition}", epsilon=1)
        assert (answer.rows, paid) == (((shown[ward],),), 0), condition


@pytest.mark.parametrize(
    ("condition", "exact"),
    [
        ("ward = NULL", 0),
        ("ward IN ('north', NULL)", 48),
        ("ward IS NULL", 24),
        ("ward IN ('north', 'south')", 72),
        ("ward IN ('north', 'nowhere')", 48),
        ("ward = 'elsewhere'", 24),
        ("ward = 'North'", 0),
        ("ward IS NOT NULL", 96),
        ("ward = 'north' AND ward = 'south'", 0),
        ("ward = 'north' AND ward IN ('north', 'south')", 48),
        ("NOT ward = 'north'", 48),
        ("ward IS NOT DISTINCT FROM NULL", 24),
    ],
)
def test_no_filter_is_misread_on_the_shelf(condition, exact):
    gate = gate_of()
    gate.sql(BY_WARD, epsilon=HIGH)
    assert gate.sql(f"{COUNT} WHERE {condition}", epsilon=HIGH).rows == ((exact,),)


@pytest.mark.parametrize("released", [BY_WARD, BY_K])
def test_a_total_counts_rows_whose_keys_are_not_listed(released):
    gate = gate_of()
    gate.sql(released, epsilon=HIGH)
    assert gate.sql(COUNT, epsilon=HIGH).rows == ((120,),)


def test_fewer_groups_count_rows_whose_keys_are_not_listed():
    gate = gate_of()
    gate.sql("SELECT ward, k, COUNT(*) AS n FROM people GROUP BY ward, k", epsilon=HIGH)
    assert gate.sql(BY_K, epsilon=HIGH).rows == ((0, 30), (1, 30), (2, 30))


def test_terms_that_are_known_are_not_paid_again():
    gate = gate_of()
    known = gate.sql(BY_K, epsilon=1)
    sql = "SELECT k, COUNT(*) AS n, SUM(v) AS s FROM people GROUP BY k"
    alone = gate_of().plan(sql, epsilon=1).price.epsilon
    planned = gate.plan(sql, epsilon=1).price.epsilon
    answer, paid = charged(gate, sql, epsilon=1)
    assert 0 < paid == planned < alone == 1
    assert [row[:2] for row in answer.rows] == list(known.rows)
    assert answer.margins()["n"] == known.margins()["n"]
    assert answer.guarantee.loss.epsilon == 1 + paid


# what is not the same


@pytest.mark.parametrize(
    "other",
    [
        people(snapshot="2"),
        people(
            columns={"v": Column(name="v", kind=Kind.INTEGER, between=(Fraction(0), Fraction(1)))}
        ),
    ],
)
def test_other_rows_or_other_bounds_are_paid_for(other):
    sql = "SELECT SUM(v) AS s FROM people"
    gate = gate_of()
    gate.sql(sql, epsilon=HIGH)
    _, paid = charged(gate_of(other, ledger=gate.ledger), sql, epsilon=HIGH)
    assert paid == HIGH


def test_fewer_listed_keys_are_picked_from_more():
    gate = gate_of()
    first = gate.sql(BY_K, epsilon=1)
    fewer = people(columns={"k": Column(name="k", kind=Kind.INTEGER, keys=(2, 0), nullable=False)})
    answer, paid = charged(gate_of(fewer, ledger=gate.ledger), BY_K, epsilon=1)
    assert (answer.rows, paid) == ((first.rows[2], first.rows[0]), 0)


def test_keys_of_another_type_are_other_keys():
    gate = gate_of()
    gate.sql(BY_K, epsilon=HIGH)
    texts = people(columns={"k": Column(name="k", keys=("0", "1", "2"), nullable=False)})
    answer, paid = charged(gate_of(texts, ledger=gate.ledger), BY_K, epsilon=HIGH)
    assert (answer.rows, paid) == ((("0", 30), ("1", 30), ("2", 30)), HIGH)


def test_another_cap_is_another_question():
    gate = gate_of(people(unit="pid"))
    gate.sql(BY_K, epsilon=1, rows_per_unit=3)
    assert charged(gate, BY_K, epsilon=1, rows_per_unit=2)[1] == 1
    assert charged(gate, BY_K, epsilon=1, rows_per_unit=3, groups_per_unit=2)[1] == 0  # of people
    people_by_k = "SELECT k, COUNT(DISTINCT pid) FROM people GROUP BY k"
    for groups in (1, 2):
        caps = {"rows_per_unit": 3, "groups_per_unit": groups}
        assert charged(gate, people_by_k, epsilon=1, **caps)[1] == 1


@pytest.mark.parametrize("accountant", ["pure", "zcdp"])
def test_what_weighs_otherwise_is_another_question(accountant):
    """A sum by itself is bounded by what it adds; beside a count, by the rows of a unit."""
    delta = 0 if accountant == "pure" else Fraction(1, 10**6)
    gate = gate_of(people(unit="pid"), accountant=accountant, delta=delta)
    both, one = "SELECT COUNT(*) AS n, SUM(v) AS s FROM people", "SELECT SUM(v) AS s FROM people"
    gate.sql(both, epsilon=1, rows_per_unit=1)
    for sql in (one, f"{both} WHERE k = 1", f"{one} WHERE k = 1"):
        assert charged(gate, sql, epsilon=1, rows_per_unit=1)[1] > 0, sql
    assert charged(gate, both, epsilon=1, rows_per_unit=2)[1] > 0
    gate.sql(BY_K, epsilon=2, rows_per_unit=1)
    assert charged(gate, f"{COUNT} WHERE k = 2", epsilon=1, rows_per_unit=1)[1] > 0
    for sql in (both, one, BY_K):
        assert charged(gate, sql, epsilon=1, rows_per_unit=1)[1] == 0, sql


def test_under_a_cap_a_filter_is_another_question_because_rows_weigh_otherwise():
    # Each of 40 persons has rows with 3 different k; under a cap of 1 each weighs a third.
    gate = gate_of(people(unit="pid"))
    grouped = gate.sql(BY_K, epsilon=HIGH, rows_per_unit=1)
    alone = gate.sql(f"{COUNT} WHERE k = 1", epsilon=HIGH, rows_per_unit=1)
    assert grouped.rows[1][1] == pytest.approx(10, abs=0.5)
    assert alone.rows[0][0] == pytest.approx(10, abs=0.5)
    assert not alone.free


@pytest.mark.parametrize(("accountant", "delta"), [("pure", 0), ("zcdp", Fraction(1, 10**6))])
def test_where_units_weigh_otherwise_it_is_another_question(accountant, delta):
    def reused(first, sql, cap=4):
        gate = gate_of(people(unit="pid"), accountant=accountant, delta=delta)
        gate.sql(first, epsilon=1, rows_per_unit=4)
        return gate.plan(sql, epsilon=1, rows_per_unit=cap).expected.reused != ()

    assert reused(BY_K, BY_K)
    assert not reused(BY_K, BY_K, cap=3)  # a row has the same grain under 3 and 4
    assert not reused(BY_K, f"{COUNT} WHERE k = 1")
    in_l1 = accountant == "pure"  # where a norm over groups is that over all rows
    assert reused(BY_K, COUNT) == in_l1
    by_k, alone = "SELECT k, {} FROM people GROUP BY k", "SELECT {} FROM people"
    assert reused(by_k.format("SUM(v)"), alone.format("SUM(v)")) == in_l1
    assert not reused(by_k.format("SUM(v - 1)"), alone.format("SUM(v - 1)"))  # what cancels out
    assert not reused(alone.format("SUM(v), COUNT(*)"), alone.format("SUM(v)"))  # rows were counted


def test_what_one_analyst_released_is_free_for_all():
    gate = gate_of()
    first = gate.sql(BY_K, epsilon=1)
    gate.ledger.open_account(
        "clinic/ana",
        parent="clinic",
        accountant="pure",
        budget=ApproxDP(1),
        unit=str(people().unit),
    )
    ana = Gate(
        Curator(
            source=source_of(None), tables={"people": people()}, ledger=gate.ledger,
            account="clinic/ana",
        ),
        Rules(),
    )  # fmt: skip
    again = ana.sql(BY_K, epsilon=1)
    assert again.free
    assert (again.rows, ana.spent.epsilon) == (first.rows, 0)
    assert again.guarantee.loss.epsilon == 1


# more precisely: the difference


@pytest.mark.parametrize(("accountant", "delta"), [("pure", 0), ("zcdp", Fraction(1, 10**6))])
@pytest.mark.parametrize("second", ["0.2", "0.3"])
def test_a_second_draw_is_a_new_one_and_its_error_bars_hold(accountant, delta, second):
    # If the stored draw were taken for the second one, 15 % of the bars would fail.
    sql = "SELECT a, COUNT(*) AS n FROM many GROUP BY a"
    gate = gate_of(many(), accountant=accountant, delta=delta)
    first = gate.sql(sql, epsilon="0.1")
    planned = gate.plan(sql, epsilon=second).price
    answer = gate.sql(sql, epsilon=second)
    assert answer.cost == planned
    assert answer.cost.epsilon > 0
    assert answer.rows != first.rows
    assert answer.margins()["n"][0] < first.margins()["n"][0]
    assert missed(answer, "n") <= most_misses(CELLS)


def test_the_difference_is_what_is_paid():
    gate = gate_of()
    gate.sql(COUNT, epsilon="0.1")
    for epsilon, more in [("0.2", "0.1"), ("0.3", "0.1"), ("0.3", "0"), ("0.25", "0")]:
        answer, paid = charged(gate, COUNT, epsilon=epsilon)
        assert paid == Fraction(more), epsilon
        assert answer.cost.epsilon == paid
    assert answer.guarantee.loss.epsilon == Fraction(3, 10)


@pytest.mark.parametrize("accountant", ["pure", "zcdp"])
@pytest.mark.parametrize("sql", [COUNTED, "SELECT SUM(x) AS n FROM t"])
def test_a_higher_price_buys_a_narrower_bar_of_units_with_many_rows(accountant, sql):
    """Weights are fine parts of a row, so that noise on the grid is wide whatever is paid."""

    def opened():
        rows = pa.table({"who": np.repeat(np.arange(500), 12), "x": np.full(6000, 0.5)})
        return noisegate.open(
            rows, table="t", unit="who", columns={"x": {"between": [0, 1000]}}, epsilon=1000,
            delta=1e-6, accountant=accountant, ledger=":memory:",
        )  # fmt: skip

    def width(gate, epsilon):
        (found,) = gate.sql(sql, epsilon=epsilon, rows_per_unit=12).margins()["n"]
        return found

    gate = opened()
    widths = [width(gate, epsilon) for epsilon in (1, 4, 4, 10)]
    for epsilon, found in zip((1, 4, 4, 10), widths, strict=True):
        assert found <= 1.5 * width(opened(), epsilon)  # draws of several prices, combined


def test_new_draws_on_demand_are_paid_and_independent():
    sql = "SELECT a, COUNT(*) AS n FROM many GROUP BY a"
    gate = gate_of(many())
    answers = [gate.sql(sql, epsilon="0.1", fresh=True) for _ in range(3)]
    assert gate.spent.epsilon == Fraction(3, 10)
    assert len({answer.rows for answer in answers}) == 3
    together = gate.sql(sql, epsilon="0.3")
    assert together.free
    assert missed(together, "n") <= most_misses(CELLS)


def test_the_guarantee_adds_up_every_draw_that_is_shown():
    gate = gate_of()
    for _ in range(3):
        gate.sql(COUNT, epsilon="0.1", fresh=True)
    answer = gate.sql(COUNT, epsilon="0.3")
    assert answer.free
    assert answer.guarantee.loss.epsilon == Fraction(3, 10)
    card = Card.from_json(answer.card().to_json())
    assert verify(card, gate.ledger) == []
    assert sum(line["kind"] == "reserve" for line in card.record["ledger"]) == 3


@pytest.mark.parametrize("draws", [["0.1"] * 4, ["0.13"], ["0.3", "0.01"], ["0.001"]])
@pytest.mark.parametrize(("accountant", "delta"), [("pure", 0), ("zcdp", Fraction(1, 10**6))])
def test_a_promised_width_is_kept_whatever_is_on_the_shelf(draws, accountant, delta):
    gate = gate_of(accountant=accountant, delta=delta)
    for epsilon in draws:
        gate.sql(COUNT, epsilon=epsilon, fresh=True)
    plan = gate.plan(COUNT, within=8)
    answer = gate.sql(COUNT, within=8)
    assert answer.cost == plan.price
    assert answer.margins()["n"][0] <= 8


def test_a_promised_width_is_kept_by_what_is_added_up():
    gate = gate_of(many())
    gate.sql("SELECT a, COUNT(*) AS n FROM many GROUP BY a", epsilon=1)
    for within in (10, 1000):
        listed = ", ".join(map(str, range(CELLS)))
        sql = f"SELECT COUNT(*) AS n FROM many WHERE a IN ({listed})"
        assert gate.sql(sql, within=within).margins()["n"][0] <= within


@pytest.mark.parametrize("epsilon", ["0.1", "0.2", "0.05"])
def test_a_plan_foretells_the_error_of_what_comes_from_the_shelf(epsilon):
    gate = gate_of()
    gate.sql(BY_WARD, epsilon="0.1")
    for sql in (BY_WARD, f"{COUNT} WHERE ward IN ('north', 'south')"):
        plan = gate.plan(sql, epsilon=epsilon)
        answer = gate.sql(sql, epsilon=epsilon)
        assert plan.margins()["n"] == pytest.approx(answer.margins()["n"][0])


# grouping sets


def test_grouping_sets_from_one_release_are_not_taken_for_several():
    # The subtotals would be off in 17 % if one release were pooled with itself.
    table = many(cells=CELLS, other=2)
    gate = gate_of(table)
    gate.sql("SELECT a, b, COUNT(*) AS n FROM many GROUP BY a, b", epsilon=1)
    answer = gate.sql("SELECT a, b, COUNT(*) AS n FROM many GROUP BY ROLLUP (a, b)", epsilon=3)
    widths = answer.margins()["n"]
    places = [i for i, row in enumerate(answer.rows) if row[0] is not None and row[1] is None]
    assert len(places) == CELLS
    off = sum(abs(answer.rows[i][2]) > widths[i] for i in places)
    assert off <= most_misses(CELLS)


def test_every_free_answer_has_a_card_that_the_ledger_confirms():
    gate = gate_of(delta=Fraction(1, 100), keys_delta=Fraction(1, 10**6))
    asked = [
        (BY_K, "0.1"), (BY_K, "0.1"), (f"{COUNT} WHERE k = 1", "0.1"), (BY_K, "0.35"),
        ("SELECT MEDIAN(v) FROM people", 1), ("SELECT MEDIAN(v) FROM people", 1),
        ("SELECT pid, COUNT(*) FROM people GROUP BY pid", 20),
        ("SELECT pid, COUNT(*) FROM people GROUP BY pid", 20),
        ("SELECT 1 AS x", 1),
    ]  # fmt: skip
    for sql, epsilon in asked:
        card = gate.sql(sql, epsilon=epsilon).card()
        assert verify(Card.from_json(card.to_json()), gate.ledger) == [], sql


@pytest.mark.parametrize(
    "question", ["plain words", "[]", '{"query": {"count": {}}}', '{"query": 3}']
)
def test_other_questions_in_the_ledger_are_passed_over(question):
    gate = gate_of()
    entry = gate.ledger.reserve(
        "other", question=question, event=NothingEvent(), account="clinic", kind="measurement"
    )
    entry.settle(b"{}")
    assert gate.sql(COUNT, epsilon=HIGH).rows == ((120,),)


def test_what_a_strategy_measured_is_no_answer_about_its_cells():
    gate = gate_of()
    plan = gate.plan(BY_K, epsilon=1)
    tally = plan.expected.bought[0].draft.parts[0].query.tally
    backwards = Strategy(tally.cells, (Groups(np.arange(4, dtype=np.int32)[::-1].copy(), 4),))
    noise = Geometric(scale=Fraction(1))
    gate._curator.measure(Measurement(query=Query(tally, backwards), mechanisms=(noise,)))
    again = gate.plan(BY_K, epsilon=1)
    assert (again.price, again.expected.reused) == (plan.price, ())
