"""Another budget or share: first what it would mean, and only then, confirmed, the change.

What is confirmed is the sentence that was shown: a form that says yes to another is refused.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from decimal import ROUND_CEILING, Context, Decimal
from hashlib import sha256
from typing import Any, Final, final

from noisegate.accounting.accountant import Charge
from noisegate.accounting.accountants import accountant_named
from noisegate.errors import SpecError
from noisegate.ledger.account import NOTHING, Balance
from noisegate.ledger.entry import Entry, decode_charges
from noisegate.planning.meaning import meaning
from noisegate.privacy.loss import ApproxDP
from noisegate.root import Amendment, amendment
from noisegate.server.console.shown import up
from noisegate.server.console.visits import Visit
from noisegate.server.views import View

EVERY: Final = ("day", "week", "month", "year")
_REASON_MAX: Final = 500
_LOWER: Final = (
    "What was answered stays answered; if more is spent already, nothing more is granted."
)
_HIGHER: Final = (
    "What is spent of it cannot be taken back. Those who were promised the smaller number should "
    "hear of it."
)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """A change that waits for a yes: what it means, and the fields that repeat it."""

    title: str
    sentences: tuple[str, ...]
    fields: tuple[tuple[str, str], ...]
    lower: bool

    @property
    def sure(self) -> str:
        """What a yes to exactly these sentences is."""
        return sha256("\n".join((*self.sentences, *map(str, self.fields))).encode()).hexdigest()


def limit(visit: Visit, view: View) -> Proposal | None:
    """Change a budget or a share, if that was confirmed; else say what it would mean."""
    reason = " ".join(visit.form.get("reason", "").split())
    if not 0 < len(reason) <= _REASON_MAX:
        raise SpecError(
            "A change of a budget needs a reason.",
            fix=f"Say why, in up to {_REASON_MAX} letters; it is kept in the ledger.",
            about="reason",
        )
    analyst = visit.form.get("analyst") or None
    said = _said(visit, view, analyst)
    change = amendment(view.hosted, **said)
    proposal = _proposal(view, change, said, reason)
    if visit.form.get("sure") != proposal.sure:
        return proposal
    visit.service.amend(visit.caller, change, reason)
    return None


def _said(visit: Visit, view: View, analyst: str | None) -> dict[str, Any]:
    """The terms of a change, as a form says them."""
    epsilon = visit.form.get("epsilon", "").strip()
    if visit.form.get("renew"):
        epsilon = renewed(view.ledger.balance(view.name), view.ledger.history(view.name))
    found: dict[str, Any] = {"epsilon": epsilon, "analyst": analyst}
    if analyst is None:
        return found
    if analyst not in {each.name for each in visit.service.people.everybody()}:
        raise SpecError("There is no such person.", fix="Add the person first.", about="person")
    every, until = visit.form.get("every", ""), visit.form.get("until", "")
    if every and every not in EVERY:
        raise SpecError("There is no such time.", fix=f"Use {', '.join(EVERY)}.", about="every")
    try:
        last = date.fromisoformat(until) if until else None
    except ValueError:
        raise SpecError("The last day is not a date.", fix="For example: 2027-01-31.") from None
    return found | {"every": every or None, "until": last}


def renewed(balance: Balance, entries: Iterable[Entry]) -> str:
    """The ε that gives back what was spent since the budget was last set; rounded up.

    With it, as much is left as there was then: who renews twice adds what was spent in between,
    and not all that was ever spent.
    """
    then, held = NOTHING, dict[str, Charge]()
    for entry in entries:
        if entry.kind == "limit" and entry.body["account"] == balance.account:
            then = sum(held.values(), NOTHING)
        elif entry.kind in ("reserve", "close") and balance.account in entry.body["charges"]:
            held[entry.body["request"]] = decode_charges(entry.body["charges"])[balance.account]
    accountant = accountant_named(balance.accountant)
    whole = accountant.implied(balance.limit + balance.charge - then, balance.budget).epsilon
    exact = Decimal(whole.numerator) / Decimal(whole.denominator)
    return f"{Context(prec=4, rounding=ROUND_CEILING).plus(exact):f}"


def _proposal(view: View, change: Amendment, said: dict[str, Any], reason: str) -> Proposal:
    before, after = change.before, change.after
    lower = before is not None and after.epsilon < before.epsilon
    whom = str(view.facts()["protects"])
    if change.analyst is None:
        title = f"{'Lower' if lower else 'Raise'} the budget of {view.name}"
        sentences = _of_all(before or after, after, whom, lower=lower)
    else:
        title = f"{'Change' if before else 'Add'} the share of {change.analyst}"
        every = f" every {said['every']}" if said["every"] else ""
        until = f", until {said['until']}" if said["until"] else ""
        now = "" if before is None else f" instead of ε = {up(float(before.epsilon))}"
        budget = up(float(change.policy.budget.epsilon))
        why = ", for all purposes together" if change.policy.purposes else ""
        may = f"{change.analyst} may spend up to ε = {up(float(after.epsilon))}{why}"
        kept = f"The promise to {whom} does not change: all analysts together stay within ε ="
        sentences = (f"{may}{every}{until}{now}.", f"{kept} {budget}.")
    names = {"epsilon": said["epsilon"], "analyst": change.analyst or "", "reason": reason,
             "every": said.get("every") or "", "until": str(said.get("until") or "")}  # fmt: skip
    return Proposal(title=title, sentences=sentences, fields=tuple(names.items()), lower=lower)


def _of_all(before: ApproxDP, after: ApproxDP, whom: str, *, lower: bool) -> tuple[str, ...]:
    """What another budget of the whole data set means."""
    first, then = (meaning(each.epsilon, delta=each.delta) for each in (before, after))
    odds = [up(float(each.odds_factor)) for each in (first, then)]
    was = f"all answers together, for ever, within ε = {up(float(before.epsilon))}"
    now = f"From now on it is ε = {up(float(after.epsilon))}."
    rise = (
        "Whoever sees all answers can then raise the odds that somebody is in the data by at most"
    )
    last = _LOWER if lower else _HIGHER
    return f"The promise to {whom} was: {was}. {now}", f"{rise} × {odds[1]}, not {odds[0]}.", last
