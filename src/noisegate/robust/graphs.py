"""A graph whose edges are rows: numbers of it, protecting each row or all edges of each vertex.

    friends = gate.graph("friends", source="a", target="b", nodes=range(100))
    friends.triangles(epsilon=1)

The vertices are public and labelled; which of them are joined is private. Direction, loops and
double rows say nothing, and rows that name other vertices are left out.
"""

from collections.abc import Callable, Sequence
from datetime import date, datetime
from fractions import Fraction
from typing import (
    Any,
    ClassVar,
    Final,
    Generic,
    Literal,
    Protocol,
    Required,
    TypeAlias,
    TypedDict,
    TypeVar,
    Unpack,
    final,
)

from noisegate.algebra.expression import domain_of
from noisegate.algebra.schema import schema_of
from noisegate.algebra.tally import Axis, Cells, Grouping
from noisegate.curator.measurement import Measurement
from noisegate.desk.answer import Answer
from noisegate.desk.desk import Desk
from noisegate.desk.noisy import HalfWidths
from noisegate.desk.terms.terms import Terms
from noisegate.errors import SpecError
from noisegate.exact import Number, positive
from noisegate.frozen import dataclass
from noisegate.mechanisms.smooth import graph_numbers
from noisegate.privacy.distance import L1, L2
from noisegate.privacy.domain import Key, Kind
from noisegate.releases.cells.axes import date_of
from noisegate.releases.sparse.axes import SparseAxis, axes_of
from noisegate.robust import graph_answers, paying
from noisegate.sql.bounds.limits import caps_of
from noisegate.sql.question import Block
from noisegate.transforms.query import Query
from noisegate.transforms.stability import stability_of

Nodes: TypeAlias = range | Sequence[Key]
Level: TypeAlias = Literal["edge", "node"]
Asked: TypeAlias = Literal[
    "edges", "degrees", "min-cut", "bipartite-distance", "triangles", "two-stars",
    "spanning-tree-cost", "degree-distribution",
]  # fmt: skip
T_co = TypeVar("T_co", covariant=True)


class GraphTerms(TypedDict, total=False):
    """Where the edges are; see `Gate.graph`."""

    source: Required[str]
    target: Required[str]
    nodes: Nodes | None
    level: Level
    where: str | None


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class GraphOrder(paying.ReachesOrder):
    """A number of the graph whose edges are rows; see `Graph` for what can be ``asked``.

    ``source`` and ``target`` are the columns of both ends of an edge; ``nodes`` the public
    vertices, a range or a list, by default those declared for both columns. ``level="node"``
    protects all edges of a vertex, of which ``degree`` count, and not each row alone.
    """

    kind: ClassVar[str] = "graph"
    asked: Asked
    table: str | None = None
    source: str
    target: str
    nodes: Nodes | None = None
    level: Level = "edge"
    where: str | None = None
    degree: int | None = None
    weight: str | None = None
    step: Number | None = None

    def __post_init__(self) -> None:
        paying.ReachesOrder.__post_init__(self)
        said = {name for name in _OF_REACHES if getattr(self, name) is not None}
        if self.asked in graph_answers.PLAIN and (said or self.method != "smooth"):
            raise SpecError(
                f"The noise of {self.asked!r} does not depend on the rows.",
                fix=f"Leave out {min(said or {'method'})}.",
            )
        tree = self.asked == "spanning-tree-cost"
        if (tree and not self.weight) or (self.weight and not tree and self.asked != "min-cut"):
            raise SpecError(
                "A weight is for a spanning tree or a minimum cut.", fix="Give a column there."
            )

    def job(self, desk: Desk) -> paying.RobustJob:
        """The number that it asks for."""
        return _Edges(paying.Till(desk), self).job()


_OF_REACHES: Final = ("delta", "bound", "beta", "bar", "rows_per_unit")


class Then(Protocol[T_co]):
    """What is done with an order: it is run, or planned."""

    def __call__(self, order: GraphOrder, /, *, fresh: bool) -> T_co:
        """What comes of it."""


@final
class Graph(Generic[T_co]):
    """Numbers of a graph, each an order that is run, or planned. Asking for one again is free."""

    def __init__(
        self,
        then: Then[T_co],
        count: Callable[[GraphOrder], int],
        **said: Any,  # noqa: ANN401 - checked by the order
    ) -> None:
        self._then, self._said = then, said
        self._vertices = count(GraphOrder.make(asked="edges", **said))

    @property
    def vertices(self) -> int:
        """How many there are: public."""
        return self._vertices

    def edges(
        self, *, epsilon: Number | None = None, degree: int | None = None, fresh: bool = False
    ) -> T_co:
        """How many edges there are; for ``level="node"`` at most ``degree`` of each vertex."""
        return self._number("edges", fresh=fresh, epsilon=epsilon, degree=degree)

    def degrees(self, *, epsilon: Number | None = None, fresh: bool = False) -> T_co:
        """The degrees of all vertices in their order of size, without saying whose they are."""
        return self._number("degrees", fresh=fresh, epsilon=epsilon)

    def degree_distribution(
        self, *, degree: int, epsilon: Number | None = None, fresh: bool = False
    ) -> T_co:
        """How many vertices have at most 0, 1, … edges, up to ``degree``, the contribution bound.

        For ``level="node"`` no more than ``degree`` edges of each vertex count.
        """
        return self._number("degree-distribution", fresh=fresh, epsilon=epsilon, degree=degree)

    def min_cut(
        self,
        weight: str | None = None,
        *,
        step: Number | None = None,
        degree: int | None = None,
        epsilon: Number | None = None,
        fresh: bool = False,
    ) -> T_co:
        """How many edges must go until the graph falls apart; or which ``weight`` of them.

        Weights are a column with bounds from 0 on, in whole ``step``s as for a spanning tree; one
        row moves the cut by at most the largest. For ``level="node"`` without weights, up to
        ``degree`` edges.
        """
        return self._number(
            "min-cut", fresh=fresh, epsilon=epsilon, weight=weight, step=step, degree=degree
        )

    def bipartite_distance(self, *, epsilon: Number | None = None, fresh: bool = False) -> T_co:
        """How many edges must go until the rest joins two sides only; for few vertices."""
        return self._number("bipartite-distance", fresh=fresh, epsilon=epsilon)

    def triangles(
        self,
        *,
        degree: int | None = None,
        fresh: bool = False,
        **terms: Unpack[paying.ReachesTerms],
    ) -> T_co:
        """How many triangles there are; terms as for `Gate.smooth`.

        For ``level="node"`` those among vertices of at most ``degree`` edges.
        """
        return self._number("triangles", fresh=fresh, degree=degree, **terms)

    def two_stars(self, *, fresh: bool = False, **terms: Unpack[paying.ReachesTerms]) -> T_co:
        """How many pairs of edges share a vertex; terms as for `Gate.smooth`."""
        return self._number("two-stars", fresh=fresh, **terms)

    def spanning_tree_cost(
        self,
        weight: str,
        *,
        step: Number | None = None,
        fresh: bool = False,
        **terms: Unpack[paying.ReachesTerms],
    ) -> T_co:
        """The weight of the lightest tree that joins all vertices.

        ``weight`` is a column with declared bounds, rounded down to whole ``step``s (by default 1
        for whole numbers, else a thousandth of the bounds). A missing edge weighs as much as the
        heaviest: then a row that comes or goes is another weight of one pair of vertices.
        """
        return self._number("spanning-tree-cost", fresh=fresh, weight=weight, step=step, **terms)

    def _number(self, asked: Asked, *, fresh: bool, **terms: Any) -> T_co:  # noqa: ANN401 - checked by the order
        return self._then(GraphOrder.make(asked=asked, **self._said, **terms), fresh=fresh)


def vertices_of(desk: Desk, order: GraphOrder) -> int:
    """How many vertices the graph of an order has: public. A graph that cannot be is refused."""
    return _Edges(paying.Till(desk), order).vertices


@final
class _Edges:
    """The edges of a graph, and how a number of them is asked for."""

    def __init__(self, till: paying.Till, order: GraphOrder) -> None:
        part, sample = till.curator.part, till.rules.sample
        if order.level == "node" and (part or sample):
            raise SpecError(
                "Edges are sampled, or in parts, one by one: those of a vertex together would cost "
                "more than the price.",
                fix='Use level="edge", or the gate itself.',
                about="sample" if part is None else "part",
            )
        self._till, self._order, self._table = till, order, till.table(order.table)
        self._block = self._grouped((order.source, order.target))
        if order.level == "node" and not stability_of(self._block.relation).is_row_level:
            raise SpecError(
                "Which rows of a unit are kept depends on all of its rows, so edges of one vertex "
                "would affect others.",
                fix='Use level="edge". Where vertices are the units, a table in which every row '
                "is one unit protects all edges of each.",
                about="vertex",
            )
        self._axes = _vertices(self._block, order)

    @property
    def vertices(self) -> int:
        """How many there are: public."""
        return self._axes[0].size

    def job(self) -> paying.RobustJob:
        """The number that is asked for."""
        order, cap = self._order, 0
        statistic: str = order.asked.removesuffix("-cost")
        if order.asked == "degree-distribution":
            cap = self._capped(order.degree)
            statistic = graph_answers.CAPPED[statistic] if order.level == "node" else statistic
        elif order.asked in graph_answers.CAPPED and self._is_by_node(order.degree):
            statistic, cap = graph_answers.CAPPED[order.asked], order.degree or 0
        elif order.asked not in graph_answers.CAPPED:
            self._require_edges(order.asked.replace("-", "_"))
        if order.degree is not None and not cap:
            raise SpecError(f"{order.asked!r} has no degree.", fix="Leave it out.")
        if order.asked in graph_answers.PLAIN:
            if order.weight is not None:
                self._require_edges("min_cut with a weight")  # a vertex has many edges
                return self._weighted_cut(*self._weights(order.weight, order.step))
            return self._number(statistic, cap=cap)
        if order.weight is None:
            return self._local(statistic, cap=cap)
        made, shown = self._weights(order.weight, order.step)
        offset = (self.vertices - 1) * shown.low
        return self._local(statistic, weight=made, step=shown.step, offset=offset)

    def _number(self, statistic: str, *, cap: int) -> paying.RobustJob:
        self._require_size(statistic)
        query, epsilon = self._query(), self._order.epsilon
        l1, l2 = graph_numbers.moved(statistic, query.per_unit, cap=cap)
        noise = self._till.plain(epsilon, l1=l1, l2=l2)
        asked = graph_numbers.GraphNumber(
            statistic=statistic, vertices=self.vertices, cap=cap, noise=noise
        )
        unit = Fraction(1, 2) if statistic == "capped-edges" else Fraction(1)
        few = graph_answers.FEW[statistic].format(cap) if cap else None

        def finish(found: paying.Found) -> Answer:
            values = [paying.shown_number(each * unit) for each in found.values[0]]
            words = self._words(few)
            if "degree" in statistic:
                values, words = graph_answers.rising(values), (*words, graph_answers.RISING)

            def widths(confidence: Number) -> HalfWidths:
                off = graph_answers.largest_noise(noise, confidence, len(values))
                return (paying.shown_number(off * unit),) * len(values)

            table = graph_answers.number_table(statistic, values)
            return found.answer(self._sql(statistic), table, widths, words, unsigned=True)

        measurement = Measurement(query=query, mechanisms=(asked,))
        return self._till.job(
            measurement, finish, asked=self._sql(statistic), unit=unit,
            epsilon=self._till.rules.price(epsilon),
        )  # fmt: skip

    def _weighted_cut(self, weight: Axis, shown: SparseAxis) -> paying.RobustJob:
        """The least weight whose loss parts the graph."""
        self._require_size("min-cut")
        base = shown.low / shown.step
        if base.denominator != 1 or base < 0:
            raise SpecError(
                "A weight of a cut may be negative, or its bounds are not whole steps.",
                fix="Declare bounds from 0 on, or give a step that divides the lower one.",
                about="weight",
            )
        query, epsilon = self._query(weight=weight), self._order.epsilon
        reach = query.per_unit * (int(base) + weight.size - 1)
        noise = self._till.plain(epsilon, l1=L1(reach), l2=L2(squared=reach * reach))
        asked = graph_numbers.WeightedCut(
            vertices=self.vertices, levels=weight.size, base=int(base), noise=noise
        )

        def finish(found: paying.Found) -> Answer:
            def widths(confidence: Number) -> HalfWidths:
                return (paying.shown_number(noise.interval(confidence) * shown.step),)

            table = graph_answers.number_table(
                "min-cut", [paying.shown_number(found.values[0][0] * shown.step)]
            )
            words = self._words(
                graph_answers.FEW["weighted-cut"].format(graph_answers.step_text(shown.step))
            )
            return found.answer(self._sql("min-cut"), table, widths, words, unsigned=True)

        return self._till.job(
            Measurement(query=query, mechanisms=(asked,)), finish, asked=self._sql("min-cut"),
            unit=shown.step, epsilon=self._till.rules.price(epsilon),
        )  # fmt: skip

    def _local(
        self,
        statistic: str,
        *,
        cap: int = 0,
        weight: Axis | None = None,
        step: Fraction = Fraction(1),
        offset: Fraction = Fraction(0),
    ) -> paying.RobustJob:
        self._require_size(statistic)
        order = self._order
        query = self._query(order.rows_per_unit, weight)
        levels = 1 if weight is None else weight.size
        top = graph_numbers.largest(statistic, self.vertices, levels=levels, cap=cap)
        noise = self._till.noise(order, low=0, high=top, grain=step, steps=query.per_unit)
        asked = graph_numbers.LocalGraph(
            statistic=statistic, vertices=self.vertices, levels=levels, cap=cap, noise=noise
        )
        measurement = Measurement(query=query, mechanisms=(asked,))
        read = paying.ByReaches(noise=noise, grain=step, low=offset)

        def finish(found: paying.Found) -> Answer:
            few = f"Among vertices of at most {cap} edges." if cap else None
            words = (*read.words(found), *self._words(few))
            table = graph_answers.number_table(statistic, read.numbers(found))
            widths = read.widths(found)
            return found.answer(self._sql(statistic), table, widths, words, unsigned=read.unsigned)

        return self._till.job(
            measurement, finish, asked=self._sql(statistic), unit=step,
            epsilon=self._till.rules.price(order.epsilon),
        )  # fmt: skip

    def _query(self, said: int | None = None, weight: Axis | None = None) -> Query:
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
        block = self._rows(f"SUM({column})")
        (aggregate,) = block.aggregates
        domain = domain_of(aggregate.args[0], schema_of(block.relation))
        if domain.low is None or domain.high is None or not domain.kind.is_numeric:
            raise SpecError("A weight has no bounds.", fix="Declare between = [low, high] for it.")
        width = Fraction(1) if domain.kind is Kind.INTEGER else (domain.high - domain.low) / 1000
        width = width if step is None else positive(step, name="step")
        binned = self._grouped((f"BIN({column}, {graph_answers.step_text(width)})",))
        (made,), (shown,) = axes_of(binned, (column,))
        if not isinstance(made, Axis) or not 2 <= made.size <= graph_numbers.LEVELS_MAX:
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
        if by_node:
            self._capped(degree)
        return by_node

    def _capped(self, degree: int | None) -> int:
        if type(degree) is not int or not 2 <= degree <= self.vertices:
            raise SpecError(
                f"degree is {degree!r}.", fix="Use 2 up to the number of vertices.", about="degree"
            )
        return degree

    def _require_edges(self, what: str) -> None:
        if self._order.level != "edge":
            raise SpecError(f"One vertex may change {what} by any amount.", fix='Use level="edge".')

    def _require_size(self, statistic: str) -> None:
        most = graph_numbers.VERTICES_MAX[statistic]
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
        return f"{statistic} of the graph {order.source} - {order.target} in {self._table}"

    def _grouped(self, columns: Sequence[str]) -> Block:
        """The rows of the table, grouped by expressions."""
        block = self._rows("COUNT(*)", f" GROUP BY {', '.join(columns)}")
        if len(block.by) != len(columns):
            raise SpecError("These are not columns of a private table.", fix="See gate.tables.")
        return block

    def _rows(self, what: str, how: str = "") -> Block:
        where = "" if self._order.where is None else f" WHERE {self._order.where}"
        sql = f"SELECT {what} FROM {self._table}{where}{how}"  # noqa: S608 - it is read, not run
        blocks = self._till.read(sql).blocks
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
        kind = {Kind.DATE: date, Kind.TIMESTAMP: datetime}.get(block.by[0].domain.kind)
        nodes = order.nodes if kind is None else [date_of(node, kind) for node in order.nodes]
        keys = tuple(dict.fromkeys(nodes))
        return tuple(Grouping(name=n, expression=e, keys=keys) for n, e in ends)
    made, (one, other) = axes_of(block, names)
    if (one.size, one.low, one.step, one.keys) != (other.size, other.low, other.step, other.keys):
        raise SpecError(
            "The two columns are declared to hold different vertices.",
            fix="Declare the same keys for both, or give nodes: a range or a list.",
        )
    return made
