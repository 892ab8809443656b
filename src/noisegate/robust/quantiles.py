"""Quantiles and robust means with noise by what one value can do: ``gate.smooth``."""

from fractions import Fraction
from itertools import product
from math import ceil, floor
from typing import Any, ClassVar, Final, final

import pyarrow as pa

from noisegate.algebra.tally import Term, Values
from noisegate.curator.measurement import Measurement
from noisegate.desk.answer import Answer
from noisegate.desk.desk import Desk
from noisegate.desk.terms.terms import Terms
from noisegate.errors import SpecError
from noisegate.exact import Number, positive
from noisegate.frozen import dataclass, replace
from noisegate.mechanisms.smooth.estimators import LocalHuber, LocalTrimmedMean
from noisegate.mechanisms.smooth.local_quantile import LocalQuantile, OfValues
from noisegate.mechanisms.smooth.smooth import LocalNoise
from noisegate.robust.paying import ByReaches, Found, ReachesOrder, ReachesTerms, RobustJob, Till
from noisegate.sql.bounds.limits import caps_of
from noisegate.sql.drafts.draft import Draft, draft
from noisegate.sql.question import Block, Function, Question

_STEPS: Final = 1 << 24  # of the range of a mean


class SmoothTerms(ReachesTerms, total=False):
    """What is said beside the SQL; see `SmoothOrder`."""

    trim: Number | None
    clip: Number | None


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class SmoothOrder(ReachesOrder):
    """One MEDIAN or QUANTILE_CONT, or a robust AVG, by declared groups if the SQL has some.

    ``trim``: the share of values that an AVG leaves out at each end. ``clip``: how far a value may
    pull Huber's estimate, which an AVG then is; in terms of the column.
    ``epsilon`` is the price, ``delta`` for lighter tails, ``beta`` how fast far rows matter less;
    ``method="ptr"`` has a ``bound`` to be tested and a ``delta``: then the answer may be None.
    """

    kind: ClassVar[str] = "smooth"
    sql: str
    trim: Number | None = None
    clip: Number | None = None

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
        if _is_mean(order):
            tally = replace(tally, term=_fine(tally.term))
        query = replace(part.query, tally=tally)
        self._tally, self._names = tally, question.columns
        noise = till.noise(
            order, low=tally.term.low, high=tally.term.high, grain=tally.term.grain,
            steps=query.per_unit,
        )  # fmt: skip
        self._read = ByReaches(noise=noise, grain=tally.term.grain)
        mechanism = _mechanism(order, aggregate.level, tally.term, noise)
        self._measurement = Measurement(query=query, mechanisms=(mechanism,))

    def job(self) -> RobustJob:
        """What is to be measured."""
        return self._till.job(
            self._measurement, self._answer, asked=self._sql, epsilon=self._epsilon,
            unit=self._tally.term.grain,
        )  # fmt: skip

    def _answer(self, found: Found) -> Answer:
        words = (*self._read.words(found), *self._draft.capped, *self._draft.caveats)
        table, widths = self._table(found), self._read.widths(found)
        unsigned = self._read.unsigned
        return found.answer(self._sql, table, widths, words, unsigned=unsigned, amount=False)

    def _table(self, found: Found) -> pa.Table:
        keys = list(product(*(grouping.keys for grouping in self._tally.by)))
        columns: list[Any] = [[key[j] for key in keys] for j in range(len(self._tally.by))]
        columns.append(self._read.numbers(found))
        return pa.table(dict(zip(self._names, columns, strict=True)))


def _is_mean(order: SmoothOrder) -> bool:
    return order.trim is not None or order.clip is not None


def _mechanism(order: SmoothOrder, level: Fraction, term: Term, noise: LocalNoise) -> OfValues:
    """The number that is asked for, with its noise."""
    if order.trim is not None:
        return LocalTrimmedMean(trim=order.trim, noise=noise)  # type: ignore[arg-type]  # exact
    if order.clip is not None:
        return LocalHuber(clip=max(1, int(order.clip / term.grain)), noise=noise)  # type: ignore[operator]
    return LocalQuantile(tau=level, noise=noise)


def _fine(term: Term) -> Term:
    """The values on a grid so fine that rounding a mean to it is nothing beside its noise."""
    low, high = term.low * term.grain, term.high * term.grain
    parts = max(1, _STEPS // max(1, term.high - term.low))
    grain = term.grain / parts if term.high - term.low < _STEPS else (high - low) / _STEPS
    return replace(term, grain=grain, low=floor(low / grain), high=ceil(high / grain))


def _as_quantile(block: Block, order: SmoothOrder) -> Block:
    """An AVG as the question for its values; refuses what is not one number of them."""
    if not _is_mean(order):
        return block
    if order.trim is not None and order.clip is not None:
        raise SpecError(
            "A mean is either trimmed or Huber's.", fix="Give trim or clip.", about="estimator"
        )
    if order.clip is not None:
        positive(order.clip, name="clip")
    if [each.function for each in block.aggregates] != [Function.AVG]:
        raise SpecError(
            "A robust mean is asked for as one AVG.",
            fix="Use SELECT AVG(x) FROM t WHERE …, by declared groups.",
            about="estimator",
        )
    (asked,) = block.aggregates
    level = replace(asked, function=Function.QUANTILE, level=Fraction(1, 2))
    return replace(block, aggregates=(level,))


def _drafted(question: Question, till: Till, order: SmoothOrder) -> Draft:
    """The tally of one quantile that the SQL shows as it is."""
    if len(question.blocks) != 1 or question.picked is None or question.explain:
        raise _no_quantile()
    block = _as_quantile(question.blocks[0], order)
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
        "The smooth method answers exactly one quantile, or a robust mean.",
        fix="Use SELECT MEDIAN(x) FROM t WHERE …, or QUANTILE_CONT(x, 0.9), by declared groups; or "
        "AVG(x) with trim or clip.",
    )
