"""The gate as analysts see it: ask, see the price first, look at the balance.

Whatever is asked for is an order: `plan` says its price, `run` pays for it. The other methods make
orders of what is said to them.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, final, overload

import noisegate.orders as orders  # noqa: PLR0402 - loads each kind when it is used
from noisegate.curator.curator import Curator
from noisegate.desk.answer import Answer
from noisegate.desk.desk import Desk
from noisegate.desk.job import Progress
from noisegate.desk.order import Order
from noisegate.desk.plan import Expected, Plan
from noisegate.desk.rules import Rules
from noisegate.desk.terms import require_texts
from noisegate.errors import SpecError
from noisegate.exact import Number
from noisegate.ledger.store import Ledger
from noisegate.orders.releases import ReleasePlans, Releases
from noisegate.privacy.guarantee import units_of
from noisegate.privacy.loss import ApproxDP
from noisegate.privacy.unit import protected
from noisegate.sql.bounds.profiles import Profile
from noisegate.sql.laws.sampling import chance_of
from noisegate.sql.order import SqlOrder

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractContextManager

    from noisegate.crowd.histogram import CrowdExpected
    from noisegate.desk.job import Job
    from noisegate.desk.order import Columns
    from noisegate.learners.expectations import Expectations, MeansExpected
    from noisegate.learners.matrix import Matrix
    from noisegate.ledger.entry import Entry
    from noisegate.privacy.domain import TableDomain
    from noisegate.programs.applied import Applied
    from noisegate.programs.order import ApplyExpected
    from noisegate.programs.text import Function
    from noisegate.releases.describe.description import Description
    from noisegate.releases.describe.job import DescribeExpected
    from noisegate.robust.graphs import Graph
    from noisegate.robust.plans import RobustExpected
    from noisegate.sql.choosing import Choice, ChoiceExpected
    from noisegate.sql.fluent import TableQuestion
    from noisegate.sql.plan import AnswerExpected
    from noisegate.synthetic.pmw.many import ManyExpected
    from noisegate.synthetic.pmw.online import ManySession

__all__ = ["Gate", "Rules"]
R = TypeVar("R")
E = TypeVar("E", bound=Expected)


@final
class Gate:
    """Private tables and one analyst's account. Made by `noisegate.open`."""

    def __init__(self, curator: Curator, rules: Rules) -> None:
        self._curator, self._rules = curator, rules
        self._desk = Desk(curator, rules)

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
        if isinstance(order, SqlOrder):
            return self._desk.plan(self._question(order, fresh=fresh), fresh=fresh)
        return _order(order).plan(self._desk, fresh=fresh)

    def run(
        self, order: Order[R, E], *, fresh: bool = False, progress: Progress | None = None
    ) -> R:
        """What is ordered. What was released before is found in the ledger, at no cost.

        Args:
            order: Any order, such as `noisegate.orders.order_from` reads from JSON.
            fresh: Pay for new, independent draws instead of using released ones.
            progress: Called now and then with a fraction from 0 to 1 and a text.
        """
        if isinstance(order, SqlOrder):
            job = self._question(order, fresh=fresh)
            return self._desk.run(job, fresh=fresh, progress=progress)  # type: ignore[return-value]  # of such orders
        return _order(order).run(self._desk, fresh=fresh, progress=progress)

    def _question(self, order: SqlOrder, *, fresh: bool) -> "Job[Any, Answer, Any]":
        """The job of a question; where the policy has it, groups of so many are a crowd's."""
        paid = order.epsilon, order.within, order.relative
        if self._rules.crowd is not None and self._rules.sample is None and not any(paid):
            from noisegate.crowd.having import having_job  # noqa: PLC0415 - when asked for

            if (crowd := having_job(self._desk, order.sql)) is not None:
                return crowd
        return order.anew(self._desk) if fresh else order.job(self._desk)

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
        ``SELECT SUM(CASE WHEN bid >= 1 THEN 1 END) AS "1", …``. The terms are those of
        `ChoiceOrder`; see docs/choice.md.
        """
        return self.run(orders.ChoiceOrder.make(sql=sql, **terms), fresh=fresh)

    def choose_plan(
        self, sql: str, *, fresh: bool = False, **terms: "Unpack[orders.ChoiceTerms]"
    ) -> "Plan[ChoiceExpected]":
        """Price and error of a choice. Free: spends nothing, reads no row."""
        return self.plan(orders.ChoiceOrder.make(sql=sql, **terms), fresh=fresh)

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
        self, sql: str, *, fresh: bool = False, **terms: "Unpack[orders.ReachesTerms]"
    ) -> Answer:
        """One quantile with noise scaled to its smooth sensitivity on these rows.

        ``gate.smooth("SELECT MEDIAN(cost) FROM visits", epsilon=1)``. Where many values lie close
        together around it, the noise is small; how small is a secret. The terms are those of
        `SmoothOrder`; see docs/robust.md.
        """
        return self.run(orders.SmoothOrder.make(sql=sql, **terms), fresh=fresh)

    def smooth_plan(
        self, sql: str, *, fresh: bool = False, **terms: "Unpack[orders.ReachesTerms]"
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

        return Graph(self._desk, self.run, table=table, **terms)

    def graph_plan(
        self, table: str | None = None, **terms: "Unpack[orders.GraphTerms]"
    ) -> "Graph[Plan[RobustExpected]]":
        """The same graph, whose statistics are only planned. Free: reads no row."""
        from noisegate.robust.graphs import Graph  # noqa: PLC0415 - when asked for

        return Graph(self._desk, self.plan, table=table, **terms)

    # learners

    def matrix(
        self,
        table: str | None = None,
        columns: Sequence[str] | None = None,
        *,
        target: str | None = None,
        where: str | None = None,
        rows_per_unit: int | None = None,
    ) -> "Matrix":
        """Columns of private rows for a learner: a handle, which itself reads nothing.

        ``KMeans(n_clusters=3, epsilon=1).fit(gate.matrix("visits", ["age", "cost"]))``

        Args:
            table: The table, if there are several.
            columns: Names of columns with declared bounds or keys, or expressions such as
                "LN(cost + 1)"; by default all that can be used.
            target: The target: a column with declared keys, or a number with bounds.
            where: The condition on rows.
            rows_per_unit: Contribution bound: how many rows of one unit count.
        """
        from noisegate.learners.matrix import matrix_of  # noqa: PLC0415 - when asked for

        require_texts(table=table, target=target, where=where)
        listed = isinstance(columns, Collection) and all(isinstance(each, str) for each in columns)
        if columns is not None and not listed:
            raise SpecError("columns is not a list of strings.", fix='Use ["age", "cost"].')
        return matrix_of(
            self._curator, self._rules, table, columns,
            target=target, where=where, rows_per_unit=rows_per_unit,
        )  # fmt: skip

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

    def bounds(self, table: str, column: str, *, epsilon: Number) -> tuple[Fraction, Fraction]:
        """Private estimates of bounds that hold nearly all values of a numeric column.

        Powers of two. Declare them in the policy, or use them in a question,
        ``SUM(LEAST(GREATEST(x, low), high)) FILTER (WHERE x IS NOT NULL)``: LEAST and GREATEST
        pass over NULL.
        """
        return self.run(orders.BoundsOrder.make(table=table, column=column, epsilon=epsilon))

    # the gate itself

    def sample(self, probability: Number) -> "Gate":
        """Ask about a secret sample that holds each unit with ``probability``.

        ``gate.sample(0.1).sql("SELECT COUNT(*) FROM visits", epsilon=0.1)``: each question, and
        each release as a whole, draws its own sample, at the door. The sample is secret, so the
        price is amplified and buys less noise; answers are scaled up to all rows, and the noise
        with them. The ± includes the sampling error. Use it only where not all rows may be used:
        for those who must not use all rows: with all of them, the same price errs less.
        """
        chance = chance_of(probability)
        if self._rules.sample is not None:
            raise SpecError("This gate already samples.", fix="Sample once.")
        return Gate(self._curator, replace(self._rules, sample=chance))

    @property
    def tables(self) -> "Mapping[str, TableDomain]":
        """The tables and what is public about them."""
        return self._curator.tables

    @property
    def spent(self) -> ApproxDP:
        """What this analyst's account has spent: a reading; the promise is the budget."""
        return self._curator.ledger.balance(self._curator.account).spent

    @property
    def remaining(self) -> ApproxDP:
        """The largest question that still fits, here and in the data set's own account."""
        return self._curator.remaining()

    @property
    def ledger(self) -> Ledger:
        """The ledger behind the gate: balance, history, verify, export."""
        return self._curator.ledger

    @property
    def door(self) -> Curator:
        """The door behind the gate: nothing is read past it."""
        return self._curator

    @property
    def rules(self) -> Rules:
        """What the policy says about questions."""
        return self._rules

    def history(self) -> "Sequence[Entry]":
        """The ledger's entries for this account."""
        return self._curator.ledger.history(self._curator.account)

    def __repr__(self) -> str:
        names = ", ".join(repr(name) for name in self.tables)
        kept = "durable ledger" if self._curator.ledger.durable else "ledger in memory only"
        mode = "made-up rows, free of charge; " if self._rules.practice else ""
        return (
            f"<Gate of {names}: {mode}protects {protected(units_of(self.tables.values()))}; "
            f"spent {self.spent}, left {self.remaining:left}; {kept}>"
        )


def _order(order: Order[R, E]) -> Order[R, E]:
    if not isinstance(order, Order):
        raise SpecError(
            "This is not an order.", fix="Use SQL, or noisegate.orders.order_from(record)."
        )
    return order


def _of_table(table: str | None, terms: "orders.DescribeTerms") -> "orders.DescribeTerms":
    """The terms with a table that is named first."""
    return terms if table is None else {**terms, "table": table}
