"""What was released already, as evidence for a model: free, whoever paid for it.

A released table can be used where each of its groups is made of whole cells of the columns: the
same keys, or wider bins on the same edges. It must count the same rows, or those of whole cells.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from fractions import Fraction
from math import inf, prod
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from noisegate.algebra.expression import Call, Expression, Field, Literal, fields_of
from noisegate.algebra.relation import Filter, Relation
from noisegate.desk.answer import Answer
from noisegate.errors import NoisegateError, SpecError, Unsupported
from noisegate.frozen import replace
from noisegate.planning.composition import sequential
from noisegate.privacy.loss import ApproxDP
from noisegate.releases.cells.axes import Axis
from noisegate.releases.cells.estimate import tail_factor
from noisegate.releases.cells.grid import axes_of, counted
from noisegate.releases.cells.workload import Floats, Ints, all_ranges, cells
from noisegate.releases.fit.residuals import Axes, Sizes, box_variance
from noisegate.releases.forms.cube import CubeRelease
from noisegate.releases.forms.table import TableRelease
from noisegate.sql.question import Block, Function
from noisegate.sql.reading.reader import read
from noisegate.synthetic.basis import Basis
from noisegate.synthetic.columns import Coding
from noisegate.synthetic.model.constraints import condition_cells
from noisegate.synthetic.model.model import CELLS_MAX, Evidence
from noisegate.synthetic.questions import OTHER
from noisegate.synthetic.release import SyntheticRelease
from noisegate.transforms.query import Query

_SURE: Final = 0.95  # at which the ± of an answer becomes a variance
_BOXES: Final = 2000
_SUMS: Final = 3  # place of the sums in what `counted` says
_LEAST: Final = 1e-4  # variance of a number of rows: what is sharper is exact enough


Inside: TypeAlias = tuple[Axes, NDArray[np.bool_]]  # which cells of which columns were counted


def known_of(released: Sequence[Any], basis: Basis) -> list[Evidence]:
    """Releases as evidence, in the grains of the basis, or a refusal that says what is wrong.

    Of several that show the same draws, the one with most numbers is taken: their noise is one.
    """
    if isinstance(released, TableRelease | CubeRelease | SyntheticRelease | Answer | str):
        raise SpecError("evidence is not a list.", fix="Use evidence=[release].", about="list")
    every = [(list(_known(one, basis)), _drawn(one)) for one in released]
    sizes = [sum(len(part.values) for part in parts) for parts, _ in every]
    taken, seen = set[int](), set[str]()
    for place in sorted(range(len(every)), key=lambda place: -sizes[place]):
        if not seen & every[place][1]:
            taken.add(place)
            seen |= every[place][1]
    return [part for place in sorted(taken) for part in every[place][0]]


def lost(released: Sequence[Any]) -> ApproxDP:
    """What all evidence may have lost: whatever is made of it tells what it told.

    Claim: to add this to the loss of new draws covers what is made of both. Adjacency: add/remove.
    Why: it is a function of all of them, and (ε, δ) add up in sequence [DR14, Thm 3.16]. A release
        that is given twice is one, if it names its draws. Rounding: none.
    """
    losses = [one.guarantee.loss for one in released]
    names = [frozenset(_drawn(one)) or place for place, one in enumerate(released)]
    return sequential(loss for _, loss in dict.fromkeys(zip(names, losses, strict=True)))


def _drawn(one: Any) -> set[str]:  # noqa: ANN401 - a release
    """The draws that a release shows, by their requests."""
    return set(one.request_ids if isinstance(one, Answer) else (one.request_id,))


def _known(one: Any, basis: Basis) -> Iterator[Evidence]:  # noqa: ANN401 - a release
    if isinstance(one, TableRelease):
        block = _block(one.sql, basis)
        inside = _inside(block.relation, [json.loads(one.question)["query"]], basis, one.practice)
        yield _table(one, basis, _columns(block, one.axes), inside)
    elif isinstance(one, CubeRelease):
        for names, sql in zip(one.names, one.sql.split("; "), strict=True):
            block = _block(sql, basis)
            inside = _inside(block.relation, [one.counted], basis, one.practice)
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
            columns = _columns(block, table.axes)
            yield _evidence(columns, table.axes, table.measured, variance, basis, inside)
    elif isinstance(one, SyntheticRelease):
        yield from _synthetic(one, basis)
    elif isinstance(one, Answer):
        yield _answer(one, basis)
    else:
        raise SpecError(
            f"A {type(one).__name__} cannot be used as evidence.",
            fix="Use answers of gate.sql, releases of tables and cubes, and synthetic rows.",
            about="evidence",
        )


def _block(sql: str, basis: Basis) -> Block:
    try:
        (block,) = read(sql, {basis.domain.name: basis.domain}).blocks
    except NoisegateError:
        raise _other_rows() from None  # of other tables
    return block


def _inside(
    relation: Relation,
    records: Sequence[Mapping[str, Any]],
    basis: Basis,
    practice: bool,  # noqa: FBT001 - as releases say it
    *,
    where: Expression | None = None,
    count: bool = False,
) -> Inside | None:
    """Which cells hold the rows that were counted; None: all. Other rows are refused.

    A WHERE is read as cells where every row is a unit; else the rows it leaves would weigh other.
    With ``count``, other sums than the count may be there.
    """
    asked = replace(basis.query((0,)).tally, relation=relation)
    own = json.loads(json.dumps(counted(Query(asked).to_record())))
    for record in records:
        held = counted(record)
        if count:
            held[_SUMS] = own[_SUMS]
        if practice or held != own:
            raise _other_rows()
    if relation == basis.relation and where is None:
        return None
    conditions = [] if where is None else [where]
    while type(relation) is Filter and relation != basis.relation:
        conditions.append(relation.condition)
        relation = relation.of
    if relation != basis.relation or basis.rows_per_unit is not None:
        raise _other_rows()
    whole = conditions[0] if len(conditions) == 1 else Call("and", tuple(conditions))
    return condition_cells(whole, basis)


def _synthetic(one: SyntheticRelease, basis: Basis) -> Iterator[Evidence]:
    """The noisy tables that were measured for synthetic rows, over columns that are cut alike."""
    fitted, own, said = one.fitted, basis.digests(), json.loads(one.question)
    names, theirs = [axis.name for axis in fitted.layout.axes], dict(said["columns"])
    alike = [own.get(name) == theirs[name] for name in names]
    if one.practice or fitted.grain != basis.grain or not any(alike):
        raise _other_rows()
    for each in fitted.evidence:
        if all(alike[axis] for axis in each.axes) and each.to_record() not in said["evidence"]:
            axes = tuple(basis.layout.place(names[axis]) for axis in each.axes)
            yield replace(each, axes=axes)


def _other_rows() -> Unsupported:
    return Unsupported(
        "A release given as evidence does not count the rows that the synthetic table describes.",
        fix="Use COUNT(*) of the same table with the same contribution bound; use WHERE only "
        "where every row is a unit. Where ρ adds up and a column names the unit, answers weigh "
        "rows in another way: use a release, such as a histogram.",
        about="evidence-rows",
    )


def _columns(block: Block, axes: Sequence[Axis]) -> list[str]:
    """The column that each group is made of; a name alone could be anything's."""
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


def _table(
    one: TableRelease, basis: Basis, columns: Sequence[str], inside: Inside | None
) -> Evidence:
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
            f"The error of a release by {one.method!r} depends on the rows, so it cannot be used "
            "as evidence.",
            fix='Release it with method="cells", "tree" or "marginals".',
            about="evidence-error",
        )
    values = np.asarray(estimate.cells, np.float64).reshape(one.shape) * float(one.making.grain)
    variance *= float(one.making.grain) ** 2
    return _evidence(columns, one.axes, values, variance, basis, inside)


def _answer(one: Answer, basis: Basis) -> Evidence:
    """An answer with one COUNT(*) by declared groups, shown as it was measured."""
    question = None if one.plan is None else one.plan.expected.question
    if question is None or len(question.blocks) != 1 or question.picked is None:
        raise _no_count()
    (block,) = question.blocks
    counts = [each for each in block.aggregates if each.function is Function.COUNT]
    if len(counts) != 1 or len(block.sets) != 1 or counts[0].name not in question.picked:
        raise _no_count()
    records = [json.loads(text)["query"] for text in one.questions]
    inside = _inside(
        block.relation, records, basis, one.practice, where=counts[0].where, count=True
    )
    number = question.picked.index(counts[0].name)
    halves = one.half_widths(_SURE)[number]
    if halves is None:
        raise _no_count()
    alone = replace(question, blocks=(replace(block, aggregates=tuple(counts)),))
    axes = axes_of(alone)[1] if block.by else ()
    places = [question.picked.index(key.name) for key in block.by if key.name in question.picked]
    if len(places) < len(axes):
        raise _no_count()
    values = np.full([axis.size for axis in axes], np.nan)
    for row in one.rows:
        at = [_cell(axis, row[place]) for axis, place in zip(axes, places, strict=True)]
        values[tuple(at)] = row[number]
    most = max((half for half in halves if half is not None), default=None)
    columns = _columns(block, axes)
    return _evidence(columns, axes, values, _squared(most, one), basis, inside)


def _squared(half: float | None, one: Answer) -> float:
    """The variance of noise with that ±."""
    if half is None:
        raise _no_count()
    assert one.plan is not None  # noqa: S101 - it has a question
    bought = one.plan.expected.bought
    noises = [mechanism for each in bought for mechanism in each.mechanisms[0]]
    gaussian = any("Gaussian" in type(each).__name__ for each in noises)
    return (half / tail_factor(1 - _SURE, gaussian=gaussian)) ** 2


def _no_count() -> Unsupported:
    return Unsupported(
        "An answer given as evidence is not a single, unchanged COUNT(*) by declared groups.",
        fix="Use SELECT key, …, COUNT(*) FROM table GROUP BY key, …",
        about="evidence-count",
    )


def _cell(axis: Axis, key: Any) -> int:  # noqa: ANN401 - a shown key
    shown = [float(each) if isinstance(each, Fraction) else each for each in axis.keys]
    return shown.index(key)


def _evidence(
    names: Sequence[str],
    axes: Sequence[Axis],
    values: Floats,
    variance: float,
    basis: Basis,
    inside: Inside | None,
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
    labels: Ints = np.zeros((), np.int64)
    for groups, size in zip(maps, shape, strict=True):
        held = (labels[..., None] >= 0) & (groups >= 0)
        labels = np.where(held, labels[..., None] * size + groups, -1)
    if inside is not None:
        columns, labels = _cut(columns, labels, inside, layout.sizes)
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


def _cut(columns: Axes, labels: Ints, inside: Inside, sizes: Sizes) -> tuple[Axes, Ints]:
    """Labels of the cells that a WHERE leaves, over its columns too; -1 for the others."""
    every = tuple(sorted({*columns, *inside[0]}))
    if prod(sizes[axis] for axis in every) > CELLS_MAX:
        raise Unsupported(
            f"The evidence covers more than {CELLS_MAX:,} cells.", fix="Use wider bins."
        )
    left, right = (
        table.reshape([sizes[axis] if axis in held else 1 for axis in every])
        for held, table in ((columns, labels), inside)
    )
    return every, np.where(right, left, -1)


def _groups(axis: Axis, coding: Coding) -> Ints:
    """For each cell of a column the group of a released axis that holds it; -1: none does."""
    own, found = coding.axis, []
    for cell, key in enumerate(own.keys):
        if key in (None, OTHER):
            found.append(axis.keys.index(key) if key in axis.keys else -1)
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
        about="evidence-cells",
    )
