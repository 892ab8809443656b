"""Sums of several owners' series without a trusted curator: the aggregator, who learns the sum.

The idea is of [RN10]: each owner transforms its own series (running totals, Fourier coefficients),
adds its share of the noise and encrypts, and what can be decrypted is the noisy sum alone. What an
owner does, and what is promised, is in `curator.owner`; nothing here is trusted with anything.

Owners are processes behind pipes, or on other machines (`network`). One that stops answering has
dropped out.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from math import sqrt
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.connection import wait as wait_for
from time import monotonic
from typing import Any, Final, Protocol, TypeAlias, final

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
from noisegate.desk.display import percent
from noisegate.desk.plot import altair, priced
from noisegate.desk.price import variance_of
from noisegate.errors import NoisegateError, SpecError, Unsupported
from noisegate.exact import Number as Numeric
from noisegate.ledger.open import open_ledger
from noisegate.mechanisms.additive.geometric import Geometric
from noisegate.mechanisms.base import failure_of
from noisegate.privacy.loss import ApproxDP
from noisegate.releases.cells.estimate import Floats
from noisegate.releases.cells.tails import tail_factor
from noisegate.transforms.strategy import Groups, Matrix

STEPS: Final = ("advertise", "share", "contribute", "agree", "reveal")
FOURIER_UNIT: Final = 1 << 10
LEFT: Final = FOURIER_UNIT // 2  # the weight of how much the coefficients leave out
LONGEST: Final = 1 << 28  # bytes of a message
_PATIENCE: Final = 60.0  # seconds for one step


# what is asked


def plain(size: int) -> Groups:
    """The periods as they are."""
    return Groups(np.arange(size, dtype=np.int32), size)


def fourier(size: int, coefficients: int) -> Matrix:
    """The first Fourier coefficients of a series, in whole multiples of 1/1024.

    The mean, then a cosine and a sine for each frequency; rounded once, for all owners, so that the
    sensitivity is that of the whole numbers.
    """
    from scipy.sparse import csr_array  # noqa: PLC0415

    if not 1 <= coefficients <= (size + 1) // 2:
        raise SpecError(
            "There are fewer frequencies than that.",
            fix=f"Use 1 to {(size + 1) // 2} coefficients.",
        )
    angles = 2 * np.pi * np.arange(size) / size
    rows = [np.ones(size)]
    for frequency in range(1, coefficients):
        rows += [np.cos(frequency * angles), np.sin(frequency * angles)]
    return Matrix(csr_array(np.rint(np.array(rows) * FOURIER_UNIT).astype(np.int64)))


def fourier_left(size: int, coefficients: int) -> Matrix:
    """The same of a series with one more cell: how far the coefficients are off at most."""
    from scipy.sparse import block_diag, csr_array  # noqa: PLC0415

    last = np.array([[LEFT]], np.int64)
    return Matrix(csr_array(block_diag([fourier(size, coefficients).matrix, last], dtype=np.int64)))


# adding up


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OwnersRelease:
    """The noisy sum of the owners who stayed. ``variance`` is that of each number.

    Numbers are multiples of ``grain``.
    """

    agreement: Agreement
    numbers: NDArray[np.int64]
    stayed: tuple[int, ...]
    grain: Fraction = Fraction(1)

    @property
    def variance(self) -> float:
        """Every share counts: the more owners stay, the more noise there is."""
        whole = variance_of(Geometric(scale=self.agreement.scale))
        return whole * len(self.stayed) / self.agreement.honest

    @property
    def loss(self) -> ApproxDP:
        """What a unit may lose."""
        return ApproxDP(self.agreement.epsilon)

    @property
    def words(self) -> str:
        """What holds, in a sentence."""
        return self.agreement.words()

    @property
    def _leaves(self) -> bool:
        """Whether the last number says how much the coefficients leave out."""
        return self.agreement.extra > 0

    def series(self) -> Floats:
        """The sum of the series itself: of all with these answers, the one nearest to 0."""
        told = self.numbers[:-1] if self._leaves else self.numbers
        found: Floats = self._back() @ told.astype(np.float64) * float(self.grain)
        return found

    def margins(self, confidence: Numeric = 0.95) -> Floats:
        """The ± of each period: of the noise, and of what Fourier coefficients leave out.

        Claim: outside with at most 1 - confidence, each period by itself. Why: the noise of a
            period is a sum of known variance (`tail_factor`). Each owner told, with noise, how far
            its own coefficients are off at most; what they leave out of the sum is no more than the
            sum of that. Each of both may fail with half. Without that number the noise is all.
        """
        failure = float(failure_of(confidence)) / (2 if self._leaves else 1)
        factor = tail_factor(failure, gaussian=False)
        spread: Floats = factor * np.sqrt(self.variance * np.square(self._back()).sum(axis=1))
        if self._leaves:
            spread = spread + self.left_out(1 - failure)
        return spread * float(self.grain)

    def left_out(self, confidence: Numeric = 0.95) -> float:
        """How far the coefficients are off at most, in any period, at the confidence."""
        if not self._leaves:
            return 0.0
        factor = tail_factor(float(failure_of(confidence)), gaussian=False)
        return max(0.0, (float(self.numbers[-1]) + factor * sqrt(self.variance)) / LEFT)

    def plot(self, confidence: Numeric = 0.95, title: str | None = None) -> Any:  # noqa: ANN401
        """The sum of each period in the band of its ±, an altair chart."""
        alt, shown, off = altair(), self.series(), self.margins(confidence)
        ends = zip(shown.tolist(), (shown - off).tolist(), (shown + off).tolist(), strict=True)
        rows = [
            {"period": period, "sum": value, "low": low, "high": high}
            for period, (value, low, high) in enumerate(ends, start=1)
        ]
        across = alt.X("period:Q", axis=alt.Axis(format="d", tickMinStep=1))
        base = alt.Chart(alt.InlineData(values=rows)).encode(across.scale(zero=False, nice=False))
        label = f"sum (± at {percent(confidence)} confidence)"
        band = base.mark_area(opacity=0.25).encode(y=alt.Y("low:Q", title=label), y2="high:Q")
        line = base.mark_line().encode(y=alt.Y("sum:Q", title=label))
        chart = alt.layer(band, line).properties(width=560, height=300)
        title = title or f"Sum of {len(self.stayed)} of {self.agreement.owners} owners"
        return priced(chart, title, self.loss, self.words)

    def _back(self) -> Floats:
        block = self.agreement.block
        if isinstance(block, Matrix):
            matrix = block.matrix.toarray().astype(np.float64)
            found: Floats = np.linalg.pinv(matrix[:-1, :-1] if self._leaves else matrix)
            return found
        held = np.flatnonzero(block.labels >= 0)
        if np.array_equal(block.labels, np.arange(block.size)):  # the periods as they are
            return np.eye(block.size)
        marks: Floats = np.zeros((block.size, block.cells))
        marks[block.labels[held], held] = 1
        return np.asarray(np.linalg.pinv(marks), np.float64)

    def __str__(self) -> str:
        gone = self.agreement.owners - len(self.stayed)
        return (
            f"sum of {len(self.stayed)} owners ({gone} dropped out), {self.series().size} "
            f"periods ± {self.margins().max():.1f} at 95 %\n{self.words}"
        )


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


class Signed(Protocol):
    """Signs the keys of one owner, and checks those of others."""

    def signed(self, advert: Advert) -> str:
        """A signature."""

    def require(self, roster: Roster) -> dict[int, Advert]:
        """The keys, if each owner signed its own."""


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
    identities: Signed | None = None,
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


def _checked(asked: Mapping[str, Any], identities: Signed | None) -> dict[int, Advert]:
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


def _answer_agree(owner: Owner, asked: Sequence[int]) -> dict[str, str]:
    return _hex(owner.agree(asked))


def _answer_reveal(owner: Owner, asked: Mapping[str, str]) -> list[dict[str, str]]:
    found = owner.reveal(_bytes(asked))
    return [{str(k): hex(v) for k, v in each.items()} for each in (found.own, found.pairs)]


def _answer_advertise(owner: Owner, identities: Signed | None) -> list[str]:
    advert = owner.advertise()
    keys = [advert.masks.hex(), advert.messages.hex()]
    return keys if identities is None else [*keys, identities.signed(advert)]


_ANSWERS: Final[Mapping[str, Callable[[Owner, Any], Any]]] = {
    "contribute": _answer_contribute,
    "agree": _answer_agree,
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
