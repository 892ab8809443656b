"""Trials on made-up rows, each showing one idea at work."""

import json
from typing import Annotated

import typer

from noisegate.cli.app import Json, lab_app
from noisegate.cli.printing import print_table


@lab_app.callback()
def lab() -> None:
    """Trials on made-up rows."""


@lab_app.command()
def owners(
    count: Annotated[int, typer.Option("--owners", help="How many hold a series.")] = 6,
    drop_outs: Annotated[int, typer.Option(help="How many may stop on the way; they will.")] = 1,
    colluding: Annotated[int, typer.Option(help="How many may tell all they know.")] = 2,
    coefficients: Annotated[
        int | None, typer.Option(help="Sum so many Fourier coefficients, not the weeks.")
    ] = None,
    epsilon: Annotated[str, typer.Option(help="The price for one person.")] = "1",
    as_json: Json = False,
) -> None:
    """Add up the series of owners who trust nobody: each is a process, and some drop out."""
    from noisegate.lab.owners import run  # noqa: PLC0415 - slow to load

    found, exact = run(
        owners=count, drop_outs=drop_outs, colluding=colluding, epsilon=epsilon,
        coefficients=coefficients,
    )  # fmt: skip
    shown, margins = found.series(), found.margins()
    if as_json:
        facts = {
            "stayed": list(found.stayed), "sum": shown.tolist(), "margins": margins.tolist(),
            "exact": exact.tolist(), "promise": found.words,
        }  # fmt: skip
        typer.echo(json.dumps(facts, ensure_ascii=False))
        return
    rows = [
        (str(week + 1), f"{shown[week]:.0f} ± {margins[week]:.0f}", str(exact[week]))
        for week in range(0, exact.size, 4)
    ]
    print_table(
        f"Weekly admissions of {len(found.stayed)} hospitals", ("week", "sum", "exact"), rows
    )
    if coefficients is not None:
        typer.echo("Not in the ±: what so few coefficients leave out.")
    typer.echo(str(found))
