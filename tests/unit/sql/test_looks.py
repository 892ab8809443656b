"""Bounds and caps that nobody declared, found privately inside the question that needs them."""

from fractions import Fraction

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import noisegate as ng
from cases import mostly_long
from noisegate.curator.curator import Curator
from noisegate.errors import OverBudget, SpecError, Unsupported
from refusals import about

AVERAGE = "SELECT AVG(x) AS a, COUNT(*) AS n FROM visits"


@pytest.fixture(scope="module")
def visits(tmp_path_factory):
    random = np.random.default_rng(3)
    rows = 30_000
    path = tmp_path_factory.mktemp("looks") / "visits.parquet"
    who = np.minimum(random.integers(0, 6000, rows), 5000)  # one has a sixth of all rows
    pq.write_table(pa.table({"who": who, "x": random.gamma(2, 20, rows)}), path)
    return path


def opened(path, **more):
    return ng.open(path, epsilon=4, ledger=":memory:", **more)


def measured(gate):
    return sum(entry.kind == "reserve" for entry in gate.history())


def test_found_bounds_and_caps_cost_a_share_and_the_whole_costs_what_was_said(visits):
    gate = opened(visits, unit="who")
    plan = gate.plan(AVERAGE, epsilon=1, choose=("bounds", "caps"))
    assert (plan.price.epsilon, plan.fits) == (1, True)
    assert gate.spent.epsilon == 0
    said = " ".join(plan.expected.clipping)
    assert (
        "estimated first, for ε = 0.2; how far off numbers may be depends on what it finds" in said
    )
    assert "Errors are shown for a cap of 1, and grow with it" in said
    assert "estimated first, for ε = 0.125; errors are shown for values from 0 to 1" in said
    answer = gate.sql(AVERAGE, epsilon=1, choose=("bounds", "caps"))
    assert answer.cost.epsilon == gate.spent.epsilon == 1
    average, count = answer.rows[0]
    assert 36 < average < 44  # noise of scale 1e-2 of it; a wrong bound or cap would show
    assert 20_000 < count < 30_500  # one unit has a sixth of all rows, and nothing may show that
    assert measured(gate) == 3


def test_until_a_look_is_paid_for_plans_guess_by_an_earlier_one(visits):
    """It is coarser, so it is not used for answers: a new one is paid for."""
    gate, sql = opened(visits, unit="who"), "SELECT COUNT(*) AS n FROM visits"
    assert gate.plan(sql, epsilon=1).margins() == {"n": None}
    gate.sql(sql, epsilon=0.1)
    plan = gate.plan(sql, epsilon=1)
    (guess,) = plan.margins().values()
    assert plan.price.epsilon > Fraction(1, 5)
    assert "by an earlier and coarser estimate" in " ".join(plan.expected.clipping)
    assert guess > 5  # that of one row is 4.2


def test_what_was_found_is_free_afterwards_and_shown_by_the_plan(visits):
    gate = opened(visits)
    gate.sql("SELECT SUM(x) AS s FROM visits", epsilon=1, choose="bounds")
    again = gate.plan("SELECT SUM(x) AS s FROM visits", epsilon=1, choose="bounds")
    assert again.price.epsilon == 0
    assert any("the bounds of x, as estimated: " in words for words in again.expected.clipping)
    other = gate.plan("SELECT AVG(x) AS s FROM visits", epsilon=1, choose="bounds")
    assert other.price.epsilon <= Fraction(7, 8)


def test_a_question_without_gaps_pays_for_no_look(visits):
    gate = opened(visits)
    gate.sql("SELECT COUNT(*) AS n FROM visits", epsilon=1, choose=["bounds", "caps"])
    assert gate.spent.epsilon == 1
    assert measured(gate) == 1


def test_the_price_does_not_depend_on_what_is_found(visits, tmp_path):
    rows = pa.table({"who": list(range(3000)), "x": [1e-9] * 3000})
    pq.write_table(rows, tmp_path / "visits.parquet")
    prices = []
    for path in (visits, tmp_path / "visits.parquet"):
        gate = opened(path, unit="who")
        gate.sql(AVERAGE, epsilon=2, choose=("bounds", "caps"))
        prices.append(gate.spent.epsilon)
    assert prices == [2, 2]


@pytest.mark.parametrize(
    "asked", ["SUM(x)", "AVG(x)", "COUNT(*), SUM(x)", "COUNT(*), AVG(x)", "AVG(x), SUM(x)"]
)
@pytest.mark.parametrize("value", mostly_long([1e-3, 1.0, 1e5], 1e5))
def test_a_question_costs_what_was_asked_however_far_out_bounds_are_found(tmp_path, asked, value):
    """From 1,000 on a sum had a look more than its plan had paid for."""
    rows = pa.table({"who": list(range(3000)) * 2, "x": [value, value / 50] * 3000})
    pq.write_table(rows, tmp_path / "visits.parquet")
    gate = opened(tmp_path / "visits.parquet", unit="who")
    gate.sql(f"SELECT {asked} FROM visits", epsilon=2, choose="bounds")
    assert gate.spent.epsilon == 2


def test_looks_that_find_nothing_say_that_they_were_paid(tmp_path):
    pq.write_table(pa.table({"x": [1.0]}), tmp_path / "visits.parquet")
    gate = opened(tmp_path / "visits.parquet")
    with pytest.raises(Unsupported, check=about("no-range")):
        gate.sql("SELECT SUM(x) AS s FROM visits", epsilon=Fraction(1, 100), choose="bounds")
    assert gate.spent.epsilon == Fraction(1, 800)


def test_nothing_is_looked_at_where_the_whole_does_not_fit(visits):
    gate = opened(visits)
    with pytest.raises(OverBudget):
        gate.sql("SELECT SUM(x) AS s FROM visits", epsilon=Fraction(41, 10), choose="bounds")
    assert gate.spent.epsilon == 0


def test_a_question_that_others_cut_short_says_what_was_paid(visits, monkeypatch):
    gate, measure = opened(visits, unit="who"), Curator.measure

    def crowded(curator, measurement, **more):
        release = measure(curator, measurement, **more)
        monkeypatch.undo()
        gate.sql("SELECT COUNT(DISTINCT who) AS n FROM visits", epsilon=2)
        return release

    monkeypatch.setattr(Curator, "measure", crowded)
    with pytest.raises(OverBudget, check=about("partly")):
        gate.sql("SELECT COUNT(*) AS n FROM visits", epsilon=4)
    assert gate.spent.epsilon == 2 + Fraction(4, 8)


def test_equal_looks_of_two_blocks_are_priced_once(visits):
    gate = opened(visits, unit="who")
    twice = (
        "SELECT * FROM (SELECT COUNT(*) AS n FROM visits), "
        "(SELECT x > 40 AS large, COUNT(*) AS part FROM visits GROUP BY large)"
    )
    plan = gate.plan(twice, epsilon=1, fresh=True)
    assert plan.price.epsilon == gate.sql(twice, epsilon=1, fresh=True).cost.epsilon == 1


def test_caps_are_found_unless_that_is_ruled_out_and_bounds_if_asked(visits):
    gate = opened(visits, unit="who")
    answer = gate.sql("SELECT COUNT(*) AS n FROM visits", epsilon=1)
    assert (answer.cost.epsilon, measured(gate)) == (1, 2)
    assert any("the cap on rows per unit, as estimated" in words for words in answer.caveats)
    with pytest.raises(Unsupported, match='choose="bounds"'):
        opened(visits).sql("SELECT SUM(x) AS s FROM visits", epsilon=1)
    with pytest.raises(Unsupported, match='choose="caps"'):
        opened(visits, unit="who").sql("SELECT COUNT(*) FROM visits", epsilon=1, choose=())
    with pytest.raises(Unsupported, check=about("cap")):  # nobody can say what it would cost
        opened(visits, unit="who").sql("SELECT COUNT(*) FROM visits", within=50)


def test_each_table_of_a_question_has_a_cap_of_its_own(tmp_path):
    for name, rows in (("many", 20_000), ("few", 1_000)):
        pq.write_table(
            pa.table({"who": [i % 500 for i in range(rows)]}), tmp_path / f"{name}.parquet"
        )
    policy = tmp_path / "two.toml"
    policy.write_text(
        'name = "two"\nsource = "."\n[budget]\nepsilon = 10_000\n'
        '[tables.many]\nunit = "who"\n[tables.few]\nunit = "who"\n'
    )
    gate = ng.open(policy, ledger=":memory:")
    both = "SELECT m, f FROM (SELECT COUNT(*) AS m FROM many), (SELECT COUNT(*) AS f FROM few)"
    answer = gate.sql(both, epsilon=2000)
    assert answer.cost.epsilon == 2000
    assert answer.rows == ((20_000, 1_000),)  # noise of scale 1/20; off once in e^9 or less
    caps = [words for words in answer.caveats if "the cap on rows" in words]
    assert caps == [
        "the cap on rows per unit, as estimated: 41", "the cap on rows per unit, as estimated: 2",
    ]  # fmt: skip


def test_bad_choices_are_refused(visits):
    gate = opened(visits)
    with pytest.raises(SpecError, check=about("choice"), match="'limits'"):
        gate.sql("SELECT SUM(x) AS s FROM visits", epsilon=1, choose="limits")
    with pytest.raises(SpecError, check=about("share")):
        gate.sql("SELECT SUM(x) AS s FROM visits", within=5, choose="bounds")
    assert gate.spent.epsilon == 0


def test_a_look_by_somebody_else_is_in_the_guarantee_of_what_it_raises(visits):
    gate = opened(visits, unit="who", rows_per_unit=1)
    count = "SELECT COUNT(*) AS n FROM visits"
    assert gate.sql(count, epsilon=1).guarantee.loss.epsilon == 1
    gate.caps("visits", epsilon=2)
    raised = gate.sql(count, epsilon=1)
    assert (raised.free, raised.guarantee.loss.epsilon) == (True, 3)


def test_what_was_bought_under_the_cap_that_a_plan_guesses_is_not_taken_for_it(visits):
    gate = opened(visits, unit="who")
    count = "SELECT COUNT(*) AS n FROM visits"
    gate.sql(count, epsilon=1, rows_per_unit=1)
    assert gate.plan(count, epsilon=1).price.epsilon == 1
    assert gate.sql(count, epsilon=1).cost.epsilon == 1


# what one unit adds to sums


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """200 units have 30 rows of 10, where 1000 may be. With ε = 1000 looks show that exactly."""
    path = tmp_path_factory.mktemp("sums") / "visits.parquet"
    rows = 6000
    shop = ["a" if i % 4 else "b" for i in range(rows)]
    pq.write_table(
        pa.table({"who": [i % 200 for i in range(rows)], "x": [10.0] * rows, "shop": shop}), path
    )
    return path


FACTS = {"x": {"between": [0, 1000]}, "shop": {"in": ["a", "b"]}}
SUM, BOTH = "SELECT SUM(x) AS s FROM visits", "SELECT COUNT(*) AS n, SUM(x) AS s FROM visits"
SURE = 1000


@pytest.mark.parametrize("accountant", ["pure", "zcdp"])
@pytest.mark.parametrize("by", ["", " GROUP BY shop"])
def test_a_sum_beside_a_count_has_a_cap_of_its_own(small, accountant, by):
    """Sized by its rows, a unit could add 30 times 1000, and noise would be a hundred times that."""
    more = {} if accountant == "pure" else {"delta": 1e-6, "accountant": accountant}
    door, gate = (
        ng.open(small, epsilon=10**6, ledger=":memory:", unit="who", columns=FACTS, **more)
        for _ in range(2)
    )
    alone = door.sql(SUM + by, epsilon=SURE)
    plan = gate.plan(BOTH + by, epsilon=SURE)
    both = gate.sql(BOTH + by, epsilon=SURE)
    assert plan.price == both.cost
    assert max(both.noise_margins()["s"]) <= 2 * max(alone.noise_margins()["s"])
    assert sum(row[-2] for row in both.rows) == pytest.approx(6000, rel=0.01)
    assert sum(row[-1] for row in both.rows) == pytest.approx(60_000, rel=0.01)
    said = " ".join(both.caveats)
    assert "Capped: what one person adds to SUM(x) counts up to " in said
    assert "rows per person; a unit with more" in said
    assert gate.sql(BOTH + by, epsilon=SURE).free


def test_sums_and_counts_are_looked_at_apart_and_each_look_is_free_for_the_other(small):
    gate = ng.open(small, epsilon=10**6, ledger=":memory:", unit="who", columns=FACTS)
    gate.sql(BOTH, epsilon=SURE)
    assert measured(gate) == 4  # two looks, two tallies
    gate.sql("SELECT COUNT(*) AS n FROM visits", epsilon=SURE / 10)
    gate.sql("SELECT SUM(x) AS s FROM visits", epsilon=SURE / 10)
    assert measured(gate) == 6 - 2  # looks and numbers that were paid for are used again
    given = gate.sql(BOTH, epsilon=SURE, rows_per_unit=3)
    assert measured(gate) == 5  # one weight, as it was said
    assert "Capped: 3 rows per person" in " ".join(given.caveats)


@pytest.mark.parametrize("choose", ["bounds", ("bounds", "caps")])
def test_looks_at_bounds_come_before_those_at_what_is_added(small, choose):
    gate = ng.open(small, epsilon=10**6, ledger=":memory:", unit="who")
    plan = gate.plan(BOTH, epsilon=SURE, choose=choose)
    answer = gate.sql(BOTH, epsilon=SURE, choose=choose)
    assert plan.price.epsilon == answer.cost.epsilon == SURE
    assert measured(gate) == 5  # three looks, of which no bounds that were found take one away
    assert answer.rows[0][1] == pytest.approx(60_000, rel=0.01)
    said = " ".join(answer.caveats)
    assert "the bounds of x, as estimated: 8 to 16" in said
    assert "the cap on rows per unit, as estimated: 31" in said
    assert gate.sql(BOTH, epsilon=SURE, choose=choose).free


@pytest.mark.parametrize("sql", [
    "SELECT AVG(x) AS a FROM visits",
    "SELECT AVG(x) AS a, COUNT(*) AS n, SUM(x) AS s FROM visits",
    "SELECT AVG(x) FILTER (WHERE shop = 'a') AS a FROM visits",
    "SELECT shop, AVG(x) AS a FROM visits GROUP BY shop",
])  # fmt: skip
def test_an_average_far_below_its_bounds_is_a_sum_over_a_count(small, sql):
    """Around the middle, noise would be that of 31 rows of 500 each: 80 times as much."""
    gate = ng.open(small, epsilon=10**6, ledger=":memory:", unit="who", columns=FACTS)
    plan = gate.plan(sql, epsilon=SURE)
    answer = gate.sql(sql, epsilon=SURE)
    assert plan.price.epsilon == answer.cost.epsilon == SURE
    assert "adds to SUM(x) counts up to " in " ".join(answer.caveats)
    assert all(value == pytest.approx(10, abs=0.1) for value in answer.table["a"].to_pylist())
    assert all(0 < wide < 0.1 for wide in answer.noise_margins()["a"])
    assert all(
        wide <= whole
        for wide, whole in zip(answer.noise_margins()["a"], answer.margins()["a"], strict=True)
    )
    assert gate.sql(sql, epsilon=SURE).free
    given = gate.sql(sql, epsilon=SURE, rows_per_unit=31)
    assert max(given.noise_margins()["a"]) > 10 * max(answer.noise_margins()["a"])


@pytest.mark.parametrize("column", ["19900 + x", "500 + x"])
def test_an_average_that_is_no_smaller_than_its_bounds_are_wide_needs_no_look_at_sums(
    small, column
):
    gate = ng.open(small, epsilon=10**6, ledger=":memory:", unit="who", columns=FACTS)
    answer = gate.sql(f"SELECT AVG({column}) AS a FROM visits", epsilon=SURE)
    assert measured(gate) == 2
    assert not any("adds to SUM" in words for words in answer.caveats)


@pytest.mark.long
@pytest.mark.parametrize("rows", [1, 3])
def test_looks_that_show_nobody_still_end_in_an_answer(rows, tmp_path):
    """Noise of scale 100 and more hides them all; whatever it is, averages stay in their bounds."""
    few = pa.table({"who": list(range(rows)), "x": [1.0] * rows})
    pq.write_table(few, tmp_path / "visits.parquet")
    for sql in ("SELECT AVG(x) AS a FROM visits", f"{BOTH[:7]} AVG(x) AS a, {BOTH[7:]}"):
        for _ in range(5):
            gate = ng.open(
                tmp_path / "visits.parquet", epsilon=1, ledger=":memory:", unit="who",
                columns={"x": {"between": [0, 100]}},
            )  # fmt: skip
            answer = gate.sql(sql, epsilon=0.01)
            assert answer.cost.epsilon == Fraction(1, 100)
            assert 0 <= answer.rows[0][0] <= 100


def test_units_that_add_nothing_do_not_size_a_sum():
    """Of fines that most do not pay: their many zeros once made the cap, and the sum, nearly 0."""
    paying = [(unit, 5) for unit in range(300)]
    rows = [(unit, 0) for unit in range(300, 3000)] + paying
    table = pa.table({"who": [unit for unit, _ in rows], "fine": [float(fine) for _, fine in rows]})
    facts = {"fine": {"type": "number", "between": [0, 10]}}
    gate = ng.open(table, epsilon=10, unit="who", columns=facts, ledger=":memory:")
    answer = gate.sql("SELECT SUM(fine) AS fines FROM data", epsilon="0.2")
    # Noise of scale 62 at most around 1,500: below 500 in fewer than 1 of 10^6 runs.
    assert answer.value > 500
    assert answer.value + answer.margins("0.99")["fines"][0] > 1000


def test_no_unit_is_in_more_groups_than_there_are():
    rows = [(unit, ward) for unit in range(500) for ward in "abcde"]
    table = pa.table({"who": [unit for unit, _ in rows], "ward": [ward for _, ward in rows]})
    facts = {"ward": {"in": list("abcde")}}
    gate = ng.open(table, epsilon=10, unit="who", columns=facts, ledger=":memory:")
    sql = "SELECT ward, COUNT(DISTINCT who) AS n FROM data GROUP BY ward"
    answer = gate.sql(sql, epsilon="0.5")
    assert max(answer.margins("0.95")["n"]) < 45  # noise of scale 5 / 0.4, and nothing is lost
    assert not any("loses" in note for note in answer.caveats)


@pytest.mark.parametrize("beside", ["COUNT(DISTINCT who) FILTER (WHERE x > 90)", "COUNT(y)"])
def test_the_size_of_a_small_part_does_not_bound_a_large_one(beside):
    """Of 500 people with eight rows, few have a y: their number once bounded all of them."""
    rows = [(who, at) for who in range(500) for at in range(8)]
    table = pa.table({
        "who": [who for who, _ in rows], "ward": ["nse"[at % 3] for _, at in rows],
        "x": [float(at * 13 % 97) for at, _ in rows],
        "y": [1.0 if who % 9 == 0 and at == 0 else None for who, at in rows],
    })  # fmt: skip
    facts = {"ward": {"in": list("nse")}, "x": {"between": [0, 100]}, "y": {"between": [0, 2]}}
    gate = ng.open(table, epsilon=1000, unit="who", columns=facts, ledger=":memory:")
    sql = f"SELECT ward, {beside} AS few, COUNT(DISTINCT who) AS people FROM data GROUP BY ward"
    answer = gate.sql(sql, epsilon=100)
    # noise of scale 8 / 40 at most: off by 10 in fewer than 1 of 10^20 runs
    assert all(abs(row[-1] - 500) <= 10 for row in answer.rows)


def test_a_plan_foresees_no_error_by_a_bound_that_is_not_yet_estimated(visits):
    """The ± of one row was stated, hundreds of times too small; units alone need no bound."""
    gate = opened(visits, unit="who")
    sql = "SELECT COUNT(*) AS n, COUNT(DISTINCT who) AS units FROM visits"
    for each in (sql, f"{sql} HAVING COUNT(*) > 0"):
        plan = gate.plan(each, epsilon=1)
        assert plan.margins()["n"] is None
        assert plan.to_dict()["margins_at_best"] == {}
    said = dict(
        fact.split(": ", 1) for kind, fact in gate.plan(sql, epsilon=1).facts() if kind == "error"
    )
    assert said["n"].startswith("depends on the bound that is estimated: ± ")
    foreseen = gate.plan(sql, epsilon=1).margins()["units"]
    answer = gate.sql(sql, epsilon=1)
    assert answer.margins()["units"][0] == pytest.approx(foreseen, rel=0.01)
    assert gate.plan(sql, epsilon=1, fresh=True).margins()["n"] is not None


def test_units_by_group_beside_rows_follow_from_the_bound_of_rows(visits):
    sql = "SELECT x > 40 AS far, COUNT(*) AS n, COUNT(DISTINCT who) AS units FROM visits GROUP BY 1"
    assert opened(visits, unit="who").plan(sql, epsilon=1).margins()["units"] is None
    plan = opened(visits, unit="who").plan(sql, epsilon=1, groups_per_unit=2)
    assert plan.margins()["units"] is not None


def test_an_answer_of_quantiles_alone_does_not_say_that_it_was_raised(visits):
    gate = opened(visits, unit="who", columns={"x": {"between": [0, 400]}})
    said = " ".join(gate.sql("SELECT MEDIAN(x) AS m FROM visits", epsilon=1).caveats)
    assert "quantiles are not raised" in said
    assert "sums are raised" not in said
    said = " ".join(gate.sql("SELECT MEDIAN(x) AS m, COUNT(*) AS n FROM visits", epsilon=1).caveats)
    assert "sums are raised" in said


@pytest.mark.parametrize("function", ["SUM(x)", "AVG(x)", "SUM(x) FILTER (WHERE x < 90)"])
def test_bounds_by_a_condition_are_enough_where_a_cap_is_estimated(visits, function):
    """The look at what units add was refused after the bounds had been found."""
    gate = opened(visits, unit="who")
    sql = f"SELECT {function} AS s FROM visits WHERE x BETWEEN 0 AND 100"
    (found,) = gate.sql(sql, epsilon=3)["s"]
    (true,) = duckdb.connect().execute(sql.replace("visits", f"'{visits}'")).fetchone()
    assert found == pytest.approx(true, rel=0.25)  # one unit has a sixth of all rows


def test_missing_values_of_a_list_add_nothing_to_a_unit():
    """As if bounds were declared: else a look would see twenty times what units add."""
    given = [10 if row % 20 == 0 else None for row in range(40_000)]
    table = pa.table(
        {"who": [row // 20 for row in range(40_000)], "x": pa.array(given, pa.int64())}
    )
    widths = []
    for facts in ({"in": [0, 10]}, {"between": [0, 10]}):
        gate = ng.open(table, table="t", unit="who", columns={"x": facts}, epsilon=100)
        answer = gate.sql("SELECT SUM(x) AS s FROM t", epsilon=50)
        assert answer["s"][0] == pytest.approx(20_000, rel=0.01)
        widths.append(answer.margins()["s"][0])
    assert widths[0] < 2 * widths[1]
