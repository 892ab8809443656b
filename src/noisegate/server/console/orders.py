"""Order: every kind of release from one form, priced before it is paid for."""

from collections.abc import Mapping
from typing import Any, Final

from starlette.responses import Response

from noisegate.desk.order import Order
from noisegate.orders import DescribeOrder, order_from
from noisegate.server.console import ask
from noisegate.server.console.forms import fields, kinds, record, said_by
from noisegate.server.console.visits import Visit
from noisegate.server.refusals import no_such
from noisegate.server.runs import Run
from noisegate.server.views import View

_GROUPS: Final = (
    ("Tables of counts and sums", {
        "histogram": "Counts by one or more columns, with bars.",
        "map": "Counts over two axes, such as longitude and latitude; any rectangle can be asked.",
        "series": "Counts along time, for running totals and any range of days.",
        "marginals": "Every single column and every pair, in one price.",
        "table": "Counts or sums by groups, for questions that you name.",
        "cube": "Tables over several sets of columns that agree with each other.",
        "sparse": "A table too large to list: only what stands out.",
    }),
    ("Distributions", {
        "describe": "A first look at a table: rows, missing values, quartiles, keys.",
        "cdf": "How many lie below each value.",
        "boxplot": "Quartiles and whiskers of a number, by groups.",
        "smooth": "A median or quantile in SQL, with noise fitted to the rows.",
    }),
    ("Rows and many questions", {
        "synthetic": "Made-up rows that follow noisy tables of the real ones.",
        "questions": "A table that answers many counting questions.",
        "above": "Which of many sums reach a threshold.",
    }),
    ("Choices and looks", {
        "choose": "The best few of many groups, without their numbers.",
        "thresholds": "Which of a list of counts and sums reach a threshold.",
        "auction": "One price for all, whose revenue over private bids is near the best.",
        "statistic": "Means of bounded expressions.",
        "caps": "How many people have how many rows.",
        "bounds": "A range that holds nearly all values of a column.",
    }),
    ("Models and programs", {
        "fit": "A model of noisegate.learners, fitted to columns.",
        "apply": "A program of yours on blocks of rows.",
        "score": "The best of named candidates, by a program's scores on blocks of rows.",
    }),
    ("Graphs and distances", {
        "graph": "Edges, triangles and other numbers of a graph whose edges are rows.",
        "distance": "How many rows must go until a property holds.",
        "claim": "A distance by a program that the steward vouches for.",
    }),
    ("Crowds", {
        "crowd-histogram": "Counts of a secret sample, small ones hidden.",
        "crowd-points": "The points of such a histogram.",
    }),
)  # fmt: skip


def order_page(visit: Visit, **values: Any) -> Response:  # noqa: ANN401 - of a template
    """All kinds; or the form of one, empty or as a run was ordered."""
    run = visit.service.run_of(visit.caller, name) if (name := visit.said("run")) else None
    view = ask.view_of(visit, run)
    kind = _kind_of(run) if run is not None else visit.said("kind")
    if not kind:
        return visit.page(
            "orders.html", title=f"Order from {view.name}", names=visit.names(), data=view.name,
            groups=_groups(),
        )  # fmt: skip
    if kind not in kinds():
        raise no_such("kind of order")
    said = dict(visit.form) if run is None else said_by(kind, run.order.to_dict())
    return _form(visit, view, kind, said, **values)


def order(visit: Visit) -> Response:
    """Price, practise or pay. What was ordered has an address: loading it again costs nothing."""
    return ask.ordered(visit, _made, order_page)


def order_price(visit: Visit) -> Response:
    """The price as JSON, while the form is filled in."""
    return ask.priced(visit, ask.view_of(visit), _made(visit))


def _made(visit: Visit) -> Order[Any, Any]:
    kind = visit.form.get("kind", "")
    if kind not in kinds():
        raise no_such("kind of order")
    return order_from(record(kind, visit.form))


def _form(
    visit: Visit,
    view: View,
    kind: str,
    said: dict[str, str],
    **values: Any,  # noqa: ANN401 - of a template
) -> Response:
    facts = ask.facts_of(visit, view)
    tables = [table for table in facts["tables"] if not table["public"]]
    listed = [table["name"] for table in tables]
    table = said.get("table") or visit.said("table")
    table = table if table in listed else (listed[0] if listed else "")
    columns: list[dict[str, Any]] = next(
        (each["columns"] for each in tables if each["name"] == table), []
    )
    default = facts["default_epsilon"]
    if "epsilon" not in said and default is not None:
        said["epsilon"] = ask.field(default)
    elif said.get("epsilon"):
        said["epsilon"] = ask.said_again(said["epsilon"])
    shared = ask.paying(visit, view, facts) | {
        "title": f"Order: {kind}",
        "kind": kind,
        "words": _words().get(kind, kinds()[kind]["description"]),
        "tables": listed if "table" in kinds()[kind]["properties"] else [],
        "table": table,
        "fields": fields(kind, columns, said),
    }
    return visit.page("order.html", **(shared | values))


def _kind_of(run: Run) -> str:
    said = run.order.to_dict()
    return str(said.get("name") if said["kind"] == "release" else said["kind"])


def page_of(run: Run) -> str | None:
    """The page where this can be ordered otherwise, if there is one."""
    if run.order.kind == "sql":
        return "ask"
    return "order" if _kind_of(run) in kinds() else None


def _words() -> Mapping[str, str]:
    return {kind: words for _, group in _GROUPS for kind, words in group.items()}


def _groups() -> list[tuple[str, list[tuple[str, str]]]]:
    """All kinds that there are, by what they are for; one that is new stands last."""
    rest = {
        kind: str(each["description"]) for kind, each in kinds().items() if kind not in _words()
    }
    groups = [*_GROUPS, *([("Others", rest)] if rest else [])]
    return [
        (title, [(kind, words) for kind, words in group.items() if kind in kinds()])
        for title, group in groups
    ]


# describe: one price for a first look at a table; afterwards its numbers are free


def describe_page(visit: Visit, **values: Any) -> Response:  # noqa: ANN401 - of a template
    """Which table, for which price."""
    view = ask.view_of(visit)
    facts = ask.facts_of(visit, view)
    tables = [table["name"] for table in facts["tables"] if not table["public"]]
    default = facts["default_epsilon"]
    shared = ask.paying(visit, view, facts) | {
        "title": f"Describe {view.name}",
        "tables": tables,
        "said": {
            "table": visit.said("table"),
            "epsilon": visit.said("epsilon") or ("" if default is None else ask.field(default)),
            "bounds": visit.said("bounds"),
        },
    }
    return visit.page("describe.html", **(shared | values))


def describe(visit: Visit) -> Response:
    """Price, practise or pay for a description."""
    return ask.ordered(visit, _order, describe_page)


def describe_price(visit: Visit) -> Response:
    """The same as JSON."""
    return ask.priced(visit, ask.view_of(visit), _order(visit))


def _order(visit: Visit) -> DescribeOrder:
    terms: dict[str, Any] = {"table": visit.form.get("table", "")}
    if price := visit.form.get("epsilon", "").strip():
        terms["epsilon"] = price
    if visit.form.get("bounds"):
        terms["choose"] = ["bounds"]
    return DescribeOrder.make(**terms)
