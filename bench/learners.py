"""Learners beside diffprivlib and scikit-learn, at the same pure ε and through the door.

Features are scaled to ±1 with given constants; 75 % of the rows are learnt from, split by class
with seed 0. diffprivlib 0.6.6's figures are means of 10 runs, typed in: nan where it diverges or
takes more than 12 s. Wine has 45 rows to try, so our means of it are over four times as many fits.
KMeans: inertia by that of scikit-learn's best of 5 starts, on all rows. PCA: the share of the
variance that 2 components hold. Classifiers: accuracy on the other 25 %. LinearRegression: R²
there, of y = tanh(X·w / √d + noise).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from math import isnan, nan
from statistics import mean
from time import process_time
from typing import Any

import numpy as np

import clusters
import noisegate
from noisegate import learners as private
from section import Effort, Shown, standard_error
from show import Column, Row

PRICES = ("0.1", "1", "10")
WITHIN = 0.02  # of the score without privacy, at ε = 1 and 100,000 rows
SETS = ("wine", "digits", "blobs100k", "classif100k")
TIMES = {"wine": 4}  # as many trials

# data, model: diffprivlib at each price, and scikit-learn without privacy
PEER: dict[tuple[str, str], tuple[float, float, float, float]] = {
    ("digits", "KMeans"): (4.75, 2.19, 1.56, 1.0),
    ("digits", "PCA"): (nan, nan, nan, 0.283),
    ("digits", "LogisticRegression"): (0.086, 0.109, 0.253, 0.976),
    ("digits", "GaussianNB"): (0.109, 0.187, 0.539, 0.833),
    ("digits", "LinearRegression"): (nan, nan, nan, 0.860),
    ("digits", "RandomForestClassifier"): (0.160, 0.463, 0.493, 0.889),
    ("digits", "DecisionTreeClassifier"): (0.224, 0.276, 0.277, 0.673),
    ("wine", "KMeans"): (4.97, 3.79, 1.51, 1.0),
    ("wine", "PCA"): (0.138, 0.157, 0.358, 0.597),
    ("wine", "LogisticRegression"): (0.329, 0.404, 0.744, 1.0),
    ("wine", "GaussianNB"): (0.331, 0.389, 0.764, 0.956),
    ("wine", "RandomForestClassifier"): (0.444, 0.700, 0.807, 1.0),
    ("wine", "DecisionTreeClassifier"): (0.540, 0.631, 0.642, 0.889),
    ("blobs100k", "KMeans"): (3.30, 2.05, 1.83, 1.0),
    ("blobs100k", "PCA"): (nan, nan, nan, 0.695),
    ("blobs100k", "LogisticRegression"): (0.707, 0.990, 0.960, 1.0),
    ("blobs100k", "GaussianNB"): (0.947, 0.985, 1.0, 1.0),
    ("blobs100k", "LinearRegression"): (nan, 0.762, 0.836, 0.836),
    ("blobs100k", "RandomForestClassifier"): (0.924, 0.926, 0.931, 1.0),
    ("blobs100k", "DecisionTreeClassifier"): (0.509, 0.510, 0.510, 0.999),
    ("classif100k", "KMeans"): (1.07, 1.02, 1.01, 1.0),
    ("classif100k", "PCA"): (0.129, nan, nan, 0.310),
    ("classif100k", "LogisticRegression"): (0.727, 0.792, 0.792, 0.792),
    ("classif100k", "GaussianNB"): (0.605, 0.755, 0.759, 0.760),
    ("classif100k", "LinearRegression"): (nan, nan, nan, 0.800),
    ("classif100k", "RandomForestClassifier"): (0.603, 0.611, 0.611, 0.864),
    ("classif100k", "DecisionTreeClassifier"): (0.565, 0.565, 0.565, 0.820),
}
OPTIONS: dict[str, dict[str, Any]] = {
    "PCA": {"n_components": 2},
    "RandomForestClassifier": {"n_estimators": 10, "max_depth": 5},
}
LEARNERS: tuple[Column, ...] = (
    ("data", "data", ""),
    ("model", "model", ""),
    ("ε", "price", ""),
    ("score", "score", ".3f"),
    ("±", "se", ".3f"),
    ("diffprivlib", "peer", ".3f"),
    ("not private", "open", ".3f"),
    ("CPU s", "seconds", ".2f"),
    ("ahead", "met", "met"),
    ("within 2 %", "near", "met"),
)


@dataclass(frozen=True)
class Data:
    """Rows within ±1 and their classes, cut once."""

    name: str
    rows: np.ndarray
    classes: np.ndarray
    train: np.ndarray
    test: np.ndarray
    target: np.ndarray

    @property
    def clusters(self) -> int:
        return len(np.unique(self.classes))

    @property
    def halves(self) -> tuple[np.ndarray, np.ndarray]:
        """For regressions: a split that does not look at classes, as the figures' own."""
        from sklearn.model_selection import train_test_split  # noqa: PLC0415 - slow to load

        train, test = train_test_split(np.arange(len(self.rows)), test_size=0.25, random_state=0)
        return train, test


@cache
def data_of(name: str) -> Data:
    from sklearn import datasets as sets  # noqa: PLC0415 - slow to load
    from sklearn.model_selection import train_test_split  # noqa: PLC0415

    if name == "blobs100k":
        rows, classes = sets.make_blobs(100_000, 10, centers=8, cluster_std=1.5, random_state=0)
    elif name == "classif100k":
        rows, classes = sets.make_classification(
            100_000, 20, n_informative=10, n_redundant=5, random_state=0
        )
    else:
        rows, classes = getattr(sets, f"load_{name}")(return_X_y=True)
    low, high = rows.min(axis=0), rows.max(axis=0)
    scaled = 2 * (rows - low) / np.where(high > low, high - low, 1) - 1
    places = np.arange(len(rows))
    train, test = train_test_split(places, test_size=0.25, random_state=0, stratify=classes)
    columns = rows.shape[1]
    line = np.random.default_rng(0).standard_normal(columns)
    noise = np.random.default_rng(1).normal(0, 0.1, len(rows))
    return Data(name, scaled, classes, train, test, np.tanh(scaled @ line / columns**0.5 + noise))


def measure(effort: Effort) -> Iterator[Shown]:
    """Every model on every set that both have, at three prices."""
    rows: list[Row] = []
    for name in SETS[:2] if effort.quick else SETS:
        for (data, model), figures in PEER.items():
            if data != name or not hasattr(private, model):
                continue
            for price, peer in zip(PRICES, figures, strict=False):
                effort.say(f"{data} {model} at ε = {price}")
                trials = effort.trials * TIMES.get(data, 1)
                rows.append(_row(data, model, price, peer, figures[3], trials))
    yield Shown("Learners at pure ε", LEARNERS, rows)
    if not effort.quick:
        effort.say("k-means of many rows")
        yield Shown("k-means of many rows", clusters.CLUSTERED, clusters.measure())


def _row(name: str, model: str, price: str, peer: float, known: float, trials: int) -> Row:
    data = data_of(name)
    started = process_time()
    scores = [SCORES.get(model, _accuracy)(data, model, price) for _ in range(trials)]
    seconds = (process_time() - started) / trials
    score = mean(scores)
    less = model == "KMeans"
    tie = peer >= known and round(score, 3) >= peer  # nobody can be ahead of what is not private
    ahead = isnan(peer) or (score < peer if less else score > peer or tie)
    near = None
    if price == "1" and name.endswith("100k"):
        near = score <= known * (1 + WITHIN) if less else score >= known * (1 - WITHIN)
    return {
        "data": name, "model": model, "price": price, "score": score, "se": standard_error(scores),
        "peer": peer, "open": known, "seconds": seconds, "met": ahead, "near": near,
    }  # fmt: skip


def _made(model: str, price: str, **terms: Any) -> Any:
    made = getattr(private, model)
    given = {"epsilon": price, "bounds": (-1, 1), "memory": noisegate.memory(price)}
    return made(**given, **OPTIONS.get(model, {}), **terms)


def _accuracy(data: Data, model: str, price: str) -> float:
    learner = _made(model, price, classes=list(range(data.clusters)))
    learner.fit(data.rows[data.train], data.classes[data.train])
    return float(np.mean(learner.predict(data.rows[data.test]) == data.classes[data.test]))


def _inertia(data: Data, model: str, price: str) -> float:
    learner = _made(model, price, n_clusters=data.clusters).fit(data.rows)
    return _distance(data.rows, learner.cluster_centers_) / _best(data.name)


def _distance(rows: np.ndarray, centres: np.ndarray) -> float:
    squares = (rows**2).sum(axis=1)[:, None] - 2 * rows @ centres.T + (centres**2).sum(axis=1)
    return float(squares.min(axis=1).sum())


@cache
def _best(name: str) -> float:
    from sklearn.cluster import KMeans  # noqa: PLC0415

    data = data_of(name)
    return float(KMeans(data.clusters, n_init=5, random_state=0).fit(data.rows).inertia_)


def _variance(data: Data, model: str, price: str) -> float:
    learner = _made(model, price).fit(data.rows)
    middle = data.rows - data.rows.mean(axis=0)
    return float(((middle @ learner.components_.T) ** 2).sum() / (middle**2).sum())


def _determined(data: Data, model: str, price: str) -> float:
    learner = _made(model, price, target_bounds=(-1, 1))
    train, test = data.halves
    learner.fit(data.rows[train], data.target[train])
    told, true = learner.predict(data.rows[test]), data.target[test]
    return float(1 - ((told - true) ** 2).sum() / ((true - true.mean()) ** 2).sum())


SCORES: dict[str, Callable[[Data, str, str], float]] = {
    "KMeans": _inertia,
    "PCA": _variance,
    "LinearRegression": _determined,
}
