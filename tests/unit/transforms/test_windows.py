"""Windows and partners as the engine computes them for a gate: exact, and with ties decided."""

from functools import cache

import pyarrow as pa
import pytest
from reading_oracle import TABLES, database, same_rows

from noisegate.algebra.expression import Call, Field, Literal
from noisegate.algebra.relation import Among, Filter, Fold, Ordering, Table, Window, Windowed
from noisegate.algebra.tally import Sums, Term
from noisegate.curator.curator import Curator
from noisegate.desk.terms.rules import Rules
from noisegate.gate import Gate
from noisegate.ledger.open import open_ledger
from noisegate.privacy.loss import ApproxDP
from noisegate.sources.duckdb.source import DuckDBSource

HIGH = 500  # noise of scale 8 / 500 is 0 but for a chance of 1e-27
QUESTIONS = """
SELECT COUNT(*) AS n FROM (SELECT ROW_NUMBER() OVER (PARTITION BY patient_id ORDER BY visit_id) AS r FROM visits) WHERE r = 2
SELECT COUNT(*) AS n FROM (SELECT * FROM visits QUALIFY ROW_NUMBER() OVER (PARTITION BY patient_id ORDER BY seen DESC NULLS LAST) = 1) WHERE code <> 'A2'
SELECT COUNT(gap) AS n FROM (SELECT DATE_DIFF('day', LAG(seen) OVER (PARTITION BY patient_id ORDER BY seen), seen) AS gap FROM visits) WHERE gap < 30
SELECT COUNT(*) AS n FROM (SELECT LAG(cost, 1, 5) OVER w AS d, LEAD(code, 2, 'x') OVER w AS e FROM visits WINDOW w AS (PARTITION BY patient_id ORDER BY visit_id)) WHERE e = 'x' OR d = 5
SELECT SUM(LEAST(a, 8)) AS a, SUM(LEAST(b, 8)) AS b, SUM(LEAST(c, 8)) AS c, SUM(LEAST(d, 8)) AS d FROM (SELECT COUNT(*) OVER (PARTITION BY patient_id) AS a, COUNT(cost) OVER (PARTITION BY patient_id ORDER BY code) AS b, RANK() OVER (PARTITION BY patient_id ORDER BY code) AS c, DENSE_RANK() OVER (PARTITION BY patient_id ORDER BY code DESC) AS d FROM visits)
SELECT COUNT(*) AS n FROM (SELECT SUM(cost) OVER w AS a, AVG(cost) OVER (w ROWS 1 PRECEDING) AS b, MIN(cost) OVER (w ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING) AS c FROM visits WINDOW w AS (PARTITION BY patient_id ORDER BY visit_id)) WHERE a > 20 AND b < 60 OR c IS NULL
SELECT COUNT(*) AS n FROM (SELECT COUNT(DISTINCT code) OVER (PARTITION BY patient_id) AS a, LAST_VALUE(cost) OVER (PARTITION BY patient_id ORDER BY visit_id ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) AS c FROM visits) WHERE a = 2 AND c IS NOT NULL
SELECT COUNT(*) AS n FROM (SELECT ROW_NUMBER() OVER (PARTITION BY visit_id ORDER BY amount) AS r FROM bills) WHERE r = 1
SELECT COUNT(*) AS n FROM visits v WHERE EXISTS (SELECT 1 FROM visits w WHERE w.patient_id = v.patient_id AND w.seen > v.seen)
SELECT COUNT(*) AS n FROM visits v WHERE NOT EXISTS (SELECT 1 FROM visits w WHERE w.patient_id = v.patient_id AND w.cost > v.cost) OR cost > 40
SELECT COUNT(*) AS n FROM patients p WHERE (SELECT SUM(cost) FROM visits v WHERE v.patient_id = p.patient_id) > 30
SELECT SUM(LEAST((SELECT COUNT(*) FROM visits w WHERE w.patient_id = v.patient_id AND w.visit_id < v.visit_id), 5)) AS s FROM visits v
SELECT COUNT(*) AS n FROM visits v WHERE cost = (SELECT MAX(cost) FROM visits w WHERE w.patient_id = v.patient_id)
SELECT COUNT(*) AS n FROM patients WHERE region NOT IN (SELECT region FROM regions WHERE country = 'X')
SELECT COUNT(*) AS n FROM patients WHERE region NOT IN (SELECT chapter FROM codes)
SELECT COUNT(*) AS n FROM survey s WHERE s.score > 3 OR EXISTS (SELECT 1 FROM codes c WHERE c.code >= s.code AND c.chapter = 'A')
SELECT COUNT(*) AS n FROM bills b WHERE (SELECT COUNT(*) FROM bills c WHERE c.visit_id = b.visit_id AND c.amount >= b.amount) = 1
SELECT COUNT(*) AS n FROM patients p WHERE (SELECT AVG(words) FROM notes WHERE pid = p.patient_id) > 3.5
""".strip().splitlines()  # fmt: skip


@cache
def gate():
    with database() as con:
        empty = {"doctors": pa.table({"doctor_id": pa.array([], pa.int64())})}
        frames = {
            name: empty[name] if name in empty else con.table(name).to_arrow_table()
            for name in TABLES
        }
    ledger = open_ledger(":memory:")
    budget = ApproxDP(10**6, 0)
    ledger.open_account("d", parent=None, accountant="pure", budget=budget, unit="patient")
    curator = Curator(
        source=DuckDBSource(frames, TABLES), tables=TABLES, ledger=ledger, account="d"
    )
    return Gate(curator, Rules())


@pytest.mark.parametrize("sql", QUESTIONS)
def test_a_gate_answers_as_duckdb_does(sql):
    terms = {} if "survey" in sql else {"rows_per_unit": 8}
    with database() as con:
        expected = con.execute(sql).fetchall()
    answer = gate().sql(sql, epsilon=HIGH * sql.count(" AS "), **terms)
    found = [tuple(row) for row in answer.to_pandas().round(6).itertuples(index=False)]
    assert same_rows(found, expected)


def test_the_first_row_of_a_unit_needs_no_cap():
    sql = "SELECT COUNT(*) AS n FROM (SELECT * FROM visits QUALIFY ROW_NUMBER() OVER (PARTITION BY patient_id ORDER BY visit_id) = 1)"
    plan = gate().plan(sql, epsilon=1)
    assert plan.margins(0.95)["n"] == pytest.approx(3, abs=1)
    assert not plan.expected.clipping


@pytest.mark.parametrize("how", [Among.FIRST, Among.LAST, Fold.COUNT])
def test_ties_are_decided_by_all_columns_and_not_by_the_order_of_rows(how):
    visits = TABLES["visits"]
    held = [(1, "A"), (1, "B"), (1, "C"), (2, "B"), (2, "A")]
    window = Window("w", how, Field("code"), (), (Ordering(Field("cost")),), (None, 0))
    rows = Windowed(Table(visits), (window,))
    told = {Fold.COUNT: Call("eq", (Field("w"), Literal(1)))}.get(
        how, Call("eq", (Field("w"), Literal("A")))
    )
    kept = Filter(rows, both(told, Call("eq", (Field("code"), Literal("A")))))
    term = Term(expression=Literal(1), grain=1, low=0, high=1)
    counts = set()
    for rows_in_order in (held, held[::-1], held[2:] + held[:2]):
        frame = pa.table({
            "visit_id": pa.array([0] * 5, pa.int64()),
            "patient_id": pa.array([who for who, _ in rows_in_order], pa.int64()),
            "code": [code for _, code in rows_in_order],
            "cost": pa.array([7.0] * 5),
            "seen": pa.array([None] * 5, pa.timestamp("us")),
        })  # fmt: skip
        source = DuckDBSource({"visits": frame}, {"visits": visits})
        tally = Sums(relation=kept, by=(), terms=(term,), rows_per_unit=9)
        counts.add(int(source.sums(tally)[0][0]))
    assert counts == {2}  # 'A' comes first among equals, of both


def both(*conditions):
    return Call("and", conditions)
