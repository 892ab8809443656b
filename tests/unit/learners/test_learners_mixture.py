"""Mixtures: without noise a round is one of the textbook's, with noise clouds are found."""

from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import multivariate_normal
from trial_rows import on_grid, unlabelled

from noisegate.learners.shapes.mixture import Clouds, GaussianMixture, fit_mixture, step
from noisegate.root import memory

REACH = 512
WEIGHTS = np.array([0.5, 0.3, 0.2])
MEANS = np.array([[0.4, 0.5, -0.3], [-0.5, 0.2, 0.4], [0.1, -0.6, 0.1]])
SHAPES = np.array([
    [[0.03, 0.01, 0.0], [0.01, 0.02, 0.0], [0.0, 0.0, 0.02]],
    [[0.01, 0.0, 0.0], [0.0, 0.03, -0.01], [0.0, -0.01, 0.02]],
    [[0.02, 0.0, 0.01], [0.0, 0.01, 0.0], [0.01, 0.0, 0.03]],
])  # fmt: skip
LESS = {"diag": np.diagonal(SHAPES, axis1=1, axis2=2).copy(), "full": SHAPES}


def clouds(rows, seed=0):
    """Rows of three clouds on the grid, from -1 to 1."""
    coins = np.random.default_rng(seed)
    which = coins.choice(3, size=rows, p=WEIGHTS)
    roots = np.linalg.cholesky(SHAPES)
    found = MEANS[which] + np.einsum("nij,nj->ni", roots[which], coins.normal(size=(rows, 3)))
    return on_grid(found, REACH)


def textbook(rows, model, shape):
    """One round of expectation and maximisation."""
    logs = model.logs(rows)
    parts = np.exp(logs - logs.max(axis=1, keepdims=True))
    parts /= parts.sum(axis=1, keepdims=True)
    held = parts.sum(axis=0)
    means = parts.T @ rows / held[:, None]
    shapes = np.stack([
        ((rows - m) * p[:, None]).T @ (rows - m) / p.sum()
        for m, p in zip(means, parts.T, strict=True)
    ])  # fmt: skip
    if shape == "diag":
        shapes = np.diagonal(shapes, axis1=1, axis2=2)
    return held / len(rows), means, shapes


@pytest.mark.parametrize("shape", ["diag", "full"])
def test_densities_are_those_of_normal_clouds(shape):
    rows = clouds(20)
    told = Clouds(WEIGHTS, MEANS, LESS[shape]).logs(rows)
    for k in range(3):
        covariance = SHAPES[k] if shape == "full" else np.diag(LESS[shape][k])
        law = multivariate_normal(MEANS[k], covariance)
        assert told[:, k] == pytest.approx(np.log(WEIGHTS[k]) + law.logpdf(rows))


@pytest.mark.parametrize("shape", ["diag", "full"])
def test_a_round_without_noise_is_the_textbook(shape):
    rows = clouds(3000)
    # far from converged, so that a round that did nothing would fail
    model = Clouds(np.full(3, 1 / 3), 0.7 * MEANS, 2 * LESS[shape])
    ask = unlabelled(rows, 3000, noise=False, reach=REACH)
    found, _ = step(ask, model.dealt(REACH), model.means, shape, Fraction(1))
    weights, means, shapes = textbook(rows, model, shape)
    assert found.weights == pytest.approx(weights, abs=0.002)
    assert found.means == pytest.approx(means, abs=0.002)
    assert found.covariances == pytest.approx(shapes, abs=0.0005)
    assert np.abs(means - model.means).max() > 0.05


@pytest.mark.long
@pytest.mark.parametrize("gaussian", [False, True])
@pytest.mark.parametrize("shape", ["diag", "full"])
def test_clouds_are_found(shape, gaussian):
    """In the middle of nine fits. One covariance is off by 0.02 in 1 of 200: 5 of 9 are in 10^9."""
    rows, off = clouds(12_000), []
    for _ in range(9):
        ask = unlabelled(rows, 4, gaussian=gaussian, reach=REACH)
        found = fit_mixture(ask, 3, shape=shape)
        assert ask.spent == 1
        near = ((MEANS[:, None] - found["means"]) ** 2).sum(2).argmin(axis=1)
        assert sorted(near) == [0, 1, 2]
        true = {"means": MEANS, "weights": WEIGHTS, "covariances": LESS[shape]}
        off.append([np.abs(found[name][near] - true[name]).max() for name in true])
    assert np.all(np.median(off, axis=0) < [0.05, 0.03, 0.02])


def test_where_noise_hides_everything_clouds_are_still_clouds():
    found = fit_mixture(unlabelled(clouds(20), "1/50", reach=REACH), 4, shape="full", rounds=3)
    assert found["weights"].sum() == pytest.approx(1)
    assert np.all(found["weights"] > 0)
    assert np.all(np.abs(found["means"]) <= 1)
    assert np.linalg.eigvalsh(found["covariances"]).min() > 0


@pytest.mark.parametrize("shape", ["diag", "full"])
def test_through_the_door(shape):
    rows, units = clouds(5000), np.array([10.0, 1.0, 100.0])
    bounds = (list(-units), list(units))
    said = []
    model = GaussianMixture(
        3, epsilon=6, covariance_type=shape, bounds=bounds, memory=memory(epsilon=6)
    )
    model.fit(rows * units, progress=lambda part, words: said.append(part))
    assert model.cost_.epsilon == 6
    assert said == sorted(said)
    best = Clouds(WEIGHTS, MEANS, LESS[shape]).logs(rows)
    most = float(np.mean(np.log(np.exp(best).sum(axis=1)))) - float(np.log(units).sum())
    assert model.score(rows * units) > most - 0.2
    parts = model.predict_proba(rows * units)
    assert parts.sum(axis=1) == pytest.approx(np.ones(5000))
    assert np.array_equal(parts.argmax(axis=1), model.predict(rows * units))
    near = ((MEANS[:, None] - model.means_ / units) ** 2).sum(2).argmin(axis=1)
    assert model.means_[near] == pytest.approx(MEANS * units, rel=0.5, abs=0.1 * units.max())


def test_a_plot_shows_clouds():
    alt = pytest.importorskip("altair")
    model = GaussianMixture(2, epsilon=4, bounds=(-1, 1), memory=memory(epsilon=4))
    assert isinstance(model.fit(clouds(1000)).plot(), alt.LayerChart)
