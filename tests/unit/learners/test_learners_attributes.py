"""What a learner states is what scikit-learn states of the same rows, in the units of the columns.

The price is so high that noise is beyond the digits that are compared. Columns have bounds of very
different widths, none of them around 0, so that a number in other units is far off.
"""

import numpy as np
import pytest
import sklearn.covariance
import sklearn.decomposition
import sklearn.linear_model
import sklearn.mixture
import sklearn.naive_bayes
import sklearn.preprocessing
from sklearn.cluster import KMeans as PlainKMeans

import noisegate.learners as private
from noisegate.root import memory

LOW, HIGH = np.array([0.0, 1000.0, -3.0]), np.array([100.0, 1400.0, 1.0])
HALF = (HIGH - LOW) / 2
GIVEN = {"epsilon": 200, "bounds": (LOW.tolist(), HIGH.tolist())}
NEAR = 0.02  # of a bound's width, or of the number


def told(count=6000, seed=3):
    """Rows around three places, their place, and a number that depends on them."""
    coins = np.random.default_rng(seed)
    places = np.array([[-0.5, -0.4, 0.5], [0.5, 0.1, 0.4], [0.0, 0.5, -0.5]])
    which = coins.integers(0, 3, count)
    spread = np.array([[0.12, 0.05, 0.02], [0.0, 0.1, 0.04], [0.0, 0.0, 0.08]])
    rows = np.clip(places[which] + coins.normal(size=(count, 3)) @ spread, -1, 1)
    rows = (LOW + HIGH) / 2 + rows * HALF
    number = 20 + 0.3 * rows[:, 0] - 0.02 * rows[:, 1] + 4 * rows[:, 2] + coins.normal(0, 1, count)
    return rows, which, number


ROWS, WHICH, NUMBER = told()


def fit(name, y=None, **more):
    made = getattr(private, name)(**GIVEN | more, memory=memory(epsilon=10**6))
    return made.fit(ROWS) if y is None else made.fit(ROWS, y)


def same(found, wanted, near=NEAR):
    assert np.shape(found) == np.shape(wanted)
    assert np.asarray(found) == pytest.approx(np.asarray(wanted), rel=near, abs=1e-9)


@pytest.fixture(scope="module")
def components():
    mine = {how: fit("PCA", n_components=3, method=how) for how in ("auto", "sulq")}
    return mine, sklearn.decomposition.PCA(3).fit(ROWS)


@pytest.mark.parametrize("how", ["auto", "sulq"])
@pytest.mark.parametrize("name", ["mean_", "explained_variance_", "explained_variance_ratio_"])
def test_variances_of_components(components, how, name):
    mine, plain = components
    same(getattr(mine[how], name), getattr(plain, name))


@pytest.mark.parametrize("how", ["auto", "sulq"])
def test_components_and_places_along_them(components, how):
    mine, plain = components
    model = mine[how]
    same(np.abs(np.sum(model.components_ * plain.components_, axis=1)), np.ones(3))
    signs = np.sign(np.sum(model.components_ * plain.components_, axis=1))
    wide = np.sqrt(plain.explained_variance_)
    assert np.abs(model.transform(ROWS) * signs - plain.transform(ROWS)).max() < NEAR * wide[0]
    same(model.inverse_transform(model.transform(ROWS)), ROWS)
    assert (np.asarray(model.error_["variance"]) < NEAR * plain.explained_variance_).all()


def test_components_by_directions_are_in_the_same_units():
    """Little is paid for many columns, so that products would drown; the widest decides."""
    coins = np.random.default_rng(5)
    along = coins.normal(size=(20_000, 1)) * np.linspace(0.05, 0.3, 30)
    unit = np.geomspace(1, 50, 30)
    rows = np.clip(along + coins.normal(0, 0.05, along.shape), -1, 1) * unit
    model = private.PCA(
        1, epsilon=1, bounds=((-unit).tolist(), unit.tolist()), memory=memory(epsilon=1)
    ).fit(rows)
    plain = sklearn.decomposition.PCA(1).fit(rows)
    assert np.abs(model.components_ @ plain.components_.T).item() > 0.9
    assert model.explained_variance_ == pytest.approx(plain.explained_variance_, rel=0.3)


def test_covariances():
    model, plain = fit("EmpiricalCovariance"), sklearn.covariance.EmpiricalCovariance().fit(ROWS)
    for name in ("location_", "covariance_"):
        same(getattr(model, name), getattr(plain, name), 0.05)


def test_scales():
    model, plain = fit("StandardScaler"), sklearn.preprocessing.StandardScaler().fit(ROWS)
    for name in ("mean_", "var_", "scale_"):
        same(getattr(model, name), getattr(plain, name))


@pytest.mark.parametrize("name", ["LinearRegression", "Ridge"])
def test_lines(name):
    bounds = (float(NUMBER.min()), float(NUMBER.max()))
    model = fit(name, NUMBER, target_bounds=bounds)
    plain = sklearn.linear_model.LinearRegression().fit(ROWS, NUMBER)
    same(model.coef_, plain.coef_, 0.05)
    assert np.abs(model.predict(ROWS) - plain.predict(ROWS)).max() < NEAR * np.ptp(NUMBER)
    same(model.intercept_, plain.intercept_, 0.1)


def test_centres_of_clusters():
    centres = fit("KMeans", n_clusters=3).cluster_centers_
    plain = PlainKMeans(3, n_init=5, random_state=0).fit((ROWS - LOW) / HALF)
    wanted = LOW + plain.cluster_centers_ * HALF
    order = [np.argmin(np.sum(((centres - each) / HALF) ** 2, axis=1)) for each in wanted]
    assert np.abs((centres[order] - wanted) / HALF).max() < NEAR


def test_naive_bayes():
    model = fit("GaussianNB", WHICH, classes=[0, 1, 2])
    plain = sklearn.naive_bayes.GaussianNB().fit(ROWS, WHICH)
    for name in ("theta_", "var_", "class_prior_", "class_count_"):
        same(getattr(model, name), getattr(plain, name))


def test_mixtures():
    model = fit("GaussianMixture", n_components=3)
    plain = sklearn.mixture.GaussianMixture(3, random_state=0, means_init=model.means_).fit(ROWS)
    for name in ("weights_", "means_", "covariances_"):
        found, wanted = getattr(model, name), getattr(plain, name)
        if name == "covariances_" and found.ndim < wanted.ndim:
            wanted = np.diagonal(wanted, axis1=1, axis2=2)
        scale = {"weights_": 1, "means_": HALF, "covariances_": np.outer(HALF, HALF)}[name]
        scale = HALF**2 if name == "covariances_" and found.ndim == 2 else scale
        assert np.abs((found - wanted) / scale).max() < NEAR, name


@pytest.mark.parametrize("name", ["LogisticRegression", "LinearSVC", "Perceptron"])
def test_lines_between_classes_are_in_the_units_of_the_columns(name):
    """The stated line tells classes as the model does."""
    model = fit(name, WHICH == 2, classes=[False, True])
    scores = (ROWS @ model.coef_.T + model.intercept_).ravel()
    assert np.mean((scores > 0) == model.predict(ROWS)) == 1
    assert np.mean((scores > 0) == (WHICH == 2)) > 0.97


def test_a_logistic_line_is_that_of_scikit_learn():
    coins = np.random.default_rng(8)
    wide = (ROWS - LOW - HALF) / HALF
    drawn = coins.random(len(ROWS)) < 1 / (1 + np.exp(-wide @ [2.0, -1.0, 1.5]))
    model = fit("LogisticRegression", drawn, classes=[False, True])
    plain = sklearn.linear_model.LogisticRegression(C=1e6).fit(wide, drawn)
    assert model.coef_ * HALF == pytest.approx(plain.coef_, rel=0.1, abs=0.1)
