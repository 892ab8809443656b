"""Folders that name a value, such as ``city=Paris``: a table means the same with and without them.

Spark makes a column of them, which it reads instead of one of that name in the files, and leaves
out rows of files that lie beside such folders; other engines read what is in the files. Where these
differ the table is refused.
"""

from collections.abc import Collection, Iterable
from itertools import chain
from typing import Final
from urllib.parse import unquote

from noisegate.errors import SourceError

_MISSING: Final = "__HIVE_DEFAULT_PARTITION__"


def named_by(folders: Iterable[str]) -> tuple[str, ...]:
    """The names before ``=`` in the folders that lead to a file, in their order."""
    return tuple(unquote(each.partition("=")[0]) for each in folders if "=" in each)


def named_values(folders: Iterable[str]) -> dict[str, str | None]:
    """The values of the names, as Spark reads them."""
    parts = (each.partition("=") for each in folders if "=" in each)
    return {
        unquote(name): None if value == _MISSING else unquote(value) for name, _, value in parts
    }


def require_same_names(named: Collection[tuple[str, ...]], columns: Iterable[str]) -> None:
    """Refuse folders that name a column of the files, or not the same for all files."""
    names = [name.casefold() for name in chain(*set(named))]
    if len(set(named)) > 1 or len(set(names)) < len(names):
        raise SourceError(
            "Folders of a table name different values (NAME=VALUE), or one twice.",
            fix="Put all files into folders of the same names, or into one folder.",
            about="folder",
        )
    if {name.casefold() for name in columns} & set(names):
        raise SourceError(
            "A folder of a table names the value of a column that its files hold too: some engines "
            "read the one, some the other.",
            fix="Write the files without the column, or into folders of other names.",
            about="folder",
        )
