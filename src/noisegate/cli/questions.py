"""Commands for analysts: ask, plan, the prompt, and two paid looks at a table."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from noisegate.cli.app import (
    Accountant,
    Analyst,
    Between,
    Budget,
    Choose,
    Confidence,
    DataFile,
    Delta,
    Epsilon,
    GroupsPerUnit,
    Json,
    Keys,
    KeysDelta,
    LedgerPath,
    Practice,
    Relative,
    RowsPerUnit,
    Share,
    Sql,
    Unit,
    Within,
    app,
)
from noisegate.cli.printing import print_answer, print_table
from noisegate.errors import SpecError

if TYPE_CHECKING:
    from datetime import date
    from fractions import Fraction

    from noisegate.gate import Gate

_ANY_BUDGET = "1000000"


@app.command()
def ask(
    file: DataFile,
    sql: Sql,
    epsilon: Epsilon = None,
    within: Within = None,
    relative: Relative = None,
    confidence: Confidence = "0.95",
    keys_delta: KeysDelta = None,
    budget: Budget = None,
    delta: Delta = "0",
    accountant: Accountant = None,
    analyst: Analyst = None,
    share: Share = None,
    unit: Unit = None,
    rows_per_unit: RowsPerUnit = None,
    groups_per_unit: GroupsPerUnit = None,
    choose: Choose = None,
    keys: Keys = None,
    between: Between = None,
    ledger: LedgerPath = None,
    practice: Practice = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Pay for a new draw.")] = False,
    save: Annotated[
        list[Path] | None,
        typer.Option(help="Also write it: .csv .json .parquet, .png .svg .html, .md (its card)."),
    ] = None,
    as_json: Json = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print comma-separated rows.")] = False,
) -> None:
    """Ask a question. What was released before is used again, for free."""
    from noisegate.shell import require_writable  # noqa: PLC0415
    from noisegate.shell import save as write  # noqa: PLC0415

    for path in save or []:
        require_writable(path)
    gate = gate_of(
        file, epsilon=budget, delta=delta, accountant=accountant, analyst=analyst, share=share,
        unit=unit, rows_per_unit=rows_per_unit, groups_per_unit=groups_per_unit,
        columns=columns_of(keys, between), ledger=ledger, practice=practice,
    )  # fmt: skip
    answer = gate.sql(
        sql, epsilon=epsilon, within=within, relative=relative, confidence=confidence,
        delta=keys_delta, choose=choose, fresh=fresh,
        **caps_of(file, rows_per_unit, groups_per_unit),
    )  # fmt: skip
    if as_json:
        typer.echo(answer.to_json(confidence=confidence))
    elif as_csv:
        typer.echo(answer.to_csv(confidence=confidence), nl=False)
    else:
        print_answer(answer, confidence)
    for path in save or []:
        write(answer, path, confidence)


@app.command()
def plan(
    file: DataFile,
    sql: Sql,
    epsilon: Epsilon = None,
    within: Within = None,
    relative: Relative = None,
    confidence: Confidence = "0.95",
    keys_delta: KeysDelta = None,
    budget: Budget = None,
    delta: Delta = "0",
    accountant: Accountant = None,
    analyst: Analyst = None,
    share: Share = None,
    unit: Unit = None,
    rows_per_unit: RowsPerUnit = None,
    groups_per_unit: GroupsPerUnit = None,
    choose: Choose = None,
    keys: Keys = None,
    between: Between = None,
    ledger: LedgerPath = None,
    as_json: Json = False,
) -> None:
    """Show price and error of a question without paying."""
    gate = gate_to_plan(
        file, epsilon=budget, delta=delta, accountant=accountant, analyst=analyst, share=share,
        unit=unit, rows_per_unit=rows_per_unit, groups_per_unit=groups_per_unit,
        columns=columns_of(keys, between), ledger=ledger, practice=False,
    )  # fmt: skip
    terms = {
        "epsilon": epsilon, "within": within, "relative": relative, "confidence": confidence,
        "delta": keys_delta, "choose": choose, **caps_of(file, rows_per_unit, groups_per_unit),
    }  # fmt: skip
    found = gate.plan(sql, **terms)  # type: ignore[arg-type]  # terms by name
    if as_json:
        typer.echo(json.dumps(found.to_dict(confidence), ensure_ascii=False))
    else:
        print_table(None, ("", ""), found.facts(confidence))


@app.command()
def shell(
    file: DataFile,
    epsilon: Epsilon = None,
    confidence: Confidence = "0.95",
    budget: Budget = None,
    delta: Delta = "0",
    accountant: Accountant = None,
    analyst: Analyst = None,
    share: Share = None,
    unit: Unit = None,
    rows_per_unit: RowsPerUnit = None,
    groups_per_unit: GroupsPerUnit = None,
    keys: Keys = None,
    between: Between = None,
    ledger: LedgerPath = None,
    practice: Practice = False,
) -> None:
    """Ask one question after the other at a prompt, with history."""
    from noisegate.shell import run  # noqa: PLC0415

    gate = gate_of(
        file, epsilon=budget, delta=delta, accountant=accountant, analyst=analyst, share=share,
        unit=unit, rows_per_unit=rows_per_unit, groups_per_unit=groups_per_unit,
        columns=columns_of(keys, between), ledger=ledger, practice=practice,
    )  # fmt: skip
    run(gate, epsilon=epsilon, confidence=confidence)


@app.command()
def caps(
    file: DataFile,
    table: Annotated[str, typer.Argument(help="The table whose units are counted.")],
    epsilon: Annotated[str, typer.Option(help="What to pay for the look.")],
    budget: Budget = None,
    delta: Delta = "0",
    analyst: Analyst = None,
    unit: Unit = None,
    ledger: LedgerPath = None,
) -> None:
    """Look privately at how many rows units have, and what caps would lose."""
    gate = gate_of(
        file, epsilon=budget, delta=delta, analyst=analyst, unit=unit, ledger=ledger,
        rows_per_unit=None, groups_per_unit=None, columns={},
    )  # fmt: skip
    profile = gate.caps(table, epsilon=epsilon)
    typer.echo(str(profile))
    for price in (0.1, 1):
        typer.echo(f"for a count at ε = {price}, a cap of {profile.best(price)} errs least")


@app.command()
def bounds(
    file: DataFile,
    table: Annotated[str, typer.Argument(help="The table.")],
    column: Annotated[str, typer.Argument(help="A numeric column.")],
    epsilon: Annotated[str, typer.Option(help="What to pay for the look.")],
    budget: Budget = None,
    delta: Delta = "0",
    analyst: Analyst = None,
    unit: Unit = None,
    rows_per_unit: RowsPerUnit = None,
    ledger: LedgerPath = None,
) -> None:
    """Find bounds of a column privately: powers of two around nearly all values."""
    gate = gate_of(
        file, epsilon=budget, delta=delta, analyst=analyst, unit=unit, ledger=ledger,
        rows_per_unit=rows_per_unit, groups_per_unit=None, columns={},
    )  # fmt: skip
    low, high = gate.bounds(table, column, epsilon=epsilon)
    typer.echo(f"between = [{float(low):g}, {float(high):g}]")


def gate_to_plan(file: Path, **terms: Any) -> "Gate":  # noqa: ANN401 - see noisegate.open
    """The same for a plan, which leaves nothing behind."""
    from noisegate.connect import ledger_beside  # noqa: PLC0415

    if terms["ledger"] is None and not _is_policy(file) and not ledger_beside(file).is_file():
        terms |= {"ledger": ":memory:", "epsilon": terms["epsilon"] or _ANY_BUDGET}
    return gate_of(file, **terms)


def gate_of(file: Path, **terms: Any) -> "Gate":  # noqa: ANN401 - see noisegate.open
    """The gate of a policy or of a file; facts on the command line are those of the file."""
    from noisegate.connect import open as open_gate  # noqa: PLC0415

    if _is_policy(file):
        for cap in ("rows_per_unit", "groups_per_unit"):
            terms.pop(cap)  # said of a question, see `caps_of`
        terms["columns"] = terms["columns"] or None
    return open_gate(file, **terms)


def caps_of(file: Path, rows: int | None, groups: int | None) -> dict[str, int | None]:
    """With a policy, caps on the command line are those of the question."""
    return {"rows_per_unit": rows, "groups_per_unit": groups} if _is_policy(file) else {}


def _is_policy(file: Path) -> bool:
    return file.suffix.lower() == ".toml"


def columns_of(keys: list[str] | None, between: list[str] | None) -> dict[str, dict[str, Any]]:
    """The public facts of columns that --keys and --between state."""
    columns: dict[str, dict[str, Any]] = {}
    for option, items in (("keys", keys or []), ("between", between or [])):
        for item in items:
            name, sign, values = item.partition("=")
            if not sign or not name or not values:
                example = "ward=north,south" if option == "keys" else "age=0,120"
                raise SpecError(
                    f"--{option} {item} is not understood.", fix=f"Use --{option} {example}."
                )
            texts = values.split(",")
            terms = columns.setdefault(name, {})
            if option == "between":
                terms["between"] = [_bound(text) for text in texts]
            else:
                whole = all(text.removeprefix("-").isdecimal() for text in texts)
                terms["in"] = [int(text) for text in texts] if whole else texts
    return columns


def _bound(text: str) -> "Fraction | date":
    """A bound as typed: a date such as 2026-01-31, or a number."""
    from datetime import date  # noqa: PLC0415

    from noisegate.exact import fraction  # noqa: PLC0415

    try:
        return date.fromisoformat(text)
    except ValueError:
        return fraction(text, name="bound")
