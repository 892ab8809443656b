"""A question with its noise: what the door is asked to do, and all it needs to know."""

import json
from dataclasses import dataclass
from typing import Any, Final, final

from noisegate.errors import Unsupported
from noisegate.mechanisms.base import NoiseMechanism, to_record
from noisegate.mechanisms.gaussian import DiscreteGaussian
from noisegate.mechanisms.geometric import Geometric
from noisegate.privacy.event import Event
from noisegate.transforms.query import Query

# Noise that the door hands out, and the norm in which it measures a query. Others are refused,
# heirs of these too: they could sample something else than their event says.
_L1_NOISE: Final = (Geometric,)
_L2_NOISE: Final = (DiscreteGaussian,)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """An exact query followed by a mechanism that adds noise to each of its cells."""

    query: Query
    mechanism: NoiseMechanism[Any]

    def event(self) -> Event:
        """What one use is, for accounting: the mechanism at the query's own sensitivity.

        Claim: adding the mechanism's noise to the query's vector is this event. Adjacency:
            add/remove one unit. Why: the query bounds the change in both norms.
        """
        if type(self.mechanism) in _L1_NOISE:
            return self.mechanism.event(self.query.l1)
        if type(self.mechanism) in _L2_NOISE:
            return self.mechanism.event(self.query.l2)
        raise Unsupported(
            f"The door has no rule for {type(self.mechanism).__name__} noise.",
            fix="Use geometric or discrete Gaussian noise.",
        )

    def question(self) -> str:
        """Canonical text: two measurements with one text are one question, answered once."""
        record = {"query": self.query.to_record(), "mechanism": to_record(self.mechanism)}
        return json.dumps(record, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
