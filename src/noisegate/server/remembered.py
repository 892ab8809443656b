"""What was answered before and is told again: it is free, and nobody waits in the queue for it.

An answer is kept for those who asked it, with the text that it was sent as. What their accounts
have left stands beside it: it is read again once the ledger has changed, which is looked at after
each run of this process, and otherwise once in a quantum, the least time in which an answer leaves;
who comes while somebody looks is told what was left before.
"""

import time
from collections import OrderedDict
from math import inf
from threading import Lock
from typing import Final, final

from noisegate.gate import Gate
from noisegate.privacy.loss import ApproxDP
from noisegate.root import Hosted
from noisegate.server.results import Result
from noisegate.server.runs import Run
from noisegate.server.views import View, asked

_PATIENCE: Final = 1.0  # seconds for a look at the ledger; another who looks would make it longer


@final
class Remembered:
    """The last answers, by who asked what. Threads may share it."""

    def __init__(self, kept: int, quantum: float) -> None:
        self._kept, self._quantum, self._lock = kept, quantum, Lock()
        self._answers: OrderedDict[tuple[object, ...], Result] = OrderedDict()
        self._left: dict[str, _Left] = {}  # by data set

    def keep(self, view: View, run: Run, made: Result) -> None:
        """An answer that can be shown again."""
        with self._lock:
            self._answers[asked(view, run)] = made
            self._answers.move_to_end(asked(view, run))
            while len(self._answers) > self._kept:
                self._answers.popitem(last=False)

    def at_hand(self, view: View, run: Run) -> Result | None:
        """The same as `again` without a look at the ledger, which others may be writing.

        None: it needs one. Of those who come late one looks, and the others need not meanwhile.
        """
        known, now = self._left.get(run.dataset), time.monotonic()
        if known is None or not self.has(view, run):
            return None
        if now >= known.until and now >= known.renewed_at + _PATIENCE:
            known.renewed_at = now
            return None
        left, answer = (
            known.accounts.get(view.gate.door.account),
            self._answers.get(asked(view, run)),
        )
        return None if left is None or answer is None else answer.again(left)

    def has(self, view: View, run: Run) -> bool:
        """Whether the same order gave this caller an answer, and may give it again."""
        plain = not (run.practice or run.fresh or run.finding) and run.state == "queued"
        return plain and asked(view, run) in self._answers

    def again(self, view: View, run: Run) -> Result | None:
        """What the same order gave this caller before: released already, so free."""
        known = self._answers.get(asked(view, run)) if self.has(view, run) else None
        return None if known is None else known.again(self._left_of(view.hosted, view.gate))

    def clear(self) -> None:
        """Forget all answers; they are in the ledger."""
        with self._lock:
            self._answers.clear()

    def changed(self, dataset: str) -> None:
        """The ledger may have changed: what accounts have left is read again."""
        with self._lock:
            self._left.pop(dataset, None)

    def _left_of(self, hosted: Hosted, gate: Gate) -> ApproxDP:
        name, account = hosted.policy.name, gate.door.account
        known, now = self._left.get(name), time.monotonic()
        if known is None or now >= known.until:
            head = hosted.ledger.head()
            accounts = known.accounts if known is not None and known.head == head else {}
            known = self._left[name] = _Left(head, now + self._quantum, accounts)
        left = known.accounts.get(account)
        if left is None:
            left = known.accounts[account] = gate.remaining
        return left


@final
class _Left:
    """What accounts have left, all read behind one head of the ledger or later."""

    def __init__(self, head: str, until: float, accounts: dict[str, ApproxDP]) -> None:
        self.head, self.until, self.accounts = head, until, accounts
        self.renewed_at = -inf  # when somebody went to look at the ledger for it
