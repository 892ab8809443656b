"""How a service is run: what its operator can choose."""

from contextlib import suppress
from fractions import Fraction
from ipaddress import ip_address
from typing import final

from noisegate.frozen import dataclass


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What an operator can choose of the service itself; `serve.Serving` has all of it.

    ``quantum``: answers leave at multiples of so many seconds, doubled from eight of them on, so
    that their time tells next to nothing about rows; 0 turns it off. ``workers``: questions that
    are begun at once; an engine takes four of them at a time, and others wait for it or for their
    time to be told. ``approve_above``: an ε above which a steward has to approve.
    ``kept``: results that are kept in memory; those that are gone come from the ledger again.
    """

    quantum: float = 0.05
    workers: int = 16
    approve_above: Fraction | None = None
    kept: int = 2000


def is_here(host: str) -> bool:
    """Whether an address is of this machine alone."""
    with suppress(ValueError):
        return ip_address(host).is_loopback
    return host == "localhost"
