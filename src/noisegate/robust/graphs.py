"""A graph whose edges are rows: numbers of it, protecting each row or all edges of each vertex.

    friends = gate.graph("friends", source="a", target="b", nodes=range(100))
    friends.triangles(epsilon=1)

The vertices are public and labelled; which of them are joined is private. Direction, loops and
double rows say nothing, and rows that name other vertices are left out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final, TypeAlias, final

import pyarrow as pa

from noisegate.algebra.expression import domain_of
from noisegate.algebra.schema import schema_of
from noisegate.algebra.tally import Axis, Cells, Grouping
from noisegate.curator.measurement import Measurement
from noisegate.desk.answer import Answer, HalfWidths
from noisegate.desk.terms import Terms, checked, require_known
from noisegate.errors import SpecError
from noisegate.exact import Number, positive
from noisegate.mechanisms.additive.gaussian import DiscreteGaussian
from noisegate.mechanisms.additive.geometric import Geometric
from noisegate.mechanisms.smooth.graph_numbers import (
    LEVELS_MAX,
    VERTICES_MAX,
    GraphNumber,
    LocalGraph,
    largest,
    moved,
)
from noisegate.planning.calibrate import discrete_gaussian_error, geometric_error
from noisegate.privacy.domain import Key, Kind
from noisegate.releases.sparse.axes import SparseAxis, axes_of
from noisegate.robust.paying import ByReaches, Found, Order, Outcome, Till, order_of, shown_number
from noisegate.sql.bounds.limits import caps_of
from noisegate.sql.question import Block
from noisegate.transforms.query import Query
from noisegate.transforms.stability import stability_of

Nodes: TypeAlias = range | Sequence[Key]
LEVELS: Final = ("edge", "node")
RISING: Final = "Degrees are sorted by isotonic regression; the ± is for all of them at once."


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class GraphOrder:
    """Where the edges are: a table, its two columns of vertices, and which vertices there are."""

    table: str
    source: str
    target: str
    nodes: Nodes | None = None
    level: str = "edge"
    where: str | None = None


@final
class Graph:
    """Numbers of a graph through the door. Asking for one again is free."""

    def __init__(self, till: Till, order: GraphOrder) -> None:
        if order.level not in LEVELS:
            raise SpecError(
                f"There is no level {order.level!r}.", fix=f"Use {' or '.join(LEVELS)}."
            )
        if order.level == "node" and till.rules.sample is not None:
            raise SpecError(
                "Each edge is sampled by itself, so sampling does not hide a vertex: its edges "
                "together would cost more than the amplified price.",
                fix='Use level="edge", or the gate itself.',
                about="sample",
            )
        self._till, self._order = till, order
        self._block = _block(till, order, (order.source, order.target))
        if order.level == "node" and not stability_of(self._block.relation).is_row_level:
            raise SpecError(
                "Which rows of a unit are kept depends on all of its rows, so edges of one vertex "
                "would affect others.",
                fix='Use level="edge", or a table in which every row is one unit.',
                about="vertex",
            )
        self._axes = _vertices(self._block, order)

    @property
    def vertices(self) -> int:
        """How many there are: public."""
        return self._axes[0].size

    # what can be asked

    def edges(
        self, *, epsilon: Number | None = None, degree: int | None = None, fresh: bool = False
    ) -> Outcome:
        """How many edges there are; for ``level="node"`` at most ``degree`` of each vertex."""
        if self._is_by_node(degree):
            return self._number("capped-edges", epsilon, fresh=fresh, cap=degree or 0)
        return self._number("edges", epsilon, fresh=fresh)

    def degrees(self, *, epsilon: Number | None = None, fresh: bool = False) -> Outcome:
        """The degrees of all vertices in their order of size, without saying whose they are."""
        self._require_edges("degrees")
        return self._number("degrees", epsilon, fresh=fresh)

    def min_cut(self, *, epsilon: Number | None = None, fresh: bool = False) -> Outcome:
        """How many edges must go until the graph falls apart."""
        self._require_edges("min_cut")
        return self._number("min-cut", epsilon, fresh=fresh)

    def bipartite_distance(self, *, epsilon: Number | None = None, fresh: bool = False) -> Outcome:
        """How many edges must go until the rest joins two sides only; for few vertices."""
        self._require_edges("bipartite_distance")
        return self._number("bipartite-distance", epsilon, fresh=fresh)

    def triangles(
        self,
        *,
        degree: int | None = None,
        fresh: bool = False,
        **terms: Any,  # noqa: ANN401
    ) -> Outcome:
        """How many triangles there are; terms as for `Gate.smooth`.

        For ``level="node"`` those among vertices of at most ``degree`` edges.
        """
        if self._is_by_node(degree):
            return self._local("truncated-triangles", terms, fresh=fresh, cap=degree or 0)
        return self._local("triangles", terms, fresh=fresh)

    def two_stars(self, *, fresh: bool = False, **terms: Any) -> Outcome:  # noqa: ANN401
        """How many pairs of edges share a vertex; terms as for `Gate.smooth`."""
        self._require_edges("two_stars")
        return self._local("two-stars", terms, fresh=fresh)

    def spanning_tree_cost(
        self,
        weight: str,
        *,
        step: Number | None = None,
        fresh: bool = False,
        **terms: Any,  # noqa: ANN401
    ) -> Outcome:
        """The weight of the lightest tree that joins all vertices.

        ``weight`` is a column with declared bounds, rounded down to whole ``step``s (by default 1
        for whole numbers, else a thousandth of the bounds). A missing edge weighs as much as the
        heaviest: then a row that comes or goes is another weight of one pair of vertices.
        """
        self._require_edges("spanning_tree_cost")
        made, shown = self._weights(weight, step)
        offset = (self.vertices - 1) * shown.low
        return self._local(
            "spanning-tree", terms, fresh=fresh, weight=made, step=shown.step, offset=offset
        )

    # how it is asked

    def _number(
        self, statistic: str, epsilon: Number | None, *, fresh: bool, cap: int = 0
    ) -> Outcome:
        self._require_size(statistic)
        query = self._query()
        l1, l2 = moved(statistic, query.per_unit, cap=cap)
        noise = self._till.plain(epsilon, l1=l1, l2=l2)
        asked = GraphNumber(statistic=statistic, vertices=self.vertices, cap=cap, noise=noise)
        unit, few = Fraction(1), None
        if cap:
            unit, few = Fraction(1, 2), f"At most {cap} edges of each vertex count."

        def finish(found: Found) -> Answer:
            values = [shown_number(each * unit) for each in found.values[0]]
            words = self._words(few)
            if statistic == "degrees":
                values, words = _rising(values), (*words, RISING)

            def widths(confidence: Number) -> HalfWidths:
                off = _largest(noise, confidence, len(values))
                return (shown_number(off * unit),) * len(values)

            table = _table(statistic, values)
            return found.answer(self._sql(statistic), table, widths, words, unsigned=True)

        measurement = Measurement(query=query, mechanisms=(asked,))
        return self._till.settle(
            measurement, finish, asked=self._sql(statistic), fresh=fresh, unit=unit,
            epsilon=self._till.rules.price(epsilon),
        )  # fmt: skip

    def _local(  # noqa: PLR0913 - each is a part of the number
        self,
        statistic: str,
        terms: dict[str, Any],
        *,
        fresh: bool,
        cap: int = 0,
        weight: Axis | None = None,
        step: Fraction = Fraction(1),
        offset: Fraction = Fraction(0),
    ) -> Outcome:
        self._require_size(statistic)
        order = order_of(terms)
        query = self._query(order, weight)
        levels = 1 if weight is None else weight.size
        top = largest(statistic, self.vertices, levels=levels, cap=cap)
        noise = self._till.noise(order, low=0, high=top, grain=step, steps=query.per_unit)
        asked = LocalGraph(
            statistic=statistic, vertices=self.vertices, levels=levels, cap=cap, noise=noise
        )
        measurement = Measurement(query=query, mechanisms=(asked,))

        read = ByReaches(noise=noise, grain=step, low=offset)

        def finish(found: Found) -> Answer:
            few = f"Among vertices of at most {cap} edges." if cap else None
            words = (*read.words(found), *self._words(few))
            table = _table(statistic, read.numbers(found))
            widths = read.widths(found)
            return found.answer(self._sql(statistic), table, widths, words, unsigned=read.unsigned)

        return self._till.settle(
            measurement, finish, asked=self._sql(statistic), fresh=fresh, unit=step,
            epsilon=self._till.rules.price(order.epsilon),
        )  # fmt: skip

    def _query(self, order: Order | None = None, weight: Axis | None = None) -> Query:
        said = None if order is None else order.rows_per_unit
        facts, cap = stability_of(self._block.relation), None
        if not facts.is_row_level:
            cap = caps_of(self._block, Terms(rows_per_unit=said)).rows_per_unit
        elif said is not None:
            raise SpecError(
                "Every row is one unit, so a contribution bound has no meaning.",
                fix="Leave it out.",
            )
        by = self._axes if weight is None else (*self._axes, weight)
        return Query(Cells(relation=self._block.relation, by=by, rows_per_unit=cap))

    def _weights(self, column: str, step: Number | None) -> tuple[Axis, SparseAxis]:
        """The weights as whole steps from their lower bound."""
        block = _read(self._till, self._order, f"SUM({column})")
        (aggregate,) = block.aggregates
        domain = domain_of(aggregate.args[0], schema_of(block.relation))
        if domain.low is None or domain.high is None or not domain.kind.is_numeric:
            raise SpecError("A weight has no bounds.", fix="Declare between = [low, high] for it.")
        width = Fraction(1) if domain.kind is Kind.INTEGER else (domain.high - domain.low) / 1000
        width = width if step is None else positive(step, name="step")
        binned = _block(self._till, self._order, (f"BIN({column}, {_decimal(width)})",))
        (made,), (shown,) = axes_of(binned, (column,))
        if not isinstance(made, Axis) or not 2 <= made.size <= LEVELS_MAX:
            raise SpecError(
                "The weights have no quantisation step.",
                fix="Give a step smaller than the range of the bounds.",
            )
        return made, shown

    def _is_by_node(self, degree: int | None) -> bool:
        by_node = self._order.level == "node"
        if by_node == (degree is None):
            raise SpecError(
                'degree is needed for level="node", and only there.',
                fix='Give degree, for example 50, with level="node".',
            )
        if by_node and (type(degree) is not int or not 2 <= degree <= self.vertices):
            raise SpecError(f"degree is {degree!r}.", fix="Use 2 up to the number of vertices.")
        return by_node

    def _require_edges(self, what: str) -> None:
        if self._order.level != "edge":
            raise SpecError(f"One vertex may change {what} by any amount.", fix='Use level="edge".')

    def _require_size(self, statistic: str) -> None:
        most = VERTICES_MAX[statistic]
        if not 3 <= self.vertices <= most:
            raise SpecError(
                f"There are {self.vertices:,} vertices.",
                fix=f"Use 3 to {most:,} for this statistic.",
            )

    def _words(self, more: str | None) -> tuple[str, ...]:
        """What the number leaves out, and whom the promise holds for besides."""
        words = [] if more is None else [more]
        if self._order.level == "node":
            words.append("The same guarantee holds for all edges of one vertex together.")
        if (chance := self._till.rules.sample) is not None:
            words.append(
                f"Of the graph that a secret sample shows, which holds each unit with probability "
                f"{chance}: not scaled up."
            )
        return tuple(words)

    def _sql(self, statistic: str) -> str:
        order = self._order
        return f"{statistic} of the graph {order.source} - {order.target} in {order.table}"


def graph_of(table: str, terms: Mapping[str, Any]) -> GraphOrder:
    """A graph from what was said about it."""
    require_known(terms, GraphOrder, "table")
    if missing := {"source", "target"} - terms.keys():
        raise SpecError(f"A graph needs a {min(missing)}.", fix="Name both vertex columns.")
    return checked(GraphOrder(table=table, **terms))


def _block(till: Till, order: GraphOrder, columns: Sequence[str]) -> Block:
    """The rows of the table, grouped by expressions."""
    block = _read(till, order, "COUNT(*)", f" GROUP BY {', '.join(columns)}")
    if len(block.by) != len(columns):
        raise SpecError("These are not columns of a private table.", fix="See gate.tables.")
    return block


def _read(till: Till, order: GraphOrder, what: str, how: str = "") -> Block:
    where = "" if order.where is None else f" WHERE {order.where}"
    sql = f"SELECT {what} FROM {order.table}{where}{how}"  # noqa: S608 - it is read, not run
    blocks = till.read(sql).blocks
    if len(blocks) != 1 or len(blocks[0].aggregates) != 1:
        raise SpecError(
            "A graph must be in one private table.", fix="See gate.tables.", about="table"
        )
    return blocks[0]


def _vertices(block: Block, order: GraphOrder) -> tuple[Axis | Grouping, ...]:
    """Both ends along one list of vertices: as given, or as declared for both columns alike."""
    names = order.source, order.target
    ends = [(name, key.expression) for name, key in zip(names, block.by, strict=True)]
    if isinstance(order.nodes, range):
        if order.nodes.step != 1 or not order.nodes:
            raise SpecError("The vertices have gaps.", fix="Use a range with steps of 1.")
        low, size = order.nodes.start, len(order.nodes)
        return tuple(Axis(name=n, expression=e, low=low, size=size) for n, e in ends)
    if order.nodes is not None:
        keys = tuple(dict.fromkeys(order.nodes))
        return tuple(Grouping(name=n, expression=e, keys=keys) for n, e in ends)
    made, (one, other) = axes_of(block, names)
    if (one.size, one.low, one.step, one.keys) != (other.size, other.low, other.step, other.keys):
        raise SpecError(
            "The two columns are declared to hold different vertices.",
            fix="Declare the same keys for both, or give nodes: a range or a list.",
        )
    return made


def _table(name: str, values: Sequence[int | float | None]) -> pa.Table:
    if name == "degrees":
        return pa.table({"rank": list(range(1, len(values) + 1)), "degree": values})
    plain = name.removeprefix("capped-").removeprefix("truncated-")
    return pa.table({plain.replace("-", "_"): values})


def _largest(noise: Geometric | DiscreteGaussian, confidence: Number, cells: int) -> int:
    """How far the noise of any of several numbers reaches."""
    if isinstance(noise, Geometric):
        return geometric_error(noise.scale, confidence=confidence, cells=cells)
    return discrete_gaussian_error(noise.variance, confidence=confidence, cells=cells)


def _rising(values: Sequence[float]) -> list[float]:
    """The nearest list that never falls.

    Claim: no further from the exact degrees, at worst, than the noise itself. Why: they rise, and
        this projection brings no two lists further apart in their largest difference [HRMS10].
    """
    from scipy.optimize import isotonic_regression  # noqa: PLC0415 - only degrees need it

    found: list[float] = isotonic_regression(values).x.tolist()
    return found


def _decimal(width: Fraction) -> str:
    """The step as SQL has it; one that is not a decimal is cut to six digits."""
    return f"{float(width):.6g}"
