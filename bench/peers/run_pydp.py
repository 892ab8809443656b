"""PyDP, Google's C++ library: one call per cell, there is no call for vectors."""

from importlib.metadata import version

from pydp.algorithms.numerical_mechanisms import GaussianMechanism, LaplaceMechanism

from clock import cells, report

laplace = LaplaceMechanism(1.0, 1.0)  # epsilon, sensitivity
gaussian = GaussianMechanism.create_from_standard_deviation(1.0)
count = cells()

report(
    {
        "discrete Laplace, scale 1": lambda: [laplace.add_noise(0) for _ in range(count)],
        "Laplace on floats, scale 1": lambda: [laplace.add_noise(0.0) for _ in range(count)],
        "discrete Gaussian, σ 1": lambda: [gaussian.add_noise(0) for _ in range(count)],
        "Gaussian on floats, σ 1": lambda: [gaussian.add_noise(0.0) for _ in range(count)],
    },
    release=f"PyDP {version('python-dp')}",
)
