"""A bounded pool of workers with a fair queue: everybody's first question comes before a second.

Of those who wait, the one who has waited longest since their last turn is next, so a burst of one
analyst delays that analyst alone. Nobody has more at once than an engine leaves room beside: long
questions of one person do not keep all others out.

A worker is free when its work returns, and that of a question returns at a time of the ladder: so
when the next question begins tells nothing that the end of the one before did not tell
(`runs.py`). There are more workers than questions which an engine takes at once, since some of
them only wait for a time.
"""

from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from threading import Condition, Thread
from typing import Final, TypeAlias, final

from noisegate.errors import Busy

Work: TypeAlias = Callable[[], None]  # handles its own errors
WAITING_MAX: Final = 100  # of one person
AT_ONCE: Final = 3  # of one person; engines take four


@final
class FairQueue:
    """Work by persons. ``submit`` returns at once."""

    def __init__(self, workers: int) -> None:
        self._turns: OrderedDict[str, deque[Work]] = OrderedDict()  # in the order of their turns
        self._ready, self._open = Condition(), True
        self._busy = Counter[str]()  # how much of each person is being worked on
        self._threads = [
            Thread(target=self._serve, name=f"noisegate-{n}", daemon=True) for n in range(workers)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def depth(self) -> int:
        """How much is waiting."""
        with self._ready:
            return sum(map(len, self._turns.values()))

    @property
    def running(self) -> int:
        """How much is being worked on."""
        with self._ready:
            return self._busy.total()

    def submit(self, person: str, work: Work) -> None:
        """Put work at the end of a person's own line."""
        with self._ready:
            line = self._turns.setdefault(person, deque())
            if not self._open or len(line) >= WAITING_MAX:
                if not line:
                    del self._turns[person]
                raise Busy(
                    f"{WAITING_MAX} of your questions are waiting already."
                    if self._open
                    else "The service is shutting down.",
                    fix="Wait for their answers, then ask again. Nothing was spent.",
                )
            line.append(work)
            self._ready.notify()

    def close(self, seconds: float | None = None) -> None:
        """Take nothing new, finish what is there, and stop."""
        with self._ready:
            self._open = False
            self._ready.notify_all()
        for thread in self._threads:
            thread.join(seconds)

    def _serve(self) -> None:
        while (turn := self._next()) is not None:
            person, work = turn
            try:
                work()
            finally:
                with self._ready:
                    self._busy -= Counter((person,))  # who has nothing is not kept
                    self._ready.notify(1 if self._open else len(self._threads))

    def _next(self) -> tuple[str, Work] | None:
        with self._ready:
            self._ready.wait_for(lambda: self._first or not (self._open or self._turns))
            if (person := self._first) is None:
                return None
            line = self._turns.pop(person)
            work = line.popleft()
            if line:
                self._turns[person] = line  # at the end of the turns
            self._busy[person] += 1
            return person, work

    @property
    def _first(self) -> str | None:
        """Whose turn it is; None: nobody waits who may have more."""
        return next((each for each in self._turns if self._busy[each] < AT_ONCE), None)
