"""When an answer is stored: at once, unless whoever asks has chosen the moments.

From the moment at which the ledger has an answer, everybody who shares it can find that out: a plan
turns free, what was not used is given back, the same question is not charged any more. A service
lets that happen at times that rows do not choose: its ledgers pause by `wait_to_settle`.

Claim: all that can be seen of runs, by whomever, is seen at times that follow from when they were
    asked, approved and cancelled, from what was released, and from one rung for each of their
    steps: the time that the step took, on a ladder (`runs.rung`). A step of up to T seconds tells
    one of 8 + log2(T / 8q) rungs of a quantum q: at 0.05 s one of 15 up to 51 s, which is less than
    4 bits, and one of 22 up to an hour, less than 4.5 bits. How long a run waited for its turn is
    not a part of that. Of the progress within a step, which number was the last is told at each of
    these rungs: log2(n) bits more for a step that tells n numbers.
Why: by induction over the turns. A run is begun when it is asked, or once a worker is free and it
    is the next in turn; a worker is free at the told end of what it did before, so both follow from
    what was told. The first step is charged then. It reads rows, and its answer is stored at the
    next rung from there; the next step is charged then, and has a ladder of its own. What comes
    after the last one is calculated from released numbers. A run that was cancelled keeps its
    worker like any other.
Between runs: an engine takes a few questions at a time, and all share the processors, so one step
    can move the rung of others that are under way. Somebody with several accounts, or beside other
    people's questions, can so read one step off n other runs, each by a rung of its own: young runs
    have short rungs, and tell its end to about a quantum. To fill an engine takes two people, since
    one person has fewer questions at once than an engine takes.
Not claimed: that somebody who watches the machine itself (its load, its disk, how soon it says that
    it is healthy) learns nothing more.
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
