"""Every kind of order that a gate takes, on one hard table: people with several rows, NULLs, dates.

An `Order` reveals what its user sees, piece by piece, as soon as it is seen. ``price`` is what must
be charged by then. What the same order does after a crash is one of three:

    question   stored, or run again under its charge: never charged twice
    recipe     stored, or refused and spent: only ``fresh`` runs it anew, for a new charge
    session    always new: what was left open is spent
"""

import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, timedelta
from fractions import Fraction
from functools import cache
from pathlib import Path

import pyarrow as pa

import noisegate
from noisegate.curator.curator import Curator
from noisegate.gate import Gate
from noisegate.learners import KMeans, LogisticRegression
from noisegate.learners.queries import StatisticalQueries
from noisegate.ledger.open import open_ledger

BUDGET, DELTA = 1000, "1/10"
DAYS = [date(2024, 1, 1) + timedelta(days=i) for i in range(12)]
ROWS = pa.table({
    "pid": [i % 50 for i in range(150)],
    "ward": [("north", "south", None)[i % 3] for i in range(150)],
    "age": [(i * 7) % 90 for i in range(150)],
    "cost": [i % 40 or None for i in range(150)],
    "town": [f"town {i % 4}" for i in range(150)],
    "day": [DAYS[i % 12] for i in range(150)],
    "friend": [(i * 3) % 20 for i in range(150)],
})  # fmt: skip
FACTS = {
    "ward": {"in": ["north", "south"]},
    "age": {"between": [0, 90]},
    "cost": {"between": [0, 40]},
    "day": {"between": ["2024-01-01", "2024-01-12"]},
    "pid": {"between": [0, 49]},
    "friend": {"between": [0, 49]},
}
COUNT = "SELECT COUNT(*) FROM people WHERE age < "


def gate_over(ledger, *, people=True):
    """The same gate over another ledger that knows its accounts; all share one engine."""
    first = _first(os.getpid(), people)
    curator = first._curator
    return Gate(
        Curator(
            source=curator._source, tables=curator.tables, ledger=ledger, account=curator.account
        ),
        first._rules,
    )


def gate_at(where, *, people=True):
    """A gate over a new ledger file, where only the accounts are open."""
    Path(where).write_bytes(_new_ledger(people))
    return gate_over(open_ledger(str(where)), people=people)


@cache
def _first(_process, people):
    return open_gate(":memory:", people=people)


@cache
def _new_ledger(people):
    with tempfile.TemporaryDirectory() as directory:
        where = Path(directory) / "ledger.db"
        open_gate(str(where), people=people).ledger.close()
        return where.read_bytes()


def open_gate(ledger, *, people=True, accountant="pure", analyst="ann"):
    """The gate of an analyst, in front of the table; ``people``: a person has several rows."""
    unit = {"unit": "pid", "rows_per_unit": 3} if people else {}
    return noisegate.open(
        ROWS, epsilon=BUDGET, delta=DELTA, columns=FACTS, table="people", ledger=ledger,
        accountant=accountant, analyst=analyst, **unit,
    )  # fmt: skip


@dataclass(frozen=True)
class Order:
    name: str
    kind: str
    price: Fraction
    ask: Callable  # (gate, reveal, fresh) -> None
    people: bool = True
    first: Fraction | None = None  # what is spent at least once the first of several is seen

    def least_for(self, seen):
        """What is spent at least if the order was left properly after this was seen."""
        if not seen:
            return 0
        return self.first if self.first is not None and len(seen) == 1 else self.least

    @property
    def least(self):
        """What is spent at least once something was seen: recipes give back what they did not use."""
        return self.price * Fraction(999 if self.kind == "question" else 500, 1000)

    def __str__(self):
        return self.name


ORDERS = {}


def order(kind, price, **more):
    """Put an order on the list, under the name of its function."""

    def keep(ask):
        name = ask.__name__
        ORDERS[name] = Order(name=name, kind=kind, price=Fraction(price), ask=ask, **more)
        return ask

    return keep


def shown(answer):
    """An answer as its reader sees it: numbers and ±."""
    return str((answer.rows, answer.margins()))


@order("question", "1/2")
def sql(gate, reveal, fresh):
    reveal(
        shown(
            gate.sql(
                "SELECT ward, COUNT(*) AS n, AVG(age) AS a FROM people GROUP BY ward",
                epsilon="1/2",
                fresh=fresh,
            )
        )
    )


@order("question", 20)
def undeclared_keys(gate, reveal, fresh):
    reveal(
        shown(
            gate.sql(
                "SELECT town, COUNT(*) AS n FROM people GROUP BY town",
                epsilon=20,
                delta="1/1000",
                fresh=fresh,
            )
        )
    )


@order("question", "1/2")
def chosen_bounds(gate, reveal, fresh):
    reveal(
        shown(
            gate.sql(
                "SELECT SUM(pid * pid) AS s FROM people", epsilon="1/2", choose="caps", fresh=fresh
            )
        )
    )


@order("question", "1/2")
def two_levels(gate, reveal, fresh):
    """A more precise number buys the difference."""
    gate.sql("SELECT COUNT(*) AS n FROM people", epsilon="1/4")
    reveal(shown(gate.sql("SELECT COUNT(*) AS n FROM people", epsilon="1/2")))


@order("question", "1/2")
def choose(gate, reveal, fresh):
    reveal(
        str(
            gate.choose(
                "SELECT ward, COUNT(*) FROM people GROUP BY ward", epsilon="1/2", fresh=fresh
            ).winner
        )
    )


@order("question", "1/2")
def statistic(gate, reveal, fresh):
    reveal(
        str(gate.statistic(["age >= 65", "cost / 40"], epsilon="1/2", fresh=fresh).values.tolist())
    )


@order("question", "1/2")
def caps(gate, reveal, fresh):
    reveal(repr(str(gate.caps("people", epsilon="1/2"))))


@order("question", "1/2")
def smooth(gate, reveal, fresh):
    reveal(str(gate.smooth("SELECT MEDIAN(age) FROM people", epsilon="1/2", fresh=fresh).rows))


@order("question", "1/2", people=False)
def graph(gate, reveal, fresh):
    edges = gate.graph("people", source="pid", target="friend")
    reveal(str(edges.triangles(epsilon="1/2", delta="1/1000", fresh=fresh).rows))


@order("question", "1/2")
def distance(gate, reveal, fresh):
    reveal(
        str(
            gate.distance(
                "SELECT COUNT(*) FILTER (WHERE age < 20), COUNT(*) FILTER (WHERE age > 60) FROM people",
                epsilon="1/2",
                fresh=fresh,
            ).rows
        )
    )


@order("question", "1", people=False)
def crowd(gate, reveal, fresh):
    made = gate.release(
        "crowd-histogram",
        columns={"ward": None},
        probability="1/2",
        epsilon=1,
        delta="1e-3",
        fresh=fresh,
    )
    reveal(str(made.to_arrow().to_pylist()))


def size(rows):
    return len(rows["age"])


@order("question", "1/2")
def program(gate, reveal, fresh):
    made = gate.apply(
        size,
        columns=["age"],
        range=(0, 10),
        blocks=2,
        epsilon="1/2",
        seconds="1/10",
        rehearse=False,
        fresh=fresh,
    )
    reveal(str(made.values))


@order("question", "1/2")
def sparse(gate, reveal, fresh):
    made = gate.release("sparse", columns={"age": 1, "cost": 1}, epsilon="1/2", fresh=fresh)
    reveal(str(made.to_arrow().to_pylist()))


@order("question", "1/2", people=False)
def series(gate, reveal, fresh):
    for until in (DAYS[5], DAYS[11]):
        made = gate.release(
            "series", columns={"day": "day"}, until=until, horizon=12, epsilon="1/2"
        )
        reveal(str(made.values.tolist()))


@order("question", "1/2")
def people_series(gate, reveal, fresh):
    for until in (DAYS[5], DAYS[11]):
        made = gate.release(
            "series", columns={"day": "day"}, until=until, horizon=12, epsilon="1/2"
        )
        reveal(str(made.values.tolist()))


@order("recipe", "1/2")
def histogram(gate, reveal, fresh):
    made = gate.release(
        "histogram",
        columns={"age": 10, "ward": None},
        workload="ranges",
        epsilon="1/2",
        fresh=fresh,
    )
    reveal(str(made.values.tolist()))


@order("recipe", "1/2")
def adaptive_histogram(gate, reveal, fresh):
    made = gate.release(
        "histogram", columns={"age": 30}, method="mwem", rounds=2, epsilon="1/2", fresh=fresh
    )
    reveal(str(made.values.tolist()))


@order("recipe", "1/2")
def cube(gate, reveal, fresh):
    made = gate.release(
        "cube", columns={"age": 45, "ward": None}, sets=1, epsilon="1/2", fresh=fresh
    )
    reveal(str(made.to_arrow().to_pylist()))


@order("recipe", "1/2")
def synthetic(gate, reveal, fresh):
    made = gate.release("synthetic", columns=["ward", "age"], rows=20, epsilon="1/2", fresh=fresh)
    reveal(str(made.to_arrow().to_pylist()))


@order("recipe", "1/2")
def questions(gate, reveal, fresh):
    asked = [f"{COUNT}{age}" for age in (20, 40, 60)]
    made = gate.release("questions", workload=asked, epsilon="1/2", fresh=fresh)
    reveal(str(made.values.tolist()))


@order("recipe", "1/2")
def clusters(gate, reveal, fresh):
    rows = gate.matrix("people", ["age", "cost"])
    learner = KMeans(n_clusters=2, epsilon="1/2")
    reveal(str(learner.fit(rows, fresh=fresh).cluster_centers_.tolist()))


@order("recipe", "1/2")
def classifier(gate, reveal, fresh):
    rows = gate.matrix("people", ["age", "cost"], target="ward")
    reveal(str(LogisticRegression(epsilon="1/2").fit(rows, fresh=fresh).coef_.tolist()))


@order("recipe", "1/2")
def sampled_histogram(gate, reveal, fresh):
    made = gate.sample("1/2").release("histogram", columns={"age": 10}, epsilon="1/2", fresh=fresh)
    reveal(str(made.values.tolist()))


@order("session", "1/2")
def many(gate, reveal, fresh):
    with gate.many({"age": 30, "ward": None}, epsilon="1/2", questions=20, surprises=3) as session:
        for age in (30, 60):
            reveal(str(session.sql(f"{COUNT}{age}").value))
        reveal(str(session.count(ward="north").value))


@order("session", "1/2", first=Fraction("0.244"))  # the count of rows, and one of three questions
def statistical_queries(gate, reveal, fresh):
    with StatisticalQueries(gate, epsilon="1/2", queries=3) as session:
        for age in (30, 60):
            reveal(str(session.mean(f"age < {age}")))
