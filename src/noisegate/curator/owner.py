"""One of several owners of series, none of whom shows its own: only the noisy sum can be learnt.

    advertise   two public keys: one for masks, one for messages between owners
    share       the secrets behind its masks, in pieces; agreed many owners can put them together
    contribute  charged first; its numbers, plus its share of noise, plus masks that cancel in a sum
    agree       proof, for every other owner, of what it was told: who was heard, who stayed
    reveal      for each owner the secret of one of its two masks, never of both; once, and only if
                as many as agreed were told the same

An owner trusts nobody else for privacy; the aggregator may say what it likes to whom it likes. It
refuses to go on with fewer owners than agreed.

Claim: all that the aggregator and up to ``colluding`` owners see is as if they were told the sum of
    the other owners' numbers plus their noise, which is the event of `Owner.event`. Adjacency:
    add/remove one unit, which moves the series of all owners together by at most ``per_unit`` in
    L1, and the numbers by that times the largest column of the block (`Strategy.l1s`).
Assumed: keys arrive as they were sent (a directory or signatures); X25519, HKDF-SHA256 and AES-256
    are as good as ideal; an owner that is not colluding (an honest one) follows this protocol.
    Nothing is assumed of the aggregator. That a sum comes out, and that it is the right one, is
    promised only if all follow the protocol.
Why one agreement: its name is in the key of every message, so nobody opens a message of an honest
    owner with another agreement, and nobody contributes, or is charged, with messages unopened.
Why masks: the vector of an owner carries a mask of its own and one for each pair with an owner that
    it heard, each a stream of a key that T - 1 others cannot find. The key of a pair mask has the
    list of the heard in it, so masks cancel only between two who heard the same [BIKMMPRSS17].
Why one view: an honest owner reveals if T owners, itself among them, prove to it that they were
    told the same: H was heard, S of them stayed. It proves one view, and reveals once. For two
    views, 2 (T - c) honest owners were needed; there are n - c, and 2 T > n + colluding. (c ≤
    ``colluding`` are those who do collude.) So own masks are undone of S alone and pair masks of
    H - S alone: of an honest owner never both, as c < T.
Why only sums: take honest owners of S that heard the same H', and so share masks; the vectors of
    others keep their own masks. If H' = H, each of them has a mask with each other honest owner of
    S. It stays unless that one contributed and heard H as well: so the sum of all honest owners of
    S shows, or nothing. If H' ≠ H, their masks with honest owners of H' stay, unless these are in
    H - S or heard H' as well. But T - c honest owners are neither, as they proved H and S. That
    leaves n - T = ``drop_outs``, and H' has at least T - c > ``drop_outs``. So nothing shows.
Why noise: the sum of all honest owners of S has at least m = T - colluding shares that nobody else
    knows, and m shares add up to geometric noise of scale moved / ε; more only add independent
    noise (`noise.polya`). [RN10, GX17]
Rounding: none; sums are modulo 2**64, which is a function of the sum of whole numbers.
"""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from fractions import Fraction
from hashlib import sha256
from hmac import compare_digest
from threading import Lock
from typing import Final, TypeAlias, final

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from numpy.typing import NDArray

from noisegate.errors import RequestConflict, SpecError, Unsupported
from noisegate.frozen import dataclass, field
from noisegate.ledger.ledger import Ledger
from noisegate.noise.bits import SYSTEM, Bits, SystemBits
from noisegate.noise.geometric import SCALE_MIN
from noisegate.noise.polya import SHARE_SCALE_MAX, geometric_share
from noisegate.privacy.distance import L1
from noisegate.privacy.event import GeometricEvent
from noisegate.transforms.strategy import Block, Groups, Matrix, Strategy

Words: TypeAlias = NDArray[np.uint64]
PRIME: Final = (1 << 521) - 1
NUMBER_MAX: Final = 1 << 48  # of one owner, so that no sum of up to 2**14 owners wraps
OWNERS_MAX: Final = 1 << 14
_KEY: Final = 32
_OVER: Final = -1
_WIDE: Final = 66  # bytes of a number below PRIME


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """What all owners agree on before they begin.

    The sum comes out if at most ``drop_outs`` owners stop on the way, and is private if at most
    ``colluding`` of them tell the aggregator all they know. ``block`` are whole-number questions
    about the cells of a series; one unit moves the series of all owners by ``per_unit`` in L1.
    Cells that are not a series of units, such as how much a summary leaves out, move the numbers
    by ``extra`` for each of these moves, on top.
    """

    session: str
    owners: int
    drop_outs: int
    colluding: int
    block: Block
    per_unit: int
    epsilon: Fraction
    extra: int = 0

    def __post_init__(self) -> None:
        counts = (self.owners, self.drop_outs, self.colluding, self.per_unit, self.extra)
        if any(type(each) is not int or each < 0 for each in counts):
            raise SpecError("A number in the agreement is not whole.", fix="Use 0, 1, 2, …")
        if type(self.block) not in (Groups, Matrix):
            raise Unsupported("What is asked has no rule.", fix="Use Groups or Matrix.")
        if not 2 <= self.owners <= OWNERS_MAX or not self.moved:
            raise SpecError(
                "There are too few owners, or nothing to add up.",
                fix="Use 2 or more owners, and numbers.",
            )
        if self.owners <= 2 * self.drop_outs + self.colluding:
            raise SpecError(
                f"{self.owners} owners cannot tolerate {self.drop_outs} drop-outs and "
                f"{self.colluding} colluding owners.",
                fix="Use more owners than twice the drop-outs plus the colluding ones.",
            )
        if type(self.epsilon) is not Fraction or self.epsilon <= 0:
            raise SpecError("The price is not above 0.", fix="Give a positive epsilon.")
        if not SCALE_MIN <= self.scale <= SHARE_SCALE_MAX:
            raise SpecError("The noise is out of range.", fix="Use another epsilon.")
        if type(self.session) is not str or not self.session:
            raise SpecError("The session has no name.", fix="Name it; a name is used once.")

    @property
    def size(self) -> int:
        """How many numbers come out."""
        return self.block.size

    @property
    def moved(self) -> int:
        """How far one unit moves the numbers of all owners together, from the block itself."""
        return self.per_unit * (Strategy(self.block.cells, (self.block,)).l1s[0] + self.extra)

    @property
    def threshold(self) -> int:
        """So many owners must stay."""
        return self.owners - self.drop_outs

    @property
    def honest(self) -> int:
        """So many of those who stay do not collude, at least: their shares make the noise."""
        return self.threshold - self.colluding

    @property
    def scale(self) -> Fraction:
        """The scale of the noise that the honest shares add up to."""
        return self.moved / self.epsilon

    def name(self) -> bytes:
        """A name for exactly this agreement: SHA-256."""
        numbers = (self.owners, self.drop_outs, self.colluding, self.per_unit, self.block.cells)
        parts = [self.session, *numbers, str(self.epsilon), self.block.digest()]
        parts += [self.extra] if self.extra else []
        return sha256(json.dumps(parts).encode()).digest()

    def words(self) -> str:
        """What holds, in a sentence."""
        alone = self.owners - self.drop_outs
        return (
            f"ε = {float(self.epsilon):g} against the aggregator and any {self.colluding} owners "
            f"together, also if {self.drop_outs} of {self.owners} owners drop out. With fewer "
            f"than {alone} owners left there is no result; if more than {self.colluding} collude, "
            "the noise of the others is less than promised."
        )


@final
@dataclass(frozen=True, slots=True)
class Advert:
    """The public keys of an owner."""

    masks: bytes
    messages: bytes


@final
@dataclass(frozen=True, slots=True)
class Revealed:
    """By owner: this owner's piece of its own mask's key, or of its pair masks' key."""

    own: Mapping[int, int]
    pairs: Mapping[int, int]


@final
@dataclass(slots=True)
class Owner:
    """One owner in one session. Each step happens once, in order; one that fails is the last."""

    agreement: Agreement
    number: int
    series: NDArray[np.int64]
    ledger: Ledger
    account: str
    bits: Bits = SYSTEM
    _step: int = 0
    _roster: dict[int, Advert] = field(default_factory=dict)
    _pieces: dict[int, tuple[int, int]] = field(default_factory=dict)
    _secret: bytes = b""
    _masks: X25519PrivateKey | None = None
    _messages: X25519PrivateKey | None = None
    _stayed: frozenset[int] = frozenset()
    _view: bytes = b""
    _agreed: bytes = b""
    _lock: Lock = field(default_factory=Lock, repr=False)

    def __post_init__(self) -> None:
        series, agreed = np.asarray(self.series), self.agreement
        if type(agreed) is not Agreement or not 0 <= self.number < agreed.owners:
            raise SpecError("This owner is not in the agreement.", fix="Number the owners from 0.")
        if series.dtype != np.int64 or series.shape != (agreed.block.cells,):
            raise SpecError(
                "The series does not have the agreed length.",
                fix=f"Give {agreed.block.cells} int64s.",
            )
        self.ledger.require_secure(type(self.bits) is SystemBits)
        self.series, self._agreed = series.copy(), agreed.name()

    @property
    def event(self) -> GeometricEvent:
        """What this owner's part in the sum is, for accounting."""
        return GeometricEvent(scale=self.agreement.scale, sensitivity=L1(self.agreement.moved))

    def advertise(self) -> Advert:
        """Fresh keys."""
        self._next(0)
        self._masks, self._messages = (
            X25519PrivateKey.from_private_bytes(self._fresh()) for _ in range(2)
        )
        self._step = 1
        return Advert(_public(self._masks), _public(self._messages))

    def share(self, roster: Mapping[int, Advert]) -> dict[int, bytes]:
        """For every other owner on the list, pieces of both secrets that only it can read."""
        agreed, masks, messages = self.agreement, self._masks, self._messages
        self._next(1)
        assert masks is not None  # noqa: S101 - step 0
        assert messages is not None  # noqa: S101 - step 0
        mine = Advert(_public(masks), _public(messages))
        self._require_enough(roster, mine=roster.get(self.number) == mine)
        self._roster, self._secret = dict(roster), self._fresh()
        pairs = split(masks.private_bytes_raw(), agreed.owners, agreed.threshold, self.bits)
        own = split(self._secret, agreed.owners, agreed.threshold, self.bits)
        self._pieces[self.number] = own[self.number], pairs[self.number]
        found = {}
        for other, advert in roster.items():
            if other != self.number:
                shared_secret(masks, advert.masks)  # a bad key is refused here, before any charge
                text = own[other].to_bytes(_WIDE) + pairs[other].to_bytes(_WIDE)
                key = self._channel(advert, b"message %d %d" % (self.number, other))
                found[other] = AESGCM(key).encrypt(bytes(12), text, None)
        self._step = 2
        return found

    def contribute(self, pieces: Mapping[int, bytes]) -> Words:
        """The numbers of this owner, with its share of noise, masked. Charged before."""
        self._next(2)
        agreed = self.agreement
        heard = {*pieces, self.number}
        self._require_enough(heard, mine=heard <= self._roster.keys())
        for other, sealed in pieces.items():
            if other == self.number:
                continue
            key = self._channel(self._roster[other], b"message %d %d" % (other, self.number))
            try:
                text = AESGCM(key).decrypt(bytes(12), sealed, None)
            except InvalidTag:
                raise Unsupported(
                    "A message of another owner was changed on the way, or that owner agreed to "
                    "something else.",
                    fix="Compare agreements; begin a new session.",
                    about="changed",
                ) from None
            self._pieces[other] = int.from_bytes(text[:_WIDE]), int.from_bytes(text[_WIDE:])
        question = json.dumps({"owners": agreed.session, "number": self.number, "sum": agreed.size})
        entry = self.ledger.reserve(
            f"{self.account}: owners {agreed.session}", question=question, event=self.event,
            account=self.account, kind="measurement",
        )  # fmt: skip
        if entry.answer is not None or entry.resumed:
            raise _took_part()
        exact = np.clip(agreed.block.apply(self.series), -NUMBER_MAX, NUMBER_MAX)
        noise = geometric_share(agreed.scale, agreed.honest, agreed.size, bits=self.bits)
        total = (exact + noise).view(np.uint64)
        total += stream(self._secret, b"own", agreed.size)
        view = named(heard)
        for other in heard - {self.number}:
            total += self._pair_mask(other, view)
        mine = self._fresh()
        if entry.settle(mine) != mine:  # a fork of this process drew noise of its own
            raise _took_part()
        self._step = 3
        return total

    def agree(self, stayed: Iterable[int]) -> dict[int, bytes]:
        """For every other owner that stayed, proof of whom this one heard and who stayed."""
        self._next(3)
        left = self._stayed = frozenset(stayed)
        self._require_enough(left, mine=self.number in left and left <= self._pieces.keys())
        self._view, self._step = named(self._pieces, left), 4
        return {other: self._proof(self.number, other, other) for other in left - {self.number}}

    def reveal(self, proofs: Mapping[int, bytes]) -> Revealed:
        """Pieces of the own masks of those who stayed, and of the pair masks of the others.

        ``proofs`` are what other owners made for this one in `agree`. One that was told anything
        else is a reason to stop.
        """
        self._next(4)
        left, others = self._stayed, proofs.keys() - {self.number}
        if not others <= left or not all(
            compare_digest(proofs[other], self._proof(other, self.number, other))
            for other in others
        ):
            raise Unsupported(
                "Owners were given different lists of participants, so nothing is revealed.",
                fix="Ask the aggregator why, and begin a new session.",
                about="participants",
            )
        self._require_enough({*others, self.number}, mine=True)
        return Revealed(
            own={other: own for other, (own, _) in self._pieces.items() if other in left},
            pairs={other: pair for other, (_, pair) in self._pieces.items() if other not in left},
        )

    def _pair_mask(self, other: int, heard: bytes) -> Words:
        assert self._masks is not None  # noqa: S101 - step 0
        pair = self.number, other
        return pair_mask(self._masks, self._roster[other], pair, heard, self.agreement.size)

    def _proof(self, sender: int, reader: int, other: int) -> bytes:
        """What only these two can make: a key of theirs for the view, by HKDF."""
        use = b"view %d %d " % (sender, reader) + self._view
        return self._channel(self._roster[other], use)

    def _channel(self, advert: Advert, use: bytes) -> bytes:
        assert self._messages is not None  # noqa: S101 - step 0
        return derived(shared_secret(self._messages, advert.messages), use + b" " + self._agreed)

    def _fresh(self) -> bytes:
        return self.bits.words(_KEY // 8, 64).astype("<u8").tobytes()

    def _next(self, step: int) -> None:
        with self._lock:
            if self._step != step:
                raise RequestConflict(
                    "This step was already taken, or another one comes first.",
                    fix="Begin a new session.",
                )
            self._step = _OVER  # until this one is done

    def _require_enough(self, heard: Collection[int], *, mine: bool) -> None:
        known = set(heard) <= set(range(self.agreement.owners))
        if len(heard) < self.agreement.threshold or not (mine and known):
            raise Unsupported(
                "Too few owners are left, or not the ones who began.",
                fix="Begin a new session with all of them.",
                about="too-few",
            )


def _took_part() -> RequestConflict:
    return RequestConflict(
        "This owner already took part in a session of this name.", fix="Use a new name."
    )


def named(*lists: Iterable[int]) -> bytes:
    """A name for lists of owners, in any order: SHA-256."""
    return sha256(json.dumps([sorted(map(int, each)) for each in lists]).encode()).digest()


def pair_mask(
    secret: X25519PrivateKey, advert: Advert, pair: tuple[int, int], heard: bytes, size: int
) -> Words:
    """The mask that the first of a pair adds; the other adds its negative if it heard the same."""
    first, other = pair
    shared = shared_secret(secret, advert.masks)
    words = stream(shared, b"pair %d %d " % (min(pair), max(pair)) + heard, size)
    return words if first < other else -words


def shared_secret(own: X25519PrivateKey, other: bytes) -> bytes:
    """What two owners share, each by its own secret and the other's public key."""
    try:
        return own.exchange(X25519PublicKey.from_public_bytes(other))
    except ValueError:
        raise Unsupported(
            "The key of another owner is not valid.",
            fix="Begin a new session without it.",
            about="key",
        ) from None


def stream(secret: bytes, use: bytes, size: int) -> Words:
    """Words of a stream cipher: AES-256 in counter mode, its key derived for one use."""
    cipher = Cipher(algorithms.AES(derived(secret, use)), modes.CTR(bytes(16))).encryptor()
    return np.frombuffer(cipher.update(bytes(8 * size)), "<u8").astype(np.uint64)


def derived(secret: bytes, use: bytes) -> bytes:
    """A key for one use, by HKDF-SHA256."""
    return HKDF(algorithm=SHA256(), length=_KEY, salt=None, info=b"noisegate " + use).derive(secret)


def split(secret: bytes, count: int, threshold: int, bits: Bits) -> list[int]:
    """Values of a random polynomial at 1, 2, …: ``threshold`` of them give the secret.

    Claim: fewer pieces are independent of the secret. Why: [Sha79]; for any secret, one polynomial
        of the remaining freedom fits. Coefficients are uniform below the prime, by rejection.
    """
    found = [int.from_bytes(secret)]
    while len(found) < threshold:
        drawn = bits.integer(521)
        if drawn < PRIME:
            found.append(drawn)
    return [_value(found, at) for at in range(1, count + 1)]


def _value(coefficients: Sequence[int], at: int) -> int:
    total = 0
    for each in reversed(coefficients):
        total = (total * at + each) % PRIME
    return total


def joined(pieces: Mapping[int, int]) -> bytes:
    """The secret of pieces by owner: the polynomial at 0."""
    places = {owner + 1: value for owner, value in pieces.items()}
    total = 0
    for at, value in places.items():
        top, bottom = 1, 1
        for other in places:
            if other != at:
                top, bottom = top * other % PRIME, bottom * (other - at) % PRIME
        total = (total + value * top * pow(bottom, -1, PRIME)) % PRIME
    if total >> (8 * _KEY):
        raise Unsupported("The pieces do not fit together.", fix="Begin a new session.")
    return total.to_bytes(_KEY)


def _public(secret: X25519PrivateKey) -> bytes:
    return secret.public_key().public_bytes_raw()
