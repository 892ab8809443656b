"""Orders from JSON, and the JSON Schema of all of them: the one place that lists their kinds.

>>> order = order_from({"kind": "sql", "sql": "SELECT COUNT(*) FROM people", "epsilon": "1/10"})
>>> order.to_json()
'{"kind": "sql", "sql": "SELECT COUNT(*) FROM people", "epsilon": "1/10"}'
"""

from collections.abc import Mapping, Sequence
from datetime import date
from decimal import Decimal
from fractions import Fraction
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal, get_args, get_origin

from noisegate.desk.order import (
    Json,
    Order,
    hints_of,
    is_number,
    is_record,
    is_required,
    nearest,
    options_of,
)
from noisegate.desk.plan import Expected
from noisegate.errors import SpecError
from noisegate.exact import shown
from noisegate.frozen import fields, is_dataclass

if TYPE_CHECKING:  # loaded when they are first used: see `__getattr__`
    from noisegate.crowd.histogram import CrowdOrder, CrowdTerms
    from noisegate.crowd.points import PointsOrder
    from noisegate.desk.release import Held
    from noisegate.learners.expectations import StatisticOrder, StatisticTerms
    from noisegate.learners.order import FitOrder
    from noisegate.programs.applying import ApplyOrder, ApplyTerms
    from noisegate.programs.scoring import ScoreOrder, ScoreTerms
    from noisegate.releases.ask.order import TableTerms
    from noisegate.releases.describe.job import DescribeOrder, DescribeTerms
    from noisegate.releases.forms.boxplots import BoxplotOrder, BoxplotTerms
    from noisegate.releases.forms.cube import CubeOrder, CubeTerms
    from noisegate.releases.forms.table_job import CdfOrder, SeriesOrder, SeriesTerms, TableOrder
    from noisegate.releases.sparse.job import SparseOrder, SparseTerms
    from noisegate.releases.thresholds.above import AboveOrder, AboveTerms
    from noisegate.releases.thresholds.listed import ThresholdsOrder, ThresholdsTerms
    from noisegate.robust.distances import ClaimOrder, DistanceOrder, DistanceTerms, distance_order
    from noisegate.robust.graphs import GraphOrder, GraphTerms
    from noisegate.robust.paying import ReachesTerms
    from noisegate.robust.quantiles import SmoothOrder, SmoothTerms
    from noisegate.sql.bounds.table_looks import BoundsOrder, CapsOrder
    from noisegate.sql.choices.auction import AuctionOrder, AuctionTerms
    from noisegate.sql.choices.choice import ChoiceOrder, ChoiceTerms
    from noisegate.sql.order import SqlOrder, SqlTerms
    from noisegate.synthetic.pmw.multiplicative import QuestionsOrder, QuestionsTerms
    from noisegate.synthetic.pmw.online import ManyOrder, ManyTerms
    from noisegate.synthetic.synthesis import SyntheticOrder, SyntheticTerms

__all__ = [
    "AboveOrder", "AboveTerms", "ApplyOrder", "ApplyTerms", "AuctionOrder", "AuctionTerms",
    "BoundsOrder", "BoxplotOrder",
    "BoxplotTerms", "CapsOrder", "CdfOrder", "ChoiceOrder", "ChoiceTerms", "ClaimOrder",
    "CrowdOrder", "CrowdTerms", "CubeOrder", "CubeTerms", "DescribeOrder", "DescribeTerms",
    "DistanceOrder", "DistanceTerms", "FitOrder", "GraphOrder", "GraphTerms", "ManyOrder",
    "ManyTerms", "PointsOrder", "QuestionsOrder", "QuestionsTerms", "ReachesTerms", "ScoreOrder",
    "ScoreTerms", "SeriesOrder", "SeriesTerms", "SmoothOrder", "SmoothTerms", "SparseOrder",
    "SparseTerms", "SqlOrder", "SqlTerms", "StatisticOrder", "StatisticTerms",
    "SyntheticOrder", "SyntheticTerms", "TableOrder", "TableTerms", "ThresholdsOrder",
    "ThresholdsTerms", "distance_order", "order_from", "release_order", "schema",
]  # fmt: skip

KINDS: Final[Mapping[str, str]] = MappingProxyType({
    "sql": "sql.order:SqlOrder",
    "choose": "sql.choices.choice:ChoiceOrder",
    "auction": "sql.choices.auction:AuctionOrder",
    "caps": "sql.bounds.table_looks:CapsOrder",
    "bounds": "sql.bounds.table_looks:BoundsOrder",
    "apply": "programs.applying:ApplyOrder",
    "score": "programs.scoring:ScoreOrder",
    "statistic": "learners.expectations:StatisticOrder",
    "fit": "learners.order:FitOrder",
    "many": "synthetic.pmw.online:ManyOrder",
    "thresholds": "releases.thresholds.listed:ThresholdsOrder",
    "smooth": "robust.quantiles:SmoothOrder",
    "distance": "robust.distances:DistanceOrder",
    "claim": "robust.distances:ClaimOrder",
    "graph": "robust.graphs:GraphOrder",
})  # fmt: skip
_RUNNING: Final = "releases.forms.table_job:SeriesOrder"  # a series that grows
RELEASES: Final[Mapping[str, str]] = MappingProxyType({  # names with results of their own
    "describe": "releases.describe.job:DescribeOrder",
    "cube": "releases.forms.cube:CubeOrder",
    "sparse": "releases.sparse.job:SparseOrder",
    "above": "releases.thresholds.above:AboveOrder",
    "boxplot": "releases.forms.boxplots:BoxplotOrder",
    "cdf": "releases.forms.table_job:CdfOrder",
    "synthetic": "synthetic.synthesis:SyntheticOrder",
    "questions": "synthetic.pmw.multiplicative:QuestionsOrder",
    "crowd-histogram": "crowd.histogram:CrowdOrder",
    "crowd-points": "crowd.points:PointsOrder",
})  # fmt: skip
_TABLE: Final = "releases.forms.table_job:TableOrder"
_OTHERS: Final = {
    "ReachesTerms": "robust.paying",
    "TableTerms": "releases.ask.order",
    "distance_order": "robust.distances",
}
_NO_OPTIONS: Final = {"sql", "groups_per_unit"}  # of any method
_REST: Final = r"^(\d+(/\d+|\.\d+)?%? of )?rest$"  # a part of what is left
_NUMBER: Final = r"^[-+]?(\d+/\d+|(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?)$"


def __getattr__(name: str) -> Any:  # noqa: ANN401 - a class, imported when first used
    if name not in __all__:
        raise AttributeError(f"module 'noisegate.orders' has no attribute {name!r}")
    places = (place.split(":") for place in (*KINDS.values(), *RELEASES.values(), _TABLE, _RUNNING))
    homes = {order: home for home, order in places} | _OTHERS
    home = homes.get(name) or homes[name.replace("Terms", "Order")]  # they stand side by side
    return getattr(import_module(f"noisegate.{home}"), name)


def order_from(record: Mapping[str, object]) -> Order[object, Expected]:
    """The order that `Order.to_dict` wrote, or anybody else; what is unknown is refused."""
    if not isinstance(record, Mapping) or not all(isinstance(key, str) for key in record):
        raise SpecError("This is not an order.", fix='Use an object such as {"kind": "sql", …}.')
    said = dict(record)
    kind = said.pop("kind", None)
    if kind == "release":
        return _release(said.get("name"), said).make(**said)
    if not isinstance(kind, str) or kind not in KINDS:
        known = [*KINDS, "release"]
        near = nearest(shown(kind), known)
        raise SpecError(
            f"There is no order {shown(kind)!r}.",
            fix=f"{near}Use {', '.join(known)}.",
            about="name",
        )
    return _loaded(KINDS[kind]).make(**said)


def release_order(name: str, sql: str | None = None, **terms: Any) -> "Order[Held, Expected]":  # noqa: ANN401 - checked by the order
    """An order from what is said to `Gate.release`: options of a method may stand among terms."""
    order = _release(name, terms)
    known = {each.name for each in fields(order)}
    said = {"name": name} | ({} if sql is None else {"sql": sql}) | terms
    if "options" in known:
        own = {term: said.pop(term) for term in said.keys() - known - _NO_OPTIONS}
        said["options"] = {**said.get("options", {}), **own}
    return order.make(**{t: value for t, value in said.items() if value is not None or t in known})


def _release(name: object, said: Mapping[str, object]) -> type[Order[Any, Any]]:
    """What orders a release by its name."""
    if not isinstance(name, str) or not name:
        raise SpecError(
            "The name of the release is not a string.",
            fix='For example: release("histogram", …).',
            about="name",
        )
    if name == "series" and "until" in said:
        return _loaded(_RUNNING)
    if name in RELEASES:
        return _loaded(RELEASES[name])
    table = _loaded(_TABLE)
    if name not in (tables := get_args(hints_of(table)["name"])):
        known = [*dict.fromkeys((*tables[:5], *RELEASES, *tables))]
        near = nearest(name, known)
        raise SpecError(
            f"There is no release {name!r}.", fix=f"{near}Use {', '.join(known)}.", about="name"
        )
    return table


def _loaded(place: str) -> type[Order[Any, Any]]:
    module, name = place.split(":")
    found: type[Order[Any, Any]] = getattr(import_module(f"noisegate.{module}"), name)
    return found


# the schema


def schema() -> Json:
    """The JSON Schema of all orders, for editors and for the description of a service."""
    found = {kind: _object(_loaded(place), {"kind": kind}) for kind, place in KINDS.items()}
    found["table"] = _object(_loaded(_TABLE), {"kind": "release"})
    found["running"] = _object(_loaded(_RUNNING), {"kind": "release", "name": "series"})
    for name, place in RELEASES.items():
        found[name] = _object(_loaded(place), {"kind": "release", "name": name})
    ends: Json = {"from": {}, "to": {}}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "An order for noisegate",
        "oneOf": [{"$ref": f"#/$defs/{name}"} for name in found],
        "$defs": found
        | {
            "number": {"anyOf": [{"type": "number"}, {"type": "string", "pattern": _NUMBER}]},
            "price": {"anyOf": [{"$ref": "#/$defs/number"}, {"type": "string", "pattern": _REST}]},
            "ends": {"type": "object", "properties": ends, "additionalProperties": False},
        },
    }


def _object(kind: type, fixed: Mapping[str, str]) -> Json:
    """A dataclass as JSON has it."""
    types, listed = hints_of(kind), fields(kind)
    own = {each.name: _shape(types[each.name]) for each in listed if each.name not in fixed}
    if "epsilon" in own:
        own["epsilon"] = _any(types["epsilon"], [{"$ref": "#/$defs/price"}])
    needed = [each.name for each in listed if is_required(each) and each.name not in fixed]
    return {
        "description": (kind.__doc__ or "").partition("\n")[0],
        "type": "object",
        "properties": {name: {"const": value} for name, value in fixed.items()} | own,
        "required": [*fixed, *needed],
        "additionalProperties": False,
    }


def _shape(hint: Any, *, inside: bool = False) -> Json:  # noqa: ANN401 - a type as it is written
    """A type as JSON has it; ``inside`` a dict a pair is no list."""
    if is_number(hint):
        return _any(hint, [{"$ref": "#/$defs/number"}])
    types = [each for each in options_of(hint) if each not in (Decimal, Fraction, date)]
    sent = [each for each in types if not is_dataclass(each) or is_record(each)]
    return _any(hint, [_one(each, inside=inside) for each in sent])


def _any(hint: Any, found: list[Json]) -> Json:  # noqa: ANN401 - a type as it is written
    none = [{"type": "null"}] if type(None) in get_args(hint) else []
    every = [each for place, each in enumerate(found) if each not in found[:place]] + none
    return every[0] if len(every) == 1 else {"anyOf": every}


def _one(kind: Any, *, inside: bool) -> Json:  # noqa: ANN401, PLR0911 - a type as it is written
    origin, parts = get_origin(kind), get_args(kind)
    if origin is Literal:
        return {"enum": list(parts)}
    if origin is Mapping:
        values = _shape(parts[1], inside=True) if parts[0] is str else {}
        return {"type": "object", "additionalProperties": values}
    if kind is range or (inside and origin is tuple):
        return {"$ref": "#/$defs/ends"}
    if origin is tuple and parts[1] is not ...:
        return {"type": "array", "prefixItems": [_shape(each) for each in parts], "items": False}
    if origin in (Sequence, tuple):
        nothing = {"maxItems": 0} if parts[0] is object else {"items": _shape(parts[0])}
        return {"type": "array"} | nothing
    if is_dataclass(kind):
        found = _object(kind, {})  # type: ignore[arg-type]  # a class
        for name, each in found["properties"].items():
            if each.get("type") == "array":  # of texts, of which a single one may stand alone
                found["properties"][name] = {"anyOf": [each, {"type": "string"}]}
        return found
    plain = {str: "string", int: "integer", bool: "boolean", float: "number"}
    return {"type": plain[kind]} if kind in plain else {}
