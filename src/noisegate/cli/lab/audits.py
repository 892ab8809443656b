"""The command that audits: a measured lower bound on ε, to hold against the one that is claimed."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from noisegate.cli import options
from noisegate.cli.opening import Opening
from noisegate.cli.options import app, argument, option
from noisegate.cli.printing import bar, print_table, say, say_json
from noisegate.errors import SpecError
from noisegate.files import require_output, write
from noisegate.frozen import replace

if TYPE_CHECKING:
    from noisegate.audit.runs import Extent

VIOLATION_CODE = 6


@app.command()
def audit(
    file: Annotated[
        Path | None, argument("A policy (.toml), or a CSV, Parquet or DuckDB file.")
    ] = None,
    sql: Annotated[
        str | None, options.sql_like("The question: 'SELECT COUNT(*) AS n FROM visits'")
    ] = None,
    mechanism: Annotated[str | None, option("A mechanism: one of --list.")] = None,
    every: Annotated[bool, option("Audit all mechanisms.", "--all")] = False,
    listed: Annotated[bool, option("List the audits of mechanisms.", "--list")] = False,
    trials: Annotated[
        int | None, option("Number of trials: on each of two neighbouring tables.")
    ] = None,
    seconds: Annotated[float | None, option("Seconds: or for so long.")] = None,
    workers: Annotated[int, option("How many run at once: processes.")] = 1,
    resume: Annotated[Path | None, option("Save runs to this file, and continue from it.")] = None,
    false_alarm: Annotated[float, option("The probability of a false alarm.")] = 1e-6,
    save: Annotated[Path | None, options.writes(".md, the table of --all")] = None,
    epsilon: options.Epsilon = None,
    within: options.Within = None,
    keys_delta: options.KeysDelta = None,
    delta: options.Delta = "0",
    accountant: options.Accountant = None,
    unit: options.Unit = None,
    rows_per_unit: options.RowsPerUnit = None,
    groups_per_unit: options.GroupsPerUnit = None,
    keys: options.Keys = None,
    between: options.Between = None,
    types: options.Types = None,
    sample: options.Sample = None,
    as_json: options.Json = False,
) -> None:
    """Try to refute a claim: a lower bound on ε from many runs on two neighbouring tables.

    No private row is read and nothing is charged: all rows are made up. Exit code 6: violated.
    """
    from noisegate.audit.runs import Extent  # noqa: PLC0415 - quick help

    extent = Extent(trials=trials, seconds=seconds, workers=workers, resume=resume)
    if listed:
        from noisegate.audit.audit import audits  # noqa: PLC0415 - some take a while to make

        if as_json:
            say_json({"audits": list(audits())})
        else:
            print_table(None, ("audit",), [(name,) for name in audits()])
    elif every or mechanism is not None:
        _mechanisms(None if every else mechanism, extent, false_alarm, save, as_json=as_json)
    elif file is None or sql is None:
        raise SpecError(
            "There is nothing to audit.",
            fix="Give a policy and a question, --mechanism, --all or --list.",
        )
    else:
        opening = Opening(
            file=file, delta=delta, accountant=accountant, unit=unit, rows_per_unit=rows_per_unit,
            groups_per_unit=groups_per_unit, keys=keys, between=between, types=types,
            sample=sample, practice=True,
        )  # fmt: skip
        terms = {"epsilon": epsilon, "within": within, "delta": keys_delta, **opening.caps}
        _question(opening, sql, terms, extent, false_alarm, as_json=as_json)


def _mechanisms(
    name: str | None,
    extent: "Extent",
    alpha: float,
    save: Path | None,
    *,
    as_json: bool,
) -> None:
    from noisegate.audit.audit import SHORT, audit_named, audits, lines, markdown  # noqa: PLC0415  # noqa: PLC0415 - quick help

    if extent.resume is not None:
        raise SpecError("Only audits of questions can be resumed.", fix="Leave out --resume.")
    if save is not None:
        require_output(save)
    chosen = list(audits().values()) if name is None else [partial(audit_named, name)]
    with bar() as progress:
        found = list(lines(chosen, extent, alpha=alpha, progress=progress))
    if save is not None:
        write(save, markdown(found))
    if as_json:
        say_json({"audits": [line.to_dict() for line in found]})
    else:
        print_table(None, SHORT, [line.short() for line in found])
        if name is not None:
            say(str(found[0].result))
            say(f"  broken copy  {found[0].audit.broken_words}")
        say(f"False alarms: one in {1 / alpha:,.0f} such runs, for all audits together.")
    _end(any(line.result.is_violation for line in found))


def _question(
    opening: Opening,
    sql: str,
    terms: dict[str, Any],
    extent: "Extent",
    alpha: float,
    *,
    as_json: bool,
) -> None:
    from noisegate.audit.neighbours import question_audit  # noqa: PLC0415

    made = question_audit(partial(Opening.gate, opening), sql, **terms)
    if extent.trials is None and extent.seconds is None:
        extent = replace(extent, trials=made.trials)
    with bar() as progress:
        result = made.run(extent, alpha=alpha, progress=progress)
    if as_json:
        say_json(result.to_dict())
    else:
        say(str(result))
    _end(result.is_violation)


def _end(violated: bool) -> None:  # noqa: FBT001 - what was found
    if violated:
        raise typer.Exit(VIOLATION_CODE)
