"""How help is written: commands by what people want, options under headings, and an example.

All commands are made by `App`, so that none of them can forget it.
"""

from collections.abc import Callable, Collection, Mapping
from copy import copy
from typing import TYPE_CHECKING, Any, Final

import typer
import typer.core
from typer.main import get_command_name

if TYPE_CHECKING:
    from typer._click.core import Context, Parameter
    from typer._click.formatting import HelpFormatter
    from typer.models import CommandInfo

EXAMPLES: Final[Mapping[str, str]] = {
    # begin
    "demo": "noisegate demo",
    "explain-epsilon": "noisegate explain-epsilon 0.5 --prior 0.1",
    "what-if": "noisegate what-if --budget 2 --within 20\n"
    "noisegate what-if --queries 10 --bound 100 --tolerance 1 --epsilon 1",
    # ask
    "ask": 'noisegate ask clinic.toml "SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward" '
    "--epsilon 0.1\n"
    "noisegate ask people.csv @question.sql --budget 2 --within 20 --json",
    "plan": 'noisegate plan clinic.toml "SELECT AVG(age) FROM patients" --epsilon 0.1 --rows 5000',
    "shell": "noisegate shell clinic.toml --analyst ana --epsilon 0.1",
    "describe": "noisegate describe clinic.toml --table patients --epsilon 0.5 --plan",
    "choose": 'noisegate choose clinic.toml "SELECT ward, COUNT(*) FROM visits GROUP BY ward" '
    "--epsilon 0.1 --gap",
    "auction": "noisegate auction bids.csv bid --prices 5:100:5 --between bid=0,100 --budget 2 "
    "--epsilon 0.5",
    "many": "noisegate many clinic.toml --questions questions.sql --within 50 --epsilon 1",
    "thresholds": "noisegate thresholds clinic.toml --questions questions.sql --threshold 100 "
    "--count 3 --epsilon 1",
    "smooth": 'noisegate smooth clinic.toml "SELECT MEDIAN(cost) FROM visits" --epsilon 1',
    "distance": "noisegate distance points.csv --columns x,y --radius 2 --clusters 3 --epsilon 1 "
    "--budget 2",
    "graph": "noisegate graph calls.csv triangles --source caller --target called --nodes 0:99 "
    "--epsilon 1 --budget 2",
    "statistic": "noisegate statistic clinic.toml 'age >= 65' 'cost / 800' --epsilon 0.5",
    "apply": "noisegate apply clinic.toml program.py:mean 'SELECT age FROM patients' --range 0,120 "
    "--blocks 100 --epsilon 1",
    "bounds": "noisegate bounds clinic.toml visits cost --epsilon 0.1",
    "caps": "noisegate caps clinic.toml visits --epsilon 0.1 --plan",
    "order": "noisegate order clinic.toml order.json --plan --json",
    # release and learn
    "release": 'noisegate release histogram clinic.toml "SELECT COUNT(*) FROM patients GROUP BY '
    'BIN(age, 5)" --epsilon 0.5 --save ages.parquet\n'
    "noisegate release synthetic people.csv --budget 2 --epsilon 1 --rows 1000 --save made.csv",
    "learn": "noisegate learn clinic.toml KMeans --columns age,cost --set n_clusters=3 --epsilon 1 "
    "--save model.joblib",
    "hypothesis": "noisegate hypothesis people.csv 'age >= t' --label \"sick = 'yes'\" "
    "--candidates t=20,40,60 --epsilon 1 --budget 2",
    # steward
    "init": "noisegate init customers.csv orders.csv --unit customer_id --type total=number --to "
    "shop.toml",
    "check": "noisegate check clinic.toml --json",
    "policy show": "noisegate policy show clinic.toml",
    "policy schema": "noisegate policy schema > policy.schema.json",
    "ledger show": "noisegate ledger show clinic.toml --entries",
    "ledger verify": "noisegate ledger verify clinic.toml --head heads.jsonl",
    "ledger head": "noisegate ledger head clinic.toml --sign steward.key >> heads.jsonl",
    "ledger key": "noisegate ledger key steward.key",
    "ledger export": "noisegate ledger export clinic.toml > clinic.jsonl",
    "ledger restore": "noisegate ledger restore clinic.jsonl clinic.toml.ledger",
    "ledger report": "noisegate ledger report clinic.toml --at-delta 1e-6",
    "ledger budget": "noisegate ledger budget clinic.toml clinic 5 --reason 'second year'\n"
    "noisegate ledger budget clinic.toml ana 1.5 --reason 'a longer study'",
    # serve
    "serve": "noisegate serve clinic.toml --port 8080 --pg-port 5433",
    "mcp": "noisegate mcp clinic.toml --analyst bot",
    "account add": "noisegate account add ana --role analyst --state clinic.toml",
    "account list": "noisegate account list --state clinic.toml",
    "account password": "noisegate account password ana --state clinic.toml --password-stdin",
    "account disable": "noisegate account disable ana --state clinic.toml",
    "token new": "noisegate token new ana --state clinic.toml --expires 30d --epsilon-hour 0.5",
    "token list": "noisegate token list ana --state clinic.toml",
    "token revoke": "noisegate token revoke 7f3a --state clinic.toml",
    "audit-log": "noisegate audit-log --state clinic.toml --since 7d --person ana",
    "owner add": "noisegate owner add flu.json north KEY --session flu --epsilon 1 --cells 52",
    "owner serve": "noisegate owner serve flu.json --port 7000 --save flu.csv",
    "owner join": "noisegate owner join flu.json north --numbers weeks.txt --to 127.0.0.1:7000 "
    "--key north.key --ledger north.ledger --budget 3",
    # verify
    "verify": "noisegate verify ages.parquet --key-file steward.pub --ledger clinic.toml",
    "key new": "noisegate key new steward.key > steward.pub",
    "key show": "noisegate key show steward.key",
    "audit": 'noisegate audit clinic.toml "SELECT COUNT(*) AS n FROM visits" --epsilon 1 '
    "--trials 20000\n"
    "noisegate audit --mechanism geometric",
    "lab owners": "noisegate lab owners --owners 6 --drop-outs 1 --colluding 2",
    "lab crowd": "noisegate lab crowd --probability 1/10 --crowd 36",
    "lab linkage": "noisegate lab linkage --people 1000 --k 5",
    "lab attacks": "noisegate lab attacks differencing reconstruction --save attacks.html",
    "lab ratio": "noisegate lab ratio --mechanism gaussian --epsilon 1 --save ratio.svg",
    "lab bounds": "noisegate lab bounds --epsilon 0.5",
    "lab report": "noisegate lab report --save lab.html --times 50",
    "lab map": "noisegate lab map --epsilon 1 --epsilon 0.1 --save map.svg",
}


EXIT_CODES: Final = (
    "Exit codes: 0 done, 1 nobody reads the output, 2 the question or command is refused, 3 over "
    "budget, 4 policy, source or system, 5 ledger, or does not verify, 6 an audit measured a "
    "violation, 70 a bug, 130 interrupted."
)
_GROUPS: Final[Mapping[str, tuple[str, ...]]] = {
    "Begin": ("demo", "explain-epsilon", "what-if"),
    "Ask": ("ask", "plan", "shell", "describe", "choose", "auction", "many", "thresholds", "smooth",
            "distance", "graph", "statistic", "apply", "bounds", "caps", "order"),
    "Release and learn": ("release", "learn", "hypothesis"),
    "Steward": ("init", "check", "policy", "ledger"),
    "Serve": ("serve", "mcp", "account", "token", "audit-log", "owner"),
    "Verify": ("verify", "key", "audit", "lab"),
}  # fmt: skip
GROUPED: Final = frozenset(name for names in _GROUPS.values() for name in names)
_OWN: Final = "Options"
_HEADINGS: Final[Mapping[str, str]] = {
    "Price and error": "epsilon within relative tolerance confidence keys-delta answer-delta "
    "rows choose noise top fresh plan",
    "Output": "json csv save report sign print-order help",
    "Table, unit and budget": "unit rows-per-unit groups-per-unit keys between type budget delta "
    "accountant analyst purpose share ledger practice sample partition part several",
}
_HEADING: Final = {f"--{n}": head for head, names in _HEADINGS.items() for n in names.split()}


class Command(typer.core.TyperCommand):
    """Options under headings, its own first, and an example at the end."""

    def format_options(self, ctx: "Context", formatter: "HelpFormatter") -> None:
        """Write them."""
        found: dict[str, list[tuple[str, str]]] = {"Arguments": [], _OWN: []}
        found |= {heading: [] for heading in _HEADINGS}
        for each in self.get_params(ctx):
            if (record := each.get_help_record(ctx)) is not None:
                found[heading_of(each)].append(record)
        if not any(found[heading] for heading in _HEADINGS if heading != "Output"):
            found[_OWN] += found.pop("Output")  # a few options need no headings
        for heading, rows in found.items():
            if rows:
                with formatter.section(heading):
                    formatter.write_dl(rows)

    def format_epilog(self, ctx: "Context", formatter: "HelpFormatter") -> None:
        """Write the example as it is typed."""
        if example := EXAMPLES.get(" ".join(_path(ctx))):
            with formatter.section("Example"):
                for line in example.splitlines():
                    formatter.write(f"{'':{formatter.current_indent}}{line}\n")


class Groups(typer.core.TyperGroup):
    """Commands under headings. One that is under none is listed last."""

    def format_commands(self, ctx: "Context", formatter: "HelpFormatter") -> None:
        """Write them."""
        others = tuple(name for name in self.list_commands(ctx) if name not in GROUPED)
        width = max(map(len, self.commands)) + 2
        for heading, names in {**_GROUPS, "Others": others}.items():
            found = [(name, self.commands[name]) for name in names if name in self.commands]
            room = formatter.width - width - 6
            rows = [(n.ljust(width), each.get_short_help_str(room)) for n, each in found
                    if not each.hidden]  # fmt: skip
            if rows:
                with formatter.section(heading):
                    formatter.write_dl(rows)


class App(typer.Typer):
    """A list of commands, each of them a `Command`."""

    def __init__(self, **terms: Any) -> None:  # noqa: ANN401 - as typer has them
        super().__init__(no_args_is_help=True, **terms)

    def command(self, name: str | None = None, **terms: Any) -> Callable[..., Any]:  # noqa: ANN401 - as typer has them
        """Register a command."""
        return super().command(name, cls=Command, **terms)


def named_in(app: App, words: Collection[str]) -> App:
    """All commands of the app by name and help; with options those alone that are among the words.

    To make an option of each parameter of each command takes longer than to print the help.
    """
    made = copy(app)
    made.registered_commands = [
        each if _name(each) in words else _unread(each) for each in app.registered_commands
    ]
    made.registered_groups = [copy(each) for each in app.registered_groups]
    for each in made.registered_groups:
        if each.name not in words and each.typer_instance is not None:
            each.typer_instance = copy(each.typer_instance)
            each.typer_instance.registered_commands = []
    return made


def _name(command: "CommandInfo") -> str:
    return command.name or get_command_name(_made_by(command).__name__)


def _made_by(command: "CommandInfo") -> Callable[..., Any]:
    assert command.callback is not None  # noqa: S101 - typer's decorator has set it
    return command.callback


def _unread(command: "CommandInfo") -> "CommandInfo":
    def listed() -> None:
        """Not to be run."""

    found, by = copy(command), _made_by(command)
    listed.__name__, listed.__doc__ = by.__name__, by.__doc__
    found.callback = listed
    return found


def _path(ctx: "Context") -> list[str]:
    """The names of a command, without that of the program, which may be several words."""
    return [] if ctx.parent is None else [*_path(ctx.parent), ctx.info_name or ""]


def heading_of(parameter: "Parameter") -> str:
    """Where a parameter stands in the help of its command."""
    if parameter.param_type_name == "argument":
        return "Arguments"
    return next((_HEADING[name] for name in parameter.opts if name in _HEADING), _OWN)
