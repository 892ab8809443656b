"""The command that chooses privately among candidates."""

from typing import TYPE_CHECKING, Annotated

import typer

from noisegate.cli.app import app
from noisegate.cli.opening import Asking, Opening, opens
from noisegate.cli.printing import print_table, say, say_json

if TYPE_CHECKING:
    from noisegate.sql.choosing import Choice


@app.command()
@opens
def choose(
    opening: Opening,
    sql: Annotated[
        str, typer.Argument(help="Such as 'SELECT ward, COUNT(*) FROM visits GROUP BY ward'.")
    ],
    asking: Asking,
    count: Annotated[
        int, typer.Option("-k", "--count", help="Number of candidates to choose.")
    ] = 1,
    method: Annotated[
        str, typer.Option(help="auto, exponential, permute-and-flip or noisy-max.")
    ] = "auto",
    gap: Annotated[
        bool,
        typer.Option("--gap", help="Also show the gap to the next candidate, at no extra cost."),
    ] = False,
    least: Annotated[bool, typer.Option("--least", help="Choose the lowest instead.")] = False,
) -> None:
    """Choose the candidate with the largest count or sum; only the choice is released."""
    from noisegate.orders import ChoiceOrder  # noqa: PLC0415 - quick help

    order = ChoiceOrder.make(
        sql=sql, epsilon=asking.epsilon, k=count, method=method, gap=gap, least=least,
        **opening.caps,
    )  # fmt: skip
    choice = asking.ordered(opening, order)
    if choice is not None:
        print_choice(choice, asking.confidence, as_json=asking.as_json)


def print_choice(choice: "Choice", confidence: str, *, as_json: bool) -> None:
    """Who was chosen, with the price and the promise."""
    if as_json:
        say_json(choice.to_dict(confidence))
        return
    names = ("", "chosen", *(() if choice.gaps is None else ("ahead by",)))
    print_table(None, names, choice.rows())
    say(choice.footer(confidence))
    say(str(choice.guarantee))
