"""Copies of tables that are asked often: in the engine's memory, with the size of each unit.

Claim: a question has the same whole numbers from a copy as from the file, on the same rows.
Why: the copy holds what `RelationWriter` reads of a table, value by value: columns that are clamped
    already, and owners. Beside each row stands how many rows its owner has in the table (`SIZE`):
    counted in the statement that reads the rows, which reads them once, and counted again in the
    copy, which never changes. Units of few rows are known by it (`writing/weights.py`).
Changes: a copy is of one state of its files. Their marks are compared before each question (length,
    times of change, place and number); where one is another, or cannot be seen, files are read as
    before. Privacy does not depend on marks: rows and sizes are both of the old state, or neither.
Time: where nobody has more rows than a question has room for, the engine sees that and folds
    nothing, so a first such unit takes a few milliseconds more. A service's ladder hides most of
    that. How long a copy takes depends on rows as a question does; which one makes it does not.
"""

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, TypeAlias, final

import duckdb
from sqlglot import exp

from noisegate.algebra.relation import Filter, Relation, Table
from noisegate.algebra.schema import schema_of
from noisegate.algebra.tally import Grouping
from noisegate.errors import SourceError
from noisegate.frozen import dataclass, replace
from noisegate.privacy.domain import TableDomain
from noisegate.sources.duckdb.files import Mark, mark_of
from noisegate.sources.writing.relations import (
    OWNER,
    SIZE,
    Opened,
    RelationWriter,
    WrittenQuery,
    base_of,
)
from noisegate.sources.writing.words import as_, col, cte, named

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

    from noisegate.sources.duckdb.files import Within

Marks: TypeAlias = tuple[Mark, ...]  # of its file, and of each on the way to its owners
Run: TypeAlias = Callable[
    [Callable[[duckdb.DuckDBPyConnection], Any], Sequence[Grouping]], Any
]  # by the engine

_LENGTH_MAX: Final = 1 << 27  # bytes of all files that are copied
_CALM_NS: Final = 2_000_000_000  # a file may change again within one tick of its clock
_NUMBERS: Final = count()
_WRONG: Final = (  # an owner whose rows do not all state how many they are
    f"SELECT 1 FROM {{}}.rows GROUP BY {OWNER} "  # noqa: S608 - constants
    f"HAVING COUNT(*) <> MIN({SIZE}) OR COUNT(*) <> MAX({SIZE}) LIMIT 1"
)


@final
@dataclass(eq=False, slots=True, kw_only=True)
class Copy:
    """A table in a memory of its own, and its columns by name."""

    table: TableDomain
    number: int
    mark: Marks
    columns: Mapping[str, str]
    readers: int = 0


@final
class CopyWriter(RelationWriter):
    """Writes relations over copies, where there are any, and over base tables."""

    copies: Mapping[str, Copy]

    def whole(self, table: TableDomain) -> WrittenQuery:
        """All that can be read of a base table."""
        used, self._used = self._used, set(table.columns)
        found = super()._table(Table(table))
        self._used = used
        return found

    def over(self, relation: Relation) -> Opened:
        """An open SELECT; from some rows of one copy as they are, in one step."""
        table = base_of(relation)
        opened = None if table is None else self._open(table)
        if opened is None:
            return super().over(relation)
        while isinstance(relation, Filter):
            condition = self._written(relation.condition, schema_of(relation.of), opened.field)
            opened.query.where(condition, copy=False)
            relation = relation.of
        return opened

    def _table(self, relation: Table) -> WrittenQuery:
        opened = self._open(relation)
        if opened is None:
            return super()._table(relation)
        below = opened.below
        names = {name: f"c{place}" for place, name in enumerate(below.columns)}  # others come after
        shown = [as_(opened.field(name), at) for name, at in names.items()]
        shown += [col(name, opened.alias) for name in below.carried]
        query = opened.query.select(*(shown or [as_(exp.true(), "row")]), copy=False)
        return replace(below, query=query, columns=names, stored=names)

    def _open(self, relation: Table) -> Opened | None:
        """A SELECT from the copy, if there is one."""
        copy = self.copies.get(relation.domain.name)
        if copy is None or copy.table != relation.domain:  # another says otherwise what is clamped
            return None
        alias, query = self._alias(), exp.Select()
        names = {name: at for name, at in copy.columns.items() if name in self._used}
        owned = copy.table.unit is not None and copy.table.unit.column is not None
        place = exp.Table(this=exp.to_identifier("rows"), db=exp.to_identifier(_name(copy.number)))
        query.from_(as_(place, alias), copy=False)
        return Opened(query, WrittenQuery(query, names, owned, names, owned), alias, self._dialect)


@final
class Copies:
    """The copies in one engine. Threads may share them. ``asked`` counts questions by table."""

    def __init__(
        self,
        tables: Mapping[str, TableDomain],
        data: "Mapping[str, Path | Within | pa.Table]",
        asked: Counter[str],
    ) -> None:
        self._tables, self._data, self._asked, self._lock = tables, data, asked, Lock()
        self._kept: dict[str, Copy] = {}
        self._left: set[Copy] = set()  # of an old state, and still read
        self._refused: dict[str, Marks] = {}
        self._making = False

    @contextmanager
    def reading(
        self, often: Collection[str], run: Run, writer: CopyWriter
    ) -> Iterator[RelationWriter]:
        """The writer, over copies of these tables, which stay there meanwhile."""
        marks = {name: self._mark(self._tables[name]) for name in often}
        for name, mark in marks.items():
            if mark is not None and self._is_due(name, mark):
                self._make(name, mark, run, writer)
        writer.copies = found = self._taken(marks)
        writer.read = tuple(_name(copy.number) for copy in found.values())
        try:
            yield writer
        finally:
            with self._lock:
                for copy in found.values():
                    copy.readers -= 1
                gone = {copy for copy in self._left if not copy.readers}
                self._left -= gone
            for copy in gone:
                _drop(copy.number, run)

    def _taken(self, marks: Mapping[str, Marks | None]) -> dict[str, Copy]:
        """The copies of this state, each with one reader more. Those of another one are left."""
        found = {}
        with self._lock:
            for name, copy in [*self._kept.items()]:
                if name in marks and copy.mark == marks[name]:
                    found[name] = copy
                    copy.readers += 1
                elif name in marks:
                    self._left.add(self._kept.pop(name))
                    self._asked[name] = 0
        return found

    def _mark(self, table: TableDomain) -> Marks | None:
        """The state of its file, and of those on the way to its owners; None: not to be copied."""
        names = (table.name, *(step.table for step in table.path))
        marks = [mark_of(self._data[name]) for name in names]
        known = tuple(mark for mark in marks if mark is not None)
        return known if len(known) == len(marks) and not (table.is_public or table.views) else None

    def _is_due(self, name: str, mark: Marks) -> bool:
        """Whether to copy it now; nobody else does meanwhile."""
        with self._lock:
            length = sum(copy.mark[0][0] for copy in self._kept.values()) + mark[0][0]
            calm = max(max(each[1:3]) for each in mark) < time.time_ns() - _CALM_NS
            known = name in self._kept or self._refused.get(name) == mark
            due = calm and not known and not self._making and length <= _LENGTH_MAX
            self._making = self._making or due
            return due

    def _make(self, name: str, mark: Marks, run: Run, writer: CopyWriter) -> None:
        """Copy a table. Whatever prevents that, its file is there."""
        number, table, made = next(_NUMBERS), self._tables[name], None
        rows = writer.whole(table)
        text = _sized(rows).sql(dialect="duckdb", copy=False)
        try:
            _do(run, f"ATTACH ':memory:' AS {_name(number)} (COMPRESS)")
            _do(run, f"CREATE TABLE {_name(number)}.rows AS {text}")
            _do(run, f"FORCE CHECKPOINT {_name(number)}")  # this compresses it
            wrong = rows.is_owned and _do(run, _WRONG.format(_name(number)))
            if self._mark(table) == mark and not wrong:
                made = Copy(table=table, number=number, mark=mark, columns=rows.columns)
        except SourceError:
            self._refused[name] = mark
        finally:
            if made is None:
                _drop(number, run)
            with self._lock:
                self._making = False
                if made is not None:
                    self._kept[name] = made


def _sized(rows: WrittenQuery) -> exp.Select:
    """The rows, each with the size of its owner."""
    shown = tuple(col(name, "r") for name in (*rows.columns.values(), *rows.carried))
    query = exp.select(*shown or (as_(exp.true(), "row"),)).from_(named("r"), copy=False)
    if rows.is_owned:
        sizes = exp.select(col(OWNER, "r"), as_(exp.Count(this=exp.Star()), SIZE))
        sizes = sizes.from_(named("r"), copy=False).group_by(col(OWNER, "r"), copy=False)
        same = exp.EQ(this=col(OWNER, "r"), expression=col(OWNER, "n"))
        query = query.select(col(SIZE, "n"), copy=False)
        query = query.join(sizes.subquery("n", copy=False), on=same, copy=False)
    return query.with_(cte("r"), as_=rows.query, materialized=rows.is_owned, copy=False)


def _name(number: int) -> str:
    """What the engine calls a copy."""
    return f"copy{number}"


def _do(run: Run, text: str) -> list[Any]:
    found: list[Any] = run(lambda connection: connection.execute(text).fetchall(), ())
    return found


def _drop(number: int, run: Run) -> None:
    with suppress(SourceError):
        _do(run, f"DETACH DATABASE IF EXISTS {_name(number)}")
