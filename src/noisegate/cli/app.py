"""The command line itself, the options that commands share, and how a refusal ends one."""

import gc
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from noisegate.cli.ending import ended
from noisegate.cli.help import Groups
from noisegate.cli.printing import say
from noisegate.errors import DEBUG, SpecError

app = typer.Typer(
    name="noisegate",
    cls=Groups,
    help="A privacy gate in front of sensitive tables: rows go in, only noisy answers come out.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # loading rich takes half of the time that help takes
    context_settings={"max_content_width": 120, "help_option_names": ["-h", "--help"]},
)
ledger_app = typer.Typer(help="Inspect, verify and copy a ledger.", no_args_is_help=True)
account_app = typer.Typer(help="People of a service.", no_args_is_help=True)
token_app = typer.Typer(help="Tokens that open a service.", no_args_is_help=True)
key_app = typer.Typer(help="Keys that sign what is released.", no_args_is_help=True)
policy_app = typer.Typer(help="Inspect a policy, or see how one is written.", no_args_is_help=True)
lab_app = typer.Typer(help="Experiments on made-up rows.", no_args_is_help=True)
app.add_typer(account_app, name="account")
owner_app = typer.Typer(help="Sums of several owners, over a network.", no_args_is_help=True)
app.add_typer(key_app, name="key")
app.add_typer(owner_app, name="owner")
app.add_typer(lab_app, name="lab")
app.add_typer(ledger_app, name="ledger")
app.add_typer(policy_app, name="policy")
app.add_typer(token_app, name="token")


def _confidence(said: str) -> str:
    """Refuse what is not a confidence before anything is paid for."""
    from noisegate.mechanisms.base import failure_of  # noqa: PLC0415 - quick help

    failure_of(said)
    return said


def _sql(said: str) -> str:
    """What is written in a file, or comes from another program, instead of an argument."""
    if said == "-":
        return sys.stdin.read()
    if not said.startswith("@"):
        return said
    try:
        return Path(said[1:]).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        raise SpecError(
            f"There is no text file {Path(said[1:]).name!r}.",
            fix="Write @FILE for a file with SQL, - for the standard input, or the SQL itself.",
            about="file",
        ) from None


DataFile = Annotated[
    Path, typer.Argument(help="A policy (.toml), or a CSV, Parquet or DuckDB file.")
]
Sql = Annotated[
    str,
    typer.Argument(
        help="'SELECT COUNT(*) AS n FROM people', @FILE with SQL, or - for the standard input.",
        callback=_sql,
    ),
]
Epsilon = Annotated[str | None, typer.Option(help="The ε to pay for this question.")]
Within = Annotated[str | None, typer.Option(help="Or: the largest error of each number.")]
Relative = Annotated[str | None, typer.Option(help="Or: the largest relative error, such as 0.01.")]
Confidence = Annotated[
    str, typer.Option(help="The confidence level of the ±.", callback=_confidence)
]
Rows = Annotated[
    int | None, typer.Option(help="Approximate number of rows, for the error of averages.")
]
Noise = Annotated[str | None, typer.Option(help="truncated: counts stay between 0 and --top.")]
Top = Annotated[int | None, typer.Option(help="With --noise truncated: the largest count.")]
KeysDelta = Annotated[
    str | None, typer.Option(help="δ for partition selection, where groups are not declared.")
]
Budget = Annotated[
    str | None, typer.Option(help="ε of the whole data set, given with the first question.")
]
Delta = Annotated[str, typer.Option(help="δ of the whole data set.")]
Accountant = Annotated[str | None, typer.Option(help="pure, zcdp or renyi-<order>.")]
Analyst = Annotated[
    str | None, typer.Option(help="Who is asking: an account below the data set's.")
]
Purpose = Annotated[
    str | None, typer.Option(help="What is asked for, where the policy has purposes.")
]
Share = Annotated[
    str | None, typer.Option(help="With --analyst: the ε that this analyst may spend.")
]
Unit = Annotated[str | None, typer.Option(help="The column that names the person behind a row.")]
Sample = Annotated[
    str | None,
    typer.Option(
        help="Ask about a secret sample: the probability of each person to be in it, such as 1/10."
    ),
]
Partition = Annotated[
    list[str] | None,
    typer.Option(
        help="Split the table: a column with declared keys, or conditions (repeatable). Questions "
        "about different parts cost together what the dearest part does."
    ),
]
PartOf = Annotated[
    str | None, typer.Option("--part", help="With --partition: the key or condition to ask about.")
]
Several = Annotated[
    str | None,
    typer.Option(help="With --partition and units: first, the part in which a person counts."),
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
        help="Estimate privately what is not declared, for a fifth of ε: bounds, caps. Repeatable."
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
Practice = Annotated[
    bool, typer.Option("--practice", help="Ask made-up rows, at no cost; no private row is read.")
]
LedgerPath = Annotated[str | None, typer.Option("--ledger", help="Where the budget is kept.")]
Sign = Annotated[
    Path | None,
    typer.Option(help="Sign what is saved or printed as JSON with this key (noisegate key new)."),
]
Fresh = Annotated[bool, typer.Option("--fresh", help="Pay for a new draw.")]
Planned = Annotated[bool, typer.Option("--plan", help="Show price and error without paying.")]
PrintOrder = Annotated[
    bool, typer.Option("--print-order", help="Print the order as JSON instead; nothing is asked.")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Where = Annotated[str, typer.Argument(help="A ledger, or the data file or policy next to it.")]
PolicyFile = Annotated[Path, typer.Argument(help="A policy, a TOML file.")]

_RARELY = 100_000


def main() -> None:
    """Run a command. Whatever happens becomes one clear message and an exit code of its own."""
    gc.set_threshold(_RARELY)  # what a command imports stays: to search it for garbage is in vain
    sys.exit(ended(app))


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
    debug: Annotated[
        bool, typer.Option("--debug", help="Show full error messages; they may quote rows.")
    ] = False,
) -> None:
    """A privacy gate in front of sensitive tables: rows go in, only noisy answers come out."""
    del version  # printed already
    if debug:
        os.environ[DEBUG] = "1"
