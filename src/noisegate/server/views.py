"""One caller at one data set: what may be seen, planned and started there."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from functools import cached_property
from hashlib import sha256
from io import StringIO
from pathlib import Path
from typing import Any, Final, Protocol, final
from uuid import uuid4

from noisegate.desk.display.prompt import plain_end
from noisegate.desk.order import Order
from noisegate.desk.plan import Expected, Plan
from noisegate.desk.sent import loss_texts
from noisegate.errors import Forbidden, Paused, SpecError, UserError
from noisegate.gate import Gate, as_of
from noisegate.ledger.account import Balance, room_of
from noisegate.ledger.ledger import Ledger
from noisegate.ledger.signing import Signer
from noisegate.ledger.verify.anchor import signed
from noisegate.privacy.capability import CAPABILITIES
from noisegate.privacy.domain import Column, TableDomain
from noisegate.privacy.guarantee import units_of
from noisegate.privacy.unit import protected
from noisegate.root import Hosted
from noisegate.server.access import AuditLog, now
from noisegate.server.people import Caller
from noisegate.server.refusals import no_such
from noisegate.server.runs import RUN, Known, Run
from noisegate.server.settings import Settings
from noisegate.server.store import Do, Store


def facts_of(hosted: "Hosted", gate: "Gate | None") -> dict[str, Any]:
    """A data set for people who may ask it. Nothing in here is derived from private rows."""
    policy = hosted.policy
    allowed = hosted.policy.allowed if gate is None else gate.door.allowed
    return {
        "name": policy.name,
        "protects": protected(units_of(hosted.tables.values())),
        "snapshot": policy.snapshot,
        "accountant": policy.accountant,
        "default_epsilon": number(policy.default_epsilon),
        "max_epsilon": number(policy.max_epsilon),
        "capabilities": {name: name in allowed for name in CAPABILITIES},
        "tables": [table_facts(table) for table in hosted.tables.values()],
        "budget": None if gate is None else budget_facts(gate.door.balances()),
        "exact": None if gate is None else _exact(gate),
    }


def table_facts(table: TableDomain) -> dict[str, Any]:
    """A table: whose rows, and its columns but for the hidden ones."""
    return {
        "name": table.name,
        "public": table.is_public,
        "unit": None if (unit := table.unit) is None else str(unit),
        "owner": unit and {"column": unit.column, "noun": unit.noun, "ids": unit.ids},
        "rows_per_unit": table.rows_per_unit_max,
        "rows_per_unit_holds": table.rows_per_unit_holds,
        "groups_per_unit": table.groups_per_unit_max,
        "columns": [_column(each) for each in table.columns.values() if not each.hidden],
    }


def _column(column: Column) -> dict[str, Any]:
    keys = None if column.keys is None else [_plain(key) for key in column.keys]
    ends = column.between
    between = None if ends is None else [plain_end(end, column.kind) for end in ends]
    return {
        "name": column.name, "type": column.kind.value, "nullable": column.nullable,
        "in": keys, "between": between,
    }  # fmt: skip


def budget_facts(balances: Sequence[Balance]) -> dict[str, Any]:
    """An account: its budget, what was spent of it, and what it and those above it have left."""
    budget, spent, left = balances[0].budget, balances[0].spent, room_of(balances)
    return {
        "epsilon": float(budget.epsilon), "delta": float(budget.delta),
        "spent": float(spent.epsilon), "spent_delta": float(spent.delta),
        "remaining": float(left.epsilon), "remaining_delta": float(left.delta),
    }  # fmt: skip


def _exact(gate: "Gate") -> dict[str, list[str]]:
    """The balance in exact numbers, as texts."""
    return {"spent": loss_texts(gate.spent), "remaining": loss_texts(gate.remaining)}


def _plain(key: object) -> object:
    return key if key is None or isinstance(key, str | int | bool) else str(key)


def number(said: Fraction | None) -> float | None:
    """An exact number as JSON has it."""
    return None if said is None else float(said)


_KEY_MAX: Final = 200
_SESSIONS: Final = ("many", "series")  # that hold a door open, which no request can


class Behind(Protocol):
    """What a view asks of the service behind it."""

    settings: Settings
    signer: Signer | None
    store: Store
    log: AuditLog

    def gate(
        self, hosted: Hosted, caller: Caller, *, practice: bool, purpose: str | None = None
    ) -> Gate:
        """The gate of a caller."""

    def is_paused(self, dataset: str) -> bool:
        """Whether the steward stopped all questions about it."""

    def held(self, run_id: str) -> Run | None:
        """A run that is in memory."""

    def begin(self, view: "View", run: Run) -> Run:
        """Keep a new run and queue it."""

    def known(self, view: "View", run: Run) -> Known | None:
        """What can be told again without any work."""


@final
class View:
    """One caller at one data set, for one purpose where its policy has purposes."""

    def __init__(
        self, service: Behind, hosted: Hosted, caller: Caller, purpose: str | None = None
    ) -> None:
        self._service, self.hosted, self.caller = service, hosted, caller
        self._said = caller.purpose if purpose is None else purpose
        if caller.purpose is not None and self._said != caller.purpose:
            raise Forbidden(
                f"This token is for the purpose {caller.purpose!r} alone.",
                fix="Leave out the purpose, or use another token. Nothing was spent.",
                about="purpose",
            )

    def on(self, purpose: str | None) -> "View":
        """The same for a purpose; None: as it is."""
        if purpose is None:
            return self
        return View(self._service, self.hosted, self.caller, purpose)

    @property
    def purpose(self) -> str | None:
        """What is asked for; refuses none where the policy has purposes and no default."""
        found = self.hosted.purpose(self._said)
        return None if found is None else found.name

    @property
    def has_purpose(self) -> bool:
        """Whether it is known what is asked for, or need not be."""
        known = any(each.default for each in self.hosted.policy.purposes.values())
        return self._said is not None or known or not self.hosted.policy.purposes

    @property
    def name(self) -> str:
        """The data set."""
        return self.hosted.policy.name

    @property
    def file(self) -> Path:
        """The policy: for stewards' pages."""
        return self.hosted.policy.file

    @property
    def ledger(self) -> Ledger:
        """The ledger behind the data set: for those who may see what others asked."""
        if not self.caller.sees_all:
            raise no_such("ledger")
        return self.hosted.ledger

    @cached_property
    def gate(self) -> Gate:
        """The gate of the caller's account."""
        return self._service.gate(self.hosted, self.caller, practice=False, purpose=self.purpose)

    @cached_property
    def practice(self) -> Gate:
        """A gate in front of made-up rows: free, and says nothing about anybody."""
        return self._service.gate(self.hosted, self.caller, practice=True)

    @property
    def may_ask(self) -> bool:
        """Whether the caller has an account to ask from."""
        policy = self.hosted.policy
        caller = self.caller
        return caller.name in policy.analysts if policy.analysts else caller.role == "analyst"

    def facts(self) -> dict[str, Any]:
        """What is public about the data set, and the caller's balance."""
        paused = self._service.is_paused(self.name)
        if self._said not in (None, self.caller.purpose):
            self.hosted.purpose(self._said)  # refuses one that there is not
        facts = facts_of(self.hosted, self._open)
        return facts | {"paused": paused, "share": self.share(), "purposes": self._purposes()}

    def share(self) -> dict[str, Any] | None:
        """What the caller may spend for all purposes together; None where they may not ask now."""
        try:
            return budget_facts(self.hosted.share(self.caller.name)) if self.may_ask else None
        except UserError:
            return None

    def budgets(self) -> dict[str, Any]:
        """What the caller may spend; stewards and auditors see all accounts."""
        told = {"dataset": self.name, "share": self.share(), "purposes": self._purposes()}
        if not self.caller.sees_all:
            return told
        chains = [self.ledger.balances(each) for each in self.ledger.accounts()]
        return told | {"accounts": [
            {"account": own.account, "below": [*filter(None, (own.parent, *own.also))],
             "accountant": own.accountant, "questions": own.reservations, **budget_facts(chain)}
            for chain in chains if chain[-1].account == self.name for own in chain[:1]
        ]}  # fmt: skip

    @property
    def _open(self) -> Gate | None:
        """The gate, where the caller may ask just now: not after a last day, nor for no purpose."""
        try:
            return self.gate if self.may_ask else None
        except UserError:
            return None

    def _purposes(self) -> list[dict[str, Any]]:
        """What the caller may ask for, and what is left of each."""
        found = []
        for purpose in self.hosted.policy.purposes.values():
            bound = self.caller.purpose not in (None, purpose.name)
            if bound or (purpose.analysts is not None and self.caller.name not in purpose.analysts):
                continue
            gate = self.on(purpose.name)._open  # noqa: SLF001 - of the same class
            left = None if gate is None else gate.remaining
            found.append({
                "name": purpose.name, "description": purpose.description,
                "default": purpose.default, "epsilon": float(purpose.budget.epsilon),
                "every": purpose.window.every,
                "until": None if purpose.window.until is None else str(purpose.window.until),
                "remaining": None if left is None else float(left.epsilon),
                "remaining_delta": None if left is None else float(left.delta),
            })  # fmt: skip
        return found

    def plan(
        self, order: Order[Any, Expected], *, fresh: bool = False, practice: bool = False
    ) -> Plan[Expected]:
        """Price and error of an order: free, reads no row."""
        self._require_asker()
        return (self.practice if practice else self.gate).plan(order, fresh=fresh)

    def settled(
        self, order: Order[Any, Expected], *, fresh: bool = False, practice: bool = False
    ) -> Order[Any, Expected]:
        """The order with a number for its price, where that is a part of what is left now."""
        self._require_asker()
        return (self.practice if practice else self.gate).settled(order, fresh=fresh)

    def start(
        self,
        order: Order[Any, Expected],
        *,
        key: str | None = None,
        fresh: bool = False,
        practice: bool = False,
        face: str = "http",
    ) -> Run:
        """Queue an order. With a ``key`` it is asked and paid for once."""
        run = self._run(order, key=key, fresh=fresh, practice=practice, face=face)
        return self._service.begin(self, run)

    def known(self, order: Order[Any, Expected], *, face: str = "http") -> Known | None:
        """What can be told again without any work; None: `start` it instead."""
        run = self._run(order, key=None, fresh=False, practice=False, face=face)
        return self._service.known(self, run)

    def _run(
        self, order: Order[Any, Expected], *, key: str | None, fresh: bool, practice: bool,
        face: str,
    ) -> Run:  # fmt: skip
        self._require_asker()
        grows = order.kind == "release" and getattr(order, "until", None) is not None
        if order.kind in _SESSIONS or grows:
            raise SpecError(
                "A session holds a door open, which one request cannot.",
                fix="Use noisegate on the steward's side, or a release.",
                about="session",
            )
        if key is not None and not (key.isprintable() and 0 < len(key) <= _KEY_MAX):
            raise SpecError(
                "The idempotency key is empty or too long.", fix=f"Use up to {_KEY_MAX} letters."
            )
        purpose = None if practice else self.purpose
        window = None if practice else self.hosted.window(self.caller.name, purpose)
        return Run(
            id=uuid4().hex, person=self.caller.name, dataset=self.name, order=order, fresh=fresh,
            practice=practice, face=face, created=now(), key=key, token=self.caller.token,
            allow=self.caller.allow, window=window, purpose=purpose,
            quantum=self._service.settings.quantum,
        )  # fmt: skip

    def ask(
        self,
        order: Order[Any, Expected],
        *,
        key: str | None = None,
        fresh: bool = False,
        practice: bool = False,
        face: str = "http",
        seconds: float | None = None,
    ) -> Run:
        """Start and wait; raises what the run raised, or that it is not done in time."""
        run = self.start(order, key=key, fresh=fresh, practice=practice, face=face)
        run.wait(seconds)
        run.result()
        return run

    def has_begun(self, key: str) -> bool:
        """Whether the caller asked with this key before: then it goes on at its price."""
        found = "SELECT 1 FROM runs WHERE person = ? AND dataset = ? AND key = ?"
        return self._service.store.one(found, self.caller.name, self.name, key) is not None

    def history(self, limit: int = 100) -> list[dict[str, Any]]:
        """The caller's runs, the latest first; stewards and auditors see everybody's."""
        mine = "" if self.caller.sees_all else " AND person = ?"
        rows = self._service.store.all(
            f"SELECT {RUN}, finished, COALESCE(price, pending) FROM runs WHERE dataset = ?{mine} "  # noqa: S608 - constants
            f"ORDER BY created DESC LIMIT {int(limit)}",
            self.name, *(() if self.caller.sees_all else (self.caller.name,)),
        )  # fmt: skip
        return [self._seen(_told(row)) for row in rows]

    def _seen(self, told: dict[str, Any]) -> dict[str, Any]:
        """A run of the history; when it ended is for those who see all, and not before it may."""
        run = self._service.held(told["id"])
        if run is not None and not run.settled:
            return told | {"state": run.told, "finished": None, "price": None}
        return told if self.caller.sees_all else told | {"finished": None}

    def head(self) -> dict[str, Any] | None:
        """The head of the data set's ledger, to be kept elsewhere: of stewards and auditors."""
        if not self.caller.sees_all:
            raise Forbidden(
                "The head of the ledger is for stewards and auditors.",
                fix="Each answer states the one that it was drawn at.",
                about="role",
            )
        head, signer = self.hosted.ledger.log().head, self._service.signer
        if head is None or signer is None:
            return None if head is None else head.to_dict()
        return signed(head, signer)

    def export(self) -> tuple[bytes, dict[str, Any]]:
        """The ledger as JSON lines, and the head that they end with: of stewards and auditors.

        The head is read before the lines, so that it lies among them: `noisegate ledger restore`
        refuses an export that does not hold a head which somebody kept. Several data sets may share
        a ledger: who may not see one of them is given none of it.
        """
        head, lines, ledger = self.head(), StringIO(), self.hosted.ledger
        kept = [name for name in ledger.accounts() if ledger.balance(name).parent is None]
        if not all(map(self.caller.may_see, kept)):
            raise Forbidden(
                "This ledger is also that of a data set which you may not see.",
                fix="Use a token for all of them, or ask another steward or auditor.",
                about="shared-ledger",
            )
        ledger.export(lines)
        self._service.log.add(
            self.caller.name, "export", face="http", token=self.caller.token, dataset=self.name
        )
        return lines.getvalue().encode(), head or {}

    def gate_for(self, run: Run) -> Gate:
        """The gate that a run asks, as of the moment when it was begun, whenever it is tried.

        New draws of a run with a key have names made of it.
        """
        if run.practice:
            return as_of(self.practice, run.moment)
        if not (run.fresh or run.finding):
            return as_of(self.gate, run.moment)
        name = run.key if run.key is not None else run.id
        digest = sha256(f"{run.person}\n{run.dataset}\n{name}\n{run.text}".encode()).hexdigest()
        opened = self.hosted.found if run.finding else self.hosted.gate
        made = opened(
            run.person, allowed=run.allow, request=digest, window=run.window, purpose=run.purpose
        )
        return as_of(made, run.moment)

    def _require_asker(self) -> None:
        if not self.may_ask:
            raise Forbidden(
                "You have no account for questions about this data set.",
                fix="Ask the steward for a share: a line under [analysts] of the policy.",
                about="asker",
            )

    def spent_this_hour(self, do: Do | None = None, but: str = "") -> Fraction:
        """What this token, or this person without one, was charged in the last hour, and may be.

        What is being worked on counts with the price that was planned for it, ``but`` one run.
        """
        since = (datetime.now(UTC) - timedelta(hours=1)).isoformat(timespec="milliseconds")
        token = self.caller.token
        named, name = ("person", self.caller.name) if token is None else ("token", token)
        told = (
            "SELECT CASE WHEN COALESCE(charged, created) > ? THEN price END, "  # noqa: S608 - constants
            f"CASE WHEN asked > ? AND id <> ? THEN pending END FROM runs WHERE {named} = ? "
            "AND practice = 0 AND (COALESCE(charged, created) > ? OR asked > ?)"
        )
        terms = (since, since, but, name, since, since)
        rows = self._service.store.all(told, *terms) if do is None else do(told, terms)
        return sum((Fraction(each) for row in rows for each in row if each), Fraction(0))

    def require_open(self) -> None:
        """Refuse what is paused."""
        if self._service.is_paused(self.name):
            raise Paused(
                "The steward has paused questions about this data set.",
                fix="Try again later; practice and history still work.",
            )

    def price_of(self, run: Run) -> Fraction | None:
        """What a run may cost, where a limit asks for that; refused above that of one question.

        A part of what is left is what was left when it was asked first.
        """
        caller, above = self.caller, self._service.settings.approve_above
        unlimited = (caller.epsilon_question, caller.epsilon_hour, above) == (None, None, None)
        gate = as_of(self.gate, run.moment)
        try:
            run.settled_order = run.settled_order or gate.settled(run.order, fresh=run.fresh)
        except UserError:
            if not unlimited:
                raise
        if unlimited:
            return None  # what is refused is refused as it is worked on
        price = gate.plan(run.settled_order or run.order, fresh=run.fresh).price.epsilon
        if caller.epsilon_question is not None and price > caller.epsilon_question:
            raise _over("one question", caller.epsilon_question)
        return price

    def require_hour(self, run: Run, do: Do) -> None:
        """Refuse what a token may not spend in an hour: in the transaction that keeps the run."""
        hour, price = self.caller.epsilon_hour, run.price
        if hour is not None and price and self.spent_this_hour(do, run.id) + price > hour:
            raise _over("an hour", hour)


def asked(view: View, run: Run) -> tuple[object, ...]:
    """Who asked what: the same gives the same answer, which is then free."""
    return run.dataset, run.person, view.caller.allow, run.window, run.text  # and for what


def _over(what: str, limit: Fraction) -> Forbidden:
    return Forbidden(
        f"This token may spend ε = {float(limit):g} for {what}, and no more.",
        fix="Ask for less, later, or with another token. Nothing was spent.",
        about="token",
    )


def _told(row: Sequence[Any]) -> dict[str, Any]:
    name, person, dataset, key, text, fresh, practice, face, _, state, created, *_, done, price = (
        row
    )
    order = json.loads(text)
    purpose = order.pop("purpose", None)
    return {
        "id": name, "person": person, "dataset": dataset, "key": key, "kind": order["kind"],
        "sql": order.get("sql"), "order": order, "purpose": purpose,
        "fresh": bool(fresh), "practice": bool(practice),
        "face": face, "state": state, "created": created, "finished": done,
        "price": None if price is None else float(Fraction(price)),
    }  # fmt: skip
