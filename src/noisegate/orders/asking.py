"""What can be asked of a gate, here or elsewhere: each method makes an order and has it run.

`noisegate.Gate` runs orders on its tables; `noisegate.connect` sends them to a service.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Self, TypeVar, Unpack, overload

import noisegate.orders as orders  # noqa: PLR0402 - loads each kind when it is used
from noisegate.desk.answer import Answer
from noisegate.desk.job import Progress
from noisegate.desk.order import Order
from noisegate.desk.plan import Expected, Plan
from noisegate.errors import SpecError
from noisegate.exact import Number
from noisegate.orders.releases import ReleasePlans, Releases
from noisegate.sql.estimates.profiles import Profile
from noisegate.sql.order import SqlOrder

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from noisegate.crowd.histogram import CrowdExpected
    from noisegate.desk.order import Columns
    from noisegate.learners.expectations import Expectations, MeansExpected
    from noisegate.programs.applied import Applied
    from noisegate.programs.order import ApplyExpected
    from noisegate.programs.text import Function
    from noisegate.releases.describe.description import Description
    from noisegate.releases.describe.job import DescribeExpected
    from noisegate.releases.thresholds.session import ThresholdExpected
    from noisegate.robust.graphs import Graph
    from noisegate.robust.paying import RobustExpected
    from noisegate.sql.choices.choice import Choice, ChoiceExpected
    from noisegate.sql.fluent import TableQuestion
    from noisegate.sql.plan import AnswerExpected
    from noisegate.synthetic.pmw.many import ManyExpected
    from noisegate.synthetic.pmw.online import ManySession

R = TypeVar("R")
E = TypeVar("E", bound=Expected)


class Asks(ABC):
    """Plans orders and runs them; all else that can be asked is an order."""

    @abstractmethod
    def close(self) -> None:
        """Let go of files and connections. The next question opens them again."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # any order

    @overload
    def plan(
        self, sql: str, *, fresh: bool = False, **terms: "Unpack[orders.SqlTerms]"
    ) -> "Plan[AnswerExpected | CrowdExpected]": ...
    @overload
    def plan(self, order: Order[R, E], /, *, fresh: bool = False) -> Plan[E]: ...

    def plan(
        self, sql: str | Order[object, Expected], *, fresh: bool = False, **terms: object
    ) -> Plan[Expected]:
        """Price and error of an order, or of a question in SQL with the terms of `sql`.

        Free: spends nothing, reads no row.
        """
        order = SqlOrder.make(sql=sql, **terms) if isinstance(sql, str) else sql
        if terms and order is sql:
            raise SpecError("The order says its terms.", fix=f"Leave out {min(terms)}.")
        return self._planned(_order(order), fresh=fresh)

    def run(
        self, order: Order[R, E], *, fresh: bool = False, progress: Progress | None = None
    ) -> R:
        """What is ordered. What was released before is found in the ledger, at no cost.

        Args:
            order: Any order, such as `noisegate.orders.order_from` reads from JSON.
            fresh: Pay for new, independent draws instead of using released ones.
            progress: Called now and then with a fraction from 0 to 1 and a text.
        """
        return self._made(_order(order), fresh=fresh, progress=progress)

    @abstractmethod
    def _planned(self, order: Order[R, E], *, fresh: bool) -> Plan[E]:
        """What the order would cost and give."""

    @abstractmethod
    def _made(self, order: Order[R, E], *, fresh: bool, progress: Progress | None) -> R:
        """What the order gives."""

    @abstractmethod
    def _vertices(self, order: "orders.GraphOrder") -> int:
        """How many vertices the graph of an order has: public."""

    # questions

    def sql(self, sql: str, *, fresh: bool = False, **terms: "Unpack[orders.SqlTerms]") -> Answer:
        """Ask a question. What was released before is reused at no cost.

        ``sql`` is one SELECT, in DuckDB's spelling; the terms are those of `SqlOrder`. With
        ``fresh``, new and independent draws are paid for instead of using released ones.
        """
        return self.run(SqlOrder.make(sql=sql, **terms), fresh=fresh)

    def table(self, name: str) -> "TableQuestion":
        """Ask step by step: ``gate.table("visits").group_by("ward").count().ask(epsilon=0.1)``."""
        from noisegate.sql.fluent import TableQuestion  # noqa: PLC0415 - only when asked for

        return TableQuestion(name, self.sql, self.plan)

    def choose(
        self, sql: str, *, fresh: bool = False, **terms: "Unpack[orders.ChoiceTerms]"
    ) -> "Choice":
        """Choose privately the candidate with the best score; only the choice is released.

        ``gate.choose("SELECT ward, COUNT(*) FROM visits GROUP BY ward", epsilon=0.1).winner``: each
        declared key is a candidate, its number the score. Or each aggregate is a candidate:
        ``SELECT SUM(CASE WHEN bid >= 1 THEN 1 END) AS "1", …``. Or ``candidates`` are a public
        list, table or interval. The terms are those of `ChoiceOrder`; see docs/choice.md.
        """
        return self.run(orders.ChoiceOrder.make(sql=sql, **_lists(terms)), fresh=fresh)

    def choose_plan(
        self, sql: str, *, fresh: bool = False, **terms: "Unpack[orders.ChoiceTerms]"
    ) -> "Plan[ChoiceExpected]":
        """Price and error of a choice. Free: spends nothing, reads no row."""
        return self.plan(orders.ChoiceOrder.make(sql=sql, **_lists(terms)), fresh=fresh)

    def choose_by(
        self,
        function: "Function",
        sql: str | None = None,
        *,
        fresh: bool = False,
        progress: Progress | None = None,
        **terms: "Unpack[orders.ScoreTerms]",
    ) -> "Choice":
        """Choose by a program that scores all candidates on each block of rows, isolated.

        ``gate.choose_by("prog.py:score", candidates=["a", "b"], range=(0, 1), blocks=50,
        epsilon=1)``. The terms are those of `ScoreOrder`.
        """
        order = orders.ScoreOrder.of(function, sql, **terms)
        return self.run(order, fresh=fresh, progress=progress)

    def choose_by_plan(
        self,
        function: "Function",
        sql: str | None = None,
        *,
        fresh: bool = False,
        **terms: "Unpack[orders.ScoreTerms]",
    ) -> "Plan[ChoiceExpected]":
        """Price and error of `choose_by`. Free: spends nothing, reads no row, runs nothing."""
        return self.plan(orders.ScoreOrder.of(function, sql, **terms), fresh=fresh)

    def auction(
        self, column: str, *, fresh: bool = False, **terms: "Unpack[orders.AuctionTerms]"
    ) -> "Choice":
        """One price for all, of a public list, whose revenue over private bids is near the best.

        ``gate.auction("bid", prices=range(5, 101, 5), epsilon=1).winner``; ``.shortfall(0.95)`` is
        how much revenue may be lost. The terms are those of `AuctionOrder`.
        """
        return self.run(orders.AuctionOrder.make(column=column, **terms), fresh=fresh)

    def auction_plan(
        self, column: str, *, fresh: bool = False, **terms: "Unpack[orders.AuctionTerms]"
    ) -> "Plan[ChoiceExpected]":
        """Price of an auction and the revenue it may lose. Free: spends nothing, reads no row."""
        return self.plan(orders.AuctionOrder.make(column=column, **terms), fresh=fresh)

    # programs

    def apply(
        self,
        function: "Function",
        sql: str | None = None,
        *,
        fresh: bool = False,
        progress: Progress | None = None,
        **terms: "Unpack[orders.ApplyTerms]",
    ) -> "Applied":
        """Run any program on private rows by sample-and-aggregate, isolated, block by block.

        ``gate.apply(model, columns=["age", "cost"], range=(0, 10), blocks=100, epsilon=1)``: units
        are dealt to blocks by chance, the function (or "file.py:name") sees one block at a time, a
        dictionary of NumPy arrays, and the noisy average of its results is released. The options
        are those of `ApplyOrder`, and ``fresh``. See docs/apply.md.
        """
        order = orders.ApplyOrder.of(function, sql, **terms)
        return self.run(order, fresh=fresh, progress=progress)

    def apply_plan(
        self,
        function: "Function",
        sql: str | None = None,
        *,
        fresh: bool = False,
        **terms: "Unpack[orders.ApplyTerms]",
    ) -> "Plan[ApplyExpected]":
        """Price, time and error of a program. Free: spends nothing, reads no row, runs nothing."""
        return self.plan(orders.ApplyOrder.of(function, sql, **terms), fresh=fresh)

    @property
    def release(self) -> Releases:
        """Publish a table once: ``gate.release("histogram", columns={"age": 5}, epsilon=1)``."""
        return Releases(self.run)

    @property
    def release_plan(self) -> ReleasePlans:
        """Price, method and predicted error of a release. Free: spends nothing, reads no row."""
        return ReleasePlans(self.plan)

    # numbers that single rows rarely move

    def smooth(
        self, sql: str, *, fresh: bool = False, **terms: "Unpack[orders.SmoothTerms]"
    ) -> Answer:
        """A quantile or a robust mean with noise scaled to its smooth sensitivity on these rows.

        ``gate.smooth("SELECT MEDIAN(cost) FROM visits", epsilon=1)``, or ``AVG(cost)`` with
        ``trim=0.1`` or ``clip=500`` (Huber's estimate). Where many values lie close together
        around it, the noise is small; how small is a secret. The terms are those of `SmoothOrder`;
        see docs/robust.md.
        """
        return self.run(orders.SmoothOrder.make(sql=sql, **terms), fresh=fresh)

    def smooth_plan(
        self, sql: str, *, fresh: bool = False, **terms: "Unpack[orders.SmoothTerms]"
    ) -> "Plan[RobustExpected]":
        """Price and noise of `smooth`. Free: spends nothing, reads no row."""
        return self.plan(orders.SmoothOrder.make(sql=sql, **terms), fresh=fresh)

    def distance(
        self,
        asked: "Function | None" = None,
        *,
        fresh: bool = False,
        **terms: "Unpack[orders.DistanceTerms]",
    ) -> Answer:
        """The number of rows to remove until a property holds, for the best of public conditions.

        ``gate.distance(columns=["x", "y"], centers=[(0, 0), (5, 5)], radius=2, epsilon=1)`` is how
        many rows are in none of the balls; with ``label="sick = 1"`` instead, how many are on the
        wrong side of the best line of a public grid.

        Args:
            asked: Or SQL of several counts: the smallest is released, not which one it is. Or, from
                the steward only, a program that computes a distance (or "file.py:name"), with
                ``trusted=True``: one unit changes it by at most 1. The guarantee says so.
            fresh: Pay for a new draw instead of the released one.
            terms: Those of `DistanceOrder`; of a program, those of `ClaimOrder`.
        """
        return self.run(orders.distance_order(asked, **terms), fresh=fresh)

    def distance_plan(
        self,
        asked: "Function | None" = None,
        *,
        fresh: bool = False,
        **terms: "Unpack[orders.DistanceTerms]",
    ) -> "Plan[RobustExpected | AnswerExpected]":
        """Price and error of `distance`. Free: spends nothing, reads no row, runs nothing."""
        return self.plan(orders.distance_order(asked, **terms), fresh=fresh)

    def graph(
        self, table: str | None = None, **terms: "Unpack[orders.GraphTerms]"
    ) -> "Graph[Answer]":
        """A graph whose edges are rows: ``gate.graph("friends", source="a", target="b")``.

        The terms are those of `GraphOrder`; see docs/robust.md for what can be asked.
        """
        from noisegate.robust.graphs import Graph  # noqa: PLC0415 - when asked for

        return Graph(self.run, self._vertices, table=table, **terms)

    def graph_plan(
        self, table: str | None = None, **terms: "Unpack[orders.GraphTerms]"
    ) -> "Graph[Plan[RobustExpected]]":
        """The same graph, whose statistics are only planned. Free: reads no row."""
        from noisegate.robust.graphs import Graph  # noqa: PLC0415 - when asked for

        return Graph(self.plan, self._vertices, table=table, **terms)

    # means and many questions

    def statistic(
        self,
        expressions: str | Sequence[str],
        *,
        fresh: bool = False,
        **terms: "Unpack[orders.StatisticTerms]",
    ) -> "Expectations":
        """The mean of each bounded expression over the rows, all for one price.

        ``gate.statistic(["age >= 65", "cost / 800"], epsilon=1).values``; ``.within(0.95)`` is
        how far each may be off. A condition counts as 1 or 0. The terms are those of
        `StatisticOrder`.
        """
        return self.run(orders.StatisticOrder.make(expressions=expressions, **terms), fresh=fresh)

    def statistic_plan(
        self,
        expressions: str | Sequence[str],
        *,
        fresh: bool = False,
        **terms: "Unpack[orders.StatisticTerms]",
    ) -> "Plan[MeansExpected]":
        """Price and error of `statistic`. Free: spends nothing, reads no row."""
        return self.plan(orders.StatisticOrder.make(expressions=expressions, **terms), fresh=fresh)

    def many(
        self,
        columns: "Columns | None" = None,
        *,
        progress: Progress | None = None,
        **terms: "Unpack[orders.ManyTerms]",
    ) -> "AbstractContextManager[ManySession]":
        """Thousands of counting questions for one price, by private multiplicative weights.

        ``with gate.many({"age": 10, "sex": None}, epsilon=1) as session:`` and then
        ``session.sql("SELECT COUNT(*) FROM people WHERE age < 30")``. The terms are those of
        `ManyOrder`; see docs/many.md.
        """
        return self.run(orders.ManyOrder.make(columns=columns, **terms), progress=progress)

    def many_plan(
        self, columns: "Columns | None" = None, **terms: "Unpack[orders.ManyTerms]"
    ) -> "Plan[ManyExpected]":
        """Price and promised error of a session of many questions. Free: reads no row."""
        return self.plan(orders.ManyOrder.make(columns=columns, **terms))

    def compare(
        self,
        threshold: Number,
        questions: Sequence[str],
        *,
        fresh: bool = False,
        progress: Progress | None = None,
        **terms: "Unpack[orders.ThresholdsTerms]",
    ) -> Answer:
        """Which of a list of counts and sums reach a threshold; only the few yeses are paid for.

        ``gate.compare(200, ["SELECT COUNT(*) FROM people WHERE age > 80", …], count=3, epsilon=1)``
        says so for each in turn, and by how much, until the last yes that is paid for. The terms
        are those of `ThresholdsOrder`; see docs/thresholds.md.
        """
        order = orders.ThresholdsOrder.make(threshold=threshold, questions=questions, **terms)
        return self.run(order, fresh=fresh, progress=progress)

    def compare_plan(
        self,
        threshold: Number,
        questions: Sequence[str],
        *,
        fresh: bool = False,
        **terms: "Unpack[orders.ThresholdsTerms]",
    ) -> "Plan[ThresholdExpected]":
        """Price and error of `compare`, beside plain questions. Free: reads no row."""
        order = orders.ThresholdsOrder.make(threshold=threshold, questions=questions, **terms)
        return self.plan(order, fresh=fresh)

    # looks

    def describe(
        self, table: str | None = None, /, **terms: "Unpack[orders.DescribeTerms]"
    ) -> "Description":
        """Rows, missing values, means, quartiles and keys of all columns, for one price.

        ``print(gate.describe("visits", epsilon=1))``. The terms are those of `DescribeOrder`; see
        docs/describe.md.
        """
        return self.release("describe", **_of_table(table, terms))

    def describe_plan(
        self, table: str | None = None, /, **terms: "Unpack[orders.DescribeTerms]"
    ) -> "Plan[DescribeExpected]":
        """Price and error of a description. Free: spends nothing, reads no row."""
        return self.release_plan("describe", **_of_table(table, terms))

    def caps(self, table: str, *, epsilon: Number) -> Profile:
        """Estimate how many rows units have, for a price; plans then show what a cap loses.

        ``print(gate.caps("visits", epsilon=0.05))``; ``.best(epsilon)`` is the cap with the
        smallest error of a count at that ε. Paid once; asking again is free.
        """
        return self.run(orders.CapsOrder.make(table=table, epsilon=epsilon))

    def bounds(
        self, table: str, column: str, *, epsilon: Number, rows_per_unit: int | None = None
    ) -> tuple[Fraction, Fraction]:
        """Private estimates of bounds that hold nearly all values of a numeric column.

        Powers of two. Declare them in the policy, or use them in a question,
        ``SUM(LEAST(GREATEST(x, low), high)) FILTER (WHERE x IS NOT NULL)``: LEAST and GREATEST
        pass over NULL.
        """
        of = {"table": table, "column": column, "rows_per_unit": rows_per_unit}
        return self.run(orders.BoundsOrder.make(epsilon=epsilon, **of))


def _order(order: Order[R, E]) -> Order[R, E]:
    if not isinstance(order, Order):
        raise SpecError(
            "This is not an order.", fix="Use SQL, or noisegate.orders.order_from(record)."
        )
    return order


def _lists(terms: "orders.ChoiceTerms") -> "orders.ChoiceTerms":
    """The terms with candidates of an Arrow table, or a data frame, as lists by column."""
    given = terms.get("candidates")
    for name, more in (("to_pydict", {}), ("to_dict", {"orient": "list"})):
        if hasattr(given, name):
            return {**terms, "candidates": getattr(given, name)(**more)}
    return terms


def _of_table(table: str | None, terms: "orders.DescribeTerms") -> "orders.DescribeTerms":
    """The terms with a table that is named first."""
    return terms if table is None else {**terms, "table": table}
