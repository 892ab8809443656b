"""The report as a PDF: one sheet, drawn as SVG here and turned into PDF by a child process."""

from collections.abc import Iterator, Mapping
from textwrap import wrap
from typing import Any, Final

from markupsafe import escape

from noisegate.errors import Unsupported
from noisegate.extras import extra
from noisegate.inert import line
from noisegate.server.console.children import child

_WIDE, _HIGH = 595, 842  # A4 in points
_MARGIN: Final = 44
_LETTERS: Final = 112  # of a line
_LISTED: Final = 12  # of a list
_SECONDS: Final = 60
_DRAW: Final = (
    "import sys, vl_convert; "
    "sys.stdout.buffer.write(vl_convert.svg_to_pdf(sys.stdin.buffer.read().decode()))"
)


def pdf(report: Mapping[str, Any]) -> bytes:
    """The report on one sheet. The child that draws it holds its words alone."""
    try:
        extra("vl_convert", "A report as PDF", "plot")
    except Exception:  # noqa: BLE001 - whatever it says about packages
        raise Unsupported(
            "No PDF is made on this server.", fix="Print the page from the browser.", about="pdf"
        ) from None
    return child(["-c", _DRAW], sent=drawn(report), seconds=_SECONDS)


def drawn(report: Mapping[str, Any]) -> str:
    """The sheet as SVG; a long one is made smaller, so that it stays one."""
    parts, height = [], float(_MARGIN)
    for size, bold, indent, text in _lines(report):
        height += size * (1.9 if size > 10 else 1.38)
        weight = "bold" if bold else "normal"
        look = f'font-size="{size}" font-weight="{weight}"'
        parts.append(f'<text x="{_MARGIN + indent}" y="{height:.1f}" {look}>{escape(text)}</text>')
    scale = min(1.0, (_HIGH - _MARGIN) / (height + 4))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDE}" height="{_HIGH}" '
        f'viewBox="0 0 {_WIDE} {_HIGH}"><rect width="{_WIDE}" height="{_HIGH}" fill="#fff"/>'
        f'<g font-family="DejaVu Serif, Liberation Serif, serif" transform="scale({scale:.4f})">'
        f"{''.join(parts)}</g></svg>"
    )


def _lines(report: Mapping[str, Any]) -> Iterator[tuple[float, bool, int, str]]:
    """Size, weight, indent and words of each line."""
    yield 17, True, 0, f"Privacy report: {line(report['data'])}"
    yield from _text(f"{report['at']}, for {report['by']}. {report['software']}.")
    facts = report["facts"]
    private = [each["name"] for each in facts["tables"] if not each["public"]]
    yield 11.5, True, 0, "What is protected, and from whom"
    yield from _text(
        f"Protected is {facts['protects']}, with all rows in these tables: {', '.join(private)}. "
        "The protection holds against whoever sees all answers together, knows everything else, "
        "and computes whatever they like. Once all of the budget is spent:"
    )
    yield from _list(report["sentences"])
    yield 11.5, True, 0, "What was spent"
    counts = report["counts"]
    yield from _text(
        f"Of {report['budget']}, for all questions together and for ever, {report['spent']} is "
        f"spent (accountant: {report['accountant']}). Questions: {counts['answered']} answered, "
        f"{counts['refused']} refused, {counts['practised']} practised on made-up rows."
    )
    shares = [
        f"{each['name']} may spend {each['budget']}, has spent {each['spent']}"
        for each in report["shares"]
    ]
    yield from _list(shares)
    yield 11.5, True, 0, "What was published"
    published = [
        f"{each['at']}: {each['what']} by {each['person']}, ε = {each['price']}"
        for each in report["releases"]
    ]
    yield from _list(published or ["No release for publication; answers went to the analysts."])
    yield 11.5, True, 0, "What is not promised"
    yield from _list(report["promises"])
    yield 11.5, True, 0, "How to check"
    for each in report["checks"]:
        verified = "verified" if each["ok"] else "BROKEN"
        yield from _list([f"{each['what']}: {verified}, {each['entries']} entries, head"])
        yield from _text(each["head"], 20)
    head = report["head"]
    yield from _text(
        f"Note the head elsewhere, and give it to noisegate ledger verify --head later: entry "
        f"{head['seq']} of ledger {head['ledger']}."
    )


def _text(words: str, indent: int = 0) -> Iterator[tuple[float, bool, int, str]]:
    for each in wrap(line(words), _LETTERS - indent // 4):
        yield 8.6, False, indent, each


def _list(items: Any) -> Iterator[tuple[float, bool, int, str]]:  # noqa: ANN401 - texts
    listed = list(items)
    for each in listed[:_LISTED]:
        for place, (size, bold, _, text) in enumerate(_text(str(each), 12)):
            yield size, bold, 12, text if place else f"• {text}"
    if len(listed) > _LISTED:
        yield 8.6, False, 12, f"and {len(listed) - _LISTED} more"
