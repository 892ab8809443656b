"""A practice twin: made-up tables with the schema of a policy, so that questions can be tried free.

Nothing is read from private rows: keys, bounds and foreign keys are the policy's, all else is
invented here. Values are spread by a hash of the seed, the table and the column, so the twin is the
same every time, and a new column leaves the others as they are. No chance is drawn: this is not
a source of noise, and a twin is not synthetic data.
"""

import hashlib
from collections.abc import Iterator, Mapping
from datetime import date, datetime
from fractions import Fraction
from graphlib import CycleError, TopologicalSorter
from math import ceil, floor, inf, nextafter
from typing import Any, Final, TypeAlias, final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from noisegate.errors import SpecError
from noisegate.frozen import dataclass, field
from noisegate.privacy.domain import WHOLE_MAX, Column, Kind, TableDomain, ordinal

Place: TypeAlias = tuple[str, str]  # a table and one of its columns
Floats: TypeAlias = NDArray[np.float64]

NULL_SHARE: Final = 0.05
ROWS_PER_UNIT: Final = 5  # on average; the largest units hold a tenth of the rows or more
_ROWS_MAX: Final = 10**8
_WORDS: Final = (
    "amber", "birch", "cedar", "delta", "ember", "fjord", "grove", "heath", "inlet", "jasper",
    "knoll", "larch",
)  # fmt: skip
_USUAL: Final = {  # values of columns without bounds
    Kind.INTEGER: (Fraction(1), Fraction(1000)),
    Kind.NUMBER: (Fraction(0), Fraction(100)),
    Kind.DATE: (ordinal(date(2020, 1, 1)), ordinal(date(2024, 12, 31))),
    Kind.TIMESTAMP: (ordinal(datetime(2020, 1, 1)), ordinal(datetime(2024, 12, 31))),  # noqa: DTZ001
}
TYPES: Final = {  # of Arrow, by kind
    Kind.BOOLEAN: pa.bool_(),
    Kind.INTEGER: pa.int64(),
    Kind.NUMBER: pa.float64(),
    Kind.TEXT: pa.string(),
    Kind.DATE: pa.date32(),
    Kind.TIMESTAMP: pa.timestamp("us"),
}


def practice_rows(
    tables: Mapping[str, TableDomain],
    public: Mapping[str, pa.Table] | None = None,
    *,
    rows: int = 1000,
    seed: int | None = None,
) -> dict[str, pa.Table]:
    """Made-up rows for every table: private ones from the policy alone, public ones as given.

    A private table has ``rows`` rows, fewer where a key of it has fewer values. Declared keys,
    bounds and foreign keys hold; owners and foreign keys have a heavy tail, so that caps bite, and
    are never missing; in other nullable columns every twentieth value is. The same seed gives the
    same rows, and None is a seed too.
    """
    if type(rows) is not int or not 1 <= rows <= _ROWS_MAX:
        raise SpecError("rows is not usable.", fix=f"Use a whole number from 1 to {_ROWS_MAX}.")
    given, links = public or {}, _links(tables)
    twin = _Twin(tables=tables, links=links, rows=rows, seed=seed)
    for name in _in_order(tables, links):
        domain = tables.get(name)
        if domain is None or (domain.is_public and name not in given):
            raise SpecError(
                f"There are no rows for the table {name!r}.",
                fix="Declare it, and give the rows of public tables.",
            )
        twin.made[name] = given[name] if domain.is_public else twin.table(name, domain)
    return {name: twin.made[name] for name in tables}


def _links(tables: Mapping[str, TableDomain]) -> dict[Place, Place]:
    """Every foreign key of every path, and the key that it holds."""
    links: dict[Place, Place] = {}
    for name, domain in tables.items():
        here = name
        for step in domain.path:
            links[here, step.column] = step.table, step.key
            here = step.table
    return links


def _in_order(tables: Mapping[str, TableDomain], links: Mapping[Place, Place]) -> list[str]:
    """Each table after those whose keys it holds."""
    needs: dict[str, set[str]] = {name: set() for name in tables}
    for (here, _), (there, _) in links.items():
        needs.setdefault(here, set()).add(there)
    for name, domain in tables.items():
        for column in domain.columns.values():
            if column.references and column.keys is None and not domain.is_public:
                needs[name].add(column.references[0])
    try:
        return list(TopologicalSorter(needs).static_order())
    except CycleError:
        pass
    raise SpecError("The foreign keys form a cycle.", fix="Let each path lead to the unit's table.")


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class _Twin:
    """The tables made so far, and how the next is made."""

    tables: Mapping[str, TableDomain]
    links: Mapping[Place, Place]
    rows: int
    seed: int | None
    made: dict[str, Any] = field(default_factory=dict)

    def table(self, name: str, domain: TableDomain) -> pa.Table:
        """The rows of one private table."""
        columns = {column.name: column for column in self._columns(name, domain)}
        keys = [key for there, key in self.links.values() if there == name]
        if domain.unit is not None and domain.rows_per_unit_holds and domain.rows_per_unit_max == 1:
            keys += [] if domain.path or not domain.unit.column else [domain.unit.column]
        room = [self._room(name, columns[key]) for key in keys]
        count = min([self.rows, *(most for most in room if most is not None)])
        owner = None if domain.unit is None or domain.path else domain.unit.column
        arrays = {}
        for column in columns.values():
            if column.name in keys:
                arrays[column.name] = self._distinct(name, column, count)
            elif column.name == owner or (name, column.name) in self.links:
                arrays[column.name] = self._shared(name, column, count)
            else:
                arrays[column.name] = self._values(name, column, count)
        return pa.table(arrays)

    def _columns(self, name: str, domain: TableDomain) -> Iterator[Column]:
        """The declared columns, and those that only paths and the unit speak of."""
        yield from domain.columns.values()
        needed = [column for here, column in self.links if here == name]
        needed += [key for there, key in self.links.values() if there == name]
        if domain.unit is not None and domain.unit.column and not domain.path:
            needed.append(domain.unit.column)
        for column in dict.fromkeys(needed):
            if column not in domain.columns:
                yield Column(name=column, kind=self._kind((name, column)))

    def _kind(self, place: Place) -> Kind:
        """The kind of an undeclared key: that of a declared column which holds it, or integer."""
        for (table, column), target in self.links.items():
            declared = self.tables[table].columns.get(column) if table in self.tables else None
            if target == place and declared is not None:
                return declared.kind
        return Kind.INTEGER

    def _pool(self, name: str, column: Column) -> Any:  # noqa: ANN401 - an Arrow array, or None
        """The values to choose from, where these are listed: foreign keys, keys, references."""
        target = self.links.get((name, column.name))
        if target is None and column.keys is not None:
            return pa.array(column.keys, TYPES[column.kind])
        if target is None and column.references is not None:
            target = column.references
        if target is None:
            return None
        table, key = target
        if key not in self.made[table].column_names:
            raise SpecError(
                f"The table {table!r} has no column {key!r}.", fix="Correct the reference to it."
            )
        return self.made[table][key].combine_chunks().unique().drop_null()

    def _room(self, name: str, column: Column) -> int | None:
        """How many different values the column can have, where that is limited."""
        pool = self._pool(name, column)
        if pool is not None or column.kind is Kind.BOOLEAN:
            return 2 if pool is None else len(pool)
        if column.between is None or column.kind is Kind.NUMBER:
            return None
        low, high = _whole_bounds(column)
        return high - low + 1

    def _distinct(self, name: str, column: Column, count: int) -> Any:  # noqa: ANN401 - Arrow array
        """``count`` different values: ids, or a foreign key that is held once."""
        pool = self._pool(name, column)
        if pool is not None:
            return pool.take(pa.array(np.argsort(self._spread(name, column, len(pool)))[:count]))
        if column.kind is Kind.TEXT:
            called = self._called(name, column)
            return pa.array([f"{called}-{number}" for number in range(1, count + 1)])
        if column.kind is Kind.BOOLEAN:
            return pa.array([False, True][:count])
        if column.kind is Kind.NUMBER:
            return pa.array(_between(np.arange(count) / count, column))
        return _whole_array(_whole_bounds(column)[0] + np.arange(count), column.kind)

    def _called(self, name: str, column: Column) -> str:
        """What text ids begin with: those of units like all of their id space, to meet there."""
        domain = self.tables[name]
        unit = None if domain.path else domain.unit
        return str(unit.ids) if unit and unit.column == column.name else column.name

    def _shared(self, name: str, column: Column, count: int) -> Any:  # noqa: ANN401 - Arrow array
        """Owners or foreign keys of ``count`` rows: the i-th most frequent has a share of 1/i."""
        if (name, column.name) in self.links:
            ids = self._pool(name, column)
        else:
            room = self._room(name, column)
            units = max(1, count // ROWS_PER_UNIT)
            ids = self._distinct(name, column, units if room is None else min(units, room))
        mixed = np.argsort(self._spread(name, column, len(ids), "order"))
        chosen = _skewed(self._spread(name, column, count, "share"), len(ids), first=1)
        return ids.take(pa.array(mixed[chosen]))

    def _values(self, name: str, column: Column, count: int) -> Any:  # noqa: ANN401 - Arrow array
        """``count`` values that keep what is declared."""
        spread = self._spread(name, column, count)
        missing = None
        if column.nullable:
            missing = self._spread(name, column, count, "missing") < NULL_SHARE
        pool = self._pool(name, column)
        if pool is None and column.kind is Kind.TEXT:
            pool = pa.array(_WORDS)
        if pool is not None:
            return pool.take(pa.array(_skewed(spread, len(pool), first=3), mask=missing))
        if column.kind is Kind.BOOLEAN:
            return pa.array(spread < 0.4, mask=missing)
        if column.kind is Kind.NUMBER:
            return pa.array(_between(spread, column), mask=missing)
        low, high = _whole_bounds(column)
        words = self._words(name, column, count) % np.uint64(high - low + 1)
        return _whole_array(words.view(np.int64) + np.int64(low), column.kind, missing)

    def _words(self, name: str, column: Column, count: int, use: str = "") -> NDArray[np.uint64]:
        """Evenly spread 64-bit words, from a hash of what they are for."""
        label = "\x00".join((str(self.seed), name, column.name, use))
        raw = hashlib.shake_256(label.encode()).digest(8 * count)
        return np.frombuffer(raw, np.uint64)

    def _spread(self, name: str, column: Column, count: int, use: str = "") -> Floats:
        """Evenly spread numbers in [0, 1)."""
        words = self._words(name, column, count, use) >> np.uint64(11)
        return words.astype(np.float64) * 2.0**-53


def _skewed(spread: Floats, size: int, *, first: int) -> NDArray[np.int64]:
    """Positions below ``size``, the i-th with a share of 1 / (first + i)."""
    if size == 0:
        raise SpecError("A list of keys is empty.", fix="Give the public table rows.")
    ends = np.cumsum(1 / np.arange(first, first + size))
    at: NDArray[np.int64] = np.searchsorted(ends[:-1], spread * ends[-1], side="right")
    return at


def _between(spread: Floats, column: Column) -> Floats:
    """Numbers within the bounds, whatever floats make of these."""
    low, high = column.between or _USUAL[Kind.NUMBER]
    least, most = float(low), float(high)
    least = nextafter(least, inf) if Fraction(least) < low else least
    most = nextafter(most, -inf) if Fraction(most) > high else most
    return np.clip(least * (1 - spread) + most * spread, least, most)


def _whole_bounds(column: Column) -> tuple[int, int]:
    low, high = column.between or _USUAL[column.kind]
    least = max(ceil(low), -WHOLE_MAX)
    return least, max(least, min(floor(high), WHOLE_MAX))


def _whole_array(
    values: NDArray[np.int64], kind: Kind, missing: NDArray[np.bool_] | None = None
) -> Any:  # noqa: ANN401 - Arrow array
    """Whole numbers as integers, days since 1970 as dates, microseconds as times."""
    whole = values.astype(np.int32) if kind is Kind.DATE else values
    return pa.array(whole, mask=missing).cast(TYPES[kind])
