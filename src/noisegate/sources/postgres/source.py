"""Tables of a Postgres server: one statement for a question, whole numbers come back.

Claim: what a statement returns is what the same tally is on DuckDB, and moves by at most the
    tally's sensitivity. Why: the statement is the same tree (`sources/writing`), its words are
    total (`dialect.py`, `doubles.py`), and it reads the tables as they are at one moment. Each
    question locks them against changes of their form and compares that with what was opened: a
    table that has become a view, or a column that has another type, is refused before its rows are
    read. A lock does not keep partitions from being attached, so the form is compared once more
    before what was found is given out. `still` is one such transaction for many questions.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar, final
from weakref import WeakSet

import numpy as np
from sqlglot import exp

from noisegate.algebra.blocks import Blocks
from noisegate.algebra.expression import domain_of
from noisegate.algebra.relation import keyed, sample_of
from noisegate.algebra.schema import schema_of
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
from noisegate.errors import DEBUG, NoisegateError, SourceError
from noisegate.privacy.domain import Key, TableDomain
from noisegate.sources.postgres.dialect import POSTGRES
from noisegate.sources.postgres.found import whole_columns
from noisegate.sources.postgres.link import Link, Once
from noisegate.sources.postgres.opening import checked
from noisegate.sources.postgres.server import (
    AGAIN,
    UNREACHABLE,
    Place,
    hold,
    number_of,
    stored_tables,
    told,
    url_of,
)
from noisegate.sources.postgres.statements import (
    cells_statement,
    keys_list,
    marginals_statement,
    whole_rows,
)
from noisegate.sources.source import SUM_MAX, Batch, Held, HeldCells, Source, Used, Whole
from noisegate.sources.writing.relations import Coins, RelationWriter, base_view
from noisegate.sources.writing.tallies import (
    distinct_query,
    keys_query,
    rows_query,
    sums_query,
    values_query,
)
from noisegate.sources.writing.words import as_, col, shown_value

if TYPE_CHECKING:
    import psycopg
    import pyarrow as pa

Found = TypeVar("Found")
_AMISS: Final = "42"  # a name that is not there, or no right to it: whatever the rows are
_WRITTEN_MAX: Final = 128  # statements that are kept


@final
class PostgresSource(Source):
    """Tables of one database, read over one connection at a time."""

    def __init__(
        self,
        data: Mapping[str, Place],
        tables: Mapping[str, TableDomain],
        *,
        seconds: float = 3600,
    ) -> None:
        self._tables = tables
        self._data = {name: data[name] for name in tables}
        self._link, self._written = Link(url_of(self._data), seconds=seconds), dict[str, str]()
        self._coins: Coins | None = None
        self._once: Once | None = None  # the transaction that all questions are asked in
        self._able = set[str]()  # tallies that were found to have words
        with told(), self._link.lock:
            connection = self._link.begun()
            self._form = stored_tables(connection, self._data)
            self._server = number_of(connection)
            connection.execute("ROLLBACK")
            self._types = checked(self._form, self._data, tables)
        _living.add(self)

    def sums(self, tally: Sums) -> Whole:  # noqa: D102 - see Source
        shape = tuple(grouping.size for grouping in tally.by)
        names = [f"s{place}" for place in range(len(tally.terms))]
        places = [f"i{place}" for place in range(len(tally.by))]
        found = self._whole(tally, [*places, *names])
        return np.stack([_filled(found, len(shape) + n, shape) for n in range(len(names))])

    def marginals(self, tally: Marginals) -> list[Whole]:  # noqa: D102 - see Source
        used = sorted({place for each in tally.sets for place in each})
        by = tuple(tally.by[place] for place in used)
        sets = tuple(tuple(used.index(place) for place in each) for each in tally.sets)
        asked = replace(tally, by=by, sets=sets)
        names = [*(f"i{place}" for place in range(len(by))), "v"]
        found = self._whole(asked, names)
        return [_table_of(found, each, asked) for each in sets]

    def values(self, tally: Values) -> list[Whole]:  # noqa: D102 - see Source
        places = [f"i{place}" for place in range(len(tally.by))]
        found = self._whole(tally, [*places, "v"])
        if not tally.by:
            return [found[0]]
        cells = _cells_of(found, tuple(grouping.size for grouping in tally.by))
        order = np.argsort(cells, kind="stable")
        bounds = np.searchsorted(cells[order], np.arange(1, tally.cells))
        return np.split(found[-1][order], bounds)

    def distinct(self, tally: Distinct) -> Whole:  # noqa: D102 - see Source
        shape = tuple(grouping.size for grouping in tally.by)
        places = [f"i{place}" for place in range(len(tally.by))]
        found = self._whole(tally, [*places, "s0"])
        return np.stack([_filled(found, len(shape), shape)])

    def keys(self, tally: Keys) -> Held:  # noqa: D102 - see Source
        text = self._statement(tally, lambda: POSTGRES.text(self._placed(self._query(tally))))
        rows = self._run(lambda connection: connection.execute(text).fetchall())
        counts = np.array([row[-1] for row in rows], np.int64)

        def take(places: Whole) -> list[tuple[Key, ...]]:
            return [rows[place][:-1] for place in places.tolist()]

        return Held(counts=counts, take=take)

    def cells(self, tally: Cells) -> HeldCells:  # noqa: D102 - see Source
        high, low, counts = self._whole(tally, ["h", "c", "n"])
        cells = (high.astype(np.uint64) << np.uint64(32)) | low.astype(np.uint64)
        order = np.argsort(cells)
        return HeldCells(cells=cells[order], counts=counts[order])

    def rows(self, tally: Rows, use: Callable[[Iterator[Batch]], Used]) -> Used:  # noqa: D102 - see Source
        names = [f"i{place}" for place in range(len(tally.by))]
        names += [f"e{place}" for place in range(len(tally.terms))]
        owned = self._writer(tally).over(tally.relation).is_owned
        names += ["w"] if tally.rows_per_unit is not None and owned else []
        text = self._statement(tally, lambda: self._copied(tally, names))
        first, columns = len(tally.by), len(tally.terms)

        def batches(stream: Iterator[list[Whole]]) -> Iterator[Batch]:
            for held in stream:
                narrow = [column.astype(np.int32) for column in held]
                yield Batch(
                    np.stack(narrow[first : first + columns], axis=1),
                    narrow[0] if first else np.zeros(len(narrow[-1]), np.int32),
                    narrow[-1] if "w" in names else None,
                )

        return self._run(lambda c: use(batches(_streamed(c, text, len(names)))))

    @contextmanager
    def sample(self, probability: Fraction, key: str) -> Iterator["PostgresSource"]:
        """The rows of those units whose coin shows heads; see `sources/duckdb/sample.py`.

        A unit's coin is the hash of the key, its id space and its name, the same in every reading.
        Rows that are units have no name here, and nowhere to be written down.
        """
        for table in self._tables.values():
            if table.unit is not None and table.unit.column is None:
                raise POSTGRES.refusal(f"One sample of {table.name!r}, whose rows are units,")
        found = copy(self)
        found._written, found._coins = {}, Coins(probability, key)  # noqa: SLF001
        try:
            yield found
        finally:
            found._written.clear()  # noqa: SLF001 - its statements hold coins
            found._coins = None  # noqa: SLF001

    @contextmanager
    def still(self) -> Iterator["PostgresSource"]:
        """The tables at one moment, in one transaction of its own connection; see `Source.still`.

        A transaction that is lost is not begun again: its moment is gone, and every later question
        is refused. Forms cannot change before it ends, since its locks last as long.
        """
        if self._once is not None:
            yield self
            return
        found = copy(self)
        with told():
            found._once = once = self._link.once()  # noqa: SLF001
        _living.add(found)
        try:
            found._run(self._hold)  # noqa: SLF001
            yield found
        finally:
            once.drop()

    def require(self, tally: "Tally | Blocks") -> None:
        """Refuse what has no words here, by writing it. Reads nothing."""
        if isinstance(tally, Blocks):
            raise POSTGRES.refusal("Running programs on blocks of rows")
        if sample_of(tally.relation) is not None:
            tally = replace(tally, relation=keyed(tally.relation, "0" * 64))
        if (name := repr(tally)) not in self._able:
            POSTGRES.text(self._listed(tally))
            if len(self._able) >= _WRITTEN_MAX:
                self._able.clear()
            self._able.add(name)

    def lies_in(self, table: str) -> frozenset[str]:
        """The table itself and all its partitions, by the numbers that the server gave them."""
        if not self._server:
            return frozenset()
        return frozenset(f"{self._server}#{oid}" for oid in self._form[table].parts)

    def public(self, table: str) -> "pa.Table":
        """All rows of a public table: exact and free."""
        from noisegate.sources.postgres.opening import require_public, shown_rows  # noqa: PLC0415

        domain = self._tables[table]
        require_public(domain)
        columns = [column for column in domain.columns.values() if not column.hidden]
        shown = [
            as_(shown_value(column, self._types[table][column.name], col(column.name), POSTGRES),
                exp.to_identifier(column.name, quoted=True))
            for column in columns
        ]  # fmt: skip
        query = exp.select(*(shown or [as_(exp.true(), "row")]))
        text = POSTGRES.text(self._placed(query.from_(base_view(self._place(table)))))
        rows = self._run(lambda connection: connection.execute(text).fetchall())
        return shown_rows(columns, rows)

    def _query(self, tally: Tally) -> exp.Query:
        rules: dict[type, Callable[[Any, RelationWriter], exp.Query]] = {
            Sums: partial(sums_query, wide=True),
            Marginals: marginals_statement,
            Values: values_query,
            Keys: keys_query,
            Distinct: distinct_query,
            Cells: cells_statement,
            Rows: rows_query,
        }
        return rules[type(tally)](tally, self._writer(tally))

    def _whole(self, tally: Tally, names: Sequence[str]) -> list[Whole]:
        """The whole numbers of a tally by column."""
        text = self._statement(tally, lambda: self._copied(tally, names))
        parts = self._run(lambda c: list(_streamed(c, text, len(names))))
        if not parts:
            return [np.zeros(0, np.int64) for _ in names]
        return [np.concatenate(column) for column in zip(*parts, strict=True)]

    def _listed(self, tally: Tally) -> exp.Query:
        """The statement with its lists of keys."""
        query, schema = self._query(tally), schema_of(tally.relation)
        listed = [each for each in tally.by if isinstance(each, Grouping)]
        for place, grouping in reversed(list(enumerate(listed))):
            kind = domain_of(grouping.expression, schema).kind
            keys_list(query, place, grouping, kind)
        return query

    def _copied(self, tally: Tally, names: Sequence[str]) -> str:
        """The text of a statement that copies these columns as 64-bit numbers."""
        text = POSTGRES.text(self._placed(whole_rows(self._listed(tally), names)))
        return f"COPY ({text}) TO STDOUT (FORMAT BINARY)"

    def _statement(self, tally: Tally, write: Callable[[], str]) -> str:
        """The text of a tally, kept by how it is written out; the coins of a sample are not."""
        name = repr(tally)
        text = self._written.get(name)
        if text is None:
            text = write()
            if sample_of(tally.relation) is None:
                if len(self._written) >= _WRITTEN_MAX:
                    self._written.clear()
                self._written[name] = text
        return text

    def _writer(self, tally: "Tally | Blocks") -> RelationWriter:
        return RelationWriter(
            self._tables, self._types, fields_used(tally),
            lambda table: base_view(self._place(table)), self._coins, dialect=POSTGRES,
        )  # fmt: skip

    def _place(self, table: str) -> int:
        return list(self._tables).index(table)

    def _placed(self, query: exp.Expr) -> exp.Expr:
        """The statement with the tables where they are."""
        places = {base_view(n): place for n, place in enumerate(self._data.values())}
        for table in list(query.find_all(exp.Table)):
            if (place := places.get(table.name)) is not None:
                table.set("this", exp.to_identifier(place.table, quoted=True))
                table.set("db", exp.to_identifier(place.schema, quoted=True))
        return query

    def _run(self, work: "Callable[[psycopg.Connection[Any]], Found]") -> Found:
        """What the work finds in the tables as they were opened; else a refusal."""
        import psycopg  # noqa: PLC0415 - an extra

        refusal: NoisegateError | None = None
        done = False
        link = self._link if self._once is None else self._once
        with link.lock:
            try:
                found = self._within(work)
                done = True
            except SourceError as known:
                refusal = known
            except psycopg.Error as error:  # its words may quote rows: they are a steward's
                if os.environ.get(DEBUG):
                    raise
                if (error.sqlstate or "").startswith(_AMISS):
                    refusal = _changed()
            finally:
                if not done:
                    link.drop()
        if done:
            return found
        raise refusal or SourceError(UNREACHABLE, fix=AGAIN)

    def _within(self, work: "Callable[[psycopg.Connection[Any]], Found]") -> Found:
        if self._once is None:
            connection = self._link.begun()
            self._hold(connection)
            found = work(connection)
            connection.execute("ROLLBACK")
            self._require_form(self._link)
            return found
        going_on = self._once.going_on()
        if going_on is None:
            raise SourceError(
                "The transaction that all questions of the release are asked in has ended.",
                fix="Nothing more was released; ask for the whole of it again.",
                about="moment",
            )
        found = work(going_on)
        with self._link.lock:
            self._require_form(self._link)
        return found

    def _hold(self, connection: "psycopg.Connection[Any]") -> None:
        """Lock the tables, and refuse if they are not as they were opened."""
        hold(connection, self._data, self._form)
        if stored_tables(connection, self._data) != self._form:
            raise _changed()

    def _require_form(self, link: Link) -> None:
        """The same as of now, in a transaction of its own: another would not see what is new."""
        done = False
        try:
            connection = link.begun()
            found = stored_tables(connection, self._data)
            connection.execute("ROLLBACK")
            done = True
        finally:
            if not done:
                link.drop()
        if found != self._form:
            raise _changed()


_living: "WeakSet[PostgresSource]" = WeakSet()


def _leave_to_the_parent() -> None:
    for source in list(_living):
        source._link.leave()  # noqa: SLF001 - this room
        if source._once is not None:  # noqa: SLF001
            source._once.leave()  # noqa: SLF001


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_to_the_parent)


def _changed() -> SourceError:
    return SourceError(
        "The form of a table has changed since the gate was opened.",
        fix="Nothing was released; let the steward compare the policy with the database, and open "
        "it again.",
        about="drift",
    )


def _streamed(connection: Any, text: str, columns: int) -> Iterator[list[Whole]]:  # noqa: ANN401
    with connection.cursor() as cursor, cursor.copy(text) as copied:
        yield from whole_columns(copied, columns)


def _cells_of(found: Sequence[Whole], shape: tuple[int, ...]) -> Whole:
    if not shape:
        return np.zeros(1, np.int64)
    return np.ravel_multi_index(tuple(found[: len(shape)]), shape).astype(np.int64)


def _filled(found: Sequence[Whole], column: int, shape: tuple[int, ...]) -> Whole:
    """A number for each cell, 0 where the engine found none."""
    cells = np.zeros(int(np.prod(shape)), np.int64)
    cells[_cells_of(found, shape)] = found[column]
    return cells


def _table_of(found: Sequence[Whole], each: tuple[int, ...], tally: Marginals) -> Whole:
    """The table of one set: rows whose other columns were folded, and whose keys are listed."""
    keep = np.ones(found[-1].size, np.bool_)
    for place, grouping in enumerate(tally.by):
        at = found[place]
        keep &= (at >= 0) & (at < grouping.size) if place in each else at < 0
    shape = tuple(tally.by[place].size for place in each)
    cells = np.zeros(int(np.prod(shape)), np.int64)
    if keep.any():
        cells[_cells_of([found[place][keep] for place in each], shape)] = found[-1][keep]
    return np.clip(cells, -SUM_MAX, SUM_MAX)
