"""Which caps a question has: what the policy's caps allow in its final relation.

At ε = 10⁶ numbers are whole and scales below 1/40, so one is off with a chance below e⁻¹⁵.
"""

from dataclasses import replace
from fractions import Fraction
from random import Random

import duckdb
import pyarrow as pa
import pytest

from door import table
from noisegate.curator.curator import Curator
from noisegate.desk.terms.terms import Terms
from noisegate.gate import Gate, Rules
from noisegate.ledger.open import open_ledger
from noisegate.privacy.domain import Column, Kind, Step
from noisegate.privacy.loss import ApproxDP
from noisegate.sources.duckdb.source import DuckDBSource
from noisegate.sql.bounds.limits import caps_of, thins
from noisegate.sql.reading.reader import read

CUSTOMERS = table("customers", "cid", ("cid", Kind.INTEGER),
                  Column(name="town", keys=("x", "y", "z"), nullable=False),
                  rows_per_unit_max=1, groups_per_unit_max=1)  # fmt: skip
ORDERS = table("orders", "customer", ("oid", Kind.INTEGER), ("customer", Kind.INTEGER),
               Column(name="day", kind=Kind.INTEGER, keys=(0, 1, 2, 3, 4), nullable=False), rows_per_unit_max=30, groups_per_unit_max=5)  # fmt: skip
LINES = table("lines", "customer", ("order_id", Kind.INTEGER), ("item", Kind.INTEGER),
              Column(name="n", kind=Kind.INTEGER, between=(Fraction(0), Fraction(9))),
              path=(Step(column="order_id", table="orders", key="oid"),),
              rows_per_unit_max=120, groups_per_unit_max=40)  # fmt: skip
ITEMS = table("items", "public", ("item", Kind.INTEGER),
              Column(name="price", kind=Kind.INTEGER, between=(Fraction(0), Fraction(20))),
              key=("item",))  # fmt: skip
TABLES = {each.name: each for each in (CUSTOMERS, ORDERS, LINES, ITEMS)}


def caps(sql, **terms):
    (block,) = read(sql, TABLES).blocks
    found = caps_of(block, Terms(**terms))
    return found.rows_per_unit, found.groups_per_unit


@pytest.mark.parametrize(("sql", "rows"), [
    ("SELECT COUNT(*) FROM lines", 120),
    ("SELECT COUNT(*) FROM lines l JOIN orders o ON l.order_id = o.oid", 120),
    ("SELECT COUNT(*) FROM orders o JOIN lines l ON l.order_id = o.oid", 120),
    ("SELECT COUNT(*) FROM lines l LEFT JOIN orders o ON l.order_id = o.oid", 120),
    ("SELECT COUNT(*) FROM orders o LEFT JOIN lines l ON l.order_id = o.oid", 150),
    ("SELECT COUNT(*) FROM lines l JOIN orders o ON l.order_id = o.oid WHERE o.day > 3", 120),
    ("SELECT COUNT(*) FROM lines l JOIN items i ON l.item = i.item", 120),
    ("SELECT COUNT(*) FROM customers c JOIN orders o ON c.cid = o.customer", 30),
    (("SELECT COUNT(*) FROM customers c JOIN orders o ON c.cid = o.customer "
     "JOIN lines l ON l.order_id = o.oid"), 120),
    ("SELECT COUNT(*) FROM orders a JOIN orders b ON a.day = b.day AND a.customer = b.customer", 900),
    ("SELECT COUNT(*) FROM orders a JOIN orders b ON a.oid = b.oid AND a.customer = b.customer", 900),
    ("SELECT COUNT(*) FROM orders WHERE customer IN (SELECT customer FROM orders)", 30),
])  # fmt: skip
def test_rows_of_a_join_are_those_of_the_side_that_has_one_partner_each(sql, rows):
    assert caps(sql)[0] == rows


def test_conditions_bring_no_caps_of_theirs():
    inside = "SELECT COUNT(*) FROM orders WHERE EXISTS (SELECT 1 FROM lines WHERE order_id = oid)"
    assert caps(inside) == caps("SELECT COUNT(*) FROM orders") == (30, 5)


def test_what_a_question_says_goes_before_the_policy():
    assert caps("SELECT COUNT(*) FROM lines", rows_per_unit=7, groups_per_unit=2) == (7, 2)


# within the caps nothing is lost


@pytest.fixture(scope="module")
def rows():
    """Customers with up to 30 orders and 120 lines, some of them with exactly so many."""
    random = Random(5)
    customers, orders, lines = [], [], []
    for cid in range(40):
        customers.append((cid, random.choice("xyz")))
        for _ in range(random.choice([0, 1, 2, 5, 30])):
            orders.append((len(orders), cid, random.choice([0, 0, 0, 1, 2, 3, 4])))
            for _ in range(random.choice([0, 1, 4])):
                item = random.randrange(3)
                lines.append((orders[-1][0], item, random.choice([-3, 0, 1, 5, 40, None])))
    items = [(item, 10 * item) for item in range(3)]
    frames = {}
    for here, held in zip(TABLES.values(), (customers, orders, lines, items), strict=True):
        columns = zip(here.columns, zip(*held, strict=True), strict=True)
        frames[here.name] = pa.table({name: list(column) for name, column in columns})
    return frames


def exactly(rows, sql):
    with duckdb.connect() as engine:
        for name, frame in rows.items():
            engine.register(name, frame)
        engine.execute("CREATE TEMP VIEW held AS SELECT order_id, item, "
                       "CASE WHEN n IS NOT NULL THEN LEAST(9, GREATEST(0, n)) END AS n FROM lines")  # fmt: skip
        return engine.execute(sql.replace("lines", "held")).fetchall()


WITHIN = [
    "SELECT COUNT(*) AS a, COUNT(n) AS b, SUM(n) AS c, COUNT(*) FILTER (WHERE n > 0) AS d FROM lines",
    (
        "SELECT town, COUNT(*) AS a FROM customers c JOIN orders o ON c.cid = o.customer "
        "GROUP BY town ORDER BY town"
    ),
    (
        "SELECT day, COUNT(*) AS a, SUM(n) AS b FROM lines l JOIN orders o ON l.order_id = o.oid "
        "GROUP BY day ORDER BY day"
    ),
    (
        "SELECT day, SUM(n) AS b FROM orders o LEFT JOIN lines l ON l.order_id = o.oid "
        "GROUP BY day HAVING COUNT(*) > 0 ORDER BY day"
    ),
    (
        "SELECT town, day, SUM(n * price) AS a FROM customers c JOIN orders o ON c.cid = o.customer "
        "JOIN lines l ON l.order_id = o.oid JOIN items i ON l.item = i.item "
        "GROUP BY town, day ORDER BY town, day"
    ),
    ("SELECT day, COUNT(*) AS a FROM orders GROUP BY ROLLUP (day) ORDER BY day NULLS LAST"),
    ("SELECT day, COUNT(DISTINCT customer) AS a FROM orders GROUP BY day ORDER BY day"),
]


@pytest.mark.parametrize("accountant", ["pure", "zcdp"])
@pytest.mark.parametrize("sql", WITHIN)
def test_within_the_caps_answers_are_those_of_plain_sql(rows, sql, accountant):
    book = open_ledger(":memory:")
    book.open_account(
        "clinic", parent=None, accountant=accountant, unit=str(ORDERS.unit),
        budget=ApproxDP(10**6, 0 if accountant == "pure" else Fraction(1, 10**6)),
    )  # fmt: skip
    source = DuckDBSource(rows, TABLES)
    gate = Gate(Curator(source=source, tables=TABLES, ledger=book, account="clinic"), Rules())
    epsilon = gate._desk.asked(Fraction(10**6 if accountant == "pure" else 1000))
    found, truth = gate.sql(sql, epsilon=epsilon).rows, exactly(rows, sql)
    assert len(found) == len(truth)
    for one, other in zip(found, truth, strict=True):
        # 120 rows of up to 180 at ρ = 500 000: deviations are below 30, and 0.2 for counts
        assert list(one) == pytest.approx(list(other), abs=0.4 if accountant == "pure" else 200)


# where the steward vouches for the caps, no number is called a lower bound


def said(rows, sql, *, vouched=(), **terms):
    tables = {
        name: replace(each, rows_per_unit_holds=name in vouched) for name, each in TABLES.items()
    }
    book = open_ledger(":memory:")
    book.open_account(
        "clinic", parent=None, accountant="pure", unit=str(ORDERS.unit), budget=ApproxDP(99, 0)
    )
    source = DuckDBSource(rows, tables)
    gate = Gate(Curator(source=source, tables=tables, ledger=book, account="clinic"), Rules())
    answer = gate.sql(sql, epsilon=1, **terms)
    capped = any(words.startswith("Capped") for words in answer.caveats)
    assert capped == any("contribution bound" in words for words in answer.caveats)
    return capped, bool(answer.lower())


SUMS = [sql for sql in WITHIN if "DISTINCT" not in sql and "- " not in sql]
PRIVATE = ("customers", "orders", "lines")


@pytest.mark.parametrize("sql", SUMS)
def test_bounds_that_nobody_exceeds_leave_nothing_out(rows, sql):
    assert said(rows, sql, vouched=PRIVATE) == (False, False)
    read_by = [name for name in PRIVATE if name in sql]
    for name in read_by:
        others = [other for other in PRIVATE if other != name]
        assert said(rows, sql, vouched=others) == (True, True)
    assert said(rows, sql, vouched=PRIVATE, rows_per_unit=3) == (True, True)


def test_people_in_more_groups_than_count_are_left_out_whatever_is_said_of_rows(rows):
    sql = "SELECT day, COUNT(DISTINCT customer) AS a FROM orders GROUP BY day"
    assert said(rows, sql, vouched=PRIVATE, groups_per_unit=3) == (True, True)
    sql = "SELECT town, COUNT(DISTINCT cid) AS a FROM customers GROUP BY town"
    assert said(rows, sql) == (True, True)
    assert said(rows, sql, vouched=PRIVATE) == (False, False)


@pytest.mark.parametrize(("sql", "thin"), [
    ("SELECT COUNT(*) FROM orders", False),
    ("SELECT COUNT(*) FROM orders WHERE day = 1", True),
    ("SELECT COUNT(*) FROM orders WHERE oid > 3", True),
    ("SELECT COUNT(*) FROM orders WHERE oid > 3 OR oid <= 3", False),
    ("SELECT COUNT(*) FROM lines WHERE n IS NOT NULL", True),  # most may have no value
    ("SELECT COUNT(*) FROM lines WHERE n > 3 OR NOT n > 3", False),
    ("SELECT COUNT(*) FROM lines WHERE n > 3 OR n < 3", True),
    ("SELECT COUNT(*) FROM (SELECT * FROM orders WHERE day = 1) JOIN lines ON order_id = oid", True),
    ("SELECT COUNT(*) FROM customers WHERE town = 'x'", True),
])  # fmt: skip
def test_conditions_thin_units_out_unless_they_leave_all_values_or_units_have_one_row(sql, thin):
    (block,) = read(sql, TABLES).blocks
    assert thins(block.relation) == thin
    one = TABLES | {"customers": replace(CUSTOMERS, rows_per_unit_holds=True)}
    (block,) = read(sql, one).blocks
    assert thins(block.relation) == (thin and "customers" not in sql)
