"""Quantiles with noise by what one value can do: ``gate.smooth("SELECT MEDIAN(x) FROM t")``."""

from dataclasses import dataclass
from itertools import product
from typing import Any, ClassVar, final

import pyarrow as pa

from noisegate.algebra.tally import Values
from noisegate.curator.measurement import Measurement
from noisegate.desk.answer import Answer
from noisegate.desk.desk import Desk
from noisegate.desk.terms import Terms
from noisegate.errors import SpecError
from noisegate.mechanisms.quantiles.local_quantile import LocalQuantile
from noisegate.robust.paying import ByReaches, Found, ReachesOrder, RobustJob, Till
from noisegate.sql.bounds.limits import caps_of
from noisegate.sql.drafts.draft import Draft, draft
from noisegate.sql.question import Function, Question


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class SmoothOrder(ReachesOrder):
    """One MEDIAN or QUANTILE_CONT, by declared groups if the SQL has some.

    ``epsilon`` is the price, ``delta`` for lighter tails, ``beta`` how fast far rows matter less;
    ``method="ptr"`` has a ``bound`` to be tested and a ``delta``: then the answer may be None.
    """

    kind: ClassVar[str] = "smooth"
    sql: str

    def job(self, desk: Desk) -> RobustJob:
        """The quantile, with the noise that its price buys."""
        return _SmoothQuantile(Till(desk), self).job()


@final
class _SmoothQuantile:
    """One quantile, and how it is read."""

    def __init__(self, till: Till, order: SmoothOrder) -> None:
        self._till, self._sql = till, order.sql
        self._epsilon = till.rules.price(order.epsilon)
        question = till.read(order.sql)
        self._draft = _drafted(question, till, order)
        (part,) = self._draft.parts
        tally = part.query.tally
        (aggregate,) = self._draft.block.aggregates
        if not isinstance(tally, Values) or aggregate.level is None:
            raise _no_quantile()
        self._tally, self._names = tally, question.columns
        noise = till.noise(
            order, low=tally.term.low, high=tally.term.high, grain=tally.term.grain,
            steps=part.query.per_unit,
        )  # fmt: skip
        self._read = ByReaches(noise=noise, grain=tally.term.grain)
        mechanism = LocalQuantile(tau=aggregate.level, noise=noise)
        self._measurement = Measurement(query=part.query, mechanisms=(mechanism,))

    def job(self) -> RobustJob:
        """What is to be measured."""
        return self._till.job(
            self._measurement, self._answer, asked=self._sql, epsilon=self._epsilon,
            unit=self._tally.term.grain,
        )  # fmt: skip

    def _answer(self, found: Found) -> Answer:
        words = (*self._read.words(found), *self._draft.caveats)
        table, widths = self._table(found), self._read.widths(found)
        unsigned = self._read.unsigned
        return found.answer(self._sql, table, widths, words, unsigned=unsigned, amount=False)

    def _table(self, found: Found) -> pa.Table:
        keys = list(product(*(grouping.keys for grouping in self._tally.by)))
        columns: list[Any] = [[key[j] for key in keys] for j in range(len(self._tally.by))]
        columns.append(self._read.numbers(found))
        return pa.table(dict(zip(self._names, columns, strict=True)))


def _drafted(question: Question, till: Till, order: SmoothOrder) -> Draft:
    """The tally of one quantile that the SQL shows as it is."""
    if len(question.blocks) != 1 or question.picked is None or question.explain:
        raise _no_quantile()
    (block,) = question.blocks
    asked = [each.function for each in block.aggregates]
    if asked != [Function.QUANTILE] or len(question.picked) != len(block.by) + 1:
        raise _no_quantile()
    if question.picked[-1] != block.aggregates[0].name or len(block.sets) != 1:
        raise _no_quantile()
    terms = Terms(rows_per_unit=order.rows_per_unit or question.terms.rows_per_unit)
    accountant = till.curator.ledger.balance(till.curator.account).accountant
    found = draft(block, caps_of(block, terms), accountant=accountant)
    if found.keys:
        raise SpecError("The groups are not declared.", fix="Declare the keys of the column.")
    return found


def _no_quantile() -> SpecError:
    return SpecError(
        "The smooth method answers exactly one quantile.",
        fix="Use SELECT MEDIAN(x) FROM t WHERE …, or QUANTILE_CONT(x, 0.9), by declared groups.",
    )
