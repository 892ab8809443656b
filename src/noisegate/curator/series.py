"""Running totals of a table that grows: paid once, measured period by period, for ever.

    open       the whole life of the series is charged, once, before a row is read
    advance    the questions that end with the new periods are drawn and settled; old ones stay

A series is a fixed list of whole-number questions about periods: the nodes of a binary tree, or the
rows of a Toeplitz matrix. Each is drawn once, with the first state of the table in which its last
period is declared complete. All state is in the ledger, so another process, or the same table with
more rows under a new snapshot, goes on where the last one stopped.

Claim: all numbers of a series together are the event of `Counter.event`, over the whole life of the
    table, whatever is appended and however that depends on earlier numbers. Adjacency: add/remove
    one unit, with all its rows, in every state of the table.
Assumed of the table, where every row is one unit: a row keeps its period. One that comes late, is
    removed, or no longer meets a WHERE, breaks nothing. For units of several rows: rows are only
    added, and none changes its period or its owner; a WHERE about anything else than the period is
    refused, as what it asks could change.
Assumed of snapshots, for units of several rows: one name is one state, and a state with more rows
    has a later name. Whole numbers in names count as numbers: 9 < 10, 2026-01-31 < 2026-02-01. The
    name is kept with each step, and a step under an earlier name than the last is refused before a
    row is read, as it would be an older state; reading what is out stays free for all states.
Why, where every row is one unit: the row has one period s. Question i weighs it by W_is, whenever
    it is read, or not at all if the row came after. So given all earlier numbers the row moves
    question i by at most Δ |W_is|. With geometric noise of scale Δ ‖W‖₁ / ε, ‖W‖₁ the largest sum
    of a column, the log-ratios add up to Σ_i |W_is| ε / ‖W‖₁ ≤ ε. With Gaussian noise of variance
    Δ² ‖W‖₂² / 2ρ, the ρ's add up to at most ρ at every moment, which is a filter [FZ21, DMRST22].
    A tree has one node over s in each level, ‖W‖₁ = ‖W‖₂² = levels [DNPR10, CSS11].
Why, for units of several rows (tree only): let n(t) count a unit's rows of periods before t as the
    table is when the node [a, b) is read. The unit counts min(n(b), B) - min(n(a), B) there. The
    nodes of a level are read in the order of their periods, and states in the order in which rows
    came (`Series.advance`), so for the next node [b, c) n(b) is at least what it was; the sum over
    the level is at most min(n, B) at its end, by induction: at most B in all. So each level moves
    by at most B in L1, and levels add up.
Why epochs: they cut the periods, so a row is in one of them. The losses of a unit's rows are at
    most ε / B each where losses add up along L1, and ρ (b_1² + b_2² + …) / B² ≤ ρ for b_e rows in
    epoch e.
Why about a sample: every step (`Series.advance`) reads a sample of its own, with fresh coins that
    are kept nowhere. Let a step lose x given all earlier numbers, with the unit in its sample; with
    its coin it loses at most f(x) = ln(1 + p (e^x - 1)) (`amplification.poisson`). f is convex and
    0 at 0, so f(x₁) + f(x₂) + … ≤ f(x₁ + x₂ + …) ≤ f(ε) in every run, however many steps there are:
    the amplified price of the whole life. In an account of ρ, the squares add up to less.
Rounding: none; matrices and sensitivities are whole, scales are exact fractions.
"""

import json
import re
from collections.abc import Iterator
from fractions import Fraction
from functools import lru_cache, partial
from itertools import pairwise
from typing import Any, Final, final
from typing import Literal as Word

import numpy as np
from numpy.typing import NDArray

from noisegate.algebra.expression import Call, Expression, Field, Literal, fields_of
from noisegate.algebra.relation import Filter, Fold, Folded, PerUnit, Relation, Table
from noisegate.algebra.tally import Grouping, Sums, Term
from noisegate.curator.allowance import sample_in
from noisegate.curator.curator import Curator
from noisegate.curator.kept import Kept
from noisegate.curator.measurement import Measurement, digest
from noisegate.curator.quietly import quietly
from noisegate.errors import LedgerError, RequestConflict, SpecError, Unsupported
from noisegate.frozen import dataclass
from noisegate.mechanisms.additive.gaussian import DiscreteGaussian
from noisegate.mechanisms.additive.geometric import Geometric
from noisegate.privacy import event as events
from noisegate.privacy.domain import Key
from noisegate.privacy.event import Event
from noisegate.transforms.query import Query
from noisegate.transforms.stability import stability_of
from noisegate.transforms.strategy import Matrix, Strategy

FIRST_EPOCH: Final = 16
ROOT_MAX: Final = 4096  # periods of an epoch whose questions are rows of a full matrix
ROOT_UNIT: Final = 1 << 10  # what 1 is in the Toeplitz factor
_AT_ONCE: Final = 64  # nodes of one pass over a table of units
_ONE: Final = Term(expression=Literal(1), grain=Fraction(1), low=0, high=1)


@final
@dataclass(frozen=True, slots=True)
class Epoch:
    """Periods ``start`` to ``start + size`` (without), with questions of their own."""

    start: int
    size: int

    @property
    def end(self) -> int:
        """The period after its last."""
        return self.start + self.size

    @property
    def levels(self) -> int:
        """How many levels its tree has."""
        return self.size.bit_length()


@final
@dataclass(frozen=True, slots=True)
class Node:
    """The sum over periods ``start`` to ``end`` (without)."""

    start: int
    end: int


@lru_cache(maxsize=16)
def root_factor(size: int) -> tuple[int, ...]:
    """The Toeplitz square root of the matrix of running totals, in whole multiples of 1/1024.

    Coefficients are (2k choose k) / 4^k, rounded to the nearest; a series uses the rounded ones
    throughout, so rounding costs no accuracy but a little of the optimum [FHU23].
    """
    found, exact = [], Fraction(1)
    for k in range(size):
        found.append(round(exact * ROOT_UNIT))
        exact = Fraction(round(exact * (2 * k + 1) / (2 * k + 2) * (1 << 60)), 1 << 60)
    return tuple(found)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Counter:
    """What is added up, by which periods, for which price, for how long.

    ``rows_per_unit`` is None where every row is one unit, else how many rows of one unit count over
    the whole life. ``amount`` is an ε, or a ρ if ``gaussian``. ``horizon`` is a number of periods;
    None is unknown, and then epochs of 16, 32, 64, … periods follow each other. With a ``sample``
    the amount is an ε of those in it, each unit with that chance.
    """

    relation: Relation
    period: Expression
    periods: tuple[Key, ...]
    term: Term
    rows_per_unit: int | None
    amount: Fraction
    gaussian: bool
    horizon: int | None
    factor: Word["tree", "root"] = "tree"
    sample: Fraction | None = None

    def __post_init__(self) -> None:
        _require_rows(self.relation)
        _require_time(self.periods, self.horizon)
        if type(self.amount) is not Fraction or self.amount <= 0:
            raise SpecError("The price is not above 0.", fix="Give a positive epsilon.")
        if self.is_row_level != (self.rows_per_unit is None):
            raise SpecError(
                "rows_per_unit is missing, or given where every row is one unit.",
                fix="Give rows_per_unit where a unit has several rows, else leave it out.",
            )
        if not self.is_row_level:
            _require_lasting(self.relation, self.period)
        if not self.is_row_level and self.term != _ONE:
            raise Unsupported(
                "With several rows per unit, a series counts rows only.", fix="Use COUNT(*)."
            )
        if self.sample is not None and (self.gaussian or not 0 < self.sample < 1):
            raise Unsupported(
                "A series on a sample is priced in ε alone.",
                fix="Use geometric noise, and a probability between 0 and 1.",
            )
        kinds: tuple[type, type] = type(self.factor), type(self.gaussian)
        if kinds != (str, bool) or self.factor not in ("tree", "root"):
            raise SpecError("There is no such factorisation.", fix="Use tree or root.")
        full = self.gaussian and self.is_row_level and self.epochs[-1].size <= ROOT_MAX
        if self.factor == "root" and not full:
            raise Unsupported(
                "The root factorisation needs Gaussian noise, rows that are units, and at most "
                f"{ROOT_MAX:,} periods.",
                fix='Use "tree".',
            )
        for epoch in self.epochs:
            self.noise(epoch)  # refuses what has no bound, and noise that cannot be drawn
        if not self.is_row_level:
            capped(self, self.nodes(0))

    @property
    def is_row_level(self) -> bool:
        """Whether every row is one unit."""
        return stability_of(self.relation).is_row_level

    @property
    def cells(self) -> Query:
        """The sum of every period."""
        by = Grouping(name="period", expression=self.period, keys=self.periods)
        cap = self.rows_per_unit
        return Query(Sums(relation=self.relation, by=(by,), terms=(self.term,), rows_per_unit=cap))

    @property
    def moved(self) -> int:
        """How far one unit moves all periods together."""
        return int(self.cells.l1s[0].value)

    @property
    def event(self) -> Event:
        """What the whole life of the series is, for accounting."""
        if self.gaussian:
            return events.DeclaredZCDPEvent(rho=self.amount)
        event = events.DeclaredEvent(epsilon=self.amount)
        if self.sample is None:
            return event
        return events.PoissonSampled(event=event, probability=self.sample)

    @property
    def epochs(self) -> tuple[Epoch, ...]:
        """Parts of the time, each with a tree or matrix of its own."""
        if self.horizon is not None:
            return (Epoch(0, self.horizon),)
        found, start, size = [], 0, FIRST_EPOCH
        while start < len(self.periods):
            found.append(Epoch(start, min(size, len(self.periods) - start)))
            start, size = start + size, 2 * size
        return tuple(found)

    def epoch_of(self, period: int) -> Epoch:
        """The epoch that a period lies in."""
        return next(epoch for epoch in self.epochs if period < epoch.end)

    def norm(self, epoch: Epoch) -> int:
        """The largest column of its questions: the sum of entries, or of squares if Gaussian."""
        if self.factor == "tree":
            return epoch.levels
        return sum(each**2 for each in root_factor(epoch.size))

    def noise(self, epoch: Epoch) -> Geometric | DiscreteGaussian:
        """The noise of each question of an epoch."""
        if self.gaussian:
            square = self.moved**2 * self.norm(epoch)
            return DiscreteGaussian(variance=square / (2 * self.amount))
        return Geometric(scale=self.moved * self.norm(epoch) / self.amount)

    def nodes(self, period: int) -> list[Node]:
        """The nodes that end with a period, the smallest first."""
        epoch = self.epoch_of(period)
        done, found, size = period + 1 - epoch.start, [], 1
        while done % size == 0:
            found.append(Node(period + 1 - size, period + 1))
            size *= 2
        return found

    def record(self) -> dict[str, Any]:
        """What the series is; not the state of the table, which changes while it lives."""
        query = self.cells.to_record()
        for table in query["tables"].values():
            del table["snapshot"]
        return {
            "series": 1,
            "of": query,
            "factor": self.factor,
            "horizon": self.horizon,
            "rho" if self.gaussian else "epsilon": str(self.amount),
            **({} if self.sample is None else {"sample": str(self.sample)}),
        }


def _require_rows(relation: Relation) -> None:
    """A row's period must follow from the row alone, so that it has the same one for ever."""
    while type(relation) is Filter:
        relation = relation.of
    if type(relation) is not Table:
        raise Unsupported("A series is about one table.", fix="Leave out joins and sub-queries.")


def _require_lasting(relation: Relation, period: Expression) -> None:
    """A condition on what may change would count a unit anew each time its rows come and go."""
    while type(relation) is Filter:
        if not set(fields_of(relation.condition)) <= set(fields_of(period)):
            raise Unsupported(
                "With several rows per unit, WHERE would select rows by more than their period.",
                fix="Leave out WHERE: its result could change during the life of the series.",
                about="where",
            )
        relation = relation.of


def _require_time(periods: tuple[Key, ...], horizon: int | None) -> None:
    if len({type(key) for key in periods}) != 1 or not all(a < b for a, b in pairwise(periods)):  # type: ignore[operator]
        raise SpecError(
            "The periods are not in ascending order.", fix="Group by a date or BIN(x, width)."
        )
    if horizon is not None and (type(horizon) is not int or not 1 <= horizon <= len(periods)):
        raise SpecError(
            "The horizon is beyond the declared periods.", fix=f"Use 1 to {len(periods)} periods."
        )


@final
class Series:
    """A counter behind a door. Its numbers are those of the account that opened it."""

    def __init__(self, curator: Curator, counter: Counter) -> None:
        if type(counter) is not Counter:
            raise Unsupported("This is not a counter.", fix="Make one with `Counter`.")
        curator.require_allowed({"series"})
        curator._require_tables(counter.cells.tables)  # noqa: SLF001 - same room
        sample_in(counter.event, curator.accountants)
        self._curator, self.counter = curator, counter
        record = counter.record() | {"account": curator.account}
        self.question = json.dumps(record, sort_keys=True, separators=(",", ":"))
        self.name = f"{curator.account}: series {digest(self.question)}"

    @property
    def is_open(self) -> bool:
        """Whether its life is paid for."""
        found = self._curator.ledger.find(self.name, self.question, self._curator.account)
        return found is not None

    def read(self) -> list[NDArray[np.int64]]:
        """For each measured period, the noisy answers of the questions that end with it. Free."""
        return self._read()[1]

    def _read(self) -> tuple[str | None, list[NDArray[np.int64]]]:
        last, found = None, list[NDArray[np.int64]]()
        while (stored := self._find(len(found))) is not None:
            last, numbers = _unpacked(stored)
            found += numbers
        return last, found

    def advance(self, until: int) -> list[NDArray[np.int64]]:
        """Measure all periods before ``until`` that were not; the first time, pay for its life.

        What was measured is never read or drawn again, whatever the table holds by now. A crash
        between charge and answer leaves a reservation under which the same step may run again,
        because nothing had left; of two that run at once, the first to settle is what both get.
        """
        counter, curator = self.counter, self._curator
        last = counter.epochs[-1].end
        if type(until) is not int or not 1 <= until <= last:
            raise SpecError(
                "The series does not reach that far.",
                fix=f"Use at most {last} periods.",
                about="horizon",
            )
        opened = curator.ledger.reserve(
            self.name, question=self.question, event=counter.event, account=curator.account,
            kind="measurement",
        )  # fmt: skip
        if opened.answer is None:
            opened.settle(_packed(self._snapshot, []))
        state, found = self._read()
        while len(found) < until:
            self._require_later(state)
            start = len(found)
            entry = curator.ledger.reserve(
                self._id(start), question=self._step(start), event=events.NothingEvent(),
                account=curator.account, kind="measurement",
            )  # fmt: skip
            stored = entry.answer
            if stored is None:
                drawn = quietly(partial(self._draw, start, until))
                stored = entry.settle(_packed(self._snapshot, drawn))
            state, numbers = _unpacked(stored)
            found += numbers
        return found

    @property
    def _snapshot(self) -> str:
        (table,) = self.counter.cells.tables
        return table.snapshot

    def _require_later(self, last: str | None) -> None:
        """A unit's rows only come, from step to step, if no state is older than the one before."""
        own = self._snapshot
        if self.counter.is_row_level or last is None or last == own:
            return
        if not _rank(last) < _rank(own):
            raise RequestConflict(
                f"The series continued with snapshot {last!r}; {own!r} sorts as an older one.",
                fix="Open the newest rows, with a later snapshot name: 2 after 1, or dates.",
                about="snapshot",
            )

    def _id(self, start: int) -> str:
        return f"{self.name} from {start}"

    def _step(self, start: int) -> str:
        step = {"series": digest(self.question), "from": start}
        return json.dumps(step, sort_keys=True, separators=(",", ":"))

    def _find(self, start: int) -> bytes | None:
        return self._curator.ledger.find(self._id(start), self._step(start), self._curator.account)

    def _draw(self, start: int, until: int) -> list[NDArray[np.int64]]:
        counter = self.counter
        periods = range(start, until)
        with self._curator._rows_of(counter.sample) as source:  # noqa: SLF001 - same room
            kept = Kept(source)
            if not counter.is_row_level:
                nodes = [node for period in periods for node in counter.nodes(period)]
                numbers = np.concatenate(list(self._unit_sums(nodes, kept)))
            else:
                numbers = self._row_sums(periods, kept)
        sizes = [len(questions(counter, period)) for period in periods]
        return np.split(numbers, np.cumsum(sizes)[:-1])

    def _row_sums(self, periods: range, kept: Kept) -> NDArray[np.int64]:
        """All new questions in one pass: a row has a cell, and a question weighs cells."""
        from scipy.sparse import csr_array  # noqa: PLC0415

        counter, blocks, noises = self.counter, [], []
        for epoch in counter.epochs:
            own = [period for period in periods if epoch.start <= period < epoch.end]
            rows = [row for period in own for row in questions(counter, period)]
            if not rows:
                continue
            at = np.cumsum([0, *(len(values) for _, values in rows)])
            places = np.concatenate([np.arange(a, a + len(values)) for a, values in rows])
            data = np.concatenate([values for _, values in rows])
            shape = (len(rows), len(counter.periods))
            blocks.append(Matrix(csr_array((data, places, at), shape=shape)))
            noises.append(counter.noise(epoch))
        cells = counter.cells
        query = Query(cells.tally, Strategy(len(counter.periods), tuple(blocks)))
        measurement = Measurement(query=query, mechanisms=tuple(noises))
        release = self._curator._draw_inside(measurement, self.name, kept=kept)  # noqa: SLF001
        numbers: NDArray[np.int64] = release.values[0]
        return numbers

    def _unit_sums(self, nodes: list[Node], kept: Kept) -> Iterator[NDArray[np.int64]]:
        """A unit counts its first rows, up to the cap, over all periods together."""
        counter = self.counter
        for place in range(0, len(nodes), _AT_ONCE):
            some = nodes[place : place + _AT_ONCE]
            query = capped(counter, some)
            noises = tuple(counter.noise(counter.epoch_of(node.start)) for node in some)
            measurement = Measurement(query=query, mechanisms=noises)
            release = self._curator._draw_inside(measurement, self.name, kept=kept)  # noqa: SLF001
            yield release.values.reshape(-1)


def questions(counter: Counter, period: int) -> list[tuple[int, NDArray[np.int64]]]:
    """The questions that end with a period: the first period they weigh, and the weights."""
    if counter.factor == "tree":
        nodes = counter.nodes(period)
        return [(node.start, np.ones(node.end - node.start, np.int64)) for node in nodes]
    epoch = counter.epoch_of(period)
    factor = np.array(root_factor(epoch.size), np.int64)
    return [(epoch.start, factor[: period + 1 - epoch.start][::-1])]


def capped(counter: Counter, nodes: list[Node]) -> Query:
    """For each node and unit, min(n(end), B) - min(n(start), B); n counts its rows before."""
    cap = counter.rows_per_unit or 1
    ends = sorted({end for node in nodes for end in (node.start, node.end)} - {0})
    folded = tuple(Folded(f"n{end}", Fold.COUNT, _before(counter, end)) for end in ends)
    relation = PerUnit(of=counter.relation, keys=(), folded=folded)

    def held(end: int) -> Expression:
        return Call("least", (Field(f"n{end}"), Literal(cap)))

    terms = tuple(
        Term(
            expression=Call("subtract", (held(node.end), held(node.start)))
            if node.start
            else held(node.end),
            grain=Fraction(1),
            low=0,
            high=cap,
        )
        for node in nodes
    )
    return Query(Sums(relation=relation, terms=terms))


def _before(counter: Counter, end: int) -> Expression:
    first, last = Literal(counter.periods[0]), Literal(counter.periods[end - 1])
    return Call("case", (Call("between", (counter.period, first, last)), Literal(1)))


def _rank(name: str) -> list[str | int]:
    """Where a snapshot's name comes: letters and whole numbers by turns, each in its order."""
    parts = re.split(r"([0-9]+)", name)
    return [int(part) if place % 2 else part for place, part in enumerate(parts)]


def _packed(snapshot: str, numbers: list[NDArray[np.int64]]) -> bytes:
    kept = {"snapshot": snapshot, "numbers": [each.tolist() for each in numbers]}
    return json.dumps(kept, separators=(",", ":")).encode()


def _unpacked(stored: bytes) -> tuple[str, list[NDArray[np.int64]]]:
    try:
        kept = json.loads(stored)
        return kept["snapshot"], [np.array(each, np.int64) for each in kept["numbers"]]
    except (ValueError, TypeError, KeyError):
        raise LedgerError(
            "A stored series cannot be read.", fix="Run: noisegate ledger verify.", about="stored"
        ) from None
