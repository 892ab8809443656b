"""Before a budget is chosen: what a count costs, how sharp it is, how many of them fit.

With a δ, side by side for both kinds of account: one that adds up ε, and one that adds up zCDP.

What an account has spent, read by every composition theorem side by side. It authorises nothing.

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
from fractions import Fraction
from functools import partial
from typing import Final, final

from noisegate.accounting.accountants import accountant_named
from noisegate.desk.terms.price import Funds, step_of
from noisegate.errors import SpecError
from noisegate.exact import Number, fraction, positive
from noisegate.frozen import dataclass
from noisegate.ledger.account import Balance
from noisegate.ledger.entry import Entry
from noisegate.ledger.ledger import Ledger
from noisegate.mechanisms.additive.gaussian import DiscreteGaussian
from noisegate.mechanisms.additive.geometric import Geometric
from noisegate.planning.calibrate import (
    discrete_gaussian_error,
    discrete_gaussian_variance_for_error,
    geometric_error,
    geometric_scale_for_error,
)
from noisegate.planning.enough import questions, questions_optimal, sample_size
from noisegate.planning.reports import Row, report
from noisegate.privacy.distance import L1, L2
from noisegate.privacy.event import Event, Repeated, decode
from noisegate.privacy.loss import ApproxDP, decimal_up

_MANY: Final = (10, 100)  # counts whose price is told


def what_if(
    *,
    epsilon: Number | None,
    within: Number | None,
    confidence: Number,
    budget: Number,
    delta: Number,
) -> list[tuple[str, str]]:
    """Facts about counts of persons, each person being one row.

    >>> facts = dict(what_if(epsilon="0.1", within=None, confidence="0.95", budget=1, delta=0))
    >>> facts["error of one count"], facts["counts that fit, sums of ε"]
    ('± 30', '10')
    """
    if (epsilon is None) == (within is None):
        raise SpecError("Give epsilon or within.", fix="Use exactly one of the two.")
    sure, total = fraction(confidence, name="confidence"), ApproxDP(budget, delta)
    if within is None:
        scale = 1 / positive(epsilon if epsilon is not None else 0, name="epsilon")
    else:
        scale = geometric_scale_for_error(within, confidence=sure)
    each, event = 1 / scale, Geometric(scale=scale).event(L1(1))
    rows = sample_size(bound=1, accuracy="0.01", epsilon=each, failure=1 - sure)
    facts = [
        ("price of one count", f"ε = {decimal_up(each)}"),
        ("noise", f"geometric, scale {decimal_up(scale)}"),
        ("error of one count", f"± {geometric_error(scale, confidence=sure):,}"),
        (
            "error of 100 counts at once",
            f"± {geometric_error(scale, confidence=sure, cells=100):,}",
        ),
        ("rows for a share within 1 %", f"{rows:,}"),
        (
            "counts that fit, sums of ε",
            f"{questions(event, total, accountant=accountant_named('pure')):,}",
        ),
    ]
    if not total.delta:
        return facts
    noise = _concentrated(each, within, sure, total)
    best = f"{questions_optimal(total, epsilon_each=each):,}"
    return [
        *facts,
        ("… at best, if fixed beforehand", best),
        *_on_zcdp(noise, sure, total),
        *_many(each, _event(noise), total),
    ]


def _concentrated(
    each: Fraction, within: Number | None, sure: Fraction, total: ApproxDP
) -> Geometric | DiscreteGaussian:
    """The noise that a zCDP account gives for the same ε, or for the same error."""
    if within is not None:
        return DiscreteGaussian(
            variance=discrete_gaussian_variance_for_error(within, confidence=sure)
        )
    rho = accountant_named("zcdp").rho(each, total)
    step = each if rho is None else step_of(rho)
    return Funds(epsilon=Fraction(step), gaussian=True).noise(
        Fraction(1), l1=L1(1), l2=L2(squared=1)
    )


def _event(noise: Geometric | DiscreteGaussian) -> Event:
    """That of a count, which a person moves by 1."""
    return noise.event(L1(1)) if isinstance(noise, Geometric) else noise.event(L2(squared=1))


def _on_zcdp(
    noise: Geometric | DiscreteGaussian, sure: Fraction, total: ApproxDP
) -> list[tuple[str, str]]:
    accountant, event = accountant_named("zcdp"), _event(noise)
    size = noise.scale if isinstance(noise, Geometric) else noise.variance
    plain = isinstance(noise, Geometric)
    error = partial(geometric_error if plain else discrete_gaussian_error, size, confidence=sure)
    drawn = f"geometric, scale {decimal_up(size)}"
    if not plain:
        drawn = f"Gaussian, variance {decimal_up(size)}"
    price = accountant.told(event, total).epsilon
    return [
        ("on a zcdp account: price of one count", f"ε = {decimal_up(price)}"),
        ("… noise", drawn),
        ("… error of one count", f"± {error():,}"),
        ("… error of 100 counts at once", f"± {error(cells=100):,}"),
        ("… counts that fit", f"{questions(event, total, accountant=accountant):,}"),
    ]


def _many(each: Fraction, event: Event, total: ApproxDP) -> list[tuple[str, str]]:
    """What several counts cost together on both accounts."""
    accountant = accountant_named("zcdp")

    def read(count: int) -> str:
        charge = accountant.price(Repeated(event=event, count=count))
        return decimal_up(accountant.implied(charge, total).epsilon)

    return [
        (f"{count} counts cost", f"ε = {decimal_up(count * each)}; on a zcdp account {read(count)}")
        for count in _MANY
    ]


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
