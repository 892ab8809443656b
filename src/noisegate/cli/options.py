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


def option(words: str, *names: str, **more: Any) -> Any:  # noqa: ANN401 - an option of typer's
    """An option: its help, and its names where the parameter does not say them."""
    return typer.Option(*names, help=words, **more)


def argument(words: str, **more: Any) -> Any:  # noqa: ANN401 - an argument of typer's
    """An argument, with its help."""
    return typer.Argument(help=words, **more)


def sql_like(example: str) -> Any:  # noqa: ANN401 - an argument of typer's
    """The argument for SQL: said, in a file, or from another program."""
    words = f"{example}; @FILE with SQL, or - for the standard input."
    return argument(words, callback=sql_in)


def writes(forms: str) -> Any:  # noqa: ANN401 - an option of typer's
    """The option --save: what is written, by the ending of the file."""
    return option(f"Write it: {forms}.", "--save")


Sql = Annotated[str, sql_like("'SELECT COUNT(*) AS n FROM people'")]
Table = Annotated[str | None, option("The table, if there are several.")]
RowsWhere = Annotated[str | None, option("Which rows: age > 30.", "--where")]
Epsilon = Annotated[
    str | None, option("The ε to pay: 0.1, or a part of what is left: 1/10 of rest.")
]
Within = Annotated[str | None, option("The largest error: of each number.")]
Confidence = Annotated[str, option("The confidence level of the ±.", callback=_confidence)]
Rows = Annotated[int | None, option("A public number of rows: about how many, for averages.")]
KeysDelta = Annotated[
    str | None, option("δ for partition selection, where groups are not declared.")
]
Delta = Annotated[str, option("δ of the budget.")]
AtDelta = Annotated[str, option("State every ε at this δ.", "--at-delta", "--delta")]
Accountant = Annotated[str | None, option("pure, zcdp or renyi-<order>.")]
Unit = Annotated[str | None, option("The column that names the person behind a row.")]
Sample = Annotated[
    str | None,
    option("Ask about a secret sample: the probability of each person to be in it, such as 1/10."),
]
RowsPerUnit = Annotated[
    int | None, option("With --unit: contribution bound, the rows that count per person.")
]
GroupsPerUnit = Annotated[
    int | None, option("With --unit: contribution bound, the groups in which a person counts.")
]
Choose = Annotated[
    list[str] | None,
    option("Estimate privately what is not declared: bounds, caps; for a part of ε. Repeatable."),
]
Keys = Annotated[list[str] | None, option("Public keys of a column: ward=north,south. Repeatable.")]
Between = Annotated[list[str] | None, option("Public bounds of a column: age=0,120. Repeatable.")]
Types = Annotated[
    list[str] | None, option("Type of a text column: age=integer, day=date. Repeatable.", "--type")
]
Sign = Annotated[
    Path | None, option("Sign with this private key: what is saved, or printed as JSON.")
]
Fresh = Annotated[bool, option("Pay for a new draw.", "--fresh")]
Planned = Annotated[bool, option("Show price and error without paying.", "--plan")]
Json = Annotated[bool, option("Print one JSON object.", "--json")]
Csv = Annotated[bool, option("Print comma-separated rows.", "--csv")]
Where = Annotated[str, argument("A ledger, or the data file or policy next to it.")]
PolicyFile = Annotated[Path, argument("A policy, a TOML file.")]

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
        bool, option("Print the version.", "--version", callback=_version, is_eager=True)
    ] = False,
    no_color: Annotated[
        bool, option("No colours, as with NO_COLOR in the environment.", "--no-color")
    ] = False,
    debug: Annotated[
        bool, option("Show full error messages; they may quote rows.", "--debug")
    ] = False,
) -> None:
    """A privacy gate in front of sensitive tables: rows go in, only noisy answers come out."""
    del version  # printed already
    if no_color:
        os.environ["NO_COLOR"] = "1"
    if debug:
        os.environ[DEBUG] = "1"
