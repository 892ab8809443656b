"""Statistics whose local sensitivity is usually small: quantiles, graphs, distances."""

from typing import TYPE_CHECKING, Any

from noisegate.desk.answer import Answer
from noisegate.desk.desk import Desk

if TYPE_CHECKING:
    from noisegate.desk.plan import Plan
    from noisegate.programs.text import Function
    from noisegate.robust.graphs import Graph
    from noisegate.robust.paying import Outcome
    from noisegate.robust.plans import RobustExpected


class RobustFace:
    """The part of a gate that asks for quantiles, graphs and distances."""

    _desk: Desk

    def smooth(self, sql: str, *, fresh: bool = False, **terms: Any) -> Answer:  # noqa: ANN401
        """One quantile with noise scaled to its smooth sensitivity on these rows.

        ``gate.smooth("SELECT MEDIAN(cost) FROM visits", epsilon=1)``. Where many values lie close
        together around it, the noise is small; how small is not released. See docs/robust.md.

        Args:
            sql: One SELECT of one MEDIAN or QUANTILE_CONT, by declared groups if there are any.
            fresh: Pay for a new draw instead of the released one.
            terms: ``epsilon``, the price; ``delta``, for lighter tails; ``beta``, the decay
                of smooth sensitivity; ``method="ptr"`` (propose-test-release) with a ``bound`` and
                a ``delta``: then the answer may be None; ``rows_per_unit``.
        """
        return self._smooth(sql, terms, fresh=fresh)  # type: ignore[no-any-return]

    def smooth_plan(self, sql: str, *, fresh: bool = False, **terms: Any) -> "Plan[RobustExpected]":  # noqa: ANN401
        """Price and noise of `smooth`. Free: spends nothing, reads no row."""
        return self._smooth(sql, terms, fresh=fresh, to_plan=True)  # type: ignore[no-any-return]

    def _smooth(
        self, sql: str, terms: dict[str, Any], *, fresh: bool, to_plan: bool = False
    ) -> "Outcome":
        from noisegate.robust.paying import Till, order_of  # noqa: PLC0415 - when asked for
        from noisegate.robust.quantiles import SmoothQuantile  # noqa: PLC0415

        till = Till(self._desk, to_plan=to_plan)
        return SmoothQuantile(till, sql, order_of(terms)).ask(fresh=fresh)

    def distance(
        self,
        asked: "str | Function | None" = None,
        *,
        fresh: bool = False,
        **terms: Any,  # noqa: ANN401 - as for DistanceOrder, or ClaimOrder
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
            terms: ``epsilon``, the price; ``table`` and ``where``; ``separators``, lines to try
                such as ``[([1, -2], 30)]`` for x - 2y >= 30; ``rows_per_unit``.
        """
        return self._distance(asked, terms, fresh=fresh)  # type: ignore[no-any-return]

    def distance_plan(
        self,
        asked: "str | Function | None" = None,
        *,
        fresh: bool = False,
        **terms: Any,  # noqa: ANN401 - as for distance
    ) -> "Plan[Any]":
        """Price and error of `distance`. Free: spends nothing, reads no row, runs nothing."""
        return self._distance(asked, terms, fresh=fresh, to_plan=True)  # type: ignore[no-any-return]

    def _distance(
        self,
        asked: "str | Function | None",
        terms: dict[str, Any],
        *,
        fresh: bool,
        to_plan: bool = False,
    ) -> "Outcome":
        from noisegate.robust.distances import ask_distance, distance_of  # noqa: PLC0415
        from noisegate.robust.paying import Till  # noqa: PLC0415

        till = Till(self._desk, to_plan=to_plan)
        if "trusted" in terms or callable(asked):
            from noisegate.robust.claimed import ask_claimed  # noqa: PLC0415 - when asked for

            return ask_claimed(till, asked or "", terms, fresh=fresh)
        return ask_distance(till, distance_of(asked, terms), fresh=fresh)

    def graph(self, table: str | None = None, **terms: Any) -> "Graph":  # noqa: ANN401 - as for GraphOrder
        """A graph whose edges are rows: ``gate.graph("friends", source="a", target="b")``.

        Args:
            table: The table of edges; by default the only private table.
            terms: ``source`` and ``target``, the columns of both ends; ``nodes``, the public
                vertices, a range or a list, by default those declared for both columns;
                ``level="node"`` to protect all edges of a vertex, not only each row;
                ``where``, a condition on rows. See docs/robust.md for what can be asked.
        """
        return self._graph(table, terms)

    def graph_plan(self, table: str | None = None, **terms: Any) -> "Graph":  # noqa: ANN401 - as for graph
        """The same graph, whose statistics are only planned. Free: reads no row."""
        return self._graph(table, terms, to_plan=True)

    def _graph(self, table: str | None, terms: dict[str, Any], *, to_plan: bool = False) -> "Graph":
        from noisegate.robust.graphs import Graph, graph_of  # noqa: PLC0415 - when asked for
        from noisegate.robust.paying import Till  # noqa: PLC0415

        till = Till(self._desk, to_plan=to_plan)
        return Graph(till, graph_of(till.table(table), terms))
