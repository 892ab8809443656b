"""Learning on the command line: trees, itemsets, rules, families, means, finite classes."""

import json
from math import inf, lgamma, log

import numpy as np
import pyarrow as pa
import pytest
from command_line import run
from pyarrow import csv

import noisegate as ng
from noisegate import learners
from noisegate.errors import NoisegateError
from noisegate.learners.classes import class_rows_needed, learn_class
from noisegate.learners.items.likelihood import fit_likelihood
from refusals import about

FACTS = {
    "age": {"type": "integer", "between": [0, 99]},
    "cost": {"between": [0, 50]},
    "ward": {"in": ["north", "south"]},
    "sick": {"in": ["no", "yes"]},
}
OPTIONS = ("--between", "age=0,99", "--type", "age=integer", "--between", "cost=0,50",
           "--keys", "ward=north,south", "--keys", "sick=no,yes")  # fmt: skip


def rows(count=4000):
    """Costs of a gamma law of shape 3 and mean 6; the sick are those from 60 on, but for 5 %."""
    dice = np.random.default_rng(8)
    age = dice.integers(0, 100, count)
    sick = (age >= 60) ^ (dice.random(count) < 0.05)
    return pa.table({
        "who": np.arange(count) // 2,
        "age": pa.array([None if n % 400 == 9 else int(v) for n, v in enumerate(age)]),
        "cost": np.minimum(50, dice.gamma(3, 2, count)),
        "ward": np.where(dice.random(count) < 0.7, "north", "south"),
        "sick": np.where(sick, "yes", "no"),
    })  # fmt: skip


ROWS = rows()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    found = tmp_path_factory.mktemp("learning")
    csv.write_csv(ROWS, found / "people.csv")
    return found


@pytest.fixture(scope="module")
def gates():
    opened = {"columns": FACTS, "table": "people", "epsilon": 10**4, "ledger": ":memory:"}
    return ng.open(ROWS, **opened), ng.open(ROWS, unit="who", rows_per_unit=2, **opened)


def learn(folder, *words):
    return run(*words[:1], "people.csv", *words[1:], *OPTIONS, "--budget", "90", cwd=folder).stdout


def test_a_tree_prints_as_a_tree(folder):
    shown = learn(folder, "learn", "DecisionTreeClassifier", "--columns", "age", "--target", "sick",
                  "--epsilon", "8", "--set", "max_depth=3")  # fmt: skip
    assert "|--- age <= " in shown
    assert "class: yes" in shown


def test_itemsets_and_rules_are_models_of_the_command(folder):
    terms = ("--columns", "ward,sick", "--epsilon", "8", "--set", "k=3")
    sets = learn(folder, "learn", "FrequentItemsets", *terms, "--set", "size=1")
    assert "ward=north" in sets
    assert "±" in sets
    words = ("learn", "AssociationRules", *terms, "--set", "confidence=0.3")
    assert "error" in learn(folder, *words, "--plan")
    assert "→" in learn(folder, *words)
    found = json.loads(learn(folder, *words, "--json"))
    assert {"given", "then", "support"} <= found["fitted"]["rules_"][0].keys()
    assert found["price"] == 0
    with pytest.raises(NoisegateError):
        learners.order.FitOrder.make(model="AssociationRules", options={"clusters": 2})


def test_families_are_models_of_the_command(folder, gates):
    shown = json.loads(learn(folder, "learn", "ExponentialFamily", "--set", "family=gaussian",
                             "--columns", "cost", "--epsilon", "8", "--json"))  # fmt: skip
    exact = ROWS["cost"].to_numpy()
    fitted = shown["fitted"]
    assert abs(fitted["parameters_"]["mean"] - exact.mean()) < fitted["within_"]["mean"] * 4
    before = gates[0].spent
    with pytest.raises(NoisegateError, check=about("family")):
        learners.ExponentialFamily(epsilon=1, family="cauchy").fit(
            gates[0].matrix(columns=["cost"])
        )
    assert gates[0].spent == before


def gamma(theta):
    shape, rate = theta[0] + 1, -theta[1]
    return lgamma(shape) - shape * log(rate) if shape > 0 and rate > 0 else inf


def test_a_family_of_ones_own_is_fitted_by_its_statistics(gates):
    """A gamma law of shape 3 and rate 1/2, at ε = 20: within five standard errors, 1e-6 each."""
    for gate in gates:
        fit = fit_likelihood(
            gate, ["LN((cost + 0.001) / 10)", "cost / 10"], gamma, start=[1, -1], epsilon=20
        )
        truth = np.array([2, -5])
        assert (np.abs(fit.parameters - truth) < 3 * fit.within()).all()
        assert (np.diag(fit.noise) < np.diag(fit.sampling) * 20).all()
        before = gate.spent
        with pytest.raises(NoisegateError, check=about("start")):
            fit_likelihood(gate, ["cost / 10"], gamma, epsilon=1)
        assert gate.spent == before


def test_means_and_families_on_the_command_line(folder):
    (folder / "own.py").write_text("def a(theta):\n    return float(theta[0] ** 2) / 2\n")
    terms = ("statistic", "cost / 50", "age >= 60", "--epsilon", "8")
    assert "±" in learn(folder, *terms)
    found = json.loads(
        learn(folder, "statistic", "cost / 50", "--family", "own.py:a", "--epsilon", "8", "--json")
    )
    assert found["parameters"] == pytest.approx(found["means"], abs=1e-6)  # A' is the identity
    words = (
        "statistic",
        "people.csv",
        "cost / 50",
        "--family",
        "own.py:b",
        "--epsilon",
        "8",
        *OPTIONS,
    )
    assert "no function" in run(*words, code=2, cwd=folder).stderr


def test_a_finite_class_is_learnt_with_few_more_errors_than_the_best(gates, folder):
    """Beyond the excess with probability 1e-9."""
    for gate in gates:
        rule = learn_class(gate, "age >= t", "sick = 'yes'",
                           candidates={"t": list(range(0, 100, 2))}, epsilon=4)  # fmt: skip
        assert abs(rule.choice.winner - 60) <= 2
        assert rule.excess(1 - 1e-9) < 60
    listed = learn_class(
        gates[0], ["age >= 90", "ward = 'north'", "age >= 62"], "sick = 'yes'", epsilon=4
    )
    assert listed.hypothesis == "age >= 62"
    shown = learn(folder, "hypothesis", "age >= t", "--label", "sick = 'yes'", "--epsilon", "4",
                  "--candidates", "t=20,60,80")  # fmt: skip
    assert "age >= t with t = 60" in shown
    before = gates[0].spent
    for said, terms in (
        ("age >= 3", {}),
        (["age >= 3"], {}),
        (["age > 1", "age > 2"], {"candidates": {"t": [1, 2]}}),
    ):
        with pytest.raises(NoisegateError, check=about("class")):
            learn_class(gates[0], said, "sick = 'yes'", epsilon=1, **terms)
    assert gates[0].spent == before


def test_the_rows_that_a_class_needs_are_those_of_its_bound():
    for size in (10, 10**6):
        need = class_rows_needed(size=size, error="0.02", epsilon="0.5", population=False)
        assert log(size / 0.05) / 0.5 <= need * 0.02 < log(size / 0.05) / 0.5 + 0.02
        assert class_rows_needed(size=size, error="0.02", epsilon="0.5") > need
