"""What stewards do with a policy; the command line reaches the policy room through here."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from noisegate.errors import SpecError, Unsupported
from noisegate.root.hosting import tables_of
from noisegate.sources.duckdb.facts import stored_kinds
from noisegate.sources.engines import engine_of

if TYPE_CHECKING:
    from noisegate.sources.policy.finding import Finding
    from noisegate.sources.policy.policy import Policy


def draft_policy(files: Sequence[str | Path], *, name: str = "dataset") -> str:
    """A policy to be filled in, from the names and types of the columns alone; no row is read."""
    from noisegate.steward.draft import draft  # noqa: PLC0415 - stewards only

    if any("://" in str(file) for file in files):
        return _draft_of_server(files, name=name)
    paths = {Path(file).stem: Path(file) for file in files}
    if len(paths) < len(files):
        raise SpecError(
            "Two files have the same name.",
            fix="Rename one: a file's name becomes the name of its table.",
            about="name",
        )
    sources = {table: str(path) for table, path in paths.items()}
    return draft(stored_kinds(paths), sources=sources, name=name)


def _draft_of_server(files: Sequence[str | Path], *, name: str) -> str:
    """The same of all tables of a database: types, foreign keys and comments."""
    from noisegate.sources.postgres.facts import catalogue, origin_of  # noqa: PLC0415 - an extra
    from noisegate.sources.postgres.facts import stored_kinds as kinds_of  # noqa: PLC0415
    from noisegate.steward.draft import draft  # noqa: PLC0415 - stewards only

    if len(files) != 1:
        raise SpecError(
            "A policy is drafted from files, or from one database.",
            fix="Give files, or one address such as postgresql://USER@HOST/DATABASE.",
            about="name",
        )
    engine_of([str(files[0])])
    data, links, notes = catalogue(str(files[0]))
    sources = {table: origin_of(place) for table, place in data.items()}
    return draft(kinds_of(data), sources=sources, name=name, links=links, notes=notes)


def check_policy(file: str | Path) -> "list[Finding]":
    """What is wrong or costly in a policy, the gravest first. Reads no row of a private table."""
    from noisegate.planning.calibrate import geometric_error  # noqa: PLC0415 - stewards only
    from noisegate.sources.policy.policy import read_policy  # noqa: PLC0415
    from noisegate.steward.check import check  # noqa: PLC0415

    policy = read_policy(file)
    data, tables = tables_of(policy)
    error = partial(geometric_error, confidence="0.95")
    stored = engine_of(table.origin for table in tables.values()).stored_kinds(data)
    return check(policy, tables, stored=stored, error=error)


def check_rows(file: str | Path) -> "list[Finding]":
    """What the rows do not say as the policy has it, with exact counts: private, for the steward.

    Values that cannot be read and so count as NULL, lie outside bounds, or are not declared keys;
    and rows without an owner.
    """
    from noisegate.sources.duckdb.unread import unread  # noqa: PLC0415 - stewards only
    from noisegate.sources.policy.policy import read_policy  # noqa: PLC0415

    data, tables = tables_of(read_policy(file))
    if any("://" in table.origin for table in tables.values()):
        raise Unsupported(
            "Rows of a server are not looked at beside their policy.",
            fix="Check files in this way; of a server, ask questions in SQL yourself.",
            about="engine",
        )
    return unread(data, tables)


def policy_page(file: str | Path) -> str:
    """A policy as a page for people, in Markdown."""
    from noisegate.sources.policy.policy import read_policy  # noqa: PLC0415 - stewards only
    from noisegate.steward.page import page  # noqa: PLC0415

    return page(read_policy(file))


def read_policy(file: str | Path) -> "Policy":
    """A policy, checked against itself. No row is looked at."""
    from noisegate.sources.policy.policy import read_policy as read  # noqa: PLC0415 - stewards only

    return read(file)


def policy_schema() -> Mapping[str, Any]:
    """The JSON Schema of a policy, for editors."""
    from noisegate.sources.policy.form import schema  # noqa: PLC0415 - stewards only

    return schema()
