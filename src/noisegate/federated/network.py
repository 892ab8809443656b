"""Owners and the aggregator on machines of their own: sockets, identities, drop-outs.

    serve      the aggregator waits for owners, each of whom proves its key; then the session runs
    join       an owner connects, proves its key, and answers with its own numbers, charged first

A frame is a length and JSON, never code. Nobody needs a secret of anybody else: an owner knows the
public keys of the agreement. The line is not encrypted, because all that is sent on it may be seen
by the aggregator, of whom nothing is assumed; what only another owner may read is encrypted for it.

Claim: the assumption of `curator.owner` that keys arrive as they were sent holds, if the file of
    the agreement is the same everywhere: each advert is signed (Ed25519) over the agreement, the
    owner and both of its session keys, and `share` begins only after all signatures were checked.
"""

import socket
import struct
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from time import monotonic
from typing import Final

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from noisegate.curator.owner import Advert, Owner
from noisegate.errors import SpecError, Unsupported
from noisegate.federated.aggregator import (
    Roster,
    aggregate,
    received,
    sent,
    serve,
    too_few,
)
from noisegate.federated.agreements import Pact
from noisegate.federated.release import OwnersRelease
from noisegate.ledger.ledger import Ledger
from noisegate.ledger.signing import Signer, holds
from noisegate.releases.cells.estimate import Floats

_HELLO: Final = 1 << 12  # bytes of a greeting
_SLOW: Final = 20.0  # seconds for a greeting
_NONCE: Final = 32


def _framed(line: socket.socket, seconds: float) -> Connection:
    """A socket as a connection whose reads and writes give up after so many seconds."""
    line.settimeout(None)
    kernel = struct.pack("ll", int(seconds), int(seconds % 1 * 1_000_000))
    for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
        line.setsockopt(socket.SOL_SOCKET, option, kernel)
    line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return Connection(line.detach())


def _greeting(pact: Pact, number: int, nonce: bytes) -> bytes:
    return b"noisegate owner\n" + pact.agreement.name() + b"%d\n" % number + nonce


def _advert(pact: Pact, number: int, advert: Advert) -> bytes:
    return b"noisegate advert\n" + pact.agreement.name() + b"%d\n" % number + (
        advert.masks + advert.messages
    )  # fmt: skip


class Identities:
    """Signs the adverts of one owner, and checks those of the others."""

    def __init__(self, pact: Pact, number: int, signer: Signer) -> None:
        self._pact, self._number, self._signer = pact, number, signer

    def signed(self, advert: Advert) -> str:
        """The signature of this owner's keys."""
        return self._signer.sign(_advert(self._pact, self._number, advert))

    def require(self, roster: Roster) -> dict[int, Advert]:
        """The keys of all owners, if each of them signed its own."""
        for number, (advert, signature) in roster.items():
            known = 0 <= number < len(self._pact.owners)
            key = self._pact.owners[number][1] if known else ""
            if not holds(key, signature, _advert(self._pact, number, advert)):
                raise Unsupported(
                    "The keys of another owner are not signed by it, so nothing is sent.",
                    fix="Compare agreements; ask the aggregator why.",
                    about="signature",
                )
        return {number: advert for number, (advert, _) in roster.items()}


def collect(
    pact: Pact,
    listener: socket.socket,
    *,
    seconds: float = 60.0,
    patience: float = 60.0,
) -> OwnersRelease:
    """Wait so many seconds for the owners, then add up; ``patience`` is for one step."""
    connections: dict[int, Connection] = {}
    until = monotonic() + seconds
    try:
        while len(connections) < len(pact.owners) and (left := until - monotonic()) > 0:
            listener.settimeout(left)
            with suppress(OSError):  # nobody came, or one left again
                line, _ = listener.accept()
                connection = _framed(line, _SLOW)
                number = _admitted(pact, connection)
                if number is None or number in connections:
                    connection.close()
                    continue
                connections[number] = connection
        if len(connections) < pact.agreement.threshold:
            raise too_few()
        return aggregate(pact.agreement, connections, patience=patience, grain=pact.grain)
    finally:
        for connection in connections.values():
            connection.close()


def _admitted(pact: Pact, connection: Connection) -> int | None:
    """The number of an owner that proved its key; None for anybody else."""
    nonce = X25519PrivateKey.generate().public_key().public_bytes_raw()  # fresh
    try:
        sent(connection, {"agreement": pact.agreement.name().hex(), "nonce": nonce.hex()})
        said = received(connection, _HELLO)
        number = said["number"]
        key = pact.owners[number][1] if type(number) is int and number >= 0 else ""
    except (EOFError, OSError, ValueError, LookupError, TypeError):
        return None
    return number if holds(key, said.get("signature"), _greeting(pact, number, nonce)) else None


def join(  # noqa: PLR0913 - what is shared, what is one's own, and where to
    pact: Pact,
    name: str,
    numbers: Sequence[float] | Floats,
    *,
    signer: Signer,
    ledger: Ledger,
    account: str,
    address: tuple[str, int],
    seconds: float = 120.0,
) -> None:
    """Take part with one's own numbers, once. The own ledger is charged before anything is sent.

    Whatever is wrong with numbers, key, agreement or budget is refused before.
    """
    number, agreed = pact.number(name), pact.agreement
    if signer.public != pact.owners[number][1]:
        raise SpecError(
            f"This is not the key of {name!r} in the agreement.",
            fix="Use its private key, or correct the agreement with all owners.",
            about="key",
        )
    owner = Owner(agreed, number, pact.series(numbers), ledger, account)
    ledger.require_room(owner.event, account=account)
    try:
        line = socket.create_connection(address, timeout=_SLOW)
    except OSError:
        raise Unsupported(
            f"Nobody listens at {address[0]}:{address[1]}.",
            fix="Ask whether the aggregator is running: noisegate owner serve.",
            about="address",
        ) from None
    with _framed(line, seconds) as connection:
        try:
            said = received(connection, _HELLO)
            nonce = bytes.fromhex(said["nonce"])
        except (EOFError, OSError, ValueError, LookupError, TypeError):
            raise _another() from None
        if said.get("agreement") != agreed.name().hex() or len(nonce) != _NONCE:
            raise _another()
        sent(
            connection, {"number": number, "signature": signer.sign(_greeting(pact, number, nonce))}
        )
        if not serve(connection, owner, identities=Identities(pact, number, signer)):
            raise Unsupported(
                "The session ended before this owner's part was complete.",
                fix="Ask the aggregator; a new session needs a new name, and is charged anew.",
                about="ended",
            )


def _another() -> Unsupported:
    return Unsupported(
        "The aggregator holds another agreement.", fix="Compare the files.", about="agreement"
    )
