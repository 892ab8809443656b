"""The embedded engine: CSV, Parquet, DuckDB files and frames in memory, added up by DuckDB."""

import os
import shutil
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from fractions import Fraction
from functools import partial
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast, final
from weakref import WeakSet, finalize

import duckdb
import numpy as np
from numpy.typing import NDArray
from sqlglot import exp

from noisegate.algebra.relation import Table, all_of, sample_of
from noisegate.algebra.tally import (
    Cells,
    Distinct,
    Grouping,
    Keys,
    Marginals,
    Rows,
    Sums,
    Tally,
    Values,
    fields_used,
)
from noisegate.arrow import numbers
from noisegate.errors import PolicyError, SourceError, is_interrupt
from noisegate.privacy.domain import Key, Kind, TableDomain
from noisegate.sources.duckdb.dialect import DUCKDB, WHOLE_TYPES
from noisegate.sources.duckdb.files import (
    GIVE,
    KIND_OF,
    READ_AS,
    UNREACHABLE,
    Data,
    Mark,
    file_of,
    is_database,
    is_text,
    lock_down,
    mark_of,
    only,
    plain,
    quoted,
    stored_types,
)
from noisegate.sources.duckdb.found import (
    BATCH,
    cells_of,
    filled,
    key_list,
    record_batches,
    stream,
    unsigned,
)
from noisegate.sources.duckdb.room import Line, Room
from noisegate.sources.source import Batch, Block, Held, HeldCells, Source, Used, Whole
from noisegate.sources.stopping import cuttable, require_going_on
from noisegate.sources.used import used_columns
from noisegate.sources.writing.relations import OWNER, RelationWriter, base_view
from noisegate.sources.writing.tallies import (
    cells_query,
    constant_of,
    distinct_query,
    keys_query,
    marginals_query,
    rows_query,
    sums_query,
    values_query,
)
from noisegate.sources.writing.words import base_value, col, keys_table, range_of

if TYPE_CHECKING:
    import pyarrow as pa

    from noisegate.algebra.blocks import Blocks
    from noisegate.sources.duckdb.copies import Copies
    from noisegate.sources.duckdb.sample import Drawn


_WRITTEN_MAX: Final = 128  # statements that are kept
_NEAR: Final = 1 << 15  # rows that stay near the processor
_SAFE_TYPES: Final = frozenset({*WHOLE_TYPES, "UBIGINT", "FLOAT", "DOUBLE", "BOOLEAN"})
_OWNER_KINDS: Final = (Kind.INTEGER, Kind.TEXT)
_AT_ONCE: Final = 4  # questions of one engine, which share its memory and its threads: `room.py`
_OFTEN: Final = 4  # questions about a table that take as long as to copy it
_Work: TypeAlias = Callable[[duckdb.DuckDBPyConnection], Any]
AGAIN: Final = "Nothing was released; ask again with the same request id."
_FULL: Final = object()  # instead of what was found: memory ran out


@final
class DuckDBSource(Source):
    """Tables in a private DuckDB engine that can reach these files and nothing else.

    The engine sees no column that questions cannot use. Whatever could fail because of a row fails
    here, before any question: types are checked, files are read once. Each question has a line to
    the engine of its own: settings, limits and views are the engine's; lists of keys, frames and
    samples are the line's, and no other question sees them.
    """

    def __init__(
        self,
        data: Mapping[str, Data],
        tables: Mapping[str, TableDomain],
        *,
        memory: str = "3GB",
        seconds: float = 3600,
    ) -> None:
        self._tables, self._memory, self._seconds = tables, memory, seconds
        self._lock, self._turns = threading.Lock(), threading.Semaphore(_AT_ONCE)
        self._room = Room()
        self._free: list[Line] = []
        self._asked, self._copies = Counter[str](), cast("Copies | None", None)
        self._written, self._keyed = dict[tuple[object, ...], str](), dict[str, Mark | None]()
        self._drawn: Drawn | None = None
        self._spill = mkdtemp(prefix="noisegate-")  # for what does not fit into memory
        finalize(self, _remove, self._spill, os.getpid())
        self._data = {name: plain(data[name], name) for name in tables}
        self._connection: duckdb.DuckDBPyConnection | None = self._connect()
        _living.add(self)
        for name in tables:
            self._try_once(name)
            self._require_key(name, mark_of(self._data[name]))

    def require(self, tally: "Tally | Blocks") -> None:
        """Refuse a declared key that repeats by now: public files may change, and no claim may."""
        self._states(tally)

    def sums(self, tally: Sums) -> Whole:  # noqa: D102 - see Source
        shape = tuple(grouping.size for grouping in tally.by)
        names = [f"s{place}" for place in range(len(tally.terms))]
        sampled = sample_of(tally.relation) is not None  # read once: rows come in no order
        found = self._few(tally, wide=sampled)
        if "w" in found and found["w"].any():
            found = self._few(tally, wide=True)
        return np.stack([filled(found, name, shape) for name in names])

    def marginals(self, tally: Marginals) -> list[Whole]:  # noqa: D102 - see Source
        from noisegate.sources.adding import add_up, of_used  # noqa: PLC0415 - for many tables at once

        asked = of_used(tally)
        sizes, constant = [grouping.size for grouping in asked.by], constant_of(asked)
        batch = max(_NEAR, min(BATCH, max(asked.sizes)))  # no fewer rows than cells to add to

        def work(connection: duckdb.DuckDBPyConnection, text: str) -> list[Whole]:
            return add_up(stream(connection.sql(text), batch), sizes, asked.sets, constant=constant)

        return cast("list[Whole]", self._made(asked, marginals_query, work, asked.by))

    def values(self, tally: Values) -> list[Whole]:  # noqa: D102 - see Source
        found = self._ask(tally)
        values = found["v"].astype(np.int64, copy=False)
        if not tally.by:
            return [values]
        cells = cells_of(found, tuple(grouping.size for grouping in tally.by))
        order = np.argsort(cells, kind="stable")
        bounds = np.searchsorted(cells[order], np.arange(1, tally.cells))
        return np.split(values[order], bounds)

    def distinct(self, tally: Distinct) -> Whole:  # noqa: D102 - see Source
        found = self._made(tally, distinct_query, _numpy, tally.by)  # few rows: planned once
        return np.stack([filled(found, "s0", tuple(grouping.size for grouping in tally.by))])

    def keys(self, tally: Keys) -> Held:  # noqa: D102 - see Source
        names = [f"k{place}" for place in range(len(tally.by))]
        found = self._made(tally, keys_query, _arrow, ())
        counts = numbers(found.column("n")).astype(np.int64)

        def take(places: Whole) -> list[tuple[Key, ...]]:
            columns = [found.column(name).take(places).to_pylist() for name in names]
            return list(zip(*columns, strict=True))

        return Held(counts=counts, take=take)

    def cells(self, tally: Cells) -> HeldCells:  # noqa: D102 - see Source
        from noisegate.sources.counting import count_cells  # noqa: PLC0415 - for numbered cells

        listed = [axis for axis in tally.by if isinstance(axis, Grouping)]
        cells, counts = self._made(
            tally, cells_query, lambda c, text: count_cells(unsigned(c.sql(text))), listed
        )
        return HeldCells(cells=cells, counts=counts)

    def sample(self, probability: Fraction, key: str) -> AbstractContextManager["DuckDBSource"]:  # noqa: D102
        from noisegate.sources.duckdb.sample import sampled  # noqa: PLC0415 - of samples only

        return sampled(self, probability, key)

    def rows(self, tally: Rows, use: Callable[[Iterator[Batch]], Used]) -> Used:  # noqa: D102 - see Source
        from noisegate.sources.batching import batches  # noqa: PLC0415 - for rows alone

        return cast("Used", self._made(
            tally, rows_query, lambda c, text: use(batches(stream(c.sql(text)), tally)), tally.by
        ))  # fmt: skip

    def blocks(self, tally: "Blocks", key: str, use: Callable[[Iterator[Block]], Used]) -> Used:  # noqa: D102
        from noisegate.sources.writing.blocks import blocks_query, dealt_rows  # noqa: PLC0415

        write = partial(blocks_query, key=key)
        return cast("Used", self._made(
            tally, write, lambda c, text: use(dealt_rows(record_batches(c.sql(text)), tally)), ()
        ))  # fmt: skip

    def public(self, table: str) -> "pa.Table":
        """All rows of a public table: exact and free."""
        from noisegate.sources.duckdb.public import public_query  # noqa: PLC0415 - of public tables

        shown = public_query(self._tables[table], self._types[table])
        text = shown.from_(self._view(table)).sql("duckdb")
        return self._run(lambda connection: _arrow(connection, text), ())

    def _few(self, tally: Sums, *, wide: bool) -> dict[str, Any]:
        """A number for each group: planned once, and copied.

        Statements are kept by how their tally is written out, which tells 1 and True apart: a
        recipe asks about the same cells round after round. The coins of a sample are not kept.
        """
        with self._reading(tally) as writer:
            name = repr(tally), wide, *writer.read
            text = self._written.get(name)
            if text is None:
                text = DUCKDB.text(sums_query(tally, writer, wide=wide))
                if sample_of(tally.relation) is None:
                    if len(self._written) >= _WRITTEN_MAX:
                        self._written.clear()
                    self._written[name] = text
            return dict(self._run(lambda connection: _numpy(connection, text), tally.by))

    def _ask(self, tally: Values) -> dict[str, Any]:
        """A number for each row, as it lies in memory."""
        found = self._made(tally, values_query, _arrow, tally.by)
        shown = [name for name in found.column_names if name != OWNER]
        return {name: numbers(found.column(name)) for name in shown}

    def _view(self, table: str) -> str:
        place, unit = list(self._tables).index(table), self._tables[table].unit
        if self._drawn is None or unit is None or unit.column is not None:
            return base_view(place)
        return self._drawn.rows(place)

    def _made(
        self, tally: "Tally | Blocks", write: Callable[..., exp.Query],
        work: Callable[[duckdb.DuckDBPyConnection, str], Any], by: Sequence[Grouping],
    ) -> Any:  # noqa: ANN401 - as it is worked on  # fmt: skip
        with self._reading(tally) as writer:
            text = DUCKDB.text(write(tally, writer))
            return self._run(lambda connection: work(connection, text), by)

    @contextmanager
    def _reading(self, tally: "Tally | Blocks") -> Iterator[RelationWriter]:
        """A writer over what the engine reads, which stays there meanwhile: files, or copies."""
        states = self._states(tally)
        coins = self._drawn and self._drawn.coins
        terms = (self._tables, self._types, fields_used(tally), self._view, coins)
        read = {each.domain.name for each in all_of(tally.relation) if type(each) is Table}
        self._asked.update(read)
        often = {name for name in read if self._asked[name] > _OFTEN}
        if not often or coins is not None:
            yield RelationWriter(*terms, dialect=DUCKDB)
        else:
            from noisegate.sources.duckdb.copies import Copies, CopyWriter  # noqa: PLC0415

            copies = self._copies = self._copies or Copies(self._tables, self._data, self._asked)
            with copies.reading(often, self._run, CopyWriter(*terms, dialect=DUCKDB)) as writer:
                yield writer
        if self._states(tally) != states:  # a statement may have read a file twice
            raise SourceError("A file has changed while it was read.", fix=AGAIN, about="drift")

    def _states(self, tally: "Tally | Blocks") -> dict[str, Mark | None]:
        """The states of all files that are read, in which no declared key repeats."""
        tables = [each.domain for each in all_of(tally.relation) if type(each) is Table]
        names = {name for each in tables for name in (each.name, *(s.table for s in each.path))}
        found = {name: mark_of(self._data[name]) for name in names}
        for name, mark in found.items():
            self._require_key(name, mark)
        return found

    def _run(self, work: _Work, by: Sequence[Grouping]) -> Any:  # noqa: ANN401 - numpy or Arrow
        with self._turns:
            for alone in (False, True):  # the second time, if memory was others'
                with self._room.taken(alone=alone) as turn:
                    done, found = self._answered(work, by)
                if done:
                    return found
                if found is not _FULL or not turn.crowded:
                    break
        require_going_on()
        raise SourceError(UNREACHABLE, fix=AGAIN)

    def _answered(self, work: _Work, by: Sequence[Grouping]) -> tuple[bool, Any]:
        """Whether it was done, and what was found; else perhaps that memory is full."""
        by_hand, done, full, asked = False, False, False, None
        line = self._take()
        try:
            with cuttable(line.connection.interrupt, self._seconds) as asked:
                for place, grouping in enumerate(by):
                    typed = grouping.keys, [*map(type, grouping.keys)]  # 1 is not True
                    if not range_of(grouping) and line.listed.get(place) != typed:
                        line.connection.register(keys_table(place), key_list(grouping))
                        line.listed[place] = typed
                found = work(line.connection)
            done = True
        except (duckdb.Error, RuntimeError) as error:
            by_hand, full = is_interrupt(error), isinstance(error, duckdb.OutOfMemoryException)
            if not by_hand and not isinstance(error, duckdb.Error):
                raise
        finally:
            self._give_back(line, done=done or full, cut=asked is None or asked.is_cut)
        # The engine's own error is gone with the block above: its words may quote rows.
        if by_hand:
            raise KeyboardInterrupt
        return done, found if done else full and _FULL

    def _take(self) -> Line:
        """A line that nobody else has."""
        with self._lock:
            engine = self._engine()
            if self._free:
                return self._free.pop()
            line = Line(engine.cursor(), engine)
            for place, (name, data) in enumerate(self._data.items()):
                if file_of(data) is None:
                    line.connection.register(f"frame{place}", only(data, self._used[name]))
            return line

    def _give_back(self, line: Line, *, done: bool, cut: bool) -> None:
        """A line that was cut is not used again; an engine that stumbled might refuse all after."""
        with self._lock:
            if not done and not cut and self._connection is line.engine:
                self._connection, self._free, self._copies = None, [], None
            elif done and not cut and self._connection is line.engine:
                self._free.append(line)

    def _require_key(self, table: str, mark: Mark | None) -> None:
        """Rely on no key that repeats in this state. Tables with a declared key are public."""
        if self._tables[table].key and self._keyed.get(table, ...) != mark:
            from noisegate.sources.duckdb.public import require_key  # noqa: PLC0415

            require_key(self._tables[table], self._types[table], self._view(table), self._run)
            self._keyed[table] = mark

    def _require_owners(self) -> None:
        """Ids must be whole numbers or text: anything else could make two of them one."""
        for table in self._tables.values():
            for name, column in table.columns.items():
                stored = KIND_OF.get(self._types[table.name].get(name, ""))
                if stored is not None and not column.hidden and column.kind not in READ_AS[stored]:
                    raise PolicyError(
                        f"{name!r} of {table.name!r} is stored as {stored.value}, and cannot be "
                        f"read as {column.kind.value}.",
                        fix=f"Declare it as {' or '.join(k.value for k in READ_AS[stored])}.",
                    )
            at = table.name
            for step in table.path:
                self._require_id(at, step.column)
                self._require_id(step.table, step.key)
                at = step.table
            if table.unit is not None and table.unit.column is not None:
                self._require_id(at, table.unit.column)

    def _require_id(self, table: str, column: str) -> None:
        kind = self._types[table][column]
        if KIND_OF[kind] not in _OWNER_KINDS:
            raise PolicyError(
                f"{column!r} of {table!r} is {kind}, which cannot name a unit.",
                fix="Store it as text or as a whole number.",
                about="id",
            )

    def _engine(self) -> duckdb.DuckDBPyConnection:
        """The engine of this process: a forked child opens one of its own."""
        if self._connection is None:
            self._connection = self._connect()
        return self._connection

    def _connect(self) -> duckdb.DuckDBPyConnection:
        connection = duckdb.connect(":memory:")
        origins, self._types = stored_types(connection, self._data)
        self._used = {
            name: used_columns(name, self._tables, self._types[name]) for name in self._tables
        }
        self._require_owners()
        with suppress(duckdb.Error):
            vouched = any(table.views for table in self._tables.values())
            if vouched or any(map(is_database, self._data.values())):
                from noisegate.sources.duckdb.views import require_stored_rows  # noqa: PLC0415

                require_stored_rows(connection, self._data, self._tables, self._used)
            connection.execute(f"SET memory_limit = {quoted(self._memory)}")
            connection.execute(f"SET temp_directory = {quoted(self._spill)}")
            connection.execute("SET max_temp_directory_size = '64GB'")
            connection.execute("SET preserve_insertion_order = false")
            shown = connection.execute("SELECT current_setting('enable_progress_bar')").fetchone()
            if shown != (False,):  # it tells how far rows are; some Jupyters have none to turn off
                connection.execute("SET enable_progress_bar = false")
            for setting in self._settings():
                connection.execute(setting)
            lock_down(connection, [*filter(None, map(file_of, self._data.values()))])
            for place, (name, origin) in enumerate(origins.items()):
                if file_of(data := self._data[name]) is None:  # no column beyond those in use
                    connection.register(origin, only(data, self._used[name]))
                names = [self._read(name, column) for column in self._used[name]]
                read = exp.select(*(names or [exp.alias_(exp.true(), "row")])).sql("duckdb")
                connection.execute(f"CREATE VIEW {base_view(place)} AS {read} FROM {origin}")
            self._free = [Line(connection, connection)]
            return connection
        raise SourceError(UNREACHABLE, fix=GIVE)

    def _settings(self) -> Iterator[str]:
        """How the engine plans. A cast that is tried must not become a reader's own strict type.

        Where every row is one unit, keys are grouped by as they were read, mostly dictionaries.
        Rows of units with whole numbers in a small range are added up in an array, by number: in
        half the time of a hash table, but each thread has a cell for each number in the range. So
        there may be a cell for 16 bytes of the largest file, and 4 million for all threads.
        """
        slow, cells = ["type_pushdown"], 12  # as a power of two: the engine's own limit
        if any(table.unit is not None and table.unit.column for table in self._tables.values()):
            size = max(mark[0] if mark else 0 for mark in map(mark_of, self._data.values()))
            most = 22 - (os.cpu_count() or 1).bit_length()
            cells = max(cells, min(most, (size // 16).bit_length()))
        else:
            slow.append("compressed_materialization")
            cells = 0
        yield f"SET GLOBAL perfect_ht_threshold = {cells}"  # of all lines
        yield f"SET disabled_optimizers = {quoted(','.join(slow))}"

    def _read(self, table: str, column: str) -> exp.Expr:
        """A stored column. Text is compared letter by letter, whatever collation it came with."""
        if self._types[table][column] != "VARCHAR" or not is_database(self._data[table]):
            return col(column)
        plain = exp.Collate(this=col(column), expression=exp.Var(this="C"))
        return exp.alias_(plain, exp.to_identifier(column, quoted=True))

    def _try_once(self, table: str) -> None:
        """Read what a row could make unreadable. A partly readable file is not a table."""
        types, columns = self._types[table], self._tables[table].columns
        odd = [name for name in self._used[table] if types[name] not in _SAFE_TYPES]
        if not odd and not is_text(self._data[table]):
            return
        # lengths in letters, because to count alone the engine would not look at the texts
        looks: list[exp.Expr] = [
            exp.Sum(this=exp.Length(this=col(name))) for name in odd if types[name] == "VARCHAR"
        ]
        looks += [
            exp.Count(this=base_value(columns[name], types[name], col(name), DUCKDB))
            for name in odd
            if name in columns
        ]
        query = exp.select(exp.Count(this=exp.Star()), *looks).from_(self._view(table))
        with suppress(duckdb.Error):
            self._engine().execute(query.sql(dialect="duckdb")).fetchall()
            return
        raise SourceError(
            "The file cannot be read completely: a line has too many or too few columns, a quote "
            "is not closed, or a text is not UTF-8.",
            fix="Write the file again, preferably as Parquet.",
            about="unreadable",
        )


_living: "WeakSet[DuckDBSource]" = WeakSet()
_inherited: list[object] = []  # to close a connection is to wait for its threads


def _arrow(connection: duckdb.DuckDBPyConnection, text: str) -> "pa.Table":
    return connection.sql(text).to_arrow_table()


def _numpy(connection: duckdb.DuckDBPyConnection, text: str) -> dict[str, NDArray[Any]]:
    return connection.execute(text).fetchnumpy()


def _leave_to_the_parent() -> None:
    """A forked child has a copy of the engine without its threads, and of locks that are held."""
    for source in list(_living):
        _inherited.extend((source._connection, source._free))  # noqa: SLF001 - this room
        source._lock, source._turns = threading.Lock(), threading.Semaphore(_AT_ONCE)  # noqa: SLF001
        source._connection, source._free, source._copies = None, [], None  # noqa: SLF001
        source._room = Room()  # noqa: SLF001


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_to_the_parent)


def _remove(folder: str, process: int) -> None:
    """Clear away what the engine spilled; a forked child leaves that to its parent."""
    if os.getpid() == process:
        shutil.rmtree(folder, ignore_errors=True)
