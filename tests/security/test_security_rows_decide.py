"""Rows that make a question fail, turn out infinite, or overflow, and so give themselves away."""

import math
from functools import cache

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from naive import Rewriter
from worlds import CANARY, COLUMNS, EVE, OTHERS, eve, gate, loss, row, seen, visits, worlds

import noisegate as ng
from refusals import about

COUNT = "SELECT COUNT(*) AS n FROM visits WHERE "
# what is asked, and Eve's values that break it; the first ones are answered, the others refused
ANSWERED = {
    "cast": (COUNT + "CAST(note AS INTEGER) > 1", {"note": CANARY}),
    "cast to a small type": (COUNT + "CAST(big AS TINYINT) > 1", {"big": 1000}),
    "division": (COUNT + "100 // (age - 99) = 1", {"age": 99}),
    "remainder": (COUNT + "7 % (age - 99) = 1", {"age": 99}),
    "product": (COUNT + "big * big > 5", {"big": 2**62}),
    "sum of two": (COUNT + "big + big > 5", {"big": 2**62 + 1}),
    "absolute value": (COUNT + "ABS(big) > 5", {"big": -(2**63)}),
    "date": (COUNT + "MAKE_DATE(big, 1, 1) > DATE '2000-01-01'", {"big": 10**7}),
    "months of a date": (
        COUNT + "EXTRACT(year FROM MAKE_DATE(age + 1, CAST(big AS INTEGER), 1)) = 5",
        {"big": 13},
    ),
    "substring": (COUNT + "SUBSTRING(ward, big) = 'x'", {"big": -(2**63)}),
    "sum of casts": (
        "SELECT SUM(GREATEST(0, LEAST(9, CAST(note AS INTEGER)))) AS s FROM visits",
        {"note": CANARY},
    ),
    "sum of quotients": (
        "SELECT SUM(GREATEST(0, LEAST(9, 100 // (age - 99)))) AS s FROM visits",
        {"age": 99},
    ),
    "filter": ("SELECT COUNT(*) FILTER (WHERE CAST(note AS INTEGER) = 1) AS n FROM visits", {}),
    "case": (
        "SELECT SUM(CASE WHEN age = 99 THEN CAST(note AS INTEGER) % 2 ELSE 1 END) AS s FROM visits",
        {"age": 99},
    ),
    "group": (
        "SELECT CAST(note AS INTEGER) > 1 AS k, COUNT(*) AS n FROM visits GROUP BY k",
        {"note": CANARY},
    ),
    "join": (
        "SELECT COUNT(*) AS n FROM visits a JOIN visits b ON a.who = b.who AND CAST(a.note AS INTEGER) = CAST(b.note AS INTEGER)",
        {"note": CANARY},
    ),
}
REFUSED = {
    "regular expression": (COUNT + "REGEXP_MATCHES(ward, note)", {"note": "("}),
    "error on purpose": (
        COUNT + "CASE WHEN age = 99 THEN ERROR(note) ELSE TRUE END",
        {"age": 99},
    ),
    "scalar sub-query": (COUNT + "age = (SELECT DISTINCT age FROM visits WHERE age >= 99)", {}),
    "long text": (COUNT + "LENGTH(REPEAT(ward, CAST(big * 1000 AS BIGINT))) > 5", {"big": 2**40}),
    "letter": (COUNT + "CHR(CAST(big AS INTEGER)) = 'x'", {"big": -5}),
    "parsed date": (COUNT + "STRPTIME(note, '%d') > DATE '2000-01-01'", {}),
    "specifier": (
        COUNT + "DATE_PART(IF(age = 99, note, 'day'), DATE '2020-01-01') = 1",
        {"age": 99},
    ),
    "interval": (COUNT + "CAST(note || ' days' AS INTERVAL) > INTERVAL 1 DAY", {}),
}


def with_numbers(*more):
    """The others' notes are whole numbers from 1, so that Eve alone breaks the casts."""
    return visits(*more).filter([*(each["note"] != "0" for each in OTHERS), *(True for _ in more)])


@cache
def without_eve():
    return gate(with_numbers())


def eves(values):
    if values == {}:
        return [eve(age=99), eve(age=100)]
    return [eve(**values)]


@pytest.mark.parametrize("case", [*ANSWERED, *REFUSED])
def test_an_error_gives_eve_away_where_the_engine_may_fail(case):
    sql, values = (ANSWERED | REFUSED)[case]
    sql = sql.replace("a.who = b.who AND ", "").replace("a.who = b.who", "TRUE")
    Rewriter(visits=with_numbers()).sql(sql)
    with pytest.raises(duckdb.Error):
        Rewriter(visits=with_numbers(*eves(values))).sql(sql)


@pytest.mark.parametrize("case", [*ANSWERED, *REFUSED])
def test_no_row_decides_whether_a_question_fails(case):
    sql, values = (ANSWERED | REFUSED)[case]
    here, there = gate(with_numbers(*eves(values))), without_eve()
    shown = seen(here, sql)
    assert shown == seen(there, sql)
    assert (shown[0] == "answer") is (case in ANSWERED)
    if case in ANSWERED:
        assert loss(here, there, sql) <= 1


# NaN and infinity

POISON = {
    "NaN": {"cost": math.nan},
    "infinity": {"cost": math.inf},
    "minus infinity": {"cost": -math.inf},
    "a huge number": {"cost": 1.7e308},
}
POISONED = [
    "SELECT SUM(cost) AS x FROM visits",
    "SELECT AVG(cost) AS x FROM visits",
    "SELECT SUM(cost * cost) AS x FROM visits",
    "SELECT STDDEV(cost) AS x FROM visits",
    "SELECT CORR(cost, age) AS x FROM visits",
    "SELECT SUM(LEAST(9, EXP(cost * 100))) AS x FROM visits",
    "SELECT SUM(GREATEST(0, LEAST(9, 1 / (cost - cost)))) AS x FROM visits",
    "SELECT MEDIAN(cost) AS x FROM visits",
    "SELECT MAX(cost) AS x FROM visits",
    "SELECT COUNT(*) AS x FROM visits WHERE cost > 0 OR NOT cost > 0",
    "SELECT SUM(s) AS x FROM (SELECT who, LEAST(200, SUM(cost)) AS s FROM visits GROUP BY who)",
]


@pytest.mark.parametrize("poison", POISON)
def test_one_value_spoils_a_plain_sum(poison):
    sql = POISONED[2]  # squares: the huge one becomes infinite too
    clean, spoilt = (Rewriter(visits=visits(*more)) for more in ([], [eve(**POISON[poison])]))
    assert math.isfinite(clean.number(sql))
    try:
        assert not math.isfinite(spoilt.number(sql))
    except duckdb.OutOfRangeException:
        assert poison == "a huge number"


@pytest.fixture(scope="module")
def poisoned():
    return worlds(*(eve(**values) for values in POISON.values()), rows_per_unit=4)


@pytest.mark.parametrize("sql", POISONED)
def test_no_value_spoils_an_answer(sql, poisoned):
    here, there = poisoned
    assert loss(here, there, sql) <= 1
    assert seen(here, sql) == seen(there, sql)
    assert math.isfinite(here.sql(sql, epsilon=1).table.column("x")[0].as_py())


@pytest.mark.parametrize("poison", POISON)
def test_no_kind_of_poison_spoils_a_sum_of_squares(poison, poisoned):
    sql = POISONED[2]
    here, there = gate(visits(eve(**POISON[poison])), rows_per_unit=4), poisoned[1]
    assert loss(here, there, sql) <= 1
    assert seen(here, sql) == seen(there, sql)


def test_words_that_mean_infinity_are_no_numbers_in_a_file_either(tmp_path):
    """Texts of a CSV file are read by rule, not by what the engine can make of them."""
    columns = {"cost": {"between": [0, 100]}}
    answers = []
    for name, more in (("clean", []), ("poisoned", ["inf", "nan", "1e999", "-Infinity", CANARY])):
        (tmp_path / name).mkdir()
        file = tmp_path / name / "visits.csv"
        file.write_text("who,cost\n" + "".join(f"p{i},{i}\n" for i in range(50)) + "".join(
            f"{EVE},{word}\n" for word in more))  # fmt: skip
        answers.append(ng.open(file, unit="who", rows_per_unit=3, epsilon=99, columns=columns))
    for sql in POISONED[:2]:
        assert loss(*answers, sql) <= 1
        assert seen(answers[0], sql) == seen(answers[1], sql)


# overflow


BELOW = "SELECT CAST(COUNT(*) - 61 AS UBIGINT) AS n FROM visits"


def test_a_plain_total_overflows_at_an_exact_number_of_rows():
    above = "SELECT CAST(COUNT(*) + 67 AS TINYINT) FROM visits"
    Rewriter(visits=visits(eve())).sql(BELOW)
    with pytest.raises(duckdb.Error):
        Rewriter(visits=visits()).sql(BELOW)
    Rewriter(visits=visits()).sql(above)
    with pytest.raises(duckdb.Error):
        Rewriter(visits=visits(eve())).sql(above)


def test_a_cast_of_a_count_is_about_the_noisy_number_or_refused_beforehand():
    """Whether it fails is decided by what was released, or by the words; never by the rows."""
    found = []
    for _ in range(4):
        mine = gate(visits(eve()))
        noisy = mine.sql("SELECT COUNT(*) AS n FROM visits", epsilon=1).table.column("n")[0].as_py()
        kind, *_ = seen(mine, BELOW, fresh=False)
        found.append((kind == "answer", round(noisy) >= 61))
        assert mine.spent.epsilon == 1
    assert all(one == other for one, other in found) or not any(one for one, _ in found)


@pytest.mark.parametrize("side", [1, -1])
def test_a_sum_beyond_64_bits_stops_at_the_end_and_moves_no_further_than_its_price(side):
    most = 2**50
    columns = COLUMNS | {"big": {"between": [-most, most]}}
    heavy = [row(f"q{i}", big=side * most) for i in range(9000)]
    sql = "SELECT SUM(big) AS s FROM visits"
    with pytest.raises(duckdb.Error):
        Rewriter(visits=visits(*heavy, eve(big=side * most))).sql(
            "SELECT CAST(SUM(big) AS BIGINT) FROM visits"
        )
    here = gate(visits(*heavy, eve(big=-side * most)), columns=columns)
    there = gate(visits(*heavy), columns=columns)
    assert seen(here, sql)[0] == "answer"
    assert loss(here, there, sql) <= 1


def test_per_person_totals_do_not_overflow_either():
    sql = (
        "SELECT SUM(LEAST(9, GREATEST(0, s))) AS x FROM"
        " (SELECT who, SUM(big) AS s FROM visits GROUP BY who)"
    )
    here, there = worlds(*[eve(big=2**63 - 1)] * 20)
    assert seen(here, sql) == seen(there, sql)
    assert seen(here, sql)[0] == "answer"
    assert loss(here, there, sql) <= 1


def test_no_row_keeps_an_engine_busy_until_it_gives_up(tmp_path):
    """Public tables that are joined on nothing multiply whoever a filter leaves, or nobody."""
    pq.write_table(pa.table({"who": [1, 2]}), tmp_path / "visits.parquet")
    pq.write_table(pa.table({"k": range(4_000)}), tmp_path / "big.parquet")
    (tmp_path / "p.toml").write_text(
        'name = "p"\nsource = "."\n[budget]\nepsilon = 10\n'
        '[tables.visits]\nunit = "who"\n[tables.big]\npublic = true\n'
    )
    door = ng.open(tmp_path / "p.toml", ledger=":memory:")
    door.sql("SELECT COUNT(*) FROM visits CROSS JOIN big", epsilon=1, rows_per_unit=1)
    one = "(SELECT who, 1 AS one FROM visits) v"
    twice = "(SELECT 1 AS one FROM big a JOIN big b ON a.k = b.k) b"
    for rows in (
        "visits CROSS JOIN big a CROSS JOIN big b",
        f"{one} JOIN {twice} ON v.one = b.one",
        "visits WHERE EXISTS (SELECT 1 FROM big a JOIN big b ON a.k = b.k WHERE a.k = who)",
        "visits WHERE who IN (SELECT a.k FROM big a JOIN big b ON a.k = b.k)",
    ):
        with pytest.raises(ng.NoisegateError, check=about("growth"), match="10,000,000"):
            door.sql(f"SELECT COUNT(*) FROM {rows}", epsilon=1, rows_per_unit=1)
    assert door.spent.epsilon == 1
