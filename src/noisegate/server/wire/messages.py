"""Messages of the Postgres protocol 3.0: what a client sends is read, what we send is written.

Reading is total: whatever bytes arrive, a message comes out or `Malformed` is raised. A length is
checked before anything is read for it, counts before anything is made for them, and nothing may be
left over at the end of a message.
"""

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias, final

PROTOCOL: Final = 3 << 16
SSL: Final = 80877103
GSS: Final = 80877104
CANCEL: Final = 80877102
TEXT: Final = 0
BINARY: Final = 1
STARTUP_MAX: Final = 10_000  # bytes, as in Postgres


class Malformed(Exception):  # noqa: N818 - what the message is
    """Bytes that are no message. ``state`` is the SQLSTATE to answer with."""

    def __init__(self, words: str, state: str = "08P01") -> None:
        super().__init__(words)
        self.state = state


@final
class Payload:
    """The bytes of one message, read from the front."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def take(self, count: int) -> bytes:
        """So many bytes."""
        if count < 0 or self._at + count > len(self._data):
            raise Malformed("A message ends too early.")
        self._at += count
        return self._data[self._at - count : self._at]

    def int16(self) -> int:
        """A signed number of 16 bits."""
        return int.from_bytes(self.take(2), signed=True)

    def int32(self) -> int:
        """A signed number of 32 bits."""
        return int.from_bytes(self.take(4), signed=True)

    def uint32(self) -> int:
        """An unsigned number of 32 bits."""
        return int.from_bytes(self.take(4))

    def count(self) -> int:
        """How many items follow: unsigned, because 65,535 parameters are allowed."""
        return int.from_bytes(self.take(2))

    def text(self) -> str:
        """A text up to its NUL, in UTF-8."""
        end = self._data.find(b"\0", self._at)
        if end < 0:
            raise Malformed("A text in a message has no end.")
        raw = self.take(end - self._at)
        self._at += 1
        try:
            return raw.decode()
        except UnicodeDecodeError:
            raise Malformed("A text in a message is not UTF-8.", "22021") from None

    def formats(self) -> tuple[int, ...]:
        """A list of format codes."""
        codes = tuple(self.int16() for _ in range(self.count()))
        if any(code not in (TEXT, BINARY) for code in codes):
            raise Malformed("A format is neither text nor binary.")
        return codes

    def rest(self) -> bytes:
        """All that is left."""
        return self.take(len(self._data) - self._at)

    @property
    def is_empty(self) -> bool:
        """Whether all was read."""
        return self._at == len(self._data)

    def end(self) -> None:
        """Refuse bytes that are left over."""
        if not self.is_empty:
            raise Malformed("A message is longer than what it says.")


# what a client sends before anybody knows who it is


class Startup(NamedTuple):
    """Who wants to speak, to which data set, in which minor version, with which settings."""

    minor: int
    settings: Mapping[str, str]


class Upgrade(NamedTuple):
    """Asks for TLS, or (``gss``) for Kerberos."""

    gss: bool


class Cancel(NamedTuple):
    """Asks to stop what the session with this key is doing."""

    process: int
    secret: bytes


def read_first(data: bytes) -> Startup | Upgrade | Cancel:
    """A first message, without its length."""
    payload = Payload(data)
    code = payload.uint32()
    if code in (SSL, GSS):
        payload.end()
        return Upgrade(gss=code == GSS)
    if code == CANCEL:
        found = Cancel(payload.uint32(), payload.take(4))
        payload.end()
        return found
    if code >> 16 != 3:
        raise Malformed("Only protocol 3 is spoken here.", "0A000")
    settings: dict[str, str] = {}
    while name := payload.text():
        if name in settings:
            raise Malformed("A setting is given twice.")
        settings[name] = payload.text()
    payload.end()
    return Startup(code & 0xFFFF, settings)


# what a client sends then


class Query(NamedTuple):
    """Run this, whatever it is: the simple protocol."""

    sql: str


class Parse(NamedTuple):
    """Prepare a statement. A type 0 is for the server to find."""

    name: str
    sql: str
    types: tuple[int, ...]


class Bind(NamedTuple):
    """Make a portal of a statement and values."""

    portal: str
    statement: str
    formats: tuple[int, ...]
    values: tuple[bytes | None, ...]
    results: tuple[int, ...]


class Describe(NamedTuple):
    """Say the columns of a statement ("S") or a portal ("P")."""

    kind: str
    name: str


class Execute(NamedTuple):
    """Run a portal, for at most so many rows; 0: all."""

    portal: str
    rows: int


class Close(NamedTuple):
    """Forget a statement ("S") or a portal ("P")."""

    kind: str
    name: str


class Password(NamedTuple):
    """A step of the authentication."""

    data: bytes


class Plain(NamedTuple):
    """A message without content we use: Sync, Flush, Terminate, CopyData, CopyDone, CopyFail."""

    kind: bytes


Message: TypeAlias = Query | Parse | Bind | Describe | Execute | Close | Password | Plain
KINDS: Final = b"QPBDECpSHXdcfF"  # all that a client may send
_EMPTY: Final = b"SHXc"


def read(kind: bytes, data: bytes) -> Message:
    """A message of this kind."""
    payload = Payload(data)
    message = _read(kind, payload)
    payload.end()
    return message


def _read(kind: bytes, payload: Payload) -> Message:  # noqa: C901, PLR0911 - one for each kind
    match kind:
        case b"Q":
            return Query(payload.text())
        case b"P":
            name, sql = payload.text(), payload.text()
            return Parse(name, sql, tuple(payload.uint32() for _ in range(payload.count())))
        case b"B":
            portal, statement, formats = payload.text(), payload.text(), payload.formats()
            values = tuple(_value(payload) for _ in range(payload.count()))
            return Bind(portal, statement, formats, values, payload.formats())
        case b"D":
            return Describe(_one_of(payload), payload.text())
        case b"C":
            return Close(_one_of(payload), payload.text())
        case b"E":
            return Execute(payload.text(), payload.int32())
        case b"p":
            return Password(payload.rest())
        case b"d" | b"f":
            payload.rest()
            return Plain(kind)
        case b"F":
            raise Malformed("Function calls are not supported.", "0A000")
    if kind not in _EMPTY:
        raise Malformed("This kind of message is not known.")
    return Plain(kind)


def _one_of(payload: Payload) -> str:
    kind = payload.take(1)
    if kind not in (b"S", b"P"):
        raise Malformed("Neither a statement nor a portal is named.")
    return kind.decode()


def _value(payload: Payload) -> bytes | None:
    length = payload.int32()
    if length < -1:
        raise Malformed("A value has a negative length.")
    return None if length == -1 else payload.take(length)


# what we send


def _message(kind: bytes, *parts: bytes) -> bytes:
    body = b"".join(parts)
    return kind + struct.pack("!I", len(body) + 4) + body


def _text(text: str) -> bytes:
    return text.replace("\0", "").encode(errors="replace") + b"\0"


def authentication(code: int, data: bytes = b"") -> bytes:
    """A step of the authentication: 0 ok, 10 mechanisms, 11 go on, 12 end."""
    return _message(b"R", struct.pack("!I", code), data)


def mechanisms(names: Iterable[str]) -> bytes:
    """The ways to authenticate."""
    return authentication(10, b"".join(map(_text, names)) + b"\0")


def setting(name: str, value: str) -> bytes:
    """A setting that clients want to know."""
    return _message(b"S", _text(name), _text(value))


def key(process: int, secret: bytes) -> bytes:
    """The key that cancels this session."""
    return _message(b"K", struct.pack("!I", process), secret)


def negotiate(unknown: Sequence[str]) -> bytes:
    """We speak 3.0, and do not know these options of the protocol."""
    return _message(b"v", struct.pack("!II", PROTOCOL, len(unknown)), *map(_text, unknown))


def ready(status: str) -> bytes:
    """Waiting for a question: "I" idle, "T" in a transaction, "E" in a failed one."""
    return _message(b"Z", status.encode())


def parameters(types: Sequence[int]) -> bytes:
    """The types of a statement's parameters."""
    return _message(b"t", struct.pack(f"!H{len(types)}I", len(types), *types))


def columns(fields: Sequence[tuple[str, int, int]], formats: Sequence[int]) -> bytes:
    """Names, types and sizes of columns, each in its format."""
    parts = [struct.pack("!H", len(fields))]
    for (name, oid, size), form in zip(fields, formats, strict=True):
        parts += [_text(name), struct.pack("!IhIhih", 0, 0, oid, size, -1, form)]
    return _message(b"T", *parts)


def row(values: Sequence[bytes | None]) -> bytes:
    """One row."""
    parts = [struct.pack("!H", len(values))]
    for value in values:
        parts.append(b"\xff\xff\xff\xff" if value is None else struct.pack("!I", len(value)))
        parts.append(value or b"")
    return _message(b"D", *parts)


def complete(tag: str) -> bytes:
    """A statement has ended."""
    return _message(b"C", _text(tag))


def copy_out(count: int, form: int) -> bytes:
    """Rows follow as COPY writes them."""
    return _message(b"H", struct.pack(f"!bH{count}H", form, count, *[form] * count))


def copy_data(data: bytes) -> bytes:
    """A piece of them."""
    return _message(b"d", data)


def said(kind: bytes, fields: Mapping[str, str]) -> bytes:
    """An error ("E") or a notice ("N"): a letter for each field."""
    parts = (letter.encode() + _text(text) for letter, text in fields.items() if text)
    return _message(kind, *parts, b"\0")


PARSED: Final = _message(b"1")
BOUND: Final = _message(b"2")
CLOSED: Final = _message(b"3")
NO_DATA: Final = _message(b"n")
SUSPENDED: Final = _message(b"s")
EMPTY: Final = _message(b"I")
COPY_DONE: Final = _message(b"c")
