"""The commands for numbers that single rows rarely move: quantiles, graphs, distances."""

from dataclasses import dataclass
from typing import Annotated, Any, final

import typer

from noisegate.cli.app import app
from noisegate.cli.opening import Asking, Opening, opens
from noisegate.cli.printing import print_answer, print_plan, say_json
from noisegate.errors import SpecError

_ASKED = ("edges", "degrees", "triangles", "two-stars", "min-cut", "bipartite-distance",
          "spanning-tree-cost")  # fmt: skip
_BY_REACHES = ("triangles", "two-stars", "spanning-tree-cost")


@final
@dataclass(frozen=True, kw_only=True)
class ByReaches:
    """How wide the noise is, where the rows at hand decide."""

    answer_delta: Annotated[str | None, typer.Option(help="The δ of this answer.")] = None
    method: Annotated[
        str, typer.Option(help="smooth (smooth sensitivity), or ptr (propose-test-release).")
    ] = "smooth"
    bound: Annotated[str | None, typer.Option(help="With --method ptr: the proposed bound.")] = None
    beta: Annotated[
        str | None,
        typer.Option(help="How fast rows further away matter less (β of smooth sensitivity)."),
    ] = None

    @property
    def terms(self) -> dict[str, str | None]:
        """As a gate takes them."""
        return {"delta": self.answer_delta, "method": self.method, "bound": self.bound,
                "beta": self.beta}  # fmt: skip


@app.command()
@opens
def smooth(
    opening: Opening,
    sql: Annotated[str, typer.Argument(help="Such as 'SELECT MEDIAN(cost) FROM visits'.")],
    asking: Asking,
    noise: ByReaches,
) -> None:
    """Release one quantile with noise scaled to its smooth sensitivity on these rows."""
    rows = opening.caps.get("rows_per_unit")
    gate = opening.gate(to_plan=asking.plan)
    answer = (gate.smooth_plan if asking.plan else gate.smooth)(
        sql, epsilon=asking.epsilon, rows_per_unit=rows, fresh=asking.fresh, **noise.terms
    )
    _show(answer, asking)


@app.command()
@opens
def graph(
    *,
    opening: Opening,
    asked: Annotated[str, typer.Argument(help=f"One of {', '.join(_ASKED)}.")],
    source: Annotated[str, typer.Option(help="The column of one end of an edge.")],
    target: Annotated[str, typer.Option(help="The column of the other end.")],
    table: Annotated[str | None, typer.Option(help="The table, if there are several.")] = None,
    nodes: Annotated[
        str | None, typer.Option(help="The vertices: 0:99, or ann,bob,cy; by default as declared.")
    ] = None,
    level: Annotated[
        str, typer.Option(help="What is protected: an edge (row), or a node with all its edges.")
    ] = "edge",
    degree: Annotated[
        int | None,
        typer.Option(help="With --level node: contribution bound, the edges that count."),
    ] = None,
    weight: Annotated[
        str | None, typer.Option(help="For a spanning tree: the weight column.")
    ] = None,
    where: Annotated[str | None, typer.Option(help="Which rows.")] = None,
    asking: Asking,
    noise: ByReaches,
) -> None:
    """Release a statistic of the graph whose edges are the rows."""
    if asked not in _ASKED:
        raise SpecError(f"There is no graph statistic {asked!r}.", fix=f"Use {', '.join(_ASKED)}.")
    gate = opening.gate(to_plan=asking.plan)
    found = (gate.graph_plan if asking.plan else gate.graph)(
        table, source=source, target=target, nodes=_nodes(nodes), level=level, where=where
    )
    terms: dict[str, Any] = {"epsilon": asking.epsilon, "fresh": asking.fresh}
    if asked in _BY_REACHES:
        terms |= noise.terms
    if degree is not None:
        terms["degree"] = degree
    if (weight is not None) != (asked == "spanning-tree-cost"):
        raise SpecError("A weight is only used for a spanning tree.", fix="Leave out --weight.")
    positional = () if weight is None else (weight,)
    _show(getattr(found, asked.replace("-", "_"))(*positional, **terms), asking)


@app.command()
@opens
def distance(
    opening: Opening,
    sql: Annotated[
        str, typer.Argument(help="Several counts of exceptions; the smallest is released.")
    ],
    asking: Asking,
) -> None:
    """Release the number of rows to remove until one of several public conditions holds."""
    rows = opening.caps.get("rows_per_unit")
    gate = opening.gate(to_plan=asking.plan)
    answer = (gate.distance_plan if asking.plan else gate.distance)(
        sql, epsilon=asking.epsilon, rows_per_unit=rows, fresh=asking.fresh
    )
    _show(answer, asking)


def _nodes(text: str | None) -> range | list[str] | list[int] | None:
    if text is None:
        return None
    first, sign, last = text.partition(":")
    if sign:
        try:
            return range(int(first), int(last) + 1)
        except ValueError:
            raise SpecError(
                f"--nodes {text} is not a range.", fix="For example: 0:99, both ends included."
            ) from None
    listed = text.split(",")
    return [int(each) for each in listed] if all(map(str.isdecimal, listed)) else listed


def _show(found: Any, asking: Asking) -> None:  # noqa: ANN401 - an answer, or its plan
    if asking.plan:
        print_plan(found, asking.confidence, as_json=asking.as_json)
    elif asking.as_json:
        say_json(found.to_dict(asking.confidence))
    else:
        print_answer(found, asking.confidence)
