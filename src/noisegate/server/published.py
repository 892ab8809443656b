"""Releases that the steward has made public: they are shown to everybody, without a token.

They were released before; to show them again tells nobody's rows anything new. What is left in
somebody's account is not shown with them.
"""

from collections.abc import Callable
from typing import Any, Final, final

from noisegate.server.access import AuditLog, line, now
from noisegate.server.people import Caller
from noisegate.server.refusals import no_such
from noisegate.server.runs import Run
from noisegate.server.store import Do, Store

KINDS: Final = ("release", "apply")  # of orders that are published
_HIDDEN: Final = ("remaining", "remaining_delta", "exact")


@final
class Published:
    """The list of public releases; ``run_of`` finds a run that its caller may see."""

    def __init__(self, store: Store, log: AuditLog, run_of: Callable[[Caller, str], Run]) -> None:
        self._store, self._log, self._run_of = store, log, run_of

    def publish(self, caller: Caller, run_id: str, *, public: bool) -> None:
        """Show a release to everybody, or to nobody else again: of stewards alone."""
        run = self._run_of(caller, run_id)
        is_there = run.told == "done" or run.finding  # or being read from the ledger again
        shows = is_there or not public
        if not caller.is_steward or run.order.kind not in KINDS or run.practice or not shows:
            raise no_such("release")
        said = line(
            caller.name, "publish" if public else "withdraw", face="http", token=caller.token,
            dataset=run.dataset, run=run.id,
        )  # fmt: skip

        def work(do: Do) -> None:
            if public:
                do(
                    "INSERT INTO published (run, dataset, at, person) VALUES (?, ?, ?, ?) "
                    "ON CONFLICT (run) DO NOTHING",
                    (run.id, run.dataset, now(), caller.name),
                )
            else:
                do("DELETE FROM published WHERE run = ?", (run.id,))
            self._log.write(do, said)

        self._store.do(work)

    def listed(self) -> list[dict[str, Any]]:
        """All of them, the latest first."""
        rows = self._store.all("SELECT run, dataset, at FROM published ORDER BY at DESC")
        return [{"id": run, "dataset": dataset, "published": at} for run, dataset, at in rows]

    def find(self, run_id: str) -> Run:
        """A public release; any other is not there."""
        row = self._store.one("SELECT dataset FROM published WHERE run = ?", run_id)
        if row is None:
            raise no_such("release")
        shown = Caller(name="", role="steward", datasets=frozenset({row[0]}))
        return self._run_of(shown, run_id)


def shown(record: dict[str, Any]) -> dict[str, Any]:
    """What everybody is shown of a result."""
    return {name: value for name, value in record.items() if name not in _HIDDEN}
