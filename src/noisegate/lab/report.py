"""Pictures of attacks, and a page of all that the lab shows: it needs no network and no script."""

from collections.abc import Callable, Sequence
from typing import Final

from noisegate.exact import Number
from noisegate.inert import html
from noisegate.lab.attacks.outcome import Outcome, picture
from noisegate.lab.attacks.run import NAMES, tried
from noisegate.lab.bounds import Bound, bounds
from noisegate.lab.crowds import compare, made_up
from noisegate.lab.intersections import PRICES
from noisegate.lab.intersections import run as crossings
from noisegate.lab.ratios import DRAWS, MECHANISMS, laws
from noisegate.lab.ratios import picture as drawn_laws
from noisegate.lab.unpromised import Story, run

_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'"
_STYLE: Final = """
:root { color-scheme: light dark; --ink: #1a1a1a; --paper: #fff; --line: #8888; }
@media (prefers-color-scheme: dark) { :root { --ink: #eee; --paper: #17191c; } }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  max-width: 46rem; margin: 2rem auto; padding: 0 1rem; }
svg { width: 100%; height: auto; } h2 { margin-top: 2.5rem; }
table { border-collapse: collapse; width: 100%; } th, td { padding: .3rem .5rem;
  border-bottom: 1px solid var(--line); text-align: right; } th:first-child { text-align: left; }
.scroll { overflow-x: auto; }
"""


def page(
    outcomes: Sequence[Outcome],
    stories: Sequence[Story] = (),
    *,
    title: str = "Attacks on noisegate",
    before: str = "",
) -> str:
    """One HTML document: a table of all, then each attack with its story and picture.

    ``before`` are sections that come first.
    """
    head = "<tr><th>attack</th><th>raw</th><th>classic defence</th><th>gate</th><th>chance</th>"
    rows = "".join(
        f'<tr><th><a href="#{found.name}">{html(found.title)}</a></th>'
        + "".join(f"<td>{share:.0%}</td>" for share in found.shares)
        + "</tr>"
        for found in outcomes
    )
    parts = "".join(
        f'<section id="{found.name}"><h2>{html(found.title)}</h2><p>{html(found.story)}</p>'
        f"<p>Measured: {html(found.measure)}.</p>{picture(found, standalone=False)}</section>"
        for found in outcomes
    )
    told = "".join(f"<p>{html(str(story))}</p>" for story in stories)
    unpromised = f"<h2>What is not promised</h2>{told}" if told else ""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{html(title)}</title><style>{_STYLE}</style></head><body>{before}"
        "<h1>Attacks</h1><p>Each attack is tried on made-up people: on raw answers, on a classic "
        'defence, and on a real gate. The column "at most" is what ε allows any attacker, '
        "however clever.</p>"
        f'<div class="scroll"><table>{head}<th>at most</th></tr>{rows}</table></div>'
        f"{parts}{unpromised}</body></html>\n"
    )


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
        f"<h3>{html(each.mechanism)}</h3>{drawn_laws(each, standalone=False)}" for each in shown
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
