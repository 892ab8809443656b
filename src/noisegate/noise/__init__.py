"""The only room with chance: secure bits and exact, vectorised samplers.

Imports `exact` and `errors`. Read `table.py` first: how a draw is exact and fast at once.
"""

from typing import TYPE_CHECKING, Any

from noisegate.noise.geometric import discrete_laplace as discrete_laplace
from noisegate.noise.geometric import geometric as geometric

if TYPE_CHECKING:
    from noisegate.noise.binomials import binomial as binomial
    from noisegate.noise.box import box_noise as box_noise
    from noisegate.noise.coins import bernoulli as bernoulli
    from noisegate.noise.coins import sample_rows as sample_rows
    from noisegate.noise.continuous import rounded as rounded
    from noisegate.noise.cut_geometric import geometric_tail as geometric_tail
    from noisegate.noise.cut_geometric import truncated_geometric as truncated_geometric
    from noisegate.noise.gaussian import discrete_gaussian as discrete_gaussian
    from noisegate.noise.uniform import uniform_below as uniform_below

_HOME = {
    "bernoulli": "coins", "binomial": "binomials", "box_noise": "box",
    "discrete_gaussian": "gaussian", "geometric_tail": "cut_geometric", "rounded": "continuous",
    "sample_rows": "coins", "truncated_geometric": "cut_geometric", "uniform_below": "uniform",
}  # fmt: skip


def __getattr__(name: str) -> Any:  # noqa: ANN401 - a sampler that few questions need
    from importlib import import_module  # noqa: PLC0415

    if name not in _HOME:
        raise AttributeError(f"module 'noisegate.noise' has no attribute {name!r}")
    return getattr(import_module(f"noisegate.noise.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return [*globals(), *_HOME]
