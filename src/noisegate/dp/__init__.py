"""Differential privacy without a gate: samplers, mechanisms, events, accountants, curves, filters.

For those who study or build mechanisms. The parts are those that the gate itself stands on, under
names that stay. No ledger is kept and no table is protected here: whoever draws noise from a
library has to count what it costs, with a `Filter` or an `Odometer`.

>>> from noisegate import dp
>>> count = dp.Geometric.for_epsilon("0.1", sensitivity=dp.L1(1))
>>> count.interval(0.95)  # how far an answer may be off
30
>>> run = dp.Curve(count.event(dp.L1(1))) * 100
>>> round(run.epsilon("1e-6"), 4)
4.7746
>>> account = dp.Filter(epsilon=1, delta="1e-6", accountant="zcdp")
>>> account.spend(count.event(dp.L1(1)))
>>> account.fits(dp.Curve(count.event(dp.L1(1))) * 50)
False

Samplers take ``size`` as NumPy does, and draw from the system's secure bits:

>>> dp.discrete_laplace(10, 3).shape
(3,)

`docs/library.md` walks through all of it.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from noisegate.dp.curve import Curve as Curve
    from noisegate.dp.filters import Filter as Filter
    from noisegate.dp.filters import Odometer as Odometer
    from noisegate.dp.own import audit_of as audit_of
    from noisegate.dp.own import measure as measure
    from noisegate.dp.own import measure_plan as measure_plan

_HOME = {
    # how far answers move
    "L1": "privacy.distance", "L2": "privacy.distance",
    # what is lost
    "ApproxDP": "privacy.loss", "ZCDP": "privacy.loss", "RenyiDP": "privacy.loss",
    # mechanisms
    "Geometric": "mechanisms.additive.geometric", "Laplace": "mechanisms.additive.laplace",
    "TruncatedGeometric": "mechanisms.additive.truncated_geometric",
    "DiscreteGaussian": "mechanisms.additive.gaussian",
    "RoundedGaussian": "mechanisms.additive.rounded_gaussian",
    "Exponential": "mechanisms.selection.exponential",
    "PermuteAndFlip": "mechanisms.selection.permute_and_flip",
    "TopK": "mechanisms.selection.top_k", "NoisyMax": "mechanisms.selection.noisy_max",
    "AboveThreshold": "mechanisms.selection.above_threshold",
    # what happened
    **dict.fromkeys(
        ("Event", "GeometricEvent", "LaplaceEvent", "DiscreteGaussianEvent", "GaussianEvent",
         "ExponentialEvent", "PermuteAndFlipEvent", "TopKEvent", "AboveThresholdEvent",
         "DeclaredEvent", "DeclaredZCDPEvent", "Sequential", "Parallel", "Repeated", "Group",
         "PoissonSampled"),
        "privacy.event",
    ),
    # what it costs
    "Accountant": "accounting.accountant", "accountant_named": "accounting.accountants",
    "pure_loss": "accounting.pure", "zcdp_loss": "accounting.zcdp",
    "renyi_loss": "accounting.renyi",
    "Curve": "dp.curve", "Filter": "dp.filters", "Odometer": "dp.filters",
    # noise for an ε, and back
    **dict.fromkeys(
        ("geometric_scale", "discrete_gaussian_variance", "discrete_gaussian_variance_up",
         "gaussian_variance_up", "gaussian_delta_up", "geometric_error", "laplace_error",
         "discrete_gaussian_error", "gaussian_error"),
        "planning.calibrate",
    ),
    "poisson": "accounting.amplification", "fixed_size": "accounting.amplification",
    # samplers
    **dict.fromkeys(
        ("bernoulli", "binomial", "discrete_gaussian", "discrete_laplace", "geometric",
         "truncated_geometric", "rounded", "uniform_below"),
        "noise",
    ),
    # held to account
    "Audit": "audit", "Extent": "audit", "bound": "audit",
    # of one's own, through the door of a gate
    "OwnMechanism": "curator.own", "audit_of": "dp.own", "measure": "dp.own",
    "measure_plan": "dp.own",
}  # fmt: skip
__all__ = list(_HOME)


def __getattr__(name: str) -> Any:  # noqa: ANN401 - any public name, imported when first used
    from importlib import import_module  # noqa: PLC0415

    if name not in _HOME:
        raise AttributeError(f"module 'noisegate.dp' has no attribute {name!r}")
    return getattr(import_module(f"noisegate.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return __all__
