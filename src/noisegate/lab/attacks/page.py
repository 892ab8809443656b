"""The attacks as pictures and as one page that needs no network and no script."""

from collections.abc import Sequence
from typing import Final

from noisegate.inert import html
from noisegate.lab.attacks.base import CLASSIC, GATE, RAW, Outcome
from noisegate.lab.unpromised import Story

_COLOURS: Final = {RAW: "#b2497a", CLASSIC: "#e08214", GATE: "#2a9d6f"}
_LEFT, _WIDE, _BAR, _STEP, _LABEL = 300, 340, 22, 34, 40
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


def picture(found: Outcome, *, standalone: bool = True) -> str:
    """An SVG: three bars, a dashed line at chance, a solid one at what ε allows the gate."""
    rows = []
    for place, (kind, trial) in enumerate(found.trials.items()):
        top = 10 + place * _STEP
        wide = round(trial.success * _WIDE, 1)
        end, line = _LEFT + wide, _LEFT + found.bound * _WIDE
        label = line if kind == GATE and end <= line < end + _LABEL else end  # not below the line
        rows.append(
            f'<text x="{_LEFT - 8}" y="{top + 16}" text-anchor="end">{html(trial.against)}</text>'
            f'<rect x="{_LEFT}" y="{top}" width="{wide}" height="{_BAR}" fill="{_COLOURS[kind]}"/>'
            f'<text x="{label + 6:.1f}" y="{top + 16}">{trial.success:.0%}</text>'
        )
    bottom = 10 + 3 * _STEP
    chance, bound = (round(_LEFT + share * _WIDE, 1) for share in (found.chance, found.bound))
    lines = (
        f'<path d="M{chance} 4V{bottom}" stroke="currentColor" stroke-dasharray="4 3"/>'
        f'<path d="M{bound} {bottom - _STEP - 4}V{bottom}" stroke="currentColor"/>'
        f'<text x="{chance}" y="{bottom + 14}" text-anchor="middle">'
        f"chance {found.chance:.0%}</text>"
        f'<text x="{bound}" y="{bottom + 30}" text-anchor="middle">'
        f"at most {found.bound:.0%} for ε = {found.epsilon:g}</text>"
    )
    said = "; ".join(f"{trial.against}: {trial.success:.0%}" for trial in found.trials.values())
    space = ' xmlns="http://www.w3.org/2000/svg"' if standalone else ""
    ink = ' style="background:#fff;color:#1a1a1a"' if standalone else ""
    return (
        f'<svg{space}{ink} viewBox="0 0 {_LEFT + _WIDE + 60} {bottom + 38}" role="img" '
        f'font-family="system-ui, sans-serif" font-size="13" fill="currentColor" '
        f'aria-label="{html(f"{found.measure}: {said}")}">{"".join(rows)}{lines}</svg>'
    )


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
