"""Commands for data stewards: draft, check and show a policy."""

from pathlib import Path
from typing import Annotated

import typer

from noisegate.cli.options import Json, PolicyFile, app, argument, option, policy_app
from noisegate.cli.printing import say, say_json, tell
from noisegate.errors import SpecError
from noisegate.files import write

_PRIVATE = (
    "PRIVATE: the row counts below are exact. They are for the steward; show them to no analyst."
)


@app.command()
def init(
    files: Annotated[
        list[str],
        argument(
            "CSV or Parquet files, one for each table; a DuckDB file with all its tables, or "
            "DATABASE.duckdb#TABLE; or postgresql://USER@HOST/DATABASE."
        ),
    ],
    name: Annotated[str | None, option("The name of the data set.")] = None,
    unit: Annotated[
        str | None, option("The column that names the person behind a row: or TABLE.COLUMN.")
    ] = None,
    public: Annotated[
        list[str] | None,
        option("A table whose rows are nobody's; may be repeated.", metavar="TABLE"),
    ] = None,
    types: Annotated[
        list[str] | None,
        option("Type of a text column: total=number. Repeatable.", "--type", metavar="COLUMN=TYPE"),
    ] = None,
    read_types: Annotated[
        bool, option("Read the rows of text files to find their types.", "--read-types")
    ] = False,
    to: Annotated[Path | None, option("Where it goes: a file; else printed.")] = None,
    as_json: Json = False,
) -> None:
    """Draft a policy from names, types and declared keys; without --read-types no row is read.

    Foreign keys are those that a database declares; others are guessed from names (visit_id, or
    o_custkey for a table customer). All guesses are marked.
    """
    from noisegate.root import draft_policy  # noqa: PLC0415

    known = "" if "://" in files[0] else Path(files[0]).resolve().parent.name
    text = draft_policy(
        files, name=name or known or "dataset", unit=unit, public=public or (),
        types=dict(map(_typed, types or ())), read_types=read_types, folder=to and to.parent,
    )  # fmt: skip
    if to is None:
        tell({"policy": text}, text.removesuffix("\n"), as_json=as_json)
    elif to.exists():
        raise SpecError(f"{to.name!r} exists already.", fix="Remove it, or write to another file.")
    else:
        write(to, text)
        words = f"Wrote {to}. Fill it in, then run: noisegate check {to}"
        tell({"wrote": str(to)}, words, as_json=as_json)


def _typed(text: str) -> tuple[str, str]:
    column, mark, kind = text.rpartition("=")
    if not mark:
        raise SpecError(
            f"{text!r} does not say a type.", fix="Write --type COLUMN=integer.", about="type"
        )
    return column, kind


@app.command()
def check(
    file: PolicyFile,
    rows: Annotated[
        bool,
        option("Also read the rows: exact counts, for the steward only.", "--read-rows", "--rows"),
    ] = False,
    as_json: Json = False,
) -> None:
    """Check a policy: what is wrong, and what each choice costs in noise."""
    from noisegate.root import check_policy, check_rows  # noqa: PLC0415

    found = [*check_policy(file), *(check_rows(file) if rows else [])]
    if as_json:
        records = [
            {"severity": each.severity.value, "place": each.place, "problem": each.problem,
             "fix": each.fix}
            for each in found
        ]  # fmt: skip
        say_json({"private": _PRIVATE, "findings": records} if rows else {"findings": records})
    else:
        if rows:
            say(_PRIVATE)
        alike: dict[tuple[str, str, str], list[str]] = {}
        for each in found:  # the same of many columns is said once
            alike.setdefault((each.severity.value, each.problem, each.fix), []).append(each.place)
        for (severity, problem, fix), places in alike.items():
            say(f"{severity}: {', '.join(places)}: {problem} {fix}")
        say(f"{len(found)} finding{'' if len(found) == 1 else 's'}.")
    if any(each.severity.value == "error" for each in found):
        raise typer.Exit(4)


@policy_app.command("show")
def policy_show(file: PolicyFile, as_json: Json = False) -> None:
    """Show a policy as a page: whose rows, budget, columns and what can be asked of them."""
    from noisegate.root import policy_page  # noqa: PLC0415

    page = policy_page(file)
    tell({"page": page}, page, as_json=as_json)


@policy_app.command("schema")
def policy_schema(as_json: Json = False) -> None:
    """Print the JSON Schema of policies, so that an editor can complete them."""
    from noisegate.root import policy_schema as schema  # noqa: PLC0415

    del as_json  # it is one already
    say_json(schema(), indent=2)
