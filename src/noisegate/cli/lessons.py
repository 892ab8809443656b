"""Commands that teach: what ε means, what a budget buys, and the demonstration."""

from fractions import Fraction
from math import ceil
from typing import Annotated

import typer

from noisegate.cli.app import Confidence, Delta, Epsilon, Json, Within, app
from noisegate.cli.printing import print_answer, print_table, say, say_json


@app.command("explain-epsilon")
def explain_epsilon(
    epsilon: Annotated[str, typer.Argument(help="Such as 0.5.")],
    prior: Annotated[str, typer.Option(help="The belief beforehand.")] = "0.5",
    as_json: Json = False,
) -> None:
    """Explain what an ε means, in a table and in plain sentences."""
    from noisegate.planning.meaning import meaning  # noqa: PLC0415

    found = meaning(epsilon, prior=prior)
    facts = {
        "odds rise at most": f"{_up(found.odds_factor, 4)} times",
        f"belief {float(found.prior):.1%} that someone is present, at most": _percent(
            found.posterior
        ),
        "the same, about the values of a present person": _percent(found.posterior_change_one),
        "right guesses of a fair “in or out?”, at most": _percent(found.guess_accuracy),
        "conclusions with and without the person differ by": _percent(found.total_variation),
        **{
            f"{g.size} people together: belief at most": _percent(g.posterior) for g in found.groups
        },
    }
    if as_json:
        say_json({"epsilon": str(found.loss.epsilon), **facts})
        return
    print_table(f"What ε = {epsilon} means", ("", ""), facts.items())
    for sentence in found.sentences:
        say(sentence)


@app.command("what-if")
def what_if(
    budget: Annotated[str, typer.Option(help="ε of the whole data set.")],
    epsilon: Epsilon = None,
    within: Within = None,
    confidence: Confidence = "0.95",
    delta: Delta = "0",
    as_json: Json = False,
) -> None:
    """Show the error of counts at a price, or the price of an error; and what a budget buys."""
    from noisegate.lab.what_if import what_if as facts_of  # noqa: PLC0415

    facts = facts_of(
        epsilon=epsilon, within=within, confidence=confidence, budget=budget, delta=delta
    )
    if as_json:
        say_json(dict(facts))
    else:
        print_table(f"What a budget of ε = {budget} buys", ("", ""), facts)


@app.command()
def demo() -> None:
    """Run the main job on made-up rows: price, answer, ledger, refusal."""
    from rich.console import Console  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    from noisegate.lab.demo import run  # noqa: PLC0415

    console = Console()
    run(
        title=lambda text: console.print(Text(f"\n{text}", style="bold")),
        say=lambda text: console.print(Text(text)),
        show=lambda answer: print_answer(answer, "0.95"),
    )


def _percent(value: Fraction) -> str:
    return f"{_up(value * 100, 2)} %"


def _up(value: Fraction, digits: int) -> str:
    """Rounded up: a bound is never shown smaller than it is."""
    return f"{float(Fraction(ceil(value * 10**digits), 10**digits)):.{digits}f}"
