"""Commands that teach: what ε means, what a budget buys, and the demonstration."""

import re
from fractions import Fraction
from math import ceil
from typing import TYPE_CHECKING, Annotated, Any

from noisegate.cli.options import Delta, Epsilon, Json, Within, app, argument, option
from noisegate.cli.printing import print_table, say, say_json, show
from noisegate.errors import SpecError

if TYPE_CHECKING:
    from noisegate.planning.meaning import Meaning


@app.command("explain-epsilon")
def explain_epsilon(
    epsilon: Annotated[str, argument("Such as 0.5.")],
    prior: Annotated[str, option("The prior: the belief beforehand.")] = "0.5",
    as_json: Json = False,
) -> None:
    """Explain what an ε means, in a table and in plain sentences."""
    from noisegate.planning.meaning import meaning  # noqa: PLC0415

    found = meaning(epsilon, prior=prior)
    if as_json:
        say_json(_numbers(found))
        return
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
    print_table(f"What ε = {epsilon} means", ("", ""), facts.items())
    for sentence in found.sentences:
        say(sentence)


@app.command("what-if")
def what_if(
    budget: Annotated[str | None, option("ε of the whole data set.")] = None,
    epsilon: Epsilon = None,
    within: Within = None,
    confidence: Annotated[str | None, option("The confidence level of the ±.")] = None,
    delta: Delta = "0",
    queries: Annotated[int | None, option("How many questions, k.")] = None,
    bound: Annotated[str | None, option("The most that one unit moves a number: b.")] = None,
    tolerance: Annotated[str | None, option("How far all may be off: γ.")] = None,
    rows: Annotated[int | None, option("A public number of rows: n, for means.")] = None,
    what: Annotated[str, option("mean, sum, count or histogram.")] = "mean",
    as_json: Json = False,
) -> None:
    """Show what a budget buys; or solve n = kb/(γε) with its confidence for what is left out."""
    if any(each is not None for each in (queries, bound, tolerance, rows)) or what != "mean":
        from noisegate.planning.enough import enough  # noqa: PLC0415

        solved = enough(
            what, queries=queries, bound=bound, tolerance=tolerance, epsilon=epsilon, rows=rows,  # type: ignore[arg-type]
            confidence=confidence,
        )  # fmt: skip
        if as_json:
            say_json(solved.to_dict())
        else:
            print_table(f"Solved for {solved.solved} ({what})", ("", ""), solved.facts())
        return
    if budget is None:
        raise SpecError(
            "There is no budget.", fix="Give --budget, or --queries, --bound and --tolerance.",
            about="budget",
        )  # fmt: skip
    confidence = confidence or "0.95"
    from noisegate.lab.what_if import what_if as facts_of  # noqa: PLC0415

    facts = facts_of(
        epsilon=epsilon, within=within, confidence=confidence, budget=budget, delta=delta
    )
    if as_json:
        say_json({name: _number(words) for name, words in facts})
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
        show=lambda answer: show(answer, "0.95"),
    )


def _numbers(found: "Meaning") -> dict[str, Any]:
    """What an ε means as JSON: each bound rounded away from comfort."""
    names = (
        "odds_factor", "posterior", "posterior_change_one", "guess_accuracy", "total_variation",
    )  # fmt: skip
    groups = [{"size": each.size, "posterior": _above(each.posterior)} for each in found.groups]
    return {
        "epsilon": float(found.loss.epsilon), "prior": float(found.prior),
        **{name: _above(getattr(found, name)) for name in names},
        "groups": groups, "sentences": list(found.sentences),
    }  # fmt: skip


def _above(value: Fraction) -> float:
    return float(_up(value, 6))


def _number(words: str) -> int | float | str:
    """A fact as a number, where it is one."""
    found = re.fullmatch(r"(?:± |ε = )?([\d,]+)(\.\d+)?(e-?\d+)?", words)
    if found is None:
        return words
    whole = found[1].replace(",", "")
    return (
        float(whole + (found[2] or "") + (found[3] or ""))
        if any(found.groups()[1:])
        else int(whole)
    )


def _percent(value: Fraction) -> str:
    return f"{_up(value * 100, 2)} %"


def _up(value: Fraction, digits: int) -> str:
    """Rounded up: a bound is never shown smaller than it is."""
    return f"{float(Fraction(ceil(value * 10**digits), 10**digits)):.{digits}f}"
