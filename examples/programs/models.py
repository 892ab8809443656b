"""Programs for `noisegate apply`: each makes numbers of some rows, a dictionary of NumPy arrays."""

import numpy as np


def normal(rows):
    """Mean and standard deviation of the most likely normal distribution, without its bias."""
    ages = rows["age"]
    return ages.mean(), ages.std(ddof=1)


def groups(rows, count=2, rounds=20):
    """The centres of groups, by k-means; in order, so that those of all blocks go together."""
    ages = rows["age"].astype(float)
    centres = np.quantile(ages, (np.arange(count) + 0.5) / count)
    for _ in range(rounds):
        nearest = np.abs(ages[:, None] - centres).argmin(axis=1)
        centres = np.array([ages[nearest == group].mean() for group in range(count)])
    return np.sort(centres)
