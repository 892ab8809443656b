"""The gate of a service: plans and runs orders there, and gives what a gate here would give."""

import os
from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar, Unpack, final
from urllib.parse import quote
from uuid import uuid4

from noisegate.client import results
from noisegate.client.calls import ARROW, JSON, PARQUET, Calls, Reply, understood
from noisegate.desk.display.prompt import Tables
from noisegate.desk.job import Progress, require_progress
from noisegate.desk.order import Order
from noisegate.desk.plan import Expected, Plan
from noisegate.desk.sent import loss_from, received
from noisegate.desk.terms.terms import PartOf
from noisegate.errors import SpecError, Unsupported, Waiting
from noisegate.frozen import replace
from noisegate.ledger.verify.anchor import Anchor
from noisegate.orders.asking import Asks
from noisegate.privacy.domain import TableDomain
from noisegate.privacy.loss import ApproxDP
from noisegate.robust.graphs import GraphOrder

if TYPE_CHECKING:
    from noisegate.privacy.domain import Key
    from noisegate.sql.partition import PartitionTerms

TOKEN: Final = "NOISEGATE_TOKEN"  # noqa: S105 - of the environment
_WAIT: Final = 30.0  # seconds that a service may take before it says how far it is
_TOLD: Final = 1.0  # the same where somebody wants to know
_HERE: Final = "Use noisegate.open where the rows are."
R = TypeVar("R")
E = TypeVar("E", bound=Expected)


def connect(
    url: str,
    *,
    token: str | None = None,
    dataset: str | None = None,
    purpose: str | None = None,
    practice: bool = False,
    cafile: str | None = None,
) -> "RemoteGate":
    """The gate of a service, with the methods of a gate that `noisegate.open` gives.

    Args:
        url: The address of the service, such as "https://gate.example.org".
        token: What the steward gave you; by default NOISEGATE_TOKEN of the environment.
        dataset: The name of the data set, if the service has several for you.
        purpose: What is asked for, where the policy of the data set has purposes.
        practice: Ask made-up rows, for nothing.
        cafile: The certificates to trust, a PEM file; by default those of the system.

    Returns:
        A `RemoteGate`: ``gate.plan(sql, epsilon=…)`` is free, ``gate.sql(sql, epsilon=…)`` pays.
    """
    said = os.environ.get(TOKEN, "") if token is None else token
    if not said:
        raise SpecError("No token is given.", fix=f"Give token=..., or set {TOKEN}.", about="token")
    calls = Calls(url, said, cafile=cafile)
    if dataset is None:
        names = [each["name"] for each in calls.get("/datasets").json()["datasets"]]
        if len(names) != 1:
            raise SpecError(
                f"The service has {len(names)} data sets for you.",
                fix=f"Give dataset=..., one of {', '.join(names)}."
                if names
                else "Ask the steward.",
                about="dataset",
            )
        dataset = str(names[0])
    gate = RemoteGate(calls, dataset, practice=practice, purpose=purpose)
    _ = gate.facts  # refuses a token or a name that is wrong now, and not with the first question
    return gate


@final
class RemoteGate(Asks):
    """The tables of a service and the caller's account there. Made by `noisegate.connect`."""

    def __init__(
        self, calls: Calls, dataset: str, *, practice: bool = False, purpose: str | None = None,
        part: PartOf | None = None,
    ) -> None:  # fmt: skip
        self._part = part
        self._calls, self.dataset, self._practice = calls, dataset, practice
        self._purpose = None if practice else purpose
        self._home = f"/datasets/{quote(dataset, safe='')}"

    @property
    def practice(self) -> "RemoteGate":
        """The same in front of made-up rows: free, and says nothing about anybody."""
        return RemoteGate(self._calls, self.dataset, practice=True, part=self._part)

    @property
    def _facts(self) -> str:
        said = "" if self._purpose is None else f"?purpose={quote(self._purpose, safe='')}"
        return f"{self._home}{said}"

    # the gate itself

    @cached_property
    def facts(self) -> Mapping[str, Any]:
        """What is public about the data set, as the service says it; read once."""
        found: dict[str, Any] = self._calls.get(self._facts).json()
        return MappingProxyType(found)

    @property
    def tables(self) -> Mapping[str, TableDomain]:
        """The tables and what is public about them."""
        listed = (results.table_of(self.dataset, each) for each in self.facts["tables"])
        return Tables({table.name: table for table in listed})

    @property
    def spent(self) -> ApproxDP:
        """What the caller's account has spent: a reading; the promise is the budget."""
        return self._balance("spent")

    @property
    def remaining(self) -> ApproxDP:
        """The largest question that still fits, here and in the data set's own account."""
        return self._balance("remaining")

    def _balance(self, name: str) -> ApproxDP:
        exact = self._calls.get(self._facts).json()["exact"]
        if exact is None:
            raise Unsupported("You have no account here.", fix="Ask the steward.", about="account")
        return loss_from(exact[name])

    @property
    def head(self) -> Anchor | None:
        """The head of the data set's ledger: keep it, and `noisegate ledger verify` can ask for it.

        None where the ledger has none to show.
        """
        found = self._calls.get("/ledger/head", dataset=self.dataset).json()["heads"]
        head = found[self.dataset]
        return None if head is None else Anchor.from_dict(head)

    def history(self) -> Sequence[Mapping[str, Any]]:
        """What the caller asked, the latest first, with price and state."""
        found: list[dict[str, Any]] = self._calls.get("/history", dataset=self.dataset).json()[
            "runs"
        ]
        return found

    def sample(self, probability: object) -> NoReturn:
        """Not over a network: the sample of a question is the gate's own."""
        del probability
        raise Unsupported("A service does not sample.", fix=_HERE, about="sample")

    def partition(
        self, column: str | None = None, **terms: "Unpack[PartitionTerms]"
    ) -> "dict[Key, RemoteGate]":
        """Gates of disjoint parts, by key: all their questions cost what the dearest part does.

        Each order says which part it is about, and the service's own door which units that is.
        """
        from noisegate.sql.partition import already_one, named_parts  # noqa: PLC0415 - when asked

        if self._part is not None:
            raise already_one()
        named = named_parts(self.tables, column, **terms)
        return {key: self.in_part(part) for key, part in named.items()}

    def in_part(self, asked: PartOf) -> "RemoteGate":
        """The gate of one part, as an order names it; see `partition`."""
        return RemoteGate(
            self._calls, self.dataset, practice=self._practice, purpose=self._purpose, part=asked
        )

    def thresholds(self, *threshold: object, **terms: object) -> NoReturn:
        """Not over a network: a session holds the door open."""
        del threshold, terms
        raise Unsupported(
            "A session does not leave the gate.",
            fix=f"Send the questions as a list: gate.compare(…). {_HERE}",
            about="thresholds",
        )

    thresholds_plan = thresholds

    def matrix(self, *columns: object, **terms: object) -> NoReturn:
        """Not over a network: a matrix is a handle of rows. Send the model as an order instead."""
        del columns, terms
        raise Unsupported(
            "A matrix does not leave the gate.",
            fix='Send the model: gate.run(noisegate.orders.FitOrder.make(model="KMeans", …)).',
            about="matrix",
        )

    def __repr__(self) -> str:
        names = ", ".join(repr(each["name"]) for each in self.facts["tables"])
        mode = "made-up rows, free of charge; " if self._practice else ""
        return (
            f"<RemoteGate of {names} at {self._calls.url}: {mode}protects {self.facts['protects']}>"
        )

    def close(self) -> None:
        """Let go of this thread's connection. The next question makes another."""
        self._calls.close()

    # any order

    def _planned(self, order: Order[R, E], *, fresh: bool) -> Plan[E]:
        record, mode = self._record(order, fresh=fresh), str(self._practice).lower()

        def again(confidence: Fraction) -> Mapping[str, Any]:
            said = {"confidence": str(confidence), "practice": mode}
            found: dict[str, Any] = self._calls.post(
                f"{self._home}/plan", record, {}, **said
            ).json()
            return found

        with understood():
            return results.plan_from(again)

    def _made(self, order: Order[R, E], *, fresh: bool, progress: Progress | None) -> R:
        require_progress(progress)
        form = (
            ARROW
            if order.kind in results.TABLES
            else PARQUET
            if order.kind in results.FILES
            else JSON
        )
        wait = _WAIT if progress is None else _TOLD
        said = {"Idempotency-Key": uuid4().hex, "Accept": form, "Prefer": f"wait={wait:g}"}
        place = "practice" if self._practice else "orders"
        reply = self._calls.post(f"{self._home}/{place}", self._record(order, fresh=fresh), said)
        try:
            run, reply = self._finished(reply, form, wait, progress)
        except KeyboardInterrupt:
            self._stop(reply)
            raise
        if progress is not None:
            progress(1.0, "done")
        with understood():
            return self._result(order, run, reply)  # type: ignore[no-any-return]  # by its kind

    def _finished(
        self, reply: Reply, form: str, wait: float, progress: Progress | None
    ) -> tuple[str, Reply]:
        """Where the run is, and its result, when it has one."""
        while reply.status == 202:
            run, state = reply.headers["location"], reply.json()
            if state["state"] == "waiting":
                raise Waiting(
                    "A steward has to approve this first.",
                    fix="Ask again later: what was approved and drawn is free then.",
                    about="approval",
                )
            if progress is not None:
                progress(state["progress"], state["words"])
            reply = self._calls.get(f"{run}/result", form, wait=wait)
        return reply.headers["content-location"].removesuffix("/result"), reply

    def _stop(self, reply: Reply) -> None:
        """Whoever interrupts does not want the answer: what is not drawn yet is not drawn."""
        if reply.status == 202:
            self._calls.delete(reply.headers["location"])

    def _result(self, order: Order[Any, Any], run: str, reply: Reply) -> Any:  # noqa: ANN401 - by its kind
        def at(confidence: Fraction, form: str) -> Reply:
            return self._calls.get(f"{run}/result", form, confidence=str(confidence))

        if order.kind in results.TABLES:
            return received(
                results.table_from(reply.body),
                lambda confidence: results.table_from(at(confidence, ARROW).body),
                lambda: [
                    results.entry_from(e)
                    for e in self._calls.get(f"{run}/entries").json()["entries"]
                ],
            )
        if order.kind in results.FILES:
            return results.release_from(order, reply.body, self._calls.get(run).json()["exact"])
        return results.made_from(order, lambda confidence: at(confidence, JSON).json())

    def _record(self, order: Order[Any, Any], *, fresh: bool) -> dict[str, Any]:
        purpose = {} if self._purpose is None else {"purpose": self._purpose}
        if self._part is not None:
            if order.part is not None:
                from noisegate.sql.partition import already_one  # noqa: PLC0415 - when refused

                raise already_one()
            order = replace(order, part=self._part)
        return order.to_dict() | ({"fresh": True} if fresh else {}) | purpose

    def _vertices(self, order: GraphOrder) -> int:
        if order.nodes is not None:
            return len(order.nodes)
        tables = self.tables
        name = next(iter(tables)) if order.table is None and len(tables) == 1 else order.table
        column = None if name not in tables else tables[str(name)].columns.get(order.source)
        keys = None if column is None else column.domain.keys
        if keys is None:
            raise SpecError(
                "The vertices are not known.", fix="Give nodes: a range or a list.", about="nodes"
            )
        return len(keys)
