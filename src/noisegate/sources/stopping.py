"""Work in an engine that is cut short: at its limit of time, or when whoever asked has cancelled.

A `Stop` belongs to one question and reaches the work of that question alone, whatever else is being
done by the same engine.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final, final

from noisegate.errors import Cancelled

_AGAIN_S: Final = 0.02


@final
class Work:
    """One piece of work. ``cut`` ends it from another thread; nobody calls that once it is over."""

    def __init__(self, cut: Callable[[], None]) -> None:
        self._cut, self._lock, self._over, self.is_cut = cut, threading.Lock(), False, False

    def stop(self) -> None:
        """Until it is over: an engine forgets what it was told before it began."""
        while self._stop_once():
            time.sleep(_AGAIN_S)

    def _stop_once(self) -> bool:
        with self._lock:
            if not self._over:
                self.is_cut = True
                self._cut()
            return not self._over

    def end(self) -> None:
        """It is over."""
        with self._lock:
            self._over = True


@final
class Stop:
    """The wish that a question ends; what it asks the engine from then on is refused."""

    def __init__(self) -> None:
        self._work: Work | None = None
        self._wished = False

    def set(self) -> None:
        """Wish it, and return when nothing is at work."""
        self._wished = True  # before the look: either this sees the work, or the work sees this
        if (work := self._work) is not None:
            work.stop()

    @property
    def is_set(self) -> bool:
        """Whether it is wished."""
        return self._wished

    def begin(self, work: Work | None) -> None:
        """Say what is at work, which `set` ends."""
        self._work = work
        if self._wished:
            raise Cancelled("The question was cancelled.", fix="What was drawn stays charged.")


_STOP: ContextVar[Stop | None] = ContextVar("stop", default=None)


@contextmanager
def stopping(stop: Stop) -> Iterator[None]:
    """What this thread asks an engine ends with ``stop``."""
    before = _STOP.set(stop)
    try:
        yield
    finally:
        _STOP.reset(before)


@contextmanager
def cuttable(cut: Callable[[], None], seconds: float) -> Iterator[Work]:
    """Work that is cut after so many seconds, or when the question is to stop."""
    work, stop = Work(cut), _STOP.get()
    clock = threading.Timer(seconds, work.stop)
    clock.daemon = True
    try:
        if stop is not None:
            stop.begin(work)
        clock.start()
        yield work
    finally:
        clock.cancel()
        work.end()


def require_going_on() -> None:
    """Refuse to go on with a question that was cancelled."""
    if (stop := _STOP.get()) is not None:
        stop.begin(None)
