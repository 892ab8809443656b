"""Everything that can be ordered goes one way: planned, paid, found again, drawn anew, kept."""

import json
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

import noisegate as ng
from noisegate import learners, orders
from noisegate.crowd.histogram import CrowdRelease
from noisegate.crowd.points import CrowdPoints
from noisegate.errors import OverBudget, SpecError
from noisegate.programs.applied import Applied
from noisegate.programs.text import program_of
from noisegate.releases.describe.description import Description
from noisegate.releases.forms.boxplots import BoxplotRelease
from noisegate.releases.forms.cdf import CdfRelease
from noisegate.releases.forms.cube import CubeRelease
from noisegate.releases.forms.running import SeriesRelease
from noisegate.releases.forms.table import TableRelease
from noisegate.releases.sparse.summary import SparseRelease
from noisegate.releases.thresholds.above import AboveRelease
from noisegate.synthetic.release import SyntheticRelease
from refusals import about

ROWS = pa.table({
    "age": np.arange(600) % 80,
    "ward": np.array(["north", "south", "west"])[np.arange(600) % 3],
    "cost": (np.arange(600) * 7 % 500).astype(float),
})  # fmt: skip
COLUMNS = {
    "age": {"between": [0, 79], "nullable": False},
    "ward": {"in": ["north", "south", "west"]},
    "cost": {"between": [0, 500]},
}
CELLS = {"age": 10, "ward": None}
SHAPE = {  # of every plan's JSON
    "kind": str, "sql": str, "epsilon": float, "price": float, "price_delta": float, "fits": bool,
    "confidence": float, "margins": dict, "notes": list,
}  # fmt: skip


@dataclass(frozen=True)
class Kind:
    """One kind of order: how it is asked for, and what can be done with it."""

    method: str  # of a gate; its plan is asked for by method_plan
    args: tuple = ()
    terms: dict = field(default_factory=dict)
    loads: type | None = None  # its release can be saved and read again
    sampled: bool = True
    fresh: bool = True

    def plan(self, gate, **more):
        name = "plan" if self.method == "sql" else f"{self.method}_plan"
        return getattr(gate, name)(*self.args, **self.terms | more)

    def run(self, gate, **more):
        return getattr(gate, self.method)(*self.args, **self.terms | more)


def release(name, loads, *, sampled=True, fresh=True, **terms):
    return Kind("release", (name,), {"epsilon": 1, **terms}, loads, sampled, fresh)


def mean_age(rows):
    return rows["age"].mean()


def how_many(rows):
    return len(rows["age"])


def halves(rows):
    old = (rows["age"] >= 40).mean()
    return [1 - old, old]


LINES = [([1, 0], 30), ([0, 1], 100)]
CROWD = {"columns": {"ward": None}, "probability": "1/4", "crowd": 40, "delta": "1e-6"}
KINDS = {
    "sql": Kind("sql", ("SELECT ward, COUNT(*) AS n FROM people GROUP BY ward",), {"epsilon": 1}),
    "choose": Kind(
        "choose", ("SELECT ward, COUNT(*) FROM people GROUP BY ward",), {"epsilon": 1}
    ),
    "choose, listed": Kind(
        "choose",
        ("SELECT SUM(ABS(BIN(cost, 50) - at)) FROM people",),
        {"epsilon": 1, "candidates": {"at": [100, 250, 400]}, "prior": {"250": 3}},
    ),
    "choose, on an interval": Kind(
        "choose",
        ("SELECT COUNT(*) FILTER (WHERE at BETWEEN age AND age + 10) FROM people",),
        {"epsilon": 1, "candidates": {"at": (0, 80)}},
    ),
    "auction": Kind("auction", ("cost",), {"epsilon": 1, "prices": range(50, 501, 50)}),
    "score": Kind(
        "choose_by",
        (halves,),
        {"epsilon": 1, "columns": ["age"], "candidates": ["young", "old"], "range": (0, 1),
         "blocks": 2, "seconds": "0.3"},
    ),
    "apply": Kind(
        "apply",
        (mean_age,),
        {"epsilon": 1, "columns": ["age"], "range": (0, 80), "blocks": 2, "seconds": "0.3"},
        Applied,
    ),
    "statistic": Kind("statistic", (["age >= 65", "cost / 500"],), {"epsilon": 1}),
    "smooth": Kind("smooth", ("SELECT MEDIAN(age) AS m FROM people",), {"epsilon": 1}),
    "smooth with a bar": Kind(
        "smooth", ("SELECT MEDIAN(age) AS m FROM people",), {"epsilon": 1, "bar": "1/3"}
    ),
    "compare": Kind(
        "compare",
        (20, [f"SELECT COUNT(*) FROM people WHERE ward = '{ward}'" for ward in ("north", "south")]),
        {"epsilon": 1, "count": 2}, sampled=False,
    ),
    "distance": Kind(
        "distance",
        (),
        {"epsilon": 1, "columns": ["age", "cost"], "label": "ward = 'north'", "separators": LINES},
    ),
    "histogram": release("histogram", TableRelease, columns=CELLS),
    "tree": release("tree", TableRelease, columns={"age": 10}),
    "marginals": release("marginals", TableRelease, columns=CELLS),
    "cube": release("cube", CubeRelease, columns=CELLS, sets=1),
    "sparse": release("sparse", SparseRelease, columns={"age": None, "cost": 10}),
    "above": release("above", AboveRelease, columns=CELLS, questions="cells", threshold=20),
    "boxplot": release("boxplot", BoxplotRelease, columns={"cost": None, "ward": None}),
    "describe": release("describe", Description, columns=["age", "ward", "cost"]),
    "cdf": release("cdf", CdfRelease, columns={"age": 10}),
    "series": release("series", SeriesRelease, columns={"age": 10}, until=39, fresh=False),
    "synthetic": release("synthetic", SyntheticRelease, columns=["ward", "age"], method="mst"),
    "questions": release(
        "questions",
        TableRelease,
        columns=CELLS,
        workload=["SELECT COUNT(*) FROM people WHERE age < 30"],
        rounds=1,
    ),
    "crowd-histogram": Kind(
        "release", ("crowd-histogram",), CROWD, CrowdRelease, sampled=False
    ),
    "crowd-points": Kind(
        "release", ("crowd-points",), CROWD | {"columns": {"age": 40}}, CrowdPoints, sampled=False
    ),
}  # fmt: skip


def order_of(kind):
    """The order that a method makes of what is said to it."""
    if kind.method == "release":
        return orders.release_order(*kind.args, **kind.terms)
    if kind.method in ("apply", "choose_by"):
        made = orders.ApplyOrder if kind.method == "apply" else orders.ScoreOrder
        return made.of(*kind.args, **kind.terms)
    if kind.method == "compare":
        return orders.ThresholdsOrder(threshold=kind.args[0], questions=kind.args[1], **kind.terms)
    first = {"statistic": "expressions", "auction": "column"}.get(kind.method, "sql")
    made = dict(zip([first], kind.args, strict=False)) | kind.terms
    return orders.order_from({"kind": kind.method} | made)


ORDERS = {name: order_of(kind) for name, kind in KINDS.items()} | {
    "caps": orders.CapsOrder(table="people", epsilon=1),  # of units, each by an age
    "bounds": orders.BoundsOrder(table="people", column="cost", epsilon=1),
    "fit": orders.FitOrder(model="PCA", columns=["age", "cost"], epsilon=1, options={"n_components": 1}),
    "itemsets": orders.FitOrder(model="FrequentItemsets", columns=["ward"], epsilon=1, options={"k": 2, "size": 1}),
    "graph": orders.GraphOrder(asked="edges", source="age", target="age + 1", nodes=range(80), epsilon=1),
    "claim": orders.ClaimOrder(program=program_of(how_many), trusted=True, epsilon=1, columns=["age"], seconds=1),
    "balls": orders.DistanceOrder(columns=["age"], centers=[[40]], radius=9, epsilon=1),
}  # fmt: skip


def opened(epsilon=20, **more):
    return ng.open(
        ROWS, table="people", columns=COLUMNS, epsilon=epsilon, delta="1e-3", ledger=":memory:",
        **more,
    )  # fmt: skip


def near(loss, price):
    """Prices are readings of an account, rounded; a recipe may leave a last step unused."""
    pairs = (loss.epsilon, price.epsilon), (loss.delta, price.delta)
    return all(float(a) == pytest.approx(float(b), rel=1e-6) for a, b in pairs)


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_is_planned_paid_found_again_drawn_anew_and_kept(name, tmp_path):
    kind, gate = KINDS[name], opened()
    plan = kind.plan(gate)
    assert gate.spent.epsilon == 0
    made = kind.run(gate)
    assert near(made.cost, plan.price)
    assert near(spent := gate.spent, plan.price)
    again = kind.run(gate)
    assert (again.cost.epsilon, gate.spent) == (0, spent)
    assert again.guarantee == made.guarantee
    assert (kind.plan(gate).price.epsilon, kind.plan(gate).free) == (0, True)
    if kind.fresh:
        assert kind.plan(gate, fresh=True).price == plan.price
        assert near(kind.run(gate, fresh=True).cost, plan.price)
        assert gate.spent.epsilon == pytest.approx(2 * plan.price.epsilon, rel=1e-6)
    else:
        with pytest.raises(SpecError, check=about("fresh")):
            kind.run(gate, fresh=True)
    if hasattr(made, "to_dict"):
        assert json.loads(json.dumps(made.to_dict()))
    if kind.loads is not None:
        made.save(tmp_path / "made.parquet")
        loaded = kind.loads.load(tmp_path / "made.parquet")
        assert loaded.to_csv() == made.to_csv()
        assert loaded.card().to_dict() == made.card().to_dict()
    assert gate.ledger.verify().ok


@pytest.fixture(scope="module")
def unasked():
    """Of a gate of each account only plans are asked for; nothing fits into the poor one."""
    return {"pure": opened(), "zcdp": opened(accountant="zcdp"), "poor": opened(epsilon="0.01")}


@pytest.mark.parametrize("name", KINDS)
def test_the_plan_of_every_kind_has_one_shape(unasked, name):
    plan = KINDS[name].plan(unasked["pure"])
    record = json.loads(json.dumps(plan.to_dict(0.9)))
    assert {key: type(record[key]) for key in SHAPE} == SHAPE
    assert record["confidence"] == 0.9
    assert record["price"] == float(plan.price.epsilon)
    names = [about for about, _ in plan.facts(0.9)]
    assert names[-1] == "price"
    assert names.count("mind") == len(plan.notes) == len(record["notes"])
    assert plan._repr_html_().count("<tr>") >= len(names)
    assert str(plan).splitlines()[-1].startswith("price")


@pytest.mark.parametrize("name", [name for name, kind in KINDS.items() if kind.sampled])
def test_every_kind_is_asked_about_a_sample_at_its_amplified_price(name):
    kind, gate = KINDS[name], opened()
    sample = gate.sample("1/2")
    plan = kind.plan(sample)
    made = kind.run(sample)
    assert near(made.cost, plan.price)
    assert near(gate.spent, plan.price)
    assert kind.run(sample).cost.epsilon == 0


@pytest.mark.parametrize("name", KINDS)
def test_what_does_not_fit_is_planned_as_such_and_refused_for_nothing(unasked, name):
    kind, gate = KINDS[name], unasked["poor"]
    assert not kind.plan(gate).fits
    with pytest.raises(OverBudget):
        kind.run(gate)
    assert gate.spent.epsilon == 0


@pytest.mark.parametrize(
    "model",
    [
        learners.KMeans(n_clusters=2, epsilon=1),
        learners.PCA(n_components=1, epsilon=1),
        learners.FrequentItemsets(epsilon=1, k=2, size=1),
    ],
    ids=lambda model: type(model).__name__,
)
def test_a_model_is_planned_for_free_and_found_again(model):
    gate = opened()
    matrix = gate.matrix("people", ["ward"] if hasattr(model, "k") else ["age", "cost"])
    plan = model.plan(matrix)
    assert (plan.price.epsilon, plan.kind, gate.spent.epsilon) == (1, "model", 0)
    assert type(model).__name__ in str(plan)
    model.fit(matrix)
    assert 0.9 < gate.spent.epsilon <= plan.price.epsilon + 1e-9  # what is left over goes back
    assert model.plan(matrix).free
    assert model.plan(matrix, fresh=True).price == plan.price


@pytest.mark.parametrize("name", ORDERS)
def test_every_order_is_the_same_after_json_planned_paid_and_found_again(name):
    order, gate = ORDERS[name], opened(**{"unit": "age"} if name == "caps" else {})
    sent = orders.order_from(json.loads(order.to_json()))
    assert sent == order
    plan = gate.plan(sent)
    assert (plan.price.epsilon > 0, gate.spent.epsilon) == (True, 0)
    gate.run(sent)
    spent, entries = gate.spent, len(gate.history())
    assert 0 < spent.epsilon <= plan.price.epsilon + Fraction(1, 10**6)
    assert gate.plan(order).free
    gate.run(order)  # the one that was sent is the one that was made
    assert (gate.spent, len(gate.history())) == (spent, entries)
    if name in KINDS and KINDS[name].fresh:
        assert near(gate.plan(sent, fresh=True).price, plan.price)


def test_a_session_is_an_order_too():
    order = orders.ManyOrder(columns={"ward": None}, epsilon=1, start=1, surprises=2)
    gate, sent = opened(), orders.order_from(json.loads(order.to_json()))
    price = gate.plan(sent).price
    with gate.run(sent) as session:
        assert session.count(ward="north").margin
    assert 0 < gate.spent.epsilon <= price.epsilon


def test_what_is_no_order_is_refused():
    gate = opened()
    for ask in (gate.plan, gate.run):
        with pytest.raises(SpecError, match="not an order"):
            ask({"kind": "sql"})
    with pytest.raises(SpecError, match="says its terms"):
        gate.plan(ORDERS["sql"], epsilon=2)


def test_a_plan_says_why_it_is_free():
    gate = opened()
    assert str(gate.plan("SELECT 1 AS one", epsilon=1)).endswith(
        "the question reads no private row"
    )
    kind = KINDS["sql"]
    kind.run(gate)
    assert str(kind.plan(gate)).endswith("free: released before")


@pytest.mark.parametrize(
    "name", ["apply", "describe", "smooth", "distance", "histogram", "sql", "statistic"]
)
def test_the_price_that_is_asked_for_is_stated_in_every_account(unasked, name):
    plan = KINDS[name].plan(unasked["zcdp"])
    assert (plan.epsilon, plan.to_dict()["epsilon"]) == (1, 1.0)
