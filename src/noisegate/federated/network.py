"""Owners and the aggregator, who learns the sum of several series without a trusted curator.

The idea is of [RN10]: each owner transforms its own series (running totals, Fourier coefficients),
adds its share of the noise and encrypts, and what can be decrypted is the noisy sum alone. What an
owner does, and what is promised, is in `curator.owner`; nothing here is trusted with anything.
Owners are processes behind pipes, or on machines of their own. One that stops answering has dropped
out.

    collect    the aggregator waits for owners, each of whom proves its key; then the session runs
    join       an owner connects, proves its key, and answers with its own numbers, charged first

A frame is a length and JSON, never code. Nobody needs a secret of anybody else: an owner knows the
public keys of the agreement. The line is not encrypted, because all that is sent on it may be seen
by the aggregator, of whom nothing is assumed; what only another owner may read is encrypted for it.

Claim: the assumption of `curator.owner` that keys arrive as they were sent holds, if the file of
    the agreement is the same everywhere: each advert is signed (Ed25519) over the agreement, the
    owner and both of its session keys, and `share` begins only after all signatures were checked.
"""

import json
import socket
import struct
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from fractions import Fraction
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.connection import wait as wait_for
from time import monotonic
from typing import Any, Final, TypeAlias

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from numpy.typing import NDArray

from noisegate.curator.owner import (
    Advert,
    Agreement,
    Owner,
    Revealed,
    joined,
    named,
    pair_mask,
    stream,
)
from noisegate.errors import NoisegateError, SpecError, Unsupported
from noisegate.federated.agreements import Pact
from noisegate.federated.release import OwnersRelease
from noisegate.ledger.ledger import Ledger
from noisegate.ledger.open import open_ledger
from noisegate.ledger.signing import Signer, holds
from noisegate.privacy.loss import ApproxDP
from noisegate.releases.cells.workload import Floats

STEPS: Final = ("advertise", "share", "contribute", "agree", "reveal")
LONGEST: Final = 1 << 28  # bytes of a message
_PATIENCE: Final = 60.0  # seconds for one step


# adding up


def opened(
    agreement: Agreement,
    roster: Mapping[int, Advert],
    masked: Mapping[int, NDArray[np.uint64]],
    revealed: Mapping[int, Revealed],
    sharing: Sequence[int],
) -> NDArray[np.int64]:
    """The sum of all masked vectors, without the masks. ``sharing`` are those who sent pieces."""
    size = agreement.size
    total = np.zeros(size, np.uint64)
    for vector in masked.values():
        total += vector
    for owner in masked:
        pieces = {other: each.own[owner] for other, each in revealed.items() if owner in each.own}
        total -= stream(joined(_some(pieces, agreement)), b"own", size)
    heard = named(sharing)
    for owner in set(sharing) - masked.keys():
        pieces = {
            other: each.pairs[owner] for other, each in revealed.items() if owner in each.pairs
        }
        secret = X25519PrivateKey.from_private_bytes(joined(_some(pieces, agreement)))
        for other in masked:
            total += pair_mask(secret, roster[other], (owner, other), heard, size)
    return total.view(np.int64)


def _some(pieces: Mapping[int, int], agreement: Agreement) -> dict[int, int]:
    if len(pieces) < agreement.threshold:
        raise too_few()
    return dict(list(pieces.items())[: agreement.threshold])


def too_few() -> Unsupported:
    """The refusal where no sum can come out."""
    return Unsupported(
        "Too many owners dropped out, so there is no result.",
        fix="Begin a new session that tolerates more drop-outs, or check first who is present.",
        about="too-few",
    )


# over pipes


Roster: TypeAlias = Mapping[int, tuple[Advert, str]]  # keys, and who signed them


def sent(connection: Connection, what: object) -> None:
    """Send JSON."""
    connection.send_bytes(json.dumps(what).encode())


def received(connection: Connection, most: int = LONGEST) -> dict[str, Any]:
    """An object of JSON, of so many bytes at most."""
    found = json.loads(connection.recv_bytes(most))
    if not isinstance(found, dict):
        raise ValueError  # noqa: TRY004 - as of JSON that cannot be read
    return found


def serve(
    connection: Connection,
    owner: Owner,
    *,
    leave_before: str | None = None,
    identities: "Identities | None" = None,
) -> bool:
    """Answer an aggregator until it hangs up; whether all steps were taken.

    ``leave_before`` a step: a drop-out, for a trial. ``identities`` sign keys, and check others'.
    """
    done = 0
    while True:
        try:
            asked = received(connection)
        except (EOFError, OSError, ValueError):
            return done == len(STEPS)
        step = asked.get("step")
        if step == leave_before or step not in STEPS:
            connection.close()
            return False
        reply: dict[str, Any]
        try:
            if step == "advertise":
                reply = {"ok": _answer_advertise(owner, identities)}
            elif step == "share":
                reply = {"ok": _hex(owner.share(_checked(asked["with"], identities)))}
            else:
                reply = {"ok": _ANSWERS[step](owner, asked["with"])}
            done += 1
        except NoisegateError as refusal:
            reply = {"refused": str(refusal)}
            if identities is not None:
                with suppress(OSError):
                    sent(connection, {"refused": refusal.code})
                raise
        except (AttributeError, KeyError, TypeError, ValueError):  # no message of the protocol
            return False
        sent(connection, reply)


def _checked(asked: Mapping[str, Any], identities: "Identities | None") -> dict[int, Advert]:
    """The keys of all owners, as far as signatures can tell."""
    roster = _roster(asked)
    if identities is None:
        return roster
    return identities.require(
        {number: (roster[number], asked[str(number)][2]) for number in roster}
    )


def _answer_contribute(owner: Owner, asked: Mapping[str, Any]) -> str:
    found = owner.contribute(_bytes(asked))
    return found.astype("<u8").tobytes().hex()


def _answer_reveal(owner: Owner, asked: Mapping[str, str]) -> list[dict[str, str]]:
    found = owner.reveal(_bytes(asked))
    return [{str(k): hex(v) for k, v in each.items()} for each in (found.own, found.pairs)]


def _answer_advertise(owner: Owner, identities: "Identities | None") -> list[str]:
    advert = owner.advertise()
    keys = [advert.masks.hex(), advert.messages.hex()]
    return keys if identities is None else [*keys, identities.signed(advert)]


_ANSWERS: Final[Mapping[str, Callable[[Owner, Any], Any]]] = {
    "contribute": _answer_contribute,
    "agree": lambda owner, asked: _hex(owner.agree(asked)),
    "reveal": _answer_reveal,
}


def _hex(texts: Mapping[int, bytes]) -> dict[str, str]:
    return {str(k): v.hex() for k, v in texts.items()}


def _bytes(texts: Mapping[str, str]) -> dict[int, bytes]:
    return {int(k): bytes.fromhex(v) for k, v in texts.items()}


def _roster(asked: Mapping[str, Any]) -> dict[int, Advert]:
    return {int(k): Advert(*map(bytes.fromhex, v[:2])) for k, v in asked.items()}


def aggregate(
    agreement: Agreement,
    connections: Mapping[int, Connection],
    *,
    patience: float = _PATIENCE,
    grain: Fraction = Fraction(1),
) -> OwnersRelease:
    """Run a session with the owners behind the connections; refuses if too many drop out."""

    def ask(step: str, what: Mapping[int, Any]) -> dict[int, Any]:
        found = _asked(connections, step, what, patience)
        if len(found) < agreement.threshold:
            raise too_few()
        return found

    adverts = ask("advertise", dict.fromkeys(connections))
    pieces = ask("share", dict.fromkeys(adverts, adverts))
    replies = ask("contribute", _passed_on(pieces))
    stayed = sorted(replies)
    shown = ask("reveal", _passed_on(ask("agree", dict.fromkeys(stayed, stayed))))
    masked = {
        k: np.frombuffer(bytes.fromhex(v), "<u8").astype(np.uint64) for k, v in replies.items()
    }
    revealed = {
        owner: Revealed(*({int(k): int(v, 16) for k, v in each.items()} for each in both))
        for owner, both in shown.items()
    }
    roster = _roster({str(k): v for k, v in adverts.items()})
    numbers = opened(agreement, roster, masked, revealed, list(pieces))
    return OwnersRelease(agreement=agreement, numbers=numbers, stayed=tuple(stayed), grain=grain)


def _passed_on(letters: Mapping[int, Mapping[str, str]]) -> dict[int, dict[int, str]]:
    """By reader, what each other owner wrote to it."""
    return {
        reader: {
            sender: texts[str(reader)] for sender, texts in letters.items() if sender != reader
        }
        for reader in letters
    }


def _asked(
    connections: Mapping[int, Connection], step: str, what: Mapping[int, Any], patience: float
) -> dict[int, Any]:
    """The replies of those who reply; a refusal or silence is a drop-out."""
    waiting = {}
    for owner, part in what.items():
        try:
            connections[owner].send_bytes(json.dumps({"step": step, "with": part}).encode())
            waiting[connections[owner]] = owner
        except OSError:
            continue
    found, until = {}, monotonic() + patience
    while waiting and (left := until - monotonic()) > 0:
        ready = wait_for(list(waiting), left)
        for connection in [each for each in waiting if each in ready]:
            owner = waiting.pop(connection)
            try:
                found[owner] = received(connections[owner])["ok"]
            except (EOFError, OSError, ValueError, KeyError, TypeError):
                continue
    return found


# a trial


def _process(
    connection: Connection,
    agreement: Agreement,
    number: int,
    series: NDArray[np.int64],
    leave: str | None,
) -> None:
    ledger = open_ledger(":memory:")
    ledger.open_account(
        "owner", parent=None, accountant="pure", budget=ApproxDP(agreement.epsilon), unit="person"
    )
    owner = Owner(agreement, number, series, ledger, "owner")
    serve(connection, owner, leave_before=leave)


def trial(
    agreement: Agreement,
    series: Sequence[NDArray[np.int64]],
    *,
    leaving: Mapping[int, str] | None = None,
) -> OwnersRelease:
    """Run a session with a process for each owner; some may leave before a step."""
    context, pipes, workers = get_context("spawn"), {}, []
    try:
        for number, own in enumerate(series):
            here, there = context.Pipe()
            leave = (leaving or {}).get(number)
            work = (there, agreement, number, own, leave)
            worker = context.Process(target=_process, args=work, daemon=True)
            worker.start()
            there.close()
            pipes[number] = here
            workers.append(worker)
        return aggregate(agreement, pipes)
    finally:
        for pipe in pipes.values():
            pipe.close()
        for worker in workers:
            worker.join(10)


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
