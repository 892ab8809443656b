"""When an analyst may ask, and for which time a share is.

Claim: whatever the windows are, all answers together are within the data set's budget: the share of
    a window is an account below the data set's, and both are charged. A window limits how fast an
    analyst may spend; it promises nothing more, and a clock that jumps moves no limit of the data
    set.
"""

from collections.abc import Mapping
from datetime import date
from types import MappingProxyType
from typing import Any, Final, final

from noisegate.errors import Forbidden, PolicyError
from noisegate.frozen import dataclass

_LABELS: Final = {"day": "%Y-%m-%d", "week": "%G-W%V", "month": "%Y-%m", "year": "%Y"}


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The share is for ``every`` day, week, month or year, None: for ever; ``until`` a last day."""

    every: str | None = None
    until: date | None = None

    def label(self, today: date) -> str | None:
        """The name of the window that holds ``today``; None: there is one for ever.

        >>> Window(every="month").label(date(2026, 11, 17))
        '2026-11'
        """
        return None if self.every is None else today.strftime(_LABELS[self.every])

    def require(self, whose: str, today: date) -> None:
        """Refuse questions after the last day, of an analyst or a purpose."""
        if self.until is not None and today > self.until:
            raise Forbidden(
                f"The share of {whose!r} ended on {self.until}.",
                fix="Ask the steward for a later day: until = ... under its name.",
                about="until",
            )

    def __str__(self) -> str:
        every = "" if self.every is None else f" every {self.every}"
        return every if self.until is None else f"{every} until {self.until}"


def windows_of(shares: Mapping[str, Any]) -> Mapping[str, Window]:
    """When each analyst may ask, by what a policy says of their shares.

    The account of a window has its time behind the analyst's name: nobody else may be called so.
    """
    found = {
        name: Window(every=share.get("every"), until=share.get("until"))
        for name, share in shares.items()
        if isinstance(share, dict)
    }
    for name in shares:
        head, _, time = name.rpartition(" ")
        if head in found and found[head].every is not None and time[:1].isdigit():
            raise PolicyError(
                f"analysts.{name}: this is what a window of the share of {head!r} is called.",
                fix="Rename one of them.",
            )
    return MappingProxyType(found)
