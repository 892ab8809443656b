"""Means and models that a service released."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from noisegate.desk.order import Order
from noisegate.desk.plan import Expected
from noisegate.desk.sent import guarantee_from, loss_from
from noisegate.learners.expectations import Expectations, means_from


def expectations_from(record: Mapping[str, Any]) -> Expectations:
    """Means, whose ± at any confidence follows from the noise that they have."""
    exact = record["exact"]
    return Expectations(
        means=means_from(exact["means"]), cost=loss_from(exact["cost"]),
        remaining=loss_from(exact["remaining"]), guarantee=guarantee_from(exact["guarantee"]),
        request_id="",
    )  # fmt: skip


def model_from(order: Order[Any, Expected], record: Mapping[str, Any]) -> Any:  # noqa: ANN401 - an estimator
    """An estimator with what it has learned, as its attributes. It does not predict here."""
    model, exact = order.learner(), record["exact"]  # type: ignore[attr-defined]  # a `FitOrder`
    for name, value in record["fitted"].items():
        setattr(model, name, np.array(value) if isinstance(value, list) else value)
    model.cost_, model.remaining_ = loss_from(exact["cost"]), loss_from(exact["remaining"])
    model.guarantee_ = guarantee_from(exact["guarantee"])
    return model
