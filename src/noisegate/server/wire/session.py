"""One session: messages in, answers out. What it holds ends with it."""

from collections.abc import Sequence
from typing import Any, Final, TypeAlias, final

from noisegate.errors import NoisegateError, Unauthenticated, Unsupported, stumbled
from noisegate.frozen import dataclass
from noisegate.server.wire import commands, messages, types
from noisegate.server.wire.answering import Answering, Columns, Outcome, copied
from noisegate.server.wire.binding import Declared, literal, samples, type_of
from noisegate.server.wire.connection import Connection, Gone, Limits
from noisegate.server.wire.messages import Bind, Close, Describe, Execute, Malformed, Parse, Query
from noisegate.server.wire.refusals import (
    FailedTransaction,
    NoCursor,
    NoStatement,
    Taken,
    TooMuch,
    error_fields,
)
from noisegate.server.wire.rewriting import parsed
from noisegate.server.wire.settings import REPORTED
from noisegate.server.wire.statements import Asked, read
from noisegate.server.wire.types import Type

Prepared: TypeAlias = "tuple[commands.Command, Asked | None]"
_ENDING: Final = ("COMMIT", "ROLLBACK")


@final
@dataclass(slots=True)
class Statement:
    """A prepared statement and the types of its parameters."""

    command: commands.Command
    asked: Asked | None
    kinds: Sequence[Type]
    columns: Columns | None = None


@final
@dataclass(slots=True)
class Portal:
    """A statement with its values; its rows, once it has run, and how many were sent."""

    command: commands.Command
    asked: Asked | None
    formats: Sequence[int] = ()
    columns: Columns | None = None
    outcome: Outcome | None = None
    sent: int = 0


@final
class Session:
    """Reads messages until the client says good-bye."""

    def __init__(self, connection: Connection, answering: Answering, limits: Limits) -> None:
        self._out, self._answering, self._limits = connection, answering, limits
        self._settings = answering.settings
        self._statements: dict[str, Statement] = {}
        self._portals: dict[str, Portal] = {}
        self._status, self._skipping = "I", False
        self._declared = Declared(answering.twin.tables)

    async def run(self) -> None:
        """All messages, one after the other."""
        while True:
            kind, data = await self._out.next()
            if kind == b"X":
                return
            if self._skipping and kind != b"S":
                continue
            self._answering.busy = True
            try:
                if not await self._guarded(kind, data):
                    return
            finally:
                self._answering.busy = False

    async def _guarded(self, kind: bytes, data: bytes) -> bool:
        """Do as a message says; what is refused is said. Whether the session goes on."""
        try:
            await self._message(kind, data)
        except (NoisegateError, Malformed) as error:
            return await self._refused(error, kind)
        except RecursionError:
            nested = Unsupported("The SQL is nested too deeply.", fix="Simplify it.", about="size")
            return await self._refused(nested, kind)
        except Gone:
            raise
        except Exception as error:  # noqa: BLE001 - one statement fails, not the session
            return await self._refused(stumbled(error), kind)
        return True

    async def _refused(self, error: Exception, kind: bytes) -> bool:
        fatal = isinstance(error, Unauthenticated)
        steward = self._answering.view.caller.is_steward
        self._out.write(messages.said(b"E", error_fields(error, steward=steward, fatal=fatal)))
        if self._status == "T":
            self._status = "E"
        if kind == b"Q":
            self._ready()
        elif kind != b"S":
            self._skipping = True
        await self._out.flush()
        return not fatal

    def _ready(self) -> None:
        self._out.write(messages.ready(self._status))

    async def _message(self, kind: bytes, data: bytes) -> None:  # noqa: C901 - one for each
        match messages.read(kind, data):
            case Query(sql):
                await self._simple(sql)
            case Parse(name, sql, kinds):
                await self._parse(name, sql, kinds)
            case Bind() as bind:
                self._bind(bind)
            case Describe("S", name):
                await self._describe_statement(self._statement(name))
            case Describe(_, name):
                portal = self._portal(name)
                self._require_alive(portal.command)
                portal.columns = portal.columns or await self._columns(portal)
                self._tell_columns(portal.columns, portal.formats)
            case Execute(name, rows):
                self._require_alive((portal := self._portal(name)).command)
                await self._perform(portal, max(0, rows), described=True)
            case Close(kind_, name):
                self._forget(kind_, name)
                self._out.write(messages.CLOSED)
            case messages.Plain(b"S"):
                await self._sync()
            case messages.Plain(b"H"):
                await self._out.flush()
            case messages.Password():
                raise Malformed("You are known already.")
            case _:
                pass  # COPY data that nobody waits for, as in Postgres

    async def _sync(self) -> None:
        self._skipping = False
        if self._status == "I":
            self._portals.clear()
        self._ready()
        await self._out.flush()

    # what a statement is

    def _prepared(self, sql: str) -> Prepared:
        command = commands.command_of(sql)
        if isinstance(
            command, commands.Question | commands.Explain | commands.Copy | commands.Declare
        ):
            answering = self._answering
            return command, read(command.sql, answering.twin.tables, answering.view.name)
        return command, None

    def _require_alive(self, command: commands.Command) -> None:
        """In a failed transaction only its end is heard."""
        ends = isinstance(command, commands.Done) and command.tag in _ENDING
        if self._status == "E" and not ends:
            raise FailedTransaction(
                "The transaction has failed; nothing is done until it ends.", fix="ROLLBACK."
            )

    # the simple protocol

    async def _simple(self, sql: str) -> None:
        found = commands.split(sql)
        if not found:
            self._out.write(messages.EMPTY)
        for each in found:
            command, asked = await self._answering.off(self._prepared, each)
            self._require_alive(command)
            if asked is not None and asked.parameters:
                raise Unsupported("There is no value for $1.", fix="Prepare it.", about="parameter")
            portal = Portal(command, asked)
            await self._perform(portal, 0, described=False)
        if self._status == "I":
            self._portals.clear()
        self._ready()
        await self._out.flush()

    # the extended protocol

    async def _parse(self, name: str, sql: str, given: Sequence[int]) -> None:
        if name and name in self._statements:
            raise Taken(f"There is a statement {name!r} already.", fix="Close it first.")
        if len(self._statements) >= self._limits.statements:
            raise TooMuch("Too many statements are prepared.", fix="Close some, or DISCARD ALL.")
        found = commands.split(sql)
        if len(found) > 1:
            raise Unsupported("Only one statement can be prepared.", fix="Send them one by one.")
        statement = await self._answering.off(self._statement_of, found[0] if found else "", given)
        self._require_alive(statement.command)
        self._statements[name] = statement
        self._out.write(messages.PARSED)

    def _statement_of(self, sql: str, given: Sequence[int]) -> Statement:
        command, asked = self._prepared(sql)
        if asked is None:
            return Statement(command, None, [types.KNOWN.get(oid, types.TEXT) for oid in given])
        if asked.tree is None and asked.form == "catalogue":
            asked = Asked(form=asked.form, sql=asked.sql, tree=parsed(asked.sql), terms=asked.terms)
        if asked.tree is None:
            return Statement(command, asked, ())
        facts = self._answering.catalogue if asked.form == "catalogue" else self._declared
        return Statement(command, asked, type_of(asked.tree, facts, given))

    def _statement(self, name: str) -> Statement:
        if name not in self._statements:
            raise NoStatement(f"There is no statement {name!r}.", fix="Prepare it first.")
        return self._statements[name]

    def _portal(self, name: str) -> Portal:
        if name not in self._portals:
            raise NoCursor(f"There is no cursor {name!r}.", fix="Bind or declare it first.")
        return self._portals[name]

    def _bind(self, bind: Bind) -> None:
        statement = self._statement(bind.statement)
        self._require_alive(statement.command)
        if bind.portal and bind.portal in self._portals:
            raise Taken(f"There is a cursor {bind.portal!r} already.", fix="Close it first.")
        if len(self._portals) >= self._limits.portals:
            raise TooMuch("Too many cursors are open.", fix="Close some.")
        values = _values(bind, statement.kinds)
        asked = statement.asked
        if asked is not None:
            asked = asked.bound({place: literal(each) for place, each in enumerate(values, 1)})
        self._portals[bind.portal] = Portal(
            statement.command, asked, bind.results, statement.columns
        )
        self._out.write(messages.BOUND)

    async def _describe_statement(self, statement: Statement) -> None:
        self._require_alive(statement.command)
        command, asked = statement.command, statement.asked
        if asked is not None and asked.tree is not None and statement.kinds:
            facts = self._answering.catalogue if asked.form == "catalogue" else self._declared
            tried = samples(asked.tree, facts, statement.kinds)
            asked = asked.bound({place: literal(each) for place, each in enumerate(tried, 1)})
        statement.columns = await self._columns(Portal(command, asked))
        self._out.write(messages.parameters([kind.oid for kind in statement.kinds]))
        self._tell_columns(statement.columns, ())

    def _tell_columns(self, columns: Columns | None, formats: Sequence[int]) -> None:
        if columns is None:
            self._out.write(messages.NO_DATA)
            return
        told = [(name, kind.oid, kind.size) for name, kind in columns]
        self._out.write(messages.columns(told, _formats(formats, len(columns))))

    async def _columns(self, portal: Portal) -> Columns | None:
        """The columns that a statement would have: free, whatever it costs."""
        match portal.command:
            case commands.Question():
                assert portal.asked is not None  # noqa: S101 - as it was prepared
                return await self._answering.columns(portal.asked)
            case commands.Explain() | commands.Show():
                return (await self._rows(portal)).columns
            case commands.Fetch(name) if name in self._portals:
                return await self._columns(self._portals[name])
        return None

    # what is done

    async def _perform(self, portal: Portal, most: int, *, described: bool) -> None:
        match portal.command:
            case commands.Nothing():
                self._out.write(messages.EMPTY)
            case commands.Done(tag, status):
                self._transact(tag, status)
            case commands.Setting():
                self._set(portal.command)
            case commands.Forget(kind, name, tag):
                self._forget(kind, name)
                self._out.write(messages.complete(tag))
            case commands.Declare(name):
                self._declare(name, portal)
            case commands.Fetch() as fetch:
                await self._fetch(fetch, portal, described=described)
            case commands.Copy() as copy:
                await self._copy(copy, portal)
            case _:
                await self._show(portal, most, described=described)

    async def _rows(self, portal: Portal) -> Outcome:
        """The rows of a portal: asked for once."""
        if portal.outcome is None:
            portal.outcome = await self._asked(portal)
            for notice in portal.outcome.notices:
                self._out.write(messages.said(b"N", notice.fields()))
        return portal.outcome

    async def _asked(self, portal: Portal) -> Outcome:
        answering = self._answering
        if isinstance(portal.command, commands.Show):
            return await self._setting(portal.command.name)
        assert portal.asked is not None  # noqa: S101 - as it was prepared
        if isinstance(portal.command, commands.Explain):
            return await answering.plan(portal.asked, as_json=portal.command.json)
        return await answering.outcome(portal.asked, portal.columns)

    async def _show(self, portal: Portal, most: int, *, described: bool) -> None:
        outcome = await self._rows(portal)
        if not described:
            self._tell_columns(outcome.columns, portal.formats)
        tag = "EXPLAIN" if isinstance(portal.command, commands.Explain) else "SELECT {}"
        tag = "SHOW" if isinstance(portal.command, commands.Show) else tag
        await self._send(portal, outcome, most, tag)

    async def _send(self, portal: Portal, outcome: Outcome, most: int, tag: str) -> None:
        """The next rows of a portal."""
        formats = _formats(portal.formats, len(outcome.columns))
        end = len(outcome.rows) if not most else min(len(outcome.rows), portal.sent + most)
        start, portal.sent = portal.sent, end
        for row in outcome.rows[start:end]:
            pairs = zip(row, outcome.columns, formats, strict=True)
            cells = [types.written(value, kind, form) for value, (_, kind), form in pairs]
            await self._out.write_all(messages.row(cells))
        left = most and end - start == most
        self._out.write(messages.SUSPENDED if left else messages.complete(tag.format(end - start)))

    async def _copy(self, copy: commands.Copy, portal: Portal) -> None:
        outcome = await self._rows(portal)
        self._out.write(messages.copy_out(len(outcome.columns), copy.code))
        for piece in copied(outcome, copy):
            await self._out.write_all(messages.copy_data(piece))
        self._out.write(messages.COPY_DONE + messages.complete(f"COPY {len(outcome.rows)}"))

    # cursors

    def _declare(self, name: str, portal: Portal) -> None:
        if name in self._portals:
            raise Taken(f"There is a cursor {name!r} already.", fix="Close it first.")
        if len(self._portals) >= self._limits.portals:
            raise TooMuch("Too many cursors are open.", fix="Close some.")
        self._portals[name] = Portal(commands.Question(""), portal.asked)
        self._out.write(messages.complete("DECLARE CURSOR"))

    async def _fetch(self, fetch: commands.Fetch, portal: Portal, *, described: bool) -> None:
        cursor = self._portal(fetch.name)
        outcome = await self._rows(cursor)
        if fetch.move:
            start = cursor.sent
            most = len(outcome.rows) if fetch.rows is None else start + fetch.rows
            cursor.sent = min(most, len(outcome.rows))
            self._out.write(messages.complete(f"MOVE {cursor.sent - start}"))
            return
        if not described:
            self._tell_columns(outcome.columns, portal.formats)
        count = len(outcome.rows) - cursor.sent
        count = count if fetch.rows is None else min(count, fetch.rows)
        piece = Outcome(outcome.columns, outcome.rows[cursor.sent : cursor.sent + count])
        cursor.sent += count
        await self._send(Portal(fetch, None, portal.formats), piece, 0, "FETCH {}")

    def _forget(self, kind: str, name: str | None) -> None:
        held: dict[str, Any] = self._statements if kind == "S" else self._portals
        if name is None:
            held.clear()
        else:
            held.pop(name, None)

    # transactions and settings

    def _transact(self, tag: str, status: str | None) -> None:
        if tag == "COMMIT" and self._status == "E":
            tag = "ROLLBACK"
        if status == "I":
            self._portals.clear()
            for name in self._settings.end(committed=tag == "COMMIT"):
                self._out.write(messages.setting(name, self._settings.show(name)))
        elif status == "T":
            self._settings.begin()
        self._status = status or self._status
        self._out.write(messages.complete(tag))

    def _set(self, said: commands.Setting) -> None:
        told = self._settings.set(said.name, said.value, local=said.local)
        if said.tag == "DISCARD ALL":
            self._statements.clear()
            self._portals.clear()
        if told is not None:
            self._out.write(messages.setting(told, self._settings.show(told)))
        self._out.write(messages.complete(said.tag))

    async def _setting(self, name: str) -> Outcome:
        if name == "all":
            columns = (("name", types.TEXT), ("setting", types.TEXT), ("description", types.TEXT))
            return Outcome(columns, [(each, value, "") for each, value in self._settings.all()])
        if name == "noisegate.remaining":
            value = await self._answering.remaining()
        elif name == "noisegate.spent":
            value = str(float(self._settings.spent))
        else:
            value = self._settings.show(name)
        shown = next((each for each in REPORTED if each.lower() == name), name)
        return Outcome(((shown, types.TEXT),), [(value,)])


def _formats(said: Sequence[int], count: int) -> list[int]:
    """The format of each column: none said is text, one is for all."""
    if len(said) <= 1:
        return list(said or (messages.TEXT,)) * count
    if len(said) != count:
        raise Malformed("There are not as many formats as columns.")
    return list(said)


def _values(bind: Bind, kinds: Sequence[Type]) -> list[Any]:
    if len(bind.values) != len(kinds):
        raise Malformed("There are not as many values as parameters.")
    forms = _formats(bind.formats, len(kinds))
    triples = zip(bind.values, kinds, forms, strict=True)
    return [types.read_value(raw, kind.oid, form) for raw, kind, form in triples]
