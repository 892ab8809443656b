"""Commands for analysts: ask, plan, the prompt, and two paid looks at a table."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, final

import typer

from noisegate.cli.app import (
    Analyst,
    Budget,
    Choose,
    Confidence,
    DataFile,
    Delta,
    Epsilon,
    Fresh,
    Json,
    KeysDelta,
    LedgerPath,
    Noise,
    PrintOrder,
    Relative,
    Rows,
    RowsPerUnit,
    Sign,
    Sql,
    Top,
    Unit,
    Within,
    app,
)
from noisegate.cli.opening import Opening, opens
from noisegate.cli.printing import (
    print_answer,
    print_plan,
    saved,
    say,
    say_csv,
    say_json,
    say_made,
)
from noisegate.cli.signing import signer_for

if TYPE_CHECKING:
    from noisegate.orders import SqlOrder
    from noisegate.sql.bounds.profiles import Profile


@final
@dataclass(frozen=True, kw_only=True)
class Question:
    """What is said beside the SQL."""

    epsilon: Epsilon = None
    within: Within = None
    relative: Relative = None
    rows: Rows = None
    confidence: Confidence = "0.95"
    keys_delta: KeysDelta = None
    choose: Choose = None
    noise: Noise = None
    top: Top = None
    print_order: PrintOrder = False
    as_json: Json = False

    def order(self, sql: str, opening: Opening) -> "SqlOrder":
        """The order that it is."""
        from noisegate.orders import SqlOrder  # noqa: PLC0415 - quick help

        return SqlOrder.make(
            sql=sql, epsilon=self.epsilon, within=self.within, relative=self.relative,
            rows=self.rows, confidence=self.confidence, delta=self.keys_delta, choose=self.choose,
            noise=self.noise, top=self.top, **opening.caps,
        )  # fmt: skip


@app.command()
@opens
def ask(
    opening: Opening,
    sql: Sql,
    question: Question,
    fresh: Fresh = False,
    save: Annotated[
        list[Path] | None,
        typer.Option(
            help="Also write it: .csv .json .parquet, .png .svg .html; its card: .md .card.json."
        ),
    ] = None,
    sign: Sign = None,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print comma-separated rows.")] = False,
) -> None:
    """Ask a question. What was released before is reused at no cost."""
    from noisegate.shell import PICTURES, require_writable  # noqa: PLC0415
    from noisegate.shell import save as write  # noqa: PLC0415

    order, confidence = question.order(sql, opening), question.confidence
    if question.print_order:
        say_json(opening.record(order))
        return
    for path in save or []:
        require_writable(path)
    signer = signer_for(sign, save, signs_answers=True)
    gate = opening.gate(writes=save)
    if any(path.suffix.lower() in PICTURES for path in save or []):
        from noisegate.desk.plot import require_numbers  # noqa: PLC0415

        require_numbers(gate.plan(order, fresh=fresh).expected.numbers)
    answer = gate.run(order, fresh=fresh)
    with saved(save, lambda path: write(answer, path, confidence, sign=signer)):
        if question.as_json:
            say_made(answer, confidence, signer)
        elif as_csv:
            say_csv(answer.to_csv(confidence=confidence))
        else:
            print_answer(answer, confidence)


@app.command()
@opens
def plan(opening: Opening, sql: Sql, question: Question) -> None:
    """Show price and error of a question without paying."""
    order = question.order(sql, opening)
    if question.print_order:
        say_json(opening.record(order))
        return
    found = opening.gate(to_plan=True).plan(order)
    print_plan(found, question.confidence, as_json=question.as_json)


@app.command()
@opens
def shell(
    opening: Opening,
    epsilon: Epsilon = None,
    rows: Rows = None,
    confidence: Confidence = "0.95",
) -> None:
    """Ask one question after the other at a prompt, with history."""
    from noisegate.shell import run  # noqa: PLC0415

    gate = opening.gate()
    run(gate, epsilon=epsilon, rows=rows, confidence=confidence)


@app.command()
def caps(
    file: DataFile,
    table: Annotated[str, typer.Argument(help="The table whose units are counted.")],
    epsilon: Annotated[str, typer.Option(help="The ε for the estimate.")],
    budget: Budget = None,
    delta: Delta = "0",
    analyst: Analyst = None,
    unit: Unit = None,
    ledger: LedgerPath = None,
) -> None:
    """Estimate privately how many rows units have, and what contribution bounds would lose."""
    opening = Opening(
        file=file, budget=budget, delta=delta, analyst=analyst, unit=unit, ledger=ledger
    )
    gate = opening.gate()
    print_caps(gate.caps(table, epsilon=epsilon))


def print_caps(profile: "Profile") -> None:
    """How many rows units have, and which caps that suggests."""
    say(str(profile))
    for price in (0.1, 1):
        say(f"for a count at ε = {price}, a cap of {profile.best(price)} has the smallest error")


@app.command()
def bounds(
    file: DataFile,
    table: Annotated[str, typer.Argument(help="The table.")],
    column: Annotated[str, typer.Argument(help="A numeric column.")],
    epsilon: Annotated[str, typer.Option(help="The ε for the estimate.")],
    budget: Budget = None,
    delta: Delta = "0",
    analyst: Analyst = None,
    unit: Unit = None,
    rows_per_unit: RowsPerUnit = None,
    ledger: LedgerPath = None,
) -> None:
    """Estimate the bounds of a column privately: powers of two around nearly all values."""
    opening = Opening(
        file=file, budget=budget, delta=delta, analyst=analyst, unit=unit, ledger=ledger,
        rows_per_unit=rows_per_unit,
    )  # fmt: skip
    gate = opening.gate()
    low, high = gate.bounds(table, column, epsilon=epsilon)
    say(f"between = [{float(low):g}, {float(high):g}]")
