"""A number that a program makes of all rows, where a steward vouches for how far it moves.

Nothing here can check the steward's word; so only the data set's own account may use it, and every
promise that is made of it says what it rests on. The program itself is locked in like any other.
"""

import json
from dataclasses import dataclass
from fractions import Fraction
from typing import final

import numpy as np

from noisegate.algebra.blocks import STEPS
from noisegate.curator.blocks import BlockMeasurement, said_of_blocks
from noisegate.curator.kept import Kept
from noisegate.errors import Unsupported
from noisegate.mechanisms.additive.geometric import Geometric
from noisegate.mechanisms.base import to_record
from noisegate.noise.bits import Bits
from noisegate.noise.chunks import Int64Array
from noisegate.privacy.distance import L1
from noisegate.privacy.event import GeometricEvent
from noisegate.sources.source import Source
from noisegate.transforms.blocks import BlockQuery


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedMeasurement:
    """One whole number from 0 to 2**20 of one block that holds all rows, with geometric noise."""

    query: BlockQuery
    noise: Geometric

    def __post_init__(self) -> None:
        tally = self.query.tally
        whole = tally.answers == 1 and tally.sample is None
        steps = tally.ranges == ((Fraction(0), Fraction(STEPS)),)
        if type(self.noise) is not Geometric or not (whole and steps):
            raise Unsupported(
                "A vouched statistic is one whole number about all rows.",
                fix=f"Use one block, one range from 0 to {STEPS}, and geometric noise.",
                about="claim",
            )

    @property
    def capabilities(self) -> frozenset[str]:
        """The optional capabilities that it uses."""
        return frozenset({"programs"})

    @property
    def claim(self) -> str:
        """What the steward says by asking."""
        return (
            f"one unit with all its rows changes the result of {self.query.tally.program.name!r} "
            "by at most 1, and it always answers in time"
        )

    def event(self) -> GeometricEvent:
        """What one use is, for accounting.

        Claim: (1 / scale)-private, provided that `claim` is true. Adjacency: add/remove one unit.
        Why: geometric noise on a whole number that moves by at most 1 [GRS09]. Rounding: none; the
            answers are whole steps of the range already, and others are rounded to one.
        """
        return GeometricEvent(scale=self.noise.scale, sensitivity=L1(1))

    def question(self) -> str:
        """Canonical text: the program by its text, and that it is vouched for."""
        record = {"query": self.query.to_record(), "mechanisms": [to_record(self.noise)],
                  "claimed": self.claim}  # fmt: skip
        return json.dumps(record, sort_keys=True, separators=(",", ":"), ensure_ascii=False)

    def draw(
        self, source: Source, bits: Bits, _kept: Kept | None = None
    ) -> tuple[Int64Array, None]:
        """The noisy number, of shape (1, 1). Reads rows; call it once paid."""
        said = said_of_blocks(self.query.tally, source, bits)
        return self.noise.sample(np.asarray(said, np.int64).reshape(1, 1), bits=bits), None


def require_program(asked: object, *, steward: bool) -> None:
    """Refuse what is no program of ours, and one that is vouched for by anybody but the steward."""
    if not isinstance(asked, BlockMeasurement | ClaimedMeasurement) or (
        (type(asked), type(asked.query))
        not in ((BlockMeasurement, BlockQuery), (ClaimedMeasurement, BlockQuery))
    ):
        raise Unsupported("This is not a measurement.", fix="Make one with `Measurement`.")
    if (type(asked) is ClaimedMeasurement or asked.query.tally.trusted) and not steward:
        raise Unsupported(
            "Only the steward can vouch for a program.",
            fix="Use gate.apply, on blocks of rows, with trusted=False.",
            about="steward",
        )
