"""People who sign in elsewhere: tokens of an OpenID Connect provider, checked against its keys.

The provider says who somebody is; what they may do is the service's: a person of that name must
have been added here, with a role, and a share in the policy. Programs bring a token (`Issuer`);
browsers are sent there and come back with a code (`SignIn`).
"""

import hmac
import json
import time
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path
from threading import Lock
from typing import Any, Final, TypeAlias, final
from urllib.parse import quote, urlencode, urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from noisegate.errors import OperatorError, Unauthenticated
from noisegate.extras import extra
from noisegate.frozen import dataclass, field

ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "ES256", "ES384", "EdDSA")  # public keys
_KEPT_S: Final = 600  # keys are asked for anew after so long
_AGAIN_S: Final = 30  # and where a token names one that is not there, not more often than this
_FAILED_S: Final = 10  # and where reading failed, not more often than this
_WAIT_S: Final = 1  # for somebody else who reads just now
_LEEWAY_S: Final = 30
_SIZE_MAX: Final = 1 << 20
_PATIENCE_S: Final = 10
_ONLY: Final = ""  # the name of a key where there is one alone
_LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")
Found: TypeAlias = dict[str, Any]


@final
class Kept:
    """What was last read of a provider. One thread reads; the others do not wait for long.

    That reading failed is remembered too: else junk tokens could hold all threads of the service
    while a provider does not answer.
    """

    def __init__(self) -> None:
        self._found: Found = {}
        self._read_at = self._failed_at = float("-inf")
        self._lock = Lock()

    def get(self, read: Callable[[], Found], is_old: Callable[[Found, float], bool]) -> Found:
        """What was found, or is found now if that ``is_old``, by its age in seconds."""
        if not is_old(self._found, self._age):
            return self._found
        if not self._lock.acquire(timeout=_WAIT_S):
            raise OSError
        try:
            if is_old(self._found, self._age):
                if time.monotonic() - self._failed_at < _FAILED_S:
                    raise OSError
                try:
                    self._found = read()
                except Exception:
                    self._failed_at = time.monotonic()
                    raise
                self._read_at = time.monotonic()
            return self._found
        finally:
            self._lock.release()

    @property
    def _age(self) -> float:
        return time.monotonic() - self._read_at


@final
@dataclass(eq=False, kw_only=True)
class Issuer:
    """A provider: its name, for whom its tokens are, where its keys are, which claim is the name.

    ``keys`` is a file or an https URL of a JSON Web Key Set. An e-mail address is a name only if
    the provider says ``email_verified``: else anybody could claim that of a steward there.
    ``unverified``: the provider does not say so, and vouches for all of its addresses.
    """

    issuer: str
    audience: str
    keys: str
    claim: str = "email"
    unverified: bool = False
    _kept: Kept = field(default_factory=Kept)

    def name_of(self, text: str) -> str:
        """Whose token this is; refuses one that is forged, expired, or for somebody else."""
        return self.named(self.claims_of(text, self.audience))

    def named(self, said: Found) -> str:
        """The name among claims that were checked."""
        sure = said.get("email_verified", self.unverified) is True
        name = None if self.claim == "email" and not sure else said.get(self.claim)
        if not isinstance(name, str):
            raise _wrong()
        return name

    def claims_of(self, text: str, audience: str) -> Found:
        """What a token says, if the provider signed it for this audience and it is still good."""
        jwt = extra("jwt", "Tokens of a provider", "server")
        try:
            key = self._key(jwt.get_unverified_header(text).get("kid", _ONLY))
            said: Found = jwt.decode(
                text, key, algorithms=ALGORITHMS, audience=audience, issuer=self.issuer,
                leeway=_LEEWAY_S, options={"require": ["exp", "iss", "aud"]},
            )  # fmt: skip
        except (jwt.PyJWTError, KeyError, ValueError, TypeError):
            raise _wrong() from None
        return said

    def _key(self, named: str) -> Any:  # noqa: ANN401 - a key of any kind
        def is_old(found: Found, age: float) -> bool:
            return age > _KEPT_S or (named not in found and age > _AGAIN_S)

        jwt = extra("jwt", "Tokens of a provider", "server")
        try:
            found = self._kept.get(self._read, is_old)
        except (OSError, ValueError, KeyError, TypeError, jwt.PyJWTError):
            raise OperatorError(
                "The keys of the provider cannot be read.",
                fix="Give a file or an https URL of a JSON Web Key Set as oidc_keys.",
                about="oidc",
            ) from None
        return found[named]

    def _read(self) -> Found:
        jwt = extra("jwt", "Tokens of a provider", "server")
        text = fetched(self.keys) if "://" in self.keys else Path(self.keys).read_bytes()
        listed = [each for each in json.loads(text)["keys"] if each.get("use") != "enc"]
        known = jwt.PyJWKSet(listed).keys  # without those of a kind that is not known (RFC 7517, 5)
        found = {each.key_id: each.key for each in known if each.key_id is not None}
        if len(listed) == 1:  # then tokens need not say which (OpenID Connect Core, 10.1)
            found[_ONLY] = known[0].key
        return found


@final
@dataclass(eq=False, kw_only=True)
class SignIn:
    """The way of browsers: OpenID Connect's authorization code flow with PKCE (RFC 7636).

    Everything that has to be remembered between leaving and coming back (state, nonce, verifier)
    follows from one secret, which is in a cookie of the browser alone. So nobody can be signed in
    with a code that was meant for another browser, and nothing is stored here.
    """

    issuer: Issuer
    client: str
    secret: str | None = None
    _kept: Kept = field(default_factory=Kept)

    def address(self, memory: str, back: str) -> str:
        """Where to send somebody; ``back`` is our own address for their return."""
        asked = {
            "response_type": "code",
            "client_id": self.client,
            "redirect_uri": back,
            "scope": "openid email profile",
            "state": derived(memory, "state"),
            "nonce": derived(memory, "nonce"),
            "code_challenge": _plain(sha256(derived(memory, "verifier").encode()).digest()),
            "code_challenge_method": "S256",
        }
        return self._joined("authorization_endpoint", asked)

    @staticmethod
    def began(said: Mapping[str, str], memory: str) -> bool:
        """Whether what was ``said`` in the address belongs to a sign-in of this browser."""
        state = said.get("state", "").encode()
        return hmac.compare_digest(state, derived(memory, "state").encode())

    def name_of(self, said: Mapping[str, str], memory: str, back: str) -> str:
        """Who came back, by what the provider ``said`` in the address."""
        ours = said.get("iss", self.issuer.issuer) == self.issuer.issuer
        if not ours or not self.began(said, memory):
            raise _refused("This sign-in was not begun here, or too long ago.")
        if "code" not in said:
            raise _refused("The provider did not let you in.")
        sent = {
            "grant_type": "authorization_code",
            "code": said["code"],
            "redirect_uri": back,
            "client_id": self.client,
            "code_verifier": derived(memory, "verifier"),
        }
        try:
            reply = json.loads(fetched(self._endpoint("token_endpoint"), sent, self._known()))
            token = str(reply["id_token"])
        except (OSError, ValueError, KeyError, TypeError):
            raise _refused("The provider gave no token for this sign-in.") from None
        told = self.issuer.claims_of(token, self.client)
        if told.get("nonce") != derived(memory, "nonce") or (
            told.get("azp", self.client) != self.client
        ):
            raise _wrong()
        if self.issuer.claim not in told:
            told = self._told_beside(told.get("sub"), str(reply.get("access_token")))
        return self.issuer.named(told)

    def _told_beside(self, subject: object, token: str) -> Found:
        """Claims of those providers that keep names out of ID tokens (Core, 5.3 and 5.4)."""
        where = self._endpoint("userinfo_endpoint")
        try:
            told: Found = json.loads(fetched(where, None, {"Authorization": f"Bearer {token}"}))
            same = subject is not None and told["sub"] == subject
        except (OSError, ValueError, KeyError, TypeError):
            raise _refused("The provider does not say who this sign-in is.") from None
        if not same:  # it may be somebody else's
            raise _wrong()
        return told

    def way_out(self, back: str) -> str | None:
        """Where somebody signs out of the provider, if it says where."""
        asked = {"client_id": self.client, "post_logout_redirect_uri": back}
        try:
            return self._joined("end_session_endpoint", asked)
        except OperatorError:
            return None

    def _known(self) -> dict[str, str]:
        """How we show the provider that it is us, if it gave us a secret (RFC 6749, 2.3.1)."""
        if self.secret is None:
            return {}
        pair = f"{quote(self.client, safe='')}:{quote(self.secret, safe='')}"
        return {"Authorization": f"Basic {b64encode(pair.encode()).decode()}"}

    def _joined(self, name: str, asked: Mapping[str, str]) -> str:
        where = self._endpoint(name)
        return f"{where}{'&' if '?' in where else '?'}{urlencode(asked)}"

    def _endpoint(self, name: str) -> str:
        """A place of the provider, as it describes itself; the description is read once."""
        try:
            return _safe(self._kept.get(self._described, lambda found, _: not found)[name])
        except (OSError, ValueError, KeyError, TypeError):
            raise OperatorError(
                "The provider does not describe itself as it should.",
                fix="Check oidc_issuer: it must serve /.well-known/openid-configuration.",
                about="oidc",
            ) from None

    def _described(self) -> Found:
        place = f"{self.issuer.issuer.rstrip('/')}/.well-known/openid-configuration"
        told = json.loads(fetched(place))
        if told["issuer"] != self.issuer.issuer:
            raise ValueError
        return {name: each for name, each in told.items() if isinstance(each, str)}


class _Stay(HTTPRedirectHandler):
    """A provider that sends us elsewhere is not followed: codes and secrets stay with it."""

    def redirect_request(self, *_: object, **__: object) -> None:
        """Nowhere."""


def fetched(
    where: str, sent: Mapping[str, str] | None = None, headers: Mapping[str, str] | None = None
) -> bytes:
    """What stands at an address of the provider: over TLS, or on this machine."""
    body = None if sent is None else urlencode(sent).encode()
    asked = Request(_safe(where), body, {"Accept": "application/json", **(headers or {})})  # noqa: S310 - checked
    with build_opener(_Stay).open(asked, timeout=_PATIENCE_S) as reply:
        found: bytes = reply.read(_SIZE_MAX)
    return found


def _safe(where: str) -> str:
    parts = urlsplit(where)
    if parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in _LOOPBACK):
        return where
    raise ValueError


def derived(memory: str, what: str) -> str:
    """One of the numbers of a sign-in; none of them tells another."""
    return _plain(hmac.digest(memory.encode(), f"noisegate {what}".encode(), "sha256"))


def _plain(made: bytes) -> str:
    return urlsafe_b64encode(made).rstrip(b"=").decode()


def _wrong() -> Unauthenticated:
    return Unauthenticated(
        "The provider's token is wrong, expired, or for another service.",
        fix="Sign in again at the provider.",
    )


def _refused(problem: str) -> Unauthenticated:
    return Unauthenticated(problem, fix="Sign in again.", about="oidc")
