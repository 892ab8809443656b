"""Who somebody is: people with a role, their passwords and tokens.

A password is for the pages and is kept as argon2 makes it. Everything else takes a token: 256
random bits, of which the store keeps a hash, and the two keys that let a Postgres client prove that
it has them (SCRAM-SHA-256, RFC 5802): whoever reads the store can sign in as nobody.
"""

import hashlib
import hmac
import json
from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from functools import lru_cache
from secrets import token_bytes, token_hex, token_urlsafe
from typing import Final, Literal, TypeAlias, final, get_args

from noisegate.errors import Forbidden, SpecError, Unauthenticated
from noisegate.exact import Number, fraction
from noisegate.extras import extra
from noisegate.frozen import dataclass
from noisegate.ledger.rules import require_name
from noisegate.privacy.capability import CAPABILITIES
from noisegate.server.access import now
from noisegate.server.oidc import Issuer
from noisegate.server.refusals import no_such
from noisegate.server.store import Row, Store

Role: TypeAlias = Literal["steward", "analyst", "auditor"]
ROLES: Final[tuple[Role, ...]] = get_args(Role)
ITERATIONS: Final = 4096  # of SCRAM; a token has 256 random bits, and needs no stretching
_PREFIX: Final = "ng"
_JWT_DOTS: Final = 2
_PASSWORD_MIN: Final = 12
_COLUMNS: Final = (  # of a token
    "id, person, label, digest, stored_key, server_key, datasets, allow, epsilon_question, "
    "epsilon_hour, created, expires, revoked, purpose"
)
_WITH_PERSON: Final = (  # in one look, so that what was revoked or disabled opens nothing at once
    f"SELECT {', '.join(f't.{name}' for name in _COLUMNS.split(', '))}, p.role, p.disabled "  # noqa: S608 - constants
    "FROM tokens t JOIN people p ON p.name = t.person WHERE t.id = ?"
)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Somebody who has been recognised, and what this way of coming in is limited to.

    ``datasets`` and ``allow`` None: whatever the person, or the policy, may.
    """

    name: str
    role: Role
    token: str | None = None
    datasets: frozenset[str] | None = None
    allow: frozenset[str] | None = None
    epsilon_question: Fraction | None = None
    epsilon_hour: Fraction | None = None
    purpose: str | None = None

    @property
    def is_steward(self) -> bool:
        """Whether operators' messages are for them."""
        return self.role == "steward"

    def require_steward(self) -> None:
        """Refuse everybody else."""
        if not self.is_steward:
            raise Forbidden("This is for stewards.", fix="Ask the steward.", about="role")

    @property
    def sees_all(self) -> bool:
        """Whether they may see what others asked."""
        return self.role in ("steward", "auditor")

    def may_see(self, dataset: str) -> bool:
        """Whether this way of coming in reaches a data set."""
        return self.datasets is None or dataset in self.datasets


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Person:
    """Somebody with an account of the service."""

    name: str
    role: Role
    has_password: bool
    created: str
    disabled: str | None


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """A token without its secret."""

    id: str
    person: str
    label: str
    datasets: frozenset[str] | None
    allow: frozenset[str] | None
    epsilon_question: Fraction | None
    epsilon_hour: Fraction | None
    created: str
    expires: str | None
    revoked: str | None
    purpose: str | None

    @property
    def is_live(self) -> bool:
        """Whether it opens anything now."""
        return self.revoked is None and (self.expires is None or self.expires > now())


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Scram:
    """What a server must know to check a proof: the keys of each live token of a person."""

    salt: bytes
    iterations: int
    keys: tuple[tuple[bytes, bytes, str], ...]  # stored key, server key, token id


@final
class People:
    """People and tokens in the store of a service."""

    def __init__(self, store: Store, issuer: Issuer | None = None) -> None:
        self._store, self._issuer = store, issuer
        self._unknown = _kept_secret(store)  # makes the salts of names that nobody has

    # people

    def add(self, name: str, role: Role, password: str | None = None) -> None:
        """A new person; refused if the name is taken."""
        require_name(name, "name")
        if role not in ROLES:
            raise SpecError(f"{role!r} is not a role.", fix=f"Use {', '.join(ROLES)}.")
        kept = None if password is None else _hashed(password)
        values = (name, role, kept, token_hex(16), now())
        added = self._store.all(
            "INSERT INTO people (name, role, password, salt, created) VALUES (?, ?, ?, ?, ?) "
            "ON CONFLICT (name) DO NOTHING RETURNING name",
            *values,
        )
        if not added:
            raise SpecError(
                f"There is a person {name!r} already.", fix="Choose another name.", about="taken"
            )

    def set_password(self, name: str, password: str) -> None:
        """Another password."""
        self._change("password = ?", _hashed(password), name)

    def disable(self, name: str) -> None:
        """From now on nothing of this person's opens anything. Runs in progress end."""
        self._change("disabled = ?", now(), name)

    def everybody(self) -> list[Person]:
        """Everybody, by name."""
        rows = self._store.all(
            "SELECT name, role, password, created, disabled FROM people ORDER BY name"
        )
        return [
            Person(name=name, role=role, has_password=kept is not None, created=at, disabled=off)
            for name, role, kept, at, off in rows
        ]

    def _change(self, what: str, value: str, name: str) -> None:
        if not self._store.all(
            f"UPDATE people SET {what} WHERE name = ? RETURNING name",  # noqa: S608 - constants
            value,
            name,
        ):
            raise no_such("person")

    # who is there

    def is_quick(self, text: str) -> bool:
        """Whether `by_token` takes less time than to hand it to a thread."""
        return self._store.is_quick and not self._is_theirs(text)

    def _is_theirs(self, text: str) -> bool:
        return self._issuer is not None and text.count(".") == _JWT_DOTS

    def by_token(self, text: str) -> Caller:
        """Whose token this is: one of ours, or of the provider where people sign in."""
        if self._issuer is not None and self._is_theirs(text):
            return self.caller_of(self._issuer.name_of(text))
        prefix, _, rest = text.partition("_")
        name, _, _ = rest.partition("_")
        row = self._store.one(_WITH_PERSON, name)
        kept = "" if row is None else row[3]
        right = hmac.compare_digest(_digest(text), kept)
        if row is None or not right or prefix != _PREFIX:
            raise _nobody()
        return _caller(row)

    def by_password(self, name: str, password: str) -> Caller:
        """Who has this name and password; a wrong name takes as long as a wrong password."""
        argon2 = extra("argon2", "Passwords")
        row = self._store.one("SELECT password, role, disabled FROM people WHERE name = ?", name)
        kept = row[0] if row is not None else None
        try:
            right = argon2.PasswordHasher().verify(kept or _NOBODY, password)
        except (argon2.exceptions.VerificationError, argon2.exceptions.InvalidHashError):
            right = False
        if row is None or kept is None or not right or row[2] is not None:
            raise _nobody()
        return Caller(name=name, role=row[1])

    def scram(self, name: str) -> Scram:
        """What checks a Postgres client's proof; a name that nobody has looks like any other."""
        row = self._store.one("SELECT salt, disabled FROM people WHERE name = ?", name)
        if row is None or row[1] is not None:
            made = hmac.digest(self._unknown, name.encode(), "sha256")[:16]
            return Scram(salt=made, iterations=ITERATIONS, keys=())
        rows = self._store.all(f"SELECT {_COLUMNS} FROM tokens WHERE person = ?", name)  # noqa: S608 - constants
        keys = tuple(
            (bytes.fromhex(each[4]), bytes.fromhex(each[5]), str(each[0]))
            for each in rows
            if _token(each).is_live
        )
        return Scram(salt=bytes.fromhex(row[0]), iterations=ITERATIONS, keys=keys)

    def caller_of_token(self, token_id: str) -> Caller:
        """The owner of a token that was proven to be held."""
        row = self._store.one(_WITH_PERSON, token_id)
        if row is None:
            raise _nobody()
        return _caller(row)

    def caller_of(self, name: str) -> Caller:
        """A person who signed in before, by name."""
        row = self._store.one("SELECT role, disabled FROM people WHERE name = ?", name)
        if row is None or row[1] is not None:
            raise _nobody()
        return Caller(name=name, role=row[0])

    def require_live(self, name: str, token_id: str | None) -> None:
        """Refuse a person who was disabled, or a token that ended, since they were recognised.

        Neither is ever deleted: who is not listed at all asks in the operator's own process.
        """
        person = self._store.one("SELECT disabled FROM people WHERE name = ?", name)
        row = self._store.one(f"SELECT {_COLUMNS} FROM tokens WHERE id = ?", token_id)  # noqa: S608 - constants
        if (person is not None and person[0] is not None) or not (
            row is None or _token(row).is_live
        ):
            raise _nobody()

    # tokens

    def new_token(  # noqa: PLR0913 - the limits of a token
        self,
        person: str,
        *,
        label: str = "",
        expires: timedelta | None = None,
        datasets: Collection[str] | None = None,
        allow: Collection[str] | None = None,
        epsilon_question: Number | None = None,
        epsilon_hour: Number | None = None,
        purpose: str | None = None,
    ) -> str:
        """A token for a person, limited as said. Its text is shown here and never again."""
        row = self._store.one("SELECT salt FROM people WHERE name = ?", person)
        if row is None:
            raise no_such("person")
        if unknown := set(allow or ()) - CAPABILITIES.keys():
            raise SpecError(
                f"{min(unknown)!r} is not a capability.", fix=f"Use {', '.join(CAPABILITIES)}."
            )
        name = token_hex(6)
        text = f"{_PREFIX}_{name}_{token_urlsafe(32)}"
        stored, server = scram_keys(text, bytes.fromhex(row[0]))
        until = None if expires is None else datetime.now(UTC) + expires
        self._store.all(
            f"INSERT INTO tokens ({_COLUMNS}) VALUES ({', '.join('?' * 14)})",  # noqa: S608 - constants
            name, person, label, _digest(text), stored.hex(), server.hex(), _listed(datasets),
            _listed(allow), _price(epsilon_question), _price(epsilon_hour), now(),
            None if until is None else until.isoformat(timespec="milliseconds"), None,
            purpose,
        )  # fmt: skip
        return text

    def revoke(self, token_id: str) -> None:
        """From now on the token opens nothing."""
        if not self._store.all(
            "UPDATE tokens SET revoked = ? WHERE id = ? RETURNING id", now(), token_id
        ):
            raise no_such("token")

    def tokens(self, person: str | None = None) -> list[Token]:
        """All tokens, or those of a person, the latest first."""
        rows = self._store.all(f"SELECT {_COLUMNS} FROM tokens ORDER BY created DESC")  # noqa: S608 - constants
        return [_token(row) for row in rows if person in (None, row[1])]


def scram_keys(password: str, salt: bytes, iterations: int = ITERATIONS) -> tuple[bytes, bytes]:
    """StoredKey and ServerKey of RFC 5802 section 3, for SHA-256."""
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, iterations)
    client = hmac.digest(salted, b"Client Key", "sha256")
    return hashlib.sha256(client).digest(), hmac.digest(salted, b"Server Key", "sha256")


def _kept_secret(store: Store) -> bytes:
    """A secret of this store, the same after a restart and in every replica."""
    made, name = token_bytes(32).hex(), "unknown"
    store.all("INSERT INTO secrets VALUES (?, ?) ON CONFLICT DO NOTHING", name, made)
    row = store.one("SELECT value FROM secrets WHERE name = ?", name)
    return bytes.fromhex(made if row is None else row[0])


def _hashed(password: str) -> str:
    if len(password) < _PASSWORD_MIN:
        raise SpecError(
            "The password is too short.", fix=f"Use {_PASSWORD_MIN} characters or more."
        )
    return str(extra("argon2", "Passwords").PasswordHasher().hash(password))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _nobody() -> Unauthenticated:
    return Unauthenticated(
        "The name, password or token is wrong, expired or revoked.",
        fix="Check it, or ask the steward for another.",
    )


def _caller(row: Row) -> Caller:
    """Whoever a token and its person's own row say, as they are in the store now."""
    token, caller = _named(tuple(row))
    if not token.is_live or row[-1] is not None:
        raise _nobody()
    return caller


@lru_cache(maxsize=1000)
def _named(row: Row) -> tuple[Token, Caller]:
    token, (role, _) = _token(row[:-2]), row[-2:]
    return token, Caller(
        name=token.person, role=role, token=token.id, datasets=token.datasets,
        allow=token.allow, epsilon_question=token.epsilon_question,
        epsilon_hour=token.epsilon_hour, purpose=token.purpose,
    )  # fmt: skip


def _listed(names: Collection[str] | None) -> str | None:
    return None if names is None else json.dumps(sorted(names))


def _price(said: Number | None) -> str | None:
    if said is None:
        return None
    found = fraction(said, name="epsilon")
    if found <= 0:
        raise SpecError("The limit of a token is not above 0.", fix="Leave it out for no limit.")
    return str(found)


def _names(text: str | None) -> frozenset[str] | None:
    return None if text is None else frozenset(json.loads(text))


def _token(row: Row) -> Token:
    name, person, label, _, _, _, datasets, allow, question, hour, *rest = row
    created, expires, revoked, purpose = rest
    return Token(
        id=name, person=person, label=label, datasets=_names(datasets), allow=_names(allow),
        epsilon_question=None if question is None else Fraction(question),
        epsilon_hour=None if hour is None else Fraction(hour),
        created=created, expires=expires, revoked=revoked, purpose=purpose,
    )  # fmt: skip


_NOBODY: Final = (  # argon2 of a password that nobody knows: wrong names take as long as wrong ones
    "$argon2id$v=19$m=65536,t=3,p=4$c29tZXNhbHRzb21lc2FsdA$"
    "m4mZuMG1gPJ0xSJyXpZKJ8ynMqDLd1c2TTVWZHUZ2Vw"
)
