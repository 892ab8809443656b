"""What left the door: the noisy numbers, what they cost, and what is promised about them."""

import json
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from noisegate.errors import LedgerError
from noisegate.privacy.event import Event, decode, encode


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """A vector of noisy whole numbers, as stored in the ledger. Reading it never draws again.

    ``free`` says that it was answered from the ledger without a new charge.
    """

    values: NDArray[np.int64]
    event: Event
    question: str
    request_id: str
    free: bool = False

    def to_bytes(self) -> bytes:
        """What the ledger keeps: the numbers and the event they came from."""
        record = {"values": self.values.tolist(), "event": encode(self.event)}
        return json.dumps(record, sort_keys=True, separators=(",", ":")).encode()

    @classmethod
    def from_bytes(cls, stored: bytes, *, question: str, request_id: str, free: bool) -> "Release":
        """The release that was stored for a question."""
        try:
            record: dict[str, Any] = json.loads(stored)
            values, event = np.array(record["values"], np.int64), decode(record["event"])
        except (ValueError, KeyError, TypeError):
            raise LedgerError(
                "A stored answer cannot be read.", fix="Run: noisegate ledger verify."
            ) from None
        return cls(values=values, event=event, question=question, request_id=request_id, free=free)
