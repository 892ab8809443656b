"""Expectations of bounded expressions over rows: all that a statistical-query learner asks for.

    gate.statistic(["age >= 65", "cost / 800"], epsilon=1)

Each expression is measured from the middle of its bounds, so that one unit moves its sum by half of
what the bounds are apart; a noisy count of the rows turns sums into means. A row without a value
counts as 0, or as the bound next to it; so a condition that is unknown counts as one that fails.
"""

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from math import sqrt
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeAlias, TypedDict, final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from noisegate.algebra.expression import Call, Expression, Field, Literal, Schema, domain_of
from noisegate.algebra.relation import Sampled
from noisegate.algebra.schema import schema_of
from noisegate.curator.measurement import Measurement
from noisegate.desk.desk import Desk
from noisegate.desk.display.numbers import percent
from noisegate.desk.job import Measured, Receipt
from noisegate.desk.order import JobOrder
from noisegate.desk.plan import Fact
from noisegate.desk.terms.price import Price
from noisegate.desk.terms.terms import USUAL
from noisegate.errors import SpecError
from noisegate.exact import Number, positive
from noisegate.frozen import dataclass, replace
from noisegate.learners.asking import Floats, noises
from noisegate.learners.fitting import REACH, card_of
from noisegate.learners.matrix import Coordinate, Matrix, matrix_of
from noisegate.ledger.verify.anchor import NO_LOG, Log
from noisegate.mechanisms.base import NoiseMechanism, failure_of, smallest_whole, to_record
from noisegate.mechanisms.catalogue import from_record
from noisegate.privacy.guarantee import Guarantee, guarantee_of
from noisegate.privacy.loss import ApproxDP
from noisegate.privacy.release import Release
from noisegate.releases.cells.grid import asserted
from noisegate.sql.drafts.declared import declared_rows
from noisegate.sql.drafts.words import noun_of
from noisegate.sql.laws.sampling import Sampling, sampling_of
from noisegate.transforms.query import Query
from noisegate.transforms.statistics.features import Linear, One
from noisegate.transforms.statistics.statistic import Statistic
from noisegate.transforms.statistics.weighings import Plain

if TYPE_CHECKING:
    from noisegate.desk.card import Card

Noise: TypeAlias = NoiseMechanism[Any]
SUMS: Final = Statistic(Plain(), (Linear(),))
COUNT: Final = Statistic(Plain(), (One(),))
BOTH: Final = Statistic(Plain(), (One(), Linear()))
_STEP: Final = 1 << 10  # of an ε that is sought
_ROWS_MAX: Final = 1 << 40


@lru_cache(maxsize=256)
def interval(noise: Noise, confidence: Fraction) -> int:
    """How far a number may be off; certified, so it takes a while to find."""
    return noise.interval(confidence)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """Noisy sums from the middle, in steps of which ``reach`` are half the bounds; and a count.

    Noise is that of each number, in parts of which ``whole`` are a row.
    """

    coordinates: tuple[Coordinate, ...]
    sums: Floats
    count: float
    noise: Noise
    count_noise: Noise
    reach: int
    whole: float
    sampling: Sampling | None = None

    @property
    def values(self) -> Floats:
        """The mean of each expression over the rows, within its bounds."""
        inside = np.clip(self.sums / (self.reach * max(1.0, self.count)), -1, 1)
        return self._unscaled(inside)

    def within(self, confidence: Number = USUAL) -> Floats:
        """How far each mean may be off, each by itself.

        Claim: the exact mean of the rows is outside with at most 1 - confidence. Why: the noise of
            the sum and of the count each pass their bounds with half of that; between them, the
            quotient is furthest off at an end. Of a sample, half of it is for sampling.
        """
        failure = failure_of(confidence) / (1 if self.sampling is None else 2)
        off, rows_off = self._off(failure)
        sums, least = self.sums / self.reach, self.count - rows_off
        if least <= 0:
            return 2 * self._halves
        ends = [(sums + a) / rows for a in (-off, off) for rows in (least, self.count + rows_off)]
        stray = self._strays(failure, self.count)
        inside = np.clip(np.array([each + a for each in ends for a in (-stray, stray)]), -1, 1)
        found: Floats = np.abs(self._unscaled(inside) - self.values).max(axis=0)
        return found

    def worst(self, confidence: Number = USUAL, *, rows: float | None = None) -> float:
        """How far any one mean may be off, whatever it is; of so many rows, if that is said."""
        failure = failure_of(confidence) / (1 if self.sampling is None else 2)
        off, rows_off = self._off(failure)
        count = self.count if rows is None else rows
        if count <= rows_off:
            return float(self._halves.max() * 2)
        share = (off + rows_off) / (count - rows_off) + self._strays(failure, count)
        return float(self._halves.max() * min(2.0, share))

    def _strays(self, failure: Fraction, count: float) -> float:
        """What sampling adds, in halves of the bounds; a third each for noise, rows and values."""
        if self.sampling is None:
            return 0.0
        off = interval(self.count_noise, 1 - failure / 3) / self.whole
        ends, part = (np.array([count - off]), np.array([count + off])), float(failure / 3)
        most = self.sampling.bounds(*ends, part)[1]
        return float(self.sampling.average_strays(2.0, ends[0], most, part)[0])

    def _off(self, failure: Fraction) -> tuple[float, float]:
        half = 1 - failure / 2
        off = interval(self.noise, half) / (self.reach * self.whole)
        return off, interval(self.count_noise, half) / self.whole

    @property
    def _halves(self) -> Floats:
        return np.array([float(each.half) for each in self.coordinates])

    def _unscaled(self, inside: Floats) -> Floats:
        middles = np.array([float(each.middle) for each in self.coordinates])
        return middles + self._halves * inside


def means_record(means: Means) -> dict[str, Any]:
    """Means of all rows as plain values: all that their ± follows from."""
    return {
        "coordinates": [[each.name, str(each.low), str(each.high)] for each in means.coordinates],
        "sums": means.sums.tolist(), "count": means.count, "reach": means.reach,
        "whole": means.whole, "noise": to_record(means.noise),
        "count_noise": to_record(means.count_noise),
    }  # fmt: skip


def means_from(record: Mapping[str, Any]) -> Means:
    """What `means_record` wrote. The expressions themselves are gone, but for their names."""
    noise: Any = from_record(record["noise"])
    count_noise: Any = from_record(record["count_noise"])
    said = [(name, Fraction(low), Fraction(high)) for name, low, high in record["coordinates"]]
    return Means(
        coordinates=tuple(
            Coordinate(name=name, expression=Literal(0), low=low, high=high, column=name)
            for name, low, high in said
        ),
        sums=np.array(record["sums"], np.float64), count=record["count"], reach=record["reach"],
        whole=record["whole"], noise=noise, count_noise=count_noise,
    )  # fmt: skip


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Expectations:
    """Released means. Reading them again never draws again and never costs."""

    means: Means
    cost: ApproxDP
    remaining: ApproxDP
    guarantee: Guarantee
    request_id: str
    sql: str = ""
    question: str = ""
    practice: bool = False
    log: Log = NO_LOG
    caveats: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The expressions, in order; of a column of keys, one for each key."""
        return tuple(each.name for each in self.means.coordinates)

    @property
    def values(self) -> Floats:
        """The mean of each expression over the rows."""
        return self.means.values

    @property
    def value(self) -> float:
        """The first mean."""
        return float(self.values[0])

    @property
    def rows(self) -> float:
        """About how many rows took part."""
        return self.means.count

    def within(self, confidence: Number = USUAL) -> Floats:
        """How far each mean may be off, each by itself; see `Means.within`."""
        return self.means.within(confidence)

    @property
    def free(self) -> bool:
        """Whether it came from the ledger, without a new charge."""
        return self.cost == ApproxDP(0)

    def card(self, confidence: Number = USUAL) -> "Card":
        """The release card: what was measured and guaranteed, checkable against the ledger."""
        receipt = Receipt(
            cost=self.cost, remaining=self.remaining, guarantee=self.guarantee, log=self.log,
            question=self.question, request_id=self.request_id, practice=self.practice,
            free=self.free,
        )  # fmt: skip
        table = pa.table({"statistic": list(self.names), "mean": self.values})
        widths = (None, tuple(self.within(confidence).tolist()))
        return card_of(receipt, self.sql, table, widths, self.caveats, confidence)

    def __str__(self) -> str:
        widths = self.within()
        lines = [
            f"{name}\t{value:.4g} ± {width:.2g}"
            for name, value, width in zip(self.names, self.values, widths, strict=True)
        ]
        price = f"cost {self.cost}, left {self.remaining:left}"
        return "\n".join([*lines, price, *self.caveats])


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class MeansExpected:
    """Which means would be measured, and how far each may be off for so many rows, if known."""

    means: Means  # of no rows
    rows: int | None

    @property
    def names(self) -> tuple[str, ...]:
        """Of the means."""
        return tuple(each.name for each in self.means.coordinates)

    def margins(self, confidence: Number) -> dict[str, float | None]:
        """The ± of every mean, whatever it is; None where nobody says how many rows there are."""
        rows = self.rows
        worst = None if rows is None else float(self.means.worst(confidence, rows=rows))
        return dict.fromkeys(self.names, worst)

    def facts(self, confidence: Number) -> list[Fact]:
        """In words, one fact a line."""
        off = next(iter(self.margins(confidence).values()), None)
        sure = f"at {percent(confidence)} confidence for each"
        error = "depends on how many rows there are: give rows"
        return [
            ("means", ", ".join(self.names)),
            ("error", error if off is None else f"± {off:.3g} {sure}, of {self.rows:,} rows"),
        ]

    def to_dict(self, confidence: Number) -> dict[str, Any]:  # noqa: ARG002 - as others
        """Plain values, for JSON."""
        return {"names": list(self.names), "rows": self.rows}


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class MeansJob(Measured[Expectations, MeansExpected]):
    """The means of bounded expressions, all for one price."""

    kind: str = "means"
    asking: "_Asking"
    chosen: tuple[Noise, ...]

    def guarantee(self, loss: ApproxDP) -> Guarantee:
        """About the means."""
        return guarantee_of(loss, self.tables, "these means of")

    def result(self, content: Release, receipt: Receipt) -> Expectations:
        """The means."""
        return Expectations(
            means=self.asking.means(content.values[0], self.chosen),
            sql=self.sql,
            caveats=self.notes,
            **receipt.standing,
        )


class StatisticTerms(TypedDict, total=False):
    """What is said beside the expressions; see `Gate.statistic`."""

    table: str | None
    where: str | None
    epsilon: Number | None
    tolerance: Number | None
    rows: int | None
    confidence: Number
    rows_per_unit: int | None


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class StatisticOrder(JobOrder[Expectations, MeansExpected]):
    """The mean of each of some bounded expressions, all for one price; see `Gate.statistic`.

    Instead of ``epsilon``, a ``tolerance`` for every mean at the ``confidence``, with about how
    many ``rows`` there are: then the least price is found that keeps it.
    """

    kind: ClassVar[str] = "statistic"
    expressions: Sequence[str]
    table: str | None = None
    where: str | None = None
    epsilon: Number | None = None
    tolerance: Number | None = None
    rows: int | None = None
    confidence: Number = USUAL
    rows_per_unit: int | None = None

    def __post_init__(self) -> None:
        if isinstance(self.expressions, str):
            object.__setattr__(self, "expressions", (self.expressions,))
        JobOrder.__post_init__(self)

    def job(self, desk: Desk) -> MeansJob:
        """What is to be measured."""
        matrix = matrix_of(
            desk.curator, desk.rules, self.table, self.expressions, where=self.where,
            rows_per_unit=self.rows_per_unit,
        )  # fmt: skip
        return means_job(
            matrix, epsilon=self.epsilon, tolerance=self.tolerance, rows=self.rows,
            confidence=self.confidence,
        )  # fmt: skip


def means_job(
    matrix: Matrix,
    *,
    epsilon: Number | None = None,
    tolerance: Number | None = None,
    rows: int | None = None,
    confidence: Number = USUAL,
) -> MeansJob:
    """What is to be measured; whatever is wrong with it is refused here, at no cost."""
    asking = _Asking(matrix)
    if tolerance is not None:
        if epsilon is not None or rows is None:
            raise SpecError("The price is missing.", fix="Give epsilon, or tolerance and rows.")
        goal = float(positive(tolerance, name="tolerance"))
        epsilon = asking.least(goal, _known(rows), confidence)
    exact = matrix.desk.epsilon(epsilon)
    chosen = asking.bought(matrix.desk.price(exact))
    nothing = np.zeros(1 + len(matrix.marks), np.int64)
    return MeansJob(
        sql=f"{', '.join(matrix.columns)} of {matrix.table}",
        epsilon=exact,
        expected=MeansExpected(means=asking.means(nothing, chosen), rows=rows and _known(rows)),
        measurement=Measurement(query=asking.query, mechanisms=chosen),
        notes=(*_capped(matrix, asking.query), *_valueless(matrix)),
        asking=asking,
        chosen=chosen,
    )


def _valueless(matrix: Matrix) -> Iterator[str]:
    """What rows without a value count as: all rows are in a mean; those of SQL leave them out."""
    schema = schema_of(matrix.relation)
    for each in asserted(matrix.relation):
        if type(each) is Field:
            schema[each.name] = replace(schema[each.name], nullable=False, unlisted=False)
    lacking = [
        f"{each.name} as {float(_nearest(each)):,.6g}"
        for each in _lacking(matrix, schema)
        if each.key is None
    ]
    if lacking:
        yield (
            f"Rows without a value count too: {', '.join(lacking)}. "
            "A WHERE … IS NOT NULL leaves them out."
        )


def _capped(matrix: Matrix, query: Query) -> tuple[str, ...]:
    """How much of a unit counts, where some may have more: what that loses is not in the ±."""
    cap, most = matrix.rows_per_unit, declared_rows(matrix.relation, sure=True)
    if cap is None or (most is not None and most <= cap):
        return ()
    rows = f"{cap:,} row{'s' * (cap > 1)}"
    lost = "(not in the ±): means are those of the rows that count, and their number a lower bound"
    return (f"Capped: {rows} per {noun_of(query)}; a unit with more is scaled down {lost}.",)


@final
class _Asking:
    """One question about the means of a matrix."""

    def __init__(self, matrix: Matrix) -> None:
        self._matrix, chance = filled(matrix), matrix.rules.sample
        tally = self._matrix.rows(REACH)
        if chance is not None:
            tally = replace(tally, relation=Sampled(tally.relation, chance))
        self.query, self._whole = Query(tally, BOTH), tally.whole * float(chance or 1)
        self._sampling = sampled_rows(matrix, self.query)

    def bought(self, price: Price) -> tuple[Noise, ...]:
        """The noise of the count and of the sums."""
        blocks = self.query.statistic_blocks
        share = count_share(blocks[1].width, gaussian=price.gaussian)
        return noises(blocks, [share, 1 - share], price, self.query.weight)

    def means(self, values: NDArray[np.int64], chosen: Sequence[Noise]) -> Means:
        """What was measured."""
        return Means(
            coordinates=self._matrix.marks,
            sums=values[1:] / self._whole,
            count=float(values[0] / self._whole),
            noise=chosen[1],
            count_noise=chosen[0],
            reach=REACH,
            whole=self._whole,
            sampling=self._sampling,
        )

    def least(self, goal: float, rows: int, confidence: Number) -> Fraction:
        """The least ε, in fine steps, whose error is within the goal whatever the means are."""
        nothing = np.zeros(1 + len(self._matrix.marks), np.int64)
        desk = self._matrix.desk

        def enough(steps: int) -> bool:
            price = desk.price(desk.bought(Fraction(steps, _STEP)))
            means = self.means(nothing, self.bought(price))
            return means.worst(confidence, rows=rows) <= goal

        if not enough(_STEP << 10):
            raise SpecError(
                "With so few rows, no usual price achieves this tolerance.", fix="Allow more error."
            )
        return Fraction(smallest_whole(enough, least=1), _STEP)


def sampled_rows(matrix: Matrix, query: Query) -> Sampling | None:
    """What a sample of the matrix adds to numbers of its rows, if it is one."""
    chance = matrix.rules.sample
    return None if chance is None else sampling_of(chance, query.per_unit, 1 / chance)


def filled(matrix: Matrix) -> Matrix:
    """The same rows, where none is left out for want of a value, and no classes."""
    lacking = _lacking(matrix, schema_of(matrix.relation))
    marks = tuple(
        replace(each, expression=_filled(each)) if each in lacking else each
        for each in matrix.marks
    )
    return replace(matrix, marks=marks, codes=marks, classes=None, number=None)


def _lacking(matrix: Matrix, schema: Schema) -> list[Coordinate]:
    return [each for each in matrix.marks if domain_of(each.expression, schema).may_lack]


def _nearest(each: Coordinate) -> Fraction:
    return min(max(each.low, Fraction(0)), each.high)


def _filled(each: Coordinate) -> Expression:
    nearest = _nearest(each)
    whole = nearest.denominator == 1
    return Call("coalesce", (each.expression, Literal(int(nearest) if whole else nearest)))


def count_share(width: int, *, gaussian: bool, weight: float = 0.5) -> Fraction:
    """What to spend on the count of rows, where so many sums are measured with it.

    A mean's variance is a² / s + b² / (1 - s) of shares of ρ, or with their squares of ε; a is
    the noise of a sum, b that of the count times a ``weight``: how far a mean is from the middle,
    about, of the way to its bounds.
    """
    if gaussian:
        ratio = weight / sqrt(width)
    else:
        ratio = (weight * sqrt(2) / max(sqrt(2), width / sqrt(3))) ** (2 / 3)
    return Fraction(max(1, round(1000 * ratio / (1 + ratio))), 1000)


def _known(rows: int) -> int:
    if type(rows) is not int or not 1 <= rows <= _ROWS_MAX:
        raise SpecError("rows is not a number of rows.", fix="Give the approximate number of rows.")
    return rows
