"""What a question is said to cost is what it costs, and what is refused costs nothing."""

from collections import Counter
from fractions import Fraction

import pytest
from people_gates import BY_K, BY_WARD, COUNT, HIGH, charged, gate_of, people

import noisegate as ng
from noisegate.errors import NoisegateError, OverBudget, SpecError, Unsupported
from noisegate.sql import job
from noisegate.sql.reading.reader import read
from refusals import about

DELTA = {"delta": Fraction(1, 100), "keys_delta": Fraction(1, 10**6)}
DELTA_OF_KEYS = "0.0005"  # with it, all 40 persons' keys of 3 rows are found at ε = 20
MEDIAN = "SELECT MEDIAN(v) AS m FROM people"
TWICE = f"SELECT ({COUNT}) AS a, ({COUNT}) AS b"
QUESTIONS = [
    COUNT,
    BY_WARD,
    "SELECT ward, COUNT(*), SUM(v), AVG(v) FROM people GROUP BY ward",
    "SELECT STDDEV(v), CORR(v, k) FROM (SELECT v, LEAST(GREATEST(k, 0), 3) AS k FROM people)",
    "SELECT ward, k, COUNT(*) FROM people GROUP BY ROLLUP (ward, k)",
    "SELECT ward, k, COUNT(*) FROM people GROUP BY CUBE (ward, k)",
    MEDIAN,
    "SELECT k, MIN(v), MAX(v), COUNT(*) FROM people GROUP BY k",
    "SELECT COUNT(DISTINCT k) FROM people",
    "SELECT ward, COUNT(DISTINCT v) FROM people GROUP BY ward",
    "SELECT COUNT_IF(v > 1) / COUNT(*) AS share FROM people",
    "SELECT pid, COUNT(*) AS n FROM people GROUP BY pid",
    "SELECT pid, COUNT(DISTINCT k) AS n FROM people GROUP BY pid",
    "SELECT pid, k, SUM(v) AS n FROM people GROUP BY ROLLUP (pid, k)",
    "SELECT pid, k, SUM(v) AS n FROM people GROUP BY CUBE (k, pid)",
    "SELECT pid, MEDIAN(v) AS n FROM people GROUP BY pid",
    "SELECT DISTINCT pid FROM people",
    "SELECT pid, k, COUNT(*) FROM people GROUP BY pid, k",
    TWICE,
    f"WITH a AS ({BY_K}), b AS ({COUNT}) SELECT k, a.n / b.n AS share FROM a, b",
    f"SELECT n FROM ({BY_K}) UNION ALL {COUNT}",
    "SELECT COUNT(*) AS n FROM people WHERE v > (SELECT AVG(v) FROM people)",
    "SELECT ward, SUM(v) AS s FROM people WHERE v <= (SELECT MEDIAN(v) FROM people) + 1 GROUP BY ward",
    "SELECT k, COUNT(*) AS n FROM people WHERE v > (SELECT AVG(v) FROM people WHERE v < (SELECT AVG(v) FROM people)) GROUP BY k",
]


# price


@pytest.mark.parametrize("sql", QUESTIONS)
def test_the_price_of_a_plan_is_charged_and_nothing_else(sql):
    gate = gate_of(**DELTA)
    for _ in range(2):  # the second time all of it is on the shelf
        plan = gate.plan(sql, epsilon=20, delta=DELTA_OF_KEYS)
        before = gate.spent
        answer = gate.sql(sql, epsilon=20, delta=DELTA_OF_KEYS)
        assert answer.cost == plan.price
        assert gate.spent.epsilon - before.epsilon == plan.price.epsilon
        assert gate.spent.delta - before.delta == plan.price.delta
        assert answer.free is (plan.price.epsilon == 0)
        assert answer.guarantee.loss == gate.spent
    assert answer.free


@pytest.mark.parametrize("sql", [sql for sql in QUESTIONS if "pid" not in sql])
def test_with_units_and_caps_the_price_is_what_is_charged(sql):
    gate = gate_of(people(unit="pid", rows_per_unit_max=3, groups_per_unit_max=2), **DELTA)
    plan = gate.plan(sql, epsilon=20)
    answer, paid = charged(gate, sql, epsilon=20)
    assert paid == answer.cost.epsilon == answer.guarantee.loss.epsilon
    assert paid == plan.price.epsilon or (not answer.rows and paid < plan.price.epsilon)


@pytest.mark.parametrize("sql", QUESTIONS[::2])
def test_under_zcdp_the_answer_costs_what_the_plan_says(sql):
    gate = gate_of(accountant="zcdp", **DELTA)
    for _ in range(2):
        plan = gate.plan(sql, epsilon=20, delta=DELTA_OF_KEYS)
        answer = gate.sql(sql, epsilon=20, delta=DELTA_OF_KEYS)
        assert answer.cost == plan.price
    assert answer.free


def test_two_new_draws_of_one_question_are_both_in_the_guarantee():
    answer, paid = charged(gate_of(), TWICE, epsilon=1, fresh=True)
    assert paid == answer.guarantee.loss.epsilon
    assert paid == answer.cost.epsilon


@pytest.mark.parametrize("shape", ["pid, k", "ROLLUP (pid, k)", "CUBE (k, pid)"])
def test_where_no_group_is_found_only_looking_for_them_is_paid(shape):
    gate = gate_of(**DELTA)
    sql = f"SELECT pid, k, SUM(v) AS n FROM people GROUP BY {shape}"
    answer, paid = charged(gate, sql, epsilon="0.1")  # a chance below 1e-5 to find any
    assert (answer.rows, paid) == ((), Fraction(1, 40))


# nothing is spent


@pytest.mark.parametrize(
    ("sql", "terms"),
    [
        (COUNT, {"epsilon": 2}),
        (TWICE.replace("people) AS b", "people WHERE k = 1) AS b"), {"epsilon": 3}),
        (COUNT, {}),
        (COUNT, {"epsilon": 1, "within": 2}),
        (COUNT, {"epsilon": 0}),
        (COUNT, {"epsilon": -1}),
        (COUNT, {"within": 0}),
        (COUNT, {"within": 1, "confidence": 1}),
        (COUNT, {"within": 1, "confidence": 0}),
        (COUNT, {"relative": "0.1"}),
        (COUNT, {"epsilon": 1, "rows_per_unit": 0}),
        (COUNT, {"epsilon": 1, "groups_per_unit": 0}),
        (COUNT, {"epsilon": 1, "rows_per_unit": -1}),
        (COUNT, {"epsilon": 1, "delta": -1}),
        (MEDIAN, {"within": 1}),
        ("SELECT v FROM people", {"epsilon": 1}),
        ("SELECT SUM(pid) FROM people", {"epsilon": 1}),
        ("SELECT pid, COUNT(*) FROM people GROUP BY pid", {"epsilon": 1}),
        ("SELECT pid, COUNT(*) FROM people GROUP BY pid", {"epsilon": 1, "delta": "1e-6"}),
        (f"{COUNT} ORDER BY nothing", {"epsilon": 1}),
        (f"SELECT nothing(n) FROM ({COUNT})", {"epsilon": 1}),
        (f"SELECT random() FROM ({COUNT})", {"epsilon": 1}),
        (f"SELECT [[n]] FROM ({COUNT})", {"epsilon": 1}),
        (f"{COUNT}; {COUNT}", {"epsilon": 1}),
        ("DELETE FROM people", {"epsilon": 1}),
        ("", {"epsilon": 1}),
    ],
)
def test_what_is_refused_spends_nothing_and_leaves_no_entry(sql, terms):
    gate = gate_of(budget=1)
    entries = len(gate.history())
    with pytest.raises(NoisegateError):
        gate.sql(sql, **terms)
    assert gate.spent.epsilon == 0
    assert len(gate.history()) == entries


@pytest.mark.parametrize(
    "sql",
    [
        f"SELECT ward::INTEGER FROM ({BY_WARD})",
        f"SELECT (SELECT n FROM ({BY_WARD})) AS n",
        f"SELECT strptime(ward, '%Y') FROM ({BY_WARD})",
    ],
)
def test_what_fails_on_public_keys_is_refused_before_it_is_paid(sql):
    gate = gate_of()
    with pytest.raises(Unsupported):
        gate.sql(sql, epsilon=1)
    assert gate.spent.epsilon == 0


def test_what_fails_on_released_numbers_is_kept_and_says_so():
    gate = gate_of()
    fails = f"SELECT CAST(IF(n = 120, 'many', '0') AS INTEGER) AS x FROM ({COUNT})"
    with pytest.raises(Unsupported, check=about("after-paying")):
        gate.sql(fails, epsilon=HIGH)
    assert gate.spent.epsilon == HIGH
    mended, paid = charged(gate, COUNT, epsilon=HIGH)
    assert (mended.rows, paid) == (((120,),), 0)


def test_a_stored_answer_is_shown_when_the_budget_is_used_up():
    for sql in (COUNT, MEDIAN, "SELECT COUNT(DISTINCT k) FROM people", BY_WARD):
        gate = gate_of(budget=1)
        first = gate.sql(sql, epsilon=1)
        assert gate.remaining.epsilon == 0
        plan = gate.plan(sql, epsilon=1)
        assert (plan.price.epsilon, plan.fits) == (0, True)
        again = gate.sql(sql, epsilon=1)
        assert again.free
        assert again.rows == first.rows
        with pytest.raises(OverBudget):
            gate.sql(sql, epsilon=1, fresh=True)


def test_a_plan_and_explain_spend_nothing_and_read_no_row():
    gate = gate_of()
    plan = gate.plan(BY_WARD, epsilon=1)
    explained = gate.sql(f"EXPLAIN {BY_WARD}", epsilon=1)
    assert dict(explained.rows)["price"] == str(plan.price)
    assert explained.cost.epsilon == explained.guarantee.loss.epsilon == 0
    assert len(gate.history()) == len(gate_of().history())


@pytest.mark.parametrize(
    ("sql", "times"),
    [
        (COUNT, {COUNT: 1}),
        (f"EXPLAIN {COUNT}", {f"EXPLAIN {COUNT}": 1}),
        (QUESTIONS[-3], {QUESTIONS[-3]: 2, "SELECT AVG(v) FROM people": 1}),  # with the number
    ],
)
def test_sql_is_read_once_and_again_only_with_a_number_that_it_waited_for(sql, times, monkeypatch):
    gate, reads = gate_of(people(unit="pid")), []  # without a cap, which is looked for first

    def reading(text, *args, **more):
        reads.append(text)
        return read(text, *args, **more)

    monkeypatch.setattr(job, "read", reading)
    gate.sql(sql, epsilon=20)
    assert Counter(reads) == times


def test_a_number_that_is_measured_first_serves_the_next():
    gate = gate_of()
    inner = "(SELECT SUM(v) FROM people)", "(SELECT SUM(v) + COUNT(*) FROM people)"
    sql = f"SELECT COUNT(*) AS n FROM people WHERE k < {inner[0]} AND v < {inner[1]}"
    assert gate.plan(sql, epsilon=30).price.epsilon == 30
    assert 20 < charged(gate, sql, epsilon=30)[1] < 25
    assert charged(gate, sql, epsilon=30)[1] == 0


def test_practice_reads_no_row(tmp_path):
    file = tmp_path / "people.csv"
    file.write_text("ward,v\n" + 'north,"open quote\n' * 3)
    terms = {"epsilon": 1, "columns": {"ward": {"in": ["north", "south"]}}}
    gate = ng.open(file, practice=True, **terms)
    answer = gate.sql(BY_WARD, epsilon=1)
    assert [row[0] for row in answer.rows[:2]] == ["north", "south"]
    assert list(tmp_path.iterdir()) == [file]
    with pytest.raises(NoisegateError):  # whoever reads the rows stumbles
        ng.open(file, **terms)


def test_public_tables_alone_are_exact_and_free():
    answer = gate_of().sql("SELECT 1 + 1 AS two", epsilon=1)
    assert (answer.rows, answer.free) == (((2,),), True)
    assert answer.margins() == {"two": None}
    assert "no private row" in answer.footer()


# the policy's words


def test_the_policy_says_what_a_question_costs_by_default_and_at_most():
    gate = gate_of(epsilon=Fraction(1, 4), epsilon_max=Fraction(1, 2))
    assert charged(gate, COUNT)[1] == Fraction(1, 4)
    assert charged(gate, BY_WARD, epsilon="0.5")[1] == Fraction(1, 2)
    for sql, terms in [
        (BY_K, {"epsilon": "0.51"}),
        (BY_K, {"within": "0.1"}),
        (f"SELECT ({COUNT} WHERE k = 1) AS a, ({COUNT} WHERE k = 2) AS b", {"epsilon": "0.6"}),
    ]:
        with pytest.raises(SpecError):
            gate.sql(sql, **terms)
    assert gate.spent.epsilon == Fraction(3, 4)


@pytest.mark.parametrize(
    ("within", "confidence"), [(2, "0.95"), ("17.5", "0.5"), (400, "0.999"), (5, "0.9")]
)
def test_an_accuracy_is_kept_by_the_answer(within, confidence):
    gate = gate_of()
    for sql in (COUNT, BY_WARD, "SELECT SUM(v) AS n, COUNT(*) AS m FROM people"):
        answer = gate.sql(sql, within=within, confidence=confidence)
        widths = [w for column in answer.margins(confidence).values() for w in column or ()]
        assert max(widths) <= Fraction(within)


@pytest.mark.parametrize("wanted", [{"within": "1e400"}, {"relative": "1e309", "rows": 120}])
def test_an_accuracy_beyond_all_doubles_costs_the_least(wanted):
    for sql in (COUNT, "SELECT SUM(v) AS n FROM people"):
        assert gate_of().plan(sql, **wanted).epsilon == Fraction(1, 10**6)


def test_relative_accuracy_counts_on_the_rows_that_are_said_to_be_there():
    widths = gate_of().sql(COUNT, relative="0.1", rows=120).margins()["n"]
    assert widths[0] <= 12


def test_a_guarantee_names_the_unit_and_the_tables():
    rows = gate_of().sql(COUNT, epsilon=1).guarantee
    persons = gate_of(people(unit="pid", rows_per_unit_max=3)).sql(COUNT, epsilon=1).guarantee
    assert "every row is one person" in str(rows)
    assert "'pid'" in str(persons)
    assert "'people'" in str(persons)
    assert persons.change_one().loss.epsilon == 2


def test_rows_beyond_the_cap_are_spoken_of():
    gate = gate_of(people(unit="pid", rows_per_unit_max=2))
    answer = gate.sql(COUNT, epsilon=HIGH)
    assert answer.rows[0][0] == pytest.approx(80, abs=1)  # 40 persons of 3 rows each
    assert any("2 rows per person" in words for words in answer.caveats)


def test_noise_that_chose_the_rows_is_spoken_of():
    chosen = "Noisy numbers decided"
    gate = gate_of()
    for sql, said in [
        (f"{BY_K} HAVING COUNT(*) > 10", True),
        (f"{BY_K} ORDER BY n DESC LIMIT 1", True),
        (f"{BY_K} ORDER BY n", False),
        (f"SELECT * FROM ({BY_K}) WHERE k = 1", False),
    ]:
        caveats = gate.sql(sql, epsilon=1).caveats
        assert any(chosen in words for words in caveats) is said, sql


def test_a_plan_foresees_the_error_of_an_average_once_a_count_was_released():
    gate = gate_of()
    average = "SELECT AVG(v) AS a FROM people"
    before = gate.plan(average, epsilon=1)
    assert before.margins()["a"] is None
    gate.sql(BY_WARD, epsilon=1)
    after = gate.plan(average, epsilon=1)
    assert 0 < after.margins()["a"] < HIGH
    assert gate.sql(average, epsilon=1).cost == after.price == before.price
