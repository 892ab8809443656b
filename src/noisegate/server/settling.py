"""When an answer is stored: at once, unless whoever asks has chosen the moments.

From the moment at which the ledger has an answer, everybody who shares it can find that out: a plan
turns free, what was not used is given back, the same question is not charged any more. A service
lets that happen at times that rows do not choose: its ledgers pause by `wait_to_settle`.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_WAIT: ContextVar[Callable[[], None] | None] = ContextVar("wait", default=None)


@contextmanager
def settling(wait: Callable[[], None]) -> Iterator[None]:
    """What this thread draws is stored when ``wait`` has come back.

    A process that ends meanwhile leaves a charge without an answer: the same request draws again,
    and nobody has seen the draw that is gone.
    """
    before = _WAIT.set(wait)
    try:
        yield
    finally:
        _WAIT.reset(before)


def wait_to_settle() -> None:
    """Wait for the moment, if there is one to wait for."""
    if (wait := _WAIT.get()) is not None:
        wait()
