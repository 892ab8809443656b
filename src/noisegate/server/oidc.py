"""People who sign in elsewhere: tokens of an OpenID Connect provider, checked against its keys.

The provider says who somebody is; what they may do is the service's: a person of that name must
have been added here, with a role, and a share in the policy.
"""

import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any, Final, final
from urllib.request import urlopen

from noisegate.errors import OperatorError, Unauthenticated
from noisegate.extras import extra

ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "ES256", "ES384", "EdDSA")  # public keys
_KEPT_S: Final = 600  # keys are asked for anew after so long
_AGAIN_S: Final = 30  # and where a token names one that is not there, not more often than this
_LEEWAY_S: Final = 30
_SIZE_MAX: Final = 1 << 20


@final
@dataclass(eq=False, kw_only=True)
class Issuer:
    """A provider: its name, for whom its tokens are, where its keys are, which claim is the name.

    ``keys`` is a file or an https URL of a JSON Web Key Set.
    """

    issuer: str
    audience: str
    keys: str
    claim: str = "email"
    _found: dict[str, Any] = field(default_factory=dict)
    _read_at: float = float("-inf")
    _lock: Lock = field(default_factory=Lock)

    def name_of(self, text: str) -> str:
        """Whose token this is; refuses one that is forged, expired, or for somebody else."""
        jwt = extra("jwt", "Tokens of a provider", "server")
        try:
            named = jwt.get_unverified_header(text)["kid"]
            said = jwt.decode(
                text, self._key(named), algorithms=ALGORITHMS, audience=self.audience,
                issuer=self.issuer, leeway=_LEEWAY_S, options={"require": ["exp", "iss", "aud"]},
            )  # fmt: skip
            doubted = self.claim == "email" and said.get("email_verified") is False
            name = None if doubted else said[self.claim]
        except (jwt.PyJWTError, KeyError, ValueError, TypeError):
            name = None
        if not isinstance(name, str):
            raise Unauthenticated(
                "The provider's token is wrong, expired, or for another service.",
                fix="Sign in again at the provider.",
            )
        return name

    def _key(self, named: str) -> Any:  # noqa: ANN401 - a key of any kind
        with self._lock:
            age = time.monotonic() - self._read_at
            if age > _KEPT_S or (named not in self._found and age > _AGAIN_S):
                self._found, self._read_at = self._read(), time.monotonic()
        return self._found[named]

    def _read(self) -> dict[str, Any]:
        jwt = extra("jwt", "Tokens of a provider", "server")
        try:
            if self.keys.startswith("https://"):
                with urlopen(self.keys, timeout=10) as reply:  # noqa: S310 - https only
                    text = reply.read(_SIZE_MAX)
            else:
                text = Path(self.keys).read_bytes()
            listed = json.loads(text)["keys"]
            return {each["kid"]: jwt.PyJWK(each).key for each in listed if each.get("use") != "enc"}
        except (OSError, ValueError, KeyError, TypeError, jwt.PyJWTError):
            raise OperatorError(
                "The keys of the provider cannot be read.",
                fix="Give a file or an https URL of a JSON Web Key Set as oidc_keys.",
                about="oidc",
            ) from None
