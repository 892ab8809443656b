"""Bytes in and out, with limits: how long a message may be, how long one may take to send it."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from ipaddress import ip_address
from typing import Final, final

from noisegate.frozen import dataclass
from noisegate.server.wire import messages
from noisegate.server.wire.messages import KINDS, STARTUP_MAX, Cancel, Malformed, Startup, Upgrade

_FLUSH: Final = 1 << 16


class Gone(Exception):  # noqa: N818 - the client is
    """The client went away, or is too slow."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one connection, one person and all of them may hold."""

    message: int = 1 << 20  # bytes of one message
    unknown: int = 4096  # the same before anybody is recognised
    startup: float = 20.0  # seconds until somebody is recognised
    slow: float = 30.0  # seconds to send the rest of a message, or to take what we send
    idle: float = 3600.0  # seconds between messages
    connections: int = 200
    per_person: int = 20
    statements: int = 500  # prepared, of one session
    portals: int = 50


@asynccontextmanager
async def _until(seconds: float) -> AsyncIterator[None]:
    """So long, and then the client is gone."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        raise Gone from None


@final
class Connection:
    """A stream of messages."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, limits: Limits
    ) -> None:
        self._reader, self._writer, self._limits = reader, writer, limits
        self._out = bytearray()
        self.most = limits.unknown
        self.encrypted = False

    @property
    def is_local(self) -> bool:
        """Whether the client is on this machine."""
        peer = self._writer.get_extra_info("peername")
        return peer is None or isinstance(peer, str) or ip_address(peer[0]).is_loopback

    @property
    def peer(self) -> str:
        """The address of the client, without its port."""
        found = self._writer.get_extra_info("peername")
        return str(found[0]) if isinstance(found, tuple) else ""

    async def first(self) -> Startup | Upgrade | Cancel:
        """A message of those that have no kind."""
        (length,) = (int.from_bytes(await self._exactly(4)),)
        if not 8 <= length <= STARTUP_MAX:
            raise Malformed("The first message has a wrong length.")
        return messages.read_first(await self._exactly(length - 4))

    async def next(self) -> tuple[bytes, bytes]:
        """The next message: its kind and its bytes. Raises `Malformed` where the stream is lost."""
        async with _until(self._limits.idle):
            kind = await self._exactly(1)
        async with _until(self._limits.slow):
            length = int.from_bytes(await self._exactly(4)) - 4
            if kind not in KINDS or not 0 <= length <= self.most:
                raise Malformed("A message has a wrong kind or length.")
            return kind, await self._exactly(length)

    async def _exactly(self, count: int) -> bytes:
        try:
            return await self._reader.readexactly(count)
        except (asyncio.IncompleteReadError, ConnectionError, OSError):
            raise Gone from None

    def write(self, data: bytes) -> None:
        """Put something to what is sent next."""
        self._out += data

    async def write_all(self, data: bytes) -> None:
        """The same, and send if there is much."""
        self._out += data
        if len(self._out) >= _FLUSH:
            await self.flush()

    async def flush(self) -> None:
        """Send what was written."""
        data, self._out = bytes(self._out), bytearray()
        try:
            async with _until(self._limits.slow):
                self._writer.write(data)
                await self._writer.drain()
        except (ConnectionError, OSError):
            raise Gone from None

    async def say(self, kind: bytes, fields: Mapping[str, str]) -> None:
        """An error or a notice, at once."""
        self.write(messages.said(kind, fields))
        await self.flush()

    async def upgrade(self, tls: object) -> None:
        """From here on, TLS. Whatever came before the handshake is not trusted: none may have."""
        if self._reader._buffer:  # type: ignore[attr-defined]  # noqa: SLF001 - no other way to see it
            raise Malformed("Something was sent before encryption began.")
        self.write(b"S")
        await self.flush()
        try:
            async with _until(self._limits.slow):
                await self._writer.start_tls(tls)  # type: ignore[arg-type]
        except (ConnectionError, OSError):  # also of TLS
            raise Gone from None
        self.encrypted = True

    async def close(self) -> None:
        """The end. What is left to send is tried, not waited for."""
        with suppress(Gone, ConnectionError, OSError, RuntimeError):
            if self._out:
                await self.flush()
        self._writer.close()
        with suppress(ConnectionError, OSError, TimeoutError):
            await asyncio.wait_for(self._writer.wait_closed(), 2)
