"""What is measured for synthetic rows: columns of one table as groups, and one count by them."""

import json
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from fractions import Fraction
from typing import Any, Final, final

from noisegate.algebra.expression import fields_of
from noisegate.algebra.relation import Relation
from noisegate.algebra.tally import Grouping, Sums, Term
from noisegate.curator.measurement import digest
from noisegate.desk.terms.terms import Terms
from noisegate.errors import SpecError, Unsupported
from noisegate.exact import fraction, positive
from noisegate.frozen import dataclass, replace
from noisegate.privacy.domain import Column, Kind, TableDomain
from noisegate.releases.cells.axes import Axis, date_of
from noisegate.releases.cells.grid import Grid, axes_of, sql_of
from noisegate.releases.fit.residuals import Axes
from noisegate.sql.bounds.limits import caps_of
from noisegate.sql.drafts.draft import draft
from noisegate.sql.drafts.groups import Caps
from noisegate.sql.laws.sampling import Sampling, sample_words, sampling_of
from noisegate.sql.reading.reader import read
from noisegate.synthetic.columns import (
    UNITS,
    Bounds,
    Coding,
    Determined,
    Layout,
    Numbered,
    usual_edges,
    usual_unit,
    usual_width,
)
from noisegate.transforms.checks import CAP_MAX
from noisegate.transforms.query import Query

_COLUMN_CELLS_MAX: Final = 1 << 16


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Basis:
    """Columns as groups, and the count of rows that all tables share."""

    sql: str
    domain: TableDomain
    layout: Layout
    relation: Relation
    by: tuple[Grouping, ...]
    term: Term
    rows_per_unit: int | None
    caveats: tuple[str, ...]
    sample: Fraction | None = None

    @property
    def grain(self) -> Fraction:
        """What a 1 of the measured numbers stands for, in rows."""
        return self.term.grain / (self.sample or 1)

    def sampled(self, probability: Fraction | None) -> "Basis":
        """The same of a secret sample, if there is one."""
        if probability is None:
            return self
        words = sample_words(probability, in_bars=True)
        return replace(self, sample=probability, caveats=(*self.caveats, words))

    @property
    def sampling(self) -> Sampling | None:
        """What sampling adds to the error of counts."""
        moved = int(self.query((0,)).moved)
        return None if self.sample is None else sampling_of(self.sample, moved, self.grain)

    def digests(self) -> dict[str, str]:
        """A name for what is counted of each column: its rows, its cells, its caps."""
        return {
            axis.name: digest(json.dumps(self.query((place,)).to_record(), sort_keys=True))
            for place, axis in enumerate(self.layout.axes)
        }

    def query(self, axes: Axes) -> Query:
        """The table over some columns, as a question."""
        return Query(
            Sums(
                relation=self.relation,
                by=tuple(self.by[axis] for axis in axes),
                terms=(self.term,),
                rows_per_unit=self.rows_per_unit,
            )
        )


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which columns, as people say it, and the declared facts about them."""

    domain: TableDomain
    columns: Mapping[str, Any]
    determined: Mapping[str, tuple[str, Mapping[Any, Any]]]

    @property
    def unbounded(self) -> tuple[str, ...]:
        """Numeric columns whose values could be any."""
        facts, unit = self.domain.columns, self.domain.unit
        return tuple(
            name
            for name, how in self.columns.items()
            if facts[name].kind.is_numeric
            and (unit is None or name != unit.column)
            and facts[name].keys is None
            and facts[name].between is None
            and not isinstance(how, list | tuple)
        )


def wanted_of(
    tables: Mapping[str, TableDomain],
    table: str | None,
    columns: Mapping[str, Any] | Sequence[str] | None,
    determined: Mapping[str, Any] | None,
) -> Wanted:
    """The columns that are meant: by default all of the table."""
    private = [name for name, domain in tables.items() if not domain.is_public]
    if table is None and len(private) == 1:
        table = private[0]
    if table is None or table not in private:
        said = "No table is named." if table is None else f"There is no private table {table!r}."
        raise SpecError(said, fix=f"Use {', '.join(private)}.", about="table")
    domain = tables[table]
    usable = [name for name, column in domain.columns.items() if not column.hidden]
    if columns is None:
        columns = usable
    if isinstance(columns, str) or not columns:
        raise SpecError(
            "No column is named.", fix='Use columns=["age", "ward"].', about="no-column"
        )
    asked = dict(columns) if isinstance(columns, Mapping) else dict.fromkeys(columns)
    maps = _maps(determined or {}, asked)
    for name in (*asked, *maps, *(of for of, _ in maps.values())):
        if name not in usable:
            raise SpecError(
                f"{table!r} has no column {name!r} that can be asked about.",
                fix=f"Its columns: {', '.join(usable)}.",
                about="column",
            )
    measured = {name: asked[name] for name in usable if name in asked and name not in maps}
    return Wanted(domain=domain, columns=measured, determined=maps)


def uncut(wanted: Wanted, cuts: Mapping[str, Any]) -> Wanted:
    """The same with bins that also begin where questions do; ``cuts`` are as of `columns_for`."""
    columns = dict(wanted.columns)
    for name, how in cuts.items():
        if columns.get(name, how) is None and how is not None:
            columns[name] = _merged(wanted.domain.columns[name], how)
    return replace(wanted, columns=columns)


def _merged(column: Column, how: Any) -> Any:  # noqa: ANN401 - a unit of time, or edges
    if isinstance(how, str) or column.between is None:
        return how
    whole = column.kind is Kind.INTEGER
    if whole and usual_width(column.between, whole=True) == 1:
        return None
    usual = usual_edges(column.between, whole=whole)
    low, high = how[0], how[-1]
    return [low, *sorted({edge for edge in (*usual, *how) if low < edge < high}), high]


def _maps(
    determined: Mapping[str, Any], asked: Mapping[str, Any]
) -> dict[str, tuple[str, Mapping[Any, Any]]]:
    if not isinstance(determined, Mapping):
        raise SpecError("determined is not a dict by column.", fix=_DETERMINED, about="determined")
    for name, said in determined.items():
        well = isinstance(said, tuple | list) and len(said) == 2 and isinstance(said[1], Mapping)
        if not well:
            raise SpecError(
                f"The rule for {name!r} in determined is not understood.",
                fix=_DETERMINED,
                about="determined",
            )
        if said[0] not in asked or said[0] in determined:
            raise SpecError(
                f"{name!r} is declared to follow from {said[0]!r}, which is not measured.",
                fix="Add that column, or name another one.",
                about="unmeasured",
            )
    return {name: (said[0], said[1]) for name, said in determined.items()}


_DETERMINED: Final = (
    'Use determined={"region": ("ward", {"north": "up", "south": "down"})}; for numbers also '
    "ranges: {(0, 17): False, (18, 120): True}."
)


def basis_of(
    tables: Mapping[str, TableDomain],
    wanted: Wanted,
    *,
    where: str | None = None,
    rows_per_unit: int | None = None,
    found: Mapping[str, Bounds] | None = None,
) -> Basis:
    """Groups for all columns, or a refusal. ``found`` are bounds that nobody declared."""
    domain = wanted.domain
    facts = {
        name: replace(column, between=(found or {})[name]) if name in (found or {}) else column
        for name, column in domain.columns.items()
    }
    unit = None if domain.unit is None else domain.unit.column
    measured = {
        name: how for name, how in wanted.columns.items() if name != unit or how is not None
    }
    unusable = {n: why for n, how in measured.items() if (why := _unusable(facts[n], how))}
    if unusable:
        raise _refusal(unusable, [name for name in wanted.columns if name not in unusable])
    hows = {name: _how(facts[name], how, name in (found or {})) for name, how in measured.items()}
    if not hows:
        raise SpecError("No column can be measured.", fix="Name columns with keys or bounds.")
    known = {**tables, domain.name: replace(domain, columns=facts)}
    sql, edges = sql_of(known, domain.name, hows, where)
    block, axes = axes_of(read(sql, tables), edges=edges)
    if rows_per_unit is not None and (type(rows_per_unit) is not int or rows_per_unit < 1):
        raise SpecError(
            "A contribution bound per unit is out of range.",
            fix=f"Use a whole number from 1 to {CAP_MAX}.",
            about="cap",
        )
    rows = caps_of(block, Terms(rows_per_unit=rows_per_unit)).rows_per_unit
    first = replace(block, by=block.by[:1], sets=((0,),))
    drafted = draft(first, Caps(rows_per_unit=rows), derive=False)
    tally = drafted.parts[0].query.tally
    assert isinstance(tally, Sums)  # noqa: S101 - of a count
    groups = [key.domain.keys or () for key in block.by]
    by = tuple(
        Grouping(
            name=key.name,
            expression=key.expression,
            keys=(*keys, None) if key.domain.nullable else keys,
        )
        for key, keys in zip(block.by, groups, strict=True)
    )
    codings = {
        name: _coding(facts[name], how, axis)
        for (name, how), axis in zip(hows.items(), axes, strict=True)
    }
    return Basis(
        sql=sql,
        domain=domain,
        layout=_layout(wanted, codings, facts, unit),
        relation=tally.relation,
        by=by,
        term=tally.terms[0],
        rows_per_unit=tally.rows_per_unit,
        caveats=(*drafted.capped, *drafted.caveats),
    )


def grid_basis(grid: Grid) -> Basis:
    """The same of a grid whose groups are columns of one table, or bins of them."""
    tally = grid.query.tally
    assert isinstance(tally, Sums)  # noqa: S101 - of a count
    (domain,) = grid.query.tables
    columns = [domain.columns[next(iter(fields_of(each.expression)))] for each in tally.by]
    codings = tuple(
        Coding(kind=column.kind, axis=replace(axis, name=column.name), bounds=column.between)
        for column, axis in zip(columns, grid.axes, strict=True)
    )
    return Basis(
        sql=grid.sql,
        domain=domain,
        layout=Layout(table=domain.name, columns=codings),
        relation=tally.relation,
        by=tally.by,
        term=tally.terms[0],
        rows_per_unit=tally.rows_per_unit,
        caveats=grid.caveats,
    )


def _layout(
    wanted: Wanted, codings: Mapping[str, Coding], facts: Mapping[str, Column], unit: str | None
) -> Layout:
    """The columns in the order of the original."""
    columns: list[Coding | Determined | Numbered] = []
    for name, column in facts.items():
        if name in codings:
            columns.append(codings[name])
        elif name in wanted.determined:
            of, pairs = wanted.determined[name]
            made = Determined(
                name=name, kind=column.kind, of=of,
                pairs=tuple(_pair(codings[of].axis, column.kind, *each) for each in pairs.items()),
            )  # fmt: skip
            _require_covered(made, codings[of])
            columns.append(made)
        elif name == unit and name in wanted.columns:
            columns.append(Numbered(name=name, kind=column.kind))
    return Layout(table=wanted.domain.name, columns=tuple(columns))


def _pair(axis: Axis, kind: Kind, key: Any, value: Any) -> tuple[Any, Any]:  # noqa: ANN401 - as people write them
    """A key and its value, where dates may be ISO texts."""
    known = tuple(map(axis.meant, key)) if isinstance(key, tuple) else axis.meant(key)
    dates = {Kind.DATE: date, Kind.TIMESTAMP: datetime}
    return known, date_of(value, dates[kind]) if kind in dates else value


def _require_covered(determined: Determined, of: Coding) -> None:
    """Every key has a value: a row cannot be without one that the map promises."""
    axis = of.axis
    keys = [*axis.present]
    if axis.ends is not None:
        last = [end - axis.whole for end in axis.ends[:-1]]
        keys = [*axis.present[1:], *last, *(of.bounds or ())]
    try:
        without = [key for key in keys if determined.value_of(key) is None]
        determined.require_values()
    except (TypeError, ValueError):
        raise SpecError(
            f"The map for {determined.name!r} has keys or values of another type.",
            fix=_DETERMINED,
            about="type",
        ) from None
    if without:
        raise SpecError(
            f"The map for {determined.name!r} does not cover {_shown(without[0])} of "
            f"{determined.of!r}.",
            fix="Give every key a value, or every number a range.",
            about="map",
        )


def _shown(key: Any) -> str:  # noqa: ANN401 - a key
    return f"{float(key):g}" if isinstance(key, Fraction) else repr(key)


def _unusable(column: Column, how: Any) -> str | None:  # noqa: ANN401 - as people write it
    """Why a column has no cells, or None."""
    if column.keys is not None or column.kind is Kind.BOOLEAN or isinstance(how, list | tuple):
        return None
    if column.kind is Kind.TEXT:
        return "text without a list of keys"
    return None if column.between is not None else f"{column.kind.value} without bounds"


def _refusal(unusable: Mapping[str, str], usable: Sequence[str]) -> Unsupported:
    named = ", ".join(f"{name!r} ({why})" for name, why in unusable.items())
    leave = f"leave them out: columns={list(usable)!r}." if usable else "name other columns."
    numbers = any("text" not in why and "date" not in why and "time" not in why
                  for why in unusable.values())  # fmt: skip
    find = ' have bounds estimated for a fifth of ε: choose="bounds",' if numbers else ""
    return Unsupported(
        f"The values of these columns are not declared: {named}.",
        fix="Declare in = [...] for text (--keys), between = [low, high] for numbers and dates "
        f"(--between),{find} or {leave}",
        about="undeclared",
    )


def _how(column: Column, how: Any, found: bool) -> Any:  # noqa: ANN401, FBT001 - see Gate.release
    """How a column is grouped: as said, else by its keys, else by the usual bins."""
    bounds = column.between
    if found and bounds is not None and not isinstance(how, list | tuple):
        width = None
        if how is not None:
            width = positive(fraction(how, name=f"the bin width of {column.name}"), name="a width")
        return usual_edges(bounds, whole=column.kind is Kind.INTEGER, width=width)
    if how is not None or column.keys is not None or column.kind is Kind.BOOLEAN:
        return how
    assert bounds is not None  # noqa: S101 - else it was refused
    if column.kind in (Kind.DATE, Kind.TIMESTAMP):
        return usual_unit(bounds, column.kind)
    whole = column.kind is Kind.INTEGER
    width = usual_width(bounds, whole=whole)
    return None if whole and width == 1 else width


def _coding(column: Column, how: Any, axis: Axis) -> Coding:  # noqa: ANN401 - of `_how`
    if axis.size > _COLUMN_CELLS_MAX:
        raise Unsupported(
            f"{axis.name!r} has {axis.size:,} cells, more than {_COLUMN_CELLS_MAX:,}.",
            fix="Use wider bins.",
        )
    unit = how if isinstance(how, str) and how in UNITS else None
    if unit is None and column.keys is None and column.kind in (Kind.DATE, Kind.TIMESTAMP):
        unit = "day"
    named = replace(axis, name=column.name)
    return Coding(kind=column.kind, axis=named, bounds=column.between, unit=unit)
