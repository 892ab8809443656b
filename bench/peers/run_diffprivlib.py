"""diffprivlib: one call per cell. It takes no σ; the ε below give σ = 1.00 at δ = 1e-6."""

from importlib.metadata import version

from diffprivlib.mechanisms import GaussianAnalytic, GaussianDiscrete, Geometric, Laplace

from clock import cells, report

geometric = Geometric(epsilon=1, sensitivity=1)
laplace = Laplace(epsilon=1, sensitivity=1)
integer_gaussian = GaussianDiscrete(epsilon=4.5, delta=1e-6, sensitivity=1)
float_gaussian = GaussianAnalytic(epsilon=4.9, delta=1e-6, sensitivity=1)
count = cells()

report(
    {
        "discrete Laplace, scale 1": lambda: [geometric.randomise(0) for _ in range(count)],
        "Laplace on floats, scale 1": lambda: [laplace.randomise(0.0) for _ in range(count)],
        "discrete Gaussian, σ 1": lambda: [integer_gaussian.randomise(0) for _ in range(count)],
        "Gaussian on floats, σ 1": lambda: [float_gaussian.randomise(0.0) for _ in range(count)],
    },
    release=f"diffprivlib {version('diffprivlib')}",
)
