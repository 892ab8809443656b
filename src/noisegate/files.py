"""Files that are written to, and files that never are: tables behind a gate, policies, ledgers."""

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from noisegate.errors import SpecError

TABLE: Final = "a table behind a gate"
POLICY: Final = "a policy"
LEDGER: Final = "a ledger"
_BESIDE: Final = ("", "-wal", "-shm", "-journal", ".wal")  # what engines keep beside a file
_WITHIN: Final = re.compile(r"(.*?\.(?:duckdb|ddb|db))#(.*)", re.IGNORECASE | re.DOTALL)
_PART: Final = r'"(?:[^"]|"")+"|[^".]+'
_TABLE: Final = re.compile(rf"(?:({_PART})\.)?({_PART})")
_kept: dict[str, str] = {}  # of this process, for good: an answer may outlive its gate


def place_of(where: str) -> tuple[str, str | None]:
    """A file or URL, and the table that is named behind it, as in ``DATABASE#TABLE``, if any is.

    >>> place_of("files#1/clinic.duckdb#main.visits")
    ('files#1/clinic.duckdb', 'main.visits')
    >>> place_of("visits#2.csv")
    ('visits#2.csv', None)
    """
    if "://" in where:
        url, mark, inside = where.partition("#")
        return url, inside if mark else None
    found = None if Path(where).is_file() else _WITHIN.fullmatch(where)
    return (where, None) if found is None else (found[1], found[2])


def table_of(inside: str) -> tuple[str | None, str]:
    """The schema, if one is named, and the table. Names with dots or quotes stand in quotes.

    >>> table_of("visits"), table_of('clinic."odd.name"')
    ((None, 'visits'), ('clinic', 'odd.name'))
    """
    if (found := _TABLE.fullmatch(inside)) is None:
        raise SpecError(
            f"{inside!r} after # does not name a table.",
            fix="Write 'table' or 'schema.table'; put a name that contains a dot or a quote in "
            "double quotes: 'schema.\"odd.name\"'.",
            about="table",
        )
    schema, table = (each and _unquoted(each) for each in found.groups())
    return schema, table


def within(where: str, schema: str, table: str) -> str:
    """A table of a database as a policy names it: what `place_of` and `table_of` take apart.

    >>> within("clinic.duckdb", "main", "odd.name")
    'clinic.duckdb#main."odd.name"'
    """
    names = (
        name if re.fullmatch(r"[^\".#]+", name) else '"' + name.replace('"', '""') + '"'
        for name in (schema, table)
    )
    return f"{where}#{'.'.join(names)}"


def _unquoted(name: str) -> str:
    return name[1:-1].replace('""', '"') if name.startswith('"') else name


def keep(file: str | Path, what: str) -> None:
    """From here on, nothing is written over this file. One file is one thing."""
    if "\x00" in str(file):
        raise SpecError(f"{Path(file).name!r} is not a valid file name.", fix="Check the path.")
    path = Path(file).resolve()
    if (other := _what(path)) is not None and other != what:
        raise SpecError(
            f"{path.name!r} is {other}.", fix=f"Choose another file for {what}.", about="other-file"
        )
    _kept.update({f"{path}{ending}": what for ending in _BESIDE})


def require_output(file: str | Path, endings: Sequence[str] | None = None) -> Path:
    """A file that can be written to; for refusals before anything is paid for."""
    path = Path(file)
    if endings is not None and path.suffix.lower() not in endings:
        raise SpecError(
            f"{path.name!r} has an unknown file ending.",
            fix=f"Use {', '.join(endings)}.",
            about="ending",
        )
    try:
        what = _what(path)
        usable = what is not None or _opens(path)
    except (OSError, ValueError):  # a NUL in the name is a ValueError
        what, usable = None, False
    if what is not None:
        raise SpecError(
            f"{path.name!r} is {what} and is not overwritten.",
            fix="Use another name.",
            about="kept",
        )
    if not usable:
        raise SpecError(
            f"{path.name!r} cannot be written there.", fix="Choose another folder.", about="folder"
        )
    return path


@contextmanager
def written(file: str | Path, endings: Sequence[str] | None = None) -> Iterator[Path]:
    """A file to be written inside of the block; whatever the system objects is a refusal."""
    path = require_output(file, endings)
    try:
        yield path
    except OSError as wrong:
        why = wrong.strerror or "the system refuses"
        raise SpecError(
            f"{path.name!r} was not written: {why}.",
            fix="The release is in the ledger: ask again at no cost, and write it elsewhere.",
            about="written",
        ) from None


def write(file: str | Path, text: str) -> None:
    """A text as it is, in UTF-8."""
    with written(file) as path:
        path.write_text(text, encoding="utf-8", newline="")


def _what(path: Path) -> str | None:
    """What a file is that must stay, by whichever name or link it is reached."""
    if (known := _kept.get(str(path.resolve()))) is not None or not path.exists():
        return known
    here = path.stat()
    return next((what for kept, what in _kept.items() if _is_at(kept, here)), None)


def _is_at(kept: str, here: os.stat_result) -> bool:
    """As `Path.samefile`, which is far too slow for a process that has opened thousands."""
    try:
        return os.path.samestat(os.stat(kept), here)  # noqa: PTH116 - a path takes longer to make
    except OSError:
        return False


def _opens(path: Path) -> bool:
    """Whether it can be opened to write; neither makes nor changes it."""
    if path.exists() or path.is_symlink():
        if not path.is_file():  # a folder, a pipe, a device, a link to nowhere
            return False
        with path.open("r+b"):
            return True
    with path.open("xb"):
        pass
    path.unlink()
    return True


def sync_directory(directory: Path) -> None:
    """Make the new name of a file durable; where folders cannot be opened, the system does it."""
    with suppress(OSError):
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
