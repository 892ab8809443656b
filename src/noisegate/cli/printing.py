"""Text, tables, answers and data on standard output, all of it inert."""

import codecs
import json
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from typing import TYPE_CHECKING, Any

from noisegate.inert import json_text, line, lines

if TYPE_CHECKING:
    from noisegate.desk.answer import Answer
    from noisegate.desk.plan import Expected, Plan
    from noisegate.desk.release import Held
    from noisegate.ledger.signing import Signer

_OPTIONS = {
    "rows_per_unit": "--rows-per-unit", "groups_per_unit": "--groups-per-unit", "rows": "--rows",
    "choose": "--choose", "fresh": "--fresh", "delta": "--keys-delta",
}  # fmt: skip
_NAMED = re.compile(  # with a value, or names that are not words
    rf"""\b({"|".join(_OPTIONS)})=("[^"]*"|'[^']*'|\.\.\.|[\w.*-]*\w)"""
    r"|\b((?:rows|groups)_per_unit)\b(?! ?=)"
)
_PLAIN = {
    "±": "+/-", "ε": "eps", "δ": "delta", "ρ": "rho", "α": "alpha", "σ": "sigma", "·": "|",
    "–": "-", "—": "-", "…": "...", "→": "->", "×": "x", "≥": ">=", "≤": "<=", "“": '"', "”": '"',
    "’": "'", "²": "^2", "‹": "<",
}  # fmt: skip


def say(text: str, *, err: bool = False) -> None:
    """Words for people, in what letters the output has."""
    print(lines(text), file=sys.stderr if err else sys.stdout, flush=True)


def say_json(value: Any, *, indent: int | None = None) -> None:  # noqa: ANN401 - plain values
    """One JSON value; letters that the output has none for are written as JSON can."""
    text = json_text(value, indent=indent)
    if not _has_all_letters():
        text = re.sub(r"[^\x00-\x7f]", lambda found: json.dumps(found.group())[1:-1], text)
    print(text, flush=True)  # noqa: T201


def tell(facts: dict[str, Any], words: str, *, as_json: bool) -> None:
    """What was done: as one JSON object, or in words."""
    if as_json:
        say_json(facts)
    else:
        say(words)


def say_csv(text: str) -> None:
    """Comma-separated rows: as they are, in UTF-8 as files are; on a terminal inert."""
    if sys.stdout.isatty():
        text = lines(text)
    elif isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")
    sys.stdout.write(text)


def as_options(text: str) -> str:
    """Words that name arguments of Python's, with the options that the command line has for them.

    >>> as_options('Give rows_per_unit=..., or have it found: choose="caps".')
    'Give --rows-per-unit N, or have it found: --choose caps.'
    """

    def option(found: re.Match[str]) -> str:
        name = _OPTIONS[found[1] or found[3]]
        value = (found[2] or "").strip("\"'").replace("...", "N")
        return name if value in ("", "True") else f"{name} {value}"

    return _NAMED.sub(option, text)


def show(
    made: "Answer | Held",
    confidence: str,
    *,
    as_json: bool = False,
    as_csv: bool = False,
    signer: "Signer | None" = None,
) -> None:
    """An answer, or a release by its first rows, with price and promise.

    Or as data: comma-separated, or as one JSON object, signed where there is a key.
    """
    if as_json:
        say_json(json.loads(made.to_json(confidence=confidence, sign=signer)))
    elif as_csv:
        say_csv(made.to_csv(confidence=confidence))
    else:
        shown: Any = getattr(made, "shown", lambda _: made)(confidence)
        print_table(None, shown.columns, shown.cells(confidence))
        say(as_options(made.footer(confidence)))
        say(made.promise)


def print_plan(plan: "Plan[Expected]", confidence: str, *, as_json: bool) -> None:
    """Price and error before anything is paid."""
    if as_json:
        say_json(plan.to_dict(confidence))
    else:
        facts = [[as_options(str(each)) for each in row] for row in plan.facts(confidence)]
        print_table(None, ("", ""), facts)


@contextmanager
def bar() -> Iterator[Callable[[float, str], None] | None]:
    """A progress bar on a terminal; nothing in pipes."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console  # noqa: PLC0415
    from rich.markup import escape  # noqa: PLC0415
    from rich.progress import Progress  # noqa: PLC0415

    with Progress(console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task("measuring", total=1.0)

        def progress(part: float, words: str) -> None:
            shown.update(task, completed=part, description=escape(line(words)))

        yield progress


def print_table(title: str | None, names: Any, rows: Any) -> None:  # noqa: ANN401 - rich's types
    """A table that cuts nothing off: in a file as wide as it is, on a terminal page by page."""
    from noisegate.desk.display.numbers import rich_table  # noqa: PLC0415 - quick help
    from noisegate.shell import show  # noqa: PLC0415

    if not _has_all_letters():  # spelled out before the columns get their widths
        names = [_spelled(str(name)) for name in names]
        rows = [[_spelled(str(each)) for each in row] for row in rows]
    show(rich_table(names, rows, title))


def _has_all_letters() -> bool:
    encoding = getattr(sys.stdout, "encoding", None)  # None: kept as text
    return encoding is None or encoding.lower().startswith("utf")


def _spelled(text: str) -> str:
    return text.encode("ascii", "noisegate").decode()


def plainly(wrong: UnicodeError) -> tuple[str, int]:
    """Letters that an output has none for, spelled out: ± is +/-."""
    if not isinstance(wrong, UnicodeEncodeError):
        raise wrong
    text = wrong.object[wrong.start : wrong.end]
    spelled = (
        _PLAIN.get(each) or each.encode("ascii", "backslashreplace").decode() for each in text
    )
    return "".join(spelled), wrong.end


codecs.register_error("noisegate", plainly)
