"""What is known without looking at rows: combinations of values that no row has."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, final

import numpy as np
from numpy.typing import NDArray

from noisegate.algebra.expression import Expression, fields_of
from noisegate.algebra.relation import Table, expressions_of
from noisegate.errors import SpecError
from noisegate.frozen import dataclass, replace
from noisegate.privacy.domain import TableDomain
from noisegate.releases.cells.axes import require_names
from noisegate.releases.cells.grid import Grid
from noisegate.releases.fit.residuals import Axes, Sizes
from noisegate.sql.reading.reader import read
from noisegate.sql.spelling import quoted
from noisegate.synthetic.basis import Basis
from noisegate.synthetic.columns import Cells, Layout
from noisegate.synthetic.model.bars import Masks, box
from noisegate.synthetic.model.drawing import numbers
from noisegate.synthetic.model.junction import cells_with
from noisegate.synthetic.model.model import CELLS_MAX, Evidence, Model, Potential
from noisegate.synthetic.questions import CountingGrid
from noisegate.transforms.query import Query


@final
@dataclass(frozen=True, slots=True, eq=False)
class Impossible:
    """Cells of the table over ``axes`` that no row is in: those ``inside``."""

    axes: Axes
    inside: NDArray[np.bool_]

    def held_by(self, rows: Cells, sizes: Sizes) -> NDArray[np.bool_]:
        """Which rows are in such a cell."""
        found: NDArray[np.bool_] = self.inside[numbers(rows.T, self.axes, sizes)]
        return found

    def evidence(self, variance: float) -> Evidence:
        """The same as a number: no row is there."""
        return Evidence(
            self.axes, np.zeros(1), variance, np.where(self.inside, 0, -1).astype(np.int32)
        )


def hardened(model: Model, impossible: Sequence[Impossible], cells_max: int = CELLS_MAX) -> Model:
    """The model without impossible cells, as far as these fit into it; draws see to the rest."""
    potentials = model.potentials
    for each in impossible:
        if cells_with([p.axes for p in potentials], model.sizes, each.axes) <= cells_max:
            labels = np.where(each.inside, 0, -1).astype(np.int32)
            potentials = (*potentials, Potential(each.axes, np.array([-np.inf]), labels))
    return Model(model.sizes, model.total, potentials, model.left_out) if impossible else model


def masks_of(sizes: Sizes, cells: Mapping[int, Sequence[int]]) -> Masks:
    """Which cells of each column are meant."""
    masks = {axis: np.zeros(sizes[axis], bool) for axis in cells}
    for axis, chosen in cells.items():
        masks[axis][list(chosen)] = True
    return masks


def places(layout: Layout, where: Mapping[str, Any]) -> dict[int, tuple[int, ...]]:
    """The cells that conditions mean: ``{"age": (20, 39), "ward": ["north", "west"]}``."""
    if not isinstance(where, Mapping):
        raise SpecError(
            "The conditions are not a dict by column.", fix='For example: {"age": (20, 39)}.'
        )
    require_names(layout.axes, where)
    found = {}
    for name, asked in where.items():
        axis = layout.place(name)
        runs = layout.axes[axis].runs(asked)
        found[axis] = tuple(place for low, high in runs for place in range(low, high + 1))
    return dict(sorted(found.items()))


def counted_cells(
    sql: str, basis: Basis, tables: Mapping[str, TableDomain]
) -> tuple[Axes, NDArray[np.bool_]]:
    """The columns that a counting question speaks of, and which cells of them it counts, flat."""
    relation = read(sql, tables).blocks[0].relation
    axes, grid = _grid(expressions_of(relation), basis, tables)
    return axes, grid.mask(sql)


def condition_cells(condition: Expression, basis: Basis) -> tuple[Axes, NDArray[np.bool_]]:
    """The same of a condition alone."""
    axes, grid = _grid([condition], basis, {basis.domain.name: basis.domain})
    return axes, grid.where(condition)


def _grid(
    said: Iterable[Expression], basis: Basis, tables: Mapping[str, TableDomain]
) -> tuple[Axes, CountingGrid]:
    """The columns that expressions speak of, and their cells."""
    fields = {name for each in said for name in fields_of(each)}
    axes = tuple(a for a, axis in enumerate(basis.layout.axes) if axis.name in fields)
    if not axes:
        raise SpecError(
            "A question names a column that is not measured.", fix=_LISTED, about="column"
        )
    query = basis.query(axes)
    rows = replace(query.tally, relation=Table(basis.domain))  # a WHERE of the rows is no matter
    grid = Grid(
        sql=basis.sql,
        axes=tuple(basis.layout.axes[axis] for axis in axes),
        value="n",
        query=Query(rows),
        grain=basis.grain,
        whole=True,
        signed=False,
        caveats=(),
    )
    return axes, CountingGrid(grid, tables)


def impossible_of(
    asked: Sequence[Any] | None, basis: Basis, tables: Mapping[str, TableDomain]
) -> tuple[Impossible, ...]:
    """Combinations as people write them: ``[{"age": (0, 14), "married": True}]``, or in SQL."""
    if isinstance(asked, str | Mapping):
        raise SpecError("impossible is not a list.", fix=_LISTED, about="list")
    found, layout = [], basis.layout
    for each in asked or ():
        if isinstance(each, str):
            axes, inside = counted_cells(counting(each, layout.table), basis, tables)
        else:
            cells = places(layout, each)
            axes, inside = (
                tuple(cells),
                box(layout.sizes, tuple(cells), masks_of(layout.sizes, cells)),
            )
        if not axes:
            raise SpecError("Every row would be impossible.", fix=_LISTED, about="impossible")
        found.append(Impossible(axes, inside))
    try:
        hardened(Model(layout.sizes, 1.0, ()), found)
    except SpecError:
        raise SpecError("Every row would be impossible.", fix=_LISTED, about="impossible") from None
    return tuple(found)


def counting(condition: str, table: str) -> str:
    """The question how many rows a condition is true of."""
    return f"SELECT COUNT(*) FROM {quoted(table)} WHERE {condition}"  # noqa: S608 - read, never run


_LISTED: Final = 'Use impossible=[{"age": (0, 14), "married": True}], or ["age < 15 AND married"].'
