"""One order, asked by process after process that is killed at a random moment: what is left.

    python order_storm.py DIRECTORY KILLS [ORDER ...]

This process has no threads and no engine, and forks: a child opens the gate, winds up a clock by
which the kernel ends it, and asks. What it sees it writes down at once. After the kills one child is
spared. Prints the counts as JSON.
"""

import json
import os
import random
import signal
import sys
from collections import Counter
from fractions import Fraction
from pathlib import Path
from time import monotonic

from accidents import books
from orders import ORDERS, open_gate

from noisegate.accounting.accountant import GRAINS_PER_ONE
from noisegate.errors import RequestConflict
from noisegate.ledger.open import open_ledger

KILLED = -signal.SIGALRM


def ask(order, where, log, most_s):
    """Ask, anew where that is needed; killed within ``most_s``, if it is given."""
    gate = open_gate(str(where), people=order.people)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)

    def see(text):
        os.write(log, f"\n{os.getpid()} {text} ;".encode())

    if most_s is not None:
        signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-3, most_s))
    try:
        order.ask(gate, see, False)
    except RequestConflict:
        order.ask(gate, see, True)


def run(order, where, log, most_s=None):
    """A child's end, and how long it took."""
    begin, pid = monotonic(), os.fork()
    if pid == 0:
        code = 1
        try:
            ask(order, where, log, most_s)
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), monotonic() - begin


def shown(path):
    """What each process saw, in its order."""
    seen = {}
    for line in path.read_text().splitlines():
        pid, _, text = line.partition(" ")
        if text.endswith(" ;"):
            seen.setdefault(pid, []).append(text)
    return seen


def check(order, where, seen, counts):
    """What was seen is charged, and the same unless it was charged again."""
    with open_ledger(str(where)) as ledger:
        state = books(ledger)
    stories = list(seen.values())
    longest = max(stories, key=len, default=[])
    if order.kind == "session":
        distinct = len(stories)
    else:
        distinct = len(
            {json.dumps(story[: len(longest)]) for story in stories if len(story) == len(longest)}
        )
        counts["redrawn"] += order.kind == "question" and any(
            story != longest[: len(story)] for story in stories
        )
    spent = Fraction(state.spent, GRAINS_PER_ONE)
    counts["unpaid"] += spent < distinct * order.least
    counts["over"] += order.kind == "question" and spent > order.price
    counts["left open"] += state.open_allowances


def main(directory, kills, *names):
    counts = Counter(kills=0, unpaid=0, redrawn=0, over=0)
    for name in names or ORDERS:
        order = ORDERS[name]
        path = Path(directory) / f"{name}.log"
        log = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY)
        trial = os.open(os.devnull, os.O_WRONLY)
        _, taken_s = run(order, Path(directory) / f"{name} trial.db", trial)
        where = Path(directory) / f"{name}.db"
        for _ in range(kills):
            code, _ = run(order, where, log, taken_s / 2)
            counts["kills"] += code == KILLED
            counts["failed"] += code not in (0, KILLED)
        code, _ = run(order, where, log)
        counts["failed"] += code != 0
        check(order, where, shown(path), counts)
        counts["orders"] += 1
    print(json.dumps(counts))  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), *sys.argv[3:])
