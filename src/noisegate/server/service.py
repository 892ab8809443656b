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
from contextlib import nullcontext, suppress
from fractions import Fraction
from functools import partial
from itertools import islice
from pathlib import Path
from threading import RLock
from typing import Final, final

from noisegate.accounting.accountant import Charge
from noisegate.accounting.accountants import accountant_named
from noisegate.errors import (
    Busy,
    NoisegateError,
    OverBudget,
    RequestConflict,
    SpecError,
    stumbled,
)
from noisegate.gate import Gate
from noisegate.ledger.rules import require_text
from noisegate.ledger.signing import Signer
from noisegate.privacy.loss import ApproxDP
from noisegate.root import Amendment, Hosted, read_policy, stopping
from noisegate.server.access import AuditLog, line, now
from noisegate.server.oidc import Issuer
from noisegate.server.people import Caller, People
from noisegate.server.pictures import Pictures
from noisegate.server.published import Published
from noisegate.server.queue import FairQueue
from noisegate.server.refusals import no_such
from noisegate.server.remembered import Remembered
from noisegate.server.results import UNPRICED, Result
from noisegate.server.runs import RUN, Known, Run, State, settling, stored_run, wait_to_settle
from noisegate.server.settings import Settings
from noisegate.server.store import Do, Store
from noisegate.server.views import View

_NOTHING: Final = Fraction(0)
_STATE: Final = RUN.split(", ").index("state")
STATE_SUFFIX: Final = ".service"
_MADE: Final = 1000  # gates that are made before anybody asks
_KEYED: Final = 64  # locks, one of which belongs to each idempotency key


@final
class Service:
    """Data sets, people, runs. Threads may share it."""

    def __init__(
        self,
        policies: Sequence[str | Path],
        *,
        state: str | Path | None = None,
        settings: Settings | None = None,
        issuer: Issuer | None = None,
        signer: Signer | None = None,
    ) -> None:
        self.settings, self.signer = settings or Settings(), signer
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
        self.people, self.log = People(self.store, issuer), AuditLog(self.store)
        self._hosted = {policy.name: Hosted(policy) for policy in read}
        for hosted in self._hosted.values():
            hosted.ledger.pause = wait_to_settle
        self._twins: dict[str, Hosted] = {}
        self._gates: dict[tuple[object, ...], Gate] = {}
        self._runs: OrderedDict[str, Run] = OrderedDict()
        self._answers = Remembered(self.settings.kept, self.settings.quantum)
        self._lock, self._keyed = RLock(), [RLock() for _ in range(_KEYED)]
        self.queue = FairQueue(self.settings.workers)
        self.published = Published(self.store, self.log, self.run_of)
        self.pictures = Pictures()
        self.counts = {"asked": 0, "answered": 0, "refused": 0}

    @property
    def names(self) -> tuple[str, ...]:
        """The data sets."""
        return tuple(self._hosted)

    def view(self, caller: Caller, dataset: str) -> View:
        """One caller at one data set; a data set that is not theirs is not there."""
        hosted = self._hosted.get(dataset)
        if hosted is None or not caller.may_see(dataset) or not _has_share(hosted, caller):
            raise no_such("data set")
        return View(self, hosted, caller)

    def views(self, caller: Caller) -> list[View]:
        """All data sets that a caller may see."""
        seen = (name for name in self.names if caller.may_see(name))
        return [
            View(self, hosted, caller)
            for hosted in map(self._hosted.__getitem__, seen)
            if _has_share(hosted, caller)
        ]

    def run_of(self, caller: Caller, run_id: str) -> Run:
        """A run of the caller's own; stewards see all. One that is gone is made again for free."""
        known = self._runs.get(run_id)
        run = known or self._stored(run_id)
        theirs = run is not None and (run.person == caller.name or caller.is_steward)
        if run is None or not theirs or not caller.may_see(run.dataset):
            raise no_such("run")
        if known is None and not self._again(run):
            raise no_such("run")
        return self._runs.get(run_id, run)

    def held(self, run_id: str) -> Run | None:
        """A run that is in memory."""
        return self._runs.get(run_id)

    def waiting(self) -> list[Run]:
        """Runs that a steward has to approve."""
        with self._lock:
            return [run for run in self._runs.values() if run.state == "waiting"]

    def approve(self, caller: Caller, run_id: str) -> Run:
        """Let a waiting run go on: of stewards alone."""
        caller.require_steward()
        run = self.run_of(caller, run_id)
        log = partial(
            self.log.add, caller.name, "approve", face="console", token=caller.token,
            dataset=run.dataset, run=run.id, asked_by=run.person,
        )  # fmt: skip
        if not run.approve(log):
            raise SpecError("This run is not waiting.", fix="Look at its state.", about="state")
        asker = Caller(name=run.person, role="analyst", token=run.token, allow=run.allow)
        self._submit(View(self, self._hosted[run.dataset], asker, run.purpose), run)
        return run

    def amend(self, caller: Caller, change: Amendment, reason: str) -> None:
        """Make another budget or share: of stewards alone, and logged before it is made."""
        caller.require_steward()
        name = change.policy.name
        self.view(caller, name)
        require_text(reason, "reason")
        said = {"analyst": change.analyst, "before": change.before, "after": change.after}
        told = {key: str(value) for key, value in said.items() if value is not None}
        self.log.add(
            caller.name, "budget", face="console", token=caller.token, dataset=name, reason=reason,
            **told,
        )  # fmt: skip
        with self._lock:
            try:
                change.make(reason)
            finally:  # whatever was made of it, no gate goes on with terms of before
                self._twins.pop(name, None)  # it knows the shares, too
                self._answers.changed(name)
                for key in [key for key in self._gates if key[0] == name]:
                    del self._gates[key]

    # pauses

    def pause(self, caller: Caller, dataset: str) -> None:
        """Stop all questions about a data set until `resume`: of stewards alone."""
        caller.require_steward()
        self.view(caller, dataset)
        self.store.all(
            "INSERT INTO pauses (dataset, at, person) VALUES (?, ?, ?) "
            "ON CONFLICT (dataset) DO NOTHING",
            dataset, now(), caller.name,
        )  # fmt: skip
        self.log.add(caller.name, "pause", face="console", token=caller.token, dataset=dataset)

    def resume(self, caller: Caller, dataset: str) -> None:
        """Let questions about a data set go on."""
        caller.require_steward()
        self.view(caller, dataset)
        self.store.all("DELETE FROM pauses WHERE dataset = ?", dataset)
        self.log.add(caller.name, "resume", face="console", token=caller.token, dataset=dataset)

    def is_paused(self, dataset: str) -> bool:
        """Whether the steward stopped all questions about it."""
        return self.store.one("SELECT 1 FROM pauses WHERE dataset = ?", dataset) is not None

    def open_shares(self) -> None:
        """Open the accounts of analysts now, so that nobody waits for it with a question."""
        for hosted in self._hosted.values():
            hosted.open_shares()
            for name in islice(() if hosted.policy.purposes else hosted.policy.analysts, _MADE):
                with suppress(NoisegateError):  # told to whoever asks
                    self.gate(hosted, Caller(name=name, role="analyst"), practice=False)

    def close(self) -> None:
        """Take nothing new, finish what is being worked on, let go of everything."""
        self.queue.close()
        self.pictures.close()
        for hosted in self._hosted.values():
            hosted.ledger.close()
        self.store.close()

    # inside

    def gate(
        self, hosted: Hosted, caller: Caller, *, practice: bool, purpose: str | None = None,
        anew: bool = False,
    ) -> Gate:  # fmt: skip
        """The gate of a caller: made once, or ``anew``; shared by their threads."""
        window = None if practice else hosted.window(caller.name, purpose)
        name = hosted.policy.name, practice, caller.name, caller.allow, window, purpose
        if not anew and (known := self._gates.get(name)) is not None:
            return known
        with self._lock:
            if anew or name not in self._gates:
                if practice and name[0] not in self._twins:
                    self._twins[name[0]] = Hosted(hosted.policy, practice=True)
                home = self._twins[name[0]] if practice else hosted
                self._gates[name] = home.gate(caller.name, allowed=caller.allow, purpose=purpose)
            return self._gates[name]

    def begin(self, view: View, run: Run) -> Run:
        """Keep a new run and queue it, or find the one with its key.

        What is ready is written down as done with the same stroke.
        """
        with self._keyed[hash(run.key) % len(self._keyed)] if run.key else nullcontext():
            if (known := self._named(run)) is not None:
                return known
            if not run.practice and not run.finding:
                view.require_open()
                run.price, above = view.price_of(run), self.settings.approve_above
                if above is not None and run.price is not None and run.price > above:
                    run.state = "waiting"
            ready = self._answers.again(view, run)
            known = self.store.do(lambda do: self._write(view, run, do, ready))
            if known is not None:
                return known
            self._keep(run)
        if ready is not None:
            run.finish_at_once(ready)
        elif run.state == "queued":
            self._submit(view, run)
        return run

    def known(self, view: View, run: Run) -> Known | None:
        """What needs neither queue, plan nor ledger to be told again; None: it is not so simple."""
        caller, above = view.caller, self.settings.approve_above
        limits = caller.epsilon_question, caller.epsilon_hour, above, run.key
        plain = self.store.is_quick and limits == (None,) * 4 and run.order.part is None
        if not plain or (ready := self._answers.at_hand(view, run)) is None:
            return None
        view.require_open()
        run.settled_order = view.settled(run.order)
        write = partial(self._write, view, run, ready=ready)
        return Known(run=run, ready=ready, write=write, keep=self._keep)

    def _keep(self, run: Run) -> None:
        run.on_cancel = lambda: self._cancelled(run)
        with self._lock:
            self._runs[run.id] = run
            while len(self._runs) > self.settings.kept:
                old, first = next(iter(self._runs.items()))
                if not first.ended:
                    break
                del self._runs[old]
        self.counts["asked"] += 1

    def _write(self, view: View, run: Run, do: Do, ready: Result | None = None) -> Run | None:
        """Write a run down, with the price that is planned for; or find the one with its key.

        In one transaction with the limit of the hour, and nobody else writes meanwhile: neither a
        thread nor another replica can come between.
        """
        known = self._named(run, do)
        if known is not None or run.finding:
            return known
        view.require_hour(run, do)
        pending = None if run.price is None else str(run.price)
        same = run.settled_order is run.order or run.settled_order == run.order
        settled = None if same else run.settled_order
        do(
            f"INSERT INTO runs ({RUN}, asked, pending) VALUES ({', '.join('?' * 17)}) "  # noqa: S608 - constants
            "ON CONFLICT (id) DO UPDATE SET state = excluded.state, asked = excluded.asked, "
            "pending = COALESCE(NULLIF(runs.pending, '0'), excluded.pending), token = CASE WHEN "
            "COALESCE(runs.price, '0') = '0' THEN excluded.token ELSE runs.token END",
            (
                run.id, run.person, run.dataset, run.key, json.dumps(run.said),
                int(run.fresh), int(run.practice), run.face, run.token, run.state, run.created,
                run.window, None if run.allow is None else json.dumps(sorted(run.allow)),
                settled and settled.to_json(), None, now(), pending,
            ),
        )  # fmt: skip
        if ready is not None:
            self._record(do, run, ready, _NOTHING)
        return None

    def _cancelled(self, run: Run) -> None:
        """The store says so too, whether the work was over or not."""
        if run.finding:
            return
        idle = ", pending = NULL" if run.settled else ""  # it was not begun
        self.store.all(f"UPDATE runs SET state = 'cancelled'{idle} WHERE id = ?", run.id)  # noqa: S608 - constants

    def _submit(self, view: View, run: Run) -> None:
        try:
            self.queue.submit(run.person, lambda: self._work(view, run))
        except Busy as error:
            run.finish(error)
            if run.finding:
                self._runs.pop(run.id, None)
            else:
                failed = "UPDATE runs SET state = 'failed', pending = NULL WHERE id = ?"
                self.store.all(failed, run.id)
            raise

    def _require_still(self, view: View, run: Run) -> None:
        """Refuse what was stopped while it waited: a pause, a person, a token, a last day."""
        if run.finding:
            return
        if not run.practice:
            view.require_open()
            view.hosted.window(run.person, run.purpose)
        self.people.require_live(run.person, run.token)

    def _work(self, view: View, run: Run) -> None:
        if not run.begin():
            return
        made: Result | Exception
        gate, before = None, Charge(0, 0)
        try:
            self._require_still(view, run)
            gate, planned = view.gate_for(run), None
            before = gate.ledger.balance(gate.door.account).charge
            order = run.settled_order or run.order
            if run.order.kind in UNPRICED:
                planned = gate.plan(order, fresh=run.fresh).price
            with stopping(run.stop), nullcontext() if run.practice else settling(run.pause):
                try:
                    done = gate.run(order, fresh=run.fresh, progress=run.tell)
                except OverBudget:
                    if not run.practice:
                        raise
                    gate = self.gate(view.hosted, view.caller, practice=True, anew=True)
                    done = gate.run(order, fresh=run.fresh, progress=run.tell)
            signer = None if run.practice else self.signer
            told = getattr(done, "remaining", None)
            left = told if isinstance(told, ApproxDP) else gate.remaining
            made = Result(order=run.order, made=done, left=left, planned=planned, signer=signer)
            if run.finding and run.cost is not None:
                made = made.at(run.cost)
            if not run.practice and not run.fresh and made.is_lasting:
                self._answers.keep(view, run, made)
        except Exception as error:  # noqa: BLE001 - a run ends, whatever happened
            made = stumbled(error)
        lost = _NOTHING
        if gate is not None and not run.practice and (run.again or isinstance(made, Exception)):
            lost = _lost(gate, before)
        self._answers.changed(run.dataset)
        self._end(run, made, lost)
        run.rest()

    def _end(self, run: Run, made: Result | Exception, lost: Fraction = _NOTHING) -> None:
        """Write down who asked what; then the answer may leave, and not without that."""
        try:
            self.store.do(partial(self._record, run=run, made=made, lost=lost))
        except Exception as error:  # noqa: BLE001 - the same request finds what was drawn
            made = stumbled(error)
        run.finish(made)

    def _record(self, do: Do, run: Run, made: Result | Exception, lost: Fraction) -> None:
        """Who asked what for which price, on the disk before the answer leaves.

        What failed on the way may have been charged: its price is what the account has ``lost``.
        What is tried again was charged for before, unless the account has lost more since.
        """
        failed = isinstance(made, Exception)
        self.counts["refused" if failed else "answered"] += 1
        price, is_old = lost, run.finding or (run.again and not lost)
        if isinstance(made, Result) and not run.practice and not is_old:
            price, run.cost = made.price.epsilon, made.price
        size = None
        if isinstance(made, Result) and (answer := made.answer) is not None:
            size = answer.table.num_rows
        if not (run.finding and failed):
            self._paid(do, run, price, "failed" if failed else "done")
        said = {
            "run": run.id, "kind": run.order.kind, "order": run.said, "price": str(price),
            "rows": size, "refused": getattr(made, "code", None),
        }  # fmt: skip
        self.log.write(do, line(
            run.person, "practise" if run.practice else "ask", face=run.face, token=run.token,
            dataset=run.dataset, **said,
        ))  # fmt: skip

    def _paid(self, do: Do, run: Run, price: Fraction, state: State) -> None:
        """Write down how a run ended; what it was charged adds to what it was before."""
        rows = do("SELECT price, pending FROM runs WHERE id = ?", (run.id,))
        before, pending = (Fraction(each or 0) for each in (rows[0] if rows else (0, 0)))
        if run.again and state == "done" and not before + price:
            price = pending  # charged by a process that died before it could say so
        cost = None if run.cost is None else f"{run.cost.epsilon} {run.cost.delta}"
        do(
            "UPDATE runs SET state = CASE state WHEN 'cancelled' THEN state ELSE ? END, "
            "finished = ?, price = ?, pending = NULL, charged = COALESCE(?, charged), "
            "cost = ? WHERE id = ?",
            (state, now(), str(before + price), now() if price else None, cost, run.id),
        )  # fmt: skip

    def _named(self, run: Run, do: Do | None = None) -> Run | None:
        """The run that has this key already; another order under the same key is refused.

        One of another process, or one that failed, goes on from the ledger under the same name. If
        it was done, or its window is over, it is found there and charged to nobody.
        """
        if run.key is None:
            return None
        told = f"SELECT {RUN} FROM runs WHERE person = ? AND dataset = ? AND key = ?"  # noqa: S608 - constants
        name = run.person, run.dataset, run.key
        rows = self.store.all(told, *name) if do is None else do(told, name)
        if not rows:
            return None
        row, kept = rows[0], stored_run(rows[0], self.settings.quantum)
        if kept.text != run.text:
            raise RequestConflict(
                "The idempotency key was used for another order.",
                fix="Use a new key for a new order.",
                about="key",
            )
        known = self._runs.get(kept.id)
        stopped = known is not None and known.state == "cancelled" and known.settled
        if known is not None and known.told != "failed" and not stopped:
            return known  # one that was cancelled goes on when its work is over
        over = kept.window != run.window
        run.id, run.window, run.created, run.again = kept.id, kept.window, kept.created, True
        run.settled_order = kept.settled_order  # what is left by now does not matter
        run.cost = kept.cost
        if not run.practice and (row[_STATE] == "done" or over):
            run.finding, run.price, run.state = True, None, "queued"
        return None

    def _stored(self, run_id: str) -> Run | None:
        """A run that was done and that this process has forgotten; nothing is asked yet."""
        row = self.store.one(f"SELECT {RUN} FROM runs WHERE id = ?", run_id)  # noqa: S608 - constants
        if row is None or row[_STATE] != "done" or row[2] not in self._hosted:
            return None
        run = stored_run(row, self.settings.quantum)
        run.finding = True
        return run

    def _again(self, run: Run) -> bool:
        """Find a forgotten run in the ledger, which is free; whether it can be there."""
        asker = Caller(name=run.person, role="analyst")
        view = View(self, self._hosted[run.dataset], asker, run.purpose)
        order = run.settled_order or run.order
        if not run.practice and not run.fresh and not view.gate_for(run).plan(order).free:
            return False  # of rows that are not there any more: to look again must not cost
        with self._lock:
            if run.id in self._runs:
                return True
            self._runs[run.id] = run
        self._submit(view, run)
        return True


def _lost(gate: Gate, before: Charge) -> Fraction:
    """What an account was charged meanwhile; what it asked at the same time is counted twice."""
    try:
        own = gate.ledger.balance(gate.door.account)
        meanwhile = Charge(max(0, own.charge.amount - before.amount), 0)
        return accountant_named(own.accountant).implied(meanwhile, own.budget).epsilon
    except NoisegateError:
        return _NOTHING


def _has_share(hosted: Hosted, caller: Caller) -> bool:
    """Whether a data set is there for a caller at all."""
    analysts = hosted.policy.analysts
    return caller.sees_all or not analysts or caller.name in analysts
