"""Where chance comes from: the operating system's entropy, stretched by a stream cipher.

`SystemBits` is the only source in the product. There is no seed anywhere. Samplers receive their
bits as a capability, so tests can hand over scripted ones; those live in `tests/`, and a durable
ledger refuses to vouch for anything that is not `SystemBits`.
"""

import os
import threading
from abc import ABC, abstractmethod
from typing import Any, Final, TypeAlias, final

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

Words: TypeAlias = NDArray[np.unsignedinteger[Any]]

_BLOCK: Final = 1 << 18
_ZEROS: Final = memoryview(bytes(_BLOCK))
_REKEY_AFTER_BYTES: Final = 1 << 28
_forks = 0


def _count_fork() -> None:
    """A child may have its parent's process id (in another namespace), but not its count."""
    global _forks  # noqa: PLW0603 - one number per process, changed only right after a fork
    _forks += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_count_fork)


class Bits(ABC):
    """A source of independent fair bits."""

    @abstractmethod
    def words(self, count: int, width: int) -> Words:
        """``count`` independent uniform integers below ``2**width``, for widths 1 to 64."""

    def integer(self, width: int) -> int:
        """One uniform integer below ``2**width``, for any width."""
        value = 0
        for start in range(0, width, 64):
            step = min(64, width - start)
            value = value << step | int(self.words(1, step)[0])
        return value


@final
class SystemBits(Bits):
    """AES-256 in counter mode, keyed from `os.urandom`, one stream per thread.

    Claim: the bits are indistinguishable from fair coins for anyone who cannot break AES-256 or
        the operating system's generator. Every statement "exact" in this room is relative to that.
    Why: a fresh key is drawn per thread, after a fork (forks are counted and the process id is
        compared on every call) and after 256 MiB of output, so no two processes or threads share
        a key stream. A copy of a whole running machine is not noticed: see SECURITY.md.
    """

    def __init__(self) -> None:
        self._local = threading.local()

    def words(self, count: int, width: int) -> Words:  # noqa: D102 - see Bits
        dtype, spare = _holder(width)
        out = np.empty(count, dtype)
        raw = out.view(np.uint8).data
        for start in range(0, len(raw), _BLOCK):
            part = raw[start : start + _BLOCK]
            self._stream(len(part)).update_into(_ZEROS[: len(part)], part)
        if spare:
            out >>= dtype.type(spare)
        return out

    def _stream(self, nbytes: int) -> Any:  # noqa: ANN401 - cryptography's cipher context
        local = self._local
        owner = os.getpid(), _forks
        if getattr(local, "owner", None) != owner or local.left < nbytes:
            key, nonce = os.urandom(32), os.urandom(16)
            local.cipher = Cipher(algorithms.AES(key), modes.CTR(nonce)).encryptor()
            local.owner, local.left = owner, _REKEY_AFTER_BYTES
        local.left -= nbytes
        return local.cipher


def _holder(width: int) -> "tuple[np.dtype[Any], int]":
    """The unsigned type that holds ``width`` bits, and how many of its bits are too many."""
    size = 16 if width <= 16 else 32 if width <= 32 else 64
    return np.dtype(f"uint{size}"), size - width


SYSTEM: Final = SystemBits()
