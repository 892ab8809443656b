"""Describe: one price for a first look at a table; afterwards its numbers are free."""

from typing import Any
from uuid import uuid4

from starlette.responses import Response

from noisegate.orders import DescribeOrder
from noisegate.server.console.ask import (
    facts_of,
    field,
    ordered,
    priced,
    purposes_of,
    slider_of,
    view_of,
)
from noisegate.server.console.visits import Visit


def describe_page(visit: Visit, **values: Any) -> Response:  # noqa: ANN401 - of a template
    """Which table, for which price."""
    view = view_of(visit)
    facts = facts_of(visit, view)
    tables = [table["name"] for table in facts["tables"] if not table["public"]]
    default = facts["default_epsilon"]
    shared: dict[str, Any] = {
        "title": f"Describe {view.name}",
        "names": visit.names(),
        "data": view.name,
        "tables": tables,
        "slider": slider_of(facts),
        "purpose": purposes_of(view, facts),
        "said": {
            "table": visit.said("table"),
            "epsilon": visit.said("epsilon") or ("" if default is None else field(default)),
            "bounds": visit.said("bounds"),
        },
        "key": uuid4().hex,
        "plan": None,
    }
    return visit.page("describe.html", **(shared | values))


def describe(visit: Visit) -> Response:
    """Price, practise or pay for a description."""
    return ordered(visit, _order, describe_page)


def describe_price(visit: Visit) -> Response:
    """The same as JSON."""
    return priced(visit, view_of(visit), _order(visit))


def _order(visit: Visit) -> DescribeOrder:
    terms: dict[str, Any] = {"table": visit.form.get("table", "")}
    if price := visit.form.get("epsilon", "").strip():
        terms["epsilon"] = price
    if visit.form.get("bounds"):
        terms["choose"] = ["bounds"]
    return DescribeOrder.make(**terms)
