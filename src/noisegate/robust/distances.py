"""How many rows must go until a property holds: ``gate.distance``.

A property that can be lost by one row is a secret; how far the rows are from it is a number that
one row moves by at most 1. Computable ones are the least of several public counts of exceptions.

That to a good clustering is how few rows lie outside the best balls of a public grid.

A clustering with k centres is good if no row is further than the radius from all of them. Centres
are points of a public grid over the declared bounds; all sets of k of them are tried. Rows count at
the middle of public bins, so each set's exceptions are a sum of counted cells, one row changes each
by at most 1, and so their least.

One may also be computed by a program, on the steward's word that one unit moves it by 1.
"""

from collections.abc import Collection, Mapping, Sequence
from fractions import Fraction
from itertools import combinations, product
from math import comb, cos, pi, sin
from typing import Any, ClassVar, Final, TypedDict, Unpack, final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from noisegate.algebra.blocks import STEPS, Blocks
from noisegate.algebra.schema import schema_of
from noisegate.algebra.tally import Sums
from noisegate.curator.claimed import ClaimedMeasurement
from noisegate.curator.measurement import Measurement
from noisegate.desk.answer import Answer
from noisegate.desk.desk import Desk
from noisegate.desk.job import Progress
from noisegate.desk.noisy import HalfWidths
from noisegate.desk.order import Order
from noisegate.desk.plan import Plan
from noisegate.desk.terms.terms import Terms
from noisegate.errors import SpecError
from noisegate.exact import Number, fraction, positive
from noisegate.frozen import dataclass, replace
from noisegate.mechanisms.additive.geometric import Geometric
from noisegate.mechanisms.additive.least_sum import LeastSum
from noisegate.mechanisms.base import failure_of
from noisegate.privacy.distance import L1
from noisegate.programs.order import ProgramOrder, require_all_rows
from noisegate.programs.text import Function, program_of
from noisegate.robust.paying import Found, RobustExpected, RobustJob, Till, shown_number
from noisegate.sql.choices.candidates import Candidates, candidates_of
from noisegate.sql.choices.on_interval import Given, listed_of
from noisegate.sql.choices.scored import PAIRS_MAX, combined, score_of, scored_candidates
from noisegate.sql.laws.sampling import Sampling, sample_words, sampling_of
from noisegate.sql.order import SqlOrder
from noisegate.sql.plan import AnswerExpected
from noisegate.sql.reading.reader import read
from noisegate.sql.spelling import decimal
from noisegate.transforms.blocks import BlockQuery

CELLS: Final = 1 << 10  # bins of all columns together, roughly
SETS_MAX: Final = 1 << 14
_COARSE: Final = "Rows count at the middle of public bins; the ± is of noise alone."
_DIGITS: Final = 6  # of ends and widths of bins


def cluster_candidates(till: Till, order: "DistanceOrder", table: str, terms: Terms) -> Candidates:
    """All sets of centres, and how many rows each leaves outside."""
    ends = _bounds(till, table, order.columns)
    bins = max(2, round(CELLS ** (1 / len(ends))))
    grid = _centres(order, ends)
    sets = comb(len(grid), order.clusters or 0)
    if not order.clusters or not 1 <= order.clusters < len(grid) or sets > SETS_MAX:
        raise SpecError(
            f"There would be {sets:,} sets of centres.",
            fix=f"Use fewer clusters or a smaller grid: up to {SETS_MAX:,} sets.",
            about="clusters",
        )
    found = _counted(till, order, table, terms, bins)
    tally = found.query.tally
    cells = _middles(tally, ends, bins)
    if sets * len(cells) > PAIRS_MAX:
        raise SpecError(
            f"{sets:,} sets of centres and {len(cells):,} bins are too many pairs.",
            fix=f"Use a smaller grid: up to {PAIRS_MAX:,} pairs.",
            about="clusters",
        )
    square = float(positive(order.radius or 0, name="radius")) ** 2
    apart = ((cells[:, None, :] - grid[None, :, :]) ** 2).sum(axis=2) > square
    chosen = combinations(range(len(grid)), order.clusters)
    outside = np.array([apart[:, list(each)].all(axis=1) for each in chosen])
    names = tuple(str(place) for place in range(sets))
    query = combined(tally, outside.astype(np.int64))
    return replace(
        found, names=names, query=query, monotone=query.is_monotone,
        caveats=(*found.caveats, _COARSE),
    )  # fmt: skip


def _ends(till: Till, table: str, columns: Sequence[str]) -> list[tuple[Fraction, Fraction]]:
    """The bounds of those columns that have any."""
    domain = next(d for n, d in till.curator.tables.items() if n.lower() == table.lower())
    known = {name.lower(): column.domain for name, column in domain.columns.items()}
    found = [known[name.lower()] for name in columns if name.lower() in known]
    return [(d.low, d.high) for d in found if d.low is not None and d.high is not None]


def _bounds(till: Till, table: str, columns: Sequence[str]) -> list[tuple[Fraction, Fraction]]:
    """The declared bounds of the columns."""
    ends = _ends(till, table, columns)
    if not ends or len(ends) < len(columns) or any(low >= high for low, high in ends):
        raise SpecError(
            "A grid of centres needs columns with bounds.",
            fix="Declare their bounds, or give centers.",
            about="bounds",
        )
    return ends


def _centres(
    order: "DistanceOrder", ends: Sequence[tuple[Fraction, Fraction]]
) -> NDArray[np.float64]:
    """The centres that may be chosen: the middles of equal parts of each column."""
    parts = [(2 * np.arange(order.grid) + 1) / (2 * order.grid) for _ in ends]
    axes = [float(a) + float(b - a) * each for (a, b), each in zip(ends, parts, strict=True)]
    return np.array(list(product(*axes)))


def _counted(till: Till, order: "DistanceOrder", table: str, terms: Terms, bins: int) -> Candidates:
    """The rows of each bin, counted."""
    keys = []
    for name, (low, high) in zip(order.columns, _bounds(till, table, order.columns), strict=True):
        width = _rounded((high - low) / bins)
        keys.append(f"FLOOR(({name} - {decimal(_rounded(low))}) / {decimal(width)})")
    where = "" if order.where is None else f" WHERE {order.where}"
    groups = ", ".join(str(place + 1) for place in range(len(keys)))
    sql = f"SELECT {', '.join(keys)}, COUNT(*) FROM {table}{where} GROUP BY {groups}"  # noqa: S608 - it is read, not run
    return candidates_of(till.read(sql), terms, accountant="pure")  # bounded as `scored` has it


def _rounded(exact: Fraction) -> Fraction:
    """As SQL writes it: bins are public as they are written."""
    return Fraction(f"{float(exact):.{_DIGITS}g}")


def _middles(
    tally: object, ends: Sequence[tuple[Fraction, Fraction]], bins: int
) -> NDArray[np.float64]:
    """The middle of each cell, not beyond the bounds."""
    assert isinstance(tally, Sums)  # noqa: S101 - of counts
    axes = []
    for grouping, (low, high) in zip(tally.by, ends, strict=True):
        places = np.array([float(key) for key in grouping.keys])  # type: ignore[arg-type]  # whole
        width = float(_rounded((high - low) / bins))
        middle = float(_rounded(low)) + (places + 0.5) * width
        axes.append(np.clip(middle, float(low), float(high)))
    return np.array(list(product(*axes)))


_SIDES: Final = 8  # directions of a grid of separators
_STEPS: Final = 9  # and thresholds along each
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

        table = pa.table({"distance": [shown_number(value)]})
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
    box = _ends(till, table, order.columns)
    if len(order.columns) != 2 or len(box) != 2 or any(low == high for low, high in box):
        raise SpecError(
            "A grid of separators needs two columns with bounds.",
            fix="Declare their bounds, or give separators: [([1, -2], 30), …].",
        )
    (left, right), (bottom, top) = ((float(low), float(high)) for low, high in box)
    lines: list[tuple[Sequence[Number], Number]] = []
    for side in range(_SIDES):
        weights = cos(pi * side / _SIDES) / (right - left), sin(pi * side / _SIDES) / (top - bottom)
        ends = [weights[0] * x + weights[1] * y for x, y in product((left, right), (bottom, top))]
        low, high = min(ends), max(ends)
        steps = (low + (high - low) * (step + 1) / (_STEPS + 1) for step in range(_STEPS))
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


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimOrder(ProgramOrder[Answer, RobustExpected]):
    """A distance by a program; ``trusted`` is the steward's word that one unit moves it by 1."""

    kind: ClassVar[str] = "claim"
    trusted: bool = False
    epsilon: Number | None = None
    table: str | None = None
    columns: Sequence[str] = ()
    where: str | None = None
    seconds: Number = 10
    memory: int = 256

    def __post_init__(self) -> None:
        ProgramOrder.__post_init__(self)
        if not self.trusted:
            raise SpecError(
                "Nobody vouches that one unit changes the program's result by at most 1.",
                fix="The steward can, with trusted=True; others can use gate.apply, on blocks.",
            )

    def job(self, desk: Desk) -> RobustJob:
        """What the program says of all rows, with noise for a number that moves by 1."""
        till = Till(desk)
        require_all_rows(desk)
        epsilon = till.rules.price(self.epsilon)
        noise = Geometric.for_epsilon(till.inner(epsilon), sensitivity=L1(1))
        measurement = ClaimedMeasurement(query=_rows_query(till, self), noise=noise)
        asked = f"the distance {self.program.name!r}"

        def finish(found: Found) -> Answer:
            table = pa.table({"distance": [found.values[0][0]]})
            words = f"Provided that {measurement.claim}, as declared."
            return found.answer(
                asked, table, lambda sure: (noise.interval(sure),), (words,), unsigned=True
            )

        return till.job(
            measurement, finish, asked=asked, epsilon=epsilon, provided=measurement.claim
        )


def distance_order(
    asked: Function | None = None, **terms: Unpack[DistanceTerms]
) -> DistanceOrder | ClaimOrder:
    """An order from what is said to `Gate.distance`."""
    said: dict[str, Any] = {**terms}
    if "trusted" in said or callable(asked):
        return ClaimOrder.make(
            program=program_of(asked or "", imports=tuple(said.pop("imports", ()))), **said
        )
    return DistanceOrder.make(sql=asked, **said)


def _rows_query(till: Till, order: ClaimOrder) -> BlockQuery:
    table = till.table(order.table)
    where = "" if order.where is None else f" WHERE {order.where}"
    sql = f"SELECT COUNT(*) FROM {table}{where}"  # noqa: S608 - it is read, not run
    (block,) = read(sql, till.curator.tables).blocks
    return BlockQuery(
        Blocks(
            relation=block.relation,
            columns=tuple(order.columns) or tuple(schema_of(block.relation)),
            program=order.program,
            blocks=1,
            ranges=((Fraction(0), Fraction(STEPS)),),
            defaults=(Fraction(0),),
            seconds=positive(order.seconds, name="seconds"),
            memory=order.memory,
        )
    )
