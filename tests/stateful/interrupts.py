"""Ctrl-C at random moments of an order, again and again, in one process: what is left.

    python interrupts.py DIRECTORY TIMES [ORDER ...]

Each time a new ledger, an interruption after a random time, and the same order again. Prints the
counts as JSON; what must not be is an error.
"""

import json
import random
import signal
import sys
from collections import Counter
from pathlib import Path
from time import monotonic

from accidents import check_again
from orders import ORDERS, gate_at, open_gate


def main(directory, times, *names):
    counts = Counter(interrupted=0, stopped=0, done=0)
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    for name in names or ORDERS:
        order = ORDERS[name]
        times_s = []
        for _ in range(4):  # the first loads what is loaded once, and one may be late
            gate, begin = open_gate(":memory:", people=order.people), monotonic()
            order.ask(gate, lambda _: None, False)
            times_s.append(monotonic() - begin)
        for number in range(times):
            where = Path(directory) / f"{name} {number}.db"
            gate = gate_at(where, people=order.people)
            once(order, gate, min(times_s), counts)
            gate.ledger.close()
            where.unlink()
            Path(directory, "counts.json").write_text(json.dumps(counts))  # so far
    print(json.dumps(counts))  # noqa: T201


def once(order, gate, taken_s, counts):
    seen, after_s = [], random.uniform(1e-3, taken_s)
    try:
        try:
            signal.setitimer(signal.ITIMER_REAL, after_s)
            order.ask(gate, seen.append, False)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        counts["done"] += 1
    except KeyboardInterrupt:
        counts["interrupted"] += 1
    check_again(order, gate, seen)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), *sys.argv[3:])
