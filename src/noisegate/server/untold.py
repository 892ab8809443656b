"""Runs that are at work, or whose end may not be told yet: what they made counts as not there.

The ledger has what a run has made as soon as it is drawn, and its answer leaves at a time of the
ladder. Between the two, a plan that turned free, or the same order asked again, would tell when the
work was over.
"""

import time
from threading import Lock
from typing import Final, final

from noisegate.server.results import Result
from noisegate.server.runs import Run

_PATIENCE: Final = 1.0  # seconds that a plan waits for runs to be told


@final
class Untold:
    """The runs of one process. Threads may share it."""

    def __init__(self) -> None:
        self._runs: list[Run] = []
        self._lock = Lock()

    def add(self, run: Run) -> None:
        """Know of a run that may make something."""
        if not (run.practice or run.finding):
            with self._lock:
                self._runs.append(run)

    def has(self, person: str, dataset: str) -> bool:
        """Whether one of a person's is still not told of, after a while.

        When this comes back tells what the ladder tells, and no more.
        """
        last = time.monotonic() + _PATIENCE
        own = [each for each in self._left(dataset) if each.person == person]
        for each in own:
            each.wait(max(0.0, last - time.monotonic()))
        return not all(each.settled for each in own)

    def finish(self, run: Run, made: Result | Exception) -> None:
        """End a run, no sooner than the one that made what it shows again may be told of."""
        if isinstance(made, Result) and not run.practice:
            run.questions = made.questions
            run.finish(made, max((
                each.ended_at
                for each in self._left(run.dataset)
                if each is not run and each.questions & run.questions
            ), default=0.0))  # fmt: skip
        else:
            run.finish(made)

    def _left(self, dataset: str) -> list[Run]:
        with self._lock:
            self._runs = [each for each in self._runs if not each.settled]
            return [each for each in self._runs if each.dataset == dataset and each.is_going]
