"""How help is written: commands by what people want, options under headings, and an example.

All commands are made by `App`, so that none of them can forget it. `examples.py` has the examples.
"""

from collections.abc import Callable, Collection, Mapping
from copy import copy
from typing import TYPE_CHECKING, Any, Final

import typer
import typer.core
from typer.main import get_command_name

from noisegate.cli.examples import EXAMPLES

if TYPE_CHECKING:
    from typer._click.core import Context, Parameter
    from typer._click.formatting import HelpFormatter
    from typer.models import CommandInfo

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
