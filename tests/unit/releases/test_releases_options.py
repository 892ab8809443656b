"""Options of releases: of an unknown name or another type they are refused before any charge."""

from dataclasses import fields
from importlib import import_module
from math import inf, nan

import pyarrow as pa
import pytest

import noisegate
from noisegate.desk.terms.terms import require_options
from noisegate.errors import NoisegateError, SpecError
from noisegate.releases.recipes import RECIPES
from noisegate.releases.recipes.totals import Totals
from refusals import about, listed

ROWS = pa.table({"x": list(range(16)), "w": ["a", "b"] * 8})
COLUMNS = {
    "x": {"between": [0, 15], "nullable": False},
    "w": {"in": ["a", "b"], "nullable": False},
}
GROUPS = {"x": None, "w": None}


def gate_of():
    return noisegate.open(ROWS, epsilon=100, columns=COLUMNS, table="t")


def options_of(method):
    module, made = RECIPES[method].split(":")
    kind = getattr(import_module(f"noisegate.releases.recipes.{module}"), made)
    return [each.name for each in fields(kind)]


@pytest.mark.parametrize("method", sorted(set(RECIPES) - {"convex", "marginals"}))
def test_no_option_of_no_recipe_takes_what_it_cannot_use(method):
    gate = gate_of()
    needed = {"parents": [[0, 1] * 8]} if method == "totals" else {}
    assert gate.release_plan(method, columns={"x": None}, epsilon=1, **needed).fits
    for option in options_of(method):
        for value in ("x", nan, 10**400, ((("x",),),)):
            with pytest.raises(NoisegateError) as refused:
                gate.release_plan(
                    method, columns={"x": None}, epsilon=1, **needed | {option: value}
                )
            assert refused.value.fix, (option, value)


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("tree", {"branching": "x"}),
        ("tree", {"branching": 2.5}),
        ("quadtree", {"prune": "1/2"}),
        ("kdtree", {"prune": "x"}),
        ("hybrid", {"prune": nan}),
        ("adaptive-grid", {"c": None}),
        ("adaptive-grid", {"least": 10**400}),
        ("uniform-grid", {"size": True}),
        ("fourier", {"frequencies": True}),
        ("mwem", {"total": inf}),
        ("mwem", {"average": "yes"}),
        ("sketch", {"signed": 1}),
        ("totals", {"parents": 3}),
        ("totals", {"parents": ((0, 0.5),)}),
    ],
)
def test_options_of_another_type_are_refused_before_any_charge(method, options):
    gate = gate_of()
    before = len(gate.history())
    with pytest.raises(SpecError, check=about("value"), match=f"^{min(options)} "):
        gate.release("histogram", columns={"x": None}, method=method, epsilon=1, **options)
    assert (gate.spent.epsilon, len(gate.history())) == (0, before)


@pytest.mark.parametrize(
    ("name", "terms", "words"),
    [
        ("cube", {"sets": 2.5}, "sets"),
        ("cube", {"sets": "x"}, "sets"),
        ("cube", {"sets": True}, "sets"),
        ("cube", {"sets": [1]}, "sets"),
        ("cube", {"sets": [("x", "z")]}, "column 'z'"),
        ("cube", {"sets": 3}, "sets"),
        ("cube", {"shrink": "no"}, "shrink"),
        ("cube", {"depth": 3}, "option 'depth'"),
        ("sparse", {"unbiased": "yes"}, "unbiased"),
        ("sparse", {"depth": 3}, "option 'depth'"),
        ("boxplot", {"method": "tree"}, "option 'method'"),
        ("boxplot", {"workload": "cells"}, "option 'workload'"),
        ("boxplot", {"depth": 3}, "option 'depth'"),
        ("totals", {}, "missing 'parents'"),
        ("histogram", {"method": ["tree"]}, "method"),
    ],
)
def test_names_with_their_own_results_refuse_so_too(name, terms, words):
    gate = gate_of()
    for ask in (gate.release, gate.release_plan):
        with pytest.raises(NoisegateError, check=listed(words)):
            ask(name, columns=GROUPS, epsilon=1, **terms)
    assert gate.spent.epsilon == 0


def test_what_is_listed_are_options():
    with pytest.raises(SpecError) as refused:
        require_options("totals", Totals, {"name": "x"})
    assert refused.value.fix == "Its options: axis, parents."
    require_options("totals", Totals, {"parents": ((0, 0, 1),), "axis": 0})
