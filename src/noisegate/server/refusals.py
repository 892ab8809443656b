"""What is said to a caller instead of an answer: one shape, whoever asks by whatever face."""

from http import HTTPStatus
from secrets import token_hex
from typing import Any, Final, TypeAlias

import noisegate.errors as errors  # noqa: PLR0402 - most of them
from noisegate.errors import NoisegateError, NotFound, UserError, stumbled

Body: TypeAlias = dict[str, Any]


_STATUS: Final[tuple[tuple[type[NoisegateError], HTTPStatus], ...]] = (
    (errors.Unauthenticated, HTTPStatus.UNAUTHORIZED),
    (NotFound, HTTPStatus.NOT_FOUND),
    (errors.Paused, HTTPStatus.SERVICE_UNAVAILABLE),
    (errors.Busy, HTTPStatus.TOO_MANY_REQUESTS),
    (errors.Waiting, HTTPStatus.ACCEPTED),
    (errors.Cancelled, HTTPStatus.CONFLICT),
    (errors.Forbidden, HTTPStatus.FORBIDDEN),
    (errors.OverBudget, HTTPStatus.PAYMENT_REQUIRED),
    (errors.RequestConflict, HTTPStatus.CONFLICT),
    (errors.SpecError, HTTPStatus.BAD_REQUEST),
    (UserError, HTTPStatus.UNPROCESSABLE_ENTITY),
)


def no_such(what: str) -> NotFound:
    """The refusal of something that is absent or not the caller's."""
    return NotFound(f"There is no such {what} here.", fix="Check its name, or ask the steward.")


def status_of(error: BaseException) -> int:
    """The HTTP status of a refusal."""
    for kind, status in _STATUS:
        if isinstance(error, kind):
            return int(status)
    return int(HTTPStatus.SERVICE_UNAVAILABLE if isinstance(error, NoisegateError) else 500)


def body_of(error: BaseException, *, steward: bool = False) -> Body:
    """What is wrong and what to do. Analysts see of the operator's errors a reference alone."""
    found = stumbled(error)
    if isinstance(found, UserError) or steward:
        return {"code": found.code, "message": found.problem, "fix": found.fix}
    return {
        "code": "unavailable",
        "message": "The service cannot answer this now.",
        "fix": "Try again later with the same request, which is charged at most once, or give the "
        "reference to the steward.",
        "reference": token_hex(4),
    }
