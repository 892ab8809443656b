"""Statistical queries: any learner that asks for expectations, adaptively, within one price.

    with StatisticalQueries(gate, "people", epsilon=1, queries=40) as session:
        session.mean("age >= 65 AND smokes")

Each answer is the mean of a bounded expression over the rows, within `tolerance`. A learner that
works with such answers [Kea98] is private through the session, whatever it asks [BDMN05].
"""

from collections.abc import Sequence
from contextlib import ExitStack
from fractions import Fraction
from math import ceil, log
from threading import Lock
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np

from noisegate.accounting.accountants import accountant_named
from noisegate.accounting.pure import promised
from noisegate.curator.measurement import Measurement
from noisegate.desk.terms.price import Price, step_of
from noisegate.desk.terms.terms import USUAL
from noisegate.errors import SpecError
from noisegate.exact import Number, positive
from noisegate.learners.asking import noises
from noisegate.learners.expectations import (
    BOTH,
    COUNT,
    SUMS,
    Means,
    Noise,
    count_share,
    filled,
    sampled_rows,
)
from noisegate.learners.fitting import REACH
from noisegate.learners.matrix import Handles, Matrix
from noisegate.learners.parameters import require_whole
from noisegate.mechanisms.additive.gaussian import DiscreteGaussian
from noisegate.mechanisms.additive.geometric import Geometric
from noisegate.mechanisms.base import failure_of, smallest_whole
from noisegate.privacy.guarantee import Guarantee, guarantee_of
from noisegate.privacy.loss import ApproxDP
from noisegate.transforms.query import Query

if TYPE_CHECKING:
    from noisegate.curator.allowance import Allowance

_QUERIES_MAX: Final = 1 << 20


@final
class StatisticalQueries:
    """A session of up to ``queries`` expectations for one price, chosen adaptively.

    Opened by the first question: the whole price is charged then, and what was not used is returned
    when the session is closed. Use it with ``with``.
    """

    def __init__(
        self,
        gate: Handles,
        table: str | None = None,
        *,
        epsilon: Number | None = None,
        queries: int,
        where: str | None = None,
        rows_per_unit: int | None = None,
    ) -> None:
        self._gate, self._table, self._epsilon = gate, table, epsilon
        self._terms = {"where": where, "rows_per_unit": rows_per_unit}
        self.queries = require_whole(queries, "queries", 1, _QUERIES_MAX)
        self.asked, self.rows = 0, 0.0
        self._stack, self._open = ExitStack(), True
        self._allowance: Allowance | None = None
        self._known: dict[str, Means] = {}
        self._lock = Lock()

    def __enter__(self) -> "StatisticalQueries":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._open = False
        self._stack.__exit__(kind, error, trace)

    def mean(self, expression: str) -> float:
        """The mean of an expression over the rows, a condition being 1 or 0.

        The same expression again returns the same answer at no cost.
        """
        return float(self.measured(expression).values[0])

    def measured(self, expression: str) -> Means:
        """The same with its noise: ``measured(…).within(0.95)``."""
        with self._lock:  # threads that share a session open it once, and ask each question once
            if expression not in self._known:
                self._known[expression] = self._ask(expression)
            return self._known[expression]

    def _ask(self, expression: str) -> Means:
        if not self._open:
            raise SpecError("The session is over.", fix="Open another one.", about="over")
        matrix = filled(self._gate.matrix(self._table, [expression], **self._terms))
        if len(matrix.marks) != 1:
            raise SpecError(
                "A column of keys is not a number.", fix=f"For example: \"{expression} = 'a'\"."
            )
        if self.asked >= self.queries:
            raise SpecError(
                "All questions of the session have been used.",
                fix="Open another one.",
                about="used-up",
            )
        if self._allowance is None:
            self._begin(matrix)
        self.asked += 1
        share = (1 - self._count_share) / self.queries
        sums, noise = self._measure(matrix, SUMS, share)
        return Means(
            coordinates=matrix.marks,
            sums=sums,
            count=self.rows,
            noise=noise,
            count_noise=self._count_noise,
            reach=REACH,
            whole=self._whole,
            sampling=self._sampling,
        )

    def tolerance(self, confidence: Number = USUAL) -> float:
        """How far all answers may be off together, of expressions from 0 to 1.

        Claim: with the confidence, each of all ``queries`` answers is within it of the mean over
            the rows. Why: `Means.worst`, the failure split evenly over all questions.
        """
        if not self._known:
            raise SpecError("Nothing has been asked yet.", fix="See rows_needed before asking.")
        each = 1 - failure_of(confidence) / self.queries
        first = next(iter(self._known.values()))
        halves = max(float(c.half) for c in first.coordinates)
        return first.worst(each) / halves / 2

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee of all that was asked so far."""
        if self._allowance is None:
            raise SpecError("Nothing has been asked yet.", fix="Ask first.")
        event = promised(self._allowance.used(), self._price.event())
        promise = self._matrix.curator.loss_of(event)
        return guarantee_of(promise, self._matrix.domains, "these means of")

    @property
    def spent(self) -> ApproxDP:
        """What the questions so far have used."""
        if self._allowance is None:
            return ApproxDP(0)
        return self._matrix.curator.loss_of(self._allowance.used())

    def _begin(self, matrix: Matrix) -> None:
        """Charge for all of it, and count the rows."""
        price = matrix.desk.price(self._epsilon)
        share = session_share(self.queries, gaussian=price.gaussian)
        asked = Query(matrix.rows(REACH), BOTH)
        shares = [share, (1 - share) / self.queries]
        noises(asked.statistic_blocks, shares, price, asked.weight)  # too wide: refused now
        curator, name = matrix.curator, matrix.curator.fresh_id()
        opened = curator.allowance(
            price.event(),
            question=f"statistical queries {name}",
            request_id=f"queries {name}",
            uses={"learning"},
        )
        self._matrix, self._price = matrix, price
        self._allowance = self._stack.enter_context(opened)
        self._count_share = share
        counts, self._count_noise = self._measure(matrix, COUNT, self._count_share)
        self.rows = float(counts[0])

    def _measure(self, matrix: Matrix, what: Any, share: Fraction) -> tuple[Any, Noise]:  # noqa: ANN401 - a Statistic
        tally = matrix.rows(REACH)
        query = Query(tally, what)
        (noise,) = noises(query.statistic_blocks, [share], self._price, query.weight)
        assert self._allowance is not None  # noqa: S101 - begun
        release = self._allowance.whole.measure(Measurement(query=query, mechanisms=(noise,)))
        self._whole = tally.whole * float(self._price.sample or 1)  # of a sample: as of all rows
        self._sampling = sampled_rows(matrix, query)
        return release.values[0] / self._whole, noise


def session_share(queries: int, *, gaussian: bool) -> Fraction:
    """What a session spends on its count of rows: as for so many sums, one by one."""
    if gaussian:
        return count_share(queries, gaussian=True)
    ratio = (0.5 / queries) ** (2 / 3)
    return Fraction(max(1, round(1000 * ratio / (1 + ratio))), 1000)


def rows_needed(
    *,
    queries: int,
    tolerance: Number,
    epsilon: Number,
    confidence: Number = USUAL,
    delta: Number | None = None,
    population: bool = False,
) -> int:
    """How many rows, one for each unit, a session needs for this tolerance of means from 0 to 1.

    Claim: with them, all ``queries`` answers are within the tolerance of the means over the rows,
        with the confidence; with ``population``, of the means of what the rows were drawn from.
    Why: noise of the sums and of the count, as in `Means.worst`; for a population half of the
        tolerance and of the failure are Hoeffding's. ``delta``: of an account that adds up zCDP.

    >>> rows_needed(queries=20, tolerance=0.05, epsilon=1)
    2387
    """
    goal, failure = float(positive(tolerance, name="tolerance")), failure_of(confidence)
    amount = positive(epsilon, name="epsilon")
    drawn = 0
    if population:
        goal, failure = goal / 2, failure / 2
        drawn = ceil(log(2 * queries / float(failure)) / (2 * goal**2))
    share = session_share(queries, gaussian=delta is not None)
    half = 1 - failure / queries / 2
    name = "pure" if delta is None else "zcdp"
    rho = accountant_named(name).rho(amount, ApproxDP(amount, delta or 0))
    price = Price.of(amount if rho is None else step_of(rho), accountant=name)
    off = _interval(price, (1 - share) / queries, REACH, half) / REACH
    rows_off = _interval(price, share, 1, half)
    needed = smallest_whole(lambda rows: (off + rows_off) / 2 <= goal * (rows - rows_off))
    return max(drawn, needed)


def _interval(price: Price, share: Fraction, reach: int, confidence: Fraction) -> int:
    amount = price.amount * share
    if price.gaussian:
        return DiscreteGaussian(variance=reach**2 / (2 * amount)).interval(confidence)
    return Geometric(scale=reach / amount).interval(confidence)


def conjunction(
    session: StatisticalQueries, literals: Sequence[str], label: str, *, tolerance: Number
) -> list[str]:
    """Learn which of the literals a label is the conjunction of, by statistical queries alone.

    A literal belongs to it if hardly any row has the label without it: its mean is then 0, and is
    seen as at most ``tolerance`` where answers are that near. What is dropped is seen in the rows
    for certain; a literal that is kept wrongly costs an error of at most twice the tolerance.
    """
    bound = float(positive(tolerance, name="tolerance"))
    asked = [f"({label}) AND NOT ({literal})" for literal in literals]
    found = np.array([session.mean(each) for each in asked])
    return [literal for literal, mean in zip(literals, found, strict=True) if mean <= bound]
