"""Audit: who asked what, when, for which price; export, verification, a report on one page."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from fractions import Fraction
from importlib.metadata import version
from textwrap import wrap
from typing import Any, Final

from markupsafe import escape
from starlette.responses import Response

from noisegate.errors import Unsupported
from noisegate.extras import extra
from noisegate.inert import line
from noisegate.planning.meaning import meaning
from noisegate.server.access import Access
from noisegate.server.console.shown import Holder, meter, up
from noisegate.server.console.visits import Visit
from noisegate.server.pictures import child
from noisegate.server.views import View
from noisegate.sheets import csv_text

_SHOWN: Final = 300  # lines on a page
_LOOKED_AT: Final = 10_000  # of whom and what can be filtered by
_COLUMNS: Final = (
    "seq", "at", "person", "token", "face", "action", "dataset", "purpose", "price", "what",
    "refused", "hash",
)  # fmt: skip
_BESIDE: Final = ("order", "price", "rows", "refused", "kind", "run")  # shown otherwise, or not
_NOT_PROMISED: Final = (
    "What the answers teach about people in general, and so about anybody they resemble.",
    "Anything about people whose rows depend on each other beyond what is said of groups.",
    "Anything about copies of the rows elsewhere, or about other releases made from them.",
    "Protection from the steward and the operators of the machine, who hold the rows.",
)


def audit_page(visit: Visit, **values: Any) -> Response:  # noqa: ANN401 - of a template
    """The access log, filtered."""
    lines = _lines(visit)
    everything = _seen(visit, visit.service.log.lines(limit=_LOOKED_AT))
    shared: dict[str, Any] = {
        "title": "Audit",
        "names": visit.names(),
        "lines": (shown := [_line(each) for each in lines[:_SHOWN]]),
        "purposes": any(each["purpose"] for each in shown),
        "left_out": max(0, len(lines) - _SHOWN),
        "count": len(lines),
        "said": {name: visit.said(name) for name in _FILTERS},
        "people": sorted({each.person for each in everything if each.person}),
        "actions": sorted({each.action for each in everything}),
        "query": str(visit.request.url.query),
        "checks": None,
    }
    return visit.page("audit.html", **(shared | values))


def audit_csv(visit: Visit) -> Response:
    """The filtered lines as a file; formulas in it are text."""
    rows = [[_line(each)[name] for name in _COLUMNS] for each in _lines(visit)]
    visit.log("export")
    name = f"audit-{datetime.now(UTC):%Y-%m-%d}.csv"
    return visit.file(csv_text(list(_COLUMNS), rows), "text/csv; charset=utf-8", name)


def verify(visit: Visit) -> Response:
    """Recheck the ledgers and the access log from their first line on."""
    visit.log("verify")
    return audit_page(visit, checks=_checks(visit))


def report_page(visit: Visit) -> Response:
    """One page for an ethics board: what is protected, what was spent, what is not promised."""
    found = _report(visit, visit.view())
    return visit.page("report.html", title=f"Report on {found['data']}", **found)


def report_pdf(visit: Visit) -> Response:
    """The same as a file."""
    view = visit.view()
    body = pdf(_report(visit, view))
    visit.log("report", dataset=view.name)
    return visit.file(body, "application/pdf", f"report-{datetime.now(UTC):%Y-%m-%d}.pdf")


def _report(visit: Visit, view: View) -> dict[str, Any]:
    facts, root = view.facts(), view.ledger.balance(view.name)
    lines = _seen(visit, visit.service.log.lines(dataset=view.name))
    asked = [each for each in lines if each.action == "ask"]
    answered = [each for each in asked if not each.detail.get("refused")]
    releases = [
        each
        for each in answered
        if each.detail.get("kind") == "release" and Fraction(str(each.detail.get("price") or 0))
    ]
    risk = meaning(root.budget.epsilon, delta=root.budget.delta, prior="0.01", groups=(2,))
    return {
        "data": view.name,
        "facts": facts,
        "at": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        "by": visit.caller.name,
        "budget": str(root.budget),
        "spent": str(root.spent),
        "accountant": root.accountant,
        "bar": meter(root),
        "sentences": risk.sentences,
        "shares": _shares(view),
        "counts": {"answered": len(answered), "refused": len(asked) - len(answered),
                "practised": sum(each.action == "practise" for each in lines)},
        "releases": [_line(each) for each in releases],
        "checks": _checks(visit, view),
        "head": view.ledger.anchor().to_dict(),
        "promises": _NOT_PROMISED,
        "software": f"noisegate {version('noisegate-dp')}",
    }  # fmt: skip


_FILTERS: Final = ("person", "data", "action", "since", "until")


def _lines(visit: Visit) -> list[Access]:
    """What the filters leave, the latest first."""
    said = {name: visit.said(name) for name in _FILTERS}
    found = visit.service.log.lines(person=said["person"] or None, dataset=said["data"] or None)
    return [
        each
        for each in _seen(visit, found)
        if said["action"] in ("", each.action)
        and said["since"] <= each.at[:10]
        and (not said["until"] or each.at[:10] <= said["until"])
    ]


def _seen(visit: Visit, lines: list[Access]) -> list[Access]:
    """Those that are about data sets of the caller."""
    caller = visit.caller
    if caller.datasets is None:
        return lines
    return [each for each in lines if each.dataset is not None and caller.may_see(each.dataset)]


def _line(each: Access) -> dict[str, Any]:
    order, paid = each.detail.get("order") or {}, each.detail.get("price")
    beside = _BESIDE if order else _BESIDE[:-1]  # a run has its order
    others = {k: v for k, v in each.detail.items() if k not in beside}
    what = (
        order.get("sql") or order.get("name") or ", ".join(f"{k}: {v}" for k, v in others.items())
    )
    return {
        "seq": each.seq, "at": each.at[:19].replace("T", " "), "person": each.person,
        "token": each.token or "", "face": each.face, "action": each.action,
        "dataset": each.dataset or "", "purpose": order.get("purpose") or "",
        "price": "" if paid is None else up(float(Fraction(str(paid)))),
        "what": str(what), "refused": each.detail.get("refused") or "", "hash": each.hash,
    }  # fmt: skip


def _checks(visit: Visit, only: View | None = None) -> list[dict[str, Any]]:
    """The outcome for each ledger and for the access log."""
    found = []
    for view in [only] if only is not None else visit.service.views(visit.caller):
        checked = view.ledger.verify()
        found.append(
            {"what": f"Ledger of {view.name}", "entries": checked.entries, "head": checked.head,
             "ok": checked.ok, "problems": checked.problems}
        )  # fmt: skip
    broken = visit.service.log.broken()
    problems = [] if broken is None else [f"Line {broken} does not follow from the one before."]
    lines = visit.service.log.lines(limit=1)
    found.append(
        {"what": "Access log", "entries": lines[0].seq + 1 if lines else 0,
         "head": lines[0].hash if lines else "", "ok": broken is None, "problems": problems}
    )  # fmt: skip
    return found


def _shares(view: View) -> list[dict[str, str]]:
    names = [each for each in view.ledger.accounts() if each.startswith(f"{view.name}/")]
    balances = [(name, view.ledger.balance(name)) for name in names]
    return [
        {"name": Holder.of(view, name).words, "budget": str(each.budget),
         "spent": str(each.spent)}
        for name, each in balances
    ]  # fmt: skip


# the report as a PDF: one sheet, drawn as SVG here and turned into PDF by a child process


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
    for size, bold, indent, text in _printed(report):
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


def _printed(report: Mapping[str, Any]) -> Iterator[tuple[float, bool, int, str]]:
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
