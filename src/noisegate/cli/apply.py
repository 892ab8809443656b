"""The command that runs a program on private rows, block by block."""

from pathlib import Path
from typing import Annotated, Any

import typer

from noisegate.cli.app import Confidence, Epsilon, Fresh, Json, Planned, app
from noisegate.cli.opening import Opening, opens
from noisegate.cli.printing import print_plan, saved, say, say_json
from noisegate.cli.releases import bar, print_release, require_writable
from noisegate.errors import SpecError


@app.command()
@opens
def apply(
    opening: Opening,
    program: Annotated[str, typer.Argument(help="A function in a file: program.py:name.")],
    ends: Annotated[
        list[str],
        typer.Option(
            "--range", help="The range of its output: 0,120. Repeat it for several outputs."
        ),
    ],
    sql: Annotated[
        str | None, typer.Argument(help="The rows it sees: 'SELECT age, cost FROM visits'.")
    ] = None,
    columns: Annotated[
        str | None, typer.Option(help="Instead of SQL: columns, such as age,cost.")
    ] = None,
    table: Annotated[str | None, typer.Option(help="With --columns: the table.")] = None,
    where: Annotated[
        str | None, typer.Option(help="With --columns: the condition on rows.")
    ] = None,
    names: Annotated[str | None, typer.Option(help="Names of its outputs: a,b.")] = None,
    blocks: Annotated[int | None, typer.Option(help="Number of blocks.")] = None,
    rows: Annotated[int | None, typer.Option(help="Or: a public number of rows.")] = None,
    resample: Annotated[int, typer.Option(help="How many times units are dealt to blocks.")] = 1,
    aggregate: Annotated[str, typer.Option(help="mean, median or center.")] = "mean",
    narrow: Annotated[
        bool, typer.Option("--narrow", help="For a mean: find a narrower range first.")
    ] = False,
    epsilon: Epsilon = None,
    within: Annotated[
        str | None, typer.Option(help="Or: the largest error of a mean due to noise.")
    ] = None,
    seconds: Annotated[str, typer.Option(help="Seconds for each block.")] = "1",
    memory: Annotated[int, typer.Option(help="Megabytes of memory for each block.")] = 256,
    imports: Annotated[
        list[str] | None,
        typer.Option(
            "--import", help="A module that the program needs but does not import by name."
        ),
    ] = None,
    trusted: Annotated[
        bool, typer.Option("--trusted", help="Do not isolate the program: it is your own.")
    ] = False,
    workers: Annotated[
        int, typer.Option(help="Number of blocks that run at once; the noise grows with it.")
    ] = 1,
    rehearse: Annotated[bool, typer.Option(help="Try it on made-up rows before paying.")] = True,
    confidence: Confidence = "0.95",
    fresh: Fresh = False,
    plan: Planned = False,
    save: Annotated[
        list[Path] | None,
        typer.Option(help="Write it: .parquet .csv .json, .png .svg .html, .md (card)."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Run any program on private rows by sample-and-aggregate, isolated, block by block."""
    terms: dict[str, Any] = {
        "range": [_ends(text) for text in ends], "columns": _listed(columns), "table": table,
        "where": where, "names": _listed(names), "blocks": blocks, "rows": rows,
        "resample": resample, "aggregate": aggregate, "narrow": narrow,
        "epsilon": epsilon, "within": within,
        "seconds": seconds, "memory": memory, "imports": imports or (), "trusted": trusted,
        "workers": workers, "rehearse": rehearse, "confidence": confidence, "fresh": fresh,
    }  # fmt: skip
    if save:
        from noisegate.desk.release import ENDINGS  # noqa: PLC0415 - quick help

        require_writable(save, ENDINGS)
    gate = opening.gate(to_plan=plan, writes=save)
    found = gate.apply_plan(program, sql, **terms)
    if plan:
        print_plan(found, confidence, as_json=as_json)
        return
    if found.price.epsilon:
        say(f"This takes {found.expected.seconds:,.3g} seconds.", err=True)
    with bar() as progress:
        made = gate.apply(program, sql, progress=progress, **terms)
    with saved(save, lambda path: made.save(path, confidence)):
        if as_json:
            say_json(made.to_dict(confidence))
        else:
            print_release(made, confidence)


def _listed(text: str | None) -> list[str] | None:
    return None if text is None else [item.strip() for item in text.split(",")]


def _ends(text: str) -> tuple[str, str]:
    low, comma, high = text.partition(",")
    if not comma:
        raise SpecError(f"--range {text} is not understood.", fix="For example: --range 0,120.")
    return low, high
