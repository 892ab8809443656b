"""Audits of learners: one person at the far corner of the bounds, in every round of a fit."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from types import MappingProxyType
from typing import Any, Final, final

from noisegate.audit.audit import Audit
from noisegate.audit.of_recipes import opened, rows
from noisegate.audit.path import path_audit
from noisegate.gate import Gate

_EPSILON: Final = 3
_NEAR: Final = tuple((15 + n % 3, 15 + n // 3 % 3, "abcd"[n % 4]) for n in range(36))
_FAR: Final = (32, 32, "a")
_TRIALS: Final = {"linear regression": 1_500_000, "ridge": 1_500_000}  # ten draws: rarely far out
_WORDS: Final = "36 rows near the middle, without and with one at the far corner of the bounds"


@final
@dataclass(frozen=True)
class Fitted:
    """One fit, drawn anew."""

    learner: str
    terms: Mapping[str, Any] = field(default_factory=dict)
    columns: tuple[str, ...] = ("x", "y")
    target: str | None = None

    def __call__(self, gate: Gate) -> object:
        """All of it."""
        learners = import_module("noisegate.learners")  # scikit-learn is slow to load
        made = getattr(learners, self.learner)(epsilon=_EPSILON, **self.terms)
        found = gate.matrix(columns=list(self.columns), target=self.target)
        return made.fit(found)


_CLASSES: Final[dict[str, Any]] = {"target": "key"}
_NUMBER: Final[dict[str, Any]] = {"columns": ("x",), "target": "y"}
FITS: Final[Mapping[str, tuple[Fitted, str]]] = {
    "k-means": (Fitted("KMeans", {"n_clusters": 2}), "pure"),
    "k-means, sulq": (Fitted("KMeans", {"n_clusters": 2, "method": "sulq", "rounds": 2}), "pure"),
    "k-means, Gaussian": (Fitted("KMeans", {"n_clusters": 2}), "zcdp"),
    "PCA": (Fitted("PCA"), "pure"),
    "covariance": (Fitted("EmpiricalCovariance"), "pure"),
    "scaler": (Fitted("StandardScaler"), "pure"),
    "Gaussian mixture": (Fitted("GaussianMixture", {"n_components": 2, "rounds": 1}), "pure"),
    "linear regression": (Fitted("LinearRegression", **_NUMBER), "pure"),
    "ridge": (Fitted("Ridge", **_NUMBER), "pure"),
    "logistic, moments": (Fitted("LogisticRegression", **_CLASSES), "pure"),
    "logistic, objective": (
        Fitted("LogisticRegression", {"method": "objective"}, **_CLASSES), "pure"),
    "SVM": (Fitted("LinearSVC", **_CLASSES), "pure"),
    "perceptron": (Fitted("Perceptron", **_CLASSES), "pure"),
    "Gaussian naive Bayes": (Fitted("GaussianNB", **_CLASSES), "pure"),
    "categorical naive Bayes": (Fitted("CategoricalNB", **_CLASSES), "pure"),
    "tree": (Fitted("DecisionTreeClassifier", **_CLASSES), "pure"),
    "forest": (Fitted("RandomForestClassifier", **_CLASSES), "pure"),
    "itemsets": (Fitted("FrequentItemsets", {"k": 2, "size": 1}, columns=("key",)), "pure"),
    "rules": (Fitted("AssociationRules", {"k": 2}, columns=("key",)), "pure"),
    "net": (Fitted("NetDatabase", {"size": 2}, columns=("key",)), "pure"),
}  # fmt: skip


def _of_learner(name: str) -> Audit:
    fitted, accountant = FITS[name]
    return path_audit(
        f"learner: {name}", fitted, opened=partial(opened, accountant),
        pair=(rows(*_NEAR, _FAR), rows(*_NEAR)), neighbours=_WORDS,
        tries=8, trials=_TRIALS.get(name, 1_000_000),
    )  # fmt: skip


AUDITS: Final[Mapping[str, Callable[[], Audit]]] = MappingProxyType(
    {f"learner: {name}": partial(_of_learner, name) for name in FITS}
)
