"""A bounded pool of workers with a fair queue: everybody's first question comes before a second.

Of those who wait, the one who has waited longest since their last turn is next, so a burst of one
analyst delays that analyst alone. A worker is free when its work returns, and that of a question
returns at a time of the ladder: so when the next question begins tells nothing that the end of the
one before did not tell (`settling.py`). There are more workers than questions which an engine takes
at once, since some of them only wait for a time.
"""

from collections import OrderedDict, deque
from collections.abc import Callable
from threading import Condition, Thread
from typing import Final, TypeAlias, final

from noisegate.errors import Busy

Work: TypeAlias = Callable[[], None]  # handles its own errors
WAITING_MAX: Final = 100  # of one person


@final
class FairQueue:
    """Work by persons. ``submit`` returns at once."""

    def __init__(self, workers: int) -> None:
        self._turns: OrderedDict[str, deque[Work]] = OrderedDict()  # in the order of their turns
        self._ready, self._open, self._running = Condition(), True, 0
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
        return self._running

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
        while (work := self._next()) is not None:
            try:
                work()
            finally:
                with self._ready:
                    self._running -= 1

    def _next(self) -> Work | None:
        with self._ready:
            self._ready.wait_for(lambda: self._turns or not self._open)
            if not self._turns:
                return None
            person, line = self._turns.popitem(last=False)
            work = line.popleft()
            if line:
                self._turns[person] = line  # at the end of the turns
            self._running += 1
            return work
