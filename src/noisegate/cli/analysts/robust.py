"""The commands for numbers that single rows rarely move: quantiles, graphs, distances."""

from typing import Annotated, final

from noisegate.cli.analysts.choose import listed
from noisegate.cli.opening import Asking, Opening, opens
from noisegate.cli.options import RowsWhere, Table, app, argument, option, sql_like
from noisegate.errors import SpecError
from noisegate.frozen import dataclass

_ASKED = ("edges", "degrees", "triangles", "two-stars", "min-cut", "bipartite-distance",
          "spanning-tree-cost", "degree-distribution")  # fmt: skip
_BY_REACHES = ("triangles", "two-stars", "spanning-tree-cost")


@final
@dataclass(frozen=True, kw_only=True)
class ByReaches:
    """How wide the noise is, where the rows at hand decide."""

    answer_delta: Annotated[str | None, option("The δ of this answer.")] = None
    method: Annotated[
        str, option("The method: smooth (smooth sensitivity), ptr (propose-test-release).")
    ] = "smooth"
    bound: Annotated[
        str | None, option("The most that one unit moves a number: proposed, for ptr.")
    ] = None
    beta: Annotated[
        str | None, option("How fast rows further away matter less (β of smooth sensitivity).")
    ] = None
    bar: Annotated[
        str | None, option("The share of the price for a ±: 1/3, or 1/10 with --answer-delta.")
    ] = None

    @property
    def terms(self) -> dict[str, str | None]:
        """As a gate takes them."""
        return {"delta": self.answer_delta, "method": self.method, "bound": self.bound,
                "beta": self.beta, "bar": self.bar}  # fmt: skip


@final
@dataclass(frozen=True, kw_only=True)
class Balls:
    """Instead of SQL: columns, and what is to hold of them."""

    columns: Annotated[str | None, option("Columns: x,y, instead of SQL.")] = None
    radius: Annotated[str | None, option("With --columns: that of a ball.")] = None
    centers: Annotated[str | None, option("Its centres: 0,0;5,5.")] = None
    clusters: Annotated[int | None, option("Or how many; the best centres of a grid.")] = None
    grid: Annotated[int, option("With --clusters: points a column.")] = 6
    label: Annotated[
        str | None, option("A label: a condition that a line is to tell apart, sick = 1.")
    ] = None
    table: Table = None
    where: RowsWhere = None

    @property
    def terms(self) -> dict[str, object]:
        """As an order has them."""
        centers = [point.split(",") for point in self.centers.split(";")] if self.centers else []
        return {"columns": self.columns.split(",") if self.columns else [], "centers": centers,
                "radius": self.radius, "clusters": self.clusters, "grid": self.grid,
                "label": self.label, "table": self.table, "where": self.where}  # fmt: skip


@app.command()
@opens
def smooth(
    opening: Opening,
    sql: Annotated[str, sql_like("'SELECT MEDIAN(cost) FROM visits', or AVG(cost)")],
    asking: Asking,
    noise: ByReaches,
    trim: Annotated[
        str | None, option("Of an AVG: the share to leave out at each end: 0.1.")
    ] = None,
    clip: Annotated[
        str | None, option("Of an AVG: Huber's estimate; how far a value may pull.")
    ] = None,
) -> None:
    """Release a quantile or a robust mean with noise scaled to its smooth sensitivity."""
    from noisegate.orders import SmoothOrder  # noqa: PLC0415 - quick help

    rows = opening.caps.get("rows_per_unit")
    order = SmoothOrder.make(
        sql=sql, epsilon=asking.epsilon, rows_per_unit=rows, trim=trim, clip=clip, **noise.terms
    )
    asking.shown(opening, order)


@app.command()
@opens
def graph(
    *,
    opening: Opening,
    asked: Annotated[str, argument(f"One of {', '.join(_ASKED)}.")],
    source: Annotated[str, option("The column of one end of an edge.")],
    target: Annotated[str, option("The target column: the other end of an edge.")],
    table: Table = None,
    nodes: Annotated[
        str | None, option("The vertices: 0:99, or ann,bob,cy; by default as declared.")
    ] = None,
    level: Annotated[
        str, option("What is protected: an edge (row), or a node with all its edges.")
    ] = "edge",
    degree: Annotated[
        int | None, option("With --level node: contribution bound, the edges that count.")
    ] = None,
    weight: Annotated[
        str | None, option("For a spanning tree or a min-cut: the weight column.")
    ] = None,
    step: Annotated[str | None, option("With --weight: whole steps of so much.")] = None,
    where: RowsWhere = None,
    asking: Asking,
    noise: ByReaches,
) -> None:
    """Release a statistic of the graph whose edges are the rows."""
    from noisegate.orders import GraphOrder  # noqa: PLC0415 - quick help

    order = GraphOrder.make(
        asked=asked, table=table, source=source, target=target, nodes=_nodes(nodes), level=level,
        where=where, degree=degree, weight=weight, step=step, epsilon=asking.epsilon,
        **(noise.terms if asked in _BY_REACHES else {}),
    )  # fmt: skip
    asking.shown(opening, order)


@app.command()
@opens
def distance(
    opening: Opening,
    asking: Asking,
    balls: Balls,
    sql: Annotated[
        str | None, sql_like("Several counts of exceptions, of which the smallest is released")
    ] = None,
    candidates: Annotated[
        str | None, option("A public list: at=1,2,3, or a .csv file of columns; with one count.")
    ] = None,
) -> None:
    """Release the number of rows to remove until one of several public conditions holds."""
    from noisegate.orders import DistanceOrder  # noqa: PLC0415

    order = DistanceOrder.make(
        sql=sql, epsilon=asking.epsilon, rows_per_unit=opening.caps.get("rows_per_unit"),
        candidates=listed(candidates), **balls.terms,
    )  # fmt: skip
    asking.shown(opening, order)


def _nodes(text: str | None) -> range | list[str] | list[int] | None:
    if text is None:
        return None
    first, sign, last = text.partition(":")
    if sign:
        try:
            return range(int(first), int(last) + 1)
        except ValueError:
            raise SpecError(
                f"--nodes {text} is not a range.", fix="For example: 0:99, both ends included."
            ) from None
    listed = text.split(",")
    return [int(each) for each in listed] if all(map(str.isdecimal, listed)) else listed
