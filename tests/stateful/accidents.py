"""Where accidents happen to an order: at each step of the door, named and in order.

`watched` tells of each step as it is reached, on the real door, engine and ledger. Between the
ledger's transactions, a copy of its file is what a kill at that moment would leave: `Diary` keeps
one for each step, with what had been seen by then.
"""

import shutil
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from unittest.mock import patch

from orders import gate_at, gate_over

from noisegate.accounting.accountant import GRAINS_PER_ONE
from noisegate.curator.allowance import Allowance
from noisegate.curator.curator import Curator
from noisegate.curator.surprises import Surprises
from noisegate.errors import RequestConflict
from noisegate.ledger.ledger import Ledger
from noisegate.ledger.open import open_ledger
from noisegate.sources.duckdb.source import DuckDBSource

READS = ("sums", "marginals", "values", "distinct", "keys", "cells", "rows", "blocks")
STEPS = (
    (Ledger, "reserve", "before reserve", "after reserve"),
    (Ledger, "_settle_request", "before settle", "after settle"),
    (Ledger, "_close_request", "before close", "after close"),
    (Allowance, "_measure", "between questions", "after a question"),
    (Surprises, "ask", "between questions", "after a question"),
    (Curator, "_draw", None, "after sample"),
    *((DuckDBSource, name, "before collect", "after collect") for name in READS),
)


@contextmanager
def watched(tell):
    """Call ``tell`` with the name of each step that any door of this process comes to."""

    def between(function, before, after):
        def stepped(*words, **more):
            if before is not None:
                tell(before)
            result = function(*words, **more)
            tell(after)
            return result

        return stepped

    with ExitStack() as stack:
        for owner, name, before, after in STEPS:
            told = between(getattr(owner, name), before, after)
            stack.enter_context(patch.object(owner, name, told))
        yield


@dataclass
class Moment:
    """What a kill at one step would leave: the ledger's file, and what had been seen."""

    step: str
    where: Path
    seen: list
    unsettled: int  # reservations in the file


@dataclass
class Diary:
    """One run of an order, step by step, on a ledger of its own."""

    directory: Path
    moments: list = field(default_factory=list)
    seen: list = field(default_factory=list)

    def keep(self, order):
        where = self.directory / "ledger.db"
        gate = gate_at(where, people=order.people)

        def tell(step):
            place = self.directory / f"{len(self.moments)}.db"
            copy_ledger(where, place)
            unsettled = gate.ledger.balance(gate._curator.dataset).unsettled
            self.moments.append(Moment(step, place, list(self.seen), unsettled))

        def reveal(text):
            self.seen.append(text)
            tell("revealed")

        with watched(tell):
            order.ask(gate, reveal, False)
        gate.ledger.close()
        return self

    def last(self, steps):
        """The last moment of each of some steps."""
        found = {moment.step: moment for moment in self.moments}
        return [found[step] for step in steps if step in found]


def copy_ledger(where, place):
    """The file and its log as they are on disk now."""
    for ending in ("", "-wal"):
        if Path(f"{where}{ending}").exists():
            shutil.copyfile(f"{where}{ending}", f"{place}{ending}")


@dataclass
class Books:
    """What a ledger says of the root account: amounts are whole grains."""

    spent: int
    reservations: int
    unsettled: int
    open_allowances: int


def books(ledger):
    """The state of a ledger, which must be sound."""
    assert ledger.verify().problems == []
    root = ledger.accounts()[0]
    balance = ledger.balance(root)
    requests = ledger._read(lambda tx: list(tx.requests()))
    left = sum(each.use == "allowance" and each.settled is None for each in requests)
    return Books(balance.charge.amount, balance.reservations, balance.unsettled, left)


@contextmanager
def reopened(where, order):
    """A gate over a ledger that an accident left behind."""
    with open_ledger(str(where)) as ledger:
        yield gate_over(ledger, people=order.people)


def ask_again(order, gate):
    """What is seen when the same order comes again, and whether that took a fresh one."""
    seen = []
    try:
        order.ask(gate, seen.append, False)
    except RequestConflict:
        assert order.kind == "recipe"
        assert seen == []
    else:
        return seen, False
    order.ask(gate, seen.append, True)
    return seen, True


def check_again(order, gate, seen):
    """The same order after an accident: charged for what was seen, and questions only once."""
    before = books(gate.ledger)
    again, anew = ask_again(order, gate)
    after = books(gate.ledger)
    assert before.spent >= order.least_for(seen) * GRAINS_PER_ONE, "what was seen is charged"
    if order.kind == "question":
        assert again[: len(seen)] == seen, "what was seen stays so"
        assert abs(after.spent / GRAINS_PER_ONE / order.price - 1) < 1e-3, "charged once"
        assert after.unsettled == 0
    elif order.kind == "session" or anew:
        assert after.spent > before.spent, "what is drawn anew is charged anew"
    assert anew == (order.kind == "recipe" and before.open_allowances > 0)
    assert after.open_allowances == before.open_allowances, "what was left open is never resumed"
