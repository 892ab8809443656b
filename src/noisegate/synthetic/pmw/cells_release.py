"""A model of the cells of a grid as a released table."""

from collections.abc import Mapping
from typing import Any

from noisegate.desk.price import Price
from noisegate.releases.ask.provenance import Making
from noisegate.releases.cells.estimate import Floats, whole
from noisegate.releases.cells.grid import Grid
from noisegate.releases.forms.table import TableRelease


def cells_table(
    grid: Grid,
    cells: Floats,
    *,
    method: str,
    price: Price,
    words: tuple[str, ...],
    standing: Mapping[str, Any],
) -> TableRelease:
    """The numbers, in grains, as a table; ``standing`` is what every release states."""
    values = cells.reshape(grid.shape) * float(grid.grain)
    making = Making(
        method=method,
        options={},
        workload="cells",
        price=price,
        moved=grid.moved,
        grain=grid.grain,
        whole=grid.whole,
        signed=grid.signed,
    )
    return TableRelease(
        sql=grid.sql,
        axes=grid.axes,
        values=whole(values) if grid.whole else values,
        value=grid.value,
        making=making,
        words=(*words, *grid.caveats),
        **standing,
    )
