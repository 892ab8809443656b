"""The gate as analysts see it: plan a question, ask it, see the balance."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, final

from noisegate.curator.curator import Curator
from noisegate.desk.answer import Answer
from noisegate.desk.desk import Desk
from noisegate.desk.rules import Rules
from noisegate.desk.terms import Terms, checked, require_known, require_texts
from noisegate.errors import SpecError
from noisegate.exact import Number, fraction
from noisegate.ledger.store import Ledger
from noisegate.privacy.guarantee import units_of
from noisegate.privacy.loss import ApproxDP
from noisegate.privacy.unit import protected
from noisegate.robust.face import RobustFace
from noisegate.sql.bounds import table_looks
from noisegate.sql.bounds.profiles import Profile
from noisegate.sql.job import question_job
from noisegate.sql.laws.sampling import chance_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractContextManager

    from noisegate.desk.job import Job, Progress
    from noisegate.desk.plan import Plan
    from noisegate.learners.expectations import Expectations, MeansExpected
    from noisegate.learners.matrix import Matrix
    from noisegate.orders import AnyJob
    from noisegate.privacy.domain import TableDomain
    from noisegate.programs.applied import Applied
    from noisegate.programs.applying import ApplyExpected
    from noisegate.programs.text import Function
    from noisegate.releases.ask.order import Order
    from noisegate.sql.choosing import Choice, ChoiceExpected, ChoiceJob
    from noisegate.sql.fluent import TableQuestion
    from noisegate.synthetic.pmw.many import ManyExpected
    from noisegate.synthetic.pmw.online import Many, ManySession

__all__ = ["Gate", "Rules"]


@final
class Gate(RobustFace):
    """Private tables and one analyst's account. Made by `noisegate.open`."""

    def __init__(self, curator: Curator, rules: Rules) -> None:
        self._curator, self._rules = curator, rules
        self._desk = Desk(curator, rules)

    def sql(  # noqa: PLR0913 - each is a choice of the analyst
        self,
        sql: str,
        *,
        epsilon: Number | None = None,
        within: Number | None = None,
        relative: Number | None = None,
        confidence: Number | None = None,
        delta: Number | None = None,
        rows_per_unit: int | None = None,
        groups_per_unit: int | None = None,
        rows: int | None = None,
        choose: str | Sequence[str] | None = None,
        fresh: bool = False,
    ) -> Answer:
        """Ask a question. What was released before is reused at no cost.

        Args:
            sql: One SELECT, in DuckDB's spelling.
            epsilon: The price; by default that of the policy. In an account that adds up zCDP,
                ε buys ρ = ε² / 2.
            within: Or the largest error of each number, at the ``confidence``: the lowest price
                that achieves it is chosen.
            relative: Or the largest relative error, as a share of the expected size of a group.
            confidence: The confidence level of the error bars, by default 0.95.
            delta: The δ for partition selection, where keys of groups are not declared.
            rows_per_unit: Contribution bound: how many rows of one unit count.
            groups_per_unit: Contribution bound: in how many groups one unit counts.
            rows: An approximate public number of rows: then the error of averages can be
                predicted, and ``within`` works for them.
            choose: "bounds", "caps" or both: estimate privately what is not declared, for a fifth
                of ε: bounds of columns, and contribution bounds.
            fresh: Pay for new, independent draws instead of using released ones.
        """
        terms = _terms(
            epsilon=epsilon, within=within, relative=relative, confidence=confidence, delta=delta,
            rows_per_unit=rows_per_unit, groups_per_unit=groups_per_unit, rows=rows, choose=choose,
        )  # fmt: skip
        return self._desk.run(self._question(sql, terms, fresh=fresh), fresh=fresh)

    def plan(self, sql: str, *, fresh: bool = False, **terms: Any) -> "Plan[Any]":  # noqa: ANN401 - as for sql
        """Price and error of a question. Free: spends nothing, reads no row. Terms as for `sql`."""
        return self._desk.plan(self._question(sql, _terms(**terms), fresh=fresh), fresh=fresh)

    def _question(self, sql: str, terms: Terms, *, fresh: bool) -> "Job[Any, Answer, Any]":
        """The job of a question; where the policy has it, groups of so many are a crowd's."""
        paid = terms.epsilon, terms.within, terms.relative
        if self._rules.crowd is not None and self._rules.sample is None and not any(paid):
            from noisegate.crowd.having import having_job  # noqa: PLC0415 - when asked for

            if (crowd := having_job(self._desk, sql)) is not None:
                return crowd
        return question_job(self._desk, sql, terms, fresh=fresh)

    def table(self, name: str) -> "TableQuestion":
        """Ask step by step: ``gate.table("visits").group_by("ward").count().ask(epsilon=0.1)``."""
        from noisegate.sql.fluent import TableQuestion  # noqa: PLC0415 - only when asked for

        return TableQuestion(name, self.sql, self.plan)

    def choose(self, sql: str, *, fresh: bool = False, **terms: Any) -> "Choice":  # noqa: ANN401 - as for ChoiceOrder
        """Choose privately the candidate with the best score; only the choice is released.

        ``gate.choose("SELECT ward, COUNT(*) FROM visits GROUP BY ward", epsilon=0.1).winner``: each
        declared key is a candidate, its number the score. Or each aggregate is a candidate:
        ``SELECT SUM(CASE WHEN bid >= 1 THEN 1 END) AS "1", …``. See docs/choice.md.

        Args:
            sql: One SELECT of counts or sums.
            fresh: Pay for a new, independent choice instead of the one that was made.
            terms: ``epsilon``, the price; ``k``, how many to choose; ``method``: "exponential",
                "permute-and-flip", "noisy-max", or "auto", the most accurate; ``gap``: also release
                the gap to the next candidate, at no extra cost; ``least``: choose the lowest;
                ``rows_per_unit``, ``groups_per_unit``.
        """
        return self._desk.run(self._choice(sql, terms), fresh=fresh)

    def choose_plan(self, sql: str, *, fresh: bool = False, **terms: Any) -> "Plan[ChoiceExpected]":  # noqa: ANN401 - as for choose
        """Price and error of a choice. Free: spends nothing, reads no row."""
        return self._desk.plan(self._choice(sql, terms), fresh=fresh)

    def _choice(self, sql: str, terms: dict[str, Any]) -> "ChoiceJob":
        from noisegate.sql.choosing import ChoiceOrder, choice_job  # noqa: PLC0415 - when asked for

        require_known(terms, ChoiceOrder, "sql")
        return choice_job(self._desk, checked(ChoiceOrder(sql=sql, **terms)))

    def apply(
        self,
        function: "Function",
        sql: str | None = None,
        *,
        fresh: bool = False,
        progress: "Progress | None" = None,
        **terms: Any,  # noqa: ANN401 - as for ApplyOrder
    ) -> "Applied":
        """Run any program on private rows by sample-and-aggregate, isolated, block by block.

        ``gate.apply(model, columns=["age", "cost"], range=(0, 10), blocks=100, epsilon=1)``: units
        are dealt to blocks by chance, the function (or "file.py:name") sees one block at a time, a
        dictionary of NumPy arrays, and the noisy average of its results is released. The options
        are those of `ApplyOrder`, and ``fresh``. See docs/apply.md.
        """
        from noisegate.programs.applying import apply_job  # noqa: PLC0415 - when asked for

        job = apply_job(self._desk, function, sql, terms)
        return self._desk.run(job, fresh=fresh, progress=progress)

    def apply_plan(
        self,
        function: "Function",
        sql: str | None = None,
        *,
        fresh: bool = False,
        **terms: Any,  # noqa: ANN401 - as for ApplyOrder
    ) -> "Plan[ApplyExpected]":
        """Price, time and error of a program. Free: spends nothing, reads no row, runs nothing."""
        from noisegate.programs.applying import apply_job  # noqa: PLC0415 - when asked for

        return self._desk.plan(apply_job(self._desk, function, sql, terms), fresh=fresh)

    def release(  # noqa: PLR0913 - each is a choice of the steward
        self,
        name: str,
        sql: str | None = None,
        *,
        table: str | None = None,
        columns: "Mapping[str, Any] | Sequence[str] | None" = None,
        where: str | None = None,
        method: str = "auto",
        workload: Any = None,  # noqa: ANN401 - a name, ranges, or a Workload
        epsilon: Number | None = None,
        rows_per_unit: int | None = None,
        groups_per_unit: int | None = None,
        fresh: bool = False,
        progress: "Progress | None" = None,
        **options: Any,  # noqa: ANN401 - of the method
    ) -> Any:  # noqa: ANN401 - a TableRelease; some names have results of their own
        """Publish a table once, to be used from then on. What was released before is free.

        Args:
            name: "histogram", "table", "map", "series", "marginals", or the name of a method: the
                result is a `TableRelease`. "sparse", "cube", "above", "boxplot", "cdf", and a
                series that grows, have results of their own: see docs/releases.md. "synthetic"
                are synthetic rows, a `SyntheticRelease`: see docs/synthetic.md. "questions" is a
                table for a ``workload`` of SQL counting questions: see docs/many.md.
            sql: One SELECT of one COUNT or SUM by declared groups, such as
                ``SELECT COUNT(*) FROM visits GROUP BY BIN(age, 5), ward``.
            table: Or, without SQL: the table, if there are several,
            columns: and its columns: a bin width, a list of edges, a unit of time such as "month",
                or None for declared keys,
            where: and a condition.
            method: How to measure; by default chosen by a public rule.
            workload: The queries to be accurate for: "cells", "ranges", "prefixes", "marginals", or
                ranges such as ``[{"age": (20, 39)}, {"ward": "north"}]``.
            epsilon: The total price; by default that of the policy. In an account that adds up
                zCDP, ε buys ρ = ε² / 2.
            rows_per_unit: Contribution bound: how many rows of one unit count.
            groups_per_unit: Contribution bound: in how many groups one unit counts.
            fresh: Pay for new, independent draws instead of the release that exists.
            progress: Called now and then with a fraction from 0 to 1 and a text.
            options: Options of the method.
        """
        order = self._order(
            name, sql, table=table, where=where, method=method, columns=columns,
            workload=workload, epsilon=epsilon, rows_per_unit=rows_per_unit,
            groups_per_unit=groups_per_unit, **options,
        )  # fmt: skip
        return self._desk.run(self._job(order, fresh=fresh), fresh=fresh, progress=progress)

    def release_plan(
        self,
        name: str,
        sql: str | None = None,
        *,
        fresh: bool = False,
        **terms: Any,  # noqa: ANN401 - as for release
    ) -> "Plan[Any]":
        """Price, method and predicted error of a release. Free: spends nothing, reads no row."""
        order = self._order(name, sql, **terms)
        return self._desk.plan(self._job(order, fresh=fresh), fresh=fresh)

    def release_endings(self, name: str, sql: str | None = None, **terms: Any) -> tuple[str, ...]:  # noqa: ANN401
        """The file formats that a release can be saved in. Free."""
        return self._job(self._order(name, sql, **terms)).endings

    def _order(self, name: str, sql: str | None, **terms: Any) -> "Order":  # noqa: ANN401 - as for release
        from noisegate.releases.ask.order import order_of  # noqa: PLC0415 - when asked for

        return order_of(name, sql, terms)

    def _job(self, order: "Order", *, fresh: bool = False) -> "AnyJob":
        from noisegate.orders import job_of  # noqa: PLC0415 - when asked for

        return job_of(self._desk, order, fresh=fresh)

    def sample(self, probability: Number) -> "Gate":
        """Ask about a secret sample that holds each unit with ``probability``.

        ``gate.sample(0.1).sql("SELECT COUNT(*) FROM visits", epsilon=0.1)``: each question, and
        each release as a whole, draws its own sample, at the door. The sample is secret, so the
        price is amplified and buys less noise; answers are scaled up to all rows, and the noise
        with them. The ± includes the sampling error. Use it only where not all rows may be used:
        with all rows, the same price gives a smaller error.
        """
        chance = chance_of(probability)
        if self._rules.sample is not None:
            raise SpecError("This gate already samples.", fix="Sample once.")
        return Gate(self._curator, replace(self._rules, sample=chance))

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
        if columns is not None and not _are_texts(columns):
            raise SpecError("columns is not a list of strings.", fix='Use ["age", "cost"].')
        return matrix_of(
            self._curator, self._rules, table, columns,
            target=target, where=where, rows_per_unit=rows_per_unit,
        )  # fmt: skip

    def statistic(  # noqa: PLR0913 - each is a choice of the analyst
        self,
        expressions: str | Sequence[str],
        *,
        table: str | None = None,
        where: str | None = None,
        epsilon: Number | None = None,
        tolerance: Number | None = None,
        rows: int | None = None,
        confidence: Number = 0.95,
        rows_per_unit: int | None = None,
        fresh: bool = False,
    ) -> "Expectations":
        """The mean of each bounded expression over the rows, all for one price.

        ``gate.statistic(["age >= 65", "cost / 800"], epsilon=1).values``; ``.within(0.95)`` is
        the error bar of each. A condition counts as 1 or 0.

        Args:
            expressions: In SQL, with bounds that follow from what is declared.
            table: The table, if there are several.
            where: The condition on rows.
            epsilon: The price.
            tolerance: Or the largest error of every mean, at the ``confidence``: the lowest price
                that achieves it is chosen, given ``rows``.
            rows: An approximate public number of rows.
            confidence: The confidence level of the tolerance.
            rows_per_unit: Contribution bound: how many rows of one unit count.
            fresh: Pay for new, independent draws instead of the means that were released.
        """
        from noisegate.learners.expectations import expectations  # noqa: PLC0415 - when asked for

        listed = [expressions] if isinstance(expressions, str) else expressions
        found = self.matrix(table, listed, where=where, rows_per_unit=rows_per_unit)
        return expectations(
            found, epsilon=epsilon, tolerance=tolerance, rows=rows, confidence=confidence,
            fresh=fresh,
        )  # fmt: skip

    def statistic_plan(  # noqa: PLR0913 - as for statistic
        self,
        expressions: str | Sequence[str],
        *,
        table: str | None = None,
        where: str | None = None,
        epsilon: Number | None = None,
        tolerance: Number | None = None,
        rows: int | None = None,
        confidence: Number = 0.95,
        rows_per_unit: int | None = None,
        fresh: bool = False,
    ) -> "Plan[MeansExpected]":
        """Price and error of `statistic`. Free: spends nothing, reads no row."""
        from noisegate.learners.expectations import means_job  # noqa: PLC0415 - when asked for

        listed = [expressions] if isinstance(expressions, str) else expressions
        found = self.matrix(table, listed, where=where, rows_per_unit=rows_per_unit)
        job = means_job(
            found, epsilon=epsilon, tolerance=tolerance, rows=rows, confidence=confidence
        )
        return self._desk.plan(job, fresh=fresh)

    def many(
        self,
        columns: "Mapping[str, Any] | None" = None,
        *,
        sure: bool = False,
        progress: "Progress | None" = None,
        **terms: Any,  # noqa: ANN401 - as for ManyOrder
    ) -> "AbstractContextManager[ManySession]":
        """Thousands of counting questions for one price, by private multiplicative weights.

        ``with gate.many({"age": 10, "sex": None}, epsilon=1) as session:`` and then
        ``session.sql("SELECT COUNT(*) FROM people WHERE age < 30")``. See docs/many.md.

        Args:
            columns: What questions can be about: a bin width, a list of edges, a unit of time, or
                None for declared keys; by default what the ``workload`` needs.
            sure: Promise the error up to the last question, for a public number of ``rows``.
            progress: Called now and then with a fraction from 0 to 1 and a text.
            terms: ``epsilon``, the total price; ``questions``, how many the promise is for;
                ``within``, the largest error, or ``surprises``, the number of updates, each
                answered with noise of its own; ``table``; ``rows``; ``workload``, a list of the
                questions; ``start``, the number of columns of the first tables; ``evidence``, a
                list of earlier releases; ``confidence``; ``rows_per_unit``.
        """
        return self._many(columns, terms, sure=sure).open(progress)

    def many_plan(
        self,
        columns: "Mapping[str, Any] | None" = None,
        *,
        sure: bool = False,
        **terms: Any,  # noqa: ANN401 - as for many
    ) -> "Plan[ManyExpected]":
        """Price and promised error of a session of many questions. Free: reads no row."""
        return self._many(columns, terms, sure=sure).plan

    def _many(
        self, columns: "Mapping[str, Any] | None", terms: dict[str, Any], *, sure: bool
    ) -> "Many":
        from noisegate.synthetic.pmw.many import ManyOrder  # noqa: PLC0415 - when asked for
        from noisegate.synthetic.pmw.online import Many  # noqa: PLC0415

        require_known(terms, ManyOrder, "columns")
        order = checked(ManyOrder(columns=columns, **terms))
        return Many(self._desk, order, sure=sure)

    def caps(self, table: str, *, epsilon: Number) -> Profile:
        """Estimate how many rows units have, for a price; plans then show what a cap loses.

        ``print(gate.caps("visits", epsilon=0.05))``; ``.best(epsilon)`` is the cap with the
        smallest error of a count at that ε. Paid once; asking again is free.
        """
        require_texts(table=table)
        exact = self._look_price(epsilon)
        return table_looks.profile(self._curator, table, exact, self._rules.sample)

    def bounds(self, table: str, column: str, *, epsilon: Number) -> tuple[Fraction, Fraction]:
        """Private estimates of bounds that hold nearly all values of a numeric column.

        Powers of two. Use them in a question, ``SUM(LEAST(GREATEST(x, low), high))``, or declare
        them in the policy.
        """
        require_texts(table=table, column=column)
        exact = self._look_price(epsilon)
        return table_looks.bounds(self._curator, table, column, exact, self._rules.sample)

    def _look_price(self, epsilon: Number) -> Fraction:
        exact = fraction(epsilon, name="epsilon")
        self._rules.require_price(exact)
        return exact

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

    def history(self) -> Sequence[Any]:
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


def _are_texts(listed: object) -> bool:
    return isinstance(listed, Collection) and all(isinstance(each, str) for each in listed)


def _terms(**terms: Any) -> Terms:  # noqa: ANN401 - numbers as people write them
    require_known(terms, Terms)
    choose = terms.pop("choose", None)
    listed = (choose,) if isinstance(choose, str) else choose
    if listed is not None and not _are_texts(listed):
        raise SpecError("choose is not a string.", fix='Use "bounds", "caps" or both in a list.')
    caps = {name: terms.get(name) for name in ("rows_per_unit", "groups_per_unit", "rows")}
    numbers = {
        name: fraction(value, name=name)
        for name, value in terms.items()
        if value is not None and name not in caps
    }
    return Terms(choose=listed and tuple(listed), **caps, **numbers)  # type: ignore[arg-type]  # numbers by name
