"""scikit-learn's own checks of every estimator, and those that a private one cannot keep."""

import pickle
import warnings
from copy import deepcopy
from fractions import Fraction
from unittest import SkipTest

import numpy as np
import pyarrow as pa
import pytest
from sklearn.base import clone
from sklearn.utils.estimator_checks import estimator_checks_generator

import noisegate
from noisegate import learners
from noisegate.errors import NoisegateError, OverBudget, SpecError
from refusals import about

DECLARED = {"bounds": (-10, 10), "classes": [0, 1, 2], "target_bounds": (-100, 100)}
# Estimator, part of the names of checks, and how many pass: in long runs all checks of all of them.
USUAL = [
    ("GaussianNB", "", 30),
    ("KMeans", "clust", 1),
    ("KMeans", "transform", 2),
    ("LinearRegression", "regress", 4),
]

# Checks that may fail, and why.
EVERY = {
    "check_estimators_empty_data_messages": "an empty table is a table: no row decides on success",
    "check_fit_idempotent": "two fits differ by their noise",
    "check_dict_unchanged": "predictions near a tie differ by noise",
    "check_non_transformer_estimators_n_iter": "rounds are a matter of price",
}
TOLD = {
    "check_supervised_y_no_nan": "a target without a value takes no part, whatever it is",
    "check_supervised_y_2d": "a column is a row of values: nobody needs to be warned",
}
CLASSES = TOLD | {
    "check_classifiers_one_label": "one class of those declared is no class to refuse",
    "check_classifiers_one_label_sample_weights": "the same",
    "check_classifiers_classes": "its classes are not those that are declared here",
    "check_decision_proba_consistency": "its classes are not those that are declared here",
    "check_classifiers_train": "its classes are not those that are declared here",
    "check_classifiers_regression_target": "what is none of the declared classes takes no part",
    "check_classifier_data_not_an_array": "it compares two fits, which differ by their noise",
}
NUMBER = TOLD | {
    "check_regressor_data_not_an_array": "it compares two fits, which differ by their noise",
    "check_regressors_int": "it compares two fits, which differ by their noise",
}
CLUSTERS = {"check_clustering": "it asks for labels of the private rows"}


def said(made):
    """What is declared about arrays, as far as an estimator takes it."""
    known = made().get_params()
    return {fact: value for fact, value in DECLARED.items() if fact in known}


def made_of(name, **terms):
    made = getattr(learners, name)
    return made(**terms, **said(made))


def allowed(estimator):
    known = estimator.get_params()
    found = EVERY | CLUSTERS if "n_clusters" in known else EVERY
    if "classes" in known:
        return found | CLASSES
    return found | NUMBER if "target_bounds" in known else found


def tried(estimator, part):
    """Which checks with this part in their names passed, and what others said."""
    passed, failed = [], {}
    for made, check in estimator_checks_generator(estimator):
        name = check.func.__name__
        if part not in name:
            continue
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                check(made)
        except SkipTest:
            continue
        except Exception as error:  # noqa: BLE001 - whatever a check says
            failed[name] = str(error)[:200]
        else:
            passed.append(name)
    return passed, {name: words for name, words in failed.items() if name not in allowed(estimator)}


@pytest.mark.long
@pytest.mark.parametrize(("name", "part", "least"), USUAL)
def test_scikit_learns_checks_hold(name, part, least):
    passed, failed = tried(made_of(name, epsilon=1000, memory=noisegate.memory(10**6)), part)
    assert failed == {}
    assert len(passed) >= least


@pytest.mark.audit
@pytest.mark.parametrize("name", sorted(learners.ESTIMATORS))
def test_all_of_scikit_learns_checks_hold_for_every_estimator(name):
    passed, failed = tried(made_of(name, epsilon=1000, memory=noisegate.memory(10**6)), "")
    assert failed == {}
    assert len(passed) >= 30


@pytest.mark.parametrize("name", sorted(learners.ESTIMATORS))
def test_nothing_is_learnt_from_an_array_without_a_budget_or_bounds(name):
    made, rows = getattr(learners, name), np.zeros((10, 2))
    target = np.zeros(10)
    with pytest.raises(NoisegateError, check=about("budget")):
        made().fit(rows, target)
    budget = noisegate.memory(1)
    for fact in said(made):
        with pytest.raises(NoisegateError, check=about("bounds", "target")):
            made_of(name, memory=budget).set_params(**{fact: None}).fit(rows, target)
    assert budget.spent.epsilon == 0


@pytest.mark.parametrize("name", sorted(learners.ESTIMATORS))
def test_a_fit_costs_what_it_says_and_stops_at_the_budget(name):
    coins = np.random.default_rng(1)
    rows, target = coins.uniform(-9, 9, (50, 2)), coins.integers(0, 3, 50)
    budget = noisegate.memory("0.5")
    model = made_of(name, epsilon="0.3", memory=budget).fit(rows, target)
    assert 0 < model.cost_.epsilon <= Fraction("0.3")
    assert budget.spent.epsilon == model.cost_.epsilon
    assert "one row" in str(model.guarantee_)
    before = budget.spent
    with pytest.raises(OverBudget):
        clone(model).fit(rows, target)
    assert budget.spent == before


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("CategoricalNB", {"n_bins": 1}), ("CategoricalNB", {"n_bins": 2.5}),
        ("DecisionTreeClassifier", {"method": "magic"}),
        ("DecisionTreeClassifier", {"max_depth": 0}),
        ("DecisionTreeClassifier", {"method": "levels", "criterion": "luck"}),
        ("DecisionTreeClassifier", {"method": "levels", "bins": 1}),
        ("DecisionTreeClassifier", {"random_state": -1}),
        ("GaussianMixture", {"n_components": 0}), ("GaussianMixture", {"covariance_type": "tied"}),
        ("GaussianMixture", {"rounds": 0}),
        ("KMeans", {"n_clusters": 0}), ("KMeans", {"n_clusters": 2.5}),
        ("KMeans", {"method": "magic"}), ("KMeans", {"random_state": -1}),
        ("KMeans", {"method": "sulq", "rounds": 0}),
        ("LinearRegression", {"max_iter": 0}),
        ("LinearSVC", {"method": "magic"}), ("LinearSVC", {"C": -1}), ("LinearSVC", {"max_iter": 0}),
        ("LogisticRegression", {"method": "magic"}), ("LogisticRegression", {"C": 0}),
        ("LogisticRegression", {"C": True}), ("LogisticRegression", {"max_iter": 0}),
        ("LogisticRegression", {"max_iter": 2.5}),
        ("PCA", {"n_components": 0}), ("PCA", {"n_components": 9}), ("PCA", {"method": "magic"}),
        ("PCA", {"random_state": 0.5}),
        ("Perceptron", {"method": "magic"}), ("Perceptron", {"max_iter": 0}),
        ("RandomForestClassifier", {"max_depth": 99}),
        ("RandomForestClassifier", {"n_estimators": 0}),
        ("Ridge", {"alpha": -1}), ("Ridge", {"alpha": True}), ("Ridge", {"alpha": "much"}),
    ],
)  # fmt: skip
def test_bad_parameters_are_refused_before_any_charge(gate, name, given):
    matrix = gate.matrix(columns=["age", "size"], target="stage")
    with pytest.raises(SpecError):
        getattr(learners, name)(**given).fit(matrix)
    assert gate.spent.epsilon == 0


@pytest.fixture(scope="module")
def gate():
    rows = pa.table({"age": np.zeros(5), "size": np.zeros(5), "stage": [0, 1, 2, 0, 1]})
    facts = {"age": {"between": [0, 1]}, "size": {"between": [0, 1]}, "stage": {"in": [0, 1, 2]}}
    return noisegate.open(rows, epsilon=1, columns=facts)


def test_clones_share_a_budget_and_other_processes_have_none():
    budget = noisegate.memory(1)
    assert deepcopy(budget) is budget
    elsewhere = pickle.loads(pickle.dumps(budget))
    with pytest.raises(NoisegateError, check=about("process")):
        elsewhere.matrix(np.zeros((2, 2)), bounds=(0, 1))
