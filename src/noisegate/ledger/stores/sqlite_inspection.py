"""A SQLite ledger that is only looked at: for `verify` of a file that no charge should go to.

The file is read as it is (``immutable``): no lock, no journal rolled back, no write-ahead log
folded in, so that nothing a steward may want to look into is changed.
"""

import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import ClassVar, Final, NoReturn, TypeVar, final

from noisegate.errors import LedgerError
from noisegate.frozen import replace
from noisegate.ledger.entry import STORE_FORMAT
from noisegate.ledger.ledger import Ledger
from noisegate.ledger.stores.sqlite import WITH_WAL, SQLiteTransaction, look, pragma, spoken
from noisegate.ledger.stores.sqlite_file import LedgerFile
from noisegate.ledger.transaction import Transaction
from noisegate.ledger.verify.anchor import Anchor
from noisegate.ledger.verify.audit import Verification

T = TypeVar("T")

_SHOWN: Final = (  # what older formats lack, the latest first; beside the file, not in it
    "CREATE TEMP VIEW accounts AS SELECT *, '' AS also FROM main.accounts",
    "CREATE TEMP VIEW origins AS SELECT '' AS place, '' AS account, '' AS mark WHERE FALSE",
)


@final
class SQLiteInspection(Ledger):
    """What the file itself holds, and what is wrong around it."""

    durable: ClassVar[bool] = True

    def __init__(self, path: Path, problems: list[str]) -> None:
        super().__init__()
        self.path, self._problems = path.absolute(), problems

    def close(self) -> None:
        """Nothing stays open."""

    def verify(
        self, *, pinned_head: str | None = None, anchors: Sequence[Anchor] = ()
    ) -> Verification:
        """Recheck everything that the file holds; what is wrong around it comes first."""
        found = super().verify(pinned_head=pinned_head, anchors=anchors)
        return replace(found, problems=[*self._problems, *found.problems])

    def _read(self, work: Callable[[Transaction], T]) -> T:
        address = f"{self.path.resolve().as_uri()}?mode=ro&immutable=1"
        with spoken(), closing(sqlite3.connect(address, uri=True)) as connection:
            for shown in _SHOWN[: max(0, STORE_FORMAT - pragma(connection, "user_version"))]:
                connection.execute(shown)
            return work(SQLiteTransaction(connection))

    def _write(self, work: Callable[[Transaction], T]) -> NoReturn:  # noqa: ARG002
        raise LedgerError(
            f"The ledger {self.path.name!r} is open for inspection only.",
            fix="Resolve what verify reports, then open it as usual.",
            about="inspection",
        )


def problems_of(path: Path, *, frozen: bool) -> list[str]:
    """What stands against charging a file: two names, or files beside it that are not its own.

    In a ``frozen`` place, where nothing can be written, also what a crash left to be brought to an
    end.
    """
    file = LedgerFile(path, may_create=False)
    try:
        _, version = look(file, may_create=False)
        try:
            file.require_sound(has_wal=version == WITH_WAL)
        except LedgerError as refusal:
            return [refusal.problem]
        if frozen and (file.has_journal() or file.has_wal()):
            return ["A transaction was interrupted, and cannot be completed here."]
        return []
    finally:
        file.close()
