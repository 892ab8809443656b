"""Choices among public lists, with a prior, on an interval, by programs; and auctions."""

import json
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from command_line import run
from pyarrow import csv

import noisegate as ng
from noisegate.errors import SpecError, Unsupported
from noisegate.mechanisms.selection.prior import PriorExponential
from noisegate.mechanisms.selection.stretches import StretchChoice
from refusals import about

FACTS = {
    "bid": {"between": [0, 10]},
    "age": {"type": "integer", "between": [0, 99]},
    "ward": {"in": ["north", "south"]},
}
SOLD = "SELECT SUM(CASE WHEN BIN(bid, 0.25) >= price THEN price ELSE 0 END) FROM data"
PRICES = [each / 4 for each in range(1, 41)]


def made(seed=3):
    """1,000 people with up to five rows each, some without a bid, an age or an owner."""
    dice = np.random.default_rng(seed)
    count = 2400
    bid = np.round(dice.uniform(0, 10, count), 2)
    return pa.table(
        {
            "who": pa.array([None if n % 97 == 0 else int(n % 1000) for n in range(count)]),
            "bid": pa.array([None if n % 50 == 0 else v for n, v in enumerate(bid)]),
            "age": pa.array([None if n % 41 == 0 else int(v) for n, v in enumerate(bid * 9)]),
            "ward": ["north" if n % 3 else "south" for n in range(count)],
        }
    )


ROWS = made()


@pytest.fixture(scope="module")
def rows_gate():
    return ng.open(ROWS, epsilon=10**6, columns=FACTS, table="data", ledger=":memory:")


@pytest.fixture(scope="module")
def units_gate():
    return ng.open(ROWS, epsilon=10**6, columns=FACTS, table="data", unit="who", rows_per_unit=2,
                   ledger=":memory:")  # fmt: skip


BIDS = ROWS["bid"].to_numpy(zero_copy_only=False)
NORTH = np.array(ROWS["ward"].to_pylist()) == "north"


def exact(sql):
    import duckdb

    with duckdb.connect() as found:
        found.register("data", ROWS)
        return found.sql(sql).fetchall()


def best_price():
    return max(PRICES, key=lambda price: price * (price <= BIDS).sum())


def held(at):
    return int((NORTH & (at >= BIDS) & (at <= BIDS + 2)).sum())


def scores(measurement, source):
    """The exact scores behind a choice, in units of the question."""
    query = measurement.query
    cells = source.sums(query.tally)[0]
    return query.combinations.apply(cells)[0]


def job_of(gate, order):
    return order.job(gate._desk)


@pytest.mark.parametrize("kind", ["rows", "units"])
def test_scores_of_a_list_are_what_sql_says_of_each_candidate(kind, rows_gate, units_gate):
    gate = rows_gate if kind == "rows" else units_gate
    order = ng.orders.ChoiceOrder(sql=SOLD, candidates={"price": PRICES}, epsilon=1)
    job = job_of(gate, order)
    found = scores(job.measurement, gate._curator._source) * float(job.expected.grain)
    sums = ", ".join(f"SUM(CASE WHEN bid >= {p} THEN {p} ELSE 0 END)" for p in PRICES)
    if kind == "rows":
        (truth,) = exact(f"SELECT {sums} FROM data")
        assert found == pytest.approx(truth)
        assert job.measurement.query.any_one * job.expected.grain == 10
        assert job.expected.selection.monotone
        return
    weighted = ", ".join(
        f"SUM(LEAST(1, 2.0 / n) * CASE WHEN bid >= {p} THEN {p} ELSE 0 END)" for p in PRICES
    )
    counted = "(SELECT *, COUNT(*) OVER (PARTITION BY who) n FROM data WHERE who IS NOT NULL)"
    (truth,) = exact(f"SELECT {weighted} FROM {counted}")
    assert found == pytest.approx(truth, rel=0.02)  # weights are in parts of 256
    assert job.measurement.query.any_one * job.expected.grain == 20


def test_a_list_of_thousands_costs_what_its_reach_costs(rows_gate):
    """Any other than the best is chosen with e^-ε·lead/10 each: below 1e-30 here."""
    many = [each / 400 for each in range(1, 4001)]
    sql = "SELECT SUM(CASE WHEN BIN(bid, 0.25) >= price THEN price ELSE 0 END) FROM data"
    chosen = rows_gate.choose(sql, candidates={"price": many}, epsilon=10**4)
    best = best_price()
    assert chosen.winner == best
    assert chosen.expected.candidates[0] == many[0]


def test_low_scores_win_with_least_and_stay_monotone(units_gate):
    order = ng.orders.ChoiceOrder(sql="SELECT COUNT(*) FILTER (WHERE age >= line) FROM data",
                                  candidates={"line": [10, 50, 89]}, least=True, epsilon=500)  # fmt: skip
    assert job_of(units_gate, order).expected.selection.monotone
    assert units_gate.run(order).winner == 89  # another with e^-500·100/2


def test_nulls_add_what_the_sql_says(rows_gate):
    sql = "SELECT SUM(CASE WHEN age IS NULL THEN w ELSE 0 END) FROM data"
    job = job_of(rows_gate, ng.orders.ChoiceOrder(sql=sql, candidates={"w": [1, 3]}, epsilon=1))
    found = scores(job.measurement, rows_gate._curator._source) * float(job.expected.grain)
    ((nulls,),) = exact("SELECT COUNT(*) FROM data WHERE age IS NULL")
    assert found.tolist() == [nulls, 3 * nulls]


def test_a_prior_moves_the_choice_and_not_the_price(rows_gate):
    sql = "SELECT ward, COUNT(*) FROM data GROUP BY ward"
    tiny = "0.000001"  # both are nearly level, so the prior decides but for 1e-6
    chosen = rows_gate.choose(sql, epsilon=tiny, prior={"south": 10**9})
    assert chosen.winner == "south"
    assert isinstance(chosen.expected.selection, PriorExponential)
    assert chosen.cost.epsilon == Fraction(1, 10**6)
    beside = rows_gate.choose(SOLD, candidates={"price": [1, 2], "w": [0, 5]}, prior="w", epsilon=1)
    assert beside.winner == 2


def test_a_point_of_an_interval_is_held_by_nearly_the_most_rows(rows_gate, units_gate):
    """Short by more than the shortfall with probability below 1e-9."""
    sql = "SELECT COUNT(*) FILTER (WHERE at BETWEEN bid AND bid + 2 AND ward = 'north') FROM data"
    for gate in (rows_gate, units_gate):
        chosen = gate.choose(sql, candidates={"at": (2, 7)}, epsilon=20)
        assert isinstance(chosen.expected.selection, StretchChoice)
        assert 2 <= chosen.winner <= 7
        if gate is rows_gate:
            best = max(map(held, np.arange(2, 7, 0.05)))
            assert best - held(chosen.winner) <= chosen.shortfall(1 - 1e-9)


def test_stretches_beyond_the_interval_hold_no_point_and_open_ones_hold_all_beyond():
    choice = StretchChoice.for_epsilon(1, rows=1, reach=4, whole=1)
    rows = np.array([[4, 4, 0, 1], [-4, -4, 0, 1], [-4, 4, 0, 1], [2, 4, 0, 1]], np.int64)
    first, length, score = choice.runs(rows)
    points = np.searchsorted(first, np.arange(-3, 4), side="right") - 1
    assert score[points].tolist() == [1, 1, 1, 1, 1, 2, 2]
    assert length.sum() == 7


def test_an_auction_sells_at_nearly_the_best_price(rows_gate, units_gate):
    sold = rows_gate.auction("bid", prices=PRICES, epsilon=10**4)
    best = best_price()
    assert sold.winner == best  # another with e^-1000
    card = sold.card().to_dict()
    assert card["measurements"]
    assert len(card["ledger"]) >= 2
    assert "below the best" in card["caveats"][-1]
    plan = units_gate.auction_plan("bid", prices=PRICES, epsilon=1)
    assert plan.expected.shortfall(0.95) == pytest.approx(2 * 10 * np.log(39 / 0.05), rel=0.01)


@pytest.mark.parametrize(
    ("terms", "code"),
    [
        ({"candidates": {"price": [1]}}, "candidates"),
        ({"candidates": {"price": [1, 1]}}, "candidates"),
        ({"candidates": {"price": [1, 2], "w": [1]}}, "candidates"),
        ({"candidates": {"price": (2, 1)}}, "candidates"),
        ({"candidates": "data"}, "candidates"),
        ({"candidates": {"age": [1, 2]}, "sql": SOLD.replace("price", "age")}, "column"),
        ({"candidates": {"price": [1, 2]}, "prior": "w"}, "prior"),
        ({"candidates": {"price": [1, 2]}, "prior": {"3": 1}}, "prior"),
        ({"candidates": {"price": [1, 2]}, "prior": {"1": -1}}, "prior"),
        ({"candidates": {"price": [1, 2]}, "prior": {"1": 2}, "k": 2}, "method"),
        ({"candidates": {"price": [1, 2]}, "sql": "SELECT AVG(bid * price) FROM data"}, "score"),
        ({"candidates": {"price": [1, 2]}, "sql": "SELECT SUM(age) FROM data"}, "score"),
        (
            {
                "candidates": {"at": (0, 9)},
                "sql": "SELECT COUNT(*) FILTER (WHERE at <> bid) FROM data",
            },
            "score",
        ),
    ],
)
def test_wrong_candidates_are_refused_before_any_charge(terms, code, rows_gate):
    before = rows_gate.spent
    with pytest.raises((SpecError, Unsupported), check=about(code)):
        rows_gate.choose(terms.pop("sql", SOLD), epsilon=1, **terms)
    assert rows_gate.spent == before


def test_an_account_that_adds_up_rho_bounds_what_a_unit_adds_to_all_cells():
    gate = ng.open(ROWS, epsilon=100, delta="1e-6", accountant="zcdp", columns=FACTS, table="data",
                   unit="who", rows_per_unit=2, ledger=":memory:")  # fmt: skip
    job = job_of(gate, ng.orders.ChoiceOrder(sql=SOLD, candidates={"price": PRICES}, epsilon=1))
    assert job.measurement.query.any_one * job.expected.grain == 20


def test_prices_that_are_none_are_refused(rows_gate):
    for prices in ([5], [1, 1], list(range(1, 4000))):
        with pytest.raises(SpecError, check=about("prices")):
            rows_gate.auction("bid", prices=prices, epsilon=1)


def test_candidates_of_a_public_table_and_of_a_file(tmp_path):
    listed = pa.table({"price": PRICES})
    policy = tmp_path / "shop.toml"
    csv.write_csv(ROWS, tmp_path / "data.csv")
    csv.write_csv(listed, tmp_path / "prices.csv")
    policy.write_text("""
name = "shop"
source = "."
[budget]
epsilon = 20000
accountant = "zcdp"
delta = 1e-6
[tables.data]
unit = "who"
rows_per_unit = 2
columns.bid = { type = "number", between = [0, 10] }
[tables.prices]
public = true
columns.price = { type = "number" }
""")
    words = ("choose", "shop.toml", SOLD, "--epsilon", "5", "--json")
    named = json.loads(
        run(*words, "--candidates", "prices", "--save", "card.md", cwd=tmp_path).stdout
    )
    assert "below the best" in (tmp_path / "card.md").read_text()
    filed = json.loads(run(*words, "--candidates", "prices.csv", cwd=tmp_path).stdout)
    assert named["winners"] == filed["winners"]
    assert (named["candidates"], filed["price"]) == (40, 0)  # one question, paid for once
