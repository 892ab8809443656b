"""Many processes on one ledger, killed at random moments, and what they left: counted.

    python storm.py DIRECTORY COUNT [ADDRESS [ORDER ...]]

The requests are those that real orders make (`recording.py`), with their events and charges. This
process has no threads and forks workers. All want the same next request at once; what a worker has
seen it writes down immediately. After so many statements, a random number, it winds up a clock by
which the kernel ends it within half a millisecond, as it ends a process that is killed: nothing of it
runs any more. Another takes its place; one is spared. When the budget is used up the ledger is verified,
replayed from its tables (`replay.py`) and compared with all that was seen, and a new one is begun,
until there were so many kills and races. Prints the counts as JSON.

A kill counts if it came while the worker had begun a request and not ended it; a race, if two
workers had one request under way at once.
"""

import gc
import json
import mmap
import os
import random
import signal
import subprocess
import sys
from collections import Counter, defaultdict
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from time import monotonic

from replay import replay

from noisegate.accounting.accountant import GRAINS_PER_ONE
from noisegate.errors import OverBudget, RequestConflict
from noisegate.ledger.open import open_ledger
from noisegate.ledger.stores.postgres import _PostgresTransaction
from noisegate.ledger.stores.sqlite import SQLiteTransaction
from noisegate.privacy.event import DeclaredEvent, decode
from noisegate.privacy.loss import ApproxDP

WORKERS, BUDGET = 3, 150
STATEMENTS = 100  # at most, until the clock is wound up: about five requests
LAST_S = 0.0005  # the longest time that it runs
TOGETHER_S = 0.001  # the longest time that one waits for another to want the same request
KILLED = -signal.SIGALRM
ENDS = ("seen", "held", "over")


def recorded(names):
    """The requests of real orders, with their events."""
    script = Path(__file__).with_name("recording.py")
    made = subprocess.run([sys.executable, script, *names], capture_output=True, check=True)
    steps = json.loads(made.stdout)
    for step in steps:
        step["event"] = decode(step["event"])
        step["used"] = step["used"] and decode(step["used"])
    return steps


def opened(address):
    ledger = open_ledger(address)
    for name, parent, also in (
        ("data", None, ()),
        ("share", "data", ()),
        ("ann", "data", ["share"]),
    ):
        ledger.open_account(
            name, parent=parent, also=also, accountant="pure", budget=ApproxDP(BUDGET, "1/2"),
            unit="one person",
        )  # fmt: skip
    return ledger


class Front:
    """For all workers: the next request that nobody has an answer to, and who came for each."""

    def __init__(self):
        self._shared = mmap.mmap(-1, 1 << 16)

    def get(self):
        return int.from_bytes(self._shared[:8], "little")

    def passed(self, number):
        self._shared[:8] = max(self.get(), number + 1).to_bytes(8, "little")

    def meet(self, number):
        """Wait a moment until another wants the same."""
        place, end = 8 + number, monotonic() + TOGETHER_S
        self._shared[place] = min(self._shared[place] + 1, 255)
        while self._shared[place] < 2 and monotonic() < end:
            os.sched_yield()


def killed_soon(chance):
    """Have this process killed a moment after one of its next statements: whether that is now."""
    left = 1 + chance.randrange(STATEMENTS)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)

    def counted(run):
        def step(*words):
            nonlocal left
            left -= 1
            if left == 0:
                signal.setitimer(signal.ITIMER_REAL, chance.uniform(1e-6, LAST_S))
            return run(*words)

        return step

    for kind in (SQLiteTransaction, _PostgresTransaction):
        kind._run = counted(kind._run)
    return lambda: left <= 0


def work(address, log, steps, front):
    """Ask until the budget is used up. A line is written as soon as its content is seen."""
    me = os.getpid()

    def see(*words):  # a line that a kill cut short has no end, and counts for nothing
        os.write(log, f"\n{me} {' '.join(words)} ;".encode())

    with open_ledger(address) as ledger:
        is_due = killed_soon(random.Random(os.urandom(8)))
        number = front.get()
        while True:
            if not is_due():
                front.meet(number)
            see("begin", name := f"r{number}")
            try:
                see(*ask(ledger, name, steps[number % len(steps)], see))
                front.passed(number)
            except RequestConflict:  # an allowance that another holds, or left open
                see("held", name)
            except OverBudget:
                see("over", name)
                return
            number = max(number + 1, front.get())


def ask(ledger, name, step, see):
    """One request to its end."""
    use = step["use"]
    entry = ledger.reserve(
        name, question=step["question"], event=step["event"], account="ann", kind=use
    )
    if entry.answer is not None:
        return "seen", name, entry.answer[:12].decode()
    see("drawn", name)
    drawn = os.urandom(6).hex().encode().ljust(step["bytes"], b" ")
    answer = entry.settle(drawn) if use == "measurement" else entry.close(step["used"], drawn)
    return "seen", name, answer[:12].decode()


def spawn(*words):
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            work(*words)
            code = 0
        finally:
            os._exit(code)
    return pid


def storm(*words):
    """Have workers killed until one finds the budget used up: how they ended."""
    opened(words[0]).close()
    workers = {spawn(*words) for _ in range(WORKERS)}
    codes = Counter()
    while workers:
        pid, status = os.wait()
        workers.remove(pid)
        code = os.waitstatus_to_exitcode(status)
        codes[code] += 1
        if code == KILLED and not codes[0]:
            workers.add(spawn(*words))
    return codes


def lines_of(path):
    """What was written down, but for lines that were cut short."""
    return [line.split()[:-1] for line in path.read_text().splitlines() if line.endswith(" ;")]


def underway(lines):
    """How many kills came amid a request, and how many requests two had under way at once.

    A process that was killed had its request under way until its last line, if not longer.
    """
    asks, begun, cut = defaultdict(list), {}, 0
    for place, (pid, what, name, *_) in enumerate(lines):
        if what == "begin":
            cut += pid in begun  # another process of the same number
            begun[pid] = [place, place]
            asks[name].append(begun[pid])
        begun[pid][1] = place
        if what in ENDS:
            del begun[pid]
    races = sum(
        any(later[0] < earlier[1] for earlier, later in pairwise(sorted(each)))
        for each in asks.values()
    )
    return cut + len(begun), races


def check(address, lines, steps, counts):
    """What the ledger says against what was seen."""
    with opened(address) as ledger:
        counts["unsound"] += len(ledger.verify().problems)
        found = replay(address, BUDGET * GRAINS_PER_ONE)
        counts["unsound"] += len(found.problems)
        drawn = Counter()
        for _, what, name, *answer in lines:
            request = found.requests.get(name)
            drawn[name] += what == "drawn"
            if what in ("drawn", "seen") and request is None:
                counts["lost"] += 1
            elif what == "seen":
                counts["answers"] += 1
                stored = request.answer and request.answer[:12].decode()
                counts["redrawn"] += stored != answer[0]
        often = [name for name, times in drawn.items() if times > 1]
        counts["redrawn"] += sum(found.requests[name].use == "allowance" for name in often)
        counts["both drew"] += len(often)  # and the first to settle is seen
        for name, request in found.requests.items():
            step = steps[int(name[1:]) % len(steps)]
            owed = step["used charge" if request.settled else "charge"]
            counts["over"] += any(pair != owed for pair in request.charges.values())
            counts["unsettled"] += not request.settled
        counts["over"] += use_up(ledger)
        counts["requests"] += len(found.requests)


def use_up(ledger):
    """Whether more than the budget is charged; the rest of it can be spent exactly."""
    spent = Fraction(ledger.balance("data").charge.amount, GRAINS_PER_ONE)
    wrong, rest = int(spent > BUDGET), BUDGET - spent
    for name, epsilon in (("rest", rest), ("more", Fraction(1, 10**9))):
        try:
            if epsilon > 0:
                ledger.reserve(
                    name, question="q", event=DeclaredEvent(epsilon=epsilon), account="ann",
                    kind="measurement",
                ).settle(b"")  # fmt: skip
                wrong += name == "more"
        except OverBudget:
            wrong += name == "rest"
    return wrong


def main(directory, most, addresses=None, *names):
    steps = recorded(names)
    gc.collect()
    gc.freeze()
    counts, number = Counter(kills=0, races=0, lost=0, over=0), 0
    while counts["kills"] + counts["races"] < most:
        number += 1
        path = Path(directory) / f"{number}.log"
        address = f"{addresses}_{number}" if addresses else str(Path(directory) / f"{number}.db")
        log = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY)
        codes = storm(address, log, steps, Front())
        os.close(log)
        lines = lines_of(path)
        kills, races = underway(lines)
        counts["kills"] += kills
        counts["races"] += races
        counts["killed"] += codes.pop(KILLED, 0)
        counts["used up"] += codes.pop(0, 0)
        counts["failed"] += codes.total()
        check(address, lines, steps, counts)
        counts["ledgers"] += 1
        Path(directory, "counts.json").write_text(json.dumps(counts))  # so far
        for left in Path(directory).glob(f"{number}.*"):
            left.unlink()
    print(json.dumps(counts))  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), *sys.argv[3:])
