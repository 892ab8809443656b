"""Ed25519 keys of a steward: whoever has the private one signs, anybody checks by the public one.

A private key is a file that its owner alone can read. A public key is 32 bytes, as base64 text; its
fingerprint is short enough to be compared by eye.
"""

import os
from base64 import b64decode, b64encode
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

from noisegate.errors import SpecError
from noisegate.frozen import dataclass

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

ALGORITHM: Final = "Ed25519"
_OTHERS: Final = 0o077  # what a key's mode gives to anyone but its owner
_BYTES: Final = 32  # of a public key
_MAKE: Final = "Make one: noisegate key new FILE."


@final
@dataclass(frozen=True, slots=True, repr=False)
class Signer:
    """A private key in memory."""

    _private: "Ed25519PrivateKey"

    @classmethod
    def load(cls, path: str | Path) -> "Signer":
        """The private key of a file, which nobody but its owner may be able to read."""
        return cls(_private(Path(path)))

    @property
    def public(self) -> str:
        """The public key, as base64 text."""
        return b64encode(self._private.public_key().public_bytes_raw()).decode()

    def sign(self, message: bytes) -> str:
        """The signature, as base64 text."""
        return b64encode(self._private.sign(message)).decode()


def make_key(path: str | Path) -> str:
    """Write a new private key, readable by its owner only, and return the public one."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import (  # noqa: PLC0415 - quick help
        Ed25519PrivateKey,
    )
    from cryptography.hazmat.primitives.serialization import (  # noqa: PLC0415
        Encoding,
        NoEncryption,
        PrivateFormat,
    )

    private = Ed25519PrivateKey.generate()
    text = private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except (OSError, ValueError) as error:  # a NUL in the name is a ValueError
        why = getattr(error, "strerror", None) or "this is not a file name"
        raise SpecError(
            f"The key {Path(path).name!r} cannot be written: {why}.",
            fix="Name a new file, on another disk than the ledger.",
            about="key-file",
        ) from None
    with os.fdopen(descriptor, "wb") as file:
        file.write(text)
    return Signer(private).public


def public_key(path: str | Path) -> str:
    """The public key that belongs to a private one."""
    return Signer.load(path).public


def fingerprint(public: str) -> str:
    """A public key in short: the first 16 hexadecimal digits of its SHA-256, in fours.

    >>> fingerprint("A" * 43 + "=")
    '6668-7aad-f862-bd77'
    """
    digits = sha256(_raw(public)).hexdigest()
    return "-".join(digits[at : at + 4] for at in range(0, 16, 4))


def read_public(text: str) -> str:
    """A public key as somebody gave it: base64, or PEM."""
    said = text.strip()
    if not said.startswith("-----BEGIN PUBLIC KEY-----"):
        return b64encode(_raw(said)).decode()
    from cryptography.hazmat.primitives.asymmetric.ed25519 import (  # noqa: PLC0415
        Ed25519PublicKey,
    )
    from cryptography.hazmat.primitives.serialization import load_pem_public_key  # noqa: PLC0415

    try:
        found = load_pem_public_key(said.encode())
    except (TypeError, ValueError):
        found = None
    if not isinstance(found, Ed25519PublicKey):
        raise _no_key()
    return b64encode(found.public_bytes_raw()).decode()


def holds(public: object, signature: object, message: bytes) -> bool:
    """Whether this key signed this message. What is no key and no signature has not."""
    from cryptography.exceptions import InvalidSignature  # noqa: PLC0415 - quick help
    from cryptography.hazmat.primitives.asymmetric.ed25519 import (  # noqa: PLC0415
        Ed25519PublicKey,
    )

    if not isinstance(public, str) or not isinstance(signature, str):
        return False
    try:
        key = Ed25519PublicKey.from_public_bytes(_raw(public))
        key.verify(b64decode(signature, validate=True), message)
    except (InvalidSignature, SpecError, ValueError):
        return False
    return True


def _raw(public: str) -> bytes:
    try:
        found = b64decode(public, validate=True)
    except ValueError:
        found = b""
    if len(found) != _BYTES:
        raise _no_key()
    return found


def _no_key() -> SpecError:
    return SpecError(
        "This is not a public key.",
        fix="Give the text that noisegate key show prints, or a file with it.",
        about="public-key",
    )


def _private(path: Path) -> "Ed25519PrivateKey":
    from cryptography.hazmat.primitives.asymmetric.ed25519 import (  # noqa: PLC0415
        Ed25519PrivateKey,
    )
    from cryptography.hazmat.primitives.serialization import (  # noqa: PLC0415
        load_pem_private_key,
    )

    try:
        with path.open("rb") as file:
            mode, text = os.fstat(file.fileno()).st_mode, file.read(1 << 16)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "this is not a file name"
        raise SpecError(f"The key cannot be read: {why}.", fix=_MAKE) from None
    if os.name == "posix" and mode & _OTHERS:
        raise SpecError(
            "The key file can be read by others.",
            fix=f"Run chmod 600 {path.name}, or make a new key.",
            about="key-mode",
        )
    try:
        found = load_pem_private_key(text, password=None)
    except (TypeError, ValueError):
        found = None
    if not isinstance(found, Ed25519PrivateKey):
        raise SpecError(f"{path.name!r} is not an Ed25519 key.", fix=_MAKE, about="key-kind")
    return found
