"""Audits of releases, by every recipe, and of learners.

Of a release, one unit is counted in all that the recipe asks; of a fit, one person is at the far
corner of the bounds, in every round.
"""

from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from math import exp, log
from types import MappingProxyType
from typing import Any, Final, final

import numpy as np
import pyarrow as pa

import noisegate
from noisegate.audit.audit import Audit
from noisegate.audit.confidence import Floats
from noisegate.audit.path import path_audit
from noisegate.frozen import dataclass, field, replace
from noisegate.gate import Gate
from noisegate.orders import release_order

_EPSILON: Final = 3  # where few runs say most
_LINE: Final = "SELECT COUNT(*) FROM data GROUP BY BIN(z, 1)"
_FEW: Final = "SELECT COUNT(*) FROM data GROUP BY BIN(z, 16)"
_MAP: Final = "SELECT COUNT(*) FROM data GROUP BY BIN(x, 2), BIN(y, 2)"
_WEEK: Final = "SELECT COUNT(*) FROM data GROUP BY BIN(x, 8), BIN(y, 8)"
_WHERE: Final = "no rows, or one, in the first cell"
_BESIDE: Final = "few rows elsewhere, without and with one in the first cell"
_KEYS: Final = ["a", "b", "c", "d"]
_FACTS: Final[dict[str, dict[str, Any]]] = {
    "x": {"between": [0, 32]}, "y": {"between": [0, 32]}, "z": {"between": [0, 127]},
    "key": {"in": _KEYS},
}  # fmt: skip
_WHOLE: Final = pa.int64()
_SCHEMA: Final = pa.schema([("x", _WHOLE), ("y", _WHOLE), ("z", _WHOLE), ("key", pa.string())])


def opened(accountant: str = "pure") -> Gate:
    """A practice gate of one table: every row is one person."""
    return noisegate.open(
        rows((1, 1, "a")), columns=_FACTS, practice=True, accountant=accountant, delta="1e-6"
    )


def rows(*held: tuple[int, int, str]) -> pa.Table:
    """Rows of that table; z is 3 x, or its end."""
    listed = [{"x": x, "y": y, "z": min(3 * x, 127), "key": key} for x, y, key in held]
    return pa.Table.from_pylist(listed, schema=_SCHEMA)


_UNIT: Final = (0, 0, "a")


@final
@dataclass(frozen=True)
class Asked:
    """One release, drawn anew."""

    name: str
    terms: Mapping[str, Any]

    def __call__(self, gate: Gate) -> object:
        """All of it."""
        order = release_order(self.name, **{"epsilon": _EPSILON} | dict(self.terms))
        return gate.run(order, fresh=True)


def release_audit(  # noqa: PLR0913 - each is a choice
    name: str,
    release: str,
    *,
    accountant: str = "pure",
    base: tuple[tuple[int, int, str], ...] = (),
    unit: tuple[int, int, str] = _UNIT,
    why: str = "",
    reachable: float | None = None,
    trials: int | None = None,
    tries: int = 3,
    **terms: Any,  # noqa: ANN401 - those of gate.release
) -> Audit:
    """An audit of one kind of release."""
    said: dict[str, Any] = {"why": why or None, "trials": trials, "reachable": reachable}
    how = {key: value for key, value in said.items() if value is not None}
    return path_audit(
        f"release: {name}", Asked(release, terms), opened=partial(opened, accountant),
        pair=(rows(*base, unit), rows(*base)), neighbours=_BESIDE if base else _WHERE,
        tries=tries, **how,
    )  # fmt: skip


_RECIPES: Final[Mapping[str, Mapping[str, Any]]] = {
    "cells": {"sql": _LINE},
    "tree": {"sql": _LINE, "workload": "ranges"},
    "haar": {"sql": _LINE, "workload": "ranges"},
    "fourier": {
        "sql": _FEW,
        "tries": 12,
        "trials": 1_000_000,
        "why": "the cut is drawn too, and most odds move by less than the price of it",
    },
    "dawa": {"sql": _LINE},
    "direct": {"sql": _FEW, "workload": [{"z": (0, end)} for end in (31, 63, 127)]},
    "ahp": {"sql": _LINE},
    "mwem": {"sql": _FEW, "workload": [{"z": (0, end)} for end in (31, 63, 127)]},
    "planned": {"sql": _LINE, "workload": "ranges"},
    "adaptive": {"sql": _LINE},
    "sketch": {"sql": _LINE},
    "sensing": {"sql": _LINE},
    "convex": {"sql": _LINE, "accountant": "zcdp"},
    "tree, Gaussian": {"sql": _LINE, "workload": "ranges", "accountant": "zcdp"},
    "quadtree": {"sql": _MAP, "workload": "ranges"},
    "kdtree": {"sql": _MAP},
    "hybrid": {"sql": _MAP},
    "privtree": {"sql": _MAP},
    "uniform-grid": {"sql": _MAP},
    "adaptive-grid": {"sql": _MAP},
    "marginals": {"sql": _MAP},
    "seasonal": {"sql": _WEEK, "unit": (8, 8, "a"), "harmonics": 1, "trials": 600_000},
    "totals": {"columns": {"key": None}, "parents": [[0, 0, 1, 1]]},
}
_KINDS: Final[Mapping[str, Mapping[str, Any]]] = {
    "cube": {"columns": {"x": 16, "y": 16, "key": None}, "sets": 2},
    "sparse": {"columns": {"x": 16, "key": None}, "threshold": 1, "trials": 200_000},
    "above": {
        "columns": {"x": 4}, "threshold": 1, "most": 1, "base": ((16, 0, "b"),), "trials": 100_000,
        "questions": [*({"x": (0, end)} for end in (3, 7, 11, 15)), {"x": (16, 19)}],
    },
    "cdf": {"columns": {"x": 8}},
}  # fmt: skip


def _of_recipe(name: str) -> Audit:
    terms = dict(_RECIPES[name])
    return release_audit(name, "histogram", method=name.partition(",")[0], **terms)


def _of_kind(name: str) -> Audit:
    return release_audit(name, name, **_KINDS[name])


def _boxplot() -> Audit:
    """The median, which has a fifth of the price: it is found below the one value, or not.

    Of one value all other points are half a rank off: 8 h to 1 + 24 h with h = e^(-ε/2). Of two
    those below are one rank off, and those between are not: 8 h² to 25. So few values hardly
    choose among radii.
    """
    one, two = rows((8, 0, "b")), rows((8, 0, "b"), (32, 0, "a"))
    half = exp(-_EPSILON / 2)
    chances = 8 * half / (1 + 32 * half), 8 * half**2 / (25 + 8 * half**2)
    asked = Asked("boxplot", {"columns": {"x": None}, "epsilon": 5 * _EPSILON})
    audit = path_audit(
        "release: boxplot", asked, opened=opened, pair=(one, two), tries=1, trials=160_000,
        neighbours="one row at 8 of 0, …, 32, without and with one at 32", event=_below_eight,
        reachable=log(chances[0] / chances[1]) / _EPSILON,
        why="the claim is for the median, a fifth of the price; 'brackets' audits the kind",
    )  # fmt: skip
    return replace(audit, claims={0.0: float(_EPSILON)})


def _below_eight(outputs: Floats) -> Floats:
    """The third of five points is below 8; the first column is of added noise, of which is none."""
    return np.asarray(outputs[:, 5] < 8, np.float64)


_NEAR: Final = tuple((15 + n % 3, 15 + n // 3 % 3, "abcd"[n % 4]) for n in range(36))
_FAR: Final = (32, 32, "a")
_TRIALS: Final = {"linear regression": 1_500_000, "ridge": 1_500_000}  # ten draws: rarely far out
_FAR_OFF: Final = "36 rows near the middle, without and with one at the far corner of the bounds"


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
        pair=(rows(*_NEAR, _FAR), rows(*_NEAR)), neighbours=_FAR_OFF,
        tries=8, trials=_TRIALS.get(name, 1_000_000),
    )  # fmt: skip


AUDITS: Final[Mapping[str, Callable[[], Audit]]] = MappingProxyType(
    {f"release: {name}": partial(_of_recipe, name) for name in _RECIPES}
    | {f"release: {name}": partial(_of_kind, name) for name in _KINDS}
    | {"release: boxplot": _boxplot}
    | {f"learner: {name}": partial(_of_learner, name) for name in FITS}
)
