"""The closed list of all mechanisms: where each is, and which optional capability it belongs to.

The door asks mechanisms of this list alone, and each is loaded when it is used. A class that is not
the very one the list names is refused, whatever it says of itself: it could draw something else
than its event says.

>>> from noisegate.mechanisms.base import to_record
>>> from_record(to_record(kind_named("geometric/1")(scale=Fraction(10))))
Geometric(scale=Fraction(10, 1))
"""

from collections.abc import Mapping
from fractions import Fraction
from importlib import import_module
from types import MappingProxyType
from typing import Any, Final

from noisegate.errors import SpecError, Unsupported
from noisegate.exact import fraction, shown
from noisegate.frozen import fields
from noisegate.mechanisms.base import Mechanism

_ALWAYS: Final = ""
_LISTED: Final[Mapping[str, tuple[str, str, str]]] = MappingProxyType({  # capability, module, class
    "laplace/1": (_ALWAYS, "additive.laplace", "Laplace"),
    "geometric/1": (_ALWAYS, "additive.geometric", "Geometric"),
    "truncated-geometric/1": (_ALWAYS, "additive.truncated_geometric", "TruncatedGeometric"),
    "box-noise/1": ("learning", "additive.box_noise", "BoxNoise"),
    "discrete-gaussian/1": (_ALWAYS, "additive.gaussian", "DiscreteGaussian"),
    "gaussian/1": (_ALWAYS, "additive.rounded_gaussian", "RoundedGaussian"),
    "exponential/1": (_ALWAYS, "selection.exponential", "Exponential"),
    "prior-exponential/1": (_ALWAYS, "selection.prior", "PriorExponential"),
    "stretch-choice/1": (_ALWAYS, "selection.stretches", "StretchChoice"),
    "permute-and-flip/1": (_ALWAYS, "selection.permute_and_flip", "PermuteAndFlip"),
    "top-k/1": (_ALWAYS, "selection.top_k", "TopK"),
    "noisy-max/1": (_ALWAYS, "selection.noisy_max", "NoisyMax"),
    "above-threshold/1": (_ALWAYS, "selection.above_threshold", "AboveThreshold"),
    "quantile/1": (_ALWAYS, "quantiles.quantile", "Quantile"),
    "quantiles/1": (_ALWAYS, "quantiles.quantiles", "Quantiles"),
    "brackets/1": (_ALWAYS, "quantiles.brackets", "Brackets"),
    "brackets/2": (_ALWAYS, "quantiles.brackets", "EvenBrackets"),
    "key-selection/1": (_ALWAYS, "keys.key_selection", "KeySelection"),
    "thresholded-geometric/1": (_ALWAYS, "keys.key_selection", "ThresholdedGeometric"),
    "thresholded-gaussian/1": (_ALWAYS, "keys.key_selection", "ThresholdedGaussian"),
    "least-sum/1": (_ALWAYS, "additive.least_sum", "LeastSum"),
    "privtree/1": ("partitions", "partitions.privtree", "PrivTree"),
    "splits/1": ("partitions", "partitions.splits", "Splits"),
    "dawa-partition/1": ("partitions", "partitions.dawa_partition", "DawaPartition"),
    "fourier-cut/3": ("partitions", "partitions.fourier_cut", "FourierCut"),
    "unevenness/1": ("partitions", "partitions.unevenness", "Unevenness"),
    "furthest/1": ("partitions", "partitions.furthest", "Furthest"),
    "small-database/1": ("partitions", "partitions.small_database", "SmallDatabase"),
    "sparse-geometric/1": ("sparse", "keys.sparse_geometric", "SparseGeometric"),
    "sparse-priority/1": ("sparse", "keys.sparse_priority", "SparsePriority"),
    "outside-band/1": ("many", "selection.outside_band", "OutsideBand"),
    "crowd-counts/1": ("crowds", "additive.crowd_counts", "CrowdCounts"),
    "biased-crowd/1": ("crowds", "additive.biased_crowd", "BiasedCrowd"),
    "smooth-student/1": ("smooth", "smooth.smooth", "SmoothStudent"),
    "smooth-laplace/1": ("smooth", "smooth.smooth", "SmoothLaplace"),
    "smooth-lognormal/1": ("smooth", "smooth.smooth", "SmoothLognormal"),
    "propose-test-release/1": ("smooth", "smooth.propose", "ProposeTestRelease"),
    "barred-smooth/1": ("smooth", "smooth.barred", "Barred"),
    "local-quantile/1": ("smooth", "smooth.local_quantile", "LocalQuantile"),
    "local-trimmed-mean/1": ("smooth", "smooth.estimators", "LocalTrimmedMean"),
    "local-huber/1": ("smooth", "smooth.estimators", "LocalHuber"),
    "graph-number/1": ("graphs", "smooth.graph_numbers", "GraphNumber"),
    "weighted-cut/1": ("graphs", "smooth.graph_numbers", "WeightedCut"),
    "local-graph/1": ("graphs", "smooth.graph_numbers", "LocalGraph"),
    "winsorised/1": ("programs", "quantiles.winsorised", "Winsorised"),
    "perturbed-logistic/1": ("objective", "objective.perturbed_logistic", "PerturbedLogistic"),
})  # fmt: skip
_PLAIN: Final = frozenset({int, bool, str, Fraction, tuple, type(None)})  # fields without a law


def kind_named(name: str) -> type[Mechanism[Any]]:
    """The class that a record calls so."""
    found = _LISTED.get(name) if type(name) is str else None
    if found is None:
        raise SpecError(f"The mechanism {shown(name)!r} is unknown.", fix=f"Use {list(_LISTED)}.")
    kind: type[Mechanism[Any]] = getattr(
        import_module(f"noisegate.mechanisms.{found[1]}"), found[2]
    )
    return kind


def all_kinds() -> Mapping[str, type[Mechanism[Any]]]:
    """All of the list, loaded."""
    return {name: kind_named(name) for name in _LISTED}


def capabilities_of(mechanism: Mechanism[Any]) -> frozenset[str]:
    """The capabilities that a mechanism, with all noise inside it, belongs to.

    Refuses one that is not on the list: heirs and look-alikes too.
    """
    kind = type(mechanism)
    name = vars(kind).get("name")
    if type(name) is not str or name not in _LISTED or kind_named(name) is not kind:
        raise Unsupported(
            "The door has no rule for this noise: it is not on its list.",
            fix="Use a mechanism of noisegate itself.",
            about="noise",
        )
    values = [getattr(mechanism, field.name) for field in fields(kind)]  # type: ignore[arg-type]
    inside = [capabilities_of(value) for value in values if type(value) not in _PLAIN]
    return frozenset({_LISTED[name][0]} - {_ALWAYS}).union(*inside)


def from_record(record: Mapping[str, Any]) -> Mechanism[Any]:
    """The mechanism a record stands for; refuses names and fields it does not know."""
    kind = kind_named(record.get("mechanism", ""))
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
