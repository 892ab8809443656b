"""SCRAM-SHA-256, the server's side (RFC 5802, RFC 7677), without channel binding.

The password never travels, and what is stored does not let anybody in. Somebody without keys gets a
salt as well and fails at the same step in the same words: the exchange does not tell who exists. A
person's tokens share a salt; the proof is checked against each.
"""

import base64
import binascii
import hashlib
import hmac
import re
from secrets import token_hex
from typing import Final, final

from noisegate.frozen import dataclass, field
from noisegate.server.people import Scram

NAME: Final = "SCRAM-SHA-256"
_GS2: Final = re.compile(rb"([ny]),,")
_FIRST: Final = re.compile(rb"n=[^,]*,r=([\x21-\x2b\x2d-\x7e]{1,256})(,[a-ln-z]=[^,]*)*")
_FINAL: Final = re.compile(rb"(c=([^,]+),r=([^,]+)(?:,[a-z]=[^,]*)*?),p=([^,]+)")


class Denied(Exception):  # noqa: N818 - the answer
    """The proof is wrong, or the exchange is not one."""


@final
@dataclass(slots=True)
class Exchange:
    """One exchange: `first`, then `final`."""

    secrets: Scram
    _header: bytes = b""
    _nonce: bytes = b""
    _said: list[bytes] = field(default_factory=list)

    def first(self, data: bytes) -> bytes:
        """The server's first message: nonce, salt and iterations."""
        header = _GS2.match(data)
        found = _FIRST.fullmatch(data, header.end()) if header else None
        if header is None or found is None:
            raise Denied
        self._header, self._nonce = header[0], found[1] + token_hex(18).encode()
        salt = base64.b64encode(self.secrets.salt)
        answer = b"r=%s,s=%s,i=%d" % (self._nonce, salt, self.secrets.iterations)
        self._said = [data[header.end() :], answer]
        return answer

    def final(self, data: bytes) -> tuple[bytes, str]:
        """The server's last message, and whose token it was."""
        found = _FINAL.fullmatch(data)
        if not found or _decoded(found[2]) != self._header or found[3] != self._nonce:
            raise Denied
        proof, signed = _decoded(found[4]), b",".join([*self._said, found[1]])
        right = [each for each in self.secrets.keys if _is_proof(proof, each[0], signed)]
        if not right:
            raise Denied
        _, server, token = right[0]
        return b"v=" + base64.b64encode(hmac.digest(server, signed, "sha256")), token


def _is_proof(proof: bytes, stored: bytes, signed: bytes) -> bool:
    mask = hmac.digest(stored, signed, "sha256")
    if len(proof) != len(mask):
        return False
    client = bytes(one ^ other for one, other in zip(proof, mask, strict=True))
    return hmac.compare_digest(hashlib.sha256(client).digest(), stored)


def _decoded(text: bytes) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise Denied from None
