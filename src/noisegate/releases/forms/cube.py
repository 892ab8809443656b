"""A released cube: tables of some columns each that agree with each other, with price and promise.

Any sum over the columns of one table can be asked for, free. Each measured table is a tally of its
own, in one allowance.
"""

import json
from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, ClassVar, Literal, Required, final

import numpy as np
import pyarrow as pa

from noisegate.algebra.tally import Sums
from noisegate.curator.allowance import Allowance, Scope
from noisegate.curator.measurement import digest
from noisegate.desk.answer import Answer
from noisegate.desk.desk import Desk
from noisegate.desk.display.numbers import percent
from noisegate.desk.job import AdaptiveJob, Progress, Receipt
from noisegate.desk.noisy import HalfWidths
from noisegate.desk.order import Columns
from noisegate.desk.plan import Fact
from noisegate.desk.release import Charged, loading, read_held
from noisegate.desk.terms.price import Price
from noisegate.desk.terms.terms import Terms
from noisegate.errors import SpecError
from noisegate.exact import Number as Numeric
from noisegate.frozen import dataclass, replace
from noisegate.mechanisms.base import failure_of
from noisegate.privacy.domain import TableDomain
from noisegate.privacy.event import Event
from noisegate.privacy.guarantee import Guarantee, guarantee_of
from noisegate.privacy.loss import ApproxDP
from noisegate.releases.ask.asking import Ask, DoorAsk
from noisegate.releases.ask.order import ReleaseOrder, RowsTerms
from noisegate.releases.ask.transcript import Told
from noisegate.releases.cells.estimate import tail_factor
from noisegate.releases.cells.grid import Grid, grid_of, on_lists, sql_of
from noisegate.releases.fit.marginals import TablesPlan, plan_tables, require_sets
from noisegate.releases.fit.residuals import Axes
from noisegate.releases.forms.marginal_tables import FORMAT, Marginals, MarginalTable, build_tables
from noisegate.releases.forms.numbers import Number
from noisegate.sql.laws.sampling import Sampling, sampling_of
from noisegate.sql.reading.reader import read
from noisegate.transforms.query import Query


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class CubeRelease(Charged):
    """The ``tables``, which agree with each other, and what was paid and promised for them.

    ``counted`` is the query of the first table, as plain values: which rows are counted, and how.
    """

    kind: ClassVar[str] = "cube"
    form: ClassVar[str] = FORMAT
    tables: Marginals
    counted: Mapping[str, Any]

    @property
    def names(self) -> tuple[tuple[str, ...], ...]:
        """The columns of each table."""
        return self.tables.names

    @property
    def total(self) -> Number:
        """The sum of all cells, the same in every table."""
        return self.table().query()

    @property
    def disagreement(self) -> int:
        """By how much two tables differ most on a marginal that both have; 0 means: nowhere."""
        return self.tables.disagreement

    def table(self, *names: str) -> MarginalTable:
        """The table over some columns: a released one, or a marginal of the smallest such."""
        return replace(self.tables.table(*names), lower=bool(self.cut))

    def query(self, confidence: Numeric = 0.95, /, **where: Any) -> Number:  # noqa: ANN401
        """The sum over some keys of some columns, from the table over these columns."""
        return self.table(*where).query(confidence, **where)

    def plot(
        self, confidence: Numeric = 0.95, *, x: str | None = None, y: str | None = None
    ) -> Any:  # noqa: ANN401 - altair may be missing
        """Bars of one column, a heat map of two; by default of the first table that is so small.

        Where all are larger, bars of each column of the first.
        """
        from noisegate.releases.forms.picture import Drawable, picture  # noqa: PLC0415 - when asked for

        names = [name for name in (x, y) if name is not None]
        first = min(self.names, key=lambda each: len(each) not in (1, 2))
        table = self.table(*(names or first))
        title = f"{table.value} by {' × '.join(axis.name for axis in table.axes)}"
        drawn = Drawable(
            axes=table.axes,
            values=table.values,
            value=table.value,
            whole=True,
            widths=table.widths,
            frame=self.answer(0),
        )
        return picture(drawn, confidence, x=x, y=y, title=title)

    def to_dict(self, confidence: Numeric = 0.95) -> dict[str, Any]:
        """Plain JSON values: each table by itself, and what an answer says of price and promise."""
        said = self.answer(0).to_dict(confidence)
        for name in ("columns", "rows", "margins"):
            del said[name]
        tables = [self.table(*names).to_arrow(confidence).to_pydict() for names in self.names]
        plain = json.loads(json.dumps(tables, default=str))
        return {"tables": plain, "words": list(self.tables.words), "sql": self.sql} | said

    def answer(self, rows: int | None = None) -> Answer:
        """All tables below each other, by name; a column that a table does not have is empty."""
        shapes = [each.shape for each in self.tables.values]
        ends = np.cumsum([int(np.prod(shape)) for shape in shapes])
        count = int(ends[-1]) if rows is None else min(rows, int(ends[-1]))
        used = int(np.searchsorted(ends, count, side="right")) + 1
        parts = [self._rows(axes, labels=rows is not None) for axes in self.tables.sets[:used]]
        table = pa.concat_tables(parts).slice(0, count)

        def half_widths(confidence: Numeric) -> Sequence[HalfWidths]:
            widths = [self.table(*names).margins(confidence).ravel() for names in self.names[:used]]
            found = tuple(np.concatenate(widths)[:count].tolist())
            return (*[None] * (table.num_columns - 1), found)

        left = int(ends[-1]) - count
        words = (*([f"{left:,} more cells."] if left else []), *self.tables.words)
        return self.stating(table, half_widths, words, unsigned=(self.tables.value,))

    def _rows(self, places: Sequence[int], *, labels: bool) -> pa.Table:
        held = self.table(*(self.tables.axes[a].name for a in places))
        at = np.indices(held.values.shape).reshape(len(places), -1)
        cells = held.values.size
        names = [axis.name for axis in self.tables.axes]
        first = "table"
        while first in (*names, held.value):
            first += "_"
        columns: dict[str, Any] = {first: pa.repeat(_named([names[a] for a in places]), cells)}
        for number, axis in enumerate(self.tables.axes):
            keys = pa.array(axis.labels) if labels else axis.column()
            columns[axis.name] = (
                keys.take(pa.array(at[places.index(number)]))
                if number in places
                else pa.nulls(cells, keys.type)
            )
        return pa.table({**columns, held.value: pa.array(held.values.ravel())})

    # files

    def parquet(self, confidence: Numeric) -> pa.Table:  # noqa: ARG002 - the ± follows from it
        """All tables in one, cell by cell."""
        return self.tables.to_parquet()

    def record(self) -> dict[str, Any]:
        """Axes and sets, and what the ± follows from."""
        return self.tables.to_record() | {"counted": self.counted}

    @classmethod
    @loading
    def load(cls, file: str | Path) -> "CubeRelease":
        """The cube that `save` wrote to a Parquet file. Needs no gate."""
        held, record = read_held(file, cls)
        tables = Marginals.of(held, record)
        return cls(tables=tables, counted=record["counted"], **record["standing"])

    @property
    def headline(self) -> str:
        """Which tables there are."""
        tables = ", ".join(map(_named, self.names[:3]))
        more = f" and {len(self.names) - 3} more" if len(self.names) > 3 else ""
        return f"tables {tables}{more}"


def _named(columns: Sequence[str]) -> str:
    """A table by its columns."""
    return " × ".join(columns) or "total"


class CubeTerms(RowsTerms, total=False):
    """What is said of a cube; see `CubeOrder`."""

    columns: Required[Columns]
    sets: int | Sequence[Sequence[str]]
    shrink: bool


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class CubeOrder(ReleaseOrder[CubeRelease, "CubeExpected"]):
    """Tables over ``sets`` of columns: groups of them, or how many columns a table has.

    ``columns`` are as for any release: a bin width, edges, a unit of time, or None for the keys.
    """

    name: Literal["cube"] = "cube"
    columns: Columns
    table: str | None = None
    where: str | None = None
    sets: int | Sequence[Sequence[str]] = 2
    epsilon: Numeric | None = None
    rows_per_unit: int | None = None
    shrink: bool = True

    def __post_init__(self) -> None:
        if not isinstance(self.columns, Mapping) or not self.columns:
            raise SpecError("No column is named.", fix='Use columns={"age": 5, "ward": None}.')
        ReleaseOrder.__post_init__(self)

    def job(self, desk: Desk) -> "CubeJob":
        """The tables of an order; whatever is wrong with it is refused here, at no cost."""
        epsilon = desk.epsilon(self.epsilon)
        price, cells = desk.price(epsilon), _Cells(desk, self)

        def told(axes: Axes) -> Ask:
            grid = cells.grid(axes)
            return Told(price, shape=grid.shape, moved=grid.moved)

        plan, grain = (
            plan_tables(told, cells.sizes, cells.sets, shrink=self.shrink),
            cells.first.grain,
        )
        rms = {tuple(cells.names[a] for a in axes): plan.rms(axes) for axes in plan.sets}
        words = f"measured as {plan.design.words}, before mending, which lowers the error"
        return CubeJob(
            sql="; ".join(grid.sql for grid in cells.wanted),
            epsilon=epsilon,
            expected=CubeExpected(
                rms={names: each * float(grain) for names, each in rms.items()},
                gaussian=price.gaussian,
            ),
            notes=(words, *cells.caveats),
            price=price,
            question=_question(cells, self, price),
            cells=cells,
            plan=plan,
            shrink=self.shrink,
        )


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class CubeExpected:
    """The error of each table: ``rms`` is of each of its cells, by least squares."""

    rms: Mapping[tuple[str, ...], float]
    gaussian: bool

    def margins(self, confidence: Numeric) -> dict[str, float | None]:
        """The ± to expect of a usual cell of each table."""
        factor = tail_factor(float(failure_of(confidence)), gaussian=self.gaussian)
        return {" × ".join(names): rms * factor for names, rms in self.rms.items()}

    def facts(self, confidence: Numeric) -> list[Fact]:
        """In words, one fact a line."""
        sure = f"at {percent(confidence)} confidence for each cell"
        errors = self.margins(confidence).items()
        return [("error", f"{names}: about ± {at:.3g} {sure}") for names, at in errors]

    def to_dict(self, confidence: Numeric) -> dict[str, Any]:  # noqa: ARG002 - as others
        """Plain values, for JSON."""
        return {"tables": [{"columns": list(names), "rms": rms} for names, rms in self.rms.items()]}


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class CubeJob(AdaptiveJob[Marginals, CubeRelease, CubeExpected]):
    """Marginal tables: each measured table is a tally of its own, in one allowance."""

    kind: str = "cube"
    endings: tuple[str, ...] = CubeRelease.endings
    cells: "_Cells"
    plan: TablesPlan
    shrink: bool

    @property
    def tables(self) -> Sequence[TableDomain]:
        """Those of the cells."""
        return self.cells.first.query.tables

    def guarantee(self, loss: ApproxDP) -> Guarantee:
        """About the tables together."""
        return guarantee_of(loss, self.tables, "these tables about")

    def draw(self, allowed: Allowance, progress: Progress) -> bytes:
        """All tables, and what follows from them."""
        found = build_tables(
            lambda axes: self._door(allowed.whole, axes),
            self.plan,
            self.cells.axes,
            shrink=self.shrink,
            grain=float(self.cells.first.grain),
            done=progress,
        )
        return found.sampled(self.cells.sampling(self.price)).to_bytes()

    def read(self, stored: bytes) -> tuple[Marginals, Event]:
        """The tables; all of the price is used."""
        return Marginals.from_bytes(stored), self.event

    def result(self, content: Marginals, receipt: Receipt) -> CubeRelease:
        """The tables."""
        words = tuple(dict.fromkeys((*content.words, *self.cells.caveats)))
        return CubeRelease(
            sql=self.sql,
            tables=replace(content, words=words),
            counted=json.loads(json.dumps(self.cells.first.to_record())),
            cut=any(grid.cut for grid in self.cells.wanted),
            **receipt.standing,
        )

    def _door(self, scope: Scope, axes: Axes) -> Ask:
        return DoorAsk(scope, self.cells.query(axes), self.price, shape=self.cells.grid(axes).shape)


@final
class _Cells:
    """The grids of the tables, by their columns."""

    def __init__(self, desk: Desk, order: CubeOrder) -> None:
        self._desk, self._order, self._grids = desk, order, dict[Axes, Grid]()
        self.names = list(order.columns)
        self.axes = tuple(self.grid((place,)).axes[0] for place in range(len(self.names)))
        self.sizes = tuple(axis.size for axis in self.axes)
        self.sets = require_sets(self.sizes, self._asked())

    def grid(self, axes: Axes) -> Grid:
        """The grid of some columns."""
        if axes not in self._grids:
            order, tables = self._order, self._desk.curator.tables
            columns = {self.names[a]: order.columns[self.names[a]] for a in axes}
            sql, edges = sql_of(tables, order.table, columns, order.where)
            terms = Terms(rows_per_unit=order.rows_per_unit)
            found = grid_of(read(sql, tables), sql, terms, edges=edges)
            found = found.sampled(self._desk.rules.sample)
            if self._grids and found.grain != self.first.grain:
                raise SpecError(
                    "The tables would have different contribution bounds.",
                    fix="Give rows_per_unit.",
                )
            self._grids[axes] = found
        return self._grids[axes]

    def query(self, axes: Axes) -> Query:
        """The table over some columns, of rows that are in a cell of each of all columns."""
        tally, places = self._tally(axes), range(len(self.names))
        by = [grouping for place in places for grouping in self._tally((place,)).by]
        return Query(replace(tally, relation=on_lists(tally.relation, by)))

    def _tally(self, axes: Axes) -> Sums:
        tally = self.grid(axes).query.tally
        assert isinstance(tally, Sums)  # noqa: S101 - of a grid
        return tally

    @property
    def first(self) -> Grid:
        """One of them: all count in the same units."""
        return next(iter(self._grids.values()))

    @property
    def wanted(self) -> list[Grid]:
        """Those that were asked for."""
        return [self.grid(axes) for axes in self.sets]

    @property
    def caveats(self) -> tuple[str, ...]:
        """What its numbers leave out, such as rows beyond a cap; each once."""
        return tuple(dict.fromkeys(words for grid in self.wanted for words in grid.caveats))

    def sampling(self, price: Price) -> Sampling | None:
        """What a sample adds to the error."""
        grid = self.wanted[0]
        return None if price.sample is None else sampling_of(price.sample, grid.moved, grid.grain)

    def _asked(self) -> list[Axes]:
        asked, names = self._order.sets, self.names
        if type(asked) is int:
            if not 1 <= asked <= len(names):
                raise SpecError(
                    f"There are no tables of {asked} columns.",
                    fix=f"Use 1 to {len(names)}.",
                    about="sets",
                )
            return list(combinations(range(len(names)), asked))
        if not isinstance(asked, list | tuple) or not all(
            isinstance(each, list | tuple) for each in asked
        ):
            raise SpecError(
                "sets is neither a number nor a list of column lists.",
                fix='Use sets=2, or sets=[("age", "ward")].',
                about="sets",
            )
        unknown = {name for each in asked for name in each} - set(names)
        if unknown:
            raise SpecError(
                f"{min(unknown)!r} is not among the columns.",
                fix="Add it to columns.",
                about="column",
            )
        return [tuple(sorted({names.index(name) for name in each})) for each in asked]


def _question(cells: _Cells, order: CubeOrder, price: Price) -> str:
    """Canonical text: two releases with one text are one release, drawn once."""
    record = {
        "release": FORMAT,
        "queries": [digest(json.dumps(grid.to_record(), sort_keys=True)) for grid in cells.wanted],
        "tables": [[cells.names[a] for a in axes] for axes in cells.sets],
        "shrink": order.shrink,
        **price.to_record(),
    }
    return json.dumps(record, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
