"""Groups, orders, ids and numbers of rows that exist only because of one person."""

import random
import re
from datetime import date

import numpy as np
import pyarrow as pa
import pytest
from naive import Rewriter
from worlds import (
    CANARY,
    EVE,
    OTHERS,
    SCHEMA,
    WARDS,
    eve,
    gate,
    is_refused,
    loss,
    measured,
    seen,
    visits,
    worlds,
)

import noisegate as ng
from noisegate.sql.drafts.purchase import finder_of

# keys of one person

FINDING = [
    "SELECT note, COUNT(*) AS n FROM visits GROUP BY note",
    "SELECT DISTINCT note FROM visits",
    "SELECT LOWER(note) AS note, AVG(cost) AS n FROM visits GROUP BY 1",
    "SELECT note, ward, COUNT(*) AS n FROM visits GROUP BY note, ward",
    "SELECT note, COUNT(*) AS n FROM visits GROUP BY ROLLUP (note)",
    "SELECT note, COUNT(*) AS n FROM visits GROUP BY note HAVING COUNT(*) >= 5 OR TRUE",
]


def test_a_key_of_one_person_is_shown_where_keys_are_exact():
    naive = Rewriter(visits=visits(*[eve()] * 1000))
    for sql in FINDING:
        assert any(CANARY.lower() in str(found).lower() for found in naive.sql(sql))
    at_least_five = "SELECT note, COUNT(*) FROM visits GROUP BY note HAVING COUNT(*) >= 5"
    assert CANARY in {key for key, _ in naive.sql(at_least_five)}  # a thousand rows of one person


@pytest.fixture(scope="module")
def heavy():
    return worlds(*[eve()] * 1000)


@pytest.mark.parametrize("sql", FINDING)
def test_a_key_of_one_person_stays_hidden(sql, heavy):
    """Shown with probability π(1) ≤ δ = 1e-10, which the mechanism bounds exactly."""
    here, there = heavy
    assert loss(here, there, sql) <= 1
    answer = here.sql(sql, epsilon=1)
    assert CANARY.lower() not in str(answer.table.to_pylist()).lower()
    for bought in here.plan(sql, epsilon=1, fresh=True).expected.bought:
        assert all(finder_of(each).probability(1)[1] <= 1e-10 for each in bought.keys)
        assert bought.keys


def test_keys_are_not_looked_for_where_there_is_no_delta():
    mine = gate(visits(eve()), delta=0)
    assert all(is_refused(mine, sql=sql) for sql in FINDING)


def test_a_key_that_is_not_declared_is_in_no_group():
    sql = "SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward"
    assert CANARY in {key for key, _ in Rewriter(visits=visits(eve(ward=CANARY))).sql(sql)}
    here, there = worlds(eve(ward=CANARY))
    assert seen(here, sql) == seen(there, sql)
    assert loss(here, there, sql) <= 1


# empty groups

GROUPED = {
    "a category": "SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward",
    "under a condition": "SELECT ward, COUNT(*) AS n FROM visits WHERE age = 99 GROUP BY ward",
    "two keys": "SELECT ward, age // 40 AS a, COUNT(*) AS n FROM visits GROUP BY ward, a",
    "bins": "SELECT age // 10 AS decade, AVG(cost) AS n FROM visits GROUP BY decade",
    "a truth": "SELECT age > 98 AS old, SUM(cost) AS n FROM visits GROUP BY old",
    "a roll-up": "SELECT ward, age > 98 AS old, COUNT(*) AS n FROM visits GROUP BY ROLLUP (ward, old)",
    "people": "SELECT ward, COUNT(DISTINCT who) AS n FROM visits GROUP BY ward",
    "a median": "SELECT ward, MEDIAN(cost) AS n FROM visits GROUP BY ward",
    "several": "SELECT ward, COUNT(*) AS n, AVG(cost) AS m, STDDEV(cost) AS s FROM visits GROUP BY ward",
}


def test_a_group_that_is_missing_tells_that_nobody_is_in_it():
    keys = [
        {key for key, _ in Rewriter(visits=rows).sql(GROUPED["a category"])}
        for rows in (visits(eve(ward="attic", age=99)), visits())
    ]
    assert keys[0] - keys[1] == {"attic"}


@pytest.fixture(scope="module")
def attic():
    return worlds(eve(ward="attic", age=99))


@pytest.fixture(scope="module")
def nobody():
    return gate(SCHEMA.empty_table())


@pytest.mark.parametrize("case", GROUPED)
def test_every_declared_group_is_there_whoever_is_in_it(case, attic, nobody):
    here, there = attic
    sql = GROUPED[case]
    shown = seen(here, sql)
    assert shown == seen(there, sql) == seen(nobody, sql)
    assert shown[2] >= 2
    assert loss(here, there, sql) <= 1


# the order of rows


def test_the_engine_groups_in_the_order_of_rows():
    """Eve was first, and so her ward is."""
    sql = "SELECT ward, COUNT(*) FROM visits GROUP BY ward"
    rows = [eve(ward="south"), *OTHERS]
    orders = [
        [key for key, _ in Rewriter(visits=pa.Table.from_pylist(table, schema=SCHEMA)).sql(sql)]
        for table in (rows, rows[1:])
    ]
    assert orders == [["south", "north"], ["north", "south"]]


def test_the_engine_adds_floating_point_numbers_in_the_order_of_rows():
    values = [2.0**60, 1.0, -(2.0**60), 1.0]
    sums = set()
    for order in (values, values[::-1], sorted(values)):
        naive = Rewriter(visits=visits().slice(0, 0).schema.empty_table(), t=pa.table({"x": order}))
        ((total,),) = naive._engine.execute("SELECT SUM(x) FROM t").fetchall()
        sums.add(total)
    assert len(sums) > 1


def test_groups_come_in_the_order_of_the_policy_however_rows_are_stored():
    rows = [eve(ward="south"), *OTHERS]
    tables = [rows, rows[::-1], sorted(rows, key=lambda each: each["cost"])]
    gates = [gate(pa.Table.from_pylist(table, schema=SCHEMA)) for table in tables]
    for sql in (GROUPED["a category"], GROUPED["two keys"], f"SELECT * FROM ({GROUPED['bins']})"):
        shown = [seen(each, sql) for each in gates]
        assert shown[0] == shown[1] == shown[2]
    answer = gates[0].sql(GROUPED["a category"], epsilon=1)
    assert answer.table.column("ward").to_pylist() == WARDS


def test_found_groups_come_in_their_own_order():
    """With ε = 50 a key of 15 people is shown for certain, that of one with probability 1e-10."""
    notes = []
    for rows in ([eve(), *OTHERS], [*OTHERS[::-1], eve()]):
        mine = gate(pa.Table.from_pylist(rows, schema=SCHEMA))
        answer = mine.sql("SELECT note, COUNT(*) AS n FROM visits GROUP BY note", epsilon=50)
        notes.append(answer.table.column("note").to_pylist())
        (bought,) = answer.plan.expected.bought
        assert finder_of(bought.keys[0]).sure < 15
    assert notes[0] == notes[1]
    found = [note for note in notes[0] if note is not None]
    assert found == ["0", "1", "2", "3"]


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT ward, SUM(cost) AS s, AVG(cost) AS m FROM visits GROUP BY ward",
        "SELECT SUM(cost * cost) AS s FROM visits",
        "SELECT SUM(LEAST(90, s)) AS s FROM (SELECT who, SUM(cost) AS s FROM visits GROUP BY who)",
        "SELECT SUM(s) AS s FROM (SELECT who, LEAST(9, MIN(cost) + COUNT(note)) AS s FROM visits GROUP BY who)",
        "SELECT MEDIAN(cost) AS s FROM visits",
        "SELECT COUNT(DISTINCT note) AS s FROM visits",
        "SELECT COUNT(*) AS s FROM visits a JOIN visits b USING (who)",
    ],
)
def test_exact_numbers_do_not_depend_on_the_order_of_rows(sql):
    """Also where one person has more rows than count: which of them do is no matter of order."""
    shuffled = random.Random(5)
    rows = [*OTHERS, *(eve(ward=WARDS[i % 2], cost=i / 7, note=str(i)) for i in range(40))]
    found = []
    for _ in range(2):
        mine = gate(pa.Table.from_pylist(rows, schema=SCHEMA))
        pairs = measured(mine, mine.plan(sql, epsilon=1))
        found.append([[np.sort(part).tolist() for part in exact] for _, exact in pairs])
        shuffled.shuffle(rows)
    assert found[0] == found[1]


# ids, and whatever shows a value of one row

OF_ONE_ROW = [
    "SELECT {x}, COUNT(*) FROM visits GROUP BY {x}",
    "SELECT DISTINCT {x} FROM visits",
    "SELECT MIN({x}) FROM visits",
    "SELECT MAX({x}) FROM visits",
    "SELECT ANY_VALUE({x}) FROM visits WHERE age = 99",
    "SELECT FIRST({x} ORDER BY age DESC) FROM visits",
    "SELECT LAST({x}) FROM visits",
    "SELECT ARG_MAX({x}, age) FROM visits",
    "SELECT MAX_BY({x}, age) FROM visits",
    "SELECT LIST({x}) FROM visits",
    "SELECT ARRAY_AGG({x}) FROM visits",
    "SELECT STRING_AGG({x}, ',') FROM visits",
    "SELECT MODE({x}) FROM visits WHERE age = 99",
    "SELECT HISTOGRAM({x}) FROM visits",
    "SELECT APPROX_TOP_K({x}, 99) FROM visits",
    "SELECT {x} FROM visits WHERE age = 99",
    "SELECT (SELECT {x} FROM visits WHERE age = 99) AS x",
    "SELECT ward, (SELECT ANY_VALUE({x}) FROM visits WHERE age = 99) AS x, COUNT(*) FROM visits GROUP BY ward",
    "SELECT COUNT(*), MAX({x}) OVER () FROM visits GROUP BY {x}",
    "SELECT TO_JSON(visits) FROM visits",
    "SELECT visits FROM visits",
    "SELECT COLUMNS(*) FROM visits",
    "FROM visits",
    "TABLE visits",
    "SELECT * FROM visits",
    "SELECT * EXCLUDE (ward) FROM visits",
    "FROM visits SELECT {x}",
    "UNPIVOT visits ON {x} INTO NAME k VALUE v",
    "SELECT UNNEST(LIST({x})) FROM visits",
    "VALUES ((SELECT MAX({x}) FROM visits))",
    "SELECT COUNT(*) FROM visits ORDER BY MAX({x})",
    "SELECT CASE WHEN COUNT(*) > 0 THEN MAX({x}) END FROM visits",
]


@pytest.mark.parametrize("sql", OF_ONE_ROW[:-2])
def test_values_of_one_row_pass_where_only_aggregates_are_noised(sql):
    naive = Rewriter(visits=visits(eve(age=99)))
    assert re.search(rf"\bp\d\d\b|{EVE}", str(naive.sql(sql.format(x='"WHO"'))))


@pytest.fixture(scope="module")
def no_delta():
    return worlds(eve(age=99), delta=0)


@pytest.mark.parametrize("sql", OF_ONE_ROW)
def test_ids_and_values_of_one_row_do_not_leave(sql, no_delta):
    here, there = no_delta
    for column in ("who", "note", '"WHO"', "name"):
        assert is_refused(here, there, sql=sql.format(x=column))


def test_nothing_that_is_kept_or_shown_names_a_person():
    here = gate(visits(*[eve(age=99)] * 5))
    asked = [*GROUPED.values(), "SELECT note, COUNT(*) AS n FROM visits GROUP BY note"]
    answers = [here.sql(sql, epsilon=1) for sql in asked]
    kept = [
        repr(here),
        *(str(answer) + answer._repr_html_() + answer.to_json() for answer in answers),
        *(str(answer.card()) + str(answer.plan.to_dict()) for answer in answers),
        *map(repr, here.history()),
        *(str(settled) for settled in here.ledger.settled(-1)),
        *(repr(table) for table in here.tables.values()),
    ]
    text = "\n".join(kept)
    assert "visits" in text
    for word in (EVE, CANARY, "p07", "n42"):
        assert word not in text


# exact numbers of rows


def test_the_length_of_an_answer_counts_rows_where_keys_are_exact():
    naive = Rewriter(visits=visits(eve()))
    assert len(naive.sql("SELECT 1 FROM visits")) == 61
    assert naive.sql("SELECT ROW_NUMBER() OVER () AS n FROM visits ORDER BY n DESC")[0][0] == 61
    assert len(naive.sql("SELECT AGE, COUNT(*) FROM visits GROUP BY ALL")) == 50


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT 1 FROM visits",
        "SELECT 'x' AS x FROM visits",
        "SELECT ROW_NUMBER() OVER () AS n FROM visits",
        "SELECT COUNT(*) OVER () AS n FROM visits",
        "SELECT rowid, COUNT(*) FROM visits GROUP BY rowid",
        "SELECT COUNT(*) FROM visits GROUP BY ROW_NUMBER() OVER ()",
        "SELECT UNNEST(RANGE(COUNT(*))) FROM visits GROUP BY who",
        "SELECT (SELECT COUNT(*) FROM visits v WHERE v.age = x.age) FROM visits x",
        "SELECT r FROM range(100) t(r) WHERE EXISTS (SELECT 1 FROM visits WHERE age = r)",
        "SELECT r FROM range(100) t(r), visits",
        "SELECT 1 FROM visits UNION ALL SELECT 2",
        "SELECT 1 WHERE EXISTS (SELECT 1 FROM visits WHERE age = 99)",
        "SELECT APPROX_COUNT_DISTINCT(who) FROM visits",
        "SELECT CHECKSUM(note) FROM visits",
        "SELECT BIT_XOR(HASH(note)) FROM visits",
        "SELECT ENTROPY(note) FROM visits",
    ],
)
def test_no_exact_number_of_rows_leaves(sql, attic):
    assert is_refused(*attic, sql=sql)


def test_counting_the_rows_of_an_answer_counts_declared_groups(attic, nobody):
    """Exact numbers in free SQL are about the released table, which has its declared shape."""
    sql = "SELECT COUNT(*) AS n FROM (SELECT ward, COUNT(*) AS c FROM visits GROUP BY ward)"
    for each in (*attic, nobody):
        assert each.sql(sql, epsilon=1).table.column("n").to_pylist() == [len(WARDS)]


def test_what_is_free_is_the_same_with_and_without_eve():
    here, there = worlds(eve(ward=CANARY, cost=1e9, age=10**9, note=""))
    assert repr(here) == repr(there)
    assert here.tables == there.tables
    assert [repr(entry.kind) for entry in here.history()] == [
        repr(entry.kind) for entry in there.history()
    ]
    for sql in GROUPED.values():
        plans = [each.plan(sql, epsilon=1).to_dict() for each in (here, there)]
        assert plans[0] == plans[1]


def test_dates_and_bins_of_one_person_make_no_new_group():
    """Parts of a date are keys of the declared span, not of the rows."""
    columns = {"day": {"between": [date(2024, 1, 1), date(2025, 12, 31)]}}
    sql = "SELECT EXTRACT(year FROM day) AS y, COUNT(*) AS n FROM t GROUP BY y"
    days = [date(2024, 5, i) for i in range(1, 30)]
    tables = [pa.table({"day": days + more}) for more in ([], [date(1931, 7, 7)])]
    naive = [len(Rewriter(t=rows).sql(sql)) for rows in tables]
    assert naive == [1, 2]
    mine = [ng.open(rows, table="t", epsilon=9, columns=columns) for rows in tables]
    assert seen(mine[0], sql) == seen(mine[1], sql)
    assert loss(*mine, sql) <= 1
