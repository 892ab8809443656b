"""Means and variances: exact without noise, and off by what is said with it."""

import numpy as np
import pandas as pd
import pytest
from trial_rows import on_grid, unlabelled

from noisegate.errors import SpecError
from noisegate.learners.shapes.scaler import StandardScaler, fit_scaler
from noisegate.root import memory
from refusals import about


def columns(count):
    coins = np.random.default_rng(0)
    rows = np.array([0.5, -0.2, 0.0]) + coins.normal(size=(count, 3)) * np.array([0.05, 0.2, 0.3])
    return on_grid(rows)


@pytest.mark.parametrize("gaussian", [False, True])
def test_without_noise_it_is_the_textbook(gaussian):
    rows = columns(5000)
    found = fit_scaler(unlabelled(rows, 900, noise=False, gaussian=gaussian))
    assert found["mean"] == pytest.approx(rows.mean(axis=0), abs=1e-9)
    assert found["var"] == pytest.approx(rows.var(axis=0), rel=1e-3)
    assert found["rows"] == 5000


@pytest.mark.parametrize("gaussian", [False, True])
def test_it_is_off_by_what_is_said(gaussian):
    rows = columns(2000)
    away = {"mean": [], "var": []}
    true = {"mean": rows.mean(axis=0), "var": rows.var(axis=0)}
    for _ in range(250):
        found = fit_scaler(unlabelled(rows, 1, gaussian=gaussian))
        for name, each in away.items():
            each.append((found[name] - true[name]) / found[f"of_{name}"])
    # 250 fits, three squares of unit variance each, which share a radius: the mean of a fit
    # deviates by less than 2, that of all by less than 0.13; a wrong factor of 2 gives 1/4 or 4
    assert 0.4 < np.mean(np.square(away["mean"])) < 1.8
    assert 0.4 < np.mean(np.square(away["var"])) < 1.8


def test_variances_drown_together_but_never_vanish():
    found = fit_scaler(unlabelled(columns(30), "1/100"))
    assert np.all(found["var"] >= 1e-4)
    assert np.all(np.abs(found["mean"]) <= 1)


def test_through_the_door_in_the_units_of_the_columns():
    rows, units = columns(5000), np.array([10.0, 100.0, 1.0])
    budget = memory(epsilon=5)
    model = StandardScaler(epsilon=4, bounds=(list(-units), list(units)), memory=budget)
    model.fit(rows * units)
    assert model.cost_.epsilon == 4
    assert model.mean_ == pytest.approx(
        (rows * units).mean(axis=0), abs=8 * model.error_["mean"].max()
    )
    scaled = model.transform(rows * units)
    assert scaled.std(axis=0) == pytest.approx(np.ones(3), abs=0.35)
    assert model.inverse_transform(scaled) == pytest.approx(rows * units)
    assert model.rows_ == pytest.approx(5000, abs=100)
    model.set_params(with_mean=False, with_std=False)
    assert model.transform(rows * units) == pytest.approx(rows * units)


def test_a_handle_has_no_rows_to_scale():
    model = StandardScaler(epsilon=1, bounds=(-1, 1), memory=memory(epsilon=2))
    model.fit(columns(100))
    matrix = model.memory.matrix(columns(100), bounds=(-1, 1))
    with pytest.raises(SpecError, check=about("rows")):
        model.fit_transform(matrix)


def test_names_of_columns_are_those_of_the_last_fit():
    rows = columns(50)
    model = StandardScaler(epsilon=1, bounds=(-1, 1), memory=memory(epsilon=2))
    named = pd.DataFrame(rows, columns=["age", "size", "cost"])
    assert model.fit(named).feature_names_in_.tolist() == named.columns.tolist()
    assert not hasattr(model.fit(rows), "feature_names_in_")
