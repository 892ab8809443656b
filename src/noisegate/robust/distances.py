"""How many rows must go until a property holds: ``gate.distance``.

A property that can be lost by one row is a secret; how far the rows are from it is a number that
one row moves by at most 1. Computable ones are the least of several public counts of exceptions.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from math import cos, pi, sin
from typing import ClassVar, Final, TypedDict, final

import numpy as np
import pyarrow as pa

from noisegate.algebra.tally import Sums
from noisegate.curator.measurement import Measurement
from noisegate.desk.answer import Answer, HalfWidths
from noisegate.desk.desk import Desk
from noisegate.desk.job import Progress
from noisegate.desk.order import Order
from noisegate.desk.plan import Plan
from noisegate.desk.terms.terms import Terms
from noisegate.errors import SpecError
from noisegate.exact import Number, fraction, positive
from noisegate.mechanisms.additive.geometric import Geometric
from noisegate.mechanisms.additive.least_sum import LeastSum
from noisegate.mechanisms.base import failure_of
from noisegate.privacy.distance import L1
from noisegate.robust.clusters import cluster_candidates
from noisegate.robust.paying import Found, RobustJob, Till, shown_number
from noisegate.robust.plans import RobustExpected
from noisegate.sql.choices.candidates import Candidates, candidates_of
from noisegate.sql.choices.listed import Given, listed_of
from noisegate.sql.choices.scored import score_of, scored_candidates
from noisegate.sql.laws.sampling import Sampling, sample_words, sampling_of
from noisegate.sql.order import SqlOrder
from noisegate.sql.plan import AnswerExpected

SIDES: Final = 8  # directions of a grid of separators
STEPS: Final = 9  # and thresholds along each
_WAYS: Final = (
    "Give SQL of counts, or columns with centers (or clusters) and a radius, or with a label."
)


class DistanceTerms(TypedDict, total=False):
    """What is said beside SQL, or instead of it; see `Gate.distance`. The last are of programs."""

    epsilon: Number | None
    table: str | None
    where: str | None
    columns: Sequence[str]
    centers: Sequence[Sequence[Number]]
    radius: Number | None
    clusters: int | None
    grid: int
    label: str | None
    separators: Sequence[tuple[Sequence[Number], Number]]
    candidates: Given | str | None
    rows_per_unit: int | None
    trusted: bool
    seconds: Number
    memory: int
    imports: Sequence[str]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class DistanceOrder(Order[Answer, "RobustExpected | AnswerExpected"]):
    """How many rows must go until a property holds: SQL of counts, of which the least is told.

    With ``candidates`` the SQL is one count by a condition on them, as for `ChoiceOrder`.
    Or ``columns`` with ``centers`` and a ``radius``: rows in none of the balls; or ``clusters``,
    how many balls, with the best centres of a public ``grid`` of so many points a column; or a
    ``label`` such as "sick = 1": rows on the wrong side of the best of the ``separators``, lines
    such as ``([1, -2], 30)`` for x - 2y >= 30, by default a public grid of them.
    """

    kind: ClassVar[str] = "distance"
    sql: str | None = None
    epsilon: Number | None = None
    table: str | None = None
    where: str | None = None
    columns: Sequence[str] = ()
    centers: Sequence[Sequence[Number]] = ()
    radius: Number | None = None
    clusters: int | None = None
    grid: int = 6
    label: str | None = None
    separators: Sequence[tuple[Sequence[Number], Number]] = ()
    candidates: Given | str | None = None
    rows_per_unit: int | None = None

    def __post_init__(self) -> None:
        Order.__post_init__(self)
        built = (self.table, self.where, self.radius, self.label, self.clusters)
        parts = (*self.columns, *self.centers, *self.separators)
        if self.sql is not None and (parts or any(each is not None for each in built)):
            raise SpecError(
                "The SQL already states everything else.",
                fix="Give only epsilon, candidates and rows_per_unit.",
            )
        if self.candidates is not None and self.sql is None:
            raise SpecError(
                "Candidates are for a count in SQL.", fix="Give SQL that names their columns.",
                about="candidates",
            )  # fmt: skip
        if self.clusters is not None and (self.centers or self.label is not None):
            raise SpecError(
                "Centres are given, or the best of a grid.",
                fix="Give centers or clusters.",
                about="clusters",
            )

    def plan(  # noqa: D102 - see Order
        self, desk: Desk, *, fresh: bool = False
    ) -> Plan[RobustExpected | AnswerExpected]:
        if self.centers:
            return self.counted(desk).plan(desk, fresh=fresh)
        return desk.plan(self.job(desk), fresh=fresh)

    def run(self, desk: Desk, *, fresh: bool = False, progress: Progress | None = None) -> Answer:  # noqa: D102 - see Order
        if self.centers:
            return self.counted(desk).run(desk, fresh=fresh, progress=progress)
        return desk.run(self.job(desk), fresh=fresh, progress=progress)

    def counted(self, desk: Desk) -> SqlOrder:
        """The one count that it is, of the rows in no ball."""
        sql = _outside(Till(desk), self)
        epsilon = desk.epsilon(self.epsilon)
        return SqlOrder(sql=sql, epsilon=epsilon, rows_per_unit=self.rows_per_unit)

    def job(self, desk: Desk) -> RobustJob:
        """The least of several counts."""
        return _Distance(Till(desk), self).job()


@final
class _Distance:
    """The least of several counts, through the door."""

    def __init__(self, till: Till, order: DistanceOrder) -> None:
        self._till = till
        self._sql, self._found, said = _counts(till, order)
        reach = L1(self._found.sensitivity)
        self._epsilon = till.rules.price(order.epsilon, said)
        price = till.inner(self._epsilon)
        self._noise = LeastSum(scale=Geometric.for_epsilon(price, sensitivity=reach).scale)
        self._measurement = Measurement(query=self._found.query, mechanisms=(self._noise,))

    def job(self) -> RobustJob:
        """What is to be measured."""
        asked = f"the smallest of {len(self._found.names):,} numbers"
        return self._till.job(
            self._measurement, self._answer, asked=asked, epsilon=self._epsilon,
            unit=self._found.grain,
        )  # fmt: skip

    def _answer(self, found: Found) -> Answer:
        value = found.values[0][0] * self._found.grain
        words = [f"The smallest of {len(self._found.names):,} numbers; which one is not released."]
        if self._till.rules.sample is not None:
            words.append(sample_words(self._till.rules.sample, in_bars=self._sampling is not None))
        else:
            words.extend(self._found.caveats)

        def widths(confidence: Number) -> HalfWidths:
            return (self._width(value, confidence),)

        table = _table(shown_number(value))
        return found.answer(self._sql, table, widths, words, unsigned=self._unsigned)

    @property
    def _unsigned(self) -> bool:
        """Whether no number can be negative."""
        query = self._found.query
        tally, signs = query.tally, query.asks == "cells" or query.combinations.is_positive
        return signs and isinstance(tally, Sums) and all(term.low >= 0 for term in tally.terms)

    @property
    def _sampling(self) -> Sampling | None:
        """What sampling adds to numbers from 0 on; None of all rows, or where signs differ."""
        chance = self._till.rules.sample
        if chance is None or not self._unsigned:
            return None
        return sampling_of(chance, int(self._found.sensitivity), self._found.grain)

    def _width(self, value: Fraction, confidence: Number) -> int | float:
        """How far the least may be off; of a sample, half of what may fail is for sampling.

        Why: bounds rise with the number they are for. If those of all numbers hold at once, each
            with an equal part of what may fail, so do those of the least.
        """
        sampling, grain = self._sampling, self._found.grain
        if sampling is None:
            return shown_number(self._noise.interval(confidence) * grain)
        failure = failure_of(confidence) / 2
        noise = float(self._noise.interval(1 - failure) * grain)
        each = float(failure / len(self._found.names))
        (off,) = sampling.widened(np.array([float(value)]), np.array([noise]), each).tolist()
        return float(off)


def _counts(till: Till, order: DistanceOrder) -> tuple[str, Candidates, Number | None]:
    """The numbers of which the least is told, in words or SQL; and the price that SQL states."""
    if order.clusters is not None:
        table = till.table(order.table)
        terms = Terms(rows_per_unit=order.rows_per_unit)
        words = f"rows outside the best {order.clusters} balls of a grid in {table}"
        return words, cluster_candidates(till, order, table, terms), None
    sql = order.sql if order.sql is not None else _best_line(till, order)
    if order.candidates is not None:
        listed = listed_of(till.desk, order.candidates, None)
        score, said = score_of(sql, listed.table.column_names)
        terms = Terms(rows_per_unit=order.rows_per_unit or said.rows_per_unit)
        return sql, scored_candidates(till.desk, score, listed, terms, least=False), said.epsilon
    question = till.read(sql)
    accountant = till.curator.ledger.balance(till.curator.account).accountant
    terms = Terms(rows_per_unit=order.rows_per_unit or question.terms.rows_per_unit)
    return sql, candidates_of(question, terms, accountant=accountant), question.terms.epsilon


def _counting(wrong: Mapping[str, str], table: str, order: DistanceOrder) -> str:
    """SQL of the rows that are wrong, by name."""
    counts = ", ".join(f'COUNT(*) FILTER (WHERE {each}) AS "{k}"' for k, each in wrong.items())
    where = "" if order.where is None else f" WHERE {order.where}"
    return f"SELECT {counts} FROM {table}{where}"  # noqa: S608 - it is read, not run


def _outside(till: Till, order: DistanceOrder) -> str:
    """SQL of the rows further than the radius from every centre."""
    if order.radius is None or order.separators or order.label is not None:
        raise SpecError("A ball has a centre and a radius.", fix="Give centers and radius.")
    square = _number(positive(order.radius, name="radius") ** 2)
    balls = []
    for center in order.centers:
        _require_length(center, order)
        parts = (f"({c} - {_number(v)}) * ({c} - {_number(v)})"
                 for c, v in zip(order.columns, center, strict=True))  # fmt: skip
        balls.append(f"({' + '.join(parts)}) <= {square}")
    return _counting({"distance": f"NOT ({' OR '.join(balls)})"}, till.table(order.table), order)


def _best_line(till: Till, order: DistanceOrder) -> str:
    """SQL of the rows on the wrong side of each candidate; both ways round."""
    if not order.columns or order.label is None or order.radius is not None:
        raise SpecError("The property to measure the distance to is missing.", fix=_WAYS)
    table = till.table(order.table)
    lines = order.separators or _grid(till, table, order)
    found = []
    if any(not isinstance(line, list | tuple) or len(line) != 2 for line in lines):
        raise SpecError(
            "A separator must be weights and a threshold.", fix="For example: [([1, -2], 30)]."
        )
    for weights, threshold in lines:
        _require_length(weights, order)
        parts = (f"{_number(w)} * {c}" for c, w in zip(order.columns, weights, strict=True))
        side = f"({' + '.join(parts)} >= {_number(threshold)})"
        found += [f"{side} <> ({order.label})", f"{side} = ({order.label})"]
    return _counting({str(place): each for place, each in enumerate(found)}, table, order)


def _grid(till: Till, table: str, order: DistanceOrder) -> list[tuple[Sequence[Number], Number]]:
    """Lines in several directions across the declared box of two columns."""
    domain = next(d for n, d in till.curator.tables.items() if n.lower() == table.lower())
    known = {name.lower(): column for name, column in domain.columns.items()}
    found = [known[name.lower()] for name in order.columns if name.lower() in known]
    domains = [column.domain for column in found]
    box = [(d.low, d.high) for d in domains if d.low is not None and d.high is not None]
    if len(order.columns) != 2 or len(box) != 2 or any(low == high for low, high in box):
        raise SpecError(
            "A grid of separators needs two columns with bounds.",
            fix="Declare their bounds, or give separators: [([1, -2], 30), …].",
        )
    (left, right), (bottom, top) = ((float(low), float(high)) for low, high in box)
    lines: list[tuple[Sequence[Number], Number]] = []
    for side in range(SIDES):
        weights = cos(pi * side / SIDES) / (right - left), sin(pi * side / SIDES) / (top - bottom)
        ends = [weights[0] * x + weights[1] * y for x, y in product((left, right), (bottom, top))]
        low, high = min(ends), max(ends)
        steps = (low + (high - low) * (step + 1) / (STEPS + 1) for step in range(STEPS))
        lines += [(weights, threshold) for threshold in steps]
    return lines


def _require_length(given: Sequence[Number], order: DistanceOrder) -> None:
    if not isinstance(given, Collection) or len(given) != len(order.columns):
        raise SpecError(
            f"There must be one number for each of {len(order.columns)} columns.",
            fix="Give one per column.",
        )


def _number(value: Number) -> str:
    """As SQL has it, to six digits: candidates need no more, and are public as they are written."""
    text = f"{float(fraction(value)):.6g}"
    return f"({text})" if text.startswith("-") else text


def _table(value: float) -> pa.Table:
    return pa.table({"distance": [value]})
