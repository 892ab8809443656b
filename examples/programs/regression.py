"""A model of scikit-learn for `noisegate apply`."""

from sklearn.linear_model import LinearRegression


def trend(rows):
    """How much higher ages are in the south, by a model of scikit-learn."""
    south = (rows["ward"] == "south").astype(float).reshape(-1, 1)
    return LinearRegression().fit(south, rows["age"]).coef_[0]
