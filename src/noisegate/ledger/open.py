"""From an address to a ledger: a file, a Postgres server, or memory."""

import os
from pathlib import Path
from typing import IO, Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from noisegate.errors import LedgerError, SpecError
from noisegate.ledger.ledger import Ledger
from noisegate.ledger.stores.sqlite import SQLiteLedger


def open_ledger(where: str, **options: Any) -> Ledger:  # noqa: ANN401 - passed on
    """Open a ledger, or make a new one.

    A path or ``sqlite:///path`` is a SQLite file, ``postgresql://…`` a Postgres server (with an
    optional ``schema=name`` among the parameters), ``:memory:`` a ledger for practice.

    >>> open_ledger(":memory:").durable
    False
    """
    text = str(where)
    if text == ":memory:":
        from noisegate.ledger.stores.memory import MemoryLedger  # noqa: PLC0415 - each when it is used

        return MemoryLedger(**options)
    if text.startswith(("postgresql://", "postgres://")):
        from noisegate.ledger.stores.postgres import PostgresLedger  # noqa: PLC0415

        conninfo, schema = split_schema(text)
        return PostgresLedger(conninfo, schema=schema, **options)
    path = text.removeprefix("sqlite:///")
    if not path or "://" in path:
        raise SpecError(
            f"{path.partition('://')[0]!r} is not a kind of ledger.",
            fix="Name a file, sqlite:///file, postgresql://server/database or :memory:.",
            about="kind",
        )
    return SQLiteLedger(path, **options)


def inspect_ledger(where: str) -> Ledger:
    """A ledger to be verified: what is wrong with its file is reported instead of refused.

    Opens it as usual where it can be. A file with two names, with foreign files beside it, or where
    nothing may be written, is read as it is, without locks, and cannot be charged.
    """
    from noisegate.ledger.stores.sqlite_inspection import SQLiteInspection, problems_of  # noqa: PLC0415

    path = Path(where.removeprefix("sqlite:///"))
    if "://" in str(path) or not path.is_file():
        return open_ledger(where)
    frozen = not (os.access(path, os.W_OK) and os.access(path.resolve().parent, os.W_OK))
    problems = problems_of(path, frozen=frozen)
    return SQLiteInspection(path, problems) if frozen or problems else open_ledger(where)


def restore_ledger(file: IO[str], where: str, **options: Any) -> Ledger:  # noqa: ANN401
    """A new ledger with the history and answers of an export, entry by entry the same."""
    from noisegate.ledger.verify.archive import read_lines  # noqa: PLC0415

    lines = list(read_lines(file))
    if not lines or lines[0][0].kind != "ledger" or not lines[0][0].is_sealed:
        raise LedgerError(
            "The export has no first entry.", fix="Use an unchanged export.", about="first-entry"
        )
    ledger = open_ledger(where, _first=lines[0][0], **options)
    ledger.restore(lines)
    return ledger


def split_schema(address: str, usual: str = "noisegate") -> tuple[str, str]:
    """An address of a server without ``schema=``, and the schema that was named."""
    parts = urlsplit(address)
    pairs = parse_qsl(parts.query, keep_blank_values=True)
    schema = next((value for name, value in pairs if name == "schema"), usual)
    query = urlencode([(name, value) for name, value in pairs if name != "schema"])
    return urlunsplit(parts._replace(query=query)), schema
