"""The list of commands, by what people want: below each heading the usual one comes first."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import typer.core

if TYPE_CHECKING:
    from typer._click.core import Context
    from typer._click.formatting import HelpFormatter

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
