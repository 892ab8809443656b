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

    from noisegate.query.display import rich_table  # noqa: PLC0415 - quick help

    Console().print(rich_table(names, rows, title))
