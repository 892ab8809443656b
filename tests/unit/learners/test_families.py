"""Exponential families: without noise the textbook's estimates, with it the errors that are stated."""

from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

import noisegate as ng
from noisegate.errors import SpecError
from noisegate.learners.items.families import FAMILIES, _asked, _Told, fit_family
from noisegate.learners.matrix import Coordinate
from noisegate.noise.bits import SYSTEM
from trials import TrialRows

FACTS = {
    "age": {"type": "integer", "between": [0, 99]},
    "weight": {"between": [20, 180]},
    "sick": {"type": "integer", "between": [0, 1]},
    "visits": {"type": "integer", "between": [0, 30]},
    "wait": {"between": [0, 60]},
    "ward": {"in": ["n", "s", "w"]},
    "off": {"between": [-5, 5]},
}


def rows(count=500):
    chance = np.random.default_rng(3)
    age = np.clip(chance.normal(50, 12, count), 0, 99).astype(int)
    return pa.table(
        {
            "age": age,
            "weight": np.clip(60 + 0.4 * age + chance.normal(0, 8, count), 20, 180),
            "sick": chance.integers(0, 5, count) // 4,
            "visits": np.minimum(chance.poisson(4, count), 30),
            "wait": np.minimum(chance.exponential(8, count), 60),
            "ward": chance.choice(["n", "s", "w"], count, p=[0.6, 0.3, 0.1]),
            "off": np.zeros(count),
        }
    )


@pytest.fixture(scope="module")
def gate():
    return ng.open(rows(), epsilon=100_000, columns=FACTS)


@pytest.mark.parametrize(
    ("family", "column", "name", "value"),
    [
        ("bernoulli", "sick", "probability", lambda x: x.mean()),
        ("poisson", "visits", "rate", lambda x: x.mean()),
        ("exponential", "wait", "rate", lambda x: 1 / x.mean()),
        ("gaussian", "age", "mean", lambda x: x.mean()),
        ("gaussian", "age", "variance", lambda x: x.var()),
    ],
)
def test_without_noise_it_is_the_maximum_likelihood(gate, family, column, name, value):
    fit = fit_family(gate, family, column, epsilon=900)
    expected = value(rows()[column].to_numpy())
    assert fit[name] == pytest.approx(expected, rel=3e-3)
    assert fit.rows == pytest.approx(500, abs=1)
    assert fit.noise[name] < fit.errors[name] / 5
    assert "±" in str(fit)


def test_the_covariance_of_several_columns(gate):
    fit = fit_family(gate.matrix("data", ["age", "weight"]), "normal", epsilon=900)
    held = np.stack([rows()[name].to_numpy() for name in ("age", "weight")])
    assert fit["mean"] == pytest.approx(held.mean(axis=1), rel=2e-3)
    assert fit["covariance"] == pytest.approx(np.cov(held, bias=True), rel=0.03)
    spread = np.cov(held, bias=True)
    stated = np.sqrt((np.outer(np.diag(spread), np.diag(spread)) + spread**2) / 500)
    assert fit.errors["covariance"] == pytest.approx(stated, rel=0.05)


def test_the_shares_of_keys(gate):
    fit = fit_family(gate, "categorical", "ward", epsilon=500)
    exact = [(rows()["ward"].to_numpy() == key).mean() for key in "nsw"]
    assert fit["probabilities"] == pytest.approx(exact, abs=2e-3)
    assert fit["probabilities"].sum() == pytest.approx(1)
    assert fit.errors["probabilities"] == pytest.approx(
        np.sqrt([p * (1 - p) / 500 for p in exact]), rel=0.05
    )


def test_a_fit_is_made_once(gate):
    before = gate.spent.epsilon
    first = fit_family(gate, "poisson", "visits", epsilon=2)
    again = fit_family(gate, "poisson", "visits", epsilon=2)
    assert (again["rate"], again.free) == (first["rate"], True)
    assert gate.spent.epsilon == before + 2
    assert "this model of 'data'" in str(first.guarantee)


def trials(family, drawn, coordinate, *, epsilon, gaussian=False, count=500):
    """Estimates and stated errors over fresh rows and fresh noise."""
    kind, reach, found = FAMILIES[family], 64, []
    middle, half = float(coordinate.middle), float(coordinate.half)
    for seed in range(count):
        scaled = (drawn(np.random.default_rng(seed)) - middle) / half * reach
        ask = TrialRows(
            scaled[:, None], Fraction(epsilon), reach=reach, bits=SYSTEM, gaussian=gaussian
        )
        values, likelihood, noise = kind.solve(_Told(_asked(ask, kind, 1), (coordinate,), reach))
        found.append([(values[n], likelihood[n], noise[n]) for n in values])
    return np.array(found, float)


UNIT = Coordinate("x", None, Fraction(0), Fraction(1), "x")
WIDE = Coordinate("x", None, Fraction(-8), Fraction(8), "x")


@pytest.mark.long
@pytest.mark.parametrize("gaussian", [False, True])
@pytest.mark.parametrize(
    ("family", "drawn", "coordinate", "truth", "amounts"),
    [
        ("bernoulli", lambda g: (g.random(300) < 0.2).astype(float), UNIT, [0.2], ("1/4", "1/64")),
        ("gaussian", lambda g: g.normal(3, 1, 300), WIDE, [3, 1], ("3", "1/2")),
    ],
)
def test_stated_errors_are_those_of_repeated_fits(
    family, drawn, coordinate, truth, amounts, gaussian
):
    """500 fits: a mean square has a standard deviation of at most a tenth of its mean."""
    found = trials(family, drawn, coordinate, epsilon=amounts[gaussian], gaussian=gaussian)
    for place, expected in enumerate(truth):
        values, likelihood, noise = found[:, place].T
        stated = (likelihood + noise).mean()
        assert noise.mean() > likelihood.mean() / 6  # so that noise is what is tested, too
        assert 0.55 < ((values - expected) ** 2).mean() / stated < 1.7


def test_a_stated_error_without_the_noise_would_be_caught():
    found = trials("gaussian", lambda g: g.normal(3, 1, 300), WIDE, epsilon=1)
    values, likelihood, _ = found[:, 0].T
    assert ((values - 3) ** 2).mean() / likelihood.mean() > 1.7


@pytest.mark.parametrize(
    ("family", "columns"),
    [
        ("cauchy", "age"),
        ("gaussian", ["age", "weight"]),
        ("gaussian", "ward"),
        ("categorical", "age"),
        ("bernoulli", "age"),
        ("poisson", "off"),
        ("gaussian", None),
    ],
)
def test_what_does_not_fit_the_family_is_refused(gate, family, columns):
    before = gate.spent.epsilon
    with pytest.raises(SpecError) as refusal:
        fit_family(gate, family, columns, epsilon=1)
    assert refusal.value.fix
    with pytest.raises(SpecError):
        fit_family(gate.matrix("data", ["age"]), "gaussian", "age", epsilon=1)
    assert gate.spent.epsilon == before
