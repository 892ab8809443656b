"""Every feature on hard tables: it succeeds, or it is refused and the ledger has not moved.

The tables have units of many rows, caps of rows and groups that bind, owners behind a foreign key, NULLs, keys that nobody
declared, and two analysts below one budget; one world adds up ε and the other zCDP. See `hard_worlds`.
"""

from dataclasses import dataclass
from fractions import Fraction
from itertools import cycle

import pytest
from fuzz_target import PAID
from hard_worlds import world

import noisegate as ng
from noisegate.curator.curator import Curator
from noisegate.gate import Gate
from noisegate.learners.queries import StatisticalQueries


@dataclass(frozen=True)
class Facts:
    """Of a table: a number with an edge between its bins, keys and one of them, another number."""

    t: str
    n: str
    width: int
    edge: int
    k: str
    key: str
    x: str

    def said(self, text):
        return text.format(**vars(self))

    @property
    def number(self):
        return self.n.strip('"')

    @property
    def cells(self):
        return {self.number: self.width, self.k: None}

    def counts(self, more=None):
        asked = "SELECT COUNT(*) FROM {t} WHERE {n} < {edge}", "SELECT COUNT(*) FROM {t}", more
        return [self.said(each) for each in asked if each is not None]


VISITS = Facts(t="visits", n='"odd name"', width=1, edge=2, k="ward", key="north", x="cost")
NOTES = Facts(t="prescriptions", n="days", width=7, edge=7, k="drug", key="none", x="days")
METHODS = (
    "adaptive", "adaptive-grid", "ahp", "cells", "convex", "dawa", "fourier", "haar", "hybrid", "kdtree", "marginals",
    "mwem", "planned", "privtree", "quadtree", "seasonal", "sensing", "sketch", "tree", "uniform-grid",
)  # fmt: skip
PLACES = [("tight", VISITS), ("tight-zcdp", VISITS), ("tight-zcdp", NOTES)]
ALWAYS = {  # that every one of these tables can be asked
    "sql", "plan", "choose", "choose, listed", "choose, prior", "choose, interval", "auction", "smooth, trimmed",
    "smooth, Huber", "histogram", "table", "marginals", "cube", "sparse", "above", "cdf", "boxplot", "synthetic",
    "describe",
    "questions", "many", "many, workload", "smooth", "distance", "statistic", "statistical queries", "caps", "apply",
    "method cells", "method tree", "method haar", "sampled sql", "sampled histogram", "smooth, bar",
    "thresholds, listed", "part", "part by conditions",
}  # fmt: skip
FEATURES = {}


def feature(*names, **more):
    """Put a function of a gate and a table's facts on the list."""

    def keep(ask):
        FEATURES.update({name: lambda gate, of: ask(gate, of, **more) for name in names})
        return ask

    return keep


def length(rows):
    return len(next(iter(rows.values())))


@feature("sql")
def sql(gate, of):
    asked = "COUNT(*), SUM({n}), AVG({n}), VAR_POP({n}), COUNT(DISTINCT {n}), MEDIAN({n}), MIN({n})"
    return gate.sql(of.said(f"SELECT {{k}}, {asked} FROM {{t}} GROUP BY {{k}}"), epsilon=1)


@feature("sql, grouping sets")
def grouping_sets(gate, of):
    text = "SELECT {k}, COUNT(*), SUM({n}) FROM {t} GROUP BY ROLLUP ({k})"
    return gate.sql(of.said(text), epsilon=1)


@feature("sql, caps", choose="caps")
@feature("sql, bounds", choose="bounds")
def chosen(gate, of, choose):
    return gate.sql(of.said("SELECT COUNT(*), SUM({n}) FROM {t}"), epsilon=1, choose=choose)


@feature("sampled sql")
def sampled(gate, of):
    text = "SELECT {k}, COUNT(*), AVG({n}) FROM {t} GROUP BY {k}"
    return gate.sample("1/2").sql(of.said(text), epsilon=1)


@feature("plan")
def plan(gate, of):
    return gate.plan(of.said("SELECT {k}, AVG({n}) FROM {t} GROUP BY {k}"), relative=0.1, rows=100)


@feature("choose, listed", candidates={"line": [1, 2, 3]})
@feature("choose, prior", candidates={"line": [1, 2], "w": [1, 3]}, prior="w")
def listed(gate, of, **more):
    text = of.said("SELECT COUNT(*) FILTER (WHERE BIN({n}, 1) >= line) FROM {t}")
    return gate.choose(text, epsilon=1, **more)


@feature("choose, interval")
def on_interval(gate, of):
    text = of.said("SELECT COUNT(*) FILTER (WHERE at >= {n}) FROM {t}")
    return gate.choose(text, epsilon=1, candidates={"at": (0, 9)})


@feature("auction")
def auctioned(gate, of):
    return gate.auction(of.n, prices=[1, 2, 4], table=of.t, epsilon=1)


@feature("smooth, trimmed", trim="0.1")
@feature("smooth, Huber", clip=2)
def robust_mean(gate, of, **more):
    return gate.smooth(of.said("SELECT AVG({n}) FROM {t}"), epsilon=1, **more)


@feature("choose", score="COUNT(*)")
@feature("choose, noisy max", score="COUNT(*)", method="noisy-max", gap=True)
@feature("choose, sums", score="SUM({n})", k=2)
def choose(gate, of, score, **more):
    text = of.said(f"SELECT {{k}}, {score} FROM {{t}} GROUP BY {{k}}")
    return gate.choose(text, epsilon=1, **more)


@feature("histogram", made="histogram")
@feature("histogram of ranges", made="histogram", workload="ranges")
@feature("table", made="table")
@feature("marginals", made="marginals")
@feature("cube", made="cube")
@feature("cube of singles", made="cube", sets=1)
@feature("sparse", made="sparse")
@feature("sampled histogram", made="histogram", sample="1/2")
def release(gate, of, made, sample=None, **more):
    gate = gate if sample is None else gate.sample(sample)
    return gate.release(made, table=of.t, columns=of.cells, epsilon=1, **more)


@feature("cdf", made="cdf")
@feature("histogram of prefixes", made="histogram", workload="prefixes")
def one_axis(gate, of, made, **more):
    return gate.release(made, table=of.t, columns={of.number: of.width}, epsilon=1, **more)


for _method in METHODS:
    feature(f"method {_method}", made="histogram", method=_method)(release)
    feature(f"method {_method}, one axis", made="histogram", method=_method)(one_axis)


@feature("histogram of sums")
def sums(gate, of):
    return gate.release("histogram", of.said("SELECT SUM({n}) FROM {t} GROUP BY {k}"), epsilon=1)


@feature("map")
def mapped(gate, of):
    return gate.release("map", table=of.t, columns={of.number: of.width, of.x: 100}, epsilon=1)


@feature("above")
def above(gate, of):
    asked = [{of.k: of.key}, {of.number: (None, of.edge - 1)}]
    return gate.release(
        "above", table=of.t, columns=of.cells, questions=asked, threshold=3, epsilon=1
    )


@feature("boxplot")
def boxplot(gate, of):
    return gate.release("boxplot", table=of.t, columns={of.x: 10, of.k: None}, epsilon=1)


@feature("describe")
def describe(gate, of):
    return gate.describe(of.t, epsilon=1, choose="bounds")


@feature("series")
@feature("series that grows", until="2024-12-31")
def series(gate, of, **more):
    return gate.release("series", table=of.t, columns={"day": "year"}, epsilon=1, **more)


@feature("synthetic")
def synthetic(gate, of):
    return gate.release("synthetic", table=of.t, columns=list(of.cells), rows=20, epsilon=1)


@feature("questions")
@feature("questions about NULL", more="SELECT COUNT(*) FROM {t} WHERE {k} IS NULL")
@feature("questions about no cell", more="SELECT COUNT(*) FROM {t} WHERE {n} < -9")
@feature("questions about another key", more="SELECT COUNT(*) FROM {t} WHERE {k} = 'magic'")
@feature("questions, sampled", sample="1/2")
def questions(gate, of, more=None, sample=None):
    gate = gate if sample is None else gate.sample(sample)
    return gate.release("questions", table=of.t, workload=of.counts(more), epsilon=1)


@feature("many", surprises=3)
@feature("many, one row", surprises=3, rows_per_unit=1)
@feature("many, from nothing", surprises=3, start=0, rows=50)
@feature("many, sampled", surprises=3, sample="1/2")
@feature("many, sure", sure=True, rows=50)
def many(gate, of, sample=None, **more):
    gate = gate if sample is None else gate.sample(sample)
    with gate.many(of.cells, table=of.t, epsilon=1, questions=20, **more) as session:
        return session.answers(of.counts()), session.count(**{of.k: of.key}), session.model


@feature("many, workload")
@feature("many, workload about NULL", more="SELECT COUNT(*) FROM {t} WHERE {k} IS NULL")
@feature("many, a join", more="SELECT COUNT(*) FROM {t} JOIN drugs ON {k} = drug WHERE {n} < 3")
@feature("many, a cut bin", columns=True, more="SELECT COUNT(*) FROM {t} WHERE {x} < 3")
def many_listed(gate, of, more=None, columns=False):
    asked, cells = of.counts(more), of.cells if columns else None
    with gate.many(cells, table=of.t, workload=asked, epsilon=1) as session:
        return session.answers(asked)


@feature("crowd")
def crowd(gate, of):
    terms = {"probability": "1/2", "epsilon": 1, "delta": "1e-3"}
    return gate.release("crowd-histogram", table=of.t, columns={of.k: None}, **terms)


@feature("crowd, points")
def crowd_points(gate, of):
    cells = {of.number: of.width}
    return gate.release("crowd-points", table=of.t, columns=cells, crowd=20, epsilon=1)


@feature("smooth")
@feature("smooth, one row", rows_per_unit=1)
@feature("smooth, proposed", method="ptr", bound=3, delta="1e-3")
def smooth(gate, of, **more):
    return gate.smooth(of.said("SELECT MEDIAN({n}) FROM {t}"), epsilon=1, **more)


@feature("smooth, bar", bar="1/3")
@feature("smooth, bar with δ", bar="1/10", delta="1e-6")
def smooth_bar(gate, of, **more):
    made = gate.smooth(of.said("SELECT MEDIAN({n}) AS m FROM {t}"), epsilon=1, **more)
    assert made.margins()["m"][0] >= 0
    return made


@feature("thresholds, listed")
@feature("thresholds, listed with values", values=True)
def compared(gate, of, **more):
    return gate.compare(3, of.counts(), count=2, bound=100, epsilon=1, **more)


@feature("part")
@feature("part by conditions", by=["{n} < {edge}", "{n} >= {edge}"])
def in_part(gate, of, by=("{k}",)):
    asked = "AVG({n}) FILTER (WHERE {n} < {edge}) AS a, AVG({n}) FILTER (WHERE {n} >= {edge}) AS b"
    by = [of.said(each) for each in by]
    key = of.key if len(by) == 1 else by[0]
    part = {"by": by, "key": key, "table": of.t, "several": "first"}
    return gate.sql(of.said(f"SELECT {asked} FROM {{t}}"), epsilon=1, part=part)


@feature("questions about units")
def units(gate, of):
    counts = [each.replace("*", "DISTINCT patient_id") for each in of.counts()]
    return gate.release("questions", workload=counts, epsilon=1)


@feature("smooth by groups")
def smooth_by(gate, of):
    text = of.said("SELECT {k}, MEDIAN({n}) FROM {t} GROUP BY {k}")
    return gate.smooth(text, epsilon=1, delta="1e-6")


@feature("distance")
def distance(gate, of):
    parts = "COUNT(*) FILTER (WHERE {n} < {edge}) AS a, COUNT(*) FILTER (WHERE {n} >= {edge}) AS b"
    return gate.distance(of.said(f"SELECT {parts} FROM {{t}}"), epsilon=1)


@feature("graph")
@feature("graph of vertices", level="node")
def graph(gate, of, **more):
    found = gate.graph(of.t, source="visit_id", target=of.number, nodes=range(40), **more)
    return found.edges(epsilon=1)


@feature("statistic", epsilon=1)
@feature("statistic within", tolerance=0.1, rows=100)
def statistic(gate, of, **more):
    listed = [of.said("{n} < {edge}"), of.said("{n} / 10")]
    return gate.statistic(listed, table=of.t, **more).within(0.95)


@feature("statistical queries")
@feature("statistical queries, one row", rows_per_unit=1)
def queries(gate, of, **more):
    with StatisticalQueries(gate, of.t, epsilon=1, queries=3, **more) as session:
        return session.mean(of.said("{n} < {edge}")), session.mean(of.said("{n} / 10"))


@feature("caps")
def caps(gate, of):
    return gate.caps(of.t, epsilon=1)


@feature("bounds")
def bounds(gate, of):
    return gate.bounds(of.t, of.number, epsilon=1)


@feature("apply")
@feature("apply, median", aggregate="median")
@feature("apply, sampled", sample="1/2")
def apply(gate, of, sample=None, **more):
    gate = gate if sample is None else gate.sample(sample)
    return gate.apply(
        length, table=of.t, columns=[of.number], range=(0, 10), blocks=2, epsilon=1, seconds="1/10",
        rehearse=False, **more,
    )  # fmt: skip


def analysts(name):
    """Gates of two analysts over one ledger."""
    first = world(name).gate("ana")
    door, root = first.door, first.door.account.partition("/")[0]
    terms = first.ledger.balance(root)
    first.ledger.open_account(
        f"{root}/ben", parent=root, accountant=terms.accountant, budget=terms.budget, unit=terms.unit
    )  # fmt: skip
    second = Curator(
        source=door._source, tables=door.tables, ledger=first.ledger, account=f"{root}/ben"
    )
    return [first, Gate(second, first.rules)]


def outcome(gate, ask, of):
    """The refusal, if it was one."""
    try:
        assert str(ask(gate, of))
    except ng.NoisegateError as refusal:
        return refusal
    return None


@pytest.mark.long
@pytest.mark.parametrize(("name", "of"), PLACES)
def test_a_feature_succeeds_or_is_refused_with_nothing_charged(name, of):
    turns, done = cycle(analysts(name)), set()
    for what, ask in FEATURES.items():
        gate = next(turns)
        before, spent = gate.ledger.head(), gate.spent
        refusal = outcome(gate, ask, of)
        if refusal is None:
            done.add(what)
            if name == "tight" and what != "statistic within":
                assert gate.spent.epsilon - spent.epsilon <= Fraction(1), what
        elif refusal.about not in PAID:  # else a mechanism found nothing
            assert gate.ledger.head() == before, f"{what} is charged: {refusal}"
    assert done >= ALWAYS, f"refused: {ALWAYS - done}"
    assert ("series that grows" in done) == (of is VISITS)
    assert ("method convex" in done) == name.endswith("zcdp")
