"""What an account has spent, read by every composition theorem side by side. It authorises nothing.

>>> from noisegate.ledger.stores.memory import MemoryLedger
>>> from noisegate.privacy.event import DeclaredEvent
>>> ledger = MemoryLedger()
>>> terms = {"accountant": "pure", "budget": ApproxDP(2), "unit": "a person"}
>>> _ = ledger.open_account("clinic", parent=None, **terms)
>>> asked = {"event": DeclaredEvent(epsilon=Fraction(1, 2)), "kind": "measurement"}
>>> for name in ("first", "second"):
...     _ = ledger.reserve(name, question="?", account="clinic", **asked)
>>> found = spending(ledger, "clinic", delta=Fraction(1, 10**6), methods=("basic", "zcdp"))
>>> found.questions, found.open, [f"{row.method} {float(row.epsilon):.3f}" for row in found.rows]
(2, 2, ['basic 1.000', 'zcdp 3.542'])
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import final

from noisegate.ledger.account import Balance
from noisegate.ledger.entry import Entry
from noisegate.ledger.ledger import Ledger
from noisegate.planning.reports import Row, report
from noisegate.privacy.event import Event, decode
from noisegate.privacy.loss import ApproxDP


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Spending:
    """The balance that the ledger enforces, and what each theorem says of the same events.

    ``open`` questions were charged and have no answer yet, or never will: they count as reserved.
    """

    balance: Balance
    delta: Fraction
    questions: int
    open: int
    rows: tuple[Row, ...]

    @property
    def charged(self) -> ApproxDP:
        """What the account was charged, by its own accountant."""
        return self.balance.spent


def spending(
    ledger: Ledger, account: str, *, delta: Fraction, methods: Iterable[str] | None = None
) -> Spending:
    """All that an account and the accounts below it have spent, at one δ.

    Args:
        ledger: Where the account is.
        account: Its name.
        delta: At which δ the methods state their ε.
        methods: Some of `accounting.reports.METHODS`; all of them if left out.
    """
    balance, entries = ledger.balance(account), ledger.history(account)
    events = dict(_events(entries))
    ended = {str(each.body["request"]) for each in entries if each.kind in ("settle", "close")}
    return Spending(
        balance=balance,
        delta=delta,
        questions=len(events),
        open=len(events.keys() - ended),
        rows=tuple(report(events.values(), delta=delta, methods=methods)),
    )


def _events(entries: Iterable[Entry]) -> Iterator[tuple[str, Event]]:
    """By request: what was reserved, or, where an allowance was closed, what was used of it."""
    for entry in entries:
        if entry.kind == "reserve":
            yield str(entry.body["request"]), decode(entry.body["event"])
        elif entry.kind == "close":
            yield str(entry.body["request"]), decode(entry.body["used"])
