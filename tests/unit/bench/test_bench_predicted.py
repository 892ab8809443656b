"""The bench of stated errors: every recipe has a table that suits it, and is compared on it."""

import numpy as np
import pytest

from noisegate.releases.ask.transcript import Told
from noisegate.releases.forms.provenance import workload_of
from noisegate.releases.recipes import RECIPES, recipe
from noisegate.releases.trees import covers, hierarchy


@pytest.fixture
def predicted(bench):
    return bench("predicted")


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_can_do_its_case(predicted, name):
    case = predicted.CASES.get(name, predicted.LINE)
    recipe(name, **case.options).require(case.size, workload_of(case.workload, case.size))


def test_a_recipe_that_knows_its_noise_is_as_far_off_as_it_says(predicted, monkeypatch):
    """Of 16 · 40 squares of geometric noise the mean is 1, give or take 0.09: 0.5 is 5 away."""
    monkeypatch.setattr(predicted, "shape_of", lambda _: np.arange(1, 17))
    row = predicted.compared("cells", predicted.Case(size=(16,), workload="cells"), 40)
    assert 0.5 < row["ratio"] ** 2 < 2
    assert row["low"] < row["ratio"] < row["high"]
    assert row["inside"] == (row["low"] <= 1 <= row["high"])
    assert row["within"] > 0.85  # 0.96, give or take 0.008


def test_where_it_depends_on_the_rows_there_is_a_margin_but_no_prediction(predicted, monkeypatch):
    monkeypatch.setattr(predicted, "shape_of", lambda _: np.arange(1, 17))
    row = predicted.compared("adaptive", predicted.Case(size=(16,), workload="cells"), 2)
    assert row["predicted"] is None
    assert (row["told"], "ratio" in row) == (1, False)
    assert row["within"] > 0.5


def test_answers_without_a_margin_are_not_counted(predicted, monkeypatch):
    monkeypatch.setattr(predicted, "shape_of", lambda _: np.arange(1, 17))
    monkeypatch.setattr(hierarchy, "CELLS_MAX", 8)
    monkeypatch.setattr(covers, "_COVERS_MAX", 0)
    row = predicted.compared("adaptive", predicted.Case(size=(16,), workload="cells"), 2)
    assert (row["told"], row["within"]) == (0, None)


@pytest.mark.parametrize("name", RECIPES)
def test_every_plan_has_a_number(predicted, name):
    case = predicted.CASES.get(name, predicted.LINE)
    asked = workload_of(case.workload, case.size)
    ask = Told(case.price, shape=case.size, moved=1)
    told = recipe(name, **case.options).predict(ask, asked)
    if told.rms is not None:
        assert (told.most, told.noise) == (None, None)
    known = [each for each in (told.rms, told.noise, told.most) if each is not None]
    assert known == sorted(known)
    assert 0 < known[0] <= known[-1] < predicted.ROWS


def test_a_wrong_prediction_is_not_inside(predicted):
    found = predicted._beside([9.0, 9.1, 8.9, 9.05, 8.95] * 2, 2.0)
    assert found["ratio"] == pytest.approx(1.5)
    assert not found["inside"]
