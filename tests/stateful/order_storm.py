"""Every kind of order, asked by processes that are killed at random moments: what is left.

    python order_storm.py DIRECTORY KILLS [ADDRESS [ORDER ...]]

This process has asked every order once and forks: a child has everything loaded, opens the ledger
and asks. Two at a time want the same order. Each is ended by the kernel at a random moment, by a
clock or a moment after a random statement of its ledger; what it sees it writes down at once. When
one has come to the end, another is spared and asks again. Then the ledger is verified, replayed
from its tables and compared with what was seen, and a new one is begun, until there were so many
kills of the order. Prints the counts as JSON.

The engine is a real one, with one thread: it has no other that a fork would lose, so children go on
with the copy they have. Opening engines took most of the time.
"""

import gc
import json
import os
import random
import shutil
import signal
import sys
from collections import Counter
from fractions import Fraction
from hashlib import sha256
from itertools import count
from pathlib import Path
from time import monotonic

import duckdb
from orders import BUDGET, ORDERS, open_gate
from replay import replay
from storm import KILLED, killed_soon, lines_of, underway

from noisegate.accounting.accountant import GRAINS_PER_ONE
from noisegate.curator.curator import Curator
from noisegate.errors import RequestConflict
from noisegate.gate import Gate
from noisegate.ledger.open import open_ledger
from noisegate.sql.outer import engine

AT_ONCE = 2
SLOW = ("program",)  # it runs by the clock, a second and more: a tenth of the kills
connect = duckdb.connect


def single(*words, config=None, **more):
    return connect(*words, config={**(config or {}), "threads": 1}, **more)


class Warm:
    """Gates whose engines stay alive in forked children, and an empty ledger for each."""

    def __init__(self, directory, names):
        duckdb.connect = single
        self._gates = {each: self._made(directory, each, names) for each in (True, False)}
        self._engines = {
            each: gate._curator._source._connection for each, gate in self._gates.items()
        }
        warm = engine._engine(os.getpid())
        engine._engine = lambda _: warm
        self.empty = {each: Path(directory) / f"empty {each}.db" for each in self._gates}

    def _made(self, directory, people, names):
        """A gate that has been asked everything; the first order loads what is loaded once."""
        open_gate(str(Path(directory) / f"empty {people}.db"), people=people).ledger.close()
        gate = open_gate(":memory:", people=people)
        for order in map(ORDERS.get, names):
            if order.people == people and order.name not in SLOW:
                order.ask(gate, lambda _: None, False)
        return gate

    def over(self, ledger, people):
        gate = self._gates[people]
        curator = gate._curator
        curator._source._connection = self._engines[people]
        made = Curator(
            source=curator._source, tables=curator.tables, ledger=ledger, account=curator.account
        )
        return Gate(made, gate._rules)

    def begin(self, address, people):
        """A new ledger for the same rows."""
        if address.startswith("postgres"):
            open_gate(address, people=people).ledger.close()
        else:
            shutil.copyfile(self.empty[people], address)


def ask(order, gate, log, most_s):
    """Ask, anew where that is needed; killed at a random moment, if ``most_s`` is given."""
    me, chance = os.getpid(), random.Random(os.urandom(8))

    def see(what, text=""):
        os.write(log, f"\n{me} {what} {order.name} {sha256(text.encode()).hexdigest()} ;".encode())

    see("begin")
    if most_s is not None:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        if chance.random() < 0.5:
            killed_soon(chance)
        else:
            signal.setitimer(signal.ITIMER_REAL, chance.uniform(1e-5, most_s))
    try:
        order.ask(gate, lambda text: see("shown", text), False)
    except RequestConflict:
        see("held")
        see("begin")
        order.ask(gate, lambda text: see("shown", text), True)
    signal.setitimer(signal.ITIMER_REAL, 0)
    see("over")


def spawn(warm, order, address, log, most_s=None):
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            with open_ledger(address) as ledger:
                ask(order, warm.over(ledger, order.people), log, most_s)
            code = 0
        finally:
            os._exit(code)
    return pid


def story(*words, most_s):
    """Have two at a time killed until one comes to the end; then one is spared: how they ended."""
    running, codes = {spawn(*words, most_s) for _ in range(AT_ONCE)}, Counter()
    while running:
        pid, status = os.wait()
        if pid in running:
            running.remove(pid)
            code = os.waitstatus_to_exitcode(status)
            codes[code] += 1
            if code == KILLED and not codes[0]:
                running.add(spawn(*words, most_s))
    codes[spared(*words)] += 1
    return codes


def spared(*words):
    """How one ended that nobody killed."""
    return os.waitstatus_to_exitcode(os.waitpid(spawn(*words), 0)[1])


def taken(warm, order, address):
    """How many seconds the order takes now, on a new ledger."""
    warm.begin(address, order.people)
    begin, log = monotonic(), os.open(os.devnull, os.O_WRONLY)
    spared(warm, order, address, log)
    os.close(log)
    return monotonic() - begin


def check(order, address, lines, counts):
    """What was seen is charged, and the same unless it was charged again."""
    with open_ledger(address) as ledger:
        counts["unsound"] += len(ledger.verify().problems)
    found = replay(address, BUDGET * GRAINS_PER_ONE)
    counts["unsound"] += len(found.problems)
    stories = shown(lines)
    longest = max(stories, key=len)
    distinct = {tuple(each) for each in stories if len(each) == len(longest)}
    counts["redrawn"] += order.kind == "question" and any(
        each != longest[: len(each)] for each in stories
    )
    spent = Fraction(found.spent["people", 0], GRAINS_PER_ONE)
    counts["unpaid"] += spent < order.least * (
        len(stories) if order.kind == "session" else len(distinct)
    )
    once = order.kind == "question"
    counts["over"] += once and spent > order.price
    unsettled = sum(not each.settled for each in found.requests.values())
    counts["over"] += once and unsettled > 0
    counts["left open"] += unsettled
    counts["answers"] += len(stories)


def shown(lines):
    """What each process was shown, in its order; one begins with its first line."""
    stories, now = [], {}
    for pid, what, _, text in lines:
        if what == "begin":
            now[pid] = []
        elif what == "shown":
            if not now[pid]:
                stories.append(now[pid])
            now[pid].append(text)
    return stories


def main(directory, kills, addresses=None, *names):
    names = names or tuple(ORDERS)
    warm, numbers = Warm(directory, names), count(1)
    counts = Counter(kills=0, races=0, lost=0, over=0)
    gc.collect()
    gc.freeze()
    for name in names:
        order, before = ORDERS[name], counts["kills"]
        first = f"{addresses}_{name}" if addresses else str(Path(directory) / f"{name}.db")
        most_s = taken(warm, order, first)
        while counts["kills"] - before < (kills // 10 if name in SLOW else kills):
            number = next(numbers)
            path = Path(directory) / f"{number}.log"
            address = f"{addresses}_{number}" if addresses else str(path.with_suffix(".db"))
            warm.begin(address, order.people)
            log = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY)
            codes = story(warm, order, address, log, most_s=most_s)
            os.close(log)
            lines = lines_of(path)
            cut, races = underway(lines)
            counts["kills"] += cut
            counts[name] += cut
            counts["races"] += races * (order.kind != "session")
            counts["killed"] += codes.pop(KILLED, 0)
            counts["ended"] += codes.pop(0, 0)
            counts["failed"] += codes.total()
            check(order, address, lines, counts)
            counts["ledgers"] += 1
            Path(directory, "counts.json").write_text(json.dumps(counts))  # so far
            for left in Path(directory).glob(f"{number}.*"):
                left.unlink()
    print(json.dumps(counts))  # noqa: T201
    sys.stdout.flush()
    os._exit(0)  # the engines were not made to be closed


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), *sys.argv[3:])
