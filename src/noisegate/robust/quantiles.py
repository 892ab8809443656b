"""Quantiles with noise by what one value can do: ``gate.smooth("SELECT MEDIAN(x) FROM t")``."""

from itertools import product
from typing import TYPE_CHECKING, Any, final

from noisegate.algebra.tally import Values
from noisegate.curator.measurement import Measurement
from noisegate.errors import SpecError
from noisegate.exact import Number
from noisegate.mechanisms.local_quantile import LocalQuantile
from noisegate.mechanisms.propose import ProposeTestRelease
from noisegate.query.answer import Answer, HalfWidths
from noisegate.query.estimates.draft import Draft, draft
from noisegate.query.looks import caps_of
from noisegate.query.question import Function, Question, Terms
from noisegate.robust.paying import REFUSED, UNKNOWN, Found, Order, Outcome, Till, Widths

if TYPE_CHECKING:
    import pyarrow as pa


@final
class SmoothQuantile:
    """One quantile, by declared groups if the SQL has some."""

    def __init__(self, till: Till, sql: str, order: Order) -> None:
        self._till, self._sql = till, sql
        question = till.read(sql)
        self._draft = _drafted(question, till, order)
        (part,) = self._draft.parts
        tally = part.query.tally
        (aggregate,) = self._draft.block.aggregates
        if not isinstance(tally, Values) or aggregate.level is None:
            raise _no_quantile()
        self._tally, self._names = tally, question.columns
        self._noise = till.noise(
            order, low=tally.term.low, high=tally.term.high, grain=tally.term.grain,
            steps=part.query.per_unit,
        )  # fmt: skip
        mechanism = LocalQuantile(tau=aggregate.level, noise=self._noise)
        self.measurement = Measurement(query=part.query, mechanisms=(mechanism,))

    def ask(self, *, fresh: bool) -> Outcome:
        """The answer, free if it was released before; or its plan."""
        return self._till.settle(
            self.measurement, self._answer, asked=self._sql, fresh=fresh,
            unit=self._tally.term.grain,
        )  # fmt: skip

    def _answer(self, found: Found) -> Answer:
        return found.answer(self._sql, self._table(found), self._widths(found), self._words(found))

    def _table(self, found: Found) -> "pa.Table":
        import pyarrow as pa  # noqa: PLC0415 - only when asked for

        keys = list(product(*(grouping.keys for grouping in self._tally.by)))
        columns: list[Any] = [[key[j] for key in keys] for j in range(len(self._tally.by))]
        columns.append([self._number(row) for row in found.values])
        return pa.table(dict(zip(self._names, columns, strict=True)))

    def _number(self, row: list[int]) -> float | int | None:
        """A number on its grid; None where nothing was released."""
        if len(row) > 1 and not row[0]:
            return None
        exact = row[-1] * self._tally.term.grain
        return int(exact) if self._tally.term.grain == 1 else float(exact)

    def _widths(self, found: Found) -> Widths | None:
        noise, grain = self._noise, self._tally.term.grain
        if not isinstance(noise, ProposeTestRelease):
            return None

        def widths(confidence: Number) -> HalfWidths:
            off = noise.interval(confidence) * grain
            shown = int(off) if grain == 1 else float(off)
            return tuple(shown if row[0] else None for row in found.values)

        return widths

    def _words(self, found: Found) -> tuple[str, ...]:
        if not isinstance(self._noise, ProposeTestRelease):
            return (UNKNOWN, *self._draft.caveats)
        refused = any(not row[0] for row in found.values)
        return (*([REFUSED] if refused else []), *self._draft.caveats)


def _drafted(question: Question, till: Till, order: Order) -> Draft:
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
        "A smooth answer is one quantile.",
        fix="Use SELECT MEDIAN(x) FROM t WHERE …, or QUANTILE_CONT(x, 0.9), by declared groups.",
    )
