"""What questions about disjoint parts of the units cost together: as much as the dearest part.

Each part has a running total of what its questions lost, for each account that they charge, and a
partition has the level that was paid for so far. A question about a part is charged what takes the
part's new total above that level, and the level rises with it: debit first, in one transaction with
the reservation.

Claim: if every account stays within its limit, it keeps its budget, however adaptively questions
    about parts, about several partitions and about everything follow each other, of any analyst.
    Adjacency: add/remove one unit.
Why: let D and D' differ by one unit u, and fix the answers so far. In each partition u is in one
    part at most, by what u's own rows hold (`curator/partition.py`), whatever the answers were. A
    question about any other part sees the same rows in D and D', so its answer has the same law: it
    loses nothing of u. What is lost of u is the sequence of questions about everything and, of each
    partition, about u's own part. The filters (`Accountant`) hold for this sequence if its charges
    sum to at most the limit at every moment [RRUV16, FZ21]; steps that lose nothing in between are
    steps of charge 0. That sum is the total of u's part, at most the level of each partition, and
    the account was charged all levels. It is the individual filter of [FZ21] with bounds that are
    public; for pure ε, it is [McS09, Thm 4] for adaptive questions.
Rounding: charges are whole grains, each rounded up, so totals and levels are exact sums.

Nothing is given back: an allowance in a part that was not used up stays in the part's total. Totals
are kept among the requests, as a cache of what the log says; no request id begins as theirs do.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias

from noisegate.accounting.accountant import Charge
from noisegate.ledger.account import NOTHING, Request
from noisegate.privacy.event import InPart

Charges: TypeAlias = Mapping[str, Charge]  # by account
Find: TypeAlias = Callable[[str], Request | None]


def rise(find: Find, event: InPart, lost: Charges) -> dict[str, Charge]:
    """What each account is charged for a question that loses ``lost`` of the units of one part."""
    total, level = (_held(find, name) for name in _names(event))
    return {
        name: _larger(total.get(name, NOTHING) + more, known := level.get(name, NOTHING)) - known
        for name, more in lost.items()
    }


def totals(find: Find, event: InPart, lost: Charges, seq: int) -> Iterator[Request]:
    """The part's total and the partition's level after that, as the ledger keeps them."""
    ours, whole = _names(event)
    total, level = _held(find, ours), _held(find, whole)
    risen = rise(find, event, lost)
    sums = {name: total.get(name, NOTHING) + more for name, more in lost.items()}
    levels = {name: level.get(name, NOTHING) + more for name, more in risen.items()}
    for name, charges in ((ours, total | sums), (whole, level | levels)):
        known = find(name)
        yield Request(
            request_id=name, account="", use="part", question="", event="", charges=charges,
            reserved=seq if known is None else known.reserved,
        )  # fmt: skip


def _names(event: InPart) -> tuple[str, str]:
    return f"part {event.partition} {event.part}", f"parts {event.partition}"


def _held(find: Find, name: str) -> dict[str, Charge]:
    known = find(name)
    return {} if known is None else dict(known.charges)


def _larger(one: Charge, other: Charge) -> Charge:
    return Charge(max(one.amount, other.amount), max(one.delta, other.delta))
