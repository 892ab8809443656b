"""What an order made, as plain values for JSON: the same keys for price and balance everywhere."""

from collections.abc import Mapping
from math import isfinite
from typing import Any

from noisegate.desk.order import Order
from noisegate.desk.plan import Expected
from noisegate.exact import Number
from noisegate.frozen import fields, is_dataclass
from noisegate.privacy.loss import ApproxDP

_HIDDEN = ("cost_", "remaining_", "guarantee_", "coordinates_", "target_", "stopped_", "fit_")


def record_of(
    order: Order[Any, Expected],
    made: Any,  # noqa: ANN401 - what orders make
    left: ApproxDP,
    confidence: Number = 0.95,
) -> dict[str, Any]:
    """The record of what ``order`` made, with what is ``left`` where it does not know itself."""
    match order.kind:
        case "caps":
            return {"table": made.table, "units": list(made.units), "scale": made.scale}
        case "bounds":
            return {"between": [float(end) for end in made]}
        case "statistic":
            means = {"names": list(made.names), "values": made.values.tolist()}
            margins = made.within(confidence).tolist()
            promise = {"guarantee": str(made.guarantee), "caveats": list(made.caveats)}
            return {**means, "margins": margins, **balance(made.cost, made.remaining), **promise}
        case "fit":
            return {
                "model": type(made).__name__, "fitted": fitted(made),
                "guarantee": str(made.guarantee_), **balance(made.cost_, left),
            }  # fmt: skip
        case _:
            record: dict[str, Any] = made.to_dict(confidence)
            return record


def balance(cost: ApproxDP, left: ApproxDP) -> dict[str, float]:
    """What was paid and what is left, as every record has it."""
    return {
        "price": float(cost.epsilon), "price_delta": float(cost.delta),
        "remaining": float(left.epsilon), "remaining_delta": float(left.delta),
    }  # fmt: skip


def fitted(model: Any) -> dict[str, Any]:  # noqa: ANN401 - an estimator
    """What an estimator has learned: its attributes, as plain values."""
    names = sorted(name for name in vars(model) if name.endswith("_") and name[0] != "_")
    held = {name: getattr(model, name) for name in names if name not in _HIDDEN}
    return {name: _plain(each) for name, each in held.items() if not hasattr(each, "cost_")}


def _plain(value: Any) -> Any:  # noqa: ANN401 - JSON
    if hasattr(value, "tolist"):
        value = value.tolist()
    if is_dataclass(value) and not isinstance(value, type):
        value = {each.name: getattr(value, each.name) for each in fields(value)}
    if isinstance(value, Mapping):
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, float) and not isfinite(value):
        return None  # JSON has no infinity
    return value if isinstance(value, int | float | str | bool | None) else str(value)
