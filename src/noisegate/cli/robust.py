"""The commands for numbers that single rows rarely move: quantiles, graphs, distances."""

import json
from typing import Annotated, Any

import typer

from noisegate.cli.app import Confidence, Epsilon, Json, app
from noisegate.cli.opening import Opening, opens
from noisegate.cli.printing import print_answer, print_table
from noisegate.errors import SpecError

Beta = Annotated[str | None, typer.Option(help="How fast far rows matter less.")]
Bound = Annotated[str | None, typer.Option(help="With --method ptr: the bound to be tested.")]
Fresh = Annotated[bool, typer.Option("--fresh", help="Pay for a new draw.")]
Method = Annotated[str, typer.Option(help="smooth, or ptr: propose a bound, test, release.")]
Planned = Annotated[bool, typer.Option("--plan", help="Show price and error without paying.")]
OwnDelta = Annotated[str | None, typer.Option("--answer-delta", help="The δ of this answer.")]
_ASKED = ("edges", "degrees", "triangles", "two-stars", "min-cut", "bipartite-distance",
          "spanning-tree-cost")  # fmt: skip
_BY_REACHES = ("triangles", "two-stars", "spanning-tree-cost")


@app.command()
@opens
def smooth(
    opening: Opening,
    sql: Annotated[str, typer.Argument(help="Such as 'SELECT MEDIAN(cost) FROM visits'.")],
    epsilon: Epsilon = None,
    answer_delta: OwnDelta = None,
    method: Method = "smooth",
    bound: Bound = None,
    beta: Beta = None,
    confidence: Confidence = "0.95",
    fresh: Fresh = False,
    plan: Planned = False,
    as_json: Json = False,
) -> None:
    """One quantile with noise by what a row can do to it here, not anywhere."""
    rows = opening.caps.get("rows_per_unit")
    gate = opening.gate(to_plan=plan)
    answer = (gate.smooth_plan if plan else gate.smooth)(
        sql, epsilon=epsilon, delta=answer_delta, method=method, bound=bound, beta=beta,
        rows_per_unit=rows, fresh=fresh,
    )  # fmt: skip
    _show(answer, confidence, as_json=as_json)


@app.command()
@opens
def graph(
    opening: Opening,
    asked: Annotated[str, typer.Argument(help=f"One of {', '.join(_ASKED)}.")],
    source: Annotated[str, typer.Option(help="The column of one end of an edge.")],
    target: Annotated[str, typer.Option(help="The column of the other end.")],
    table: Annotated[str | None, typer.Option(help="The table, where there are several.")] = None,
    nodes: Annotated[
        str | None, typer.Option(help="The vertices: 0:99, or ann,bob,cy; else as declared.")
    ] = None,
    level: Annotated[str, typer.Option(help="Protect each edge (row), or each node.")] = "edge",
    degree: Annotated[int | None, typer.Option(help="Of --level node: edges that count.")] = None,
    weight: Annotated[str | None, typer.Option(help="Of a spanning tree: the column.")] = None,
    where: Annotated[str | None, typer.Option(help="Which rows.")] = None,
    epsilon: Epsilon = None,
    answer_delta: OwnDelta = None,
    method: Method = "smooth",
    bound: Bound = None,
    beta: Beta = None,
    confidence: Confidence = "0.95",
    fresh: Fresh = False,
    plan: Planned = False,
    as_json: Json = False,
) -> None:
    """A number of the graph whose edges are the rows."""
    if asked not in _ASKED:
        raise SpecError(f"There is no {asked!r}.", fix=f"Use {', '.join(_ASKED)}.")
    gate = opening.gate(to_plan=plan)
    tables = [name for name, each in gate.tables.items() if not each.is_public]
    found = (gate.graph_plan if plan else gate.graph)(
        table or tables[0], source=source, target=target, nodes=_nodes(nodes), level=level,
        where=where,
    )  # fmt: skip
    terms: dict[str, Any] = {"epsilon": epsilon, "fresh": fresh}
    if asked in _BY_REACHES:
        terms |= {"delta": answer_delta, "method": method, "bound": bound, "beta": beta}
    if degree is not None:
        terms["degree"] = degree
    if (weight is not None) != (asked == "spanning-tree-cost"):
        raise SpecError("A weight is for a spanning tree.", fix="Give --weight there.")
    positional = () if weight is None else (weight,)
    answer = getattr(found, asked.replace("-", "_"))(*positional, **terms)
    _show(answer, confidence, as_json=as_json)


@app.command()
@opens
def distance(
    opening: Opening,
    sql: Annotated[str, typer.Argument(help="Several counts of exceptions; the least is told.")],
    epsilon: Epsilon = None,
    confidence: Confidence = "0.95",
    fresh: Fresh = False,
    plan: Planned = False,
    as_json: Json = False,
) -> None:
    """How many rows must go until one of several public conditions holds."""
    rows = opening.caps.get("rows_per_unit")
    gate = opening.gate(to_plan=plan)
    answer = (gate.distance_plan if plan else gate.distance)(
        sql, epsilon=epsilon, rows_per_unit=rows, fresh=fresh
    )
    _show(answer, confidence, as_json=as_json)


def _nodes(text: str | None) -> range | list[str] | list[int] | None:
    if text is None:
        return None
    first, sign, last = text.partition(":")
    if sign:
        try:
            return range(int(first), int(last) + 1)
        except ValueError:
            raise SpecError(f"--nodes {text} is no range.", fix="Use 0:99, both ends.") from None
    listed = text.split(",")
    return [int(each) for each in listed] if all(map(str.isdecimal, listed)) else listed


def _show(found: Any, confidence: str, *, as_json: bool) -> None:  # noqa: ANN401 - quick help
    """An answer, or a plan, which has facts."""
    if as_json:
        typer.echo(json.dumps(found.to_dict(confidence), ensure_ascii=False, allow_nan=False))
    elif hasattr(found, "facts"):
        print_table(None, ("", ""), found.facts(confidence))
    else:
        print_answer(found, confidence)
