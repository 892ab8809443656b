"""Values as Postgres writes them: types by their OID, in text and in binary, both ways.

Every type is one that clients know without asking. What Arrow has no Postgres type for is text.
"""

import json
import struct
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal, InvalidOperation
from math import isfinite
from typing import Any, Final, final
from uuid import UUID

import pyarrow as pa

from noisegate.frozen import dataclass
from noisegate.server.wire.messages import BINARY, Malformed

_DAY: Final = date(2000, 1, 1)
_MOMENT: Final = datetime(2000, 1, 1)  # noqa: DTZ001 - as Postgres counts
_BASE: Final = 10_000  # of the digits of a numeric
_NAN: Final = 0xC000  # signs of a numeric
_PLUS: Final = 0x0000
_MINUS: Final = 0x4000
_DIGITS_MAX: Final = 1000  # of a numeric that a client sends


@final
@dataclass(frozen=True, slots=True)
class Type:
    """A type of Postgres. ``item`` is that of an array's items."""

    oid: int
    name: str
    size: int = -1
    item: "Type | None" = None


BOOL: Final = Type(16, "boolean", 1)
BYTEA: Final = Type(17, "bytea")
INT8: Final = Type(20, "bigint", 8)
INT2: Final = Type(21, "smallint", 2)
INT4: Final = Type(23, "integer", 4)
TEXT: Final = Type(25, "text")
OID: Final = Type(26, "oid", 4)
JSON: Final = Type(114, "json")
FLOAT4: Final = Type(700, "real", 4)
FLOAT8: Final = Type(701, "double precision", 8)
DATE: Final = Type(1082, "date", 4)
TIME: Final = Type(1083, "time without time zone", 8)
TIMESTAMP: Final = Type(1114, "timestamp without time zone", 8)
TIMESTAMPTZ: Final = Type(1184, "timestamp with time zone", 8)
NUMERIC: Final = Type(1700, "numeric")
UUID_: Final = Type(2950, "uuid", 16)
_TEXTS: Final = (  # read as text, whatever they are called
    TEXT, JSON, Type(18, '"char"', 1), Type(19, "name", 64), Type(705, "unknown", -2),
    Type(1042, "character"), Type(1043, "character varying"), Type(2205, "regclass", 4),
    Type(3802, "jsonb"),
)  # fmt: skip
_ARRAYS: Final = tuple(
    Type(oid, f"{item.name}[]", -1, item)
    for oid, item in (
        (1000, BOOL), (1005, INT2), (1007, INT4), (1009, TEXT), (1016, INT8), (1028, OID),
        (1021, FLOAT4), (1022, FLOAT8), (1115, TIMESTAMP), (1182, DATE), (1231, NUMERIC),
        (1003, _TEXTS[3]), (1002, _TEXTS[2]), (1015, _TEXTS[6]),
    )
)  # fmt: skip
KNOWN: Final = {
    each.oid: each
    for each in (
        BOOL, BYTEA, INT8, INT2, INT4, OID, FLOAT4, FLOAT8, DATE, TIME, TIMESTAMP, TIMESTAMPTZ,
        NUMERIC, UUID_, *_TEXTS, *_ARRAYS,
    )
}  # fmt: skip
_OF_ARROW: Final = {
    pa.bool_(): BOOL, pa.int8(): INT2, pa.int16(): INT2, pa.int32(): INT4, pa.int64(): INT8,
    pa.uint8(): INT2, pa.uint16(): INT4, pa.uint32(): OID, pa.float32(): FLOAT4,
    pa.float64(): FLOAT8, pa.date32(): DATE, pa.string(): TEXT, pa.large_string(): TEXT,
    pa.null(): TEXT,
}  # fmt: skip


def of_arrow(kind: pa.DataType) -> Type:  # noqa: PLR0911 - one for each kind
    """The type that holds all values of an Arrow column."""
    if kind in _OF_ARROW:
        return _OF_ARROW[kind]
    types = pa.types
    if types.is_timestamp(kind):
        return TIMESTAMP if kind.tz is None else TIMESTAMPTZ
    if types.is_time(kind):
        return TIME
    if types.is_decimal(kind) or types.is_integer(kind):  # up to 64 bits without a sign
        return NUMERIC
    if types.is_binary(kind) or types.is_large_binary(kind):
        return BYTEA
    if types.is_list(kind) and not types.is_nested(kind.value_type):
        item = of_arrow(kind.value_type)
        return next((each for each in _ARRAYS if each.item == item), TEXT)
    return TEXT


# what we send


def written(value: Any, kind: Type, form: int) -> bytes | None:  # noqa: ANN401 - of any column
    """A value in its format; None is NULL."""
    if value is None:
        return None
    if form == BINARY:
        if kind.item is not None:
            return _binary_array(value, kind.item)
        if (pack := _PACKED.get(kind.oid)) is not None:
            return pack(value)
    return text_of(value, kind).encode(errors="replace")


def text_of(value: Any, kind: Type) -> str:  # noqa: ANN401, PLR0911 - of any column
    """A value as text, as Postgres spells it."""
    if kind.item is not None and isinstance(value, list | tuple):
        return "{" + ",".join(_item(each, kind.item) for each in value) + "}"
    if isinstance(value, bool):
        return ("t" if value else "f") if kind is BOOL else str(int(value))
    if isinstance(value, datetime):
        if value.tzinfo is None:
            return value.isoformat(sep=" ")
        return value.astimezone(UTC).isoformat(sep=" ").replace("+00:00", "+00")
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, float):
        if isfinite(value):
            return repr(value).removesuffix(".0")
        return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"  # noqa: PLR0124
    if isinstance(value, bytes):
        return "\\x" + value.hex()
    if isinstance(value, list | tuple | dict):
        return json.dumps(value, ensure_ascii=False, default=str)
    return str(value).replace("\0", "")


def _item(value: Any, kind: Type) -> str:  # noqa: ANN401
    if value is None:
        return "NULL"
    text = text_of(value, kind)
    if kind not in _TEXTS and not isinstance(value, datetime):
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _binary_array(values: Sequence[Any], item: Type) -> bytes:
    some = 1 if values else 0
    head = struct.pack("!iiI", some, int(None in values), item.oid)
    parts = [head, *([struct.pack("!ii", len(values), 1)] if values else [])]
    for value in values:
        raw = written(value, item, BINARY)
        parts += [struct.pack("!i", -1 if raw is None else len(raw)), raw or b""]
    return b"".join(parts)


def _microseconds(value: datetime) -> bytes:
    plain = value if value.tzinfo is None else value.astimezone(UTC).replace(tzinfo=None)
    return struct.pack("!q", (plain - _MOMENT) // timedelta(microseconds=1))


def _clock(value: time) -> bytes:
    seconds = (value.hour * 60 + value.minute) * 60 + value.second
    return struct.pack("!q", seconds * 10**6 + value.microsecond)


def _numeric(value: Any) -> bytes:  # noqa: ANN401 - a Decimal or a whole number
    number = Decimal(value)
    if not number.is_finite():
        return struct.pack("!HhHH", 0, 0, _NAN, 0)
    sign, digits, exponent = number.as_tuple()
    places = max(0, -int(exponent))
    whole = int("".join(map(str, digits))) * 10 ** max(0, int(exponent))
    scaled = whole * 10 ** (-places % 4)  # so that the point is between two digits of the base
    groups: list[int] = []
    while scaled:
        scaled, group = divmod(scaled, _BASE)
        groups.append(group)
    weight = len(groups) - 1 - (places + 3) // 4
    while groups and not groups[0]:
        groups.pop(0)
    groups.reverse()
    head = struct.pack("!HhHH", len(groups), weight, _MINUS if sign else _PLUS, places)
    return head + struct.pack(f"!{len(groups)}H", *groups)


_PACKED: Final[dict[int, Callable[[Any], bytes]]] = {
    BOOL.oid: lambda value: b"\1" if value else b"\0",
    BYTEA.oid: bytes,
    INT2.oid: lambda value: struct.pack("!h", int(value)),
    INT4.oid: lambda value: struct.pack("!i", int(value)),
    INT8.oid: lambda value: struct.pack("!q", int(value)),
    OID.oid: lambda value: struct.pack("!I", int(value)),
    FLOAT4.oid: lambda value: struct.pack("!f", float(value)),
    FLOAT8.oid: lambda value: struct.pack("!d", float(value)),
    DATE.oid: lambda value: struct.pack("!i", (value - _DAY).days),
    TIME.oid: _clock,
    TIMESTAMP.oid: _microseconds,
    TIMESTAMPTZ.oid: _microseconds,
    NUMERIC.oid: _numeric,
}


# what a client sends


def read_value(raw: bytes | None, oid: int, form: int) -> Any:  # noqa: ANN401 - of any type
    """A parameter's value: bool, int, float, Decimal, str, date, datetime, a list of them, None."""
    if raw is None:
        return None
    kind = KNOWN.get(oid)
    if kind is None and oid:
        raise Malformed(f"Parameters of type {oid} are not supported.", "0A000")
    kind = kind or TEXT
    try:
        return _from_binary(raw, kind) if form == BINARY else _from_text(_plain(raw), kind)
    except (ValueError, OverflowError, struct.error, InvalidOperation, IndexError):
        raise Malformed(f"A parameter is no {kind.name}.", "22P02") from None


def _plain(raw: bytes) -> str:
    text = raw.decode()
    if "\0" in text:
        raise ValueError
    return text


def _from_text(text: str, kind: Type) -> Any:  # noqa: ANN401
    if kind.item is not None:
        return [None if each is None else _from_text(each, kind.item) for each in _items(text)]
    reader = _READ.get(kind.oid)
    return reader(text) if reader else text


def _items(text: str) -> list[str | None]:
    """The items of an array of one dimension: ``{1,2,NULL,"a b"}``."""
    if not (text.startswith("{") and text.endswith("}")):
        raise ValueError
    found: list[str | None] = []
    item, quoted, was_quoted, rest = "", False, False, iter(text[1:-1])
    for letter in rest:
        if letter == "\\":
            item += next(rest, "")
        elif letter == '"':
            quoted, was_quoted = not quoted, True
        elif letter == "," and not quoted:
            found.append(_listed(item, was_quoted=was_quoted))
            item, was_quoted = "", False
        elif letter in "{}" and not quoted:
            raise ValueError
        elif quoted or not (letter.isspace() and (was_quoted or not item)):
            item += letter
    if quoted:
        raise ValueError
    if item or was_quoted or found:
        found.append(_listed(item, was_quoted=was_quoted))
    return found


def _listed(item: str, *, was_quoted: bool) -> str | None:
    if was_quoted:
        return item
    return None if item.strip().upper() == "NULL" else item.strip()


def _bool(text: str) -> bool:
    said = text.strip().lower()
    if said in ("t", "true", "1", "on", "yes", "y"):
        return True
    if said in ("f", "false", "0", "off", "no", "n"):
        return False
    raise ValueError


def _decimal(text: str) -> Decimal:
    if len(text) > _DIGITS_MAX:
        raise ValueError
    number = Decimal(text)
    if number.is_finite() and number and abs(number.adjusted()) > _DIGITS_MAX:
        raise ValueError
    return number


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text.strip())


def _day(text: str) -> date:
    """A day; a time of day or a zone after it is cut off, as Postgres does."""
    return date.fromisoformat(text.strip().partition(" ")[0].partition("T")[0])


_READ: Final[dict[int, Callable[[str], Any]]] = {
    BOOL.oid: _bool, INT2.oid: int, INT4.oid: int, INT8.oid: int, OID.oid: int,
    FLOAT4.oid: float, FLOAT8.oid: float, NUMERIC.oid: _decimal, DATE.oid: _day,
    TIMESTAMP.oid: _moment, TIMESTAMPTZ.oid: _moment, TIME.oid: time.fromisoformat,
    UUID_.oid: lambda text: str(UUID(text)),
}  # fmt: skip


def _from_binary(raw: bytes, kind: Type) -> Any:  # noqa: ANN401
    if kind.item is not None:
        return _from_array(raw)
    reader = _UNPACKED.get(kind.oid)
    return reader(raw) if reader else _plain(raw)


def _from_array(raw: bytes) -> list[Any]:
    dimensions, _, oid = struct.unpack_from("!iiI", raw)
    if dimensions == 0:
        return []
    (count,), at = struct.unpack_from("!i", raw, 12), 20
    if dimensions != 1 or not 0 <= count <= len(raw):
        raise ValueError
    found = []
    for _ in range(count):
        (length,) = struct.unpack_from("!i", raw, at)
        at += 4
        if length > len(raw) - at or length < -1:
            raise ValueError
        found.append(None if length < 0 else read_value(raw[at : at + length], oid, BINARY))
        at += max(0, length)
    return found


def _from_numeric(raw: bytes) -> Decimal:
    count, weight, sign, places = struct.unpack_from("!HhHH", raw)
    if sign not in (_PLUS, _MINUS) or count > _DIGITS_MAX or places > _DIGITS_MAX:
        raise ValueError
    groups, number = struct.unpack_from(f"!{count}H", raw, 8), 0
    for group in groups:
        if group >= _BASE:
            raise ValueError
        number = number * _BASE + group
    power = 4 * (weight - count + 1)
    if abs(power) > 4 * _DIGITS_MAX:
        raise ValueError
    found = Decimal(f"{number}E{power}")
    return found.copy_negate() if sign == _MINUS else found


def _from_moment(raw: bytes) -> datetime:
    return _MOMENT + timedelta(microseconds=struct.unpack("!q", raw)[0])


_UNPACKED: Final[dict[int, Callable[[bytes], Any]]] = {
    BOOL.oid: lambda raw: bool(struct.unpack("!b", raw)[0]),
    INT2.oid: lambda raw: struct.unpack("!h", raw)[0],
    INT4.oid: lambda raw: struct.unpack("!i", raw)[0],
    INT8.oid: lambda raw: struct.unpack("!q", raw)[0],
    OID.oid: lambda raw: struct.unpack("!I", raw)[0],
    FLOAT4.oid: lambda raw: struct.unpack("!f", raw)[0],
    FLOAT8.oid: lambda raw: struct.unpack("!d", raw)[0],
    NUMERIC.oid: _from_numeric,
    DATE.oid: lambda raw: _DAY + timedelta(days=struct.unpack("!i", raw)[0]),
    TIMESTAMP.oid: _from_moment,
    TIMESTAMPTZ.oid: _from_moment,
    UUID_.oid: lambda raw: str(UUID(bytes=raw)),
    JSON.oid: _plain,
    3802: lambda raw: _plain(raw[1:]),  # jsonb begins with its version
}
