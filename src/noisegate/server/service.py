"""The service: what every face asks for, by whoever was recognised. Orders go in, runs come out.

    service = Service([Path("clinic.toml")])
    caller = service.people.by_token(text)
    view = service.view(caller, "clinic")      # one caller at one data set
    view.plan(order)                           # free
    run = view.start(order, key="…")           # queued; the same key is the same run
    run.wait(); run.result()

The tables of a policy are opened once; a caller has a gate with their own account and capabilities.
"""

import json
from collections import OrderedDict
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from threading import RLock
from typing import Any, Final, final
from uuid import uuid4

from noisegate.desk.order import Order
from noisegate.desk.plan import Expected, Plan
from noisegate.errors import Busy, Forbidden, Paused, RequestConflict, SpecError, stumbled
from noisegate.gate import Gate
from noisegate.orders import order_from
from noisegate.root import Hosted, read_policy
from noisegate.server.access import AuditLog, now
from noisegate.server.facts import facts_of
from noisegate.server.people import Caller, People
from noisegate.server.queue import FairQueue
from noisegate.server.refusals import no_such
from noisegate.server.results import Result
from noisegate.server.runs import Run
from noisegate.server.settings import Settings
from noisegate.server.store import Store

STATE_SUFFIX: Final = ".service"
_KEY_MAX: Final = 200
_SESSIONS: Final = ("many", "series")  # that hold a door open, which no request can
_RUN: Final = "id, person, dataset, key, ordered, fresh, practice, face, token, state, created"


@final
class Service:
    """Data sets, people, runs. Threads may share it."""

    def __init__(
        self,
        policies: Sequence[str | Path],
        *,
        state: str | Path | None = None,
        settings: Settings | None = None,
    ) -> None:
        self.settings = settings or Settings()
        read = [read_policy(file) for file in policies]
        names = [policy.name for policy in read]
        if not read or len(set(names)) < len(names):
            raise SpecError(
                "The service needs policies with different names.",
                fix="Give at least one policy, and each data set a name of its own.",
                about="policies",
            )
        self.store = Store(
            state if state is not None else f"{read[0].file.resolve()}{STATE_SUFFIX}"
        )
        self.people, self.log = People(self.store), AuditLog(self.store)
        self._hosted = {policy.name: Hosted(policy) for policy in read}
        self._twins: dict[str, Hosted] = {}
        self._gates: dict[tuple[object, ...], Gate] = {}
        self._runs: OrderedDict[str, Run] = OrderedDict()
        self._lock = RLock()
        self.queue = FairQueue(self.settings.workers)
        self.counts = {"asked": 0, "answered": 0, "refused": 0}

    @property
    def names(self) -> tuple[str, ...]:
        """The data sets."""
        return tuple(self._hosted)

    def view(self, caller: Caller, dataset: str) -> "View":
        """One caller at one data set; a data set that is not theirs is not there."""
        hosted = self._hosted.get(dataset)
        if hosted is None or not caller.may_see(dataset) or not _has_share(hosted, caller):
            raise no_such("data set")
        return View(self, hosted, caller)

    def views(self, caller: Caller) -> "list[View]":
        """All data sets that a caller may see."""
        seen = (name for name in self.names if caller.may_see(name))
        return [
            View(self, hosted, caller)
            for hosted in map(self._hosted.__getitem__, seen)
            if _has_share(hosted, caller)
        ]

    def run_of(self, caller: Caller, run_id: str) -> Run:
        """A run of the caller's own; stewards see all. One that is gone is made again for free."""
        run = self._runs.get(run_id) or self._again(run_id)
        theirs = run is not None and (run.person == caller.name or caller.is_steward)
        if run is None or not theirs or not caller.may_see(run.dataset):
            raise no_such("run")
        return run

    def held(self, run_id: str) -> Run | None:
        """A run that is in memory."""
        return self._runs.get(run_id)

    def waiting(self) -> list[Run]:
        """Runs that a steward has to approve."""
        with self._lock:
            return [run for run in self._runs.values() if run.state == "waiting"]

    def approve(self, caller: Caller, run_id: str) -> Run:
        """Let a waiting run go on: of stewards alone."""
        _require_steward(caller)
        run = self.run_of(caller, run_id)
        with self._lock:
            if run.state != "waiting":
                raise SpecError("This run is not waiting.", fix="Look at its state.", about="state")
            run.state = "queued"
        self.log.add(
            caller.name, "approve", face="console", token=caller.token, dataset=run.dataset,
            run=run.id, asked_by=run.person,
        )  # fmt: skip
        asker = Caller(name=run.person, role="analyst")
        self._submit(View(self, self._hosted[run.dataset], asker), run)
        return run

    # pauses

    def pause(self, caller: Caller, dataset: str) -> None:
        """Stop all questions about a data set until `resume`: of stewards alone."""
        _require_steward(caller)
        self.view(caller, dataset)
        self.store.all(
            "INSERT INTO pauses (dataset, at, person) VALUES (?, ?, ?) "
            "ON CONFLICT (dataset) DO NOTHING",
            dataset, now(), caller.name,
        )  # fmt: skip
        self.log.add(caller.name, "pause", face="console", token=caller.token, dataset=dataset)

    def resume(self, caller: Caller, dataset: str) -> None:
        """Let questions about a data set go on."""
        _require_steward(caller)
        self.view(caller, dataset)
        self.store.all("DELETE FROM pauses WHERE dataset = ?", dataset)
        self.log.add(caller.name, "resume", face="console", token=caller.token, dataset=dataset)

    def is_paused(self, dataset: str) -> bool:
        """Whether the steward stopped all questions about it."""
        return self.store.one("SELECT 1 FROM pauses WHERE dataset = ?", dataset) is not None

    def close(self) -> None:
        """Take nothing new, finish what is being worked on, let go of everything."""
        self.queue.close()
        for hosted in self._hosted.values():
            hosted.ledger.close()
        self.store.close()

    # inside

    def gate(self, hosted: Hosted, caller: Caller, *, practice: bool) -> Gate:
        """The gate of a caller: made once, shared by their threads."""
        window = hosted.window(caller.name)
        name = hosted.policy.name, practice, caller.name, caller.allow, window
        with self._lock:
            if name not in self._gates:
                home = self.twin(hosted) if practice else hosted
                self._gates[name] = home.gate(caller.name, allowed=caller.allow)
            return self._gates[name]

    def twin(self, hosted: Hosted) -> Hosted:
        """The same policy over made-up rows."""
        name = hosted.policy.name
        if name not in self._twins:
            self._twins[name] = Hosted(hosted.policy, practice=True)
        return self._twins[name]

    def begin(self, view: "View", run: Run) -> Run:
        """Keep a new run and queue it, or find the one with its key."""
        with self._lock:
            if run.key is not None and (known := self._named(run)) is not None:
                return known
            if not run.practice:
                view.require_limits(run)
            self._keep(run)
        if run.state == "queued":
            self._submit(view, run)
        return run

    def _keep(self, run: Run) -> None:
        with self._lock:
            self._runs[run.id] = run
            while len(self._runs) > self.settings.kept:
                old, first = next(iter(self._runs.items()))
                if not first.ended:
                    break
                del self._runs[old]
        price = None if run.price is None else str(run.price)
        self.store.all(
            f"INSERT INTO runs ({_RUN}, price) VALUES ({', '.join('?' * 12)}) "  # noqa: S608 - constants
            "ON CONFLICT DO NOTHING",
            run.id, run.person, run.dataset, run.key, json.dumps(run.order.to_dict()),
            int(run.fresh), int(run.practice), run.face, run.token, run.state, run.created,
            price,
        )  # fmt: skip
        self.counts["asked"] += 1

    def _submit(self, view: "View", run: Run) -> None:
        try:
            self.queue.submit(run.person, lambda: self._work(view, run))
        except Busy as error:
            run.finish(error)
            raise

    def _work(self, view: "View", run: Run) -> None:
        if not run.begin():
            return
        made: Result | Exception
        try:
            gate = view.gate_for(run)
            done = gate.run(run.order, fresh=run.fresh, progress=run.tell)
            made = Result(order=run.order, made=done, left=gate.remaining)
        except Exception as error:  # noqa: BLE001 - a run ends, whatever happened
            made = stumbled(error)
        self._record(run, made)
        run.finish(made)

    def _record(self, run: Run, made: Result | Exception) -> None:
        """Who asked what for which price, before the answer leaves."""
        failed = isinstance(made, Exception)
        self.counts["refused" if failed else "answered"] += 1
        price = Fraction(0) if isinstance(made, Exception) or run.practice else made.price.epsilon
        size = None
        if isinstance(made, Result) and (answer := made.answer) is not None:
            size = answer.table.num_rows
        self.store.all(
            "UPDATE runs SET state = ?, finished = ?, price = ? WHERE id = ?",
            "failed" if failed else "done", now(), str(price), run.id,
        )  # fmt: skip
        self.log.add(
            run.person, "practise" if run.practice else "ask", face=run.face, token=run.token,
            dataset=run.dataset, run=run.id, kind=run.order.kind, order=run.order.to_dict(),
            price=str(price), rows=size, refused=getattr(made, "code", None),
        )  # fmt: skip

    def _named(self, run: Run) -> Run | None:
        """The run that has this key already; another order under the same key is refused."""
        row = self.store.one(
            f"SELECT {_RUN} FROM runs WHERE person = ? AND dataset = ? AND key = ?",  # noqa: S608 - constants
            run.person, run.dataset, run.key,
        )  # fmt: skip
        if row is None:
            return None
        asked = json.dumps([json.loads(row[4]), bool(row[5]), bool(row[6])], sort_keys=True)
        if asked != run.text():
            raise RequestConflict(
                "The idempotency key was used for another order.",
                fix="Use a new key for a new order.",
                about="key",
            )
        known = self._runs.get(row[0])
        if known is not None and known.state != "failed":
            return known
        run.id = row[0]  # of another process, or one that failed: it goes on from the ledger
        return None

    def _again(self, run_id: str) -> Run | None:
        """A run that this process has forgotten: asked again, which is free."""
        row = self.store.one(f"SELECT {_RUN} FROM runs WHERE id = ?", run_id)  # noqa: S608 - constants
        if row is None or row[9] != "done" or row[2] not in self._hosted:
            return None
        run = _run_of(row, self.settings.quantum)
        view = View(self, self._hosted[run.dataset], Caller(name=run.person, role="analyst"))
        with self._lock:
            self._runs[run.id] = run
        self._submit(view, run)
        return run


@final
class View:
    """One caller at one data set."""

    def __init__(self, service: Service, hosted: Hosted, caller: Caller) -> None:
        self._service, self._hosted, self.caller = service, hosted, caller

    @property
    def name(self) -> str:
        """The data set."""
        return self._hosted.policy.name

    @property
    def file(self) -> Path:
        """The policy: for stewards' pages."""
        return self._hosted.policy.file

    @cached_property
    def gate(self) -> Gate:
        """The gate of the caller's account."""
        return self._service.gate(self._hosted, self.caller, practice=False)

    @cached_property
    def practice(self) -> Gate:
        """A gate in front of made-up rows: free, and says nothing about anybody."""
        return self._service.gate(self._hosted, self.caller, practice=True)

    @property
    def twin(self) -> Gate:
        """A gate of nobody's account in front of made-up rows: also for those who may not ask."""
        return self._service.twin(self._hosted).gate(None)

    @property
    def may_ask(self) -> bool:
        """Whether the caller has an account to ask from."""
        policy = self._hosted.policy
        return self.caller.name in policy.analysts if policy.analysts else _asks(self.caller)

    def facts(self) -> dict[str, Any]:
        """What is public about the data set, and the caller's balance."""
        paused = self._service.is_paused(self.name)
        gate = self.gate if self.may_ask else None
        return facts_of(self._hosted, gate) | {"paused": paused}

    def plan(
        self, order: Order[Any, Expected], *, fresh: bool = False, practice: bool = False
    ) -> Plan[Expected]:
        """Price and error of an order: free, reads no row."""
        self._require_asker()
        return (self.practice if practice else self.gate).plan(order, fresh=fresh)

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
        self._require_asker()
        if order.kind in _SESSIONS or (order.kind == "release" and _grows(order)):
            raise SpecError(
                "A session holds a door open, which one request cannot.",
                fix="Use noisegate on the steward's side, or a release.",
                about="session",
            )
        if key is not None and not (key.isprintable() and 0 < len(key) <= _KEY_MAX):
            raise SpecError(
                "The idempotency key is empty or too long.", fix=f"Use up to {_KEY_MAX} letters."
            )
        run = Run(
            id=uuid4().hex, person=self.caller.name, dataset=self.name, order=order, fresh=fresh,
            practice=practice, face=face, created=now(), key=key, token=self.caller.token,
            quantum=self._service.settings.quantum,
        )  # fmt: skip
        return self._service.begin(self, run)

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

    def history(self, limit: int = 100) -> list[dict[str, Any]]:
        """The caller's runs, the latest first; stewards and auditors see everybody's."""
        mine = "" if self.caller.sees_all else " AND person = ?"
        rows = self._service.store.all(
            f"SELECT {_RUN}, finished, price FROM runs WHERE dataset = ?{mine} "  # noqa: S608 - constants
            f"ORDER BY created DESC LIMIT {int(limit)}",
            self.name, *(() if self.caller.sees_all else (self.caller.name,)),
        )  # fmt: skip
        return [self._seen(_told(row)) for row in rows]

    def _seen(self, told: dict[str, Any]) -> dict[str, Any]:
        """A run of the history; when it ended is for those who see all, and not before it may."""
        run = self._service.held(told["id"])
        if run is not None and run.told == "running":
            return told | {"state": "running", "finished": None, "price": None}
        return told if self.caller.sees_all else told | {"finished": None}

    def head(self) -> dict[str, Any] | None:
        """The head of the data set's ledger, to be kept elsewhere: of stewards and auditors."""
        if not self.caller.sees_all:
            raise Forbidden(
                "The head of the ledger is for stewards and auditors.",
                fix="Each answer states the one that it was drawn at.",
                about="role",
            )
        head = self._hosted.ledger.log().head
        return None if head is None else head.to_dict()

    def gate_for(self, run: Run) -> Gate:
        """The gate that a run asks; new draws of a run with a key have names made of it."""
        if run.practice:
            return self.practice
        if not run.fresh:
            return self.gate
        name = run.key if run.key is not None else run.id
        digest = sha256(f"{run.person}\n{run.dataset}\n{name}\n{run.text()}".encode()).hexdigest()
        return self._hosted.gate(run.person, allowed=self.caller.allow, request=digest)

    def _require_asker(self) -> None:
        if not self.may_ask:
            raise Forbidden(
                "You have no account for questions about this data set.",
                fix="Ask the steward for a share: a line under [analysts] of the policy.",
                about="asker",
            )

    def require_limits(self, run: Run) -> None:
        """Refuse what is paused or what a token may not spend; some has to be approved first.

        What is being worked on counts with the price that was planned for it.
        """
        caller, above = self.caller, self._service.settings.approve_above
        if self._service.is_paused(self.name):
            raise Paused(
                "The steward has paused questions about this data set.",
                fix="Try again later; practice and history still work.",
            )
        if caller.epsilon_question is None and caller.epsilon_hour is None and above is None:
            return
        run.price = price = self.gate.plan(run.order, fresh=run.fresh).price.epsilon
        if caller.epsilon_question is not None and price > caller.epsilon_question:
            raise _over("one question", caller.epsilon_question)
        if caller.epsilon_hour is not None and price:
            since = (datetime.now(UTC) - timedelta(hours=1)).isoformat(timespec="milliseconds")
            rows = self._service.store.all(
                "SELECT price FROM runs WHERE token = ? AND created > ? AND practice = 0",
                caller.token, since,
            )  # fmt: skip
            spent = sum((Fraction(row[0]) for row in rows if row[0] is not None), Fraction(0))
            if spent + price > caller.epsilon_hour:
                raise _over("an hour", caller.epsilon_hour)
        if above is not None and price > above:
            run.state = "waiting"


def _over(what: str, limit: Fraction) -> Forbidden:
    return Forbidden(
        f"This token may spend ε = {float(limit):g} for {what}, and no more.",
        fix="Ask for less, later, or with another token. Nothing was spent.",
        about="token",
    )


def _asks(caller: Caller) -> bool:
    return caller.role == "analyst"


def _has_share(hosted: Hosted, caller: Caller) -> bool:
    """Whether a data set is there for a caller at all."""
    analysts = hosted.policy.analysts
    return caller.sees_all or not analysts or caller.name in analysts


def _require_steward(caller: Caller) -> None:
    if not caller.is_steward:
        raise Forbidden("This is for stewards.", fix="Ask the steward.", about="role")


def _grows(order: Order[Any, Expected]) -> bool:
    return getattr(order, "until", None) is not None


def _run_of(row: Sequence[Any], quantum: float) -> Run:
    name, person, dataset, key, text, fresh, practice, face, token, _, created = row
    return Run(
        id=name, person=person, dataset=dataset, order=order_from(json.loads(text)),
        fresh=bool(fresh), practice=bool(practice), face=face, created=created, key=key,
        token=token, quantum=quantum,
    )  # fmt: skip


def _told(row: Sequence[Any]) -> dict[str, Any]:
    name, person, dataset, key, text, fresh, practice, face, _, state, created, done, price = row
    order = json.loads(text)
    return {
        "id": name, "person": person, "dataset": dataset, "key": key, "kind": order["kind"],
        "sql": order.get("sql"), "order": order, "fresh": bool(fresh), "practice": bool(practice),
        "face": face, "state": state, "created": created, "finished": done,
        "price": None if price is None else float(Fraction(price)),
    }  # fmt: skip
