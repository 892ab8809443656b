"""OpenDP: whole vectors through its measurements."""

from importlib.metadata import version

import opendp.prelude as dp

from clock import cells, report

dp.enable_features("contrib")
INTEGERS = dp.vector_domain(dp.atom_domain(T=int))
FLOATS = dp.vector_domain(dp.atom_domain(T=float, nan=False))

zeros, floats = [0] * cells(), [0.0] * cells()
integer_laplace = dp.m.make_laplace(INTEGERS, dp.l1_distance(T=int), scale=1.0)
float_laplace = dp.m.make_laplace(FLOATS, dp.l1_distance(T=float), scale=1.0)
integer_gaussian = dp.m.make_gaussian(INTEGERS, dp.l2_distance(T=float), scale=1.0)
float_gaussian = dp.m.make_gaussian(FLOATS, dp.l2_distance(T=float), scale=1.0)

report(
    {
        "discrete Laplace, scale 1": lambda: integer_laplace(zeros),
        "Laplace on floats, scale 1": lambda: float_laplace(floats),
        "discrete Gaussian, σ 1": lambda: integer_gaussian(zeros),
        "Gaussian on floats, σ 1": lambda: float_gaussian(floats),
    },
    release=f"OpenDP {version('opendp')}",
)
