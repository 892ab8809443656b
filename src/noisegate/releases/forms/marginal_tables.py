"""Marginal tables that were released together: of many columns, where all cells would be too many.

They agree with each other: any marginal is the same number in every table that holds it. A table is
asked, saved and read again at no cost.
"""

import json
from collections.abc import Callable, Mapping
from math import prod
from types import MappingProxyType
from typing import Any, Final, final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from noisegate.errors import LedgerError, SpecError
from noisegate.exact import Number as Numeric
from noisegate.exact import fraction
from noisegate.frozen import dataclass, replace
from noisegate.mechanisms.base import failure_of
from noisegate.releases.cells.axes import Axis, chosen_cells, require_names
from noisegate.releases.cells.estimate import tail_factor
from noisegate.releases.cells.workload import Floats, Ints, Workload
from noisegate.releases.fit.marginals import (
    AskOf,
    TablesPlan,
    disagreement,
    measure,
    mended,
    shrunk,
    whole_tables,
)
from noisegate.releases.fit.residuals import Axes, box_variance
from noisegate.releases.forms.numbers import Number
from noisegate.releases.recipes.marginals import CELLS_MAX, fitted, marginal, whole_table
from noisegate.sql.laws.sampling import Sampling, sample_words

FORMAT: Final = "noisegate-marginals/1"
_KEY: Final = b"noisegate"


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MarginalTable:
    """One of the tables, or a marginal of one."""

    axes: tuple[Axis, ...]
    values: Ints
    measured: Floats  # by least squares alone: unbiased, with the variance below
    value: str
    gaussian: bool
    sampling: Sampling | None
    _places: Axes
    _precision: Mapping[Axes, float]
    lower: bool = False  # a contribution bound may leave out some of what units add

    @property
    def total(self) -> Number:
        """The sum of all cells."""
        return self.query()

    def query(self, confidence: Numeric = 0.95, /, **where: Any) -> Number:  # noqa: ANN401
        """The sum over some cells: ``table.query(age=(20, 39), ward=["north", "west"])``."""
        chosen = chosen_cells(self.axes, where)
        cells = np.ix_(*chosen)
        counts = np.array([[each.size for each in chosen]], np.int64)
        shown = int(self.values[cells].sum())
        half = self._half(float(self.measured[cells].sum()), shown, counts, confidence)
        return Number(
            value=shown,
            margin=int(half[0]),
            confidence=fraction(confidence),
            lower=self.lower,
        )

    def margins(self, confidence: Numeric = 0.95) -> Ints:
        """The ± of every cell, each by itself."""
        ones = np.ones((1, len(self.axes)), np.int64)
        return self._half(self.measured, self.values, ones, confidence)

    def _half(
        self, raw: float | Floats, shown: int | NDArray[Any], counts: Ints, confidence: Numeric
    ) -> Ints:
        """Half-widths around what is shown.

        Claim: the exact sum lies within, with the confidence, each by itself. Why: least squares
            give it plus noise of a known variance, taken to be between normal and Laplace; the
            distance of what is shown from that is public and is added. Of a sample, half of the
            failure is for that, and half for what sampling adds. Rounding: up.
        """
        failure = float(failure_of(confidence)) / (1 if self.sampling is None else 2)
        factor = tail_factor(failure, gaussian=self.gaussian)
        sizes = tuple(axis.size for axis in self.axes)
        numbered = {p: k for p, k in self._precision.items() if set(p) <= set(self._places)}
        local = {tuple(self._places.index(a) for a in p): k for p, k in numbered.items()}
        variance = box_variance(sizes, local, tuple(range(len(sizes))), counts)
        variance = variance if len(counts) > 1 else variance[0]
        spread = factor * np.sqrt(variance + 1 / 6)
        low, high = np.maximum(raw - spread, 0), np.maximum(raw + spread, 0)
        half = np.maximum(high - shown, shown - low)
        if self.sampling is not None:
            half = self.sampling.widened(np.asarray(shown, np.float64), half, failure)
        return np.ceil(np.atleast_1d(half) - 1e-9).astype(np.int64)

    def widths(self, asked: Workload, confidence: Numeric) -> list[int]:
        """Half-widths around the released sums of some boxes."""
        counts = asked.highs - asked.lows + 1
        shown = asked.answers(self.values.astype(np.float64))
        half = self._half(asked.answers(self.measured), shown, counts, confidence)
        found: list[int] = half.tolist()
        return found

    def to_numpy(self) -> Ints:
        """The numbers, in the shape of the axes; a copy."""
        return self.values.copy()

    def to_arrow(self, confidence: Numeric | None = None) -> pa.Table:
        """A row for each cell: its keys and its number; with a confidence, its margin too."""
        places = np.indices(self.values.shape).reshape(len(self.axes), -1)
        pairs = zip(self.axes, places, strict=True)
        columns = {axis.name: axis.column().take(pa.array(at)) for axis, at in pairs}
        columns[self.value] = pa.array(self.values.ravel())
        if confidence is not None:
            columns[f"{self.value}_margin"] = pa.array(self.margins(confidence).ravel())
        return pa.table(columns)


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Marginals:
    """Tables over sets of ``axes`` that were measured together."""

    axes: tuple[Axis, ...]
    sets: tuple[Axes, ...]
    values: tuple[Ints, ...]
    measured: tuple[Floats, ...]
    precision: Mapping[Axes, float]
    gaussian: bool
    value: str = "count"
    words: tuple[str, ...] = ()
    sampling: Sampling | None = None

    def __post_init__(self) -> None:
        for name in ("values", "measured"):
            held = tuple(np.array(each) for each in getattr(self, name))
            for each in held:
                each.flags.writeable = False
            object.__setattr__(self, name, held)
        object.__setattr__(self, "precision", MappingProxyType(dict(self.precision)))

    def sampled(self, sampling: Sampling | None) -> "Marginals":
        """The same of a secret sample, if there is one."""
        if sampling is None:
            return self
        words = sample_words(sampling.probability, in_bars=True)
        return replace(self, sampling=sampling, words=(*self.words, words))

    @property
    def names(self) -> tuple[tuple[str, ...], ...]:
        """The columns of each table."""
        return tuple(tuple(self.axes[a].name for a in axes) for axes in self.sets)

    @property
    def total(self) -> Number:
        """The sum of all cells, the same in every table."""
        return self.table().query()

    @property
    def disagreement(self) -> int:
        """By how much two tables differ most on a marginal that both have; 0 means: nowhere."""
        return disagreement(dict(zip(self.sets, self.values, strict=True)))

    def table(self, *names: str) -> MarginalTable:
        """The table over some columns: a released one, or a marginal of the smallest such."""
        require_names(self.axes, names)
        known = [axis.name for axis in self.axes]
        wanted = tuple(sorted(known.index(name) for name in set(names)))
        holding = [i for i, axes in enumerate(self.sets) if set(wanted) <= set(axes)]
        if not holding:
            raise SpecError(
                f"No released table holds {', '.join(map(repr, names))} together.",
                fix=f"Use {'; '.join(', '.join(each) for each in self.names[:5])}.",
                about="table",
            )
        place = min(holding, key=lambda i: self.values[i].size)
        gone = tuple(i for i, a in enumerate(self.sets[place]) if a not in wanted)
        return MarginalTable(
            axes=tuple(self.axes[a] for a in wanted),
            values=self.values[place].sum(axis=gone),
            measured=self.measured[place].sum(axis=gone),
            value=self.value,
            gaussian=self.gaussian,
            sampling=self.sampling,
            _places=wanted,
            _precision=self.precision,
        )

    def query(self, confidence: Numeric = 0.95, /, **where: Any) -> Number:  # noqa: ANN401
        """The sum over some keys of some columns, from the table over these columns."""
        return self.table(*where).query(confidence, **where)

    # as bytes, for the ledger and for files

    def to_parquet(self) -> pa.Table:
        """All tables in one, cell by cell."""
        sizes = [each.size for each in self.values]
        columns = {
            "table": np.repeat(np.arange(len(sizes), dtype=np.int32), sizes),
            "cell": np.concatenate([np.arange(size, dtype=np.int64) for size in sizes]),
            "value": np.concatenate([each.ravel() for each in self.values]),
            "measured": np.concatenate([each.ravel() for each in self.measured]),
        }
        return pa.table({name: pa.array(column) for name, column in columns.items()})

    def to_record(self) -> dict[str, Any]:
        """Everything else, as plain values."""
        return {
            "axes": [axis.to_record() for axis in self.axes],
            "sets": [list(axes) for axes in self.sets],
            "precision": [[list(part), known] for part, known in self.precision.items()],
            "gaussian": self.gaussian,
            "value": self.value,
            "words": list(self.words),
            "sampling": None if self.sampling is None else self.sampling.to_record(),
        }

    @classmethod
    def of(cls, held: pa.Table, record: Mapping[str, Any]) -> "Marginals":
        """What `to_parquet` and `to_record` said."""
        axes = tuple(map(Axis.from_record, record["axes"]))
        sets = tuple(tuple(each) for each in record["sets"])
        shapes = [tuple(axes[a].size for a in each) for each in sets]
        ends = np.cumsum([prod(shape) for shape in shapes])[:-1]
        values, measured = (
            [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]
            for parts in (np.split(held[name].to_numpy(), ends) for name in ("value", "measured"))
        )
        return cls(
            axes=axes,
            sets=sets,
            values=tuple(values),
            measured=tuple(measured),
            precision={tuple(part): known for part, known in record["precision"]},
            gaussian=record["gaussian"],
            value=record["value"],
            words=tuple(record["words"]),
            sampling=Sampling.from_record(record.get("sampling")),
        )

    def to_bytes(self) -> bytes:
        """A Parquet file with the record in its metadata."""
        import pyarrow.parquet as pq  # noqa: PLC0415

        head = json.dumps({"format": FORMAT, **self.to_record()}, ensure_ascii=False).encode()
        sink = pa.BufferOutputStream()
        table = self.to_parquet().replace_schema_metadata({_KEY: head})
        pq.write_table(table, sink, compression="zstd")
        stored: bytes = sink.getvalue().to_pybytes()
        return stored

    @classmethod
    def from_bytes(cls, stored: bytes) -> "Marginals":
        """What `to_bytes` made."""
        import pyarrow.parquet as pq  # noqa: PLC0415

        try:
            held = pq.read_table(pa.BufferReader(stored))
            record = json.loads((held.schema.metadata or {})[_KEY])
            return cls.of(held, record)
        except (pa.ArrowInvalid, KeyError, ValueError):
            raise LedgerError(
                "A stored release cannot be read.",
                fix="Run: noisegate ledger verify.",
                about="stored",
            ) from None


def build_tables(
    ask_of: AskOf,
    plan: TablesPlan,
    axes: tuple[Axis, ...],
    *,
    shrink: bool = True,
    grain: float = 1.0,
    done: Callable[[float, str], None] | None = None,
) -> Marginals:
    """Measure what the plan says, and make tables that agree, whole and without negative numbers.

    Where tables of three or more columns overlap so that rounding cannot keep them in agreement,
    they are made from one table, unless that would be too large.

    With ``shrink`` the tables have far less error where noise is larger than what columns say about
    each other, and a bias; margins hold with and without.
    """
    parts = measure(ask_of, plan, grain=grain, done=done)
    mild = shrunk(parts, plan.sets) if shrink else parts
    found = whole_tables(plan.sizes, mended(mild, plan.sets))
    if disagreement(found) > 0 and prod(plan.sizes) <= CELLS_MAX:
        table = whole_table(fitted(mild, plan.sets, [1.0] * len(plan.sets)), plan.sets)
        found = {axes: marginal(table, axes) for axes in plan.sets}
    words = [f"measured as {plan.design.words}, {len(plan.design.questions)} in all"]
    if shrink:
        words.append("what columns say about each other was shrunk towards independence")
    if done is not None:
        done(1.0, "rebuilt")
    return Marginals(
        axes=axes,
        sets=plan.sets,
        values=tuple(found[each] for each in plan.sets),
        measured=tuple(parts.table(each) for each in plan.sets),
        precision=parts.precision,
        gaussian=ask_of(plan.sets[0]).gaussian,
        words=tuple(words),
    )
