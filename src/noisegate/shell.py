"""The interactive prompt: SQL ended by a semicolon, and a few commands that begin with a backslash.

What was typed is remembered between sessions; answers never are.
"""

import os
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from datetime import timedelta
from io import StringIO
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, final

from noisegate.desk.terms.terms import rest_of
from noisegate.errors import SpecError, stumbled
from noisegate.exact import positive
from noisegate.files import require_output
from noisegate.files import write as write_file
from noisegate.inert import lines
from noisegate.privacy.domain import EPOCH, Kind

if TYPE_CHECKING:
    from fractions import Fraction

    from noisegate.desk.answer import Answer
    from noisegate.gate import Gate
    from noisegate.ledger.signing import Signer
    from noisegate.privacy.loss import ApproxDP

HELP: Final = (
    ("SELECT …;", "ask; ends with a semicolon, may span lines"),
    ("\\plan SELECT …", "price and error of a question, free"),
    ("\\epsilon 0.1", "the ε for each question from here on; alone: show it"),
    ("\\rows 10000", "approximate number of rows, for the error of averages; alone: forget it"),
    ("\\budget", "what is spent and what is left"),
    ("\\tables", "the tables"),
    ("\\d TABLE", "the columns of a table"),
    ("\\history", "the ledger's entries of this account"),
    (
        "\\save FILE",
        "the last answer as .csv, .json, .parquet, .png, .svg, .html or .md (its card)",
    ),
    ("\\help", "this list"),
    ("\\quit", "leave; so does Ctrl-D. Ctrl-C drops the line"),
)
PICTURES: Final = (".png", ".svg", ".html")
ENDINGS: Final = (".csv", ".json", ".parquet", *PICTURES, ".md")
_HISTORY_MAX: Final = 2_000
_WIDE: Final = 10_000  # letters of a line in a file: whoever reads it cuts it, not we


def run(
    gate: "Gate",
    *,
    read: Callable[[str], str] = input,
    write: Callable[[str], None] = print,
    epsilon: str | None = None,
    rows: int | None = None,
    confidence: str = "0.95",
) -> None:
    """Read, ask, show, until the end of the input. A refusal is shown and ends nothing."""
    session = _Session(gate, write, epsilon, confidence, rows)
    typed: list[str] = []
    if read is input and sys.stdin.isatty():
        write(banner(gate))
    with _line_editing(gate) if read is input else nullcontext():
        while not session.ended:
            try:
                typed.append(read("       -> " if typed else "noisegate> "))
                text = "\n".join(typed).strip()
                if text.startswith("\\") or _is_whole(text):
                    typed = []
                    if read is input and (readline := _readline()) is not None:
                        readline.add_history(" ".join(text.split("\n")))  # one line of the history
                    session.obey(text)
                elif not text:
                    typed = []
            except KeyboardInterrupt:
                typed = []
                write("")
            except EOFError:
                write("")
                return


def banner(gate: "Gate") -> str:
    """What stands above the first prompt: what can be asked of, what is left, how to get help."""
    from importlib.metadata import version  # noqa: PLC0415 - only here

    return lines(
        f"noisegate {version('noisegate-dp')} · tables: {', '.join(gate.tables)} · left "
        f"{gate.remaining:left}\nSQL ends with a semicolon; \\help lists commands, \\quit leaves."
    )


def _is_whole(text: str) -> bool:
    """Whether the statement has come to its semicolon, outside of strings and comments."""
    from sqlglot import TokenType, tokenize  # noqa: PLC0415 - slow to load
    from sqlglot.errors import SqlglotError  # noqa: PLC0415

    try:
        tokens = tokenize(text, dialect="duckdb") if text.endswith(";") else []
    except SqlglotError:
        return False
    return bool(tokens) and tokens[-1].token_type is TokenType.SEMICOLON


@final
class _Session:
    """What the prompt knows between two lines: the price, and the last answer."""

    def __init__(
        self,
        gate: "Gate",
        write: Callable[[str], None],
        epsilon: str | None,
        confidence: str,
        rows: int | None,
    ) -> None:
        self._gate, self._show, self._confidence = gate, write, confidence
        self._epsilon, self._rows = epsilon, rows
        self._answer: Answer | None = None
        self.ended = False
        self._commands: Mapping[str, Callable[[str], None]] = {
            "plan": self._plan,
            "epsilon": self._set_epsilon,
            "rows": self._set_rows,
            "budget": lambda _: self._write(f"spent {gate.spent} · left {gate.remaining:left}"),
            "tables": self._tables,
            "d": self._describe,
            "history": self._history,
            "save": self._save,
            "help": lambda _: self._table(("", ""), HELP),
            **dict.fromkeys(("quit", "q"), lambda _: setattr(self, "ended", True)),
        }

    def obey(self, text: str) -> None:
        """Ask, or run a command; whatever happens is shown and ends nothing."""
        before = self._gate.spent
        try:
            if not text.startswith("\\"):
                self._ask(text.rstrip(";"))
                return
            name, _, rest = text[1:].partition(" ")
            if name not in self._commands:
                raise SpecError(f"There is no command \\{name}.", fix="Type \\help.")  # noqa: TRY301
            self._commands[name](rest.strip().rstrip(";"))
        except KeyboardInterrupt:
            self._write(f"\ninterrupted: {charged(before, self._gate.spent)}")
        except Exception as wrong:  # noqa: BLE001 - none ends the session
            refusal = stumbled(wrong)
            self._write(f"{type(refusal).code}: {refusal.problem}\n  {refusal.fix}")
            if refusal is not wrong:
                self._write(f"  {charged(before, self._gate.spent)}")

    def _write(self, text: str) -> None:
        self._show(lines(text))

    def _ask(self, sql: str) -> None:
        self._answer = answer = self._gate.sql(sql, epsilon=self._epsilon, rows=self._rows)
        self._table(answer.columns, answer.cells(self._confidence))
        self._write(f"{answer.footer(self._confidence)}\n{answer.guarantee}")

    def _plan(self, sql: str) -> None:
        if not sql:
            raise SpecError("The command has no question.", fix="Use \\plan SELECT ….")
        plan = self._gate.plan(sql, epsilon=self._epsilon, rows=self._rows)
        self._table(("", ""), plan.facts(self._confidence))

    def _set_epsilon(self, text: str) -> None:
        if text:
            if rest_of(text) is None:
                positive(text, name="epsilon")
            self._epsilon = text
        self._write(f"ε = {self._epsilon}" if self._epsilon else "ε is now the policy's default.")

    def _set_rows(self, text: str) -> None:
        if text and not (text.isdecimal() and int(text)):
            raise SpecError("rows is not a number.", fix="Use \\rows 10000.")
        self._rows = int(text) if text else None
        self._write(f"about {self._rows:,} rows" if self._rows else "No number of rows is set.")

    def _tables(self, _: str) -> None:
        rows = [
            (name, "public" if table.unit is None else f"protects {table.unit}")
            for name, table in self._gate.tables.items()
        ]
        self._table(("table", "rows"), rows)

    def _describe(self, name: str) -> None:
        tables = {each.lower(): table for each, table in self._gate.tables.items()}
        if (table := tables.get(name.lower())) is None:
            raise SpecError(f"There is no table {name!r}.", fix="Type \\tables.")
        shown = (column for column in table.columns.values() if not column.hidden)
        rows = [
            (
                column.name,
                column.kind.value,
                ""
                if column.between is None
                else " to ".join(_bound(bound, column.kind) for bound in column.between),
                "" if column.keys is None else ", ".join(map(str, column.keys)),
            )
            for column in shown
        ]
        self._table(("column", "type", "between", "in"), rows)

    def _history(self, _: str) -> None:
        rows = [
            (str(entry.seq), entry.at[:19], entry.kind, str(entry.body.get("request", "")))
            for entry in self._gate.history()
        ]
        self._table(("no.", "at (UTC)", "kind", "request"), rows)

    def _save(self, name: str) -> None:
        if self._answer is None:
            raise SpecError("There is no answer yet.", fix="Ask first.")
        if not name:
            raise SpecError("There is no file name.", fix="Use \\save answer.csv.")
        save(self._answer, Path(name).expanduser(), self._confidence)
        self._write(f"saved {name}")

    def _table(self, names: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
        self._write(_drawn(names, rows))


def charged(before: "ApproxDP", now: "ApproxDP") -> str:
    """What happened to the account meanwhile."""
    if now == before:
        return "Nothing was charged."
    return f"Charged: the account has spent {now}, and {before} before."


def save(answer: "Answer", file: Path, confidence: str, *, sign: "Signer | None" = None) -> None:
    """Write an answer in the form that the file's ending names, signed where a key is given."""
    from noisegate.desk.display.plot import write  # noqa: PLC0415 - only when asked for

    writers: dict[str, Callable[[], Any]] = {
        ".csv": lambda: answer.to_csv(file, confidence),
        ".json": lambda: answer.to_json(file, confidence, sign=sign),
        ".parquet": lambda: answer.to_parquet(file, confidence),
        ".md": lambda: write_file(file, answer.card(confidence).to_markdown()),
        **dict.fromkeys(PICTURES, lambda: write(answer.plot(confidence), file)),
    }
    require_writable(file)
    if file.name.lower().endswith(".card.json"):
        card = answer.card(confidence)
        write_file(file, (card if sign is None else card.signed(sign)).to_json())
    else:
        writers[file.suffix.lower()]()


def require_writable(file: Path, endings: Sequence[str] = ENDINGS) -> None:
    """Refuse a file that an answer cannot be written to, before it is paid for."""
    require_output(file, endings)
    if file.suffix.lower() in PICTURES:
        from noisegate.desk.display.drawing import require_drawing  # noqa: PLC0415 - only when asked for

        require_drawing()


def _bound(bound: "Fraction", kind: "Kind") -> str:
    """A bound as people write it."""
    if kind is Kind.DATE:
        return (EPOCH.date() + timedelta(days=int(bound))).isoformat()
    if kind is Kind.TIMESTAMP:
        return (EPOCH + timedelta(microseconds=int(bound))).isoformat(" ")
    return f"{float(bound):g}"


def _drawn(names: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    from rich.console import Console  # noqa: PLC0415 - slow to load

    from noisegate.desk.display.numbers import rich_table  # noqa: PLC0415

    page = StringIO()
    console = Console(file=page, width=shutil.get_terminal_size().columns)
    console.print(rich_table(names, rows))
    return page.getvalue().rstrip("\n")


def show(table: Any) -> None:  # noqa: ANN401 - rich's
    """Print a table: page by page where it is longer than the terminal, else as wide as it is."""
    from rich.console import Console  # noqa: PLC0415 - slow to load

    console = Console()
    if not console.is_terminal:
        console = Console(width=None if os.environ.get("COLUMNS") else _WIDE)
    long = console.is_terminal and sys.stdin.isatty() and table.row_count > console.height
    with console.pager() if long else nullcontext():
        console.print(table)


# what the terminal remembers


def history_file() -> Path:
    """Where typed lines are kept: in the user's state folder."""
    state = os.environ.get("XDG_STATE_HOME")
    return (Path(state) if state else Path.home() / ".local" / "state") / "noisegate" / "history"


def _readline() -> ModuleType | None:
    try:
        import readline  # noqa: PLC0415 - not on every system
    except ImportError:
        return None
    return readline


@contextmanager
def _line_editing(gate: "Gate") -> Iterator[None]:
    """Arrow keys, completion of names, and a history that outlives the session."""
    if (readline := _readline()) is None:
        yield
        return
    columns = (name for table in gate.tables.values() for name in table.columns)
    commands = (f"\\{words.split(' ')[0][1:]}" for words, _ in HELP[1:])
    known, file = sorted({*gate.tables, *columns, *commands}), history_file()

    def complete(start: str, number: int) -> str | None:
        found = [word for word in known if word.lower().startswith(start.lower())]
        return found[number] if number < len(found) else None

    readline.set_auto_history(False)
    readline.set_completer_delims(" \t\n,()=<>'\"")
    readline.set_completer(complete)
    readline.parse_and_bind("tab: complete")
    with suppress(OSError):
        readline.read_history_file(file)
    try:
        yield
    finally:
        readline.set_history_length(_HISTORY_MAX)
        with suppress(OSError):
            file.parent.mkdir(parents=True, exist_ok=True)
            file.touch(mode=0o600)
            readline.write_history_file(file)
