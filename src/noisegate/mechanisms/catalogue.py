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
from noisegate.mechanisms.above_threshold import AboveThreshold
from noisegate.mechanisms.base import Mechanism
from noisegate.mechanisms.bounds import PrivateBounds
from noisegate.mechanisms.box_noise import BoxNoise
from noisegate.mechanisms.brackets import Brackets
from noisegate.mechanisms.crowd_counts import CrowdCounts
from noisegate.mechanisms.dawa_partition import DawaPartition
from noisegate.mechanisms.exponential import Exponential
from noisegate.mechanisms.fourier_cut import FourierCut
from noisegate.mechanisms.furthest import Furthest
from noisegate.mechanisms.gaussian import DiscreteGaussian, RoundedGaussian
from noisegate.mechanisms.geometric import Geometric
from noisegate.mechanisms.graph_numbers import GraphNumber, LocalGraph
from noisegate.mechanisms.key_selection import (
    KeySelection,
    ThresholdedGaussian,
    ThresholdedGeometric,
)
from noisegate.mechanisms.laplace import Laplace
from noisegate.mechanisms.least_sum import LeastSum
from noisegate.mechanisms.local_quantile import LocalQuantile
from noisegate.mechanisms.noisy_max import NoisyMax
from noisegate.mechanisms.outside_band import OutsideBand
from noisegate.mechanisms.permute_and_flip import PermuteAndFlip
from noisegate.mechanisms.perturbed_logistic import PerturbedLogistic
from noisegate.mechanisms.privtree import PrivTree
from noisegate.mechanisms.propose import ProposeTestRelease
from noisegate.mechanisms.quantile import Quantile
from noisegate.mechanisms.quantiles import Quantiles
from noisegate.mechanisms.small_database import SmallDatabase
from noisegate.mechanisms.smooth import SmoothLaplace, SmoothLognormal, SmoothStudent
from noisegate.mechanisms.sparse_geometric import SparseGeometric
from noisegate.mechanisms.sparse_priority import SparsePriority
from noisegate.mechanisms.splits import Splits
from noisegate.mechanisms.top_k import TopK
from noisegate.mechanisms.truncated_geometric import TruncatedGeometric
from noisegate.mechanisms.unevenness import Unevenness
from noisegate.mechanisms.winsorised import Winsorised

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
        raise SpecError(f"The fields of {kind.name!r} do not fit.", fix=f"Give {sorted(known)}.")
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
