"""The gamma family by its statistics LN(x) and x: for `noisegate statistic --family`."""

import math


def log_partition(theta):
    """A(θ) of the density x^θ1 e^(θ2 x): ln Γ(θ1 + 1) - (θ1 + 1) ln(-θ2)."""
    shape, rate = theta[0] + 1, -theta[1]
    return math.lgamma(shape) - shape * math.log(rate) if shape > 0 and rate > 0 else math.inf
