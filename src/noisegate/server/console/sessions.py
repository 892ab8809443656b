"""Who signed in: a random name in a cookie, of which the store keeps a hash, until it expires.

A session is what a token or a password opened, and ends with it: a token that was revoked and a
person who was disabled have no session from then on.
"""

import hmac
import time
from collections import OrderedDict
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from secrets import token_urlsafe
from threading import Lock
from typing import Final, final

from noisegate.errors import Busy, Unauthenticated
from noisegate.frozen import dataclass
from noisegate.server.access import now
from noisegate.server.people import Caller, People
from noisegate.server.store import Store

HOURS: Final = 8
_WRONG_MAX: Final = {"name": 10, "address": 50}  # in _SECONDS
_SECONDS: Final = 300.0
_REMEMBERED: Final = 10_000  # addresses and names


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Stay:
    """Somebody's stay. ``form`` is what their forms must carry; ``caller`` None: nobody yet."""

    cookie: str
    caller: Caller | None

    @property
    def form(self) -> str:
        """The token of forms: whoever has the cookie can make it, and nobody from it the cookie."""
        return hmac.digest(self.cookie.encode(), b"noisegate form", "sha256").hex()

    def owns(self, form: str) -> bool:
        """Whether a form was written for this session."""
        return hmac.compare_digest(self.form.encode(), form.encode())


@final
class Sessions:
    """Sessions in the store of a service."""

    def __init__(self, store: Store, people: People) -> None:
        self._store, self._people = store, people

    @staticmethod
    def nobody() -> Stay:
        """Before somebody signs in: the form for that has to be ours, too."""
        return Stay(cookie=token_urlsafe(32), caller=None)

    def begin(self, caller: Caller) -> Stay:
        """A new session, under a name that nobody had before."""
        cookie = token_urlsafe(32)
        until = datetime.now(UTC) + timedelta(hours=HOURS)
        expires = until.isoformat(timespec="milliseconds")
        self._store.all("DELETE FROM sessions WHERE expires <= ?", now())
        self._store.all(
            "INSERT INTO sessions (digest, person, token, csrf, expires) VALUES (?, ?, ?, ?, ?)",
            _digest(cookie), caller.name, caller.token, "", expires,
        )  # fmt: skip
        return Stay(cookie=cookie, caller=caller)

    def find(self, cookie: str) -> Stay | None:
        """The session of a cookie, while it lasts and what opened it still opens something."""
        row = self._store.one(
            "SELECT person, token FROM sessions WHERE digest = ? AND expires > ?",
            _digest(cookie),
            now(),
        )
        if row is None:
            return None
        person, token = row
        try:
            if token is None:
                caller = self._people.caller_of(person)
            else:
                caller = self._people.caller_of_token(token)
        except Unauthenticated:
            self.end(cookie)
            return None
        return Stay(cookie=cookie, caller=caller)

    def end(self, cookie: str) -> None:
        """Sign out: the cookie opens nothing from now on."""
        self._store.all("DELETE FROM sessions WHERE digest = ?", _digest(cookie))


@final
class Attempts:
    """Failed attempts to sign in, by name and by address: after some, a pause of five minutes."""

    def __init__(self) -> None:
        self._failed: OrderedDict[tuple[str, str], list[float]] = OrderedDict()
        self._lock = Lock()

    def require(self, **who: str) -> None:
        """Refuse if one of them failed too often."""
        with self._lock:
            if any(len(self._recent(each)) >= _WRONG_MAX[each[0]] for each in who.items()):
                raise Busy(
                    "Too many attempts to sign in failed.", fix="Wait five minutes, then try again."
                )

    def failed(self, **who: str) -> None:
        """Note a failure of each."""
        with self._lock:
            for each in who.items():
                self._failed[each] = [*self._recent(each), time.monotonic()]
                self._failed.move_to_end(each)
            while len(self._failed) > _REMEMBERED:
                self._failed.popitem(last=False)

    def _recent(self, who: tuple[str, str]) -> list[float]:
        since = time.monotonic() - _SECONDS
        return [at for at in self._failed.get(who, ()) if at > since]


def _digest(cookie: str) -> str:
    return sha256(cookie.encode()).hexdigest()
