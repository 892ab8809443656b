"""The command that chooses privately among candidates."""

import json
from typing import Annotated, Any

import typer

from noisegate.cli.app import Confidence, Epsilon, Json, app
from noisegate.cli.opening import Opening, opens
from noisegate.cli.printing import print_table


@app.command()
@opens
def choose(
    opening: Opening,
    sql: Annotated[
        str, typer.Argument(help="Such as 'SELECT ward, COUNT(*) FROM visits GROUP BY ward'.")
    ],
    epsilon: Epsilon = None,
    count: Annotated[int, typer.Option("-k", "--count", help="How many to choose.")] = 1,
    method: Annotated[
        str, typer.Option(help="auto, exponential, permute-and-flip or noisy-max.")
    ] = "auto",
    gap: Annotated[
        bool, typer.Option("--gap", help="Also how far each leads the next, for nothing.")
    ] = False,
    least: Annotated[bool, typer.Option("--least", help="Choose the lowest instead.")] = False,
    confidence: Confidence = "0.95",
    fresh: Annotated[bool, typer.Option("--fresh", help="Pay for a new choice.")] = False,
    plan: Annotated[
        bool, typer.Option("--plan", help="Show price and error without paying.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Choose whose count or sum is largest; nothing else is said about them."""
    gate = opening.gate(to_plan=plan)
    terms: dict[str, Any] = {
        "epsilon": epsilon, "k": count, "method": method, "gap": gap, "least": least,
        "fresh": fresh, **opening.caps,
    }  # fmt: skip
    if plan:
        planned = gate.choose_plan(sql, **terms)
        if as_json:
            typer.echo(json.dumps(planned.to_dict(confidence), ensure_ascii=False))
        else:
            print_table(None, ("", ""), planned.facts(confidence))
        return
    choice = gate.choose(sql, **terms)
    if as_json:
        typer.echo(json.dumps(choice.to_dict(confidence), ensure_ascii=False))
        return
    names = ("", "chosen", *(() if choice.gaps is None else ("ahead by",)))
    print_table(None, names, choice.rows())
    typer.echo(choice.footer(confidence))
    typer.echo(str(choice.guarantee))
