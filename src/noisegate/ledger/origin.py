"""Where private rows come from. Rows have one origin, and an origin has one budget in a ledger.

A root account owns the origins of its tables. Another root account over one of them would be a
second budget for the same people, whatever it is called, and is refused. An account may come to own
more origins: a file that was moved, a new snapshot elsewhere.

A file is known by its real path, so symbolic links are seen through, and by its inode, so that a
hard link, a bind mount or a renamed file is. Inodes are used again for other files: a recorded one
counts only while the recorded path stands for it, or for nothing. A table of a database is known by
host, port, database and name, and by the server's own numbers where it tells them: so another name
of the host, or a partition, is seen through. Nothing of this is derived from rows. A *copy* of the
rows has another origin, and so has a view of a database: nothing here can tell.
"""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, TypeAlias, final
from urllib.parse import parse_qsl, unquote, urlsplit

from noisegate.errors import PolicyError
from noisegate.files import place_of, table_of
from noisegate.frozen import dataclass

Owned: TypeAlias = Mapping[str, tuple[str, str]]  # place -> account, mark
_DATABASES: Final = (".duckdb", ".ddb", ".db")
_SCHEMES: Final = {"postgres": "postgresql"}
_PORTS: Final = {"postgresql": "5432", "sc": "15002"}
_SCHEMAS: Final = {"postgresql": "public", "sc": "default"}


@final
@dataclass(frozen=True, slots=True)
class Origin:
    """A place, such as ``/data/people.csv`` or ``postgresql://host:5432/db#public.people``.

    ``mark`` is a file's device and inode, and empty where there is no file.
    """

    place: str
    mark: str = ""

    def meets(self, place: str, mark: str) -> bool:
        """Whether a recorded place, with its mark of that time, holds the same rows."""
        (path, _, inside), (own, _, mine) = place.partition("#"), self.place.partition("#")
        if inside and mine and inside != mine:  # else one of them is the whole file
            return False
        return path == own or (bool(self.mark) and self.mark == (_mark(unquote(path)) or mark))

    def owners(self, owned: Owned) -> set[str]:
        """The accounts that own these rows, by this name or another."""
        return {of for place, (of, mark) in owned.items() if self.meets(place, mark)}

    def is_news(self, owned: Owned) -> bool:
        """Whether the ledger does not know the place, or knew another file there."""
        return self.place not in owned or owned[self.place][1] != self.mark


def require_own(origin: Origin, owned: Owned, account: str) -> None:
    """One origin has one budget: another name for the same rows is not another one."""
    for owner in sorted(origin.owners(owned) - {account}):
        name = origin.place.rpartition("/")[2]
        raise PolicyError(
            f"The rows of {name!r} already have the budget {owner!r} in this ledger.",
            fix=f"Open them under that name (table={owner!r}, or name = {owner!r} in the policy). "
            "If it is a new file that only took over the place of a removed one, copy it.",
            about="origin",
        )


def require_nobodys(origin: Origin, private: Owned) -> None:
    """Rows that have a budget are not shown exactly and free under another name."""
    for owner in sorted(origin.owners(private)):
        name = origin.place.rpartition("/")[2]
        raise PolicyError(
            f"{name!r} is declared public, but it holds private rows with the budget {owner!r}.",
            fix="Remove it from the public tables.",
            about="public",
        )


def origins_of(where: str, table: str) -> Iterator[Origin]:
    """The origins of a table that a policy names; nothing for a frame.

    >>> [each.place for each in origins_of("postgres://ann:secret@DB/shop?x=1#people", "people")]
    ['postgresql://db:5432/shop#public.people']
    """
    place, inside = place_of(where)
    if "://" in place and not Path(place).is_file():
        yield Origin(f"{_server(place)}#{_table(inside or table, place.partition(':')[0])}")
    elif inside is not None:
        schema, name = table_of(inside)
        yield origin_of(place, name, schema or "main")
    elif place:
        yield origin_of(place, table if Path(place).suffix.lower() in _DATABASES else "")


def origin_of(file: str, table: str = "", schema: str = "main") -> Origin:
    """The origin of a file, or of a table in it. Names are compared without regard to case."""
    path = os.path.realpath(file)
    place, mark = path.replace("%", "%25").replace("#", "%23"), _mark(path)
    return Origin(f"{place}#{f'{schema}.{table}'.lower()}" if table else place, mark)


def lying_in(place: str) -> Origin:
    """The origin that an engine itself names; with the mark of a file, where it is one."""
    return Origin(place, _mark(unquote(place)))


def _server(url: str) -> str:
    """Host, port and database, without user, password and settings."""
    parts = urlsplit(url)
    scheme = _SCHEMES.get(parts.scheme, parts.scheme)
    said = dict(parse_qsl(parts.query))
    host = unquote(said.get("host") or parts.hostname or "").lower()
    if host.startswith("/"):  # the folder of a socket
        host = "/" + os.path.normpath(host).lstrip("/")
    port = said.get("port") or str(parts.port or _PORTS.get(scheme, ""))
    path = parts.path.partition(";")[0]  # settings of Spark Connect stand behind it
    return f"{scheme}://{host}:{port}/{said.get('dbname') or unquote(path.strip('/'))}"


def _table(name: str, scheme: str) -> str:
    """A table with its schema. Names are compared without regard to case, as engines do."""
    schema = _SCHEMAS.get(_SCHEMES.get(scheme, scheme), "")
    plain = name.replace('"', "").lower()
    return plain if "." in plain or not schema else f"{schema}.{plain}"


def _mark(path: str) -> str:
    """Which file a path stands for now; nothing if there is none."""
    try:
        status = os.stat(path)  # noqa: PTH116 - may be the text of a URL
    except (OSError, ValueError):
        return ""
    return f"{status.st_dev}:{status.st_ino}"
