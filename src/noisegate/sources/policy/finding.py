"""What a steward is told about a policy or its rows."""

from enum import Enum
from typing import final

from noisegate.frozen import dataclass


class Severity(Enum):
    """How much a finding matters."""

    ERROR = "error"  # it will not work, or it protects nobody
    WARNING = "warning"  # it is probably not meant
    ADVICE = "advice"  # what a choice costs, or rules out


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing to look at: where in the policy, what it means, what to do."""

    severity: Severity
    place: str
    problem: str
    fix: str

    def __str__(self) -> str:
        return f"{self.severity.value}: {self.place}: {self.problem} {self.fix}"
