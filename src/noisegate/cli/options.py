"""The command line itself, the options that commands share, and how a refusal ends one."""

import gc
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from noisegate.cli.ending import ended, leave
from noisegate.cli.help import EXIT_CODES, App, Groups, named_in
from noisegate.cli.printing import say
from noisegate.errors import DEBUG, SpecError

app = App(
    name="noisegate",
    cls=Groups,
    help="A privacy gate in front of sensitive tables: rows go in, only noisy answers come out.",
    epilog=EXIT_CODES,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # loading rich takes half of the time that help takes
    context_settings={"max_content_width": 120, "help_option_names": ["-h", "--help"]},
)


def _below(name: str, words: str) -> App:
    """A list of commands under one name."""
    made = App(help=words)
    app.add_typer(made, name=name)
    return made


account_app = _below("account", "People of a service.")
key_app = _below("key", "Keys that sign what is released.")
owner_app = _below("owner", "Sums of several owners, over a network.")
lab_app = _below("lab", "Experiments on made-up rows.")
ledger_app = _below("ledger", "Inspect, verify and copy a ledger.")
policy_app = _below("policy", "Inspect a policy, or see how one is written.")
token_app = _below("token", "Tokens that open a service.")


def _confidence(said: str) -> str:
    """Refuse what is not a confidence before anything is paid for."""
    from noisegate.mechanisms.base import failure_of  # noqa: PLC0415 - quick help

    failure_of(said)
    return said


def sql_in(said: str | None) -> str | None:
    """What is written in a file, or comes from another program, instead of an argument."""
    if said == "-":
        return sys.stdin.read()
    if said is None or not said.startswith("@"):
        return said
    try:
        return Path(said[1:]).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        raise SpecError(
            f"There is no text file {Path(said[1:]).name!r}.",
            fix="Write @FILE for a file with SQL, - for the standard input, or the SQL itself.",
            about="file",
        ) from None


def sql_like(example: str) -> Any:  # noqa: ANN401 - an argument of typer's
    """The argument for SQL: said, in a file, or from another program."""
    return typer.Argument(help=f"{example}; @FILE with SQL, or - for the standard input.",
                          callback=sql_in)  # fmt: skip


def writes(forms: str) -> Any:  # noqa: ANN401 - an option of typer's
    """The option --save: what is written, by the ending of the file."""
    return typer.Option("--save", help=f"Write it: {forms}.")


Sql = Annotated[str, sql_like("'SELECT COUNT(*) AS n FROM people'")]
Table = Annotated[str | None, typer.Option(help="The table, if there are several.")]
RowsWhere = Annotated[str | None, typer.Option("--where", help="Which rows: age > 30.")]
Epsilon = Annotated[
    str | None, typer.Option(help="The ε to pay: 0.1, or a part of what is left: 1/10 of rest.")
]
Within = Annotated[str | None, typer.Option(help="The largest error: of each number.")]
Confidence = Annotated[
    str, typer.Option(help="The confidence level of the ±.", callback=_confidence)
]
Rows = Annotated[
    int | None, typer.Option(help="A public number of rows: about how many, for averages.")
]
KeysDelta = Annotated[
    str | None, typer.Option(help="δ for partition selection, where groups are not declared.")
]
Delta = Annotated[str, typer.Option(help="δ of the budget.")]
AtDelta = Annotated[str, typer.Option("--at-delta", "--delta", help="State every ε at this δ.")]
Accountant = Annotated[str | None, typer.Option(help="pure, zcdp or renyi-<order>.")]
Unit = Annotated[str | None, typer.Option(help="The column that names the person behind a row.")]
Sample = Annotated[
    str | None,
    typer.Option(
        help="Ask about a secret sample: the probability of each person to be in it, such as 1/10."
    ),
]
RowsPerUnit = Annotated[
    int | None,
    typer.Option(help="With --unit: contribution bound, the rows that count per person."),
]
GroupsPerUnit = Annotated[
    int | None,
    typer.Option(help="With --unit: contribution bound, the groups in which a person counts."),
]
Choose = Annotated[
    list[str] | None,
    typer.Option(
        help="Estimate privately what is not declared: bounds, caps; for a part of ε. Repeatable."
    ),
]
Keys = Annotated[
    list[str] | None, typer.Option(help="Public keys of a column: ward=north,south. Repeatable.")
]
Between = Annotated[
    list[str] | None, typer.Option(help="Public bounds of a column: age=0,120. Repeatable.")
]
Types = Annotated[
    list[str] | None,
    typer.Option("--type", help="Type of a text column: age=integer, day=date. Repeatable."),
]
Sign = Annotated[
    Path | None,
    typer.Option(help="Sign with this private key: what is saved, or printed as JSON."),
]
Fresh = Annotated[bool, typer.Option("--fresh", help="Pay for a new draw.")]
Planned = Annotated[bool, typer.Option("--plan", help="Show price and error without paying.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Csv = Annotated[bool, typer.Option("--csv", help="Print comma-separated rows.")]
Where = Annotated[str, typer.Argument(help="A ledger, or the data file or policy next to it.")]
PolicyFile = Annotated[Path, typer.Argument(help="A policy, a TOML file.")]

_RARELY = 400_000


def main() -> None:
    """Run a command. Whatever happens becomes one clear message and an exit code of its own."""
    gc.set_threshold(_RARELY)  # what a command imports stays: to search it for garbage is in vain
    completes = any(name.endswith("_COMPLETE") for name in os.environ)  # a shell asks for options
    sys.exit(ended(app if completes else named_in(app, sys.argv[1:])))


def run() -> None:
    """`main` for a process of its own, which ends with it."""
    try:
        main()
    except SystemExit as end:
        leave(end.code if isinstance(end.code, int) else 1)
        raise


def _version(wanted: bool) -> None:  # noqa: FBT001 - of an option
    if wanted:
        from importlib.metadata import version  # noqa: PLC0415 - quick help

        say(f"noisegate {version('noisegate-dp')}")
        raise typer.Exit


@app.callback()
def gate(
    *,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_version, is_eager=True)
    ] = False,
    no_color: Annotated[
        bool, typer.Option("--no-color", help="No colours, as with NO_COLOR in the environment.")
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show full error messages; they may quote rows.")
    ] = False,
) -> None:
    """A privacy gate in front of sensitive tables: rows go in, only noisy answers come out."""
    del version  # printed already
    if no_color:
        os.environ["NO_COLOR"] = "1"
    if debug:
        os.environ[DEBUG] = "1"
