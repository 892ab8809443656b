"""How a service is run: what its operator can choose."""

import os
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from typing import Any, Final, Self, final

from noisegate.errors import SpecError

_PREFIX: Final = "NOISEGATE_"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What an operator can choose. Each has a variable of the environment: NOISEGATE_QUANTUM=0.1.

    ``quantum``: answers leave at multiples of so many seconds, doubled from eight of them on, so
    that their time tells next to nothing about rows; 0 turns it off. ``workers``: questions that
    are worked on at once. ``approve_above``: an ε above which a steward has to approve.
    ``kept``: results that are kept in memory; those that are gone come from the ledger again.
    """

    quantum: float = 0.05
    workers: int = 2
    approve_above: Fraction | None = None
    kept: int = 2000

    @classmethod
    def from_environment(cls) -> Self:
        """The usual settings, or those of the environment."""
        made, kinds = cls(), {float: float, int: int}
        for each in fields(cls):
            text = os.environ.get(f"{_PREFIX}{each.name.upper()}")
            if text is not None:
                read = kinds.get(type(getattr(made, each.name)), Fraction)
                made = replace(made, **{each.name: _read(read, text, each.name)})
        return made


def _read(kind: Any, text: str, name: str) -> Any:  # noqa: ANN401 - a number of its kind
    try:
        return kind(text)
    except ValueError:
        raise SpecError(
            f"{_PREFIX}{name.upper()} is not a number.", fix="Give it as 0.1 or 2."
        ) from None
