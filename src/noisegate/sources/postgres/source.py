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
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from copy import copy
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar, final
from weakref import WeakSet

import numpy as np
from sqlglot import exp

from noisegate.algebra.relation import Table, all_of
from noisegate.algebra.tally import Grouping, Keys, Tally, Values
from noisegate.errors import DEBUG, NoisegateError, SourceError
from noisegate.privacy.domain import Key, Kind, TableDomain
from noisegate.sources.asked.opening import (
    NOT_CHARGED,
    NOT_PLANNED,
    require_public,
    shown_rows,
)
from noisegate.sources.asked.pool import Pool
from noisegate.sources.asked.source import AskedSource
from noisegate.sources.asked.statements import is_grouped, whole_rows
from noisegate.sources.postgres.dialect import POSTGRES
from noisegate.sources.postgres.found import packed, typed_rows, whole_columns
from noisegate.sources.postgres.link import Link, Once, cut
from noisegate.sources.postgres.opening import checked
from noisegate.sources.postgres.pages import by_ranges, in_ranges
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
    keys_list,
)
from noisegate.sources.source import Held, Used, Whole
from noisegate.sources.stopping import cuttable, require_going_on
from noisegate.sources.writing.relations import base_view

if TYPE_CHECKING:
    import psycopg
    import pyarrow as pa

Found = TypeVar("Found")
_AMISS: Final = "42"  # a name that is not there, or no right to it: whatever the rows are
_WRITTEN_MAX: Final = 128  # statements that are kept


@final
class PostgresSource(AskedSource):
    """Tables of one database; each question is asked over a connection of its own."""

    dialect = POSTGRES

    def __init__(
        self,
        data: Mapping[str, Place],
        tables: Mapping[str, TableDomain],
        *,
        seconds: float = 3600,
    ) -> None:
        self._data = {name: data[name] for name in tables}
        self._url, self._seconds = url_of(self._data), seconds
        self._links = Pool(partial(Link, self._url, seconds=seconds))
        self._once: Once | None = None  # the transaction that all questions are asked in
        with told(), self._links.taken() as link:
            connection = link.begun()
            self._form = stored_tables(connection, self._data)
            self._server = number_of(connection)
            connection.execute("ROLLBACK")
            super().__init__(tables, checked(self._form, self._data, tables))
        _living.add(self)

    def keys(self, tally: Keys) -> Held:  # noqa: D102 - see Source
        text = self._statement(tally, ())
        rows = self._run(lambda connection: connection.execute(text).fetchall())
        counts = np.array([row[-1] for row in rows], np.int64)

        def take(places: Whole) -> list[tuple[Key, ...]]:
            return [rows[place][:-1] for place in places.tolist()]

        return Held(counts=counts, take=take)

    def values(self, tally: Values) -> list[Whole]:
        """Those of rows of one table by its pages, where they are sent one by one."""
        text = self._by_pages(tally)
        if text is None:
            return super().values(tally)
        found = self._run(lambda connection: [v for (v,) in _copied(connection, text, 1)])
        return [np.concatenate([np.zeros(0, np.int64), *found])]

    def _text(self, tally: Tally) -> str:
        by_pages = self._by_pages(tally) if isinstance(tally, Values) else None
        return super()._text(tally) if by_pages is None else by_pages

    def _by_pages(self, tally: Values) -> str | None:
        """The statement; None where rows are not read so."""
        tables = {each.domain.name for each in all_of(tally.relation) if type(each) is Table}
        if tally.by or self._coins is not None or is_grouped(tally, self.dialect):
            return None
        if len(tables) != 1 or not self._form[name := tables.pop()].is_plain:
            return None
        query = whole_rows(self._query(tally), ["v"])
        if not in_ranges(query, base_view(self._place(name))):
            return None
        return by_ranges(self.dialect.text(self._placed(query)), self._form[name].oid)

    @contextmanager
    def still(self) -> Iterator[Self]:
        """The tables at one moment, in one transaction of its own connection; see `Source.still`.

        A transaction that is lost is not begun again: its moment is gone, and every later question
        is refused. Forms cannot change before it ends, since its locks last as long.
        """
        if self._once is not None:
            yield self
            return
        found = copy(self)
        with told():
            found._once = once = Once(self._url, seconds=self._seconds)  # noqa: SLF001
        _living.add(found)
        try:
            found._run(self._hold)  # noqa: SLF001
            yield found
        finally:
            once.drop()

    def lies_in(self, table: str) -> frozenset[str]:
        """The table itself and all its partitions, by the numbers that the server gave them."""
        if not self._server:
            return frozenset()
        return frozenset(f"{self._server}#{oid}" for oid in self._form[table].parts)

    def public(self, table: str) -> "pa.Table":
        """All rows of a public table: exact and free."""
        require_public(self._tables[table])
        columns = [each for each in self._tables[table].columns.values() if not each.hidden]
        text = self._shown(table)
        rows = self._run(lambda connection: connection.execute(text).fetchall())
        return shown_rows(columns, rows)

    def _parts(self, text: str, columns: int, use: Callable[[Iterator[list[Whole]]], Used]) -> Used:
        return self._run(lambda c: use(_copied(c, packed(text, columns), columns)))

    def _batches(
        self,
        text: str,
        kinds: Mapping[str, Kind],
        use: "Callable[[Iterator[pa.RecordBatch]], Used]",
    ) -> Used:
        return self._run(lambda c: use(typed_rows(c, text, kinds)))

    def _list_keys(self, query: exp.Query, place: int, grouping: Grouping, kind: Kind) -> None:
        keys_list(query, place, grouping, kind)

    def _placed(self, query: exp.Expr) -> exp.Expr:
        """The statement with the tables where they are."""
        places = {base_view(n): place for n, place in enumerate(self._data.values())}
        for table in list(query.find_all(exp.Table)):
            if (place := places.get(table.name)) is not None:
                table.set("this", exp.to_identifier(place.table, quoted=True))
                table.set("db", exp.to_identifier(place.schema, quoted=True))
        return query

    def _plan(self, text: str) -> None:
        """By EXPLAIN, which runs nothing, in a transaction of its own."""
        import psycopg  # noqa: PLC0415 - an extra

        done = False
        with self._links.taken() as link:
            try:
                connection = link.begun()
                with cuttable(partial(cut, connection), self._seconds) as asked:
                    connection.execute(f"EXPLAIN (COSTS OFF) {text}")
                    connection.execute("ROLLBACK")
                done = not asked.is_cut
            except psycopg.Error:
                if os.environ.get(DEBUG):
                    raise
            finally:
                if not done:
                    link.drop()
            if not done:
                require_going_on()
                with suppress(psycopg.Error):
                    self._require_form(link)
        if not done:
            raise SourceError(NOT_PLANNED, fix=NOT_CHARGED, about="plan")

    def _run(self, work: "Callable[[psycopg.Connection[Any]], Found]") -> Found:
        """What the work finds in the tables as they were opened; else a refusal."""
        import psycopg  # noqa: PLC0415 - an extra

        refusal: NoisegateError | None = None
        done = False
        with self._line() as link:
            try:
                found = self._within(link, work)
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
        require_going_on()
        raise refusal or SourceError(UNREACHABLE, fix=AGAIN)

    @contextmanager
    def _line(self) -> Iterator[Link | Once]:
        """A connection for this question alone, or that of its transaction, when it is its turn."""
        if self._once is not None:
            with self._once.lock:
                yield self._once
            return
        with self._links.taken() as link:
            yield link

    def _within(
        self, link: Link | Once, work: "Callable[[psycopg.Connection[Any]], Found]"
    ) -> Found:
        if isinstance(link, Link):
            connection = link.begun()
            with cuttable(partial(cut, connection), self._seconds) as asked:
                self._hold(connection)
                found = work(connection)
                connection.execute("ROLLBACK")
            if asked.is_cut:  # later than it mattered: the server may hear of it only now
                link.drop()
            self._require_form(link)
            return found
        going_on = link.going_on()
        if going_on is None:
            raise SourceError(
                "The transaction that all questions of the release are asked in has ended.",
                fix="Nothing more was released; ask for the whole of it again.",
                about="moment",
            )
        with cuttable(partial(cut, going_on), self._seconds) as asked:
            found = work(going_on)
        if asked.is_cut:
            link.drop()
        with self._links.taken() as beside:
            self._require_form(beside)
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
        for link in source._links.leave():  # noqa: SLF001 - this room
            link.leave()
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


def _copied(
    connection: "psycopg.Connection[Any]", text: str, columns: int
) -> Iterator[list[Whole]]:
    copying = f"COPY ({text}) TO STDOUT (FORMAT BINARY)"
    with connection.cursor() as cursor, cursor.copy(copying) as copied:
        yield from whole_columns(copied, columns)
