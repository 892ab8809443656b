"""Noise of any width: whatever is learnt is refused before the charge, or comes out."""

import warnings
from fractions import Fraction
from functools import cache

import numpy as np
import pyarrow as pa
import pytest

import noisegate as ng
from noisegate import learners
from noisegate.desk.terms.price import Price
from noisegate.errors import NoisegateError
from noisegate.learners.asking import DoorRows
from noisegate.learners.fitting import REACH
from noisegate.transforms.statistics.features import One, Squares
from noisegate.transforms.statistics.statistic import Statistic
from noisegate.transforms.statistics.weighings import Plain

ROWS = 300
COLUMNS = {
    "x": {"between": [0, 1]},
    "y": {"between": [-5, 5]},
    "flag": {"in": [0, 1]},
    "kind": {"in": ["a", "b", "c"]},
}
TARGETS = {"LinearRegression": "y", "Ridge": "y"}
FEW = {
    "GaussianMixture": {"n_components": 2},
    "KMeans": {"n_clusters": 2},
    "PCA": {"n_components": 1},
    "DecisionTreeClassifier": {"max_depth": 2},
    "RandomForestClassifier": {"n_estimators": 2},
}


def frequent(held, cap, epsilon):
    rows = held.matrix("t", ["flag", "kind"], rows_per_unit=cap)
    return learners.FrequentItemsets(epsilon=epsilon, k=2, size=2).fit(rows, fresh=True)


def session(held, cap, epsilon):
    with learners.StatisticalQueries(
        held, "t", epsilon=epsilon, queries=50, rows_per_unit=cap
    ) as asked:
        return asked.mean("x")


OTHERS = {
    "frequent": frequent,
    "session": session,
    "family": lambda held, cap, epsilon: learners.fit_family(
        held.matrix("t", ["y"], rows_per_unit=cap), "normal", epsilon=epsilon, fresh=True
    ),
    "objective": lambda held, cap, epsilon: learners.LogisticRegression(
        epsilon=epsilon, method="objective"
    ).fit(held.matrix("t", ["x"], target="kind", rows_per_unit=cap), fresh=True),
}


def gate(accountant):
    at = np.arange(ROWS)
    frame = pa.table({
        "id": at % 100, "x": at % 7 / 6, "y": (at % 7) - 3.0, "flag": at % 2,
        "kind": pa.array(["abc"[each % 3] for each in at]),
    })  # fmt: skip
    return ng.open(
        frame, table="t", epsilon=10**6, delta=1e-6, accountant=accountant, unit="id",
        rows_per_unit=3, columns=COLUMNS,
    )  # fmt: skip


@pytest.fixture(scope="module")
def gates():
    return {name: gate(name) for name in ("pure", "zcdp")}


@cache
def matrix(held, name, cap):
    """For all tests of the gate: it is only read."""
    target = TARGETS.get(name, "kind")
    names = ["x", "flag"] if target == "y" else ["x", "y"]
    if name == "CategoricalNB":
        names = ["flag", "x"]
    return held.matrix("t", names, target=target, rows_per_unit=cap)


def require_all_or_nothing(held, ask):
    """Refused at no cost, or a result."""
    before = held.ledger.head()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ask()
    except NoisegateError:
        assert held.ledger.head() == before, "charged, then refused"
        return False
    return True


WIDTHS = pytest.mark.parametrize(
    ("cap", "epsilon"), [(1, 50), (2000, 1), (10_000, "0.001"), (1 << 20, 1), (1 << 20, "1e-6")]
)
ACCOUNTS = pytest.mark.parametrize("accountant", ["pure", "zcdp"])


@pytest.mark.long
@WIDTHS
@ACCOUNTS
@pytest.mark.parametrize("name", sorted(learners.ESTIMATORS))
def test_a_learner_is_refused_before_the_charge_or_fits(gates, name, accountant, cap, epsilon):
    held = gates[accountant]
    model = getattr(learners, name)(epsilon=epsilon, **FEW.get(name, {}))
    fits = require_all_or_nothing(held, lambda: model.fit(matrix(held, name, cap), fresh=True))
    assert fits or type(epsilon) is str  # a small price


@WIDTHS
@ACCOUNTS
@pytest.mark.parametrize("name", sorted(OTHERS))
def test_so_is_everything_else_that_reads_rows(gates, name, accountant, cap, epsilon):
    held = gates[accountant]
    fits = require_all_or_nothing(held, lambda: OTHERS[name](held, cap, epsilon))
    assert fits or type(epsilon) is str  # a small price


def test_sums_that_noise_hides_are_zero_and_are_not_paid_for(gates):
    held = gates["pure"]
    tally = held.matrix("t", ["x", "y"], rows_per_unit=1 << 20).rows(REACH)
    price = Price.of(Fraction(1), accountant="pure")
    with held._curator.allowance(price.event(), question="q", request_id="hidden") as allowed:
        ask = DoorRows(allowed.whole, tally, price)
        question = Statistic(Plain(), (One(), Squares()))
        count, squares = ask.totals(question, [Fraction(1, 2)] * 2)
        assert [count.variance, squares.variance] == ask.variance(question, [Fraction(1, 2)] * 2)
        assert count.values.any()
        assert not squares.values.any()
        assert squares.variance > (1 << 50) ** 2 / 256**2
        assert held._curator.loss_of(allowed.used()).epsilon == Fraction(1, 2)
