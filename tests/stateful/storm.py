"""Many processes on one ledger, killed at random moments, and what they left: counted.

    python storm.py DIRECTORY COUNT [ADDRESS]

This process has no threads and forks workers. All go through the same requests, so that several
want the same one at once; what a worker has seen it writes down immediately. After a few requests
it winds up a clock, by which the kernel ends it at a random moment of those that follow, as it ends
a process that is killed: nothing of it runs any more. Another takes its place; one is spared. When
the budget is used up the ledger is checked against all that was seen, and a new one is begun,
until there were so many kills and races. Prints the counts as JSON.
"""

import json
import os
import random
import signal
import sys
from collections import Counter
from fractions import Fraction
from pathlib import Path

from noisegate.accounting.accountant import GRAINS_PER_ONE
from noisegate.errors import OverBudget, RequestConflict
from noisegate.ledger.open import open_ledger
from noisegate.privacy.event import DeclaredEvent
from noisegate.privacy.loss import ApproxDP

WORKERS, BUDGET, PRICE, USED = 4, 12, Fraction(1, 10), Fraction(1, 20)
WHOLE, PART = DeclaredEvent(epsilon=PRICE), DeclaredEvent(epsilon=USED)
LAST_S = 0.003  # the longest time that a clock runs
KILLS_MAX = 400  # for one ledger
KILLED = -signal.SIGALRM
LINE = 100  # about as many letters are written for each request


def opened(address):
    ledger = open_ledger(address)
    for name, parent in (("data", None), ("ann", "data")):
        ledger.open_account(
            name, parent=parent, accountant="pure", budget=ApproxDP(BUDGET), unit="one person"
        )
    return ledger


def work(address, log, *, spared):
    """Ask until the budget is used up. A line is written as soon as its content is seen."""
    chance = random.Random(os.urandom(8))
    signal.signal(signal.SIGALRM, signal.SIG_DFL)

    def see(*words):  # a line that a kill cut short has no end, and counts for nothing
        os.write(log, f"\n{' '.join(words)} ;".encode())

    with open_ledger(address) as ledger:
        number, left = os.fstat(log).st_size // LINE, -1 if spared else chance.randrange(4)
        while True:
            if left == 0:
                signal.setitimer(signal.ITIMER_REAL, chance.uniform(2e-5, LAST_S))
            left -= 1
            number += chance.randrange(3)  # others are near
            name = f"r{number}"
            use = "allowance" if number % 3 == 0 else "measurement"
            try:
                entry = ledger.reserve(name, question=use, event=WHOLE, account="ann", kind=use)
            except RequestConflict:
                continue  # an allowance that another holds, or left open
            except OverBudget:
                see("over", name)
                return
            see("reserved", name)
            answer = entry.answer
            if answer is None:
                drawn = os.urandom(6).hex().encode()
                see("inside" if use == "allowance" else "drawn", name)
                answer = entry.settle(drawn) if use == "measurement" else entry.close(PART, drawn)
            see("seen", name, answer.decode())


def spawn(address, log, *, spared=False):
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            work(address, log, spared=spared)
            code = 0
        finally:
            os._exit(code)
    return pid


def storm(address, log, kills):
    """Have workers killed until the budget is used up, or as often as was said: their ends."""
    opened(address).close()
    workers = {spawn(address, log, spared=number == 0) for number in range(WORKERS)}
    codes = Counter()
    while workers:
        pid, status = os.wait()
        workers.remove(pid)
        code = os.waitstatus_to_exitcode(status)
        codes[code] += 1
        if code == KILLED and codes[KILLED] < kills:
            workers.add(spawn(address, log))
    return codes


def check(address, lines, counts):
    """What the ledger says against what was seen."""
    with opened(address) as ledger:
        counts["unsound"] += len(ledger.verify().problems)
        requests = {each.request_id: each for each in ledger._read(lambda tx: list(tx.requests()))}
        asked, drawn = Counter(), Counter()
        for what, name, *answer in (line.split()[:-1] for line in lines if line.endswith(" ;")):
            if what == "over":
                continue
            asked[name] += what == "reserved"
            drawn[name] += what in ("inside", "drawn")
            if name not in requests:
                counts["lost"] += 1
            elif what == "seen":
                use = "allowance" if int(name[1:]) % 3 == 0 else "measurement"
                stored = ledger.find(name, use, "ann")
                counts["redrawn"] += stored is None or stored.decode() != answer[0]
        often = [name for name, times in drawn.items() if times > 1]
        counts["redrawn"] += sum(requests[name].use == "allowance" for name in often)
        counts["both drew"] += len(often)  # and the first to settle is seen
        counts["races"] += sum(times > 1 for times in asked.values())  # for one request
        owed = sum(
            USED if each.use == "allowance" and each.settled is not None else PRICE
            for each in requests.values()
        )
        counts["over"] += use_up(ledger, owed)
        counts["requests"] += len(requests)


def use_up(ledger, owed):
    """How much is charged too little, or beyond the budget; the rest of it can be spent exactly."""
    spent = Fraction(ledger.balance("data").charge.amount, GRAINS_PER_ONE)
    wrong = int(spent != owed) + int(spent > BUDGET)
    rest = BUDGET - spent
    if rest > 0:
        ledger.reserve(
            "rest", question="q", event=DeclaredEvent(epsilon=rest), account="ann",
            kind="measurement",
        ).settle(b"")  # fmt: skip
    try:
        ledger.reserve(
            "more", question="q", event=DeclaredEvent(epsilon="1e-9"), account="ann",
            kind="measurement",
        )  # fmt: skip
    except OverBudget:
        return wrong
    return wrong + 1


def main(directory, most, addresses=None):
    counts, number = Counter(kills=0, races=0, lost=0, over=0), 0
    while counts["kills"] + counts["races"] < most:
        number += 1
        path = Path(directory) / f"{number}.log"
        address = f"{addresses}_{number}" if addresses else str(Path(directory) / f"{number}.db")
        log = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY)
        codes = storm(address, log, KILLS_MAX)
        os.close(log)
        counts["kills"] += codes.pop(KILLED, 0)
        counts["used up"] += codes.pop(0, 0)
        counts["failed"] += codes.total()
        check(address, path.read_text().splitlines(), counts)
        counts["ledgers"] += 1
        for left in Path(directory).glob(f"{number}.*"):
            left.unlink()
    print(json.dumps(counts))  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), *sys.argv[3:])
