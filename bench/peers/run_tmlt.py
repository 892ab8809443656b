"""Tumult Core: one call per cell. Importing it needs pyspark, but no Spark session is started."""

from importlib.metadata import version

from tmlt.core.domains.numpy_domains import NumpyFloatDomain
from tmlt.core.measurements.noise_mechanisms import (
    AddDiscreteGaussianNoise,
    AddGaussianNoise,
    AddGeometricNoise,
    AddLaplaceNoise,
)

from clock import cells, report

geometric = AddGeometricNoise(1)
laplace = AddLaplaceNoise(NumpyFloatDomain(), 1)
integer_gaussian = AddDiscreteGaussianNoise(1)
float_gaussian = AddGaussianNoise(NumpyFloatDomain(), 1)
count = cells()

report(
    {
        "discrete Laplace, scale 1": lambda: [geometric(0) for _ in range(count)],
        "Laplace on floats, scale 1": lambda: [laplace(0.0) for _ in range(count)],
        "discrete Gaussian, σ 1": lambda: [integer_gaussian(0) for _ in range(count)],
        "Gaussian on floats, σ 1": lambda: [float_gaussian(0.0) for _ in range(count)],
    },
    release=f"Tumult Core {version('tmlt.core')}",
)
