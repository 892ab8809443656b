"""However large an ε is, a model or a release is answered, or refused before anything is charged.

Noise has a least width. A share that would buy less gets that, and costs less than it might.
"""

import warnings
from functools import cache

import numpy as np
import pandas as pd
import pytest

import noisegate as ng
from noisegate import learners
from noisegate.releases.recipes import RECIPES

COUNT = 300
COLUMNS = {
    "age": {"between": [0, 100], "type": "integer", "nullable": False},
    "x": {"between": [0, 1], "nullable": False},
    "cost": {"between": [0, 250], "nullable": False},
    "ward": {"in": ["north", "south"], "nullable": False},
    "sick": {"in": ["no", "yes"], "nullable": False},
}
TARGETS = {"Ridge": "cost", "LinearRegression": "cost"} | dict.fromkeys(
    ["CategoricalNB", "DecisionTreeClassifier", "GaussianNB", "LinearSVC", "LogisticRegression",
     "Perceptron", "RandomForestClassifier"], "sick",
)  # fmt: skip
UNITS = {"unit": "pid", "rows_per_unit": 3, "groups_per_unit": 2}
GATES = {"rows": {}, "units": UNITS, "zcdp": UNITS | {"accountant": "zcdp"}}
LARGE = {"rows": [3_000, 12_000], "units": [10**5], "zcdp": [1_000]}
FLAT = "SELECT COUNT(*) FROM people GROUP BY BIN(age, 5)"
SQUARE = "SELECT COUNT(*) FROM people GROUP BY BIN(age, 10), BIN(x, 0.1)"
OTHERS = {
    "sparse": {"columns": {"ward": None, "sick": None}},
    "cube": {"columns": {"ward": None, "sick": None}},
    "cdf": {"columns": {"age": None}},
    "above": {"columns": {"age": 10}, "threshold": 20},
    "synthetic": {"columns": ["ward", "age"]},
    "questions": {
        "columns": {"ward": None, "age": 10},
        "workload": ["SELECT COUNT(*) FROM people WHERE age < 30"],
    },
}


@cache
def people():
    dice = np.random.default_rng(1)
    rows = pd.DataFrame(
        {
            "pid": np.arange(COUNT) // 3,
            "age": dice.integers(0, 90, COUNT),
            "x": dice.random(COUNT),
            "ward": dice.choice(["north", "south"], COUNT),
            "sick": dice.choice(["no", "yes"], COUNT),
        }
    )
    rows["cost"] = 2.0 * rows.age
    return rows


def gate_of(kind):
    terms = {"epsilon": 10**6, "delta": "1e-6", "ledger": ":memory:", **GATES[kind]}
    return ng.open(people(), table="people", columns=COLUMNS, **terms)


def answered(gate, ask):
    """That it is answered and can be shown, or refused with nothing spent."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert str(ask())
    except ng.NoisegateError:
        assert gate.spent.epsilon == 0
        return
    assert gate.spent.epsilon > 0


@pytest.mark.long
@pytest.mark.parametrize("kind", GATES)
@pytest.mark.parametrize("name", learners.ESTIMATORS)
def test_every_learner(name, kind):
    target = TARGETS.get(name)
    columns = ["ward"] if name == "CategoricalNB" else ["age", "x"]
    for epsilon in LARGE[kind]:
        gate = gate_of(kind)
        matrix = gate.matrix("people", columns, target=target)
        answered(gate, lambda: getattr(learners, name)(epsilon=epsilon).fit(matrix))  # noqa: B023


@pytest.mark.long
@pytest.mark.parametrize("kind", GATES)
@pytest.mark.parametrize("name", [*RECIPES, *OTHERS])
def test_every_release(name, kind):
    for epsilon in LARGE[kind]:
        gate = gate_of(kind)
        if name in OTHERS:
            answered(gate, lambda: gate.release(name, epsilon=epsilon, **OTHERS[name]))  # noqa: B023
            continue
        sql = SQUARE if "grid" in name or "tree" in name or name == "hybrid" else FLAT
        answered(gate, lambda: gate.release("table", sql, method=name, epsilon=epsilon))  # noqa: B023


def test_quantiles_of_units_with_several_rows():
    for epsilon in (3_000, 10**5):
        gate = gate_of("units")
        sql = "SELECT MEDIAN(age) AS m FROM people"
        answered(gate, lambda: gate.smooth(sql, epsilon=epsilon, delta="1e-6"))  # noqa: B023
