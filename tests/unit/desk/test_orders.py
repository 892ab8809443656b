"""Orders are data: what JSON sends is the same order, and nothing unknown is in it."""

import json
import re
from dataclasses import fields
from datetime import date
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import jsonschema
import numpy as np
import pytest

from noisegate import orders
from noisegate.desk.order import Order, hints_of
from noisegate.errors import SpecError
from noisegate.orders import KINDS, RELEASES, order_from, release_order, schema
from noisegate.programs.text import program_of
from noisegate.releases.recipes import RECIPES
from noisegate.releases.recipes import recipe as recipe_of
from noisegate.synthetic.recipes import SYNTHESIZERS, synthesizer

SCHEMA = jsonschema.Draft202012Validator(schema())
PAGE = Path(__file__).parents[3] / "docs" / "reference.md"
DEEP = []
for _ in range(2000):
    DEEP = [DEEP]
GRAPH = {"source": "a", "target": "b", "epsilon": 1}


def ages(rows):
    return rows["age"].mean()


def classes():
    """Every class of orders, by its kind and name."""
    found = {kind: orders._loaded(place) for kind, place in KINDS.items()}
    found |= {name: orders._loaded(place) for name, place in RELEASES.items()}
    return found | {"table": orders.TableOrder, "running": orders.SeriesOrder}


ORDERS = {
    "sql": orders.SqlOrder(sql="SELECT 1", within=Decimal("0.25"), delta=1e-6, choose="caps", rows=9),
    "choose": orders.ChoiceOrder(sql="SELECT 1", epsilon=0.1, k=2, gap=True, method="noisy-max"),
    "listed candidates": orders.ChoiceOrder(sql="SELECT 1", candidates={"price": [1, 0.5], "w": [1, 2]}, prior="w"),
    "an interval": orders.ChoiceOrder(sql="SELECT 1", candidates={"hour": (0, 24)}),
    "a prior": orders.ChoiceOrder(sql="SELECT 1", candidates="prices", prior={"north": 0.5}),
    "auction": orders.AuctionOrder(column="bid", prices=[1, "1/2", 0.25], epsilon=1),
    "score": orders.ScoreOrder.of(ages, candidates=["a", "b"], range=(0, 1), blocks=2, epsilon=0.3),
    "caps": orders.CapsOrder(table="t", epsilon="1/3"),
    "bounds": orders.BoundsOrder(table="t", column="x", epsilon=1),
    "apply": orders.ApplyOrder.of(ages, range=(0, 0.1), columns=["age"], blocks=2, epsilon=0.3, imports=["math"]),
    "two numbers": orders.ApplyOrder.of(ages, range=[(0, 1), ("1/3", 2)], default=[0.5, Fraction(4, 3)], blocks=2),
    "statistic": orders.StatisticOrder(expressions="age >= 65", tolerance="0.01", rows=1000),
    "fit": orders.FitOrder(model="KMeans", columns=["age"], epsilon=1, options={"n_clusters": 3}),
    "many": orders.ManyOrder(columns={"age": 10}, workload=["SELECT 1"], epsilon=1, sure=True, rows=9),
    "thresholds": orders.ThresholdsOrder(threshold="2.5", questions=["SELECT 1"], count=2, values=True),
    "a part": orders.SqlOrder(sql="SELECT 1", part={"by": "ward", "key": "north", "several": "first"}),
    "a part by conditions": release_order("histogram", columns={"age": 1}, part={"by": ["a < 1", "a < 2"], "key": "a < 1"}),
    "smooth": orders.SmoothOrder(sql="SELECT 1", epsilon=1, delta="1e-6", method="ptr", bound=3),
    "a robust mean": orders.SmoothOrder(sql="SELECT 1", epsilon=1, trim=0.1, clip="1/2"),
    "distance": orders.DistanceOrder(columns=["x", "y"], label="s", separators=[([1, -2.5], 30)]),
    "balls": orders.DistanceOrder(columns=["x"], centers=[[0.1]], radius=Fraction(1, 3)),
    "claim": orders.ClaimOrder(program=program_of(ages), trusted=True, epsilon=1),
    "graph": orders.GraphOrder(asked="triangles", nodes=range(3, 9), beta="1/8", **GRAPH),
    "listed": orders.GraphOrder(asked="edges", nodes=["ann", "bob"], **GRAPH),
    "spanning": orders.GraphOrder(asked="spanning-tree-cost", weight="w", step=0.5, **GRAPH),
    "table": release_order(
        "tree", columns={"age": 0.1, "cost": [0, "1/2", Fraction(1, 3)], "day": "month", "ward": None},
        workload=[{"age": (20, None), "ward": ["north", "west"]}, {"day": (date(2026, 1, 1), "2026-02-01")}],
        epsilon=Decimal("0.10"), branching=4,
    ),
    "edges": release_order("histogram", columns={"age": (0, 18)}, epsilon=1, method="ahp", look=Fraction(1, 2)),
    "arrays": release_order("table", columns={"age": np.array([0, 9])}, rows_per_unit=np.int64(3)),
    "totals": release_order("totals", columns={"x": None}, parents=((0, 0, 1), (0, 0))),
    "running": release_order("series", columns={"day": "day"}, until=date(2026, 1, 2), horizon=8),
    "cdf": release_order("cdf", "SELECT 1", epsilon=1),
    "cube": release_order("cube", columns={"a": None}, sets=[["a"], ["a", "b"]], epsilon=1),
    "sparse": release_order("sparse", "SELECT 1", tau=3, unbiased=True, epsilon=1),
    "above": release_order("above", columns={"age": 1}, questions=[{"age": (20, 39)}], threshold="2.5"),
    "boxplot": release_order("boxplot", columns={"cost": None, "ward": None}, whiskers=0.05),
    "describe": release_order("describe", columns=["age"], choose="bounds", delta=1e-6, where="age > 1"),
    "synthetic": release_order(
        "synthetic", columns=["age", "ward"], workload={("age", "ward"): 3, ("sick",): "1/2"}, rounds=3,
        determined={"region": ("ward", {"north": "up"}), "adult": ("age", {(0, 17): False, (18, 99): True})},
        impossible=[{"age": (0, 14), "married": True}, "age > 90"], choose=["bounds"], method="aim",
    ),
    "questions": release_order("questions", workload=["SELECT 1"], rounds=2, average=True),
    "crowd-histogram": release_order("crowd-histogram", columns={"ward": None}, probability=0.25, crowd=9, biased={"ward": {"north": "1/3"}}),
    "crowd-points": release_order("crowd-points", columns={"age": 4}, probability="1/4", delta=1e-6),
}  # fmt: skip


@pytest.mark.parametrize("name", ORDERS)
def test_json_gives_an_equal_order(name):
    order = ORDERS[name]
    text = order.to_json()
    read = order_from(json.loads(text))
    assert read == order
    assert read.to_json() == text
    SCHEMA.validate(json.loads(text))


def test_every_kind_and_every_name_is_among_them():
    made = {type(order) for order in ORDERS.values()}
    assert made == set(classes().values())
    SCHEMA.check_schema(SCHEMA.schema)


def test_numbers_are_those_that_people_write():
    read = order_from({"kind": "sql", "sql": "SELECT 1", "epsilon": 0.1, "within": "1e-3"})
    assert (read.epsilon, read.within) == (Fraction(1, 10), Fraction(1, 1000))
    assert read.to_dict() == {
        "kind": "sql",
        "sql": "SELECT 1",
        "epsilon": "1/10",
        "within": "1/1000",
    }


@pytest.mark.parametrize(
    ("record", "words"),
    [
        ({}, "no order 'None'"),
        ([], "not an order"),
        ({"kind": "sqll"}, "Did you mean 'sql'"),
        ({"kind": "release", "name": "histogramm"}, "Did you mean 'histogram'"),
        ({"kind": "release"}, "name of the release"),
        ({"kind": "sql"}, "needs 'sql'"),
        ({"kind": "sql", "sql": "SELECT 1", "epsilonn": 1}, "Did you mean 'epsilon'"),
        ({"kind": "release", "name": "tree", "branching": 4}, "no such option: 'branching'"),
        ({"kind": "release", "name": "cube", "columns": {"a": None}, "file": "x"}, "no such option"),
        ({"kind": "sql", "sql": 3}, "sql is '3'"),
        ({"kind": "sql", "sql": "SELECT 1", "epsilon": "a"}, "epsilon is 'a'"),
        ({"kind": "sql", "sql": "SELECT 1", "epsilon": True}, "epsilon is"),
        ({"kind": "choose", "sql": "SELECT 1", "method": "exponentiel"}, "Did you mean 'exponential'"),
        ({"kind": "choose", "sql": "SELECT 1", "k": 1.5}, "k is"),
        ({"kind": "fit", "model": "KMean"}, "Did you mean 'KMeans'"),
        ({"kind": "fit", "model": "KMeans", "options": {"memory": 1}}, "no 'memory'"),
        ({"kind": "apply", "program": "file.py:name", "range": [0, 1]}, "program is"),
        ({"kind": "apply", "program": {"file": "a.py"}, "range": [0, 1]}, "program has no 'file'"),
        ({"kind": "apply", "program": {"text": "x ="}, "range": [0, 1]}, "lacks 'name'"),
        ({"kind": "apply", "program": {"text": "x =", "name": "x"}, "range": [0, 1]}, "not valid Python"),
        ({"kind": "apply", "program": {"text": "y = 1", "name": "x"}, "range": [0, 1]}, "define 'x'"),
        ({"kind": "claim", "program": {"text": "def f(r): 1", "name": "f"}}, "Nobody vouches"),
        ({"kind": "graph", "asked": "edges", **GRAPH, "delta": 1}, "does not depend on the rows"),
        ({"kind": "graph", "asked": "edges", **GRAPH, "nodes": {"from": "a"}}, "nodes is not a range"),
        ({"kind": "many", "workload": {"pairs": [1]}}, "not a list of pairs"),
        ({"kind": "many", "columns": {"pairs": [[{}, 1]]}}, "key is not a plain value"),
        ({"kind": "release", "name": "table", "workload": {"shape": [1]}}, "workload is"),
        ({"kind": "many", "columns": {"a": DEEP}}, "nested too deeply"),
        ({"kind": "s" * 10**6}, "no order"),
    ],
)  # fmt: skip
def test_what_is_unknown_or_wrong_is_refused_with_what_is_meant(record, words):
    with pytest.raises(SpecError, match=words) as refused:
        order_from(record)
    assert refused.value.fix


@pytest.mark.parametrize("value", [object(), float("nan"), b"x"])
def test_what_json_cannot_send_is_refused_when_it_is_sent(value):
    for order in (
        release_order("synthetic", columns=["a"], evidence=[value]),
        release_order("table", columns={"a": None}, workload=[{"a": value}]),
    ):
        with pytest.raises(SpecError, match="cannot be sent"):
            order.to_json()


def test_programs_travel_as_text_and_files_are_read_where_the_order_is_made(tmp_path):
    file = tmp_path / "mean.py"
    file.write_text("# of a column\ndef mean(rows):\n    import math\n    return 1\n")
    order = orders.ApplyOrder.of(f"{file}:mean", range=(0, 1), blocks=2, epsilon=1)
    assert str(tmp_path) not in order.to_json()
    record = order.to_dict()
    assert record["program"]["imports"] == ["math"]
    del record["program"]["imports"]  # as people may write it
    assert order_from(record) == order


def options_of(kind, names):
    made = {
        type(kind(name, **({"parents": ((0,),)} if name == "totals" else {}))) for name in names
    }
    return {each.name for one in made for each in fields(one)}


OWN = {  # keys that are no fields: of methods, of programs, of running
    "table": options_of(recipe_of, RECIPES) | {"fresh", "progress"},
    "synthetic": options_of(synthesizer, SYNTHESIZERS) | {"fresh", "progress"},
    "apply": {"imports"},
    "score": {"imports"},
    "distance": {"imports", "trusted", "seconds", "memory"},
}
SAID = {"name", "sql", "options", "program", "expressions", "asked", "column"}  # not by name
ANY = {"part"}  # of every order: methods of a gate of the part, and a term of SQL
TERMS = {
    "table": "TableTerms", "running": "SeriesTerms", "cdf": "TableTerms",
    "choose": "ChoiceTerms", "crowd-histogram": "CrowdTerms", "crowd-points": "CrowdTerms",
}  # fmt: skip


@pytest.mark.parametrize(
    "name", [n for n in classes() if n not in ("caps", "bounds", "fit", "claim", "graph")]
)
def test_the_terms_that_editors_complete_are_the_fields_of_the_order(name):
    terms = getattr(orders, TERMS.get(name, f"{name.capitalize()}Terms"))
    keys = set(terms.__required_keys__ | terms.__optional_keys__)
    kind = classes()[name]
    usual = {"fresh", "progress"} if kind.kind == "release" else set()
    own = OWN["table" if name == "cdf" else name] if name in OWN or name == "cdf" else usual
    said = SAID | ({"columns"} if name == "many" else set()) | (set() if name == "sql" else ANY)
    said |= {"threshold", "questions"} if name == "thresholds" else set()
    assert keys - own == {each.name for each in fields(kind)} - said - own
    assert own <= keys


def test_the_page_lists_every_kind_and_every_field():
    text = PAGE.read_text()
    labels = {"table": '`release`: "histogram"', "running": '`release`: "series" that grows'}
    for name, kind in classes().items():
        usual = f'`release`: "{name}"' if kind.kind == "release" else f"`{name}` | "
        rows = [row for row in text.splitlines() if row.startswith("| " + labels.get(name, usual))]
        known = set(re.findall(r"`(\w+)`", rows[-1].split("|")[2]))
        assert known == {each.name for each in fields(kind)} - {"name"} - ANY, name


def test_orders_are_final_and_their_fields_have_types_that_run_time_knows():
    for kind in classes().values():
        assert issubclass(kind, Order)
        assert {each.name for each in fields(kind)} <= hints_of(kind).keys()
        assert kind.__doc__
