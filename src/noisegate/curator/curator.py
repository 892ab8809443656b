"""The curator holds the rows, the coins and the ledger, and answers one kind of request.

    measure:  found in the ledger?  → the stored answer, free
              event                 what is about to happen; no row is read for it
              reserve               durable from here on; refuses over budget
              collect               exact whole numbers
              sample                noise, drawn once
              settle                durable before anyone sees it

A crash wastes budget, never privacy: a reservation without an answer stays spent, and the same
request may run again under it, because nothing had left.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fractions import Fraction
from functools import partial
from itertools import count
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeAlias, final
from uuid import uuid4

import numpy as np

from noisegate.accounting.pure import PureAccountant, pure_loss
from noisegate.accounting.rules import Pair
from noisegate.algebra.expression import Expression, Literal
from noisegate.algebra.relation import Project, Relation
from noisegate.algebra.tally import Sums, Term
from noisegate.curator.kept import Kept
from noisegate.curator.measurement import Measurement, digest, fresh_coins
from noisegate.curator.quietly import quietly
from noisegate.errors import Forbidden, PolicyError, RequestConflict, Unsupported
from noisegate.ledger.account import Balance, Use, room_of
from noisegate.ledger.ledger import Ledger, Reservation
from noisegate.noise.bits import SYSTEM, Bits, SystemBits
from noisegate.privacy.capability import CAPABILITIES, MEANINGS
from noisegate.privacy.domain import TableDomain
from noisegate.privacy.event import Event, InPart
from noisegate.privacy.loss import ApproxDP
from noisegate.privacy.release import Release
from noisegate.sources.source import Source
from noisegate.transforms.query import Query

if TYPE_CHECKING:
    import pyarrow as pa

    from noisegate.curator.allowance import Allowance
    from noisegate.curator.blocks import BlockMeasurement
    from noisegate.curator.claimed import Vouched
    from noisegate.curator.partition import Part

Asked: TypeAlias = "Measurement | BlockMeasurement | Vouched"


@final
class Curator:
    """The only way out of a source. Analysts hold a curator with their own account.

    ``allowed`` are the optional capabilities of this account; None: all of them. ``request`` names
    the one request that this curator was made for: see `fresh_id`. One that is ``finding`` gives
    what was settled before and charges nobody.
    """

    def __init__(  # noqa: PLR0913 - what the door holds
        self,
        *,
        source: Source,
        tables: Mapping[str, TableDomain],
        ledger: Ledger,
        account: str,
        packages: Collection[str] | None = None,
        allowed: Collection[str] | None = None,
        request: str | None = None,
        finding: bool = False,
        bits: Bits = SYSTEM,
    ) -> None:
        ledger.require_secure(type(bits) is SystemBits)
        (self.dataset,) = {table.dataset for table in tables.values()}
        _require_root(ledger, account, self.dataset)
        self._source, self._bits, self._adds = source, bits, ledger.balance(account).accountant
        self._packages = None if packages is None else frozenset(packages)
        self._allowed = frozenset(CAPABILITIES if allowed is None else allowed)
        self.request, self._numbers, self.finding = request, count(), finding
        self.ledger, self.account = ledger, account
        self.part: Part | None = None
        self.tables: Mapping[str, TableDomain] = MappingProxyType(dict(tables))

    def paying(self, event: Event) -> Event:
        """What an event is for the ledger: of one part of the units only, where that is so.

        Nobody else says so: in parts that were made up, questions about everybody would be free.
        """
        if isinstance(event, InPart):
            raise Unsupported("A recipe names no part.", fix="Use gate.partition.", about="part")
        return event if self.part is None else self.part.event(event)

    def measure(self, measurement: Asked, *, request_id: str | None = None) -> Release:
        """Answer a question: from the ledger if it was answered before, else for its price.

        Without a ``request_id`` the question is its own id: it is drawn and paid for once, however
        often it is asked. With an id of its own it is a new draw, and so a new charge.
        """
        self._require_own(measurement)
        question = measurement.question()
        if request_id is None and (earlier := self._found(question)) is not None:
            return earlier
        if not isinstance(measurement, Measurement):
            from noisegate.curator.blocks import require_place  # noqa: PLC0415 - programs only

            require_place(measurement.query.tally, self._packages)
        own = self._own_id(f"ask {request_id}" if request_id else digest(question))
        if self._source.plans and self.ledger.find(own, question, self.account) is None:
            self.ledger.require_room(self.paying(measurement.event()), account=self.account)
            self.require_plan(measurement)
        entry = self._reserve(own, question=question, event=measurement.event(), kind="measurement")
        if entry.answer is not None:
            return _release(entry.answer, question, own, free=True)
        stored = entry.settle(self._draw(measurement, question, own).to_bytes())
        return _release(stored, question, own, free=False)

    @contextmanager
    def allowance(
        self, event: Event, *, question: str, request_id: str, uses: Collection[str] = ()
    ) -> "Iterator[Allowance]":
        """One reservation for a recipe that asks many adaptive questions; see `Allowance`.

        ``uses`` are the capabilities that it will use: refused here, before it is charged, if they
        are not allowed. One that is not listed is refused when it is asked for.

        A `PoissonSampled` event is about one secret sample: all questions read the same one, drawn
        for this allowance alone, and its price is that of the whole recipe, amplified once.

        Reserve in the measure of the account (a declared ε for pure, a declared ρ for zCDP): after
        a crash the reserved event is all that is on record.

        Leaving the block closes it: what was used stays charged, the rest goes back, also when the
        recipe fails. A recipe that was finished before gets its stored answer, at no charge.
        """
        from noisegate.curator.allowance import Allowance, ended, sample_in  # noqa: PLC0415

        self.require_allowed(uses)
        sample = sample_in(event, self.accountants)
        with self._rows_of(sample) as source:  # reads no row yet; if it fails, nothing is charged
            name = self._own_id(f"recipe {request_id}")
            entry = self._reserve(name, question=question, event=event, kind="allowance")
            kept = Kept(source)
            draw = partial(self._draw_inside, kept=kept)
            allowance = Allowance(entry, priced=self._priced, draw=draw, sample=sample,
                                  require=self._require_own, plan=self.require_plan)  # fmt: skip
            with ended(allowance, kept):
                yield allowance

    @contextmanager
    def _rows_of(self, sample: Fraction | None) -> Iterator[Source]:
        """All rows of one moment, or those of a sample with coins that were never used.

        The coins are kept nowhere.
        """
        with self._source.still() as source:
            if sample is None:
                yield source
                return
            with source.sample(sample, fresh_coins(self._bits)) as drawn:
                yield drawn

    def find(self, measurement: Asked) -> Release | None:
        """The stored answer of a question, whoever asked it; free, and reads no row."""
        self._require_own(measurement)
        return self._found(measurement.question())

    def _found(self, question: str) -> Release | None:
        stored = self.ledger.find_question(question, None)
        return None if stored is None else _release(stored, question, "", free=True)

    @property
    def allowed(self) -> frozenset[str]:
        """The optional capabilities of this account."""
        return self._allowed

    def require_allowed(self, uses: Collection[str]) -> None:
        """Refuse capabilities that the policy does not allow to this account. Free."""
        for name in sorted(set(uses) - self._allowed):
            raise Forbidden(
                f"The policy does not allow {name!r} here: {MEANINGS.get(name, 'unknown')}.",
                fix=f"Ask without it, or ask the steward to allow it: {name} under [allow].",
            )

    def require_words(self, relation: Relation, expressions: Sequence[Expression]) -> None:
        """Refuse a relation, or values of its rows, that the engine cannot compute. Free.

        Before the first of several measurements is paid for, so that none is paid for in vain.
        """
        shown = Project(relation, tuple((f"x{n}", each) for n, each in enumerate(expressions)))
        one = Term(expression=Literal(1), grain=Fraction(1), low=1, high=1)
        self._source.require(Sums(relation=shown, terms=(one,)))

    def require_plan(self, measurement: Asked) -> None:
        """Refuse what the engine cannot plan, before any of several measurements is charged."""
        self._source.require_plan(measurement.query.tally)

    def rehearse(self, measurement: "BlockMeasurement") -> "BlockMeasurement":
        """The same, ready to be asked; refuses a program that fails on made-up rows. Free."""
        from noisegate.curator.blocks import rehearsed  # noqa: PLC0415 - programs only

        self._require_own(measurement)
        return rehearsed(measurement, self.tables, self.public, self._packages)

    def price(self, event: Event) -> tuple[ApproxDP, bool]:
        """What an event would cost now, and whether it fits. Free; depends on no row."""
        quote = self.ledger.quote(self.paying(event), account=self.account)
        return self.cost_of(event), quote.fits

    def cost_of(self, event: Event) -> ApproxDP:
        """What an order asks for to buy one event: in terms of the account, the least (ε, δ)."""
        if self._adds == PureAccountant.name:  # an account keeps its accountant
            return self.loss_of(event)
        return self.ledger.quote(event, account=self.account).price

    def loss_of(self, event: Event) -> ApproxDP:
        """The (ε, δ) of one event by itself: its pure loss, or what the account makes of it."""
        try:
            return pure_loss(event)
        except Unsupported:
            return self.ledger.quote(event, account=self.account).loss

    def remaining(self) -> ApproxDP:
        """The largest single loss that the account and all its ancestors still have room for."""
        return room_of(self.balances())

    def balances(self) -> list[Balance]:
        """The account and each above it, the data set's last."""
        return self.ledger.balances(self.account)

    @property
    def accountants(self) -> tuple[str, ...]:
        """How the account, and each above it, adds up losses."""
        return tuple(balance.accountant for balance in self.balances())

    def fresh_id(self) -> str:
        """A request id that was never used: asking with it draws anew and pays anew.

        Those of a named request are its name and a number: where it is tried again, a draw that was
        settled is found, and one that was only charged is drawn under its charge. A name that was
        used for another question is refused by the ledger.
        """
        return uuid4().hex if self.request is None else f"{self.request} {next(self._numbers)}"

    def _own_id(self, name: str) -> str:
        """Ids belong to accounts, so that no analyst can take another's."""
        part = "" if self.part is None else f"{self.part.short} "
        return f"{self.account}: {part}{name}"

    def _reserve(self, request_id: str, *, question: str, event: Event, kind: Use) -> Reservation:
        """Debit first; who only finds is refused what was not settled before."""
        if self.finding and self.ledger.find(request_id, question, self.account) is None:
            raise RequestConflict(
                "This was not answered before, and to look again charges nobody.",
                fix="Ask it as a new question, with a new key.",
                about="finding",
            )
        paid, account = self.paying(event), self.account
        return self.ledger.reserve(
            request_id, question=question, event=paid, account=account, kind=kind
        )

    def _draw(
        self, measurement: Asked, question: str, request_id: str, kept: Kept | None = None
    ) -> Release:
        self._require_own(measurement)
        source = self._source if kept is None else kept.source
        noisy, keys = quietly(lambda: measurement.draw(source, self._bits, kept))
        numbered = keys if isinstance(keys, np.ndarray) else None
        return Release(
            values=noisy, event=measurement.event(), question=question, request_id=request_id,
            keys=None if isinstance(keys, np.ndarray) else keys, cells=numbered,
        )  # fmt: skip

    def public(self, table: str) -> "pa.Table":
        """All rows of a public table: exact and free. Refuses any other."""
        return self._source.public(table)

    def _draw_inside(
        self, measurement: Measurement, request_id: str, *, kept: Kept | None = None
    ) -> Release:
        return self._draw(measurement, measurement.question(), request_id, kept)

    def _priced(self, event: Event) -> Mapping[str, Pair]:
        return self.ledger.losses(event, account=self.account)

    def _require_own(self, measurement: Asked) -> None:
        """Refuse what is no question of ours, not allowed, or not about these very tables."""
        if type(measurement) is not Measurement or type(measurement.query) is not Query:
            from noisegate.curator.claimed import require_program  # noqa: PLC0415 - programs only

            require_program(measurement, steward=self.account == self.dataset)
        self.require_allowed(measurement.capabilities)
        self._require_tables(measurement.query.tables)
        if self.part is not None:
            self.part.require(measurement.query.tally.relation)
        self._source.require(measurement.query.tally)

    def _require_tables(self, tables: Collection[TableDomain]) -> None:
        for table in tables:
            if type(table) is not TableDomain or self.tables.get(table.name) != table:
                raise Unsupported(
                    f"The question is about {table.name!r}, which is not behind this door.",
                    fix=f"Ask about {', '.join(self.tables)}.",
                    about="table",
                )


def _require_root(ledger: Ledger, account: str, dataset: str) -> None:
    """Answers are shared below one root, so an account must hang below its data set's."""
    root = ledger.balances(account)[-1].account  # the one that all others are below
    if root != dataset or ":" in account:
        raise PolicyError(
            f"Account {account!r} belongs to {root!r}, not to {dataset!r}.",
            fix="Open the account below the data set's own, without a colon in its name.",
            about="account",
        )


def _release(stored: bytes, question: str, request_id: str, *, free: bool) -> Release:
    return Release.from_bytes(stored, question=question, request_id=request_id, free=free)
