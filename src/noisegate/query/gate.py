"""The gate as analysts see it: ask, see the price first, look at the balance."""

from collections.abc import Sequence
from typing import Any, final

from noisegate.accounting.calibrate import geometric_scale_for_error
from noisegate.curator.curator import Curator
from noisegate.curator.measurement import Measurement
from noisegate.errors import SpecError
from noisegate.exact import Number, fraction, positive
from noisegate.ledger.store import Ledger
from noisegate.mechanisms.geometric import Geometric
from noisegate.privacy.guarantee import Guarantee
from noisegate.privacy.loss import ApproxDP
from noisegate.privacy.release import Release
from noisegate.query.answer import Answer
from noisegate.query.plan import Plan
from noisegate.query.sql import parse


@final
class Gate:
    """A private table, its budget, and one analyst's way to ask. Made by `noisegate.open`."""

    def __init__(self, curator: Curator) -> None:
        self._curator = curator

    def plan(
        self,
        sql: str,
        *,
        epsilon: Number | None = None,
        within: Number | None = None,
        confidence: Number = 0.95,
    ) -> Plan:
        """Price and error of a question. Free: spends nothing, reads no row.

        Say how much to pay (``epsilon``) or how far the answer may be off (``within``, at a
        ``confidence``); then the cheapest noise that keeps it is chosen.
        """
        return self._plan(sql, epsilon=epsilon, within=within, confidence=confidence, fresh=False)

    def sql(
        self,
        sql: str,
        *,
        epsilon: Number | None = None,
        within: Number | None = None,
        confidence: Number = 0.95,
        fresh: bool = False,
    ) -> Answer:
        """Ask a question. The same question again is answered from the ledger, for free.

        ``fresh`` pays for a new, independent draw instead.
        """
        plan = self._plan(sql, epsilon=epsilon, within=within, confidence=confidence, fresh=fresh)
        plan.margin(confidence)  # a confidence that is none is refused before anything is paid
        request_id = self._curator.fresh_id() if fresh else None
        release = self._curator.measure(plan.measurement, request_id=request_id)
        return self._answer(plan, release)

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

    def history(self) -> Sequence[Any]:
        """The ledger's entries for this account."""
        return self._curator.ledger.history(self._curator.account)

    def __repr__(self) -> str:
        table = self._curator.table
        kept = "durable ledger" if self._curator.ledger.durable else "ledger in memory only"
        return (
            f"<Gate of {table.name!r}: protects {table.unit}; "
            f"spent {self.spent}, left {self.remaining:left}; {kept}>"
        )

    def _plan(
        self,
        sql: str,
        *,
        epsilon: Number | None,
        within: Number | None,
        confidence: Number,
        fresh: bool,
    ) -> Plan:
        selection = parse(sql, self._curator.table)
        if (epsilon is None) == (within is None):
            raise SpecError("Give epsilon or within.", fix="Use exactly one of the two.")
        if within is not None:
            wanted, sure = positive(within, name="within"), fraction(confidence, name="confidence")
            mechanism = Geometric(scale=geometric_scale_for_error(wanted, confidence=sure))
        else:
            mechanism = Geometric.for_epsilon(epsilon or 0, sensitivity=selection.query.l1)
        measurement = Measurement(query=selection.query, mechanism=mechanism)
        price, fits = self._curator.price(measurement, fresh=fresh)
        return Plan(
            measurement=measurement,
            key_column=selection.key_column,
            count_column=selection.count_column,
            price=price,
            fits=fits,
        )

    def _answer(self, plan: Plan, release: Release) -> Answer:
        table = self._curator.table
        by = plan.measurement.query.tally.by
        values = release.values.tolist()
        keys = by.keys if by is not None and by.keys is not None else ()
        rows = zip(keys, values, strict=True) if keys else ((value,) for value in values)
        paid = self._curator.loss_of(release.event)
        guarantee = Guarantee(loss=paid, unit=table.unit, scope=f"this answer about {table.name!r}")
        return Answer(
            plan=plan,
            rows=tuple(tuple(row) for row in rows),
            cost=ApproxDP(0, 0) if release.free else paid,
            remaining=self.remaining,
            guarantee=guarantee,
            request_id=release.request_id,
        )
