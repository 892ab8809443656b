"""Budget: what is spent by whom, what the rest buys, and the steward's levers.

Another budget or share: first what it would mean, and only then, confirmed, the change. What is
confirmed is the sentence that was shown: a form that says yes to another is refused.
"""

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import ROUND_CEILING, Context, Decimal
from hashlib import sha256
from typing import Any, Final, final

from starlette.responses import Response

from noisegate.accounting.accountant import Charge
from noisegate.accounting.accountants import accountant_named
from noisegate.errors import NoisegateError, SpecError
from noisegate.frozen import dataclass
from noisegate.ledger.account import NOTHING, Balance, room_of
from noisegate.ledger.entry import Entry, decode_charges
from noisegate.planning.calibrate import geometric_scale_for_error
from noisegate.planning.enough import questions
from noisegate.planning.meaning import meaning
from noisegate.privacy.distance import L1
from noisegate.privacy.event import GeometricEvent
from noisegate.privacy.loss import ApproxDP
from noisegate.root import Amendment, amendment
from noisegate.server.console.runs import order_shown
from noisegate.server.console.shown import CONFIDENCE, Holder, meter, number, up
from noisegate.server.console.visits import Visit
from noisegate.server.people import ROLES
from noisegate.server.refusals import no_such, status_of
from noisegate.server.runs import Run
from noisegate.server.views import View

_WITHIN: Final = (10, 50, 250)  # of counts that the rest buys
_STEPS_MAX: Final = 400  # of a burn-down


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Burn:
    """What was left of a budget, over time, as the corners of a line in percent."""

    points: str
    words: str


def budget_page(visit: Visit, **values: Any) -> Response:  # noqa: ANN401 - of a template
    """All levers of one data set, and the tokens of everybody."""
    view, people = visit.view(), visit.service.people
    root, entries = view.ledger.balance(view.name), view.ledger.history(view.name)
    names = [each for each in view.ledger.accounts() if each.startswith(f"{view.name}/")]
    accounts = [_account(view, name, entries) for name in names]
    shared: dict[str, Any] = {
        "title": f"Budget of {view.name}",
        "names": visit.names(),
        "data": view.name,
        "paused": visit.service.is_paused(view.name),
        "accountant": root.accountant,
        "bar": meter(root),
        "burn": burn_down(root, entries, datetime.now(UTC)),
        "buys": _buys(root),
        "shares": _shares(view, accounts),
        "purposes": _purposes(view, accounts),
        "reasons": _reasons(visit),
        "waiting": [
            _waiting(run) for run in visit.service.waiting() if visit.caller.may_see(run.dataset)
        ],
        "whole": visit.caller.datasets is None,
        "people": people.everybody(),
        "roles": ROLES,
        "tokens": people.tokens(),
        "secret": None,
        "proposal": None,
        "listed": sorted(view.hosted.policy.analysts),
        "every": EVERY,
        "renewed": renewed(root, entries),
    }
    return visit.page("budget.html", **(shared | values))


def budget(visit: Visit) -> Response:
    """One of the steward's levers; what it did is in the access log."""
    view = visit.view()
    lever = _LEVERS.get(visit.form.get("do", ""))
    if lever is None:
        raise no_such("action")
    try:
        secret = lever(visit, view)
    except NoisegateError as error:
        return budget_page(visit, status=status_of(error), error=visit.refused(error))
    if isinstance(secret, Proposal):
        return budget_page(visit, proposal=secret)
    if secret is not None:
        return budget_page(visit, secret=secret)  # shown once: no address leads to it
    return visit.to("budget", data=view.name)


def _approve(visit: Visit, _: View) -> None:
    visit.service.approve(visit.caller, visit.form.get("run", ""))


def _decline(visit: Visit, _: View) -> None:
    run = visit.service.run_of(visit.caller, visit.form.get("run", ""))
    if run.told != "waiting":
        raise SpecError("This run is not waiting.", fix="Look at its state.", about="state")
    run.cancel()
    visit.log("decline", dataset=run.dataset, run=run.id, whom=run.person)


def _revoke(visit: Visit, _: View) -> None:
    _require_whole(visit)
    visit.service.people.revoke(visit.form.get("token", ""))
    visit.log("revoke", revoked=visit.form.get("token", ""))


def _token(visit: Visit, _: View) -> str:
    """A new token; its text is shown once."""
    _require_whole(visit)
    person, days = visit.form.get("person", ""), visit.form.get("days", "").strip()
    if days and not (days.isascii() and days.isdigit() and 0 < int(days) <= 3660):
        raise SpecError("The days are not a whole number.", fix="Use 1 to 3660, or leave it empty.")
    names = [name for name in visit.service.names if visit.form.get(f"set {name}")]
    limits = {
        name: visit.form.get(name, "").strip() or None
        for name in ("epsilon_question", "epsilon_hour")
    }
    why = visit.form.get("purpose") or None
    if why is not None and why not in _reasons(visit):
        raise SpecError(
            "There is no such purpose.", fix="Use one that a policy has.", about="purpose"
        )
    text = visit.service.people.new_token(
        person,
        label=visit.form.get("label", "")[:100],
        expires=timedelta(days=int(days)) if days else None,
        datasets=names or None,
        purpose=why,
        **limits,
    )
    told = limits | ({} if why is None else {"purpose": why})
    visit.log("new-token", whom=person, made=text.split("_")[1], datasets=names, **told)
    return text


def _reasons(visit: Visit) -> list[str]:
    """The purposes of all data sets that the caller sees."""
    views = visit.service.views(visit.caller)
    return sorted({name for view in views for name in view.hosted.policy.purposes})


def _person(visit: Visit, _: View) -> None:
    _require_whole(visit)
    name, role = visit.form.get("name", "").strip(), visit.form.get("role", "")
    if role not in ROLES:
        raise SpecError("There is no such role.", fix=f"Use {', '.join(ROLES)}.", about="role")
    visit.service.people.add(name, role, visit.form.get("password") or None)
    visit.log("new-person", whom=name, role=role)


def _disable(visit: Visit, _: View) -> None:
    _require_whole(visit)
    name = visit.form.get("person", "")
    if name == visit.caller.name:
        raise SpecError("This is you.", fix="Let another steward do it.", about="self")
    visit.service.people.disable(name)
    visit.log("disable", whom=name)


def _require_whole(visit: Visit) -> None:
    """Somebody who came in for some data sets cannot make ways into others."""
    if visit.caller.datasets is not None:
        raise no_such("action")


def burn_down(balance: Balance, entries: Iterable[Entry], now: datetime) -> Burn | None:
    """What was left of a budget after each charge, by the ledger itself."""
    whole = balance.limit.amount
    held: dict[str, int] = {}
    total = 0
    steps: list[tuple[datetime, float]] = []  # when, and the share that is gone
    for entry in entries:
        if entry.kind in ("reserve", "close") and balance.account in entry.body["charges"]:
            request, charge = str(entry.body["request"]), entry.body["charges"][balance.account][0]
            total += int(charge) - held.get(request, 0)  # what is closed gives some back
            held[request] = int(charge)
            steps.append((datetime.fromisoformat(entry.at), total / whole if whole else 1.0))
    if not steps:
        return None
    first, last = steps[0][0], max(now, steps[-1][0])
    span = max((last - first).total_seconds(), 1.0)
    corners, before = [(0.0, 0.0)], 0.0
    for at, gone in [*steps[:: max(1, len(steps) // _STEPS_MAX)], steps[-1]]:
        place = 100 * (at - first).total_seconds() / span
        corners += [(place, before), (place, before := 100 * gone)]
    corners.append((100.0, before))
    charges = f"{len(held):,} charge{'s' * (len(held) != 1)}"
    words = f"{charges} since {first:%Y-%m-%d}; {number(100 - before)} % is left."
    return Burn(points=" ".join(f"{x:.2f},{y:.2f}" for x, y in corners), words=words)


def _account(view: View, account: str, entries: Sequence[Entry]) -> dict[str, Any]:
    """An account below the data set's, with what is left of it."""
    chain, holder = view.ledger.balances(account), Holder.of(view, account)
    balance = chain[0]
    return _nothing(holder.words + (_together(view) if not holder.purpose else "")) | {
        "analyst": holder.analyst,
        "purpose": holder.purpose,
        "bar": meter(balance, left=room_of(chain)),
        "burn": burn_down(balance, entries, datetime.now(UTC)),
        "questions": balance.reservations,
        "unsettled": balance.unsettled,
    }


def _shares(view: View, accounts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """By analyst; the last account of each has the form that changes the share."""
    listed = view.hosted.policy.analysts
    found = [each for each in accounts if each["analyst"]] + _unused(view, accounts)
    found.sort(key=lambda each: str(each["analyst"]))
    mine = (each for each in found if each["analyst"] in listed and not each["purpose"])
    last = {each["analyst"]: each for each in mine}
    for name, each in last.items():
        own = view.hosted.policy.windows.get(name)
        each["window"] = {term: (own and getattr(own, term)) or "" for term in ("every", "until")}
        each["epsilon"] = number(float(listed[name].epsilon))
    return found


def _unused(view: View, accounts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Shares of those who have not asked yet: no account of theirs is open."""
    policy, asked = view.hosted.policy, {each["analyst"] for each in accounts}
    why = _together(view)
    return [
        _nothing(name) | {
            "analyst": name,
            "words": f"may spend {share}{policy.windows.get(name) or ''}{why}; has not asked yet",
        }
        for name, share in policy.analysts.items()
        if name not in asked
    ]  # fmt: skip


def _together(view: View) -> str:
    """What a share is for, where there are purposes."""
    return ", for all purposes together" if view.hosted.policy.purposes else ""


def _purposes(view: View, accounts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """By purpose; those of the policy for which nobody has asked yet stand last."""
    policy = view.hosted.policy
    found = [
        each | {"name": each["name"].partition(", for ")[2]}
        for each in accounts
        if each["purpose"] and not each["analyst"]
    ]
    asked = {each["purpose"] for each in found}
    found += [
        _nothing(name)
        | {"words": f"{each.budget}{each.window}; nobody has asked yet", "purpose": name}
        for name, each in policy.purposes.items()
        if name not in asked
    ]
    more = {name: each.description for name, each in policy.purposes.items()}
    return [each | {"more": more.get(each["purpose"]) or ""} for each in found]


def _nothing(name: str) -> dict[str, Any]:
    return {
        "name": name, "analyst": None, "purpose": None, "bar": None, "burn": None, "words": "",
        "window": None, "more": "", "questions": 0, "unsettled": 0, "epsilon": "",
    }  # fmt: skip


def _buys(balance: Balance) -> list[str]:
    """What is left, in counts of persons."""
    accountant = accountant_named(balance.accountant)
    said = []
    for within in _WITHIN:
        scale = geometric_scale_for_error(within, confidence=CONFIDENCE)
        event = GeometricEvent(scale=scale, sensitivity=L1(1))
        count = questions(event, balance.remaining, accountant=accountant)
        said.append(f"about {count:,} counts of persons within ± {within}")
    return said


def _waiting(run: Run) -> dict[str, Any]:
    return {
        "id": run.id, "person": run.person, "data": run.dataset,
        "at": run.created[:16].replace("T", " "),
        "what": order_shown(run.order.to_dict()), "purpose": run.purpose or "",
        "epsilon": "" if run.price is None else up(float(run.price)),
    }  # fmt: skip


# another budget or share: first what it would mean, and only then, confirmed, the change


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


_LEVERS: Final[dict[str, Callable[[Visit, View], str | Proposal | None]]] = {
    "pause": lambda visit, view: visit.service.pause(visit.caller, view.name),
    "resume": lambda visit, view: visit.service.resume(visit.caller, view.name),
    "approve": _approve, "decline": _decline, "revoke": _revoke, "token": _token,
    "person": _person, "disable": _disable, "limit": limit,
}  # fmt: skip
