"""Tables and answers on a terminal."""

import json
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from noisegate.query.answer import Answer


def print_answer(answer: "Answer", confidence: str) -> None:
    """An answer with its price and its promise."""
    print_table(None, answer.columns, answer.cells(confidence))
    typer.echo(answer.footer(confidence))
    typer.echo(answer.promise)


def print_plan(plan: Any, confidence: str, *, as_json: bool) -> None:  # noqa: ANN401 - any plan
    """Price and error before anything is paid."""
    if as_json:
        typer.echo(json.dumps(plan.to_dict(confidence), ensure_ascii=False))
    else:
        print_table(None, ("", ""), plan.facts(confidence))


def print_table(title: str | None, names: Any, rows: Any) -> None:  # noqa: ANN401 - rich's types
    """A table that cuts nothing off."""
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    table = Table(title=title, title_justify="left", show_header=any(names))
    for name in names:
        table.add_column(Text(name), overflow="fold")  # nothing is cut off
    for row in rows:
        table.add_row(*(Text(str(cell)) for cell in row))
    Console().print(table)
