"""Plain values over a socket, each with its length in front; nothing that is read is ever run.

The rows of a block as bytes, and back: numbers as they lie in memory, texts as JSON.

>>> import numpy as np
>>> columns = {"age": np.array([31, 45]), "ward": np.array(["north", None], object)}
>>> unpacked(packed(columns))
{'age': array([31, 45]), 'ward': array(['north', None], dtype=object)}
"""

import json
import socket
import struct
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

SIZE: Final = struct.Struct("=Q")
LOCKED: Final = "locked"  # the clean process is told so where its children will be


def send(channel: socket.socket, value: object) -> None:
    """Send JSON values."""
    text = json.dumps(value).encode()
    channel.sendall(SIZE.pack(len(text)) + text)


def receive(channel: socket.socket) -> Any:  # noqa: ANN401 - JSON
    """What was sent."""
    (size,) = SIZE.unpack(_exactly(channel, SIZE.size))
    return json.loads(_exactly(channel, size))


def _exactly(channel: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        part = channel.recv(size - len(found))
        if not part:
            raise BrokenPipeError
        found += part
    return found


def packed(columns: Mapping[str, NDArray[Any]]) -> bytes:
    """The columns as bytes. Arrays of objects hold texts, truth values and None."""
    listed: list[tuple[str, str | None, Any]] = []
    parts = []
    for name, column in columns.items():
        if column.dtype == object:
            listed.append((name, None, column.tolist()))
        else:
            listed.append((name, column.dtype.str, column.size))
            parts.append(np.ascontiguousarray(column).tobytes())
    head = json.dumps(listed).encode()
    return b"".join([SIZE.pack(len(head)), head, *parts])


def unpacked(stored: bytes) -> dict[str, NDArray[Any]]:
    """The columns, each an array of its own that may be changed."""
    (size,) = SIZE.unpack_from(stored)
    at = SIZE.size + size
    found: dict[str, NDArray[Any]] = {}
    for name, kind, held in json.loads(stored[SIZE.size : at]):
        if kind is None:
            found[name] = np.array([*held, None], object)[:-1]  # of whatever length, one dimension
        else:
            found[name] = np.frombuffer(stored, np.dtype(kind), held, at).copy()
            at += found[name].nbytes
    return found
