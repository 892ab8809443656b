"""The settings of one session: what SET says, in Postgres' names and in ours.

Ours begin with ``noisegate.``. Of Postgres' own, those that would change what is answered are
fixed; all others are kept and shown, because clients set them and look at them.
"""

import re
from collections.abc import Iterator
from fractions import Fraction
from typing import Final, final

from noisegate.desk.terms.terms import USUAL, PartOf, Rest, Terms, rest_of
from noisegate.errors import SpecError, UserError
from noisegate.exact import positive
from noisegate.frozen import dataclass, field

VERSION: Final = "16.0"
PREFIX: Final = "noisegate."
REPORTED: Final = {  # those that a client is told, by the names that it knows
    "server_version": VERSION,
    "server_encoding": "UTF8",
    "client_encoding": "UTF8",
    "application_name": "",
    "default_transaction_read_only": "on",
    "in_hot_standby": "off",
    "is_superuser": "off",
    "session_authorization": "",
    "DateStyle": "ISO, MDY",
    "IntervalStyle": "postgres",
    "TimeZone": "UTC",
    "integer_datetimes": "on",
    "standard_conforming_strings": "on",
}
_USUAL: Final = {
    **{name.lower(): value for name, value in REPORTED.items()},
    "search_path": '"$user", public', "extra_float_digits": "1", "statement_timeout": "0",
    "transaction_isolation": "serializable", "transaction_read_only": "on", "lc_collate": "C",
    "default_transaction_isolation": "serializable", "max_identifier_length": "63",
    "server_version_num": "160000", "bytea_output": "hex", "lc_ctype": "C", "block_size": "8192",
    "standard_conforming_strings": "on", "client_min_messages": "notice", "row_security": "on",
    "lock_timeout": "0", "idle_in_transaction_session_timeout": "0", "escape_string_warning": "on",
    "max_index_keys": "32", "datestyle": "ISO, MDY", "jit": "off",
}  # fmt: skip
_FIXED: Final = frozenset(
    {"server_version", "server_encoding", "is_superuser", "session_authorization"}
    | {"integer_datetimes", "server_version_num", "in_hot_standby", "block_size"}
)
_NUMBERS: Final = ("epsilon", "within", "relative", "confidence", "question_max", "session_max")
_SWITCHES: Final = ("margins", "ask", "practice", "real_only")
_PART: Final = ("partition", "part", "several")  # which part of a table is asked about
_TEXTS: Final = ("purpose", *_PART)
_ON: Final = {"on": True, "true": True, "yes": True, "1": True, "t": True}
_OFF: Final = {"off": False, "false": False, "no": False, "0": False, "f": False}
_UTF8: Final = frozenset({"utf8", "utf-8", "unicode", "sql_ascii", "auto"})
_OPTION: Final = re.compile(r"(?:-c\s*|--)([\w.]+)=((?:\\.|[^\s\\])*)")
_KEPT_MAX: Final = 200
_VALUE_MAX: Final = 1000


class UnknownSetting(UserError, code="setting"):  # noqa: N818 - the name is the refusal
    """There is no such setting."""


@final
@dataclass(slots=True)
class SessionSettings:
    """What a session has set. ``spent`` is what it has paid.

    As in Postgres, ROLLBACK takes back what its transaction set, so that no price outlives it.
    """

    values: dict[str, str]
    spent: Fraction = Fraction(0)
    started: dict[str, str] = field(default_factory=dict)  # what the first message said: to RESET
    before: dict[str, str] | None = None  # a transaction began
    lasting: dict[str, str] = field(default_factory=dict)  # what holds once that is committed

    @classmethod
    def of(cls, user: str, said: dict[str, str]) -> "SessionSettings":
        """Those of a new session: as the first message says."""
        made = cls({"session_authorization": user})
        for name, value in said.items():
            if name in ("user", "database", "replication") or name.startswith("_pq_."):
                continue
            if name == "options":
                for found in _OPTION.finditer(value):
                    made.set(found[1], re.sub(r"\\(.)", r"\1", found[2]))
            else:
                made.set(name, value)
        made.started = dict(made.values)
        return made

    def begin(self) -> None:
        """A transaction begins; within another one nothing does."""
        if self.before is None:
            self.before, self.lasting = dict(self.values), dict(self.values)

    def end(self, *, committed: bool) -> list[str]:
        """A transaction ends. The names to report, if the client is to know."""
        if self.before is None:
            return []
        was, self.values = self.values, self.lasting if committed else self.before
        self.before = None
        names = ((name, name.lower()) for name in REPORTED)
        return [name for name, key in names if was.get(key) != self.values.get(key)]

    def set(self, name: str, value: str | None, *, local: bool = False) -> str | None:
        """Set one; None: as it was at the start. The name to report, if the client is to know."""
        name = name.lower()
        if name == "all" and value is None:
            self.values, self.lasting = dict(self.started), dict(self.started)
            return None
        if name in _FIXED:
            raise UnknownSetting(f"{name} cannot be changed.", fix="Leave it as it is.")
        value = self.started.get(name) if value is None else value
        if name.startswith(PREFIX):
            _check(name.removeprefix(PREFIX), value)
        if name == "client_encoding" and value is not None:
            if value.lower().strip("'\"") not in _UTF8:
                raise SpecError("Only UTF-8 is spoken here.", fix="SET client_encoding = 'UTF8'.")
            value = "UTF8"
        if local and self.before is None:
            return None  # there is no transaction that it could hold for
        many = len(self.values) >= _KEPT_MAX and name not in self.values
        if value is not None and (many or len(value) > _VALUE_MAX):
            raise SpecError("This is too much to remember.", fix="Set less.")
        for held in (self.values,) if local else (self.values, self.lasting):
            if value is None:
                held.pop(name, None)
            else:
                held[name] = value
        return next((each for each in REPORTED if each.lower() == name), None)

    def show(self, name: str) -> str:
        """The value of one."""
        name = name.lower()
        if name.startswith(PREFIX):
            short = name.removeprefix(PREFIX)
            if short not in (*_NUMBERS, *_SWITCHES, *_TEXTS):
                raise _unknown(name)
            return self.values.get(name, "off" if short in _SWITCHES else "")
        found = self.values.get(name, _USUAL.get(name))
        if found is None:
            raise _unknown(name)
        return found

    def all(self) -> Iterator[tuple[str, str]]:
        """All of them, by name."""
        own = (PREFIX + name for name in (*_NUMBERS, *_SWITCHES, *_TEXTS))
        for name in sorted({*own, *_USUAL, *self.values}):
            yield name, self.show(name)

    # ours

    def is_on(self, name: str) -> bool:
        """Whether a switch is on."""
        return _ON.get(self.values.get(PREFIX + name, "off").lower(), False)

    def number(self, name: str) -> Fraction | None:
        """A number, if it was set."""
        text = self.values.get(PREFIX + name)
        return None if text is None else positive(text, name=name)

    @property
    def purpose(self) -> str | None:
        """What is asked for, if it was said."""
        return self.values.get(f"{PREFIX}purpose") or None

    @property
    def is_priced(self) -> bool:
        """Whether the session says what to pay."""
        return any(PREFIX + name in self.values for name in ("epsilon", "within", "relative"))

    @property
    def confidence(self) -> Fraction:
        """That of error bars."""
        return self.number("confidence") or USUAL

    @property
    def timeout(self) -> float | None:
        """Seconds that a statement may take."""
        text = re.fullmatch(r"\s*(\d+)\s*(ms|s|min|h)?\s*", self.show("statement_timeout"))
        units = {None: 1e-3, "ms": 1e-3, "s": 1, "min": 60, "h": 3600}
        seconds = int(text[1]) * units[text[2]] if text else 0
        return seconds or None

    @property
    def part(self) -> PartOf | None:
        """The part of a table that the session asks about; conditions stand between semicolons."""
        by, key, several = (self.values.get(PREFIX + name, "") for name in _PART)
        if not by and not key:
            return None
        names = tuple(filter(None, map(str.strip, by.split(";"))))
        return PartOf(by=names, key=key.strip(), several=several)

    def terms(self, said: Terms) -> dict[str, Fraction | Rest]:
        """What the session adds to what a question says about paying."""
        own = (
            ()
            if said.epsilon or said.within or said.relative
            else ("epsilon", "within", "relative")
        )
        names = (*own, *(() if said.confidence else ("confidence",)))
        rest = rest_of(self.values.get(PREFIX + "epsilon"))
        if rest is not None and "epsilon" in names:
            return {"epsilon": rest} | {n: v for n in names[1:] if (v := self.number(n))}
        found = ((name, self.number(name)) for name in names)
        return {name: value for name, value in found if value is not None}


def _check(name: str, value: str | None) -> None:
    if name in _NUMBERS:
        if value is not None and (name != "epsilon" or rest_of(value) is None):
            number = positive(value, name=name)
            if name == "confidence" and number >= 1:
                raise SpecError("confidence must be below 1.", fix="For example: 0.95.")
    elif name in _SWITCHES:
        if value is not None and value.lower() not in {**_ON, **_OFF}:
            raise SpecError(f"{name} is a switch.", fix="Use on or off.")
    elif name not in _TEXTS:
        raise _unknown(PREFIX + name)


def _unknown(name: str) -> UnknownSetting:
    known = ", ".join(PREFIX + each for each in (*_NUMBERS, *_SWITCHES, *_TEXTS))
    return UnknownSetting(f"There is no setting {name!r}.", fix=f"Ours are {known}.")
