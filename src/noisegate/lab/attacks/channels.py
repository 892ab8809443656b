"""What is beside the answers: a balance, an error or a clock can tell what noise hides [HPN11]."""

import time
from collections.abc import Callable
from fractions import Fraction
from math import sqrt

import duckdb

from noisegate.errors import NoisegateError
from noisegate.gate import Gate
from noisegate.lab.attacks.outcome import Outcome, Trial
from noisegate.lab.attacks.run import Setting, listed
from noisegate.server.runs import rung

_PEOPLE, _TARGET = 60, 17
_PRICED = "SELECT COUNT(*) AS n FROM infected WHERE place = 17"


def budget(setting: Setting) -> Outcome:
    """Is person 17 on the list? Look at the balance, not at the answer.

    A price that depends on rows is an answer that nobody paid for.
    """
    gates = listed(_PEOPLE, _TARGET)

    def exact(held: int) -> bool:
        return held == 1

    def by_rows(held: int) -> bool:
        """Noisy answers, charged only where a row was read: nothing was learnt, nothing is paid."""
        charged = setting.epsilon if held else 0.0
        return charged > 0

    def charged(held: int) -> bool:
        return _guess(gates[held], setting.epsilon)

    return setting.of_a_bit(
        title="The balance tells",
        story="A gate that charges for an empty group nothing, or fails where a row cannot be "
        "read, gives the secret away by its balance or its error, whatever noise the answer "
        "has. Here prices, refusals and notes follow from the question and the policy alone, "
        "and the charge is on the ledger before a row is read.",
        measure="right guesses whether the target is on the list",
        raw=Trial("exact counts", setting.played(exact)),
        classic=Trial("noise, charged where a row was read", setting.played(by_rows)),
        gate=setting.played(charged),
    )


def _guess(gate: Gate, epsilon: float) -> bool:
    """From price, balance and words of an answer, and of a question about a broken value."""
    before = gate.spent.epsilon
    answer = gate.sql(_PRICED, epsilon=epsilon, fresh=True)
    try:
        gate.plan("SELECT SUM(1 / (place - 17)) AS s FROM infected", epsilon=epsilon)
        failed = False
    except NoisegateError:
        failed = True
    price = gate.spent.epsilon - before
    return price != Fraction(epsilon) or answer.cost.epsilon != price or not failed


_QUANTUM = 0.05  # seconds: the service's own
_REPEATS = 5
_SLOW = (
    "SELECT COUNT(*) FROM infected WHERE place = 17 AND LENGTH(REPEAT('x', 4000000 + place)) > 0"
)
_ASKED = "SELECT COUNT(*) AS n FROM infected WHERE place = 17 AND SQRT(EXP(place)) > 0"


def timing(setting: Setting) -> Outcome:
    """Is person 17 on the list? A question takes long exactly where a row is there [HPN11]."""
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
