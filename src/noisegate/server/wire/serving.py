"""Listening: who comes in, how many at once, and who may stop what."""

import asyncio
import hmac
import ssl
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from secrets import randbits, token_bytes
from threading import Lock
from typing import Final, TypeVar, final

from noisegate.errors import NoisegateError, SpecError, Unauthenticated, stumbled
from noisegate.root import Hosted, made_up_rows
from noisegate.server.people import Caller
from noisegate.server.service import Service
from noisegate.server.settings import is_here
from noisegate.server.views import View
from noisegate.server.wire import messages, scram
from noisegate.server.wire.answering import Answering
from noisegate.server.wire.catalogue import Catalogue, Twin
from noisegate.server.wire.connection import Connection, Gone, Limits
from noisegate.server.wire.messages import Cancel, Malformed, Password, Startup, Upgrade
from noisegate.server.wire.refusals import NoEncryption, TooMany, error_fields
from noisegate.server.wire.session import Session
from noisegate.server.wire.settings import REPORTED, SessionSettings

T = TypeVar("T")
_WORKERS: Final = 8  # threads for planning, twins and the catalogue
_TURNS: Final = 3  # of them, for one person
_SLOW, _SLOWEST = 0.1, 2.0  # seconds that a wrong proof takes, doubled with each
_FAILED_MAX: Final = 10_000  # addresses that are remembered
_NAME_MAX: Final = 100
_LOOKS, _LOOK = 400, 0.05  # how often the end looks for answers that are waited for; seconds


async def listening(
    service: Service, host: str, port: int, tls: ssl.SSLContext | None = None,
    limits: Limits | None = None,
) -> "tuple[asyncio.Server, Wire]":  # fmt: skip
    """A server for Postgres clients; with ``tls``, only those on this machine may do without it."""
    if tls is None and not is_here(host):
        raise SpecError(
            "Without TLS, questions and answers would travel unencrypted.",
            fix="Give a certificate, or listen on 127.0.0.1.",
            about="tls",
        )
    wire = Wire(service, tls, limits or Limits())
    return await asyncio.start_server(wire.connected, host, port), wire


async def run_wire(service: Service, host: str, port: int, tls: ssl.SSLContext | None) -> None:
    """Listen until this is cancelled; then those who wait for an answer get it first."""
    server, wire = await listening(service, host, port, tls)
    try:
        await asyncio.Event().wait()
    finally:
        server.close()
        await wire.finish()


@final
class Wire:
    """All connections of one server."""

    def __init__(self, service: Service, tls: ssl.SSLContext | None, limits: Limits) -> None:
        self._service, self._tls, self._limits = service, tls, limits
        self._pool = ThreadPoolExecutor(_WORKERS, thread_name_prefix="noisegate-wire")
        self._sessions: dict[int, tuple[bytes, Answering]] = {}
        self._failed: dict[str, int] = {}  # wrong proofs in a row, by address
        self._persons: Counter[str] = Counter()
        self._turns: dict[str, asyncio.Semaphore] = {}
        self._homes: dict[str, tuple[Catalogue, Twin]] = {}
        self._open, self._lock = 0, Lock()

    async def finish(self) -> None:
        """Wait for those who are being answered, for a while."""
        for _ in range(_LOOKS):
            if not any(answering.busy for _, answering in self._sessions.values()):
                return
            await asyncio.sleep(_LOOK)

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, from its first byte to its last."""
        connection = Connection(reader, writer, self._limits)
        self._open += 1
        try:
            await self._welcome(connection)
        except Gone:
            pass
        except (NoisegateError, Malformed) as error:
            with suppress(Gone):
                await connection.say(b"E", error_fields(error, steward=False, fatal=True))
        except Exception as error:  # noqa: BLE001 - one connection fails, not the server
            with suppress(Gone):
                failed = stumbled(error)
                await connection.say(b"E", error_fields(failed, steward=False, fatal=True))
        finally:
            self._open -= 1
            await connection.close()

    async def _welcome(self, connection: Connection) -> None:
        try:
            async with asyncio.timeout(self._limits.startup):
                first = await self._first(connection)
                if isinstance(first, Cancel):
                    self._cancel(first)
                    return
                if self._open > self._limits.connections:
                    raise TooMany("There are too many connections.", fix="Try again later.")
                if not connection.encrypted and not connection.is_local:
                    raise NoEncryption("This server wants encryption.", fix="Use sslmode=require.")
                caller = await self._recognised(connection, first)
                view = await self._off(self._view, caller, first)
        except TimeoutError:
            return
        self._persons[caller.name] += 1
        try:
            if self._persons[caller.name] > self._limits.per_person:
                raise TooMany("You have too many connections.", fix="Close some.")
            await self._session(connection, view, first)
        finally:
            self._persons[caller.name] -= 1
            if not self._persons[caller.name]:
                del self._persons[caller.name]

    async def _first(self, connection: Connection) -> Startup | Cancel:
        """The first message, after TLS where the client asks for it."""
        asked: set[bool] = set()
        while isinstance(first := await connection.first(), Upgrade):
            if first.gss in asked:
                raise Malformed("The same was asked for before.")
            asked.add(first.gss)
            if first.gss or self._tls is None or connection.encrypted:
                connection.write(b"N")
                await connection.flush()
            else:
                await connection.upgrade(self._tls)
        return first

    async def _recognised(self, connection: Connection, first: Startup) -> Caller:
        """SCRAM: whose token the client has."""
        unknown = [name for name in first.settings if name.startswith("_pq_.")]
        if first.minor or unknown:
            connection.write(messages.negotiate(unknown))
        name = first.settings.get("user", "")
        known = await self._off(self._service.people.scram, name)
        exchange = scram.Exchange(known)
        connection.write(messages.mechanisms([scram.NAME]))
        await connection.flush()
        try:
            mechanism, data = _initial(await self._password(connection))
            if mechanism != scram.NAME:
                raise Malformed("This way to authenticate is not known.")
            connection.write(messages.authentication(11, exchange.first(data)))
            await connection.flush()
            last, token = exchange.final(await self._password(connection))
        except scram.Denied:
            await self._slow_down(connection, name)
            raise Unauthenticated(
                "The name or the token is wrong, expired or revoked.",
                fix="The password of a Postgres client is a token; ask the steward for one.",
            ) from None
        self._failed.pop(connection.peer, None)
        caller = await self._off(self._service.people.caller_of_token, token)
        connection.write(messages.authentication(12, last) + messages.authentication(0))
        return caller

    async def _slow_down(self, connection: Connection, name: str) -> None:
        """Note a proof that was wrong, and let its address wait longer with each."""
        failed = self._failed[connection.peer] = self._failed.pop(connection.peer, 0) + 1
        while len(self._failed) > _FAILED_MAX:
            self._failed.pop(next(iter(self._failed)))
        said = name[:_NAME_MAX] if name.isprintable() else "(not a name)"
        note = partial(self._service.log.add, said, "sign-in-failed", face="wire")
        await self._off(partial(note, peer=connection.peer, failed=failed))
        await asyncio.sleep(min(_SLOWEST, _SLOW * 2 ** min(failed - 1, 8)))

    async def _password(self, connection: Connection) -> bytes:
        kind, data = await connection.next()
        message = messages.read(kind, data)
        if not isinstance(message, Password):
            raise Malformed("A proof was expected.")
        return message.data

    def _view(self, caller: Caller, first: Startup) -> View:
        """The data set that was named; where none was, the only one there is."""
        name = first.settings.get("database") or caller.name
        if name == caller.name and name not in self._service.names:
            views = self._service.views(caller)
            if len(views) == 1:
                return views[0]
        return self._service.view(caller, name)

    def _home(self, view: View) -> tuple[Catalogue, Twin]:
        with self._lock:
            if view.name not in self._homes:
                gate = Hosted(view.hosted.policy, practice=True).gate(None)
                settings = dict(SessionSettings.of("", {}).all())
                self._homes[view.name] = (
                    Catalogue(view.name, gate.tables, settings),
                    Twin(made_up_rows(gate), gate.tables),
                )
            return self._homes[view.name]

    async def _session(self, connection: Connection, view: View, first: Startup) -> None:
        settings = SessionSettings.of(view.caller.name, dict(first.settings))
        catalogue, twin = await self._off(self._home, view)
        turn = self._turns.setdefault(view.caller.name, asyncio.Semaphore(_TURNS))
        answering = Answering(self._service, view, settings, catalogue, twin, self._pool, turn)
        note = partial(self._service.log.add, view.caller.name, "connect", face="wire")
        await self._off(partial(note, token=view.caller.token, dataset=view.name))
        process, secret = self._key(answering)
        try:
            for name in REPORTED:
                connection.write(messages.setting(name, settings.show(name)))
            connection.write(messages.key(process, secret) + messages.ready("I"))
            await connection.flush()
            connection.most = self._limits.message
            await Session(connection, answering, self._limits).run()
        finally:
            del self._sessions[process]

    def _key(self, answering: Answering) -> tuple[int, bytes]:
        """The key that cancels a session: a number that no other one has, and a secret."""
        process = randbits(31)
        while process in self._sessions:
            process = randbits(31)
        secret = token_bytes(4)
        self._sessions[process] = secret, answering
        return process, secret

    def _cancel(self, asked: Cancel) -> None:
        """Stop what a session does, for whoever has its key. Nothing is said back."""
        secret, answering = self._sessions.get(asked.process, (bytes(4), None))
        right = hmac.compare_digest(secret, asked.secret)
        if right and answering is not None:
            answering.cancel()

    async def _off(self, work: Callable[..., T], *args: object) -> T:
        """Work that takes a while, off the event loop."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, work, *args)


def _initial(data: bytes) -> tuple[str, bytes]:
    """The mechanism that a client chose, and its first message."""
    payload = messages.Payload(data)
    mechanism, length = payload.text(), payload.int32()
    found = payload.take(length)
    payload.end()
    return mechanism, found
