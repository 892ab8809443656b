"""Requests to a service: with a token, over TLS, tried again where that changes nothing.

A request that was cut off may have been heard. All that are sent here may be sent twice: looking
changes nothing, and an order has an idempotency key, under which it is asked and paid for once.
"""

import json
import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from ipaddress import ip_address
from typing import Any, Final, final
from urllib.parse import urlencode, urlsplit

import pyarrow as pa

import noisegate.errors as errors  # noqa: PLR0402 - all of them
from noisegate.errors import NoisegateError, OperatorError, SpecError, UserError
from noisegate.frozen import dataclass

JSON: Final = "application/json"
ARROW: Final = "application/vnd.apache.arrow.stream"
PARQUET: Final = "application/vnd.apache.parquet"
_TRIES: Final = 5
_PAUSE: Final = 0.2  # seconds before the second try; then twice as long each time
_SLOW: Final = 90.0  # seconds without a byte
_CODES: Final[Mapping[str, type[NoisegateError]]] = {
    each.code: each
    for each in vars(errors).values()
    if isinstance(each, type) and issubclass(each, NoisegateError)
}


@final
@dataclass(frozen=True, slots=True)
class Reply:
    """What a service said."""

    status: int
    headers: Mapping[str, str]  # by names in small letters
    body: bytes

    def json(self) -> Any:  # noqa: ANN401 - JSON
        """The body, which is JSON."""
        try:
            return json.loads(self.body)
        except ValueError:
            raise _strange() from None


@final
class Calls:
    """Requests to one service. Each thread keeps a connection of its own."""

    def __init__(self, url: str, token: str, *, cafile: str | None = None) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("https", "http") or not parts.hostname or parts.query:
            raise SpecError(
                "This is not the address of a service.",
                fix='Use one such as "https://gate.example.org".',
                about="url",
            )
        if parts.scheme == "http" and not _is_here(parts.hostname):
            raise SpecError(
                "The token would be sent in the clear.", fix="Use https://.", about="clear"
            )
        if not token.isascii() or not token.isprintable() or " " in token or not token:
            raise SpecError("This is not a token.", fix="Use it as it was shown.", about="token")
        self.url = url.rstrip("/")
        self._base, self._token = parts.path.rstrip("/"), token
        self._host, self._port = parts.hostname, parts.port
        self._tls = ssl.create_default_context(cafile=cafile) if parts.scheme == "https" else None
        self._own = threading.local()

    def get(
        self, path: str, accept: str = JSON, *, wait: float | None = None, **query: str
    ) -> Reply:
        """Look at something; ``wait`` so many seconds for it to change."""
        headers = {"Accept": accept} | ({} if wait is None else {"Prefer": f"wait={wait:g}"})
        return self._told("GET", _path(path, query), None, headers)

    def post(
        self, path: str, record: Mapping[str, Any], headers: Mapping[str, str], **query: str
    ) -> Reply:
        """Send JSON."""
        said = {"Content-Type": JSON, "Accept": JSON} | dict(headers)
        body = json.dumps(record, ensure_ascii=False, allow_nan=False).encode()
        return self._told("POST", _path(path, query), body, said)

    def delete(self, path: str) -> Reply:
        """Have something stopped."""
        return self._told("DELETE", path, None, {"Accept": JSON})

    def _told(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]
    ) -> Reply:
        """The reply to a request; a refusal is raised, as a gate in this process would."""
        pause = _PAUSE
        for left in reversed(range(_TRIES)):
            try:
                reply = self._once(method, path, body, headers)
                break
            except (OSError, HTTPException) as error:
                self.close()
                if isinstance(error, ssl.SSLCertVerificationError) or not left:
                    raise OperatorError(
                        f"The service cannot be reached: {type(error).__name__}.",
                        fix="Check the address and the network, then try again. What was asked "
                        "under the same key is charged at most once.",
                        about="unreachable",
                    ) from None
                time.sleep(pause)
                pause *= 2
        if reply.status >= HTTPStatus.BAD_REQUEST:
            raise refusal_of(reply)
        return reply

    def _once(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]
    ) -> Reply:
        kept = getattr(self._own, "kept", None)
        if kept is None:
            kept = self._own.kept = _Kept(self._connection())
        connection = kept.connection
        said = {**headers, "Authorization": f"Bearer {self._token}"}
        connection.request(method, f"{self._base}{path}", body, said)
        answer = connection.getresponse()
        found = {name.lower(): value for name, value in answer.getheaders()}
        return Reply(answer.status, found, answer.read())

    def _connection(self) -> HTTPConnection:
        if self._tls is None:
            return HTTPConnection(self._host, self._port, timeout=_SLOW)
        return HTTPSConnection(self._host, self._port, timeout=_SLOW, context=self._tls)

    def close(self) -> None:
        """Let go of this thread's connection; the next request makes another."""
        kept, self._own.kept = getattr(self._own, "kept", None), None
        if kept is not None:
            kept.connection.close()


@contextmanager
def understood() -> Iterator[None]:
    """Read what a service said; what no service says is refused."""
    unread = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
    try:
        yield
    except (*unread, pa.ArrowException):
        raise _strange() from None


@final
class _Kept:
    """A connection, closed when nobody needs it."""

    def __init__(self, connection: HTTPConnection) -> None:
        self.connection = connection

    def __del__(self) -> None:
        self.connection.close()


def refusal_of(reply: Reply) -> NoisegateError:
    """The refusal that a service sent, by its code: that of a gate in this process."""
    try:
        said = json.loads(reply.body)
        code, problem, fix = said["code"], said["message"], said["fix"]
        plain = all(isinstance(each, str) for each in (code, problem, fix))
        reference = said.get("reference")
    except (AttributeError, LookupError, TypeError, ValueError):
        plain = False
    if not plain:
        return _strange()
    usual = UserError if reply.status < HTTPStatus.INTERNAL_SERVER_ERROR else OperatorError
    name, _, about = code.partition(".")
    words = fix if reference is None else f"{fix} The reference is {reference}."
    found = _CODES.get(name, usual)(problem, fix=words, about=about)
    found.code = code
    return found


def _path(path: str, query: Mapping[str, str]) -> str:
    return f"{path}?{urlencode(query)}" if query else path


def _is_here(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _strange() -> OperatorError:
    return OperatorError(
        "What answered is not a service of noisegate.", fix="Check the address.", about="strange"
    )
