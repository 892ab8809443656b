"""Every exception, by audience.

A message states the problem in public terms and the next step. No exception ever holds a row or a
value derived from rows, so any of them may be shown to the audience its family names.
"""

import os
import traceback
from pathlib import Path
from typing import ClassVar, Final

from noisegate.inert import line

DEBUG: Final = "NOISEGATE_DEBUG"  # of the environment: errors are shown whole


class NoisegateError(Exception):
    """Base of all refusals: what is wrong, and what to do next.

    ``code`` is stable, while words may improve: that of the class, and what it is ``about`` where
    somebody has to tell it from others of its class.

    >>> str(SpecError("scale is 0.", fix="Use a scale above 0."))
    'scale is 0. Use a scale above 0.'
    >>> Unsupported("A join has no equality.", fix="Join ON a column.", about="join").code
    'unsupported.join'
    """

    code: str = "error"
    exit_code: ClassVar[int] = 1

    def __init_subclass__(cls, code: str = "", exit_code: int = 0) -> None:
        super().__init_subclass__()
        cls.code, cls.exit_code = code or cls.code, exit_code or cls.exit_code

    def __init__(self, problem: str, *, fix: str, about: str = "") -> None:
        self.problem, self.fix = line(problem), line(fix)  # names in it come from anywhere
        self.about = about
        self.code = f"{type(self).code}.{about}" if about else type(self).code
        super().__init__(f"{self.problem} {self.fix}")


class UserError(NoisegateError, code="user-error", exit_code=2):
    """The analyst may read it and can mend it."""


class SpecError(UserError, code="bad-parameter"):
    """A parameter is outside what the mechanism, loss or plan accepts."""


class Unsupported(UserError, code="unsupported"):  # noqa: N818 - the name is the refusal
    """Nothing is known about this step, so it is refused (unknown means no).

    ``start``: how many characters of the SQL stand before what it is about, where that is known.
    """

    start: int | None = None


class Forbidden(UserError, code="forbidden"):  # noqa: N818
    """The policy does not allow this account to ask such questions. Nothing was spent."""


class OverBudget(UserError, code="over-budget", exit_code=3):  # noqa: N818
    """The account cannot pay for this question. Nothing was spent by asking."""


class RequestConflict(UserError, code="request-conflict"):  # noqa: N818
    """The request id was already used for another question, or cannot be run again."""


class Unauthenticated(UserError, code="unauthenticated"):  # noqa: N818
    """Nobody known is asking."""


class NotFound(UserError, code="not-found"):  # noqa: N818
    """There is no such thing, or none that the caller may see: the two look the same."""


class Paused(UserError, code="paused"):  # noqa: N818
    """The steward has stopped all questions for now."""


class Busy(UserError, code="busy"):  # noqa: N818
    """Too much is asked at once."""


class Cancelled(UserError, code="cancelled"):  # noqa: N818
    """The run was cancelled. What was drawn before stays charged."""


class Waiting(UserError, code="waiting"):  # noqa: N818
    """A steward has to approve it first. Nothing was spent."""


class OperatorError(NoisegateError, code="operator-error", exit_code=4):
    """The data steward may read it and can mend it."""


class PolicyError(OperatorError, code="policy"):
    """The policy contradicts itself or the ledger."""


class SourceError(OperatorError, code="source"):
    """The rows cannot be reached. Decided by the file or server, never by a row's value."""


class LedgerError(OperatorError, code="ledger", exit_code=5):
    """The ledger cannot be read, written or trusted."""


class InsecureBits(OperatorError, code="insecure-bits"):  # noqa: N818
    """A durable ledger was asked to vouch for noise that did not come from the system's entropy."""


class Bug(NoisegateError, code="bug", exit_code=70):  # noqa: N818
    """A promise inside noisegate does not hold. Please report it."""


def stumbled(wrong: BaseException) -> NoisegateError:
    """An unexpected error in public terms: what it is and where, never its own words.

    Those may quote a row: a cast that fails names the value, a look-up the key.
    """
    if isinstance(wrong, NoisegateError):
        return wrong
    if isinstance(wrong, OSError) and wrong.strerror:
        file = wrong.filename
        named = f" ({Path(os.fsdecode(file)).name})" if isinstance(file, str | bytes) else ""
        return OperatorError(
            f"The operating system reports: {wrong.strerror}{named}.",
            fix="Resolve this, then try again.",
        )
    frames = traceback.extract_tb(wrong.__traceback__)
    own = [each for each in frames if f"{os.sep}noisegate{os.sep}" in each.filename] or frames
    place = f" in {Path(own[-1].filename).name}:{own[-1].lineno}" if own else ""
    return Bug(
        f"noisegate failed unexpectedly: {type(wrong).__name__}{place}.",
        fix=f"Please report this line to the maintainers. With {DEBUG}=1 the error is shown in "
        "full, which may quote rows: for the steward only.",
    )


class UnitWarning(UserWarning):
    """No unit was named, and a column says by its name whose the rows are."""


def is_interrupt(error: Exception) -> bool:
    """Whether an engine's error is Ctrl-C: DuckDB reports it as an error of its own.

    So while it runs; while it asks a frame for its rows, it adds what went wrong there.
    """
    said = str(error).rstrip(": ")
    return said == "Query interrupted" or said.endswith("failed: KeyboardInterrupt")
