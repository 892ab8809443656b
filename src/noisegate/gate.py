"""The gate as analysts see it: ask, see the price first, look at the balance.

Whatever is asked for is an order: `plan` says its price, `run` pays for it. The other methods make
orders of what is said to them: see `noisegate.orders.asking`.
"""

from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, final

from noisegate.curator.curator import Curator
from noisegate.desk.desk import Desk
from noisegate.desk.display.numbers import facts_html
from noisegate.desk.display.prompt import Entries, Tables
from noisegate.desk.job import Progress
from noisegate.desk.order import Order
from noisegate.desk.plan import Expected, Plan
from noisegate.desk.terms.rules import Rules
from noisegate.desk.terms.terms import require_texts
from noisegate.errors import SpecError
from noisegate.exact import Number
from noisegate.frozen import replace
from noisegate.ledger.ledger import Ledger
from noisegate.orders.asking import Asks
from noisegate.privacy.guarantee import units_of
from noisegate.privacy.loss import ApproxDP
from noisegate.privacy.unit import protected
from noisegate.sql.laws.sampling import chance_of
from noisegate.sql.order import SqlOrder

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractContextManager

    from noisegate.desk.answer import Answer
    from noisegate.desk.job import Job
    from noisegate.desk.terms.terms import PartOf
    from noisegate.learners.matrix import Matrix
    from noisegate.ledger.entry import Entry
    from noisegate.privacy.domain import Key, TableDomain
    from noisegate.releases.thresholds.session import (
        ThresholdExpected,
        ThresholdSession,
        ThresholdTerms,
    )
    from noisegate.robust.graphs import GraphOrder
    from noisegate.sql.partition import PartitionTerms

__all__ = ["Gate", "Rules"]
R = TypeVar("R")
E = TypeVar("E", bound=Expected)


@final
class Gate(Asks):
    """Private tables and one analyst's account. Made by `noisegate.open`.

    Gates of one ledger and the same tables may share what they ``read``: see `Desk.read_as`.
    """

    def __init__(
        self, curator: Curator, rules: Rules, *, read: dict[Any, Any] | None = None
    ) -> None:
        self._curator, self._rules, self._read = curator, rules, read
        self._desk = Desk(curator, rules, read)

    def _planned(self, order: Order[R, E], *, fresh: bool) -> Plan[E]:
        if order.part is not None:
            return self.in_part(order.part).plan(replace(order, part=None), fresh=fresh)
        order = order.settled(self._desk, fresh=fresh)
        if isinstance(order, SqlOrder):
            return self._desk.plan(self._question(order, fresh=fresh), fresh=fresh)
        return order.plan(self._desk, fresh=fresh)

    def _made(self, order: Order[R, E], *, fresh: bool, progress: Progress | None) -> R:
        if order.part is not None:
            inside, whole = self.in_part(order.part), replace(order, part=None)
            return inside.run(whole, fresh=fresh, progress=progress)
        order = order.settled(self._desk, fresh=fresh)
        with self._desk.noting(getattr(order, "epsilon", None)):
            if isinstance(order, SqlOrder):
                job = self._question(order, fresh=fresh)
                return self._desk.run(job, fresh=fresh, progress=progress)  # type: ignore[return-value]  # of such orders
            return order.run(self._desk, fresh=fresh, progress=progress)

    def _vertices(self, order: "GraphOrder") -> int:
        from noisegate.robust.graphs import vertices_of  # noqa: PLC0415 - when asked for

        return vertices_of(self._desk, order)

    def _question(self, order: SqlOrder, *, fresh: bool) -> "Job[Any, Answer, Any]":
        """The job of a question; where the policy has it, groups of so many are a crowd's."""
        paid = order.epsilon, order.within, order.relative
        if self._rules.crowd is not None and self._rules.sample is None and not any(paid):
            from noisegate.crowd.having import having_job  # noqa: PLC0415 - when asked for

            if (crowd := having_job(self._desk, order.sql)) is not None:
                return crowd
        return order.anew(self._desk) if fresh else self._desk.known(order.job)

    # learners

    def matrix(
        self,
        table: str | None = None,
        columns: Sequence[str] | None = None,
        *,
        target: str | None = None,
        where: str | None = None,
        rows_per_unit: int | None = None,
    ) -> "Matrix":
        """Columns of private rows for a learner: a handle, which itself reads nothing.

        ``KMeans(n_clusters=3, epsilon=1).fit(gate.matrix("visits", ["age", "cost"]))``

        Args:
            table: The table, if there are several.
            columns: Names of columns with declared bounds or keys, or expressions such as
                "LN(cost + 1)"; by default all that can be used.
            target: The target: a column with declared keys, or a number with bounds.
            where: The condition on rows.
            rows_per_unit: Contribution bound: how many rows of one unit count.
        """
        from noisegate.learners.matrix import matrix_of  # noqa: PLC0415 - when asked for

        require_texts(table=table, target=target, where=where)
        listed = isinstance(columns, Collection) and all(isinstance(each, str) for each in columns)
        if columns is not None and not listed:
            raise SpecError("columns is not a list of strings.", fix='Use ["age", "cost"].')
        return matrix_of(
            self._curator, self._rules, table, columns,
            target=target, where=where, rows_per_unit=rows_per_unit,
        )  # fmt: skip

    # the gate itself

    def settled(self, order: Order[R, E], *, fresh: bool = False) -> Order[R, E]:
        """The order with a number for its price, where that is a part of what is left now."""
        if order.part is None:
            return order.settled(self._desk, fresh=fresh)
        inside = self.in_part(order.part).settled(replace(order, part=None), fresh=fresh)
        return replace(inside, part=order.part)

    def in_part(self, asked: "PartOf") -> "Gate":
        """The gate of one part, as an order names it; see `partition`."""
        from noisegate.curator.parted import within  # noqa: PLC0415 - when asked for
        from noisegate.sql.partition import part_of  # noqa: PLC0415

        self._rules.require_state()
        return Gate(within(self._curator, part_of(self._curator, asked)), self._rules)

    def sample(self, probability: Number) -> "Gate":
        """Ask about a secret sample that holds each unit with ``probability``.

        ``gate.sample(0.1).sql("SELECT COUNT(*) FROM visits", epsilon=0.1)``: each question, and
        each release as a whole, draws its own sample, at the door. The sample is secret, so the
        price is amplified and buys less noise; answers are scaled up to all rows, and the noise
        with them. The ± includes the sampling error. With all rows, the same price errs less.
        """
        chance = chance_of(probability)
        if self._rules.sample is not None:
            raise SpecError("This gate already samples.", fix="Sample once.")
        return Gate(self._curator, replace(self._rules, sample=chance))

    def partition(
        self, column: str | None = None, **terms: "Unpack[PartitionTerms]"
    ) -> "dict[Key, Gate]":
        """Gates of disjoint parts, by key: all their questions cost what the dearest part does.

        ``parts = gate.partition("ward"); parts["north"].sql("SELECT AVG(age) FROM patients")``.
        Each part has its own running total, which the ledger keeps: whoever asks, today or later,
        the account pays only what takes one part above all that was paid for parts so far. Instead
        of a column with declared keys, `PartitionTerms` has conditions.
        """
        from noisegate.curator.parted import within  # noqa: PLC0415 - when asked for
        from noisegate.sql.partition import parts_of  # noqa: PLC0415

        self._rules.require_state()
        found = parts_of(self._curator, column, **terms)
        return {key: Gate(within(self._curator, part), self._rules) for key, part in found.items()}

    def thresholds(
        self, threshold: Number, **terms: "Unpack[ThresholdTerms]"
    ) -> "AbstractContextManager[ThresholdSession]":
        """A session of questions against one threshold, chosen one after the other.

        ``with gate.thresholds(100, count=3, epsilon=1) as session:
        session.ask("SELECT COUNT(*) FROM people WHERE age > 80")``: says whether the count reaches
        it, and for a yes by how much. After ``count`` yeses it ends. Terms: `ThresholdAsked`.
        """
        from noisegate.releases.thresholds import session  # noqa: PLC0415 - when asked for

        asked = session.ThresholdAsked(threshold=threshold, **terms)
        return session.session_of(self._desk, asked)

    def thresholds_plan(
        self, threshold: Number, **terms: "Unpack[ThresholdTerms]"
    ) -> "Plan[ThresholdExpected]":
        """Price and error of a session of thresholds, beside plain questions. Free."""
        from noisegate.releases.thresholds import session  # noqa: PLC0415 - when asked for

        return session.plan_of(self._desk, session.ThresholdAsked(threshold=threshold, **terms))

    @property
    def tables(self) -> "Mapping[str, TableDomain]":
        """The tables and what is public about them."""
        return Tables(self._curator.tables)

    @property
    def spent(self) -> ApproxDP:
        """What this analyst's account has spent: a reading; the promise is the budget."""
        return self._curator.ledger.balance(self._curator.account).spent

    @property
    def remaining(self) -> ApproxDP:
        """The largest question that still fits, here and in the data set's own account."""
        return self._curator.remaining()

    @property
    def ledger(self) -> Ledger:
        """The ledger behind the gate: balance, history, verify, export."""
        return self._curator.ledger

    @property
    def door(self) -> Curator:
        """The door behind the gate: nothing is read past it."""
        return self._curator

    @property
    def rules(self) -> Rules:
        """What the policy says about questions."""
        return self._rules

    def history(self) -> "Sequence[Entry]":
        """The ledger's entries for this account."""
        return Entries(self._curator.ledger.history(self._curator.account))

    def close(self) -> None:
        """Let go of the ledger's file or connection. The next question opens it again."""
        self._curator.ledger.close()

    def _repr_html_(self) -> str:
        left, tables = f"{self.remaining:left}", ", ".join(self.tables)
        return facts_html([("tables", tables), ("spent", str(self.spent)), ("left", left)])

    def __repr__(self) -> str:
        names = ", ".join(repr(name) for name in self.tables)
        kept = "durable ledger" if self._curator.ledger.durable else "ledger in memory only"
        mode = "made-up rows, free of charge; " if self._rules.practice else ""
        return (
            f"<Gate of {names}: {mode}protects {protected(units_of(self.tables.values()))}; "
            f"spent {self.spent}, left {self.remaining:left}; {kept}>"
        )


def as_of(gate: Gate, moment: datetime) -> Gate:
    """The gate for what was asked at another moment, in UTC: times are said from then."""
    moment = moment.astimezone(UTC).replace(tzinfo=None) if moment.tzinfo else moment
    rules = replace(gate._rules, moment=moment)  # noqa: SLF001 - its own module
    return Gate(gate._curator, rules, read=gate._read)  # noqa: SLF001
