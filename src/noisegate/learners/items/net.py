"""A tiny database that answers many questions: the net mechanism, for toys.

    NetDatabase(epsilon=1, size=4).fit(gate.matrix("people", ["ward", "sick"]))

Of all databases of a few rows over at most 512 cells, one is chosen that answers all questions
about as well as any [BLR08]. It shows what any class of questions of small dimension allows; for
real tables, `gate.many`, `release("questions")` and synthetic rows are quicker and nearer: the
theorem wants ln(questions) / α² rows for a share within α, and all databases of so many rows are
too many to list. No sample of them has a proven share of good ones, so none is taken.
"""

import json
from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import combinations, product
from math import log, prod, sqrt
from typing import Any, Final, TypeAlias

import numpy as np
from scipy.sparse import csr_array

from noisegate.algebra.tally import Grouping, Sums
from noisegate.curator.allowance import Allowance, Scope
from noisegate.curator.measurement import Measurement
from noisegate.desk.job import Progress
from noisegate.desk.plan import Plan
from noisegate.desk.terms.price import Price
from noisegate.desk.terms.terms import USUAL
from noisegate.errors import SpecError, Unsupported
from noisegate.exact import Number
from noisegate.frozen import replace
from noisegate.learners.expectations import Noise, interval, sampled_rows
from noisegate.learners.fitting import Carded, FitExpected, FitJob, fit_job
from noisegate.learners.matrix import Matrix
from noisegate.mechanisms.base import NoiseMechanism, failure_of, to_record
from noisegate.mechanisms.catalogue import from_record
from noisegate.mechanisms.partitions.small_database import CELLS_MAX, SmallDatabase
from noisegate.privacy.domain import Key
from noisegate.privacy.event import Event, decode, encode
from noisegate.sql.drafts.terms import count_term
from noisegate.transforms.query import Query
from noisegate.transforms.strategy import Matrix as Combinations
from noisegate.transforms.strategy import Strategy

_VERSION: Final = "net/1"
Chosen: TypeAlias = tuple[SmallDatabase, Noise, Fraction, int]
_COUNTED: Final = Fraction(1, 10)  # of the price, for the number of rows


class NetDatabase(Carded):
    """Chooses a database of ``size`` rows, at most 6, over all combinations of declared keys.

    After `fit`: ``database_``, its rows; ``counts_``, how many rows of the table each cell stands
    for; ``answer(ward="north")``; ``promise(confidence)``, the error bar of answers, and
    ``within_``, the same at 95 %; ``cost_``, ``remaining_``, ``guarantee_``, ``free_``.
    """

    def __init__(self, *, epsilon: Number | None = None, size: int = 4) -> None:
        self.epsilon, self.size = epsilon, size

    def fit(
        self,
        matrix: Matrix,
        questions: Sequence[Mapping[str, Any]] | None = None,
        *,
        fresh: bool = False,
    ) -> "NetDatabase":
        """Choose for these questions, each a dict of columns and keys; by default all of up to two.

        What was chosen before at this price is found again, free.
        """
        job, cells = self._job(matrix, questions)
        chosen, receipt = matrix.desk.run(job, fresh=fresh)
        self._paid(receipt, matrix)
        self.free_ = receipt.free
        self._net, self._noise, self._grain, place = chosen
        self._sampling = sampled_rows(matrix, Query(cells))
        self.rows_ = float(self._net.rows * self._grain)
        counts = self._net.databases[place]
        shape = tuple(len(keys) for _, keys in self.axes_)
        self.counts_ = counts.reshape(shape) * self.rows_ / self._net.size
        every = list(product(*(keys for _, keys in self.axes_)))
        self.database_ = [every[cell] for cell, count in enumerate(counts) for _ in range(count)]
        self.within_ = self.promise()
        return self

    def plan(
        self,
        matrix: Matrix,
        questions: Sequence[Mapping[str, Any]] | None = None,
        *,
        fresh: bool = False,
    ) -> Plan[FitExpected]:
        """The price, and how far such databases reach. Free: spends nothing, reads no row."""
        return matrix.desk.plan(self._job(matrix, questions)[0], fresh=fresh)

    def _job(
        self, matrix: Matrix, questions: Sequence[Mapping[str, Any]] | None
    ) -> tuple[FitJob[Chosen], Sums]:
        self.axes_ = _axes(matrix)
        asked = _pairs(self.axes_) if questions is None else list(questions)
        table = np.array([self._marks(each) for each in asked])
        price, cells = matrix.desk.price(self.epsilon), _cells(matrix)
        plan = SmallDatabase(
            factor=Fraction(1), questions=tuple(table.ravel().tolist()), cells=table.shape[1],
            size=self.size, rows=1,
        )  # fmt: skip

        def draw(allowed: Allowance, progress: Progress) -> bytes:  # noqa: ARG001 - one step
            held = _chosen(allowed.whole, cells, plan, price)
            return json.dumps(held | {"event": encode(allowed.used())}).encode()

        job = fit_job(
            matrix,
            type(self).__name__,
            {"learner": _VERSION, "net": to_record(plan)},
            Query(cells),
            epsilon=self.epsilon,
            draw=draw,
            read=_unpack,
            words="this database of",
            uses={"partitions"},
        )
        share = min(1.0, sqrt(log(2 * plan.width + 1) / (2 * plan.size)))
        words = (
            f"Chooses among all {plan.candidates:,} databases of {plan.size} rows over "
            f"{plan.cells} cells for {plan.width} questions. Some database of so few rows is "
            f"within {share:.0%} of all rows at every question; the proven ± is that, and noise."
        )
        return replace(job, notes=(words,)), cells

    def answer(self, **where: Key) -> float:
        """About how many rows have these keys."""
        return float(self.counts_.ravel() @ np.array(self._marks(where)))

    def promise(self, confidence: Number = USUAL) -> float:
        """How far all answers to the questions may be off together, for certain in theory.

        Claim: at most this, with the confidence. Why: some database of the size is within √(ln 2Q
            / 2s) of every share, because a random one is, with positive probability, by
            Hoeffding; the chosen one errs by its shortfall more, and by the noise of the number
            of rows. Of a sample, what that adds to a count of all its rows is added, for all
            questions at once. For a few rows this is far above what is seen.
        """
        failure = failure_of(confidence) / (1 if self._sampling is None else 2)
        half = 1 - failure / 2
        counted = interval(self._noise, half)
        share = min(1.0, sqrt(log(2 * self._net.width + 1) / (2 * self._net.size)))
        off = share * (self._net.rows + counted) + counted + 1 + self._net.shortfall(half)
        if self._sampling is None:
            return float(off * float(self._grain))
        most = np.array([(self._net.rows + counted) * float(self._grain)])
        strays = self._sampling.widened(most, np.zeros(1), float(failure / self._net.width))
        return float(off * float(self._grain) + strays[0])

    def _marks(self, where: Mapping[str, Any]) -> list[int]:
        """Which cells a question is about."""
        known = dict(self.axes_)
        if not isinstance(where, Mapping) or where.keys() - known.keys():
            raise SpecError("A question does not name columns.", fix=f"Use {', '.join(known)}.")
        if any(key not in known[name] for name, key in where.items()):
            raise SpecError("A question does not name keys.", fix="Use the declared keys.")
        held = [where.get(name) for name, _ in self.axes_]
        every = product(*(keys for _, keys in self.axes_))
        return [
            int(all(want is None or key == want for want, key in zip(held, cell, strict=True)))
            for cell in every
        ]


def _axes(matrix: Matrix) -> list[tuple[str, tuple[Key, ...]]]:
    found: list[tuple[str, tuple[Key, ...]]] = []
    for each in matrix.codes:
        if not each.keys and (each.low != 0 or each.high != 1):
            raise Unsupported(
                f"{each.name} has no declared keys, or is a number.",
                fix='Use texts with {"in": [...]}, or a boolean column.',
            )
        found.append((each.column, each.keys or (0, 1)))
    if prod(len(keys) for _, keys in found) > CELLS_MAX:
        raise Unsupported(
            f"There are more than {CELLS_MAX} cells.",
            fix="Use fewer columns or keys.",
            about="cells",
        )
    return found


def _pairs(axes: Sequence[tuple[str, tuple[Key, ...]]]) -> list[dict[str, Key]]:
    """Each key, and each pair of keys of two columns."""
    some = [{name: key} for name, keys in axes for key in keys]
    for (one, keys), (other, others) in combinations(axes, 2):
        some += [{one: a, other: b} for a, b in product(keys, others)]
    return some


def _cells(matrix: Matrix) -> Sums:
    by = tuple(
        Grouping(
            name=f"key_{place}", expression=each.expression, keys=tuple(range(len(each.keys) or 2))
        )
        for place, each in enumerate(matrix.codes)
    )
    cap = matrix.rows_per_unit
    return Sums(
        relation=matrix.relation, by=by, terms=(count_term((), cap=cap),), rows_per_unit=cap
    )


def _chosen(scope: Scope, cells: Sums, plan: SmallDatabase, price: Price) -> dict[str, Any]:
    """Count the rows, then choose for so many."""
    total = Query(
        Sums(relation=cells.relation, terms=cells.terms, rows_per_unit=cells.rows_per_unit)
    )
    (noise,) = price.noise(total, [_COUNTED])
    rows = scope.measure(Measurement(query=total, mechanisms=(noise,))).values[0, 0]
    asked = np.array(plan.questions, np.int64).reshape(plan.width, plan.cells)
    strategy = Strategy(plan.cells, (Combinations(csr_array(asked)),))
    query = Query(cells, strategy)
    net = SmallDatabase.for_epsilon(
        price.exponential_epsilon(1 - _COUNTED),
        questions=plan.questions,
        cells=plan.cells,
        size=plan.size,
        rows=max(1, int(rows)),
        score_sensitivity=query.moved * strategy.reaches[0],
    )
    place = scope.measure(Measurement(query=query, mechanisms=(net,))).values[0, 0]
    grain = str(cells.terms[0].grain / (price.sample or 1))  # of a sample: as of all rows
    return {"net": to_record(net), "noise": to_record(noise), "place": int(place), "grain": grain}


def _unpack(stored: bytes) -> tuple[Chosen, Event]:
    held = json.loads(stored)
    net, noise = from_record(held["net"]), from_record(held["noise"])
    if not isinstance(net, SmallDatabase) or not isinstance(noise, NoiseMechanism):
        raise TypeError
    return (net, noise, Fraction(held["grain"]), held["place"]), decode(held["event"])
