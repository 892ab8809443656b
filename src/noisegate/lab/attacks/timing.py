"""The clock as an answer: a question that takes long exactly where a row is there [HPN11]."""

import time
from collections.abc import Callable
from math import sqrt

import duckdb

from noisegate.lab.attacks.base import Outcome, Setting, Trial, listed
from noisegate.server.runs import rung

_PEOPLE, _TARGET = 60, 17
_QUANTUM = 0.05  # seconds: the service's own
_REPEATS = 5
_SLOW = (
    "SELECT COUNT(*) FROM infected WHERE place = 17 AND LENGTH(REPEAT('x', 4000000 + place)) > 0"
)
_ASKED = "SELECT COUNT(*) AS n FROM infected WHERE place = 17 AND SQRT(EXP(place)) > 0"


def run(setting: Setting) -> Outcome:
    """Is person 17 on the list? Look at the clock, not at the answer."""
    gates = listed(_PEOPLE, _TARGET)
    engines = [duckdb.connect(":memory:", config={"threads": 1}) for _ in range(2)]
    for engine in engines:
        engine.execute(f"CREATE TABLE infected AS FROM range({_PEOPLE}) people(place)")
    engines[0].execute("DELETE FROM infected WHERE place = 17")

    def slow(held: int) -> float:
        return _seconds(lambda: engines[held].execute(_SLOW).fetchall())

    def quickest(held: int) -> float:
        """Of a few: whatever else the machine does makes a question slower, never quicker."""
        return min(slow(held) for _ in range(_REPEATS))

    between = sqrt(quickest(0) * quickest(1))

    def clocked(held: int) -> bool:
        return quickest(held) > between

    def through_service(held: int) -> bool:
        """Times leave the service on a ladder; the first rung is above what a small table takes."""
        asked = _seconds(lambda: gates[held].sql(_ASKED, epsilon=setting.epsilon, fresh=True))
        return rung(asked, _QUANTUM) > _QUANTUM

    return setting.of_a_bit(
        title="The clock tells",
        story="Noise hides what an answer says, not when it comes. A function that is slow, but "
        "only where the target's row is read, gives the row away. The gate refuses functions "
        "whose work depends on values, and the service lets answers go at fixed times. (Asking "
        "in one's own process, as `noisegate ask` does, leaves the clock open.)",
        measure="right guesses whether the target is on the list",
        raw=Trial("an engine's own time", setting.played(clocked)),
        classic=Trial("noisy answers, sent when they are ready", setting.played(clocked)),
        gate=setting.played(through_service),
        behind=", behind the service",
    )


def _seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start
