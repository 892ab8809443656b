"""All mechanisms by name, so that a plan's record becomes a mechanism again.

>>> from noisegate.mechanisms.base import to_record
>>> from_record(to_record(Geometric(scale=Fraction(10))))
Geometric(scale=Fraction(10, 1))
"""

from collections.abc import Mapping
from dataclasses import fields
from fractions import Fraction
from types import MappingProxyType
from typing import Any, Final

from noisegate.errors import SpecError
from noisegate.exact import fraction, shown
from noisegate.mechanisms.additive.box_noise import BoxNoise
from noisegate.mechanisms.additive.crowd_counts import CrowdCounts
from noisegate.mechanisms.additive.gaussian import DiscreteGaussian, RoundedGaussian
from noisegate.mechanisms.additive.geometric import Geometric
from noisegate.mechanisms.additive.laplace import Laplace
from noisegate.mechanisms.additive.least_sum import LeastSum
from noisegate.mechanisms.additive.truncated_geometric import TruncatedGeometric
from noisegate.mechanisms.base import Mechanism
from noisegate.mechanisms.keys.key_selection import (
    KeySelection,
    ThresholdedGaussian,
    ThresholdedGeometric,
)
from noisegate.mechanisms.keys.sparse_geometric import SparseGeometric
from noisegate.mechanisms.keys.sparse_priority import SparsePriority
from noisegate.mechanisms.objective.perturbed_logistic import PerturbedLogistic
from noisegate.mechanisms.partitions.dawa_partition import DawaPartition
from noisegate.mechanisms.partitions.fourier_cut import FourierCut
from noisegate.mechanisms.partitions.furthest import Furthest
from noisegate.mechanisms.partitions.privtree import PrivTree
from noisegate.mechanisms.partitions.small_database import SmallDatabase
from noisegate.mechanisms.partitions.splits import Splits
from noisegate.mechanisms.partitions.unevenness import Unevenness
from noisegate.mechanisms.quantiles.brackets import Brackets
from noisegate.mechanisms.quantiles.local_quantile import LocalQuantile
from noisegate.mechanisms.quantiles.quantile import Quantile
from noisegate.mechanisms.quantiles.quantiles import Quantiles
from noisegate.mechanisms.quantiles.winsorised import Winsorised
from noisegate.mechanisms.selection.above_threshold import AboveThreshold
from noisegate.mechanisms.selection.bounds import PrivateBounds
from noisegate.mechanisms.selection.exponential import Exponential
from noisegate.mechanisms.selection.noisy_max import NoisyMax
from noisegate.mechanisms.selection.outside_band import OutsideBand
from noisegate.mechanisms.selection.permute_and_flip import PermuteAndFlip
from noisegate.mechanisms.selection.top_k import TopK
from noisegate.mechanisms.smooth.graph_numbers import GraphNumber, LocalGraph
from noisegate.mechanisms.smooth.propose import ProposeTestRelease
from noisegate.mechanisms.smooth.smooth import SmoothLaplace, SmoothLognormal, SmoothStudent

_KINDS: Final[tuple[type[Mechanism[Any]], ...]] = (
    Laplace, Geometric, TruncatedGeometric, BoxNoise, DiscreteGaussian, RoundedGaussian,
    Exponential, PermuteAndFlip, TopK, NoisyMax, AboveThreshold, Quantile, Quantiles, Brackets,
    KeySelection, ThresholdedGeometric, ThresholdedGaussian, PrivateBounds, PrivTree, Splits,
    DawaPartition, FourierCut, Unevenness, SparseGeometric, SparsePriority,
    OutsideBand, Furthest, CrowdCounts, SmoothStudent, SmoothLaplace, SmoothLognormal,
    ProposeTestRelease, LocalQuantile, GraphNumber, LocalGraph, LeastSum, SmallDatabase,
    Winsorised, PerturbedLogistic,
)  # fmt: skip
MECHANISMS: Final[Mapping[str, type[Mechanism[Any]]]] = MappingProxyType(
    {kind.name: kind for kind in _KINDS}
)


def from_record(record: Mapping[str, Any]) -> Mechanism[Any]:
    """The mechanism a record stands for; refuses names and fields it does not know."""
    kind = MECHANISMS.get(str(record.get("mechanism")))
    if kind is None:
        raise SpecError(
            f"The mechanism {record.get('mechanism')!r} is unknown.", fix=f"Use {list(MECHANISMS)}."
        )
    known = {field.name: field.type for field in fields(kind)}  # type: ignore[arg-type]
    if set(record) != {"mechanism", *known}:
        raise SpecError(f"The fields of {kind.name!r} do not match.", fix=f"Give {sorted(known)}.")
    return kind(**{name: _parse(known[name], record[name], name) for name in known})


def _parse(kind: Any, value: Any, name: str) -> object:  # noqa: ANN401 - JSON
    try:
        if kind is bool and isinstance(value, bool):
            return value
        if kind is str and isinstance(value, str):
            return value
        if kind in (int, Fraction) and isinstance(value, str):
            return int(value) if kind is int else fraction(value, name=name)
        if isinstance(value, Mapping):
            return from_record(value)
        if isinstance(value, list) and all(isinstance(item, str) for item in value):
            return tuple(fraction(item, name=name) for item in value)
    except ValueError:
        pass
    raise SpecError(
        f"{name} is {shown(value)!r}.", fix="Write numbers as text, such as '1/3'."
    ) from None
