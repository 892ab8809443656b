"""Refusals in Postgres' words: an SQLSTATE, what is wrong, and the fix as a hint."""

from collections.abc import Mapping
from typing import Final, final

from noisegate.errors import UserError, stumbled
from noisegate.frozen import dataclass
from noisegate.server.refusals import body_of
from noisegate.server.wire.messages import Malformed

FATAL: Final = frozenset({"unauthenticated", "not-found"})
_STATES: Final = {
    "unsupported.syntax": "42601",
    "unsupported.table": "42P01",
    "unsupported.column": "42703",
    "unsupported.function": "42883",
    "unsupported.parameter": "42P02",
    "unsupported.time": "57014",
    "unsupported.memory": "53200",
    "unsupported.size": "54000",
    "unsupported": "0A000",
    "bad-parameter": "22023",
    "forbidden": "42501",
    "over-budget": "53400",
    "unpriced": "55000",
    "read-only": "25006",
    "setting": "42704",
    "request-conflict": "40001",
    "unauthenticated": "28P01",
    "not-found": "3D000",
    "paused": "57P03",
    "busy": "53300",
    "waiting": "55000",
    "cancelled": "57014",
    "cursor": "34000",
    "statement": "26000",
    "name-taken": "42P05",
    "failed-transaction": "25P02",
    "too-many": "53300",
    "too-much": "54000",
    "no-encryption": "28000",
    "unavailable": "58000",
    "user-error": "22000",
}


class Unpriced(UserError, code="unpriced"):  # noqa: N818 - the name is the refusal
    """A question without a price. ``plan`` says what it would cost. Nothing was spent."""

    plan: str = ""


class NoCursor(UserError, code="cursor"):  # noqa: N818
    """There is no such cursor."""


class NoStatement(UserError, code="statement"):  # noqa: N818
    """There is no such prepared statement."""


class Taken(UserError, code="name-taken"):  # noqa: N818
    """There is a statement or a cursor of this name."""


class FailedTransaction(UserError, code="failed-transaction"):  # noqa: N818
    """The transaction has failed; it has to be ended first."""


class TooMany(UserError, code="too-many"):  # noqa: N818
    """Too many connections."""


class TooMuch(UserError, code="too-much"):  # noqa: N818
    """More than a session may hold."""


class NoEncryption(UserError, code="no-encryption"):  # noqa: N818
    """A connection from elsewhere without TLS."""


@final
@dataclass(frozen=True, slots=True)
class Notice:
    """Something to know beside an answer."""

    words: str
    detail: str = ""
    hint: str = ""

    def fields(self) -> Mapping[str, str]:
        """As Postgres sends it."""
        return _fields("NOTICE", "00000", self.words, self.detail, self.hint)


def state_of(code: str) -> str:
    """The SQLSTATE of a refusal's code."""
    return _STATES.get(code) or _STATES.get(code.partition(".")[0]) or "XX000"


def error_fields(error: BaseException, *, steward: bool, fatal: bool = False) -> Mapping[str, str]:
    """A refusal as Postgres sends it. What is the operator's is told to stewards alone."""
    severity = "FATAL" if fatal else "ERROR"
    if isinstance(error, Malformed):
        return _fields(severity, error.state, str(error))
    body = body_of(error, steward=steward)
    detail = error.plan if isinstance(error, Unpriced) else ""
    if "reference" in body:
        detail = f"Reference {body['reference']}."
    found = stumbled(error)
    start = getattr(found, "start", None)
    fields = _fields(severity, state_of(body["code"]), body["message"], detail, body["fix"])
    return fields if start is None else {**fields, "P": str(start + 1)}


def _fields(
    severity: str, state: str, words: str, detail: str = "", hint: str = ""
) -> dict[str, str]:
    return {"S": severity, "V": severity, "C": state, "M": words, "D": detail, "H": hint}
