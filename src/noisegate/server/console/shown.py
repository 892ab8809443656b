"""Plans, budgets and runs as templates write them: words and places, nothing to compute."""

from collections.abc import Container, Mapping, Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Context, Decimal
from typing import Any, Final, Self, final

from markdown_it import MarkdownIt
from markupsafe import Markup

from noisegate.accounting.accountants import accountant_named
from noisegate.desk.answer import Answer
from noisegate.desk.display.numbers import percent
from noisegate.desk.plan import Expected, Plan
from noisegate.errors import NoisegateError, Waiting
from noisegate.frozen import dataclass
from noisegate.gate import Gate
from noisegate.inert import json_text, line
from noisegate.ledger.account import Balance
from noisegate.privacy.loss import ApproxDP
from noisegate.releases.cells.axes import Axis
from noisegate.releases.describe.description import Description
from noisegate.releases.forms.boxplots import BoxplotRelease
from noisegate.root import PURPOSE
from noisegate.server.console.charts import boxes, charts
from noisegate.server.console.visits import Visit
from noisegate.server.results import Result
from noisegate.server.runs import Run
from noisegate.server.views import View

CONFIDENCE: Final = 0.95
ROWS_MAX: Final = 200
LOOK_AGAIN: Final = 2  # seconds until a page that waits is loaded again
ENDED: Final = ("done", "failed", "cancelled")
_NOTES: Final = ("mind", "clipping")
_SHOWN_ELSEWHERE: Final = (*_NOTES, "error", "price", "columns")
_SCROLLED: Final = '<div class="scroll" tabindex="0" role="region" aria-label="Table"><table>'
_HUGE: Final = 10**9  # from here on in powers of ten
_LONG: Final = 400  # letters of a value that is no table
_TITLES: Final = {
    "waiting": "Waiting for approval",
    "queued": "Waiting for its turn",
    "running": "Being asked",
    "cancelled": "Cancelled",
    "failed": "Not answered",
}
_WORDS: Final = {
    "waiting": "A steward has to approve this first. Nothing is spent yet.",
    "queued": "Nothing is spent yet.",
}
_READING: Final = (
    "The price is what this order costs by itself, at the budget's δ. This account adds up ρ: "
    "several orders cost less than the sum of their prices."
)


def number(value: float, rounding: str = ROUND_HALF_EVEN) -> str:
    """A number in four digits, or all of its whole ones.

    >>> number(0.1), number(1234.5678), number(0), up(0.44375), up(1234.1), up(2.5154e30)
    ('0.1', '1,235', '0', '0.4438', '1,235', '2.516e+30')
    """
    exact = Decimal(repr(float(value)))
    if 1000 <= abs(exact) < _HUGE:
        return f"{exact.quantize(Decimal(1), rounding=rounding):,}"
    return f"{float(Context(prec=4, rounding=rounding).plus(exact)):.4g}"


def up(value: float) -> str:
    """A price, an error or a risk: never shown smaller than it is."""
    return number(value, ROUND_CEILING)


def down(value: float) -> str:
    """What is left: never shown larger than it is."""
    return number(max(0.0, value), ROUND_FLOOR)


def markdown(text: str) -> Markup:
    """A page in Markdown as HTML; tags in it are shown, not obeyed."""
    page = MarkdownIt("commonmark", {"html": False}).enable("table").render(text)
    for plain, ours in (("<table>", _SCROLLED), ("</table>", "</table></div>")):
        page = page.replace(plain, ours)
    return Markup(page)  # noqa: S704 - written by the renderer, which escapes tags


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """Whose account below that of a data set it is: an analyst's, a purpose's, or of both."""

    analyst: str | None
    purpose: str | None
    words: str

    @classmethod
    def of(cls, view: View, account: str) -> Self:
        """By the account's name; that of a window has its time behind the name."""
        policy, name = view.hosted.policy, account.removeprefix(f"{view.name}/")
        if name in policy.analysts or not name.startswith(PURPOSE):
            return cls(analyst=_known(name, policy.analysts), purpose=None, words=name)
        why, _, who = name.removeprefix(PURPOSE).partition("/")
        return cls(
            analyst=_known(who, policy.analysts) if who else None,
            purpose=_known(why, policy.purposes),
            words=f"{who or 'everybody'}, for {why}",
        )


def _known(name: str, names: Container[str]) -> str:
    """A name without the time of its window."""
    head = name.rpartition(" ")[0]
    return head if name not in names and head in names else name


def meter(
    balance: Balance,
    *,
    left: ApproxDP | None = None,
    cost: ApproxDP | None = None,
    fits: bool = True,
) -> dict[str, Any]:
    """A budget as a bar: what is spent, what a question would take, what is left.

    Shares are those of the account's own measure (ε, ρ), which adds up; the ε of a concentrated
    account are readings, which do not.
    """
    whole, room = balance.limit.amount, left or balance.remaining
    taken = 100 * min(1.0, balance.charge.amount / whole) if whole else 100.0
    share = 0.0 if cost is None else 100 * _share(cost, balance)
    adds_up = balance.accountant == "pure"
    after = room.epsilon - cost.epsilon if cost and fits and adds_up else room.epsilon
    bite = f"this question ε = {_of(cost)}, {up(share)} % of the budget" if share else ""
    held = room.epsilon < balance.remaining.epsilon
    above = ": the accounts above it have no more" if held else ""
    words = {
        "spent_words": f"spent ε = {_of(balance.spent)}",
        "bite_words": bite if cost else "",
        "left_words": f"left {'afterwards ' if bite and fits and adds_up else ''}"
        f"ε = {down(float(after))} of {_of(balance.budget)}{above}",
    }
    said = ", ".join(filter(None, words.values()))
    drawn = max(min(100 - taken, share), 0.4) if share else 0
    return {"spent": round(taken, 2), "bite": round(drawn, 2), "fits": fits, "words": said, **words}


def _share(cost: ApproxDP, balance: Balance) -> float:
    """Which part of a budget a price is, as the account adds up: of its ε, or of its ρ."""
    if cost.epsilon == 0 or not balance.limit.amount:
        return 0.0
    accountant, whole = accountant_named(balance.accountant), balance.budget
    pair = [accountant.rho(each, whole) or each for each in (cost.epsilon, whole.epsilon)]
    return float(pair[0] / pair[1])


def _of(loss: ApproxDP | None) -> str:
    return "0" if loss is None else up(float(loss.epsilon))


def plan_shown(plan: Plan[Expected], gate: Gate) -> dict[str, Any]:
    """What an order would cost and return, and what it would take of the gate's account."""
    balance = gate.ledger.balance(gate.door.account)
    facts, record = plan.facts(CONFIDENCE), plan.to_dict(CONFIDENCE)
    best = record.get("margins_at_best") or {}
    columns = [
        {"name": name, **_expected(margin, best.get(name))}
        for name, margin in plan.margins(CONFIDENCE).items()
    ]
    groups = [(name, words) for name, words in facts if name == "groups"]
    shown = (*_SHOWN_ELSEWHERE, "groups")
    return {
        "price": (cost := "free" if plan.free else str(plan.price)),
        "words": "; ".join(
            [f"Price {cost}", *(f"{each['name']} {each['margin']}" for each in columns)]
        ),
        "why_free": dict(facts)["price"] if plan.free else "",
        "reading": _READING if balance.accountant == "zcdp" and not plan.free else "",
        "fits": plan.fits,
        "columns": columns,
        "bar": meter(balance, left=gate.remaining, cost=plan.price, fits=plan.fits),
        "groups": groups,
        "facts": [(name, words) for name, words in facts if name not in shown],
        "notes": list(dict.fromkeys(words for name, words in facts if name in _NOTES)),
    }


def _expected(margin: float | None, best: float | None) -> dict[str, str]:
    if margin is not None:
        return {"margin": f"± {up(margin)}", "more": ""}
    if best is not None:
        return {"margin": f"± {up(best)}", "more": "at best: depends on the rows"}
    return {"margin": "± ?", "more": "depends on the rows"}


def run_shown(visit: Visit, run: Run, seconds: float = 1.0) -> dict[str, Any]:
    """A run as it is now: waiting, refused, or with its answer."""
    if run.told != "waiting":
        run.wait(seconds)
    state = run.told  # on the ladder of times
    ended = state in ENDED
    shown: dict[str, Any] = {
        "refresh": None if ended or state == "waiting" else LOOK_AGAIN,
        "id": run.id, "practice": run.practice, "waiting": not ended, "error": None,
        "title": _TITLES.get(state, "Answer"), "words": run.words or _WORDS.get(state, ""),
        "percent": round(100 * run.progress), "facts": [], "columns": [], "rows": [], "charts": [],
        "left_out": 0, "caption": "", "promise": "", "caveats": [], "files": [],
        "price": None, "headline": "", "done": state == "done",
    }  # fmt: skip
    if not ended:
        return shown
    try:
        return shown | _answer(run.result(), practice=run.practice)
    except NoisegateError as error:
        return shown | {"title": _TITLES["failed"], "error": visit.refused(error)}


def result_of(run: Run) -> Result:
    """What a run made; one that is not done in a second says so."""
    if not run.wait(1):
        raise Waiting("This is not done yet.", fix="Look again later.", about=run.told)
    return run.result()


def _answer(result: Result, *, practice: bool) -> dict[str, Any]:
    answer = result.answer
    if answer is None:
        return _untabled(result.to_dict(CONFIDENCE)) | {"files": [_json(result)]}
    files = [("csv", "CSV"), _json(result), ("arrow", "Arrow"), ("parquet", "Parquet")]
    card = [] if practice else [("card", "Release card")]
    if isinstance(result.made, Description):  # a row for each column is read more easily
        shown = _table(result.made.shown(CONFIDENCE), result.made.footer(CONFIDENCE))
        return shown | {"files": files + card}
    cells = _named(answer.cells(CONFIDENCE), answer, getattr(result.made, "axes", ()))
    drawn: Sequence[object] = ()
    if isinstance(result.made, BoxplotRelease):
        drawn = boxes(result.made, CONFIDENCE, cells)
    return _table(answer, answer.footer(CONFIDENCE), cells) | {
        "charts": drawn or charts(answer, CONFIDENCE, cells=cells),
        "files": files + card,
    }


def _named(cells: list[list[str]], answer: Answer, axes: Sequence[Axis]) -> list[list[str]]:
    """Keys of a release as people read them: a bin by both of its ends."""
    names = {axis.name: dict(zip(axis.keys, axis.labels, strict=True)) for axis in axes}
    for place, name in enumerate(answer.columns):
        if name in names:
            for row, key in zip(cells, answer.table[place].to_pylist(), strict=True):
                row[place] = line(names[name].get(key, row[place]))
    return cells


def _json(result: Result) -> tuple[str, str]:
    return "json", "JSON" if result.signer is None else "JSON, signed"


def _table(answer: Answer, footer: str, cells: list[list[str]] | None = None) -> dict[str, Any]:
    cells = answer.cells(CONFIDENCE) if cells is None else cells
    widths = answer.half_widths(CONFIDENCE)
    paid, *caveats = footer.split("\n")
    return {
        "columns": [
            {"name": name, "noisy": each is not None}
            for name, each in zip(answer.columns, widths, strict=True)
        ],
        "rows": cells[:ROWS_MAX],
        "left_out": max(0, len(cells) - ROWS_MAX),
        "caption": f"± at {percent(CONFIDENCE)} confidence",
        "price": paid,
        "promise": answer.promise,
        "caveats": caveats,
    }


def _untabled(record: Mapping[str, Any]) -> dict[str, Any]:
    """What is no table: names and values; lists of one length stand side by side."""
    lists = {name: v for name, v in record.items() if isinstance(v, list) and v and _flat(v)}
    size = max(map(len, lists.values()), default=0)
    shown = {name: v for name, v in lists.items() if len(v) == size}
    others = {name: v for name, v in record.items() if name not in shown}
    return {
        "facts": [(name, _plain(v)) for name, v in others.items() if not name.endswith("_delta")],
        "columns": [
            {"name": name, "noisy": not any(isinstance(each, str) for each in v)}
            for name, v in shown.items()
        ],
        "rows": [[_plain(each) for each in row] for row in zip(*shown.values(), strict=True)],
    }


def _flat(values: list[Any]) -> bool:
    return not any(isinstance(each, list | dict) for each in values)


def _plain(value: object) -> str:
    """One value for people: a promise as its sentence, a long one cut off."""
    if isinstance(value, Mapping) and "sentence" in value:
        return str(value["sentence"])
    if isinstance(value, float):
        return number(value)
    text = value if isinstance(value, str) else json_text(value)
    return text if len(text) <= _LONG else f"{text[:_LONG]}…"
