"""What was released already, as evidence for a model: free, whoever paid for it.

A released table can be used where each of its groups is made of whole cells of the columns: the
same keys, or wider bins on the same edges. It must count the same rows.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from fractions import Fraction
from math import inf
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from noisegate.algebra.expression import Call, Expression, Field, Literal, fields_of
from noisegate.errors import SpecError, Unsupported
from noisegate.query.answer import Answer
from noisegate.query.question import Function
from noisegate.query.reading.reader import read
from noisegate.releases.axes import Axis
from noisegate.releases.cube import CubeRelease
from noisegate.releases.estimate import Floats
from noisegate.releases.grid import axes_of, counted
from noisegate.releases.residuals import box_variance
from noisegate.releases.table import TableRelease
from noisegate.releases.tails import tail_factor
from noisegate.releases.workload import all_ranges, cells
from noisegate.synthetic.basis import Basis
from noisegate.synthetic.columns import Coding
from noisegate.synthetic.model import Evidence

_SURE: Final = 0.95  # at which the ± of an answer becomes a variance
_BOXES: Final = 2000
_LEAST: Final = 1e-4  # variance of a number of rows: what is sharper is exact enough


def known_of(released: Sequence[Any], basis: Basis) -> list[Evidence]:
    """Releases as evidence, in the grains of the basis, or a refusal that says what is wrong."""
    if isinstance(released, TableRelease | CubeRelease | Answer | str):
        raise SpecError("evidence is no list.", fix="Use evidence=[release].")
    return [each for one in released for each in _known(one, basis)]


def _known(one: Any, basis: Basis) -> Iterator[Evidence]:  # noqa: ANN401 - a release
    if isinstance(one, TableRelease):
        _require_same([json.loads(one.question)["query"]], basis, practice=one.practice)
        yield _table(one, basis, _columns(one.sql, one.axes, basis))
    elif isinstance(one, CubeRelease):
        _require_same([one.counted], basis, practice=one.practice)
        for names, sql in zip(one.names, one.sql.split("; "), strict=True):
            table, known = one.table(*names), [axis.name for axis in one.tables.axes]
            places = [known.index(name) for name in names]
            sizes = tuple(axis.size for axis in table.axes)
            parts = {
                tuple(places.index(a) for a in part): held
                for part, held in one.tables.precision.items()
                if set(part) <= set(places)
            }
            ones = np.ones((1, len(sizes)), np.int64)
            every = tuple(range(len(sizes)))
            # tables of a cube agree, so what two of them say of a column is said once
            variance = float(box_variance(sizes, parts, every, ones)[0]) * len(one.names)
            columns = _columns(sql, table.axes, basis)
            yield _evidence(columns, table.axes, table.measured, variance, basis)
    elif isinstance(one, Answer):
        yield _answer(one, basis)
    else:
        raise SpecError(
            f"{type(one).__name__} is no evidence.",
            fix="Use answers of gate.sql, and releases of tables and cubes.",
        )


def _require_same(records: Sequence[Mapping[str, Any]], basis: Basis, *, practice: bool) -> None:
    own = _plain(counted(basis.query((0,)).to_record()))
    if practice or any(counted(record) != own for record in records):
        raise _other_rows()


def _other_rows() -> Unsupported:
    return Unsupported(
        "A release given as evidence does not count the rows that synthetic rows are made for.",
        fix="Use COUNT(*) of the same table, without WHERE, with the same cap on rows per unit.",
    )


def _plain(record: Any) -> Any:  # noqa: ANN401 - JSON
    return json.loads(json.dumps(record))


def _columns(sql: str, axes: Sequence[Axis], basis: Basis) -> list[str]:
    """The column that each group is made of; a name alone could be anything's."""
    (block,) = read(sql, {basis.domain.name: basis.domain}).blocks
    found = []
    for key, axis in zip(block.by, axes, strict=True):
        column = _column(key.expression, axis)
        if type(column) is not Field:
            raise _unfitting(axis)
        found.append(column.name)
    return found


def _column(expression: Expression, axis: Axis) -> Expression:
    """What is grouped: a column itself, or in BIN, DATE_TRUNC, or CASE for bins between edges."""
    if type(expression) is not Call:
        return expression
    if expression.function in ("bin", "date_trunc"):
        return expression.args[0 if expression.function == "bin" else 1]
    column = Field(next(iter(fields_of(expression)), ""))
    cases: list[Expression] = []
    for place, end in enumerate((axis.ends or ())[:-1]):
        cases += [Call("lt", (column, Literal(end))), Literal(place)]
    cases += [Call("not", (Call("is_null", (column,)),)), Literal(len(cases) // 2)]
    return column if expression == Call("case", tuple(cases)) else expression


def _table(one: TableRelease, basis: Basis, columns: Sequence[str]) -> Evidence:
    """A table by a recipe whose error is known.

    Its cells may err together, so their variance is taken to be what keeps that of every box, as
    far as a few thousand boxes show, below the number of its cells times as much.
    """
    estimate = one.making.estimate(one.shape)
    found = []
    for asked in (cells(one.shape), all_ranges(one.shape, most=_BOXES)):
        if estimate.variance is not None:
            sizes = np.prod(asked.highs - asked.lows + 1, axis=1)
            found.append(np.max(estimate.variance(asked.lows, asked.highs) / sizes))
    variance = float(max(found, default=np.inf))
    if not np.isfinite(variance):
        raise Unsupported(
            f"The error of a release by {one.method!r} depends on the rows, so it is no evidence.",
            fix='Release it with method="cells", "tree" or "marginals".',
        )
    values = np.asarray(estimate.cells, np.float64).reshape(one.shape) * float(one.making.grain)
    return _evidence(columns, one.axes, values, variance * float(one.making.grain) ** 2, basis)


def _answer(one: Answer, basis: Basis) -> Evidence:
    """An answer of one COUNT(*) by declared groups, shown as it was measured."""
    question = None if one.plan is None else one.plan.question
    if question is None or len(question.blocks) != 1 or question.picked is None:
        raise _no_count()
    records = [json.loads(text)["query"] for text in one.questions]
    _require_same(records, basis, practice=one.practice)
    (block,) = question.blocks
    if [a.function for a in block.aggregates] != [Function.COUNT] or len(block.sets) != 1:
        raise _no_count()
    if not block.by:
        ((value,),), (half,) = one.rows, one.half_widths(_SURE)[0] or (None,)
        return _evidence((), (), np.array(float(value)), _squared(half, one), basis)
    _, axes = axes_of(question)
    number = question.picked.index(block.aggregates[0].name)
    places = [question.picked.index(key.name) for key in block.by if key.name in question.picked]
    halves = one.half_widths(_SURE)[number]
    if len(places) < len(axes) or halves is None:
        raise _no_count()
    values = np.full([axis.size for axis in axes], np.nan)
    for row in one.rows:
        at = [_cell(axis, row[place]) for axis, place in zip(axes, places, strict=True)]
        values[tuple(at)] = row[number]
    most = max((half for half in halves if half is not None), default=None)
    columns = _columns(one.sql, axes, basis)
    return _evidence(columns, axes, values, _squared(most, one), basis)


def _squared(half: float | None, one: Answer) -> float:
    """The variance of noise with that ±."""
    if half is None:
        raise _no_count()
    noises = [mechanism for bought in one.plan.bought for mechanism in bought.mechanisms[0]]  # type: ignore[union-attr]
    gaussian = any("Gaussian" in type(each).__name__ for each in noises)
    return (half / tail_factor(1 - _SURE, gaussian=gaussian)) ** 2


def _no_count() -> Unsupported:
    return Unsupported(
        "An answer given as evidence is not one COUNT(*) by declared groups, shown as it is.",
        fix="Use SELECT key, …, COUNT(*) FROM table GROUP BY key, …",
    )


def _cell(axis: Axis, key: Any) -> int:  # noqa: ANN401 - a shown key
    shown = [float(each) if isinstance(each, Fraction) else each for each in axis.keys]
    return shown.index(key)


def _evidence(
    names: Sequence[str], axes: Sequence[Axis], values: Floats, variance: float, basis: Basis
) -> Evidence:
    """Numbers over groups of some columns, in rows, as sums over their cells, in grains."""
    layout, grain = basis.layout, float(basis.grain)
    own = sorted(range(len(axes)), key=lambda place: layout.place(names[place]))
    columns = tuple(layout.place(names[place]) for place in own)
    if len(set(columns)) < len(columns):
        raise _unfitting(axes[own[0]])
    maps = [
        _groups(axes[place], layout.codings[at]) for place, at in zip(own, columns, strict=True)
    ]
    shape = [axes[place].size for place in own]
    sums = np.transpose(values, own).ravel() / grain
    labels: NDArray[np.int64] = np.zeros((), np.int64)
    for groups, size in zip(maps, shape, strict=True):
        held = (labels[..., None] >= 0) & (groups >= 0)
        labels = np.where(held, labels[..., None] * size + groups, -1)
    labels = labels.ravel()
    missing = np.isnan(sums)
    labels[(labels >= 0) & missing[labels]] = -1
    used = np.unique(labels[labels >= 0])
    numbered = np.full(len(sums) + 1, -1, np.int32)
    numbered[used] = np.arange(len(used))
    final = numbered[labels]
    plain = len(used) == len(final) and np.array_equal(final, np.arange(len(final)))
    spread = max(variance, _LEAST) / grain**2
    return Evidence(columns, sums[used], spread, None if plain else final)


def _groups(axis: Axis, coding: Coding) -> NDArray[np.int64]:
    """For each cell of a column the group of a released axis that holds it; -1: none does."""
    own, found = coding.axis, []
    for cell, key in enumerate(own.keys):
        if key is None:
            found.append(axis.keys.index(None) if None in axis.keys else -1)
        else:
            found.append(_group(axis, coding, cell))
    return np.array(found, np.int64)


def _group(axis: Axis, coding: Coding, cell: int) -> int:
    own, key = coding.axis, coding.axis.keys[cell]
    if axis.ends is None and own.ends is None and key in axis.keys:
        return axis.keys.index(key)
    low, high = _extent(own, cell, coding)
    dates = all(isinstance(each, date) for each in axis.present)
    if low is None or (axis.ends is None and not (dates and isinstance(key, date))):
        raise _unfitting(axis)
    for place in range(len(axis.present)):
        first, last = _extent(axis, place, coding)
        if first is not None and first <= low and high <= last:
            return place
    raise _unfitting(axis)


def _extent(axis: Axis, place: int, coding: Coding) -> tuple[Any, Any]:
    """The least value of a group and the first beyond it; the outer ones hold all beyond."""
    key, keys = axis.keys[place], axis.present
    if isinstance(key, str | bool):
        return None, None
    low = coding.number(key)
    if axis.ends is not None:
        high: Any = coding.number(axis.ends[place])
    elif isinstance(key, date):
        high = coding.number(keys[place + 1]) if place + 1 < len(keys) else inf
    else:
        high = low + 1 if axis.whole or isinstance(key, int) else low
    if axis.ends is not None and coding.bounds is not None:
        low = min(low, coding.bounds[0]) if place == 0 else low
        high = max(high, coding.bounds[1] + coding.axis.whole) if place == len(keys) - 1 else high
    return low, high


def _unfitting(axis: Axis) -> Unsupported:
    return Unsupported(
        f"The groups of {axis.name!r} in a release given as evidence are not made of whole cells.",
        fix=f'Use finer bins on the same edges for {axis.name!r}: columns={{"{axis.name}": …}}.',
    )
