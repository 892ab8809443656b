"""Everything that the lab shows on one page, which needs no network and no script."""

from collections.abc import Callable, Sequence
from typing import Final

from noisegate.exact import Number
from noisegate.inert import html
from noisegate.lab.attacks.page import page
from noisegate.lab.attacks.run import NAMES, tried
from noisegate.lab.bounds import Bound, bounds
from noisegate.lab.crowds import compare, made_up
from noisegate.lab.intersections import PRICES
from noisegate.lab.intersections import run as crossings
from noisegate.lab.ratios import DRAWS, MECHANISMS, laws, picture
from noisegate.lab.unpromised import run

TIMES: Final = 100


def report(
    *,
    epsilon: Number = 1,
    times: int = TIMES,
    names: tuple[str, ...] = NAMES,
    progress: Callable[[float, str], None] | None = None,
) -> str:
    """One HTML document: laws, bounds, a map, crowds, attacks, and what is not promised."""
    shown = [laws(each, epsilon=epsilon, draws=DRAWS) for each in MECHANISMS]
    same = next(each for each in shown if each.mechanism == "exponential")
    laws_part = "".join(
        f"<h3>{html(each.mechanism)}</h3>{picture(each, standalone=False)}" for each in shown
    )
    before = (
        "<h1>The lab</h1>"
        "<h2>My row, and what ε forbids</h2><p>K(DB - me) and K(DB + me) are the laws of a count "
        "without and with my row, here 24 and 25 people. For every output their ratio has to lie "
        "between e^-ε and e^ε. Crosses are draws of the real mechanism.</p>"
        f"{laws_part}<p>Exponential = geometric: choosing a count x with weight e^(-ε·|x - n|) is "
        f"geometric noise. Both laws differ by at most {same.from_geometric:.1g}.</p>"
        f"{_bounds(bounds(epsilon=epsilon))}{_map()}{_crowds()}"
    )
    found = tried(names, epsilon=epsilon, times=times, progress=progress)
    return page(found, run(epsilon), title="The noisegate lab", before=before)


def _bounds(rows: list[Bound]) -> str:
    lines = [
        (row.task, row.error, f"{row.least:.3g}", f"{row.reached:.3g}", row.why) for row in rows
    ]
    return (
        "<h2>Lower bounds, and what is reached</h2><p>For pure ε, adding or removing a row.</p>"
        + _table(("task", "error", "no one below", "here", "why"), lines)
    )


def _map() -> str:
    """A map at four prices: errors beside the closed form, of single counts and of a release."""
    exact, drawn = crossings(PRICES)
    lines = [
        (f"{float(each.epsilon):g}", f"{each.mean_error:.3g}", f"{each.expected_mean:.3g}",
         f"{each.max_error:,.0f}", f"{each.expected_max:,.0f}", f"{each.auto_mean:.3g}")
        for each in drawn
    ]  # fmt: skip
    head = ("ε", "mean error", "closed form", "largest", "expected", "release map: mean error")
    words = f"{exact.size:,} counts of {int(exact.sum()):,} made-up street crossings."
    return f"<h2>A map at four prices</h2><p>{words}</p>{_table(head, lines)}"


def _crowds() -> str:
    """k-anonymity, crowds and noise on one table of counts."""
    counts = made_up(100_000, 100)
    found = compare(counts, probability="1/10", crowd=36, delta="1e-6", trials=20)
    lines = [
        (each.name, each.promise, f"{each.of_people:.3g}", f"{each.hidden:.3g}") for each in found
    ]
    head = ("way", "promise", "error of large counts", "hidden cells")
    return f"<h2>Crowds</h2>{_table(head, lines)}"


def _table(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    top = "".join(f"<th>{html(each)}</th>" for each in head)
    rows = "".join(
        f"<tr><th>{html(first)}</th>{''.join(f'<td>{html(each)}</td>' for each in others)}</tr>"
        for first, *others in lines
    )
    return f'<div class="scroll"><table><tr>{top}</tr>{rows}</table></div>'
