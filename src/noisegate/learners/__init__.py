"""Learners: programs on top of K that see rows through statistics alone.

`asking.py` is all they see, `matrix.py` and `fitting.py` are how a fit is ordered and paid for, and
`base.py` what the estimators share; each estimator and its algorithm have one file, in folders:
`linear/`, `trees/`, `shapes/` (clusters, mixtures, components) and `items/`.
"""

from typing import Any

ESTIMATORS = {  # of scikit-learn's kind, and the file of each
    "CategoricalNB": "trees.naive_bayes",
    "DecisionTreeClassifier": "trees.tree",
    "EmpiricalCovariance": "shapes.pca",
    "GaussianMixture": "shapes.mixture",
    "GaussianNB": "trees.naive_bayes",
    "KMeans": "shapes.kmeans",
    "LinearRegression": "linear.regression",
    "LinearSVC": "linear.svm",
    "LogisticRegression": "linear.logistic",
    "PCA": "shapes.pca",
    "Perceptron": "linear.perceptron",
    "RandomForestClassifier": "trees.forest",
    "Ridge": "linear.regression",
    "StandardScaler": "shapes.scaler",
}
_HOME = ESTIMATORS | {
    "AssociationRules": "items.rules",
    "ExponentialFamily": "items.families",
    "FrequentItemsets": "items.itemsets",
    "NetDatabase": "items.net",
    "StatisticalQueries": "queries",
    "fit_family": "items.families",
    "fit_likelihood": "items.likelihood",
    "learn_class": "classes",
    "scorer": "arrays",
}
__all__ = list(_HOME)


def __getattr__(name: str) -> Any:  # noqa: ANN401 - any estimator, imported when first used
    from importlib import import_module  # noqa: PLC0415 - scikit-learn is slow to load

    if name not in _HOME:
        raise AttributeError(f"module 'noisegate.learners' has no attribute {name!r}")
    try:
        return getattr(import_module(f"noisegate.learners.{_HOME[name]}"), name)
    except ModuleNotFoundError:
        from noisegate.extras import extra  # noqa: PLC0415

        extra("sklearn", "Learners", "learn")
        raise
