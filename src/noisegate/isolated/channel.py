"""Plain values over a socket, each with its length in front; nothing that is read is ever run."""

import json
import socket
import struct
from typing import Any, Final

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
