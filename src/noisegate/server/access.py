"""The access log: who asked what, when, for which price. Each line seals the one before it.

It holds what callers said and what they were charged, no answer and nothing derived from rows.
"""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, final

from noisegate.frozen import asdict, dataclass, fields, replace
from noisegate.server.store import Do, Row, Store

_COLUMNS = "seq, at, person, token, face, action, dataset, detail, hash"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """One line. ``hash`` is over all the rest and the line before."""

    seq: int
    at: str
    person: str
    token: str | None
    face: str
    action: str
    dataset: str | None
    detail: dict[str, Any]
    hash: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self)

    def sealed(self, before: str) -> str:
        """The hash of this line behind ``before``."""
        said = {each.name: getattr(self, each.name) for each in fields(self) if each.name != "hash"}
        return sha256(f"{before}\n{json.dumps(said, sort_keys=True)}".encode()).hexdigest()


@final
class AuditLog:
    """Appends lines, reads them, and rechecks the chain."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def add(
        self,
        person: str,
        action: str,
        *,
        face: str,
        token: str | None = None,
        dataset: str | None = None,
        **detail: object,
    ) -> None:
        """Write a line, durably with the store."""
        said = line(person, action, face=face, token=token, dataset=dataset, **detail)
        self._store.do(lambda run: self.write(run, said))

    def write(self, run: Do, said: Access) -> None:
        """A line behind the last one, in the transaction of what it is about."""
        last = run("SELECT seq, hash FROM access ORDER BY seq DESC LIMIT 1", ())
        seq, before = (last[0][0] + 1, last[0][1]) if last else (0, "")
        new = replace(said, seq=seq)
        detail = json.dumps(new.detail, sort_keys=True)
        values = (
            seq, new.at, new.person, new.token, new.face, new.action, new.dataset, detail,
            new.sealed(before),
        )  # fmt: skip
        run(f"INSERT INTO access ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", values)  # noqa: S608 - constants

    def lines(
        self, *, person: str | None = None, dataset: str | None = None, limit: int | None = None
    ) -> list[Access]:
        """The lines, the latest first."""
        where = [("person", person), ("dataset", dataset)]
        said = [(name, value) for name, value in where if value is not None]
        text = " AND ".join(f"{name} = ?" for name, _ in said) or "1 = 1"
        most = "" if limit is None else f" LIMIT {int(limit)}"
        rows = self._store.all(
            f"SELECT {_COLUMNS} FROM access WHERE {text} ORDER BY seq DESC{most}",  # noqa: S608 - names are constants
            *(value for _, value in said),
        )
        return [_line(row) for row in rows]

    def broken(self) -> int | None:
        """The number of the first line that does not fit the one before; None: all do."""
        before, expected = "", 0
        for each in self._all():
            if each.seq != expected or each.hash != each.sealed(before):
                return expected
            before, expected = each.hash, expected + 1
        return None

    def _all(self) -> Iterator[Access]:
        yield from map(_line, self._store.all(f"SELECT {_COLUMNS} FROM access ORDER BY seq"))  # noqa: S608 - constants


def line(
    person: str,
    action: str,
    *,
    face: str,
    token: str | None = None,
    dataset: str | None = None,
    **detail: object,
) -> Access:
    """A line that has no place in the log yet."""
    return Access(
        seq=0, at=now(), person=person, token=token, face=face, action=action,
        dataset=dataset, detail=json.loads(json.dumps(detail, default=str)),
    )  # fmt: skip


def now() -> str:
    """The time, as the service writes it."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _line(row: Row) -> Access:
    seq, at, person, token, face, action, dataset, detail, sealed = row
    return Access(
        seq=seq, at=at, person=person, token=token, face=face, action=action, dataset=dataset,
        detail=json.loads(detail), hash=sealed,
    )  # fmt: skip
