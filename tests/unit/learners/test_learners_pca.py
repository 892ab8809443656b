"""Components and covariances: exact without noise, and off by what is said with it."""

from fractions import Fraction

import numpy as np
import pytest
from trial_rows import REACH, on_grid, unlabelled

from noisegate.learners.shapes.pca import (
    PCA,
    EmpiricalCovariance,
    fit_covariance,
    fit_pca,
    fit_sulq,
)
from noisegate.root import memory
from trials import TrialRows


def cloud(count, columns, seed=0):
    """Rows that differ along two directions most of all."""
    coins = np.random.default_rng(seed)
    ways = np.linalg.qr(coins.normal(size=(columns, 2)))[0].T
    along = coins.normal(size=(count, 2)) * np.array([0.5, 0.3])
    rows = 0.1 + along @ ways + coins.normal(0, 0.05, (count, columns))
    return on_grid(rows), ways


def captured(rows, components):
    away = rows - rows.mean(axis=0)
    return float(np.sum((away @ components.T) ** 2) / np.sum(away**2))


def exact(rows, count):
    values, vectors = np.linalg.eigh(np.cov(rows.T, bias=True))
    return values[::-1][:count], vectors[:, ::-1][:, :count].T


@pytest.mark.parametrize("gaussian", [False, True])
def test_errors_are_those_of_means_and_of_the_number_of_rows_too(gaussian):
    # 60 fits of Laplace noise: the root mean square is off by a factor of 1.6 once in 10**4 runs
    coins = np.random.default_rng(4)
    rows = on_grid(np.array([0.8, -0.5]) + coins.normal(0, [0.03, 0.15], (2000, 2)))
    true, widest = np.cov(rows.T, bias=True), exact(rows, 1)[0][0]
    entries, along = [], []
    for _ in range(60):
        found = fit_covariance(unlabelled(rows, 100, gaussian=gaussian))
        entries.append((found["covariance"] - true) / found["noise"])
        found = fit_sulq(unlabelled(rows, 100, gaussian=gaussian), 1)
        along.append((found["variances"][0] - widest) / found["noise"][0])
    for errors in (np.array(entries)[:, 0, 0], np.array(entries)[:, 1, 1], np.array(along)):
        assert 1 / 2 < np.sqrt(np.mean(errors**2)) < 1.6


@pytest.mark.parametrize("gaussian", [False, True])
def test_sulq_without_noise_is_the_textbook(gaussian):
    rows, _ = cloud(3000, 6)
    found = fit_sulq(unlabelled(rows, 900, noise=False, gaussian=gaussian), 2)
    values, vectors = exact(rows, 2)
    assert found["variances"] == pytest.approx(values, rel=1e-4)  # the mean is drawn in a little
    assert np.abs(np.sum(found["components"] * vectors, axis=1)) == pytest.approx([1, 1], abs=1e-6)
    assert found["mean"] == pytest.approx(rows.mean(axis=0), rel=1e-3)


def test_auto_without_noise_captures_as_much():
    rows, _ = cloud(3000, 6)
    found = fit_pca(unlabelled(rows, 400, noise=False), 2)
    assert captured(rows, found["components"]) == pytest.approx(
        captured(rows, exact(rows, 2)[1]), abs=1e-4
    )


def test_directions_without_noise_are_steps_of_the_power_iteration():
    rows, _ = cloud(3000, 30)
    ask = unlabelled(rows, "1/2", noise=False)  # so little that products would drown
    found = fit_pca(ask, 2)
    assert ask.spent <= 1
    assert captured(rows, found["components"]) > 0.97 * captured(rows, exact(rows, 2)[1])
    along = np.var(rows @ found["components"].T, axis=0)
    assert found["variances"] == pytest.approx(along, rel=0.15)
    assert (found["noise"] > 0).all()


@pytest.mark.parametrize("gaussian", [False, True])
def test_with_noise_many_rows_lose_little(gaussian):
    rows, _ = cloud(20_000, 6)
    found = fit_pca(unlabelled(rows, 1, gaussian=gaussian), 2)
    assert captured(rows, found["components"]) > 0.98 * captured(rows, exact(rows, 2)[1])


def test_shortening_rows_keeps_most_of_the_noise_away():
    """Rows near the middle of wide bounds: one outlier's length is not what noise must hide.

    Medians: in 1 of 15,000 fits noise looks like a few hundred long rows, and nothing is shortened.
    """
    rows, _ = cloud(20_000, 12)
    rows = np.rint(rows * 0.2 * REACH) / REACH
    near, plain = (
        np.median([captured(rows, fit(unlabelled(rows, 1), 2)["components"]) for _ in range(5)])
        for fit in (fit_pca, fit_sulq)
    )
    best = captured(rows, exact(rows, 2)[1])
    assert near > 0.9 * best
    assert plain < 0.85 * best


@pytest.mark.parametrize("amount", ["1/100", 200])
def test_an_empty_table_has_components_too(amount):
    found = fit_pca(unlabelled(np.zeros((0, 4)), amount), 2)
    assert np.linalg.norm(found["components"], axis=1) == pytest.approx([1, 1])


def test_covariances_are_off_by_what_is_said():
    rows, _ = cloud(4000, 5)
    true = np.cov(rows.T, bias=True)
    away = []
    for _ in range(20):
        found = fit_covariance(unlabelled(rows, 4))
        away.append(np.sqrt(np.mean((found["covariance"] - true) ** 2)) / found["noise"])
        assert np.linalg.eigvalsh(found["covariance"]).min() > -1e-9
    # noise below 0 in the three narrow directions is cut off, so rather less than 1
    assert 0.3 < np.mean(away) < 2


def test_through_the_door():
    rows, _ = cloud(5000, 4)
    model = PCA(2, epsilon=2, bounds=(-10, 10), memory=memory(epsilon=3)).fit(rows * 10)
    assert model.cost_.epsilon <= 2
    assert captured(rows, model.components_) > 0.9 * captured(rows, exact(rows, 2)[1])
    assert model.mean_ == pytest.approx(rows.mean(axis=0) * 10, abs=1)
    places = model.transform(rows * 10)
    assert places == pytest.approx((rows * 10 - model.mean_) @ model.components_.T)
    back = model.inverse_transform(places)
    assert np.mean((back - rows * 10) ** 2) < 0.2 * np.mean(np.var(rows * 10, axis=0)) * 4
    assert 0 < model.explained_variance_ratio_.sum() <= 1 + 1e-9


def test_loadings_are_drawn():
    alt = pytest.importorskip("altair")
    rows, _ = cloud(500, 3)
    model = PCA(2, epsilon=2, bounds=(-1, 1), memory=memory(epsilon=2)).fit(rows)
    shown = model.plot()
    assert isinstance(shown, alt.Chart)
    assert len(shown.data.values) == 6


def test_a_covariance_is_in_the_units_of_the_columns():
    rows, _ = cloud(5000, 3)
    wide = rows * np.array([10.0, 100.0, 1.0])
    bounds = ([-10, -100, -1], [10, 100, 1])
    model = EmpiricalCovariance(epsilon=50, bounds=bounds, memory=memory(epsilon=50)).fit(wide)
    assert model.covariance_ == pytest.approx(np.cov(wide.T), rel=0.1, abs=0.1)
    assert model.error_["covariance"].shape == (3, 3)


def test_where_noise_hides_every_direction_components_are_of_a_few_columns():
    rows = np.random.default_rng(0).uniform(-1, 1, (100, 64))
    ask = TrialRows(rows * 4096, Fraction(1, 10), reach=4096)
    found = fit_pca(ask, 2)
    assert Fraction(95, 100) < ask.spent <= 1
    asked = np.any(found["components"] != 0, axis=0)
    assert asked.sum() == 5  # twice the components, and one
    assert not found["mean"][~asked].any()
    assert found["components"] @ found["components"].T == pytest.approx(np.eye(2), abs=1e-9)


@pytest.mark.parametrize("learner", [PCA, EmpiricalCovariance])
def test_rows_of_unknown_lengths_are_not_shortened(learner):
    """No length stands out of the noise at this price. Fits spread by 0.013: one in 1,000,000 fails."""
    rows = np.random.default_rng(4).uniform(0, 1, (1000, 2))
    model = learner(epsilon=1, bounds=(0, 1), memory=memory(epsilon=1)).fit(rows)
    variances = model.explained_variance_ if learner is PCA else np.diag(model.covariance_)
    assert variances.sum() == pytest.approx(1 / 6, abs=0.1)  # 0.01 if shortened
