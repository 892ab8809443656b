"""Every exception, by audience.

A message states the problem in public terms and the next step. No exception ever holds a row or a
value derived from rows, so any of them may be shown to the audience its family names.
"""

from typing import ClassVar


class NoisegateError(Exception):
    """Base of all refusals: what is wrong, and what to do next.

    >>> str(SpecError("scale is 0.", fix="Use a scale above 0."))
    'scale is 0. Use a scale above 0.'
    """

    code: ClassVar[str] = "error"
    exit_code: ClassVar[int] = 1

    def __init__(self, problem: str, *, fix: str) -> None:
        super().__init__(f"{problem} {fix}")
        self.problem = problem
        self.fix = fix


class UserError(NoisegateError):
    """The analyst may read it and can mend it."""

    code = "user-error"
    exit_code = 2


class SpecError(UserError):
    """A parameter is outside what the mechanism, loss or plan accepts."""

    code = "bad-parameter"


class Unsupported(UserError):  # noqa: N818 - the name is the refusal
    """Nothing is known about this step, so it is refused (unknown means no)."""

    code = "unsupported"


class OverBudget(UserError):  # noqa: N818
    """The account cannot pay for this question. Nothing was spent by asking."""

    code = "over-budget"
    exit_code = 3


class RequestConflict(UserError):  # noqa: N818
    """The request id was already used for another question, or cannot be run again."""

    code = "request-conflict"


class OperatorError(NoisegateError):
    """The data steward may read it and can mend it."""

    code = "operator-error"
    exit_code = 4


class PolicyError(OperatorError):
    """The policy contradicts itself or the ledger."""

    code = "policy"


class SourceError(OperatorError):
    """The rows cannot be reached. Decided by the file or server, never by a row's value."""

    code = "source"


class LedgerError(OperatorError):
    """The ledger cannot be read, written or trusted."""

    code = "ledger"
    exit_code = 5


class InsecureBits(OperatorError):  # noqa: N818
    """A durable ledger was asked to vouch for noise that did not come from the system's entropy."""

    code = "insecure-bits"


class Bug(NoisegateError):  # noqa: N818
    """A promise inside noisegate does not hold. Please report it."""

    code = "bug"
    exit_code = 70


def is_interrupt(error: Exception) -> bool:
    """Whether an engine's error is Ctrl-C: DuckDB reports it as an error of its own.

    So while it runs; while it asks a frame for its rows, it adds what went wrong there.
    """
    said = str(error).rstrip(": ")
    return said == "Query interrupted" or said.endswith("failed: KeyboardInterrupt")
